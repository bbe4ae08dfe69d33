"""Functions of Triton that mean one of ours in a grid, a constraint or a heuristic, once that is traced."""

from __future__ import annotations

from typing import Final

from silo.core.traced import cdiv, maximum, minimum, next_pow2

__all__ = ["FUNCTIONS"]

FUNCTIONS: Final = {"cdiv": cdiv, "next_power_of_2": next_pow2, "minimum": minimum, "maximum": maximum}
