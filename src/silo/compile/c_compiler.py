"""Finds the system's C compiler."""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from silo.errors import CompilerMissingError
from silo.settings import child_environment, search_path

__all__ = ["COMPILERS", "CCompiler", "choose_compiler", "find_compiler", "identify", "installed_places"]

# Names of C compilers, which are tried in this order unless a setting names a compiler.
COMPILERS = ("cc", "gcc", "clang")

# The compilers for code of another family of machines, by family.
CROSS_COMPILERS = {"aarch64": ("aarch64-linux-gnu-gcc",), "x86-64": ("x86_64-linux-gnu-gcc",)}
_PACKAGES = {"aarch64": "gcc-aarch64-linux-gnu", "x86-64": "gcc-x86-64-linux-gnu"}


@dataclass(frozen=True, slots=True)
class CCompiler:
    """A C compiler: the command that runs it, and the output of its ``--version``, which contains no path."""

    command: tuple[str, ...]
    version: str


def choose_compiler(
    requested: str | None, paths: Mapping[str, str | None], need: str = "CPU kernels need", family: str = ""
) -> tuple[str, ...]:
    """Returns the command to run, from the requested name and the path at which each name was found (None: not found).

    First ``requested`` as a whole is looked up, because the path of a compiler may contain spaces. If it is not found,
    its first word is looked up, and the other words are arguments (``ccache gcc``). A requested compiler that was not
    found is an error; no other compiler is used instead. ``need`` names, in the error's message, the feature that needs
    a compiler. ``family`` is the family of machines that the code is for (``aarch64``, ``x86-64``) if it is not this
    machine's.

    >>> choose_compiler(None, {"cc": None, "gcc": "/usr/bin/gcc"})
    ('/usr/bin/gcc',)
    >>> choose_compiler(None, {"aarch64-linux-gnu-gcc": "/usr/bin/aarch64-linux-gnu-gcc"}, family="aarch64")
    ('/usr/bin/aarch64-linux-gnu-gcc',)
    >>> choose_compiler("/opt/my tools/cc", {"/opt/my tools/cc": "/opt/my tools/cc", "/opt/my": None})
    ('/opt/my tools/cc',)
    """
    if requested is not None:
        exact_path = paths.get(requested.strip())
        if exact_path is not None:
            return (exact_path,)
        words = _words(requested)
        path = paths.get(words[0]) if words else None
        if path is None:
            raise CompilerMissingError(
                f"the C compiler {requested!r} was not found: correct SILO_CC (or CC), or unset it to use the first of "
                f"{', '.join(COMPILERS)}"
            )
        return (path, *words[1:])
    names = CROSS_COMPILERS.get(family, COMPILERS)
    for name in names:
        path = paths.get(name)
        if path is not None:
            return (path,)
    if family in CROSS_COMPILERS:
        raise CompilerMissingError(
            f"{need} a C compiler for {family}, which this machine is not, and {' or '.join(names)} is not on PATH: "
            f"install it (Debian, Ubuntu: apt-get install {_PACKAGES[family]}) or name one in SILO_CC"
        )
    raise CompilerMissingError(
        f"{need} a C compiler and none of {', '.join(COMPILERS)} is on PATH: install one "
        "(Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc) or name one in SILO_CC"
    )


def find_compiler(requested: str | None, need: str = "CPU kernels need", family: str = "") -> CCompiler:
    """Returns the C compiler, with the version that the compiler itself reports.

    The result is cached for the life of the process, for each value of ``PATH``.

    ``family`` is the family of machines that the code is for. Other families than this machine's need a cross compiler,
    unless ``requested`` names a compiler.

    Raises:
        CompilerMissingError: no compiler was found, or it does not run; a failure is not cached.
    """
    # A relative path is not cached, because its compiler depends on the working folder.
    find = _found_compiler if requested is None or requested.startswith("/") else _found_compiler.__wrapped__
    return find(requested, search_path(), need, "" if family in ("", _own_family()) else family)


@lru_cache(maxsize=8)
def _found_compiler(requested: str | None, path: str | None, need: str, family: str) -> CCompiler:
    own = CROSS_COMPILERS.get(family, COMPILERS)
    names = [*own] if requested is None else [requested.strip(), *_words(requested)[:1]]
    return identify(choose_compiler(requested, {name: shutil.which(name, path=path) for name in names}, need, family))


def _own_family() -> str:
    machine = platform.machine().lower()
    return {"amd64": "x86-64", "x86_64": "x86-64", "arm64": "aarch64"}.get(machine, machine)


def _words(requested: str) -> list[str]:
    try:
        return shlex.split(requested)
    except ValueError as error:
        raise CompilerMissingError(f"the C compiler {requested!r} cannot be read as a command: {error}") from None


@lru_cache(maxsize=8)
def identify(command: tuple[str, ...]) -> CCompiler:
    """Runs a command for its version and returns the compiler. Raises CompilerMissingError if it does not run."""
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, check=True, timeout=60, env=child_environment(LC_ALL="C")
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerMissingError(f"the C compiler {shlex.join(command)} does not run: {error}") from error
    lines = [line.strip() for line in answer.stdout.decode(errors="replace").splitlines()]
    # clang prints its target machine on a separate line; the lines after it name folders.
    version_lines = [*lines[:1], *(line for line in lines[1:] if line.startswith("Target:"))]
    return CCompiler(command, ", ".join(version_lines) or "unknown")


@lru_cache(maxsize=8)
def installed_places(compiler: CCompiler) -> tuple[str, ...]:
    """Returns the files and folders that a compiler needs: its command, the command's folder, and folders of its own.

    gcc and clang print their own folders for ``-print-search-dirs``. If a compiler prints none, they are left out.
    """
    program = Path(compiler.command[0])
    places = {str(program), str(program.resolve()), str(program.resolve().parent)}
    try:
        answer = subprocess.run(
            [*compiler.command, "-print-search-dirs"],
            capture_output=True,
            check=True,
            timeout=60,
            env=child_environment(LC_ALL="C"),
        )
    except (OSError, subprocess.SubprocessError):
        return tuple(sorted(places))
    for line in answer.stdout.decode(errors="replace").splitlines():
        _, _, listed = line.partition(": ")
        for path in listed.strip().removeprefix("=").split(":"):
            if path.startswith("/") and Path(path).is_dir():
                places.add(str(Path(path).resolve()))
    return tuple(sorted(places - {"/"}))
