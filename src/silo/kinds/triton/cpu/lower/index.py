"""Writes positions of elements in a tile, and sums and products of affine values, as C texts."""

from __future__ import annotations

from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = ["Index", "combine", "linear_index", "remap"]

# ---- The position of an element in a tile, as one C text for each axis: in memory, and in the operand of a view ----

Index = tuple[str, ...]


def linear_index(index: Index, shape: tuple[int, ...]) -> str:
    """The row-major position of ``index`` in a buffer of ``shape``."""
    text = "0"
    for name, extent in zip(index, shape, strict=True):
        if text == "0":
            text = name
        elif name == "0":
            text = f"({text}) * {extent}"
        else:
            text = f"({text}) * {extent} + {name}"
    return text


def remap(operation: Operation, index: Index) -> Index:
    """The index, in a view's operand, of the element that is at ``index`` in the view."""
    source: Type = operation.operands[0].type
    shape = operation.result.type.shape
    match operation.name:
        case tt.SPLAT:
            return ("0",) * len(source.shape)
        case tt.EXPAND_DIMS:
            axis = operation.attributes["axis"]
            assert isinstance(axis, int)
            return index[:axis] + index[axis + 1 :]
        case tt.BROADCAST:
            return tuple(
                name if extent == before else "0"
                for name, extent, before in zip(index, shape, source.shape, strict=True)
            )
        case tt.TRANS:
            order = operation.attributes["order"]
            assert isinstance(order, tuple)
            result = [""] * len(index)
            for name, axis in zip(index, order, strict=True):
                assert isinstance(axis, int)
                result[axis] = name
            return tuple(result)
        case _:
            names = iter([name for name, extent in zip(index, shape, strict=True) if extent != 1])
            return tuple(next(names) if extent != 1 else "0" for extent in source.shape)


# ---- Sums and products of affine values as C texts: base and stride along the innermost loop ----


def combine(name: str, left: tuple[str, str], right: tuple[str, str]) -> tuple[str, str] | None:
    """The (base, stride) form of the operation ``name`` on two such forms; None if its result is not affine."""
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
    """The digits of a stride that is a C literal, without its casts; any other stride unchanged."""
    digits = stride.replace("(int64_t)", "").replace("((int32_t)", "").replace("((int64_t)", "").rstrip(")")
    return digits if digits.isdigit() else stride
