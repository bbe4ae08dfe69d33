"""Reasons for refusing an operation that is not an expression of elements."""

from __future__ import annotations

from collections.abc import Mapping

from silo.kinds.triton.front.ssa import Operation

__all__ = ["access_refusal", "control_refusal", "dot_refusal", "dot_scaled_refusal"]

# Element of a dot's factors, and the sums it may have.
_DOT_SUMS = {"f16": {"f32", "f16"}, "bf16": {"f32"}, "f32": {"f32"}, "f64": {"f64"}, "i8": {"i32"}}
_SCALED_FORMATS: Mapping[object, str] = {
    0: "f8E4M3FN",
    1: "f8E5M2",
    4: "i8",
    5: "bf16",
    6: "f16",
}  # Triton's ScaleDotElemType


def access_refusal(operation: Operation) -> str:
    """Loads and stores of anything but pointers."""
    return "" if operation.operands[0].type.pointer else "only plain pointers"


def control_refusal(operation: Operation) -> str:
    """Loops and branches over more than one block."""
    several = any(len(region.blocks) > 1 for region in operation.regions)
    return "a region of several blocks" if several else ""


def dot_refusal(operation: Operation) -> str:
    """Products of types without code."""
    left, right, total = _elements(operation)
    if left.startswith("f8") and right.startswith("f8"):
        fits = total in {"f32", "f16"}
    else:
        fits = left == right and total in _DOT_SUMS.get(left, ())
    return "" if fits else f"{left} x {right} -> {total}"


def dot_scaled_refusal(operation: Operation) -> str:
    """Scaled products of formats without code."""
    left, right, total = _elements(operation)
    formats = [operation.attributes[name] for name in ("a_elem_type", "b_elem_type")]
    fits = [_SCALED_FORMATS.get(number) for number in formats] == [left, right] and total in {"f32", "f16", "bf16"}
    return "" if fits else f"{left} x {right} -> {total}"


def _elements(operation: Operation) -> list[str]:
    return [operand.type.element for operand in operation.operands[:3]]
