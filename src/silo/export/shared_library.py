"""Shared libraries of an export: building them, and the requirements that each has on the machine that loads it."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.errors import BundleError, CompileError, CompilerMissingError, PackageError

__all__ = ["Needs", "built_libraries", "needs_of", "platform_tag"]

# ---- The requirements of a shared library on the machine that loads it, read from its ELF tables ----

_GLIBC = frozenset({"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"})
_LOADERS = ("ld-linux",)
_MACHINES = {62: "x86_64", 183: "aarch64"}
_OLDEST = (2, 17)  # the oldest glibc that manylinux tags name

_STRTAB, _NEEDED, _VERNEED, _VERNEEDNUM = 5, 1, 0x6FFFFFFE, 0x6FFFFFFF
_PT_LOAD, _PT_DYNAMIC = 1, 2


@dataclass(frozen=True, slots=True)
class Needs:
    """``machine`` as in platform tags, the libraries that it needs, and the versions of their symbols that it needs."""

    machine: str
    libraries: tuple[str, ...]
    versions: tuple[str, ...]


def needs_of(path: Path) -> Needs:
    """Reads a 64-bit little-endian ELF file. Raises BundleError for anything else."""
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
    """The tag of a wheel with these libraries: ``manylinux_2_X`` if they need only that glibc, else ``linux``.

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


# ---- Building the shared libraries of an export, with CMake and the machine's compilers ----

_SHOWN_LINES = 30


def built_libraries(folder: Path, name: str, work: Path, *, torch: bool) -> tuple[Path, ...]:
    """The libraries of the export in ``folder``, built in ``work``: without paths of this machine, stripped.

    ``torch``: with the operators, which use the headers of the installed torch.

    Raises:
        CompilerMissingError: CMake is missing.
        PackageError: torch is missing.
        CompileError: the build fails; contains the end of its output.
    """
    cmake = shutil.which("cmake")
    if cmake is None:
        raise CompilerMissingError("building a wheel needs CMake: install it (apt install cmake, or pip install cmake)")
    plain = f"-O2 -ffile-prefix-map={folder}=."
    configure = [
        *(cmake, "-S", str(folder), "-B", str(work), "-DCMAKE_BUILD_TYPE=Release"),
        *(f"-DCMAKE_{language}_FLAGS={plain}" for language in ("C", "CXX")),
        *(f"-DCMAKE_{kind}_LINKER_FLAGS=-Wl,-s" for kind in ("SHARED", "MODULE")),
    ]
    if torch:
        configure.append(f"-DTORCH_FOLDER={_torch_folder()}")
    targets = [f"{name}_shared", *([f"{name}_torch"] if torch else [])]
    _run(configure, folder)
    _run([cmake, "--build", str(work), "--parallel", "--target", *targets], folder)
    return tuple(work / "frameworks" / f"lib{name}{end}.so" for end in ("", *(["_torch"] if torch else [])))


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise PackageError("operators of torch are built with its headers: install torch 2.10 or newer")
    return Path(spec.submodule_search_locations[0])


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        output = "\n".join(done.stdout.splitlines()[-_SHOWN_LINES:])
        raise CompileError(f"the export in {folder} does not build: {' '.join(command[:3])} ...\n{output}")
