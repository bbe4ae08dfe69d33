"""Compiles a text to a shared object with a compiler of the host."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from silo.compile.c_compiler import CCompiler
from silo.compile.compiler_process import compiler_process, memory_note
from silo.errors import CompileError, CompilerMissingError
from silo.settings import child_environment
from silo.temporary import keep_text, own_folder

__all__ = ["BuiltObject", "InternalCompilerError", "build", "build_beside"]

# Messages for faults of a compiler itself: gcc's, and clang's for a crash and for a failed assertion.
_OWN_FAULT = ("internal compiler error", "PLEASE submit a bug report", "fatal error: error in backend")


class InternalCompilerError(CompileError):
    """The compiler failed by a fault of its own; with other flags, it may compile the text."""


@dataclass(frozen=True, slots=True)
class BuiltObject:
    """A shared object, and the messages that the compiler printed (usually none)."""

    data: bytes
    log: str


def build(
    source: str, flags: tuple[str, ...], toolchain: CCompiler, language: str = "c", other_files: Sequence[bytes] = ()
) -> BuiltObject:
    """Compiles and links ``source``, passed as the compiler's standard input, in a private temporary folder.

    ``language`` is the language in the compiler's words: ``c``, ``c++``. ``other_files`` are objects to link with it,
    in order.

    Raises:
        CompileError: the compiler rejected the text; has its message and the path of the kept text. Also raised in a
            child that a signal handler forked meanwhile. :class:`InternalCompilerError` for a fault of the compiler
            itself.
    """
    with own_folder("silo-cc-") as folder:
        objects = _written(other_files, folder)
        with _started(_Compilation(source, flags, toolchain, language), folder, "kernel.so", objects) as running:
            return running.finish()


def build_beside(
    source: str,
    shared: Sequence[str | bytes],
    flags: tuple[str, ...],
    compile_flags: tuple[str, ...],
    toolchain: CCompiler,
) -> tuple[BuiltObject, tuple[bytes, ...]]:
    """Builds ``source`` and links it with the objects of ``shared``. Returns the linked object and ``shared`` compiled.

    ``shared`` has texts, which are compiled at the same time as ``source``, and finished objects. The linked object has
    the same bytes as :func:`build` makes with these objects. ``compile_flags`` are ``flags`` without the linker's
    flags; each function of a shared text gets a section of its own.

    Raises:
        CompileError: as :func:`build`.
    """
    own = _Compilation(source, (*compile_flags, "-c"), toolchain)
    with own_folder("silo-cc-") as folder:
        with ExitStack() as compilers:
            running: list[_Running | bytes] = []
            for number, part in enumerate(shared):
                if isinstance(part, str):
                    text = _Compilation(part, (*compile_flags, "-ffunction-sections", "-c"), toolchain)
                    running.append(compilers.enter_context(_started(text, folder, _object_name(number))))
                else:
                    running.append(part)
            last = compilers.enter_context(_started(own, folder, "own.o"))
            built = [BuiltObject(part, "") if isinstance(part, bytes) else part.finish() for part in running]
            compiled = last.finish()
        objects = ["own.o", *_written([part.data for part in built], folder)]
        with _started(_Compilation("", flags, toolchain, ""), folder, "kernel.so", objects) as linking:
            linked = linking.finish()
    log = "".join(part.log for part in (*built, compiled, linked))
    return BuiltObject(linked.data, log), tuple(part.data for part in built)


def _object_name(number: int) -> str:
    return f"beside{number}.o"


def _written(objects: Sequence[bytes], folder: str) -> list[str]:
    """Writes objects that are to be linked with a text to files; returns the file names."""
    names = [_object_name(number) for number in range(len(objects))]
    for name, data in zip(names, objects, strict=True):
        Path(folder, name).write_bytes(data)
    return names


@dataclass(frozen=True, slots=True)
class _Compilation:
    """The input of one run of a compiler: a text and flags. If ``language`` is "", the run only links objects."""

    source: str
    flags: tuple[str, ...]
    toolchain: CCompiler
    language: str = "c"

    def command(self, objects: Sequence[str], output: Path) -> list[str]:
        flags = self.flags
        *other_flags, library = flags if flags and flags[-1] == "-lm" else (*flags, "")
        text = ["-x", self.language, "-"] if self.language else []
        linked = [*(["-x", "none"] if text and objects else []), *objects]
        return [
            *self.toolchain.command,
            *other_flags,
            *text,
            *linked,
            "-o",
            str(output),
            *([library] if library else []),
        ]


@dataclass(frozen=True, slots=True)
class _Running:
    """A running compiler."""

    asked: _Compilation
    command: list[str]
    output: Path
    process: subprocess.Popen[bytes]
    maker: int

    def finish(self) -> BuiltObject:
        """Waits until the compiler ends; returns the object or raises CompileError."""
        _, messages = self.process.communicate()
        if os.getpid() != self.maker:
            raise CompileError("this process was forked while the C compiler of its parent ran; compile it again here")
        compilation, log, status = self.asked, messages.decode(errors="replace"), self.process.returncode
        if status != 0:
            raises = InternalCompilerError if any(word in log for word in _OWN_FAULT) else CompileError
            raise raises(
                _refusal(compilation.source, log, status, self.command, compilation.toolchain, compilation.language)
            )
        try:
            return BuiltObject(self.output.read_bytes(), log)
        except OSError as error:
            raise CompileError(f"{compilation.toolchain.version} left no object: {error}") from error


@contextmanager
def _started(compilation: _Compilation, folder: str, output: str, objects: Sequence[str] = ()) -> Generator[_Running]:
    """Starts the compiler and yields it; kills it at the end of the block if it is still running."""
    toolchain, target, maker = compilation.toolchain, Path(folder, output), os.getpid()
    command = compilation.command(objects, target)
    # The compiler reads the text from a file, not from a pipe: a child that a signal handler forks would write into the
    # same pipe as this process.
    with tempfile.TemporaryFile(dir=folder) as text:
        text.write(compilation.source.encode())
        text.seek(0)
        environment = child_environment(LC_ALL="C", TMPDIR=folder)
        with ExitStack() as ends:
            try:
                process = ends.enter_context(compiler_process(command, stdin=text, cwd=folder, env=environment))
            except FileNotFoundError as error:
                raise CompilerMissingError(
                    f"the C compiler {toolchain.command[0]} is not there any more ({error}); install it again or name "
                    "another in SILO_CC"
                ) from error
            except OSError as error:
                raise CompileError(f"the C compiler {toolchain.command[0]} could not be run: {error}") from error
            yield _Running(compilation, command, target, process, maker)


def _refusal(source: str, log: str, status: int, command: list[str], toolchain: CCompiler, language: str) -> str:
    path = _keep(source, ".c" if language == "c" else ".cc")
    ended = f"was stopped by signal {-status}" if status < 0 else f"ended with status {status}"
    lines = log.strip().splitlines()
    shown = "\n".join(lines[:20]) + ("\n..." if len(lines) > 20 else "")
    old = "" if "march" not in log else "\nThe level needs gcc 12, clang 14 or later."
    return (
        f"the C compiler ({toolchain.version}) {ended}; the {language.upper()} source is kept in {path}\n{shown}{old}"
        f"{memory_note(log)}\n"
        f"command: {shlex.join(command)}"
    )


def _keep(source: str, suffix: str) -> str:
    try:
        return keep_text(source, suffix)
    except OSError as error:
        return f"no file ({error})"
