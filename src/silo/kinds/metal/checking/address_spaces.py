"""Finds pointers of one address space used as another's: an error in Metal that CPU code would not show.

Clang compiles the text with Metal's address spaces, only to check the types. The emulator's library does not support
address spaces, so this also causes errors that do not matter: only clang's messages about pointers are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import TemporaryFile

from silo.compile.c_compiler import CCompiler
from silo.compile.compiler_process import run_compiler
from silo.core.device import Target
from silo.emulation.clang import precompiled_header
from silo.kinds.metal.clang import HEADER, code_flags
from silo.kinds.metal.compile_job import quoted
from silo.settings import child_environment

__all__ = ["Mixed", "mixed_spaces"]

# Metal's words for clang's numbered address spaces; the headers define the numbers.
_NAMES = (
    ("address space '1'", "device memory"),
    ("address space '2'", "constant memory"),
    ("address space '3'", "threadgroup memory"),
    ("generic address space", "thread memory"),
    ("__attribute__((address_space(1)))", "device"),
    ("__attribute__((address_space(2)))", "constant"),
    ("__attribute__((address_space(3)))", "threadgroup"),
)
_OF_POINTERS = (
    "cannot pass pointer to",
    "cannot initialize a",
    "cannot initialize return object",
    "changes address space",
)
_KINDS = (": error: ", ": note: ")


@dataclass(frozen=True, slots=True)
class Mixed:
    """A place in a text at which a pointer of one address space is used as a pointer of another."""

    place: str
    what: str


def mixed_spaces(source: str, file: str, target: Target, clang: CCompiler) -> Mixed | None:
    """Returns the first place at which a C++ text mixes address spaces; None if clang finds none.

    ``file`` is the text's name in clang's messages.
    """
    flags = (*code_flags(target), "-DSILO_METAL_STRICT")
    header = precompiled_header(clang, flags, HEADER)
    command = [*clang.command, *flags, "-fno-color-diagnostics", "-fno-caret-diagnostics", "-fsyntax-only"]
    command += [] if header is None else ["-include-pch", str(header), "-Xclang", "-fno-validate-pch"]
    command += ["-x", "c++", "-"]
    with TemporaryFile() as text:
        text.write(f"#include <metal_stdlib>\n#line 1 {quoted(file)}\n{source}\n".encode())
        text.seek(0)
        done = run_compiler(command, stdin=text, env=child_environment(LC_ALL="C"))
    return next(found_in(done.stderr.decode(errors="replace"), file), None)


def found_in(log: str, file: str) -> Iterator[Mixed]:
    r"""Yields the errors about pointers in clang's messages; the notes after an error contain the reason.

    >>> log = "k.metal:9:10: error: no matching function for call to 'first'\n"
    >>> log += "k.metal:3:7: note: candidate function not viable: cannot pass pointer to address space '1' as a pointer"
    >>> log += " to address space '3' in 1st argument\n"
    >>> [one.what for one in found_in(log, "k.metal")]
    ['cannot pass pointer to device memory as a pointer to threadgroup memory in 1st argument']
    """
    location, candidates = "", 0
    for line in log.splitlines():
        kind = next((candidate for candidate in _KINDS if candidate in line), None)
        if kind is None:
            continue
        where, _, text = line.partition(kind)
        if kind == _KINDS[0]:
            location = where.rpartition(":")[0] if where.startswith(f"{file}:") else ""
            candidates = 0
        candidates += "candidate" in text
        reason = text.rpartition("not viable: ")[2]
        if location and candidates <= 1 and _mixes(reason):
            for name, words in _NAMES:
                reason = reason.replace(name, words)
            yield Mixed(location, reason)
            location = ""


def _mixes(diagnostic: str) -> bool:
    spaces = "address space" in diagnostic or "address_space" in diagnostic
    declared = any(
        f"'{word} " in diagnostic or f"{word} " in diagnostic for word in ("device", "threadgroup", "constant")
    )
    return (
        diagnostic.startswith(_OF_POINTERS) and (spaces or (declared and "*" in diagnostic))
    ) or "changes address space" in diagnostic
