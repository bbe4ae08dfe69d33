"""Running a compiler of the host on a text, to a shared object."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from silo.compile.c_compiler import CCompiler
from silo.errors import CompileError, CompilerMissingError
from silo.forks import own_folder
from silo.settings import child_environment

__all__ = ["BuiltObject", "build"]


@dataclass(frozen=True, slots=True)
class BuiltObject:
    """A shared object and what the compiler said while making it (usually nothing)."""

    data: bytes
    log: str


def build(
    source: str, flags: tuple[str, ...], toolchain: CCompiler, language: str = "c", beside: bytes = b""
) -> BuiltObject:
    """Compile and link ``source``, which is the compiler's standard input, in a private temporary folder.

    ``language`` is what the compiler calls it: ``c``, ``c++``. ``beside`` is an object that is linked with it.

    Raises:
        CompileError: the compiler refused; its message, and where the C source was kept. Or a signal handler forked
            meanwhile, and this is its child.
    """
    *rest, library = flags if flags and flags[-1] == "-lm" else (*flags, "")
    maker = os.getpid()
    # A file, not a pipe: a child that a signal handler forks would go on filling the pipe, beside this process.
    with own_folder("silo-cc-") as folder, tempfile.TemporaryFile(dir=folder) as text:
        text.write(source.encode())
        text.seek(0)
        output = Path(folder, "kernel.so")
        objects: list[str] = []
        if beside:
            Path(folder, "beside.o").write_bytes(beside)
            objects = ["-x", "none", "beside.o"]
        libraries = [library] if library else []
        command = [*toolchain.command, *rest, "-x", language, "-", *objects, "-o", str(output), *libraries]
        try:
            done = subprocess.run(
                command,
                stdin=text,
                capture_output=True,
                check=False,
                cwd=folder,
                env=child_environment(LC_ALL="C", TMPDIR=folder),
            )
        except FileNotFoundError as error:
            raise CompilerMissingError(
                f"the C compiler {toolchain.command[0]} is not there any more ({error}); install it again or name "
                "another in SILO_CC"
            ) from error
        except OSError as error:
            raise CompileError(f"the C compiler {toolchain.command[0]} could not be run: {error}") from error
        if os.getpid() != maker:
            raise CompileError("this process was forked while the C compiler of its parent ran; compile it again here")
        log = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise CompileError(_refusal(source, log, done.returncode, command, toolchain, language))
        try:
            return BuiltObject(output.read_bytes(), log)
        except OSError as error:
            raise CompileError(f"{toolchain.version} left no object: {error}") from error


def _refusal(source: str, log: str, status: int, command: list[str], toolchain: CCompiler, language: str) -> str:
    kept = _keep(source, ".c" if language == "c" else ".cc")
    ended = f"was stopped by signal {-status}" if status < 0 else f"ended with status {status}"
    lines = log.strip().splitlines()
    shown = "\n".join(lines[:20]) + ("\n..." if len(lines) > 20 else "")
    old = "" if "march" not in log else "\nThe level needs gcc 12, clang 14 or later."
    return (
        f"the C compiler ({toolchain.version}) {ended}; the {language.upper()} source is kept in {kept}\n{shown}{old}\n"
        f"command: {shlex.join(command)}"
    )


def _keep(source: str, suffix: str) -> str:
    try:
        handle, name = tempfile.mkstemp(prefix="silo-failed-", suffix=suffix)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
    except OSError as error:
        return f"no file ({error})"
    return name
