"""The functions of Triton that may be called while a grid, constraint or heuristic is traced to an expression.

``FUNCTIONS`` has, by the name of Triton's function, the function of Silo that is called instead.
"""

from __future__ import annotations

from typing import Final

from silo.core.traced import cdiv, maximum, minimum, next_pow2

__all__ = ["FUNCTIONS"]

FUNCTIONS: Final = {"cdiv": cdiv, "next_power_of_2": next_pow2, "minimum": minimum, "maximum": maximum}
