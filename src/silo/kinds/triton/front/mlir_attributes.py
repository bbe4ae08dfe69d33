"""Attributes in MLIR text."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from silo.errors import SourceError
from silo.kinds.triton.front.mlir_text import (
    FLOAT_FORMATS,
    Cursor,
    float_from_bits,
    is_scalar_type,
    read_type,
    read_type_list,
    round_to_format,
)
from silo.kinds.triton.front.ssa import Attribute, Dense, Type

__all__ = ["parse_attributes", "read_attribute", "read_attributes"]

_NUMBER = re.compile(r"(?P<hex>0x[0-9A-Fa-f]+)|(?P<float>-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?)|(?P<int>-?[0-9]+)")
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_.$]*|"(?:[^"\\\n]|\\.)*"')
_SYMBOL = re.compile(r'@(?:[A-Za-z0-9_.$-]+|"(?:[^"\\\n]|\\.)*")(?:::@(?:[A-Za-z0-9_.$-]+|"(?:[^"\\\n]|\\.)*"))*')
_DIALECT = re.compile(r"#[A-Za-z_][A-Za-z0-9_.$]*")
_KEYWORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEX_STRING = re.compile(r'"0x((?:[0-9A-Fa-f]{2})*)"')
_NO_DIGITS = re.compile(r"i[0-9]+|index")
_MAX_ELEMENTS = 1 << 22  # far above any constant in a kernel; bounds the memory that a damaged text can claim
_MAX_DEPTH = 16


def read_attributes(cursor: Cursor) -> dict[str, Attribute]:
    """``{name = value, flag}``; a flag without a value is True."""
    cursor.need("{")
    members: dict[str, Attribute] = {}
    if cursor.take("}"):
        return members
    while True:
        start = cursor.skip()
        name = cursor.need_match(_NAME, "the name of an attribute").strip('"')
        if name in members:
            raise cursor.error(f"a name other than {name}, which this dictionary has already", start)
        members[name] = read_attribute(cursor) if cursor.take("=") else True
        if not cursor.take(","):
            cursor.need("}")
            return members


@lru_cache(maxsize=4096)
def parse_attributes(text: str) -> tuple[tuple[str, Attribute], ...] | None:
    """The members of a dictionary without its braces; None if it does not parse."""
    cursor = Cursor("{" + text + "}")
    try:
        members = read_attributes(cursor)
    except SourceError:
        return None
    return tuple(members.items()) if cursor.skip() == len(cursor.text) else None


def read_attribute(cursor: Cursor) -> Attribute:
    """One attribute of any form; dialect attributes, symbols, types and locations as their text."""
    cursor.enter()
    value = _read_any(cursor)
    cursor.leave()
    return value


def _read_any(cursor: Cursor) -> Attribute:
    start = cursor.skip()
    first = cursor.text[start : start + 1]
    if first.isdigit() or first == "-":
        return _read_typed_number(cursor)
    if first == '"':
        value = cursor.string()
        _skip_type(cursor)
        return value
    if first == "[":
        return _read_array(cursor)
    if first == "{":
        nested: Mapping[str, Attribute] = MappingProxyType(read_attributes(cursor))
        return nested
    if first == "@":
        return cursor.need_match(_SYMBOL, "a symbol")
    if first == "#":
        name = cursor.need_match(_DIALECT, "a dialect attribute")
        if cursor.text.startswith("<", cursor.position):
            name += cursor.balanced()
        _skip_type(cursor)
        return name
    if first in ("(", "!"):
        return _read_type_text(cursor)
    return _read_keyword(cursor)


def _read_keyword(cursor: Cursor) -> Attribute:
    start = cursor.position
    word = cursor.need_match(_KEYWORD, "an attribute")
    if word in ("true", "false"):
        _skip_type(cursor)
        return word == "true"
    if word == "unit":
        return True
    if word == "dense":
        return _read_dense(cursor)
    if word == "array":
        return _read_dense_array(cursor)
    if word == "loc":
        return word + cursor.balanced()
    if word in ("affine_map", "affine_set", "distinct", "strided"):
        text = word + cursor.balanced()
        return text + cursor.balanced() if word == "distinct" else text
    cursor.position = start
    if word == "tensor" or is_scalar_type(word):
        return _read_type_text(cursor)
    raise cursor.error("an attribute")


def _read_type_text(cursor: Cursor) -> str:
    start = cursor.skip()
    read_type_list(cursor)
    if cursor.take("->"):
        read_type_list(cursor)
    return cursor.text[start : cursor.position]


def _skip_type(cursor: Cursor) -> Type | None:
    return read_type(cursor) if cursor.take(":") else None


def _read_typed_number(cursor: Cursor) -> int | float:
    start = cursor.skip()
    token = cursor.match(_NUMBER)
    if token is None:
        raise cursor.error("a number")
    kind = _skip_type(cursor)
    element = kind.element if kind is not None else ("f64" if token["float"] else "i64")
    return _number(cursor, token, element, start)


def _number(cursor: Cursor, token: re.Match[str], element: str, start: int) -> int | float:
    text = token.group()
    if element in FLOAT_FORMATS or element == "f8E8M0FNU":
        if token["int"] is not None:
            raise cursor.error(f"a floating-point number, as the type is {element}", start)
        if token["float"] is not None:
            return round_to_format(float(text), element)
        try:
            return float_from_bits(int(text, 16), element)
        except ValueError:
            raise cursor.error(f"the bits of an {element}", start) from None
    if not _NO_DIGITS.fullmatch(element) or token["float"] is not None:
        raise cursor.error(f"a value of type {element}", start)
    if len(text) > 64:
        raise cursor.error("an integer of at most 128 bits", start)
    return int(text, 16) if token["hex"] is not None else int(text)


def _read_array(cursor: Cursor) -> tuple[Attribute, ...]:
    cursor.need("[")
    items: list[Attribute] = []
    if cursor.take("]"):
        return ()
    items.append(read_attribute(cursor))
    while cursor.take(","):
        items.append(read_attribute(cursor))
    cursor.need("]")
    return tuple(items)


def _read_dense_array(cursor: Cursor) -> tuple[Attribute, ...]:
    cursor.need("<")
    element = read_type(cursor).element
    items: list[Attribute] = []
    if cursor.take(":"):
        items.append(_read_element(cursor, element))
        while cursor.take(","):
            items.append(_read_element(cursor, element))
    cursor.need(">")
    return tuple(items)


def _read_element(cursor: Cursor, element: str) -> int | float | bool:
    start = cursor.skip()
    for word in ("true", "false"):
        if cursor.take(word):
            return word == "true"
    token = cursor.match(_NUMBER)
    if token is None:
        raise cursor.error("a number, true or false", start)
    value = _number(cursor, token, element, start)
    return bool(value) if element == "i1" else value


def _read_dense(cursor: Cursor) -> Dense:
    # The element type follows the values: find it first, then read the values with it.
    start = cursor.skip()
    cursor.balanced()
    cursor.need(":")
    kind = read_type(cursor)
    end = cursor.position
    if not kind.tensor:
        raise cursor.error("a tensor type", start)
    if kind.elements > _MAX_ELEMENTS:
        raise cursor.error(f"a constant of at most {_MAX_ELEMENTS} elements", start)
    cursor.position = start
    cursor.need("<")
    if cursor.at('"'):
        values = _read_hex_string(cursor, kind)
    elif cursor.at("["):
        found: list[int | float | bool] = []
        _read_nested(cursor, kind, 0, found)
        values = tuple(found)
    elif cursor.at(">"):
        values = ()
    else:
        values = (_read_element(cursor, kind.element),)
    cursor.need(">")
    if len(values) not in (1, kind.elements):
        raise cursor.error(f"{kind.elements} elements (there are {len(values)})", start)
    cursor.position = end
    return Dense(values, kind)


def _read_nested(cursor: Cursor, kind: Type, axis: int, found: list[int | float | bool]) -> None:
    start = cursor.skip()
    if axis == len(kind.shape):
        found.append(_read_element(cursor, kind.element))
        return
    if axis > _MAX_DEPTH:
        raise cursor.error("a shallower tensor")
    cursor.need("[")
    count = 0
    if not cursor.at("]"):
        while True:
            _read_nested(cursor, kind, axis + 1, found)
            count += 1
            if not cursor.take(","):
                break
    cursor.need("]")
    if count != kind.shape[axis]:
        raise cursor.error(f"{kind.shape[axis]} elements along axis {axis} (there are {count})", start)


def _read_hex_string(cursor: Cursor, kind: Type) -> tuple[int | float | bool, ...]:
    start = cursor.skip()
    token = cursor.match(_HEX_STRING)
    if token is None:
        raise cursor.error("the elements in hex, as an even number of digits after 0x")
    data = bytes.fromhex(token.group(1))
    if kind.element == "i1":
        if len(data) == kind.elements:
            values: tuple[int | float | bool, ...] = tuple(byte != 0 for byte in data)
        else:  # packed, eight to a byte
            values = tuple(bool(byte >> bit & 1) for byte in data for bit in range(8))[: kind.elements]
            if len(data) == 1 and data[0] in (0, 0xFF):
                values = (data[0] == 0xFF,)
        return values
    form = FLOAT_FORMATS.get(kind.element)
    width = form.bits if form is not None else _integer_width(kind.element)
    if width is None or width % 8 or len(data) % (width // 8):
        raise cursor.error(f"whole elements of {kind.element}", start)
    size = width // 8
    if kind.element in ("f32", "f64"):
        return struct.unpack(f"<{len(data) // size}{'f' if size == 4 else 'd'}", data)
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    if form is not None:
        return tuple(float_from_bits(int.from_bytes(chunk, "little"), kind.element) for chunk in chunks)
    return tuple(int.from_bytes(chunk, "little", signed=True) for chunk in chunks)


def _integer_width(element: str) -> int | None:
    if element == "index":
        return 64
    return int(element[1:]) if _NO_DIGITS.fullmatch(element) else None
