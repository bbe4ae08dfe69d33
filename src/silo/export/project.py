"""All files of an export: libsilo's sources, the bundle, the functions, the build, the self-test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.core.recipes import ArrayRecipe, ScalarRecipe
from silo.core.signature import NoDefault
from silo.errors import BundleError
from silo.export.c_names import comment_text, identifier, joined, string_literal
from silo.export.c_text import c_header, c_source, cpp_header
from silo.export.export_folder import framework_files, licence, native_sources
from silo.export.exported_library import ExportedLibrary, element_type, filled, number
from silo.export.function_signatures import ExportedFunction, ParameterRole
from silo.export.selftest_text import selftest_source
from silo.version import __version__

__all__ = ["CpuSource", "export_files", "namespace_of"]

_OWN_HEADERS = ("elements.h", "silo.hpp")


@dataclass(frozen=True, slots=True)
class CpuSource:
    """The C text beside a CPU object: compiled into the program, it replaces the object with this sha256.

    ``flags`` are the compiler's flags, as far as they decide the object's behaviour; ``level`` is the CPU level of its
    target.
    """

    sha256: str
    entry: str
    text: str
    level: str
    flags: tuple[str, ...]

    @property
    def is_x86(self) -> bool:
        """Whether it is for x86-64; else for AArch64."""
        return self.level.startswith("x86-64")


def namespace_of(asked: str | None, path: Path) -> str:
    """The requested namespace, or a namespace made from the bundle's name.

    >>> namespace_of(None, Path("my-kernels.silo")), namespace_of("acme::ops", Path("k.silo"))
    ('my_kernels', 'acme::ops')

    Raises:
        BundleError: it is not a namespace.
    """
    if asked is None:
        made = identifier(path.name.partition(".")[0])
        return f"k_{made}" if made.startswith("silo") else made
    parts = asked.split("::")
    if any(identifier(part) != part for part in parts) or parts[0].startswith("silo"):
        raise BundleError(
            f"{asked!r} is not a namespace for an export: write names of C++ with :: between, of which the first does "
            "not begin with silo, as in acme::kernels"
        )
    return asked


def export_files(
    library: ExportedLibrary, bundle: bytes, sources: Sequence[CpuSource], *, tests: bool, torch: bool = False
) -> dict[str, bytes]:
    """Every file of the folder, by its name with ``/`` between folders; ``torch``: with the operators of torch."""
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
        **{_place(one): _cpu_text(library, one) for one in sources},
    }
    if tests:
        texts |= {"tests/selftest.cpp": selftest_source(library), "tests/selftest.hpp": filled("selftest.hpp")}
    core = {f"silo/{file}": data for file, data in native_sources("core", "silo.h").items()}
    frameworks = framework_files(library, torch=torch)
    made = {file: text.encode() for file, text in texts.items()}
    return {**core, "silo/LICENSE": licence(), **frameworks, **made, f"{name}.silo": bundle}


# -- Code of the CPU that is compiled in -------------------------------------------------------------------------------


def _place(one: CpuSource) -> str:
    return f"cpu/{one.level}/{identifier(one.entry)}_{one.sha256[:12]}.c"


def _function(library: ExportedLibrary, one: CpuSource) -> str:
    return joined(library.name, identifier(one.entry), one.sha256[:12])


def _machine(one: CpuSource) -> str:
    return "__x86_64__" if one.is_x86 else "__aarch64__"


def _cpu_text(library: ExportedLibrary, one: CpuSource) -> str:
    """The C text under a unique name, because two exports may contain the same kernel."""
    head = f"/* What the object {one.sha256} was compiled from. */\n#if defined({_machine(one)})\n"
    return f"{head}#define {one.entry} {_function(library, one)}\n{one.text}\n#endif\n"


def _head(library: ExportedLibrary, size: int, sources: Sequence[CpuSource]) -> str:
    declared, rows = "", ""
    if sources:
        entries = [(_machine(one), f"extern compiled_entry {_function(library, one)};\n") for one in sources]
        table = [
            (_machine(one), f'    {{"{one.sha256}",\n     "{one.entry}", {_function(library, one)}}},\n')
            for one in sources
        ]
        declared = filled("compiled.c.in", ENTRIES=_for_machines(entries), TABLE=_for_machines(table))
        rows = "    linked.compiled = compiled;\n    linked.compiled_count = sizeof compiled / sizeof compiled[0] - 1;"
    kernels = "".join(f"    {string_literal(kernel)},\n" for kernel in library.kernels)
    described = any(
        one.role is ParameterRole.DESCRIPTOR for function in library.functions for one in function.parameters
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
    """Lines of C, each for compilers of its machine alone."""
    parts: list[str] = []
    for machine in dict.fromkeys(machine for machine, _ in lines):
        own = "".join(line for of, line in lines if of == machine)
        parts.append(f"#if defined({machine})\n{own}#endif\n")
    return "".join(parts)


# -- The build and its page --------------------------------------------------------------------------------------------


def _by_level(sources: Sequence[CpuSource]) -> dict[tuple[str, tuple[str, ...]], list[CpuSource]]:
    found: dict[tuple[str, tuple[str, ...]], list[CpuSource]] = {}
    for one in sources:
        found.setdefault((one.level, one.flags), []).append(one)
    return found


def _cmake(library: ExportedLibrary, sources: Sequence[CpuSource], *, tests: bool) -> str:
    parts: list[str] = []
    for (_, flags), own in _by_level(sources).items():
        machine = "x86_64|AMD64" if own[0].is_x86 else "aarch64|arm64"
        files = "".join(f"\n      {_place(one)}" for one in own)
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
        alone = len({one.flags for one in sources if one.level == level}) == 1
        files = f"cpu/{level}/*.c" if alone else " ".join(map(_place, own))
        commands.append(f"cc {' '.join(flags)} -w -c {files}")
    files = "| `cpu/` | the C text of the code for CPUs, compiled into the program |\n" if sources else ""
    if tests:
        files += "| `tests/` | a self-test: the cases of the kernels, with the values that are expected |\n"
    kernels = "".join(
        f"| {_cell(kernel)} | {', '.join(f'`{joined(library.name, one.c_name)}`' for one in own)} | "
        f"{', '.join(dict.fromkeys(str(target) for one in own for target in one.targets))} |\n"
        for kernel in library.kernels
        for own in [[one for one in library.functions if one.kernel == kernel]]
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
    """A call with arrays of ones on the CPU, like the function's first case; empty if that does not suffice."""
    if not function.has_grid or all(target.kind != "cpu" for target in function.targets):
        return []
    for case in library.cases.get(function.kernel, ()):
        given = dict(case.arguments)
        plain = all(isinstance(one, ArrayRecipe | ScalarRecipe) for one in given.values())
        if not plain or not function.takes(case):
            continue
        lines, words, shown = list[str](), list[str](), ""
        for one in function.parameters:
            if not one.is_given:
                continue
            recipe = given.get(one.called)
            value = recipe.value if isinstance(recipe, ScalarRecipe) else one.default
            if isinstance(recipe, ArrayRecipe):
                element = element_type(recipe.dtype)
                if one.role is not ParameterRole.POINTER or element.startswith("silo_") or element == "bool":
                    return []
                size = max(1, 1 + sum((n - 1) * s for n, s in zip(recipe.shape, recipe.element_strides, strict=True)))
                lines.append(f"std::vector<{element}> {one.name}({size}, {'0' if one.writes else '1'});")
                words.append(f"{one.name}.data()")
                shown = one.name if one.writes and not shown else shown
            elif one.role is ParameterRole.CHOICE:
                held = (c.name for c in one.choices if type(c.value) is type(value) and c.value == value)
                words.append(f"{library.namespace}::{function.name}_{one.name}::{next(held)}")
            elif value is None or isinstance(value, NoDefault):
                return []
            else:
                words.append(
                    number(float(value) if one.role is ParameterRole.FLOAT and isinstance(value, int) else value)
                )
        lines.append(f"{library.namespace}::{function.name}({', '.join(['silo::cpu()', *words])});")
        if shown:
            lines.append(f'std::printf("{shown}[0] = %g\\n", static_cast<double>({shown}[0]));')
        return lines
    return []
