"""A bounded reader of MessagePack that reads the metadata note of AMD code objects.

Reads maps, arrays, strings, binary, integers, bools, floats and nil; rejects extension types, which are unused there.
Depth and number of items are limited, so that no input makes it run long or deep.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from silo.errors import CompileError

__all__ = ["Item", "read_msgpack"]

Item: TypeAlias = "bool | int | float | str | bytes | list[Item] | dict[str, Item] | None"

_MAX_DEPTH = 16
_MAX_ITEMS = 100_000

_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_SIZES = {1: ">B", 2: ">H", 4: ">I"}


def read_msgpack(data: bytes) -> Item:
    """The one item that ``data`` starts with.

    Raises:
        CompileError: truncated, too deep, too long, or of a type that is not read.

    >>> read_msgpack(bytes([0x81, 0xA1, 0x61, 0x07]))
    {'a': 7}
    """
    return _Reader(data).item(0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._items = 0

    def item(self, depth: int) -> Item:
        self._items += 1
        if depth > _MAX_DEPTH or self._items > _MAX_ITEMS:
            raise self._error("nested too deeply or too many items")
        tag = self._number(">B")
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag < 0x90:
            return self._map(tag & 0x0F, depth)
        if tag < 0xA0:
            return self._array(tag & 0x0F, depth)
        if tag < 0xC0:
            return self._text(tag & 0x1F)
        if tag in _NUMBERS:
            return self._value(_NUMBERS[tag])
        match tag:
            case 0xC0:
                return None
            case 0xC2 | 0xC3:
                return tag == 0xC3
            case 0xC4 | 0xC5 | 0xC6:
                return self._take(self._number(_SIZES[1 << (tag - 0xC4)]))
            case 0xD9 | 0xDA | 0xDB:
                return self._text(self._number(_SIZES[1 << (tag - 0xD9)]))
            case 0xDC | 0xDD:
                return self._array(self._number(_SIZES[2 << (tag - 0xDC)]), depth)
            case 0xDE | 0xDF:
                return self._map(self._number(_SIZES[2 << (tag - 0xDE)]), depth)
            case _:
                raise self._error(f"type 0x{tag:02x} is not read")

    def _map(self, count: int, depth: int) -> Item:
        result: dict[str, Item] = {}
        for _ in range(count):
            key = self.item(depth + 1)
            if not isinstance(key, str):
                raise self._error("a key of a map is not a string")
            result[key] = self.item(depth + 1)
        return result

    def _array(self, count: int, depth: int) -> Item:
        return [self.item(depth + 1) for _ in range(count)]

    def _text(self, size: int) -> str:
        return self._take(size).decode("utf-8", "backslashreplace")

    def _number(self, form: str) -> int:
        value = self._value(form)
        assert isinstance(value, int)
        return value

    def _value(self, form: str) -> int | float:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise self._error(f"{size} bytes are wanted, {len(self._data) - self._at} are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _error(self, what: str) -> CompileError:
        return CompileError(f"the metadata of the binary cannot be read: {what} (offset {self._at})")
