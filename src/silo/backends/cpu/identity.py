"""What decides the bytes that the CPU compiler makes of a kernel, as part of the keys of artifacts."""

from __future__ import annotations

from silo.backends.cpu.build import compile_flags
from silo.backends.cpu.declaration import CPU
from silo.backends.cpu.levels import Level
from silo.compile.c_compiler import CCompiler
from silo.compile.identity import code_digest
from silo.core.values import digest
from silo.settings import settings
from silo.sources.triton.adapter import triton_identity

__all__ = ["code_identity", "compiler_identity"]


def compiler_identity(level: Level, toolchain: CCompiler) -> str:
    """What decides the bytes that a kernel leads to, besides the kernel: Triton, whose front end makes the job, too.

    Raises:
        ToolchainError: no usable Triton.
    """
    return f"{code_identity(level, toolchain)} {triton_identity(force=settings().force_triton)}"


def code_identity(level: Level, toolchain: CCompiler) -> str:
    """What decides the bytes that a job leads to, besides the job: Silo's code with its runtime, C compiler, flags."""
    flags = digest("cpu-flags/1", [*compile_flags(level), *toolchain.command[1:]])[:16]
    return f"cpu code {code_digest(*CPU.code)} flags {flags} {toolchain.version}"
