"""Sums and products of affine values as C texts: base and stride along the innermost loop."""

from __future__ import annotations

from silo.kinds.triton.front.operations import arith

__all__ = ["combine"]


def combine(name: str, left: tuple[str, str], right: tuple[str, str]) -> tuple[str, str] | None:
    """``left`` and ``right`` under the operation ``name``; None where that is no affine value."""
    (base, stride), (other, other_stride) = left, right
    if name == arith.MULI:
        if stride != "0" and other_stride != "0":
            return None
        uniform, varying = (base, other_stride) if stride == "0" else (other, stride)
        product = "0" if varying == "0" else (uniform if varying == "1" else f"({uniform} * {varying})")
        return f"(({base}) * ({other}))", _plain(product)
    sign = "-" if name == arith.SUBI else "+"
    if other_stride == "0":
        total = stride
    elif stride == "0" and sign == "+":
        total = other_stride
    else:
        total = f"({stride} {sign} {other_stride})"
    return f"({base} {sign} {other})", total


def _plain(stride: str) -> str:
    """A stride that is a literal, as its bare digits."""
    digits = stride.replace("(int64_t)", "").replace("((int32_t)", "").replace("((int64_t)", "").rstrip(")")
    return digits if digits.isdigit() else stride
