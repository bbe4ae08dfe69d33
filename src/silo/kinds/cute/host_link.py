"""Linking host code of the DSL: the object it makes becomes a shared object that names the libraries it needs.

They are named by what they call themselves, without a path; nothing of them is in the result.
"""

from __future__ import annotations

from pathlib import Path

from silo.compile.c_compiler import CCompiler, find_compiler
from silo.compile.compiler_process import memory_note, run_compiler
from silo.core.decisions import Rejected
from silo.errors import CompileError, CompilerMissingError, ToolchainError
from silo.kinds.cute.front.libraries import runtime_library, tvm_ffi_library
from silo.settings import child_environment, settings
from silo.temporary import own_folder

__all__ = ["link", "linker"]

_NEED = 'host="dsl" needs, for linking,'
_FLAGS = (
    "-shared",
    "-nostdlib",
    "-Wl,-s",
    "-Wl,-Bsymbolic",
    "-Wl,--build-id=none",
    "-Wl,--hash-style=gnu",
    "-Wl,-z,noexecstack",
    "-Wl,-z,defs",  # a name that the libraries do not have is an error here, not where it is loaded
)


def linker() -> CCompiler:
    """The C compiler, which links. Raises CompilerMissingError."""
    return find_compiler(settings().cc, _NEED)


def link(made: bytes, version: str) -> tuple[bytes, str]:
    """A shared object from an object, and what the linker said; ``version`` is of the linker that the job is for.

    Raises:
        ToolchainError: a library that it needs is not installed, or the linker is another one.
        CompileError: the linker refused.
    """
    command = linker()
    if command.version != version:
        raise ToolchainError(f"the job is for the linker {version}, and this worker has {command.version}")
    libraries: list[str] = []
    for found in (runtime_library(), tvm_ffi_library()):
        if isinstance(found, Rejected):
            raise ToolchainError(f'host="dsl" cannot be compiled: {found.reason}')
        libraries.append(str(found))
    with own_folder("silo-cute-") as folder:
        Path(folder, "kernel.o").write_bytes(made)
        try:
            done = run_compiler(
                [*command.command, *_FLAGS, "-o", "kernel.so", "kernel.o", *libraries],
                cwd=folder,
                env=child_environment(LC_ALL="C", TMPDIR=folder),
            )
        except FileNotFoundError as error:
            raise CompilerMissingError(f"the C compiler {command.command[0]} is not there any more: {error}") from error
        except OSError as error:
            raise CompileError(f"the C compiler {command.command[0]} could not be run: {error}") from error
        log = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise CompileError(f"{command.version} cannot link the DSL's host code: {log.strip()}{memory_note(log)}")
        try:
            return Path(folder, "kernel.so").read_bytes(), log
        except OSError as error:
            raise CompileError(f"{command.version} left no object: {error}") from error
