"""Types in MLIR text."""

from __future__ import annotations

import re
from functools import lru_cache

from silo.errors import SourceError
from silo.kinds.triton.front.cursor import Cursor
from silo.kinds.triton.front.mlir_floats import FLOAT_FORMATS
from silo.kinds.triton.front.ssa import Type

__all__ = ["is_scalar_type", "parse_signature", "read_type", "read_type_list"]

_INTEGERS = ("i1", "i4", "i8", "i16", "i32", "i64", "i128", "index", "none")
_SCALARS = frozenset((*_INTEGERS, *FLOAT_FORMATS, "f8E8M0FNU"))
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
_DIALECT = re.compile(r"![A-Za-z_][A-Za-z0-9_.$]*")
_EXTENT = re.compile(r"([0-9]{1,18})x")
_STRANGE_EXTENT = re.compile(r"[?*]")
_SPACE = re.compile(r'[0-9]+|"[a-z_]+"')  # Triton 3.9 writes "constant" for tl.const, others numbers alone


def is_scalar_type(name: str) -> bool:
    """Whether ``name`` is a builtin scalar type such as ``i32`` or ``bf16``."""
    return name in _SCALARS


def read_type(cursor: Cursor) -> Type:
    """One type: a scalar, a pointer, a tensor, or an opaque dialect type kept as its text."""
    cursor.enter()
    kind = _read_any(cursor)
    cursor.leave()
    return kind


def _read_any(cursor: Cursor) -> Type:
    if cursor.at("!"):
        return _read_dialect_type(cursor)
    start = cursor.position
    word = cursor.need_match(_WORD, "a type")
    if word in _SCALARS:
        return Type(word)
    if word == "tensor":
        return _read_tensor(cursor)
    raise cursor.error("a scalar, a pointer or a tensor type", start)


def _read_dialect_type(cursor: Cursor) -> Type:
    name = cursor.need_match(_DIALECT, "a type")
    if name == "!tt.ptr":
        cursor.need("<")
        pointee = read_type(cursor)
        if cursor.take(","):
            cursor.need_match(_SPACE, "an address space")
        cursor.need(">")
        if pointee.tensor:  # a block pointer
            return Type(f"!tt.ptr<{_spell(pointee)}>")
        return Type(_spell(pointee), pointer=True)
    return Type(name + (cursor.balanced() if cursor.at("<") else ""))


def _read_tensor(cursor: Cursor) -> Type:
    cursor.need("<")
    shape: list[int] = []
    while (extent := cursor.match(_EXTENT)) is not None:
        shape.append(int(extent.group(1)))
    if _STRANGE_EXTENT.match(cursor.text, cursor.skip()):
        raise cursor.error("a static extent: Triton has no tensors of unknown shape or rank")
    element = read_type(cursor)
    if element.tensor:
        raise cursor.error("the element type of a tensor")
    if cursor.at(","):
        raise cursor.error("'>': a tensor with a layout belongs to TTGIR, not to TTIR")
    cursor.need(">")
    return Type(element.element, tuple(shape), tensor=True, pointer=element.pointer)


def _spell(kind: Type) -> str:
    scalar = f"!tt.ptr<{kind.element}>" if kind.pointer else kind.element
    return f"tensor<{''.join(f'{extent}x' for extent in kind.shape)}{scalar}>" if kind.tensor else scalar


def read_type_list(cursor: Cursor) -> tuple[Type, ...]:
    """Types in parentheses, or a single type."""
    if not cursor.take("("):
        return (read_type(cursor),)
    types: list[Type] = []
    if not cursor.take(")"):
        types.append(read_type(cursor))
        while cursor.take(","):
            types.append(read_type(cursor))
        cursor.need(")")
    return tuple(types)


@lru_cache(maxsize=4096)
def parse_signature(text: str) -> tuple[tuple[Type, ...], tuple[Type, ...]] | None:
    """``(types) -> types`` as operand and result types; None where it does not parse."""
    cursor = Cursor(text)
    try:
        operands = read_type_list(cursor)
        cursor.need("->")
        results = read_type_list(cursor)
    except SourceError:
        return None
    return (operands, results) if cursor.skip() == len(text) else None
