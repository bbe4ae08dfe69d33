"""Triton's functions for grids, constraints and heuristics, each with the function of Silo that is traced instead."""

from __future__ import annotations

from typing import Final

from silo.core.traced import cdiv, maximum, minimum, next_pow2

__all__ = ["FUNCTIONS"]

FUNCTIONS: Final = {"cdiv": cdiv, "next_power_of_2": next_pow2, "minimum": minimum, "maximum": maximum}
