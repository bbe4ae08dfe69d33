"""A bounded reader of the parts of ELF that device binaries use; and a comparison of the code of two artifacts.

Every offset and size in a file is checked against the length of the file; a mismatch raises a CompileError that names
the field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from silo.artifacts.artifact import Artifact
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import CompileError

__all__ = ["Elf", "Section", "read_elf", "same_code"]

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAX_SECTIONS = 4096
_NOBITS = 8


@dataclass(frozen=True, slots=True)
class Section:
    """One section of an ELF file.

    ``data`` is empty if the file does not contain the section's bytes; ``size`` is the number of these bytes even then.
    """

    name: str
    type: int
    link: int
    info: int
    offset: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Elf:
    """A 64-bit little-endian ELF file. The meaning of ``os_abi`` and ``flags`` depends on ``machine``."""

    machine: int
    os_abi: int
    flags: int
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        """Returns the first section of that name, or None."""
        return next((section for section in self.sections if section.name == name), None)

    def symbol_name(self, index: int) -> str:
        """Returns the name of the symbol with this index in ``.symtab``.

        Raises CompileError if the symbol does not exist.
        """
        table = self.section(".symtab")
        if table is None or table.link >= len(self.sections) or (index + 1) * _SYMBOL.size > len(table.data):
            raise _damaged("symbol", f"index {index} is outside of the symbol table")
        (name_offset, *_rest) = _SYMBOL.unpack_from(table.data, index * _SYMBOL.size)
        return _string(self.sections[table.link].data, name_offset)


def read_elf(data: bytes) -> Elf:
    """Reads the sections of a 64-bit little-endian ELF file.

    Raises:
        CompileError: the file is of another kind, truncated or damaged.
    """
    if len(data) < _HEADER.size or data[:4] != b"\x7fELF":
        raise _damaged("magic", f"{len(data)} bytes that start with {data[:4]!r} are no ELF file")
    if data[4] != 2 or data[5] != 1:
        raise _damaged("class", "only 64-bit little-endian files are read")
    header: tuple[int, ...] = _HEADER.unpack_from(data)
    machine, sections_at, flags = header[2], header[6], header[7]
    entry_size, count, names_index = header[11], header[12], header[13]
    if count > _MAX_SECTIONS or (count and entry_size != _SECTION.size):
        raise _damaged("section headers", f"{count} of {entry_size} bytes each")
    if count and sections_at + count * _SECTION.size > len(data):
        raise _damaged("section headers", f"{count} at {sections_at} lie outside of the {len(data)} bytes")
    headers: list[tuple[int, ...]] = [
        _SECTION.unpack_from(data, sections_at + index * _SECTION.size) for index in range(count)
    ]
    # The bytes of each section are copied below. Without this limit, a hostile file could declare many overlapping
    # sections whose copies exhaust the memory.
    if sum(header[5] for header in headers if header[1] not in (0, _NOBITS)) > 2 * len(data):
        raise _damaged("section headers", "the sections are larger than the file")
    if count and names_index >= count:
        raise _damaged("section names", f"section {names_index} of {count}")
    names = _bytes(data, headers[names_index]) if count else b""
    sections = tuple(
        Section(
            name=_string(names, header[0]),
            type=header[1],
            link=header[6],
            info=header[7],
            offset=header[4],
            size=header[5],
            data=_bytes(data, header),
        )
        for header in headers
    )
    return Elf(machine, data[7], flags, sections)


def _bytes(data: bytes, header: tuple[int, ...]) -> bytes:
    kind, offset, size = header[1], header[4], header[5]
    if kind in (0, _NOBITS):
        return b""
    if offset + size > len(data):
        raise _damaged("section", f"{size} bytes at {offset} lie outside of the {len(data)} bytes")
    return data[offset : offset + size]


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset >= len(table) or end < 0:
        raise _damaged("string", f"offset {offset} of a table of {len(table)} bytes")
    return table[offset:end].decode("utf-8", "backslashreplace")


def _damaged(field: str, label: str) -> CompileError:
    return CompileError(f"the binary cannot be read: {field}: {label}")


_GNU_HASH = 0x6FFFFFF6  # the type of the section with the table in which a loader looks up the names of symbols


def same_code(first: Artifact, other: Artifact, read: Callable[[str], bytes | None]) -> Decision:
    """Decides whether two artifacts give a driver the same code and are launched alike.

    Native code may differ in the name of its entry, because the name contains a part of the job's key, and the key
    covers the compiler's identity. The comparison of two shared objects then ignores that name and the hash table of
    names.

    Args:
        first: the first artifact.
        other: the second artifact.
        read: returns the bytes of a blob by its SHA-256, or None; called only for native code whose entries differ.
    """
    if first.blob.kind != other.blob.kind:
        return Rejected(f"{first.blob.kind} there, {other.blob.kind} here")
    if replace(first.launch, entry="") != replace(other.launch, entry=""):
        return Rejected("it is launched in another way")
    if first.launch.entry == other.launch.entry:
        return Accepted() if first.blob.sha256 == other.blob.sha256 else Rejected("other machine code")
    if not first.runs_on_host or first.blob.size != other.blob.size:
        return Rejected("other machine code")
    texts = [read(artifact.blob.sha256) for artifact in (first, other)]
    if None in texts:
        return Rejected("the store has its code no longer")
    bare = [
        _without_name(text, artifact.launch.entry.encode())
        for text, artifact in zip(texts, (first, other), strict=True)
        if text is not None
    ]
    return Accepted() if bare[0] == bare[1] else Rejected("other machine code")


def _without_name(data: bytes, name: bytes) -> bytes:
    """Returns a shared object with zeros in place of a symbol's name and of the hash table of names.

    Only the name is cleared if the object is damaged, or is not 64-bit little-endian ELF.
    """
    bare = bytearray(data.replace(name + b"\0", bytes(len(name) + 1)))
    try:
        sections = read_elf(data).sections
    except CompileError:
        sections = ()
    for section in sections:
        if section.type == _GNU_HASH:
            bare[section.offset : section.offset + section.size] = bytes(section.size)
    return bytes(bare)
