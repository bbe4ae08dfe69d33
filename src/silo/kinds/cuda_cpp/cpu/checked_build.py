"""Compiles a kernel in CUDA C++ for the CPU, to code that checks each of its memory accesses."""

from __future__ import annotations

import json
from functools import lru_cache

from silo.checking.kernel import NativeKernel
from silo.compile.c_compiler import CCompiler
from silo.compile.native_build import BuiltObject, build
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Effect
from silo.core.variant import CompileJob
from silo.emulation.checked_runs import CHECKED_STACK, CheckedRuns, checked_flags, checked_links, checked_runs
from silo.emulation.clang import precompiled_header, scratch_bytes
from silo.emulation.fault_report import Words
from silo.emulation.runtime import FOLDER as SHARED
from silo.emulation.runtime import HOOKS
from silo.errors import CompileError
from silo.frozen import frozen
from silo.kinds.cuda_cpp.cpu.cpu_build import HEADER, code_flags, group_memory, header_folder, refused, runnable
from silo.kinds.cuda_cpp.cpu.cpu_text import entry_text
from silo.kinds.cuda_cpp.cpu.runtime import FOLDER
from silo.kinds.cuda_cpp.cuda_unit import CudaUnit

__all__ = ["WORDS", "compile_checked"]

_ENTRY = "silo_checked"

WORDS = Words("block", "warp", "shared memory")
"""CUDA's terms for a group of threads, a subgroup of lanes and shared memory, used in findings."""


@frozen
class _Code:
    """A loaded kernel: the functions that run it with checks, and its launch info."""

    runs: CheckedRuns
    launch: LaunchInfo


def compile_checked(
    kernel: str, unit: CudaUnit, effects: tuple[Effect, ...], *, target: Target, clang: CCompiler
) -> NativeKernel:
    """Compiles a kernel to code that checks each of its memory accesses. A process compiles equal kernels only once.

    Args:
        kernel: its name.
        unit: the variant.
        effects: the kernel's effect through each parameter of the layout.
        target: the CPU level to compile for.
        clang: the compiler.

    Raises:
        CompileError: clang refuses the text.
    """
    runnable(kernel, unit)
    text = CompileJob("", kernel, target, unit.text.text, unit.parameters_to_json()).to_json()
    code = _compiled(kernel, _Unit(json.dumps(text, sort_keys=True), unit), effects, target, clang)
    return NativeKernel(kernel, code.launch, effects, code.runs)


class _Unit:
    """A ``CudaUnit`` that compares equal to one with the same canonical form, for use as a cache key."""

    def __init__(self, form: str, unit: CudaUnit) -> None:
        self.form = form
        self.unit = unit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unit) and self.form == other.form

    def __hash__(self) -> int:
        return hash(self.form)


@lru_cache(maxsize=64)
def _compiled(kernel: str, of: _Unit, effects: tuple[Effect, ...], target: Target, clang: CCompiler) -> _Code:
    unit = of.unit
    x, y, z = unit.block
    memory = group_memory(unit)
    launch = LaunchInfo(
        entry=_ENTRY,
        layout=unit.layout,
        threads=1,
        scratch_bytes=scratch_bytes(x * y * z, memory, CHECKED_STACK),
        scratch_align=64,
        cooperative=unit.cooperative,
    )
    text = entry_text(unit, _ENTRY, waits=True, stack=CHECKED_STACK, memory=memory)
    flags = checked_flags(code_flags(target, waits=True))

    def built(more: tuple[str, ...]) -> BuiltObject:
        every = (*flags, *more)
        header = precompiled_header(clang, every, HEADER, (HOOKS,))
        use = () if header is None else ("-include-pch", str(header), "-Xclang", "-fno-validate-pch")
        with header_folder(unit.text) as folders:
            try:
                return build(text, (*every, *folders, *use, *checked_links()), clang, "c++")
            except CompileError as error:
                raise refused(kernel, unit, error) from None

    library = (str(FOLDER), str(SHARED), "entry")
    return _Code(checked_runs(built, launch, effects, unit.text.file, library, WORDS), launch)
