"""What the caller may choose about the generated code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CpuOptions"]


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """Options of one compilation.

    ``reference`` mode stores every tensor value and fuses nothing: slow, simple, and the oracle of ``optimized``.
    ``vector_bits`` is the width of the target's vector registers (128, 256 or 512).
    """

    mode: Literal["optimized", "reference"] = "optimized"
    vector_bits: int = 256
    fp_contract: bool = True
