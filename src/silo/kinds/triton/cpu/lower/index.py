"""The place of an element in a tile, as texts of C by axis: its place in memory, and in what a view looks at."""

from __future__ import annotations

from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = ["Index", "linear_index", "remap"]

Index = tuple[str, ...]


def linear_index(index: Index, shape: tuple[int, ...]) -> str:
    """The row-major place of ``index`` in a buffer of ``shape``."""
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
    """The index into a view's operand that shows at ``index`` of its result."""
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
