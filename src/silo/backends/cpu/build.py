"""Building of C text to a shared object, with the system's C compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from silo.backends.cpu.levels import Level, level_of
from silo.compile.c_compiler import CCompiler
from silo.core.target import Target
from silo.errors import CompileError, CompilerMissingError, ToolchainError
from silo.forks import own_folder
from silo.settings import child_environment

__all__ = [
    "BuiltObject",
    "build",
    "compile_flags",
    "llvm_of",
    "source_flags",
]

# What changes neither results nor speed for the better is left out. NaN, infinities and the sign of zero are kept: only
# errno and trapping are given up, which no kernel can observe. The rest makes the object small, and the same bytes from
# any folder: no debug information, no build id, no compiler's name, no unwind tables.
_CODE_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fPIC",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-ident",
    "-g0",
    "-Wno-pass-failed",  # clang: a loop that calls the C library is not vectorised
)
# Those that make the object small and reproducible, and change nothing that the code does.
_OBJECT_FLAGS = frozenset(
    {"-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-ident", "-g0", "-Wno-pass-failed"}
)
_LINK_FLAGS = (
    "-shared",
    "-nostartfiles",
    "-Wl,-s",
    "-Wl,--build-id=none",
    "-Wl,--hash-style=gnu",
    "-Wl,-z,noseparate-code",
    "-Wl,-z,defs",
)


@dataclass(frozen=True, slots=True)
class BuiltObject:
    """A shared object and what the compiler said while making it (usually nothing)."""

    data: bytes
    log: str


def compile_flags(level: Level, *, contract: bool = True, libm: bool = False) -> tuple[str, ...]:
    """Every flag of one compile.

    ``contract`` lets a * b + c be fused to one rounding; ``libm`` links the mathematical functions of the C library.
    """
    fused = f"-ffp-contract={'fast' if contract else 'off'}"
    return (*level.flags, *_CODE_FLAGS, fused, *_LINK_FLAGS, *(("-lm",) if libm else ()))


def source_flags(target: Target, *, contract: bool) -> tuple[str, ...]:
    """The flags that decide what the C text of a kernel does, for those who compile it into a program of their own."""
    fused = f"-ffp-contract={'fast' if contract else 'off'}"
    return (*level_of(target).flags, *(flag for flag in _CODE_FLAGS if flag not in _OBJECT_FLAGS), fused)


def build(source: str, flags: tuple[str, ...], toolchain: CCompiler) -> BuiltObject:
    """Compile and link ``source``, which is the compiler's standard input, in a private temporary folder.

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
        command = [*toolchain.command, *rest, "-x", "c", "-", "-o", str(output), *([library] if library else [])]
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
            raise CompileError(_refusal(source, log, done.returncode, command, toolchain))
        try:
            return BuiltObject(output.read_bytes(), log)
        except OSError as error:
            raise CompileError(f"{toolchain.version} left no object: {error}") from error


def llvm_of(source: str, flags: tuple[str, ...]) -> str:
    """What clang makes of the C text before machine code. ``ToolchainError`` where it is not here, or refuses."""
    place = shutil.which("clang")
    if place is None:
        raise ToolchainError(
            "LLVM's form of CPU code is made by clang, which is not on PATH: install it (Debian, Ubuntu: apt-get "
            "install clang), or look at --code c and --code asm, which need none"
        )
    kept = [flag for flag in flags if not flag.startswith("-Wl,") and flag not in ("-shared", "-nostartfiles", "-lm")]
    done = subprocess.run(
        [place, *kept, "-x", "c", "-", "-S", "-emit-llvm", "-o", "-"],
        input=source.encode(),
        capture_output=True,
        check=False,
        env=child_environment(LC_ALL="C"),
    )
    if done.returncode != 0:
        raise ToolchainError(f"clang refuses the C text: {done.stderr.decode(errors='replace').strip()[:500]}")
    return done.stdout.decode()


def _refusal(source: str, log: str, status: int, command: list[str], toolchain: CCompiler) -> str:
    kept = _keep(source)
    ended = f"was stopped by signal {-status}" if status < 0 else f"ended with status {status}"
    lines = log.strip().splitlines()
    shown = "\n".join(lines[:20]) + ("\n..." if len(lines) > 20 else "")
    old = "" if "march" not in log else "\nThe level needs gcc 12, clang 14 or later."
    return (
        f"the C compiler ({toolchain.version}) {ended}; the C source is kept in {kept}\n{shown}{old}\n"
        f"command: {shlex.join(command)}"
    )


def _keep(source: str) -> str:
    try:
        handle, name = tempfile.mkstemp(prefix="silo-failed-", suffix=".c")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
    except OSError as error:
        return f"no file ({error})"
    return name
