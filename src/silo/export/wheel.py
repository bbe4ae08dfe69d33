"""Builds the shared libraries of an export, determines what they require of a machine, and writes wheels."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from silo.core.values import DType
from silo.errors import BundleError, CompileError, CompilerMissingError, PackageError
from silo.export.operations import ExportedOperation, GivenArgument, OperationArgument
from silo.version import __version__

__all__ = [
    "Needs",
    "Package",
    "built_libraries",
    "needs_of",
    "package_files",
    "package_of",
    "platform_tag",
    "write_wheel",
]

# ---- What a shared library requires of the machine that loads it, read from its ELF tables ----

_GLIBC = frozenset({"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"})
_LOADERS = ("ld-linux",)
_MACHINES = {62: "x86_64", 183: "aarch64"}
_OLDEST = (2, 17)  # the oldest glibc that manylinux tags name

_STRTAB, _NEEDED, _VERNEED, _VERNEEDNUM = 5, 1, 0x6FFFFFFE, 0x6FFFFFFF
_PT_LOAD, _PT_DYNAMIC = 1, 2


@dataclass(frozen=True, slots=True)
class Needs:
    """The requirements of a library: machine (as in platform tags), other libraries, and versions of their symbols."""

    machine: str
    libraries: tuple[str, ...]
    versions: tuple[str, ...]


def needs_of(path: Path) -> Needs:
    """Reads the requirements from a 64-bit little-endian ELF file. Raises BundleError for other files."""
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
    """Returns the platform tag of a wheel: ``manylinux_2_X`` if its libraries need only that glibc, else ``linux``.

    >>> platform_tag([Needs("x86_64", ("libc.so.6",), ("GLIBC_2.2.5", "GLIBC_2.34"))])
    'manylinux_2_34_x86_64'
    >>> platform_tag([Needs("aarch64", ("libc.so.6", "libtorch_cpu.so"), ("GLIBC_2.17",))])
    'linux_aarch64'
    """
    found_needs = tuple(libraries)
    (machine,) = {need.machine for need in found_needs}
    system_libraries = {name for need in found_needs for name in need.libraries if not name.startswith(_LOADERS)}
    versions = [version for need in found_needs for version in need.versions]
    numbers = [version.removeprefix("GLIBC_") for version in versions if version.startswith("GLIBC_")]
    numbered = all(part.isdecimal() for number in numbers for part in number.split("."))
    if system_libraries - _GLIBC or not numbers or not numbered or len(numbers) < len(versions):
        return f"linux_{machine}"
    needed = max(tuple(map(int, number.split("."))) for number in numbers)
    major, minor = max(needed, _OLDEST)[:2]
    return f"manylinux_{major}_{minor}_{machine}"


# ---- Building the shared libraries of an export, with CMake and the machine's compilers ----

_SHOWN_LINES = 30


def built_libraries(folder: Path, name: str, work: Path, *, torch: bool) -> tuple[Path, ...]:
    """Builds the libraries of the export in ``folder``; returns their paths, which are in the folder ``work``.

    The libraries are stripped and contain no paths of this machine.

    With ``torch``, the operators are built too, with the headers of the installed torch.

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


# ---- The Python package in a wheel: one function for each kernel, which calls the shared library ----

_WORDS = {
    OperationArgument.TENSOR: "tensor",
    OperationArgument.DESCRIPTOR: "tensor, taken as a descriptor",
    OperationArgument.INTEGER: "int",
    OperationArgument.REAL: "float",
    OperationArgument.BOOLEAN: "bool",
    OperationArgument.TEXT: "str",
    OperationArgument.DTYPE: "dtype",
    OperationArgument.ANY: "constant",
}

_HEAD = '''\
"""Kernels that were compiled and tuned with Silo, which is not needed to call them.

They take numpy arrays and whatever else is of DLPack through tvm-ffi{torch}.
A call is queued on the current stream of its arrays' device. Made by `silo export --wheel`.
"""

from {package}._calls import Kernel, Library

__all__ = [{exported}]

__version__ = {version!r}

_LIBRARY = Library({name!r}, {operators!r})


def operators():
    """The operators of torch: ``torch.ops.{name}``, which torch.compile takes as they are."""
    return _LIBRARY.operators()


def functions():
    """The library as a module of tvm-ffi: ``functions()["{first}"](...)``."""
    return _LIBRARY.functions()
'''


def package_files(
    package: str, version: str, name: str, operations: Sequence[ExportedOperation], *, torch: bool
) -> dict[str, bytes]:
    """Returns the modules of ``package`` by path.

    ``name`` is the name of the exported library. With ``torch``, the package calls torch's operators too.
    """
    names = [operation.name for operation in operations]
    head = _HEAD.format(
        torch=", torch tensors through its operators" if torch else ", torch tensors too",
        package=package,
        exported=", ".join(f'"{operation_name}"' for operation_name in sorted([*names, "functions", "operators"])),
        version=version,
        name=name,
        operators=tuple(names) if torch else (),
        first=names[0] if names else "",
    )
    text = "".join([head, *(_function(operation) for operation in operations)])
    calls = (files("silo.export") / "templates" / "package_calls.py").read_bytes()
    return {f"{package}/__init__.py": text.encode(), f"{package}/_calls.py": calls}


def _function(operation: ExportedOperation) -> str:
    arguments = operation.arguments
    free = len(arguments)
    while free > 0 and _default(arguments[free - 1]) is not None:
        free -= 1
    words = [
        argument.name if at < free else f"{argument.name}={_default(argument)}" for at, argument in enumerate(arguments)
    ]
    described = [(at, argument.block) for at, argument in enumerate(arguments) if argument.block]
    words += ["*", *(f"{block}=None" for _, block in described), "grid=None"]
    tensors = [
        at
        for at, argument in enumerate(arguments)
        if argument.given is OperationArgument.TENSOR and not argument.optional
    ]
    written = tuple(at for at, argument in enumerate(arguments) if argument.writes)
    passed = ", ".join(argument.name for argument in arguments) + ("," if len(arguments) == 1 else "")
    blocks = ", ".join(f'"{block}": ({at}, {block})' for at, block in described)
    lines = [f"    {argument.name}: {_words(argument)}" for argument in arguments]
    grid = "the number of programs along each axis" + ("; its own where it is left out" if operation.has_grid else "")
    return (
        f"\n\n_{operation.name} = Kernel(_LIBRARY, {operation.name!r}, {tensors[0] if tensors else -1}, {written!r})\n"
        f"\n\ndef {operation.name}({', '.join(words)}):\n"
        f'    """Launch the kernel.\n\n' + "\n".join([*lines, f"    grid: {grid}"]) + '\n    """\n'
        f"    _{operation.name}(({passed}), grid, {{{blocks}}})\n"
    )


def _default(argument: GivenArgument) -> str | None:
    """Returns the default as Python source; None without a default, or if a literal cannot express it."""
    default = argument.default
    if not argument.has_default or isinstance(default, DType | tuple):
        return None
    if isinstance(default, float) and (default != default or abs(default) == float("inf")):  # noqa: PLR0124  # nan
        return f'float("{default}")'
    return repr(default) if isinstance(default, bool | int | float | str) or default is None else None


def _words(argument: GivenArgument) -> str:
    dtypes = " or ".join(str(dtype) for dtype in argument.dtypes)
    parts = [f"{dtypes} {_WORDS[argument.given]}".strip()]
    if argument.values and argument.given in (OperationArgument.TEXT, OperationArgument.ANY, OperationArgument.INTEGER):
        parts.append("one of " + ", ".join(sorted(repr(value) for value in argument.values if value is not None)))
    if argument.optional:
        parts.append("or None")
    if argument.writes:
        parts.append("written")
    return ", ".join(parts).replace("\\", "\\\\").replace('"""', "'''")


# ---- The archive of a wheel, which is for any Python 3 ----

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Package:
    """The ``name`` and ``version`` of a distribution; ``module`` is the name to import."""

    name: str
    version: str
    module: str


def package_of(text: str) -> Package:
    """Returns the package that ``--wheel NAME`` or ``--wheel NAME==VERSION`` requests.

    >>> package_of("my-kernels==1.2")
    Package(name='my-kernels', version='1.2', module='my_kernels')
    """
    name, _, version = text.partition("==")
    version = version or "0.1.0"
    module = re.sub(r"[-_.]+", "_", name)
    if not _NAME.fullmatch(name) or not _PLAIN.fullmatch(module) or module != module.lower():
        raise BundleError(
            f"{name!r} cannot name a wheel: lowercase letters, digits, '-', '_' and '.', a letter at its beginning"
        )
    if not _VERSION.fullmatch(version):
        raise BundleError(f"{version!r} is not a version of a wheel, which looks like 1.2.0 (PEP 440)")
    return Package(name, version, module)


def write_wheel(
    folder: Path,
    package: Package,
    modules: Mapping[str, bytes],
    libraries: Sequence[Path],
    *,
    texts: Mapping[str, bytes] | None = None,
    torch: bool = False,
) -> Path:
    """Writes the wheel into ``folder`` and returns its path.

    ``modules`` are files by path; ``libraries`` are put into the package's folder; ``texts`` are licences by name.
    """
    tag = f"py3-none-{platform_tag(needs_of(library) for library in libraries)}"
    info = f"{package.module}-{package.version}.dist-info"
    files = {
        **modules,
        **{f"{package.module}/{library.name}": library.read_bytes() for library in libraries},
        **{f"{info}/licenses/{name}": text for name, text in (texts or {}).items()},
        f"{info}/METADATA": _metadata(package, torch=torch).encode(),
        f"{info}/WHEEL": (
            f"Wheel-Version: 1.0\nGenerator: silo {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        ).encode(),
    }
    order = sorted(files, key=lambda path: (path.startswith(info), path))
    record = "".join(f"{path},{_digest(files[path])},{len(files[path])}\n" for path in order)
    path = folder / f"{package.module}-{package.version}-{tag}.whl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            for name in order:
                _add(archive, name, files[name])
            _add(archive, f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _metadata(package: Package, *, torch: bool) -> str:
    wants = ["Provides-Extra: tvm-ffi", 'Requires-Dist: apache-tvm-ffi>=0.1; extra == "tvm-ffi"']
    if torch:
        wants += ["Provides-Extra: torch", 'Requires-Dist: torch>=2.10; extra == "torch"']
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {package.name}",
        f"Version: {package.version}",
        "Summary: Compute kernels, compiled and tuned ahead of time",
        "Requires-Python: >=3.9",
        *wants,
    ]
    return "\n".join(lines) + "\n"


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # always Unix, so that the bytes are the same on every system
    archive.writestr(entry, data)
