"""The identity of the CPU compiler, which is part of the keys of jobs and artifacts."""

from __future__ import annotations

from silo.compile.c_compiler import CCompiler
from silo.compile.identity import code_digest
from silo.core.values import digest
from silo.drivers.cpu.levels import CpuLevel
from silo.kinds.triton.cpu.cpu_declaration import CPU
from silo.kinds.triton.cpu.object_build import compile_flags
from silo.kinds.triton.front.adapter import triton_identity
from silo.settings import settings

__all__ = ["code_identity", "compiler_identity"]


def compiler_identity(level: CpuLevel, toolchain: CCompiler) -> str:
    """The identity in the keys of stored kernels: Triton, whose front end makes the jobs, and :func:`code_identity`.

    Raises:
        ToolchainError: no usable Triton.
    """
    return f"{code_identity(level, toolchain)} {triton_identity(force=settings().force_triton)}"


def code_identity(level: CpuLevel, toolchain: CCompiler) -> str:
    """The identity in the keys of stored jobs: Silo's code with the C text that it emits, the C compiler, its flags."""
    flags = digest("cpu-flags/1", [*compile_flags(level), *toolchain.command[1:]])[:16]
    return f"cpu code {code_digest(*CPU.code)} flags {flags} {toolchain.version}"
