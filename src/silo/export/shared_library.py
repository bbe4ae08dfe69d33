"""What a shared library asks of the machine that loads it, read from its ELF tables."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from silo.errors import BundleError

__all__ = ["Needs", "needs_of", "platform_tag"]

_GLIBC = frozenset({"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"})
_LOADERS = ("ld-linux",)
_MACHINES = {62: "x86_64", 183: "aarch64"}
_OLDEST = (2, 17)  # of what the manylinux tags speak

_STRTAB, _NEEDED, _VERNEED, _VERNEEDNUM = 5, 1, 0x6FFFFFFE, 0x6FFFFFFF
_PT_LOAD, _PT_DYNAMIC = 1, 2


@dataclass(frozen=True, slots=True)
class Needs:
    """``machine`` as in platform tags, the libraries it names, and the versions of symbols it wants of them."""

    machine: str
    libraries: tuple[str, ...]
    versions: tuple[str, ...]


def needs_of(path: Path) -> Needs:
    """Read a 64-bit little-endian ELF file; ``BundleError`` for anything else."""
    data = path.read_bytes()
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError) as error:
        raise BundleError(f"{path} is no shared library of a 64-bit little-endian machine: {error}") from None


def _read(data: bytes) -> Needs:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("another beginning")
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, table + at * size) for at in range(count)]
    loads = [(header[3], header[2], header[5]) for header in headers if header[0] == _PT_LOAD]

    def place(address: int) -> int:
        for start, offset, length in loads:
            if start <= address < start + length:
                return address - start + offset
        raise ValueError(f"no segment holds {address:#x}")

    entries = [entry for header in headers if header[0] == _PT_DYNAMIC for entry in _dynamic(data, header[2])]
    values = dict(entries)
    strings = place(values[_STRTAB]) if _STRTAB in values else 0
    libraries = tuple(_text(data, strings + value) for tag, value in entries if tag == _NEEDED)
    versions: list[str] = []
    if _VERNEED in values:
        versions = list(_versions(data, place(values[_VERNEED]), values.get(_VERNEEDNUM, 0), strings))
    return Needs(_MACHINES.get(machine, f"machine{machine}"), libraries, tuple(sorted(set(versions))))


def _dynamic(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    while True:
        tag, value = struct.unpack_from("<qQ", data, at)
        if tag == 0:
            return
        yield tag, value
        at += 16


def _versions(data: bytes, at: int, count: int, strings: int) -> Iterator[str]:
    for _ in range(count):
        _, parts, _, first, following = struct.unpack_from("<HHIII", data, at)
        part = at + first
        for _ in range(parts):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, part)
            yield _text(data, strings + name)
            part += step
        at += following


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def platform_tag(libraries: Iterable[Needs]) -> str:
    """The tag of a wheel with these: ``manylinux_2_X`` where they need nothing but that glibc, else ``linux``.

    >>> platform_tag([Needs("x86_64", ("libc.so.6",), ("GLIBC_2.2.5", "GLIBC_2.34"))])
    'manylinux_2_34_x86_64'
    >>> platform_tag([Needs("aarch64", ("libc.so.6", "libtorch_cpu.so"), ("GLIBC_2.17",))])
    'linux_aarch64'
    """
    found = tuple(libraries)
    (machine,) = {one.machine for one in found}
    named = {name for one in found for name in one.libraries if not name.startswith(_LOADERS)}
    versions = [version for one in found for version in one.versions]
    numbers = [version.removeprefix("GLIBC_") for version in versions if version.startswith("GLIBC_")]
    numbered = all(part.isdecimal() for number in numbers for part in number.split("."))
    if named - _GLIBC or not numbers or not numbered or len(numbers) < len(versions):
        return f"linux_{machine}"
    needed = max(tuple(map(int, number.split("."))) for number in numbers)
    major, minor = max(needed, _OLDEST)[:2]
    return f"manylinux_{major}_{minor}_{machine}"
