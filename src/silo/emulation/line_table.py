"""Maps addresses in an object to lines of the text, by the line table (DWARF 4) that clang writes.

Silo has its own parser, because a compiler may be installed without a tool such as addr2line. The parser reads only
objects that this process had compiled.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["LineTable", "Row", "RowClass"]

_SECTION = struct.Struct("<IIQQQQIIQQ")
_ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 2, 3, 4, 5, 8, 9
_COPY = 1
_END_SEQUENCE, _SET_ADDRESS = 1, 2


class RowClass(IntEnum):
    """``enum class PcClass`` in ``check_state.h``: whether code belongs to the user's text, a library or neither."""

    NONE = 0
    LIBRARY = 1
    USER = 2


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: the line of the code from ``start`` up to ``end``; ``sequence`` is the function's number."""

    start: int
    end: int
    file: str
    line: int
    sequence: int


class LineTable:
    """The lines of an object.

    Args:
        data: a shared object, 64 bits, little endian.
        library: prefixes of the names of files that are not the user's.

    ``symbols`` are the names of the variables that the threads of a group share, by the offset of each variable's
    descriptor (``__emutls_v.NAME``, which clang writes for a ``__thread`` variable).
    """

    def __init__(self, data: bytes, library: tuple[str, ...]) -> None:
        self._library = library
        self.symbols = _shared_symbols(data)
        self.rows = sorted(_rows(_section(data, b".debug_line")), key=lambda row: row.start)
        self._starts = [row.start for row in self.rows]
        users = {row.sequence for row in self.rows if self._is_user(row)}
        self._classes = [self._class(row, users) for row in self.rows]

    def place(self, offset: int) -> tuple[str, int]:
        """Returns file and line of the code at ``offset``, or ``("", 0)`` for code without a line.

        For inlined library code, this is the last line of the user's text before it.
        """
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self.rows[at].end:
            return "", 0
        sequence = self.rows[at].sequence
        while at >= 0 and self.rows[at].sequence == sequence:
            if self._is_user(self.rows[at]):
                return self.rows[at].file, self.rows[at].line
            at -= 1
        return "", 0

    def stretches(self) -> Iterator[tuple[int, RowClass]]:
        """Yields the start of each range of code of one class, ascending, and the class."""
        last_end, last_class = 0, RowClass.NONE
        for row, kind in zip(self.rows, self._classes, strict=True):
            if row.start > last_end and last_class is not RowClass.NONE:
                yield last_end, RowClass.NONE
                last_class = RowClass.NONE
            if kind is not last_class:
                yield row.start, kind
                last_class = kind
            last_end = max(last_end, row.end)
        yield last_end, RowClass.NONE

    def _is_user(self, row: Row) -> bool:
        return row.line > 0 and not row.file.startswith(self._library)

    def _class(self, row: Row, users: set[int]) -> RowClass:
        """Returns the class of a row.

        Rows of a function without any line of the user's text are NONE, so that messages name the line of its caller.
        """
        if row.sequence not in users:
            return RowClass.NONE
        return RowClass.USER if self._is_user(row) else RowClass.LIBRARY


def _section(data: bytes, name: bytes) -> bytes:
    headers = struct.unpack_from("<Q", data, 0x28)[0]
    size, count, strings = struct.unpack_from("<HHH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, headers + index * size) for index in range(count)]
    names = sections[strings][4]
    for section in sections:
        start = names + section[0]
        if data[start : data.index(b"\0", start)] == name:
            return data[section[4] : section[4] + section[5]]
    return b""


# Clang's prefix for the descriptor of an emulated __thread variable. Kernels use __thread for shared variables.
_DESCRIPTOR = b"__emutls_v."
_SYMBOL = struct.Struct("<IBBHQQ")
_LENGTH_AND_NAME = re.compile(r"(\d+)([A-Za-z_]\w*)$")


def _shared_symbols(data: bytes) -> dict[int, str]:
    """Returns the names of the variables that the threads of a group share.

    The key of a name is the offset of the variable's descriptor (``__emutls_v.NAME``) in the object.
    """
    symbols, strings = _section(data, b".symtab"), _section(data, b".strtab")
    names: dict[int, str] = {}
    for at in range(0, len(symbols) - _SYMBOL.size + 1, _SYMBOL.size):
        start, _, _, _, value, _ = _SYMBOL.unpack_from(symbols, at)
        if strings.startswith(_DESCRIPTOR, start):
            begin = start + len(_DESCRIPTOR)
            names[value] = _own_name(strings[begin : strings.index(b"\0", begin)].decode(errors="replace"))
    return names


def _own_name(mangled: str) -> str:
    """Returns the last name in a mangled name.

    >>> _own_name("_ZZ6reduceIfEvPKT_PS0_iE4tile_0"), _own_name("silo_dynamic")
    ('tile', 'dynamic shared memory')
    """
    if not mangled.startswith("_Z"):
        return "dynamic shared memory" if mangled == "silo_dynamic" else mangled
    for start in range(len(mangled) - 1, -1, -1):
        match = _LENGTH_AND_NAME.match(mangled, start)
        if match is None or (start and mangled[start - 1].isdigit()):
            continue
        name = match[2][int(match[1]) :]
        if int(match[1]) <= len(match[2]) and re.fullmatch(r"(?:_\d+|__\d+_)?", name):
            return match[2][: int(match[1])]
    return mangled


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, form: str) -> int:
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        start = self.at
        value = self.unsigned()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> bits - 1 else value

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        value = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return value


def _rows(section: bytes) -> Iterator[Row]:
    at, sequence = 0, 0
    while at < len(section):
        reader = _Reader(section, at)
        at = reader.take("I") + 4 + at
        program = _Program(reader, at)
        for row in program.rows():
            yield Row(row.start, row.end, row.file, row.line, sequence + row.sequence)
        sequence += program.sequences


class _Program:
    """The line number program of one compilation unit."""

    def __init__(self, reader: _Reader, end: int) -> None:
        self.reader = reader
        self.end = end
        self.sequences = 0
        version = reader.take("H")
        if version != 4:  # objects for checks are compiled with -gdwarf-4
            raise ValueError(f"a line table of DWARF {version}")
        header = reader.take("I")
        body = reader.at + header
        self.shortest = reader.take("B")
        reader.take("B")  # maximum operations per instruction: not needed
        reader.take("B")  # default of is_stmt: not needed
        self.line_base = reader.take("b")
        self.line_range = reader.take("B")
        self.opcode_base = reader.take("B")
        self.lengths = [reader.take("B") for _ in range(self.opcode_base - 1)]
        folders = ["", *self._texts()]
        self.files = [""]
        while name := reader.text():
            folder = reader.unsigned()
            reader.unsigned()
            reader.unsigned()
            inside = folders[folder] if folder < len(folders) else ""
            self.files.append(name if name.startswith("/") or not inside else f"{inside}/{name}")
        reader.at = body

    def _texts(self) -> Iterator[str]:
        while text := self.reader.text():
            yield text

    def rows(self) -> Iterator[Row]:
        """Yields the rows of the table, without rows that cover no code."""
        address, line, file = 0, 1, 1
        before: tuple[int, int, int] | None = None
        for done, address, file, line in self._states():
            if before is not None and address > before[0]:
                yield Row(before[0], address, self._file(before[1]), before[2], self.sequences)
            before = None if done else (address, file, line)
            self.sequences += done

    def _file(self, number: int) -> str:
        return self.files[number] if number < len(self.files) else ""

    def _states(self) -> Iterator[tuple[bool, int, int, int]]:
        """Yields for each row: whether it ends a sequence, its address, file and line."""
        reader = self.reader
        address, file, line = 0, 1, 1
        while reader.at < self.end:
            opcode = reader.take("B")
            if opcode >= self.opcode_base:
                advance = opcode - self.opcode_base
                address += advance // self.line_range * self.shortest
                line += self.line_base + advance % self.line_range
                yield False, address, file, line
            elif opcode == 0:
                size = reader.unsigned()
                after = reader.at + size
                kind = reader.take("B")
                if kind == _END_SEQUENCE:
                    yield True, address, file, line
                    address, file, line = 0, 1, 1
                elif kind == _SET_ADDRESS:
                    address = reader.take("Q")
                reader.at = after
            elif opcode == _COPY:
                yield False, address, file, line
            elif opcode == _ADVANCE_PC:
                address += reader.unsigned() * self.shortest
            elif opcode == _ADVANCE_LINE:
                line += reader.signed()
            elif opcode == _SET_FILE:
                file = reader.unsigned()
            elif opcode == _CONST_ADD_PC:
                address += (255 - self.opcode_base) // self.line_range * self.shortest
            elif opcode == _FIXED_ADVANCE_PC:
                address += reader.take("H")
            else:
                for _ in range(self.lengths[opcode - 1]):
                    reader.unsigned()
