"""All files of an export, and the folder that holds them. Only files that differ are written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from silo.core.json_reader import read_object
from silo.core.recipes import ArrayRecipe, ScalarRecipe
from silo.core.signature import NoDefault
from silo.core.values import JSON, parse_json
from silo.errors import BundleError, PackageError, StoreError
from silo.export.c_names import comment_text, identifier, joined, string_literal
from silo.export.c_text import c_header, c_source, cpp_header, selftest_source
from silo.export.exported_library import ExportedLibrary, element_type, filled, number
from silo.export.function_signatures import ExportedFunction, ParameterRole
from silo.export.operations import frameworks_source, operations_of, torch_source
from silo.plain_files import open_plain, read_plain
from silo.store.atomic_files import AtomicFile
from silo.store.privacy import output_place
from silo.version import __version__

__all__ = [
    "RECORD",
    "CpuSource",
    "Differences",
    "FolderRecord",
    "compare_folder",
    "export_files",
    "framework_files",
    "licence",
    "namespace_of",
    "native_sources",
    "read_record",
    "write_folder",
]

# ---- The folder of an export ----


RECORD = "silo-export.json"
_SCHEMA = "export/1"


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """The record of an export, a file in its folder: the options of the export, and the sha256 of each file by name."""

    options: Mapping[str, JSON]
    files: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Returns the contents of the record's file."""
        data = {"schema": _SCHEMA, "options": dict(self.options), "files": dict(sorted(self.files.items()))}
        return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences between a folder and an export, by names of files.

    ``edited`` files were changed by hand since they were written. ``foreign`` files were not written by an export and
    have the name of a file to write. ``stale`` files were written by an export and now need other contents. ``missing``
    files do not exist. ``superfluous`` files were written by an export and are no longer part of it.
    """

    edited: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    superfluous: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """Returns a line for each difference."""
        words = {
            "was changed by hand": self.edited,
            "was not written by an export": self.foreign,
            "is stale": self.stale,
            "is missing": self.missing,
            "belongs to an earlier export": self.superfluous,
        }
        return tuple(sorted(f"{name} {change}" for change, names in words.items() for name in names))


def read_record(folder: Path) -> FolderRecord | None:
    """Reads the record of the export in a folder; None without a record.

    Raises:
        StoreError: the record cannot be read.
    """
    path = folder / RECORD
    try:
        text = read_plain(path)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise StoreError(f"{folder} is a file, and an export is a folder: name another place") from None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    try:
        return _parsed(text)
    except ValueError as error:
        raise StoreError(f"{path} is not the record of an export: {error}; remove it and export again") from None


def _parsed(text: bytes) -> FolderRecord:
    members = read_object(parse_json(text), ("schema", "options", "files"), "the record of an export")
    options, files = members["options"], members["files"]
    if members["schema"] != _SCHEMA or not isinstance(options, Mapping) or not isinstance(files, Mapping):
        raise ValueError("it is of another schema")
    digests = {name: digest for name, digest in files.items() if isinstance(digest, str) and _is_inside(name)}
    if len(digests) != len(files):
        raise ValueError("it names files outside of the folder")
    return FolderRecord(options, digests)


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not PurePosixPath(name).is_absolute() and ".." not in parts


def compare_folder(folder: Path, files: Mapping[str, bytes]) -> Differences:
    """Returns the differences between a folder and the files of an export.

    Raises:
        StoreError: the folder cannot be read.
    """
    record = read_record(folder)
    recorded: Mapping[str, str] = {} if record is None else record.files
    differences: dict[str, list[str]] = {}
    for name in sorted({*files, *recorded}):
        wanted_digest = _digest(files[name]) if name in files else None
        digest = _held(folder / name)
        if digest == wanted_digest:
            continue
        if digest is None:
            kind = "missing"
        elif name not in recorded:
            kind = "foreign"
        elif digest != recorded[name]:
            kind = "edited"
        else:
            kind = "stale" if wanted_digest is not None else "superfluous"
        differences.setdefault(kind, []).append(name)
    return Differences(**{kind: tuple(names) for kind, names in differences.items()})


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _held(path: Path) -> str | None:
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None


def write_folder(folder: Path, files: Mapping[str, bytes], options: Mapping[str, JSON]) -> Differences:
    """Writes files that differ, removes files of an earlier export, keeps all others; returns the differences.

    Raises:
        StoreError: a file to write exists and was not written by an export, or was changed since; or the path to the
            folder has a link of another user. Nothing is written then.
    """
    try:
        folder = output_place(folder)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
    if read_record(folder) is None and folder.is_dir() and any(folder.iterdir()):
        raise StoreError(
            f"{folder} is not empty and holds no export, so nothing is written there: name another folder, or empty it"
        )
    differences = compare_folder(folder, files)
    if in_the_way := (*differences.foreign, *differences.edited):
        why = ", ".join(line for line in differences.lines if line.split(" ")[0] in in_the_way)
        raise StoreError(f"{folder}: {why}; nothing is written: move what you want to keep, and remove it there")
    record = FolderRecord(options, {name: _digest(data) for name, data in files.items()})
    try:
        for name in (*differences.stale, *differences.missing):
            if name in files:
                _replace(folder, name, files[name])
        if _held(folder / RECORD) != _digest(record.to_bytes()):
            _replace(folder, RECORD, record.to_bytes())
        for name in differences.superfluous:
            (folder / name).unlink()
            _prune(folder, (folder / name).parent)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}") from error
    return differences


def _replace(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for parent in path.relative_to(folder).parents:
        if (folder / parent).is_symlink() and parent != Path():
            raise StoreError(f"cannot write to {folder / parent}: it is a link out of {folder}; remove it")
    with AtomicFile(path, mode=0o666) as file:
        file.write(data)
        file.commit()


def _prune(folder: Path, path: Path) -> None:
    """Removes the folder ``path`` and its parents below ``folder``, as far as they are empty."""
    while path != folder and not any(path.iterdir()):
        path.rmdir()
        path = path.parent


# ---- The C sources that exports copy, from the installed package or from the source tree ----


def native_sources(part: str, marker: str) -> dict[str, bytes]:
    """Returns the files of ``native/core`` or ``native/frameworks`` by name. ``marker`` is a file that is always there.

    Raises:
        PackageError: the files are missing.
    """
    package = Path(__file__).parent
    for folder in (package / part, package.parents[2] / "native" / part):
        if (folder / marker).is_file():
            return {path.name: path.read_bytes() for path in sorted(folder.glob("*.[ch]"))}
    raise PackageError(
        f"libsilo's sources are neither in {package / part} nor in a source tree: install kernel-silo from its wheel"
    )


def licence() -> bytes:
    """Returns the licence of the C sources, which is copied with them.

    Raises:
        PackageError: the file is missing.
    """
    folder = Path(__file__).parent
    for path in (folder / "LICENSE", folder.parents[2] / "LICENSE"):
        if path.is_file():
            return path.read_bytes()
    raise PackageError(f"the licence of libsilo's sources is not in {folder}: install kernel-silo from its wheel")


# ---- The folder for frameworks: the shared library, and torch's operators ----

_SHARED = ("framework.h", "tvm_ffi.c", "tvm_ffi.h")
_TORCH = ("torch_op.h",)


def framework_files(library: ExportedLibrary, *, torch: bool) -> dict[str, bytes]:
    """Returns the files of the folder ``frameworks``, which the export's CMakeLists.txt adds.

    With ``torch``, they include the operators of torch.

    Raises:
        BundleError: a kernel cannot be an operator of torch.
        PackageError: the sources are missing.
    """
    operations = operations_of(library.functions)
    name, origin = library.name, comment_text(library.origin)
    cmake = filled("frameworks.cmake.in", ORIGIN=origin, NAME=name)
    texts = {f"{name}_frameworks.c": frameworks_source(name, operations)}
    if torch:
        texts[f"{name}_torch.cpp"] = torch_source(name, operations)
        cmake += filled("torch.cmake.in", NAME=name)
    texts["CMakeLists.txt"] = cmake
    headers = native_sources("frameworks", "framework.h")
    sources = {file: headers[file] for file in (*_SHARED, *(_TORCH if torch else ()))}
    encoded = {file: text.encode() for file, text in texts.items()}
    return {f"frameworks/{file}": data for file, data in {**sources, **encoded}.items()}


_OWN_HEADERS = ("elements.h", "silo.hpp")


@dataclass(frozen=True, slots=True)
class CpuSource:
    """The C text that a bundle holds beside a CPU object. Compiled into the program, it replaces the object.

    ``sha256`` is the object's. ``flags`` are the compiler flags that decide the object's behaviour; ``level`` is the
    CPU level of its target.
    """

    sha256: str
    entry: str
    text: str
    level: str
    flags: tuple[str, ...]

    @property
    def is_x86(self) -> bool:
        """Whether the text is for x86-64; otherwise it is for AArch64."""
        return self.level.startswith("x86-64")


def namespace_of(requested: str | None, path: Path) -> str:
    """Returns the requested namespace, or a namespace made from the bundle's name.

    >>> namespace_of(None, Path("my-kernels.silo")), namespace_of("acme::ops", Path("k.silo"))
    ('my_kernels', 'acme::ops')

    Raises:
        BundleError: the request is not a valid namespace.
    """
    if requested is None:
        namespace = identifier(path.name.partition(".")[0])
        return f"k_{namespace}" if namespace.startswith("silo") else namespace
    parts = requested.split("::")
    if any(identifier(part) != part for part in parts) or parts[0].startswith("silo"):
        raise BundleError(
            f"{requested!r} is not a namespace for an export: write names of C++ with :: between, of which the first "
            "does "
            "not begin with silo, as in acme::kernels"
        )
    return requested


def export_files(
    library: ExportedLibrary, bundle: bytes, sources: Sequence[CpuSource], *, tests: bool, torch: bool = False
) -> dict[str, bytes]:
    """Returns every file of the folder, by its path with ``/``. With ``torch``, they include the operators of torch."""
    name = library.name
    texts = {
        f"{name}.h": c_header(library),
        f"{name}.hpp": cpp_header(library),
        f"{name}.c": c_source(library, _head(library, len(bundle), sources)),
        "CMakeLists.txt": _cmake(library, sources, tests=tests),
        "README.md": _readme(library, sources, tests=tests),
        "example.cpp": _example(library),
        "silo/embed/embed.c": filled("embed.c"),
        **{f"silo/{header}": filled(header) for header in _OWN_HEADERS},
        **{_file_name(source): _cpu_text(library, source) for source in sources},
    }
    if tests:
        texts |= {"tests/selftest.cpp": selftest_source(library), "tests/selftest.hpp": filled("selftest.hpp")}
    core = {f"silo/{file}": data for file, data in native_sources("core", "silo.h").items()}
    frameworks = framework_files(library, torch=torch)
    encoded = {file: text.encode() for file, text in texts.items()}
    return {**core, "silo/LICENSE": licence(), **frameworks, **encoded, f"{name}.silo": bundle}


# -- CPU code that is compiled into the program ------------------------------------------------------------------------


def _file_name(cpu_source: CpuSource) -> str:
    return f"cpu/{cpu_source.level}/{identifier(cpu_source.entry)}_{cpu_source.sha256[:12]}.c"


def _function(library: ExportedLibrary, cpu_source: CpuSource) -> str:
    return joined(library.name, identifier(cpu_source.entry), cpu_source.sha256[:12])


def _machine(cpu_source: CpuSource) -> str:
    return "__x86_64__" if cpu_source.is_x86 else "__aarch64__"


def _cpu_text(library: ExportedLibrary, cpu_source: CpuSource) -> str:
    """Returns the C text with a unique function name, because two exports may contain the same kernel."""
    head = f"/* What the object {cpu_source.sha256} was compiled from. */\n#if defined({_machine(cpu_source)})\n"
    return f"{head}#define {cpu_source.entry} {_function(library, cpu_source)}\n{cpu_source.text}\n#endif\n"


def _head(library: ExportedLibrary, size: int, sources: Sequence[CpuSource]) -> str:
    declared, rows = "", ""
    if sources:
        entries = [(_machine(source), f"extern compiled_entry {_function(library, source)};\n") for source in sources]
        table = [
            (_machine(source), f'    {{"{source.sha256}",\n     "{source.entry}", {_function(library, source)}}},\n')
            for source in sources
        ]
        declared = filled("compiled.c.in", ENTRIES=_for_machines(entries), TABLE=_for_machines(table))
        rows = "    linked.compiled = compiled;\n    linked.compiled_count = sizeof compiled / sizeof compiled[0] - 1;"
    kernels = "".join(f"    {string_literal(kernel)},\n" for kernel in library.kernels)
    described = any(
        parameter.role is ParameterRole.DESCRIPTOR
        for function in library.functions
        for parameter in function.parameters
    )
    return filled(
        "library.c.in",
        ORIGIN=comment_text(library.origin),
        KERNELS=len(library.kernels),
        KERNEL_NAMES=kernels,
        BYTES=size,
        COMPILED=declared,
        USE_COMPILED=rows,
        DESCRIBED=filled("described.c") if described else "",
        NAME=library.name,
    )


def _for_machines(lines: Sequence[tuple[str, str]]) -> str:
    """Wraps each line of C in a condition, so that only compilers for the line's machine see it."""
    parts: list[str] = []
    for machine in dict.fromkeys(machine for machine, _ in lines):
        own = "".join(line for of, line in lines if of == machine)
        parts.append(f"#if defined({machine})\n{own}#endif\n")
    return "".join(parts)


# -- The build files and the README ------------------------------------------------------------------------------------


def _by_level(sources: Sequence[CpuSource]) -> dict[tuple[str, tuple[str, ...]], list[CpuSource]]:
    sources_by_level: dict[tuple[str, tuple[str, ...]], list[CpuSource]] = {}
    for source in sources:
        sources_by_level.setdefault((source.level, source.flags), []).append(source)
    return sources_by_level


def _cmake(library: ExportedLibrary, sources: Sequence[CpuSource], *, tests: bool) -> str:
    parts: list[str] = []
    for (_, flags), own in _by_level(sources).items():
        machine = "x86_64|AMD64" if own[0].is_x86 else "aarch64|arm64"
        files = "".join(f"\n      {_file_name(source)}" for source in own)
        parts.append(
            f'if(CMAKE_SYSTEM_PROCESSOR MATCHES "^({machine})$")\n  set(@NAME@_cpu_sources{files})\n'
            "  target_sources(@NAME@ PRIVATE ${@NAME@_cpu_sources})\n"
            "  # Made by a compiler for a compiler: its warnings are nobody's.\n"
            '  set_source_files_properties(${@NAME@_cpu_sources} PROPERTIES COMPILE_OPTIONS "-w;'
            f'{";".join(flags)}")\nendif()\n'
        )
    selftest = (
        "  add_executable(@NAME@_selftest tests/selftest.cpp)\n  target_link_libraries(@NAME@_selftest @NAME@)\n"
        "  enable_testing()\n  add_test(NAME @NAME@_selftest COMMAND @NAME@_selftest)\n"
    )
    return filled(
        "CMakeLists.txt.in",
        ORIGIN=comment_text(library.origin),
        CPU_SOURCES="".join(parts),
        TESTS=selftest if tests else "",
        NAME=library.name,
    )


def _readme(library: ExportedLibrary, sources: Sequence[CpuSource], *, tests: bool) -> str:
    commands = ["cc -std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off -c silo/*.c", f"cc -std=c11 -O2 -c {library.name}.c"]
    for (level, flags), own in _by_level(sources).items():
        alone = len({source.flags for source in sources if source.level == level}) == 1
        files = f"cpu/{level}/*.c" if alone else " ".join(map(_file_name, own))
        commands.append(f"cc {' '.join(flags)} -w -c {files}")
    files = "| `cpu/` | the C text of the code for CPUs, compiled into the program |\n" if sources else ""
    if tests:
        files += "| `tests/` | a self-test: the cases of the kernels, with the values that are expected |\n"
    kernels = "".join(
        f"| {_cell(kernel)} | {', '.join(f'`{joined(library.name, own_function.c_name)}`' for own_function in own)} | "
        f"{', '.join(dict.fromkeys(str(target) for own_function in own for target in own_function.targets))} |\n"
        for kernel in library.kernels
        for own in [[function for function in library.functions if function.kernel == kernel]]
    )
    return filled(
        "README.md.in",
        ORIGIN=_cell(library.origin),
        VERSION=f" of kernel-silo {__version__}",
        NAMESPACE=library.namespace,
        IDENTITY=f"`{library.identity}`",
        FILES=files,
        CTEST=f" && ./build/{library.name}_selftest" if tests else "",
        COMMANDS="\n".join(commands),
        KERNELS=kernels,
        NAME=library.name,
    )


def _cell(text: str) -> str:
    return f"`{comment_text(text).replace('|', ' ').replace('`', ' ')}`"


def _example(library: ExportedLibrary) -> str:
    for function in library.functions:
        body = _example_call(library, function)
        if body:
            break
    else:
        body = [
            "silo_error error;",
            f"silo_bundle *const bundle = {library.name}_bundle(&error);",
            "if (bundle == nullptr)",
            "    silo::check(error.code, error);",
            "for (std::size_t at = 0; at < silo_kernel_count(bundle); at++)",
            '    std::printf("%s\\n", silo_kernel_name(bundle, at));',
        ]
    lines = "".join(f"        {line}\n" for line in body)
    return filled("example.cpp.in", ORIGIN=comment_text(library.origin), BODY=lines, NAME=library.name)


def _example_call(library: ExportedLibrary, function: ExportedFunction) -> list[str]:
    """Returns a call with arrays of ones on the CPU, like the function's first case; empty if ones do not suffice."""
    if not function.has_grid or all(target.kind != "cpu" for target in function.targets):
        return []
    for case in library.cases.get(function.kernel, ()):
        recipes = dict(case.arguments)
        plain = all(isinstance(recipe, ArrayRecipe | ScalarRecipe) for recipe in recipes.values())
        if not plain or not function.takes(case):
            continue
        lines, words, shown = list[str](), list[str](), ""
        for parameter in function.parameters:
            if not parameter.is_given:
                continue
            recipe = recipes.get(parameter.called)
            value = recipe.value if isinstance(recipe, ScalarRecipe) else parameter.default
            if isinstance(recipe, ArrayRecipe):
                element = element_type(recipe.dtype)
                if parameter.role is not ParameterRole.POINTER or element.startswith("silo_") or element == "bool":
                    return []
                size = max(1, 1 + sum((n - 1) * s for n, s in zip(recipe.shape, recipe.element_strides, strict=True)))
                lines.append(f"std::vector<{element}> {parameter.name}({size}, {'0' if parameter.writes else '1'});")
                words.append(f"{parameter.name}.data()")
                shown = parameter.name if parameter.writes and not shown else shown
            elif parameter.role is ParameterRole.CHOICE:
                choice_name = (c.name for c in parameter.choices if type(c.value) is type(value) and c.value == value)
                words.append(f"{library.namespace}::{function.name}_{parameter.name}::{next(choice_name)}")
            elif value is None or isinstance(value, NoDefault):
                return []
            else:
                words.append(
                    number(float(value) if parameter.role is ParameterRole.FLOAT and isinstance(value, int) else value)
                )
        lines.append(f"{library.namespace}::{function.name}({', '.join(['silo::cpu()', *words])});")
        if shown:
            lines.append(f'std::printf("{shown}[0] = %g\\n", static_cast<double>({shown}[0]));')
        return lines
    return []
