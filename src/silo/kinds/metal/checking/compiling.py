"""Compiles a job of the emulator to code that checks each of its memory accesses."""

from __future__ import annotations

from functools import lru_cache

from silo.checking.kernel import NativeKernel
from silo.checking.machine import CheckFinding, check_error
from silo.compile.c_compiler import CCompiler
from silo.compile.native_build import BuiltObject, build
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Effect
from silo.emulation.checked_runs import CHECKED_STACK, CheckedRuns, checked_flags, checked_links, checked_runs
from silo.emulation.clang import precompiled_header, scratch_bytes
from silo.emulation.fault_report import Words
from silo.emulation.runtime import FOLDER as SHARED
from silo.emulation.runtime import HOOKS
from silo.frozen import frozen, replace
from silo.kinds.metal.checking.address_spaces import Mixed, mixed_spaces
from silo.kinds.metal.clang import HEADER, code_flags
from silo.kinds.metal.compile_job import GROUP_BYTES, entry_text, include_flags
from silo.kinds.metal.metal_job import EmulatorJob
from silo.kinds.metal.runtime import FOLDER

__all__ = ["WORDS", "compile_checked"]

_ENTRY = "silo_checked"

WORDS = Words("threadgroup", "simdgroup", "threadgroup memory")
"""Metal's terms for a group of threads, a subgroup of lanes and shared memory, used in findings."""


def compile_checked(
    kernel: str, job: EmulatorJob, effects: tuple[Effect, ...], *, target: Target, clang: CCompiler
) -> NativeKernel:
    """Compiles a kernel to code that checks each of its memory accesses. A process compiles equal kernels only once.

    Args:
        kernel: the kernel's name.
        job: the kernel's compile job.
        effects: the kernel's effect through each parameter of the layout.
        target: the CPU level to compile for.
        clang: the compiler.

    Raises:
        CheckError: a pointer of one address space is used as another's.
        CompileError: clang refuses the text.
    """
    mixed = _mixed(job, target, clang)
    if mixed is not None:
        problem, at = "a pointer of the wrong address space", f" at {mixed.place}"
        raise check_error(kernel, CheckFinding("address space", problem, (mixed.what,), place=mixed.place, at=at))
    code = _compiled(kernel, job, effects, target, clang)
    return NativeKernel(kernel, code.launch, effects, code.runs)


@frozen
class _Code:
    """A loaded kernel: the functions that run it with checks, and its launch info."""

    runs: CheckedRuns
    launch: LaunchInfo


@lru_cache(maxsize=64)
def _mixed(job: EmulatorJob, target: Target, clang: CCompiler) -> Mixed | None:
    return mixed_spaces(job.source, job.file, target, clang)


@lru_cache(maxsize=64)
def _compiled(kernel: str, job: EmulatorJob, effects: tuple[Effect, ...], target: Target, clang: CCompiler) -> _Code:
    # each emulated thread gets a stack of its own, so that the check can switch between threads and run them in any
    # order
    job = replace(job, waits=True)
    x, y, z = job.group
    launch = LaunchInfo(
        entry=_ENTRY,
        layout=job.layout,
        threads=1,
        scratch_bytes=scratch_bytes(x * y * z, GROUP_BYTES, CHECKED_STACK),
        scratch_align=64,
    )
    flags = checked_flags(code_flags(target))
    folders = include_flags(kernel, job)

    def built(more: tuple[str, ...]) -> BuiltObject:
        every = (*flags, *more)
        header = precompiled_header(clang, every, HEADER, (HOOKS,))
        use = () if header is None else ("-include-pch", str(header), "-Xclang", "-fno-validate-pch")
        return build(entry_text(job, _ENTRY), (*every, *folders, *use, *checked_links()), clang, "c++")

    library = (str(FOLDER), str(SHARED), "entry")
    return _Code(checked_runs(built, launch, effects, job.file, library, WORDS), launch)
