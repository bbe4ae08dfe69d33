"""Compiles a kernel to code that checks each memory access, and loads that code for a launcher."""

from __future__ import annotations

from functools import lru_cache

from silo.checking.kernel import NativeKernel
from silo.compile.c_compiler import CCompiler
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Effect
from silo.core.variant import Compiled, CompiledBlob
from silo.drivers.cpu.levels import CpuLevel
from silo.frozen import frozen
from silo.kinds.triton.cpu.analysis.networks import fold_networks
from silo.kinds.triton.cpu.analysis.ssa_rewriting import spell_out_polls
from silo.kinds.triton.cpu.analysis.supported import check_supported, refuse_depth
from silo.kinds.triton.cpu.checking.cpu_runs import CpuCheckedRuns
from silo.kinds.triton.cpu.checking.instrument import instrument
from silo.kinds.triton.cpu.checking.sites import Site
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.cpu_jobs import check_layout
from silo.kinds.triton.cpu.emit.kernel_text import EmittedKernel, emit_supported
from silo.kinds.triton.cpu.object_build import build, compile_flags
from silo.kinds.triton.front.ssa_facts import argument_effects
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify
from silo.launch.cpu_objects import load

__all__ = ["compile_checked", "emit_checked"]

_QUICK = "-O1"  # a check runs a kernel only a few times, so compiling quickly matters more than fast code


@frozen
class _Code:
    """A loaded checked kernel: the functions that run it, its launch info, and its effect through each parameter."""

    runs: CpuCheckedRuns
    launch: LaunchInfo
    effects: tuple[Effect, ...]


def compile_checked(
    kernel: str,
    text: str,
    layout: tuple[LayoutSlot, ...],
    *,
    level: CpuLevel,
    options: CpuOptions,
    nan: bool,
    toolchain: CCompiler,
) -> NativeKernel:
    """Compiles a kernel for checking, or returns the code that this process compiled from an equal kernel.

    Args:
        kernel: its name.
        text: its TTIR, with source locations if they are known.
        layout: its parameters.
        level: the CPU level to compile for.
        options: options of the code, in reference mode.
        nan: also look for operations that make a NaN.
        toolchain: the C compiler.

    Raises:
        CompileError: the text is invalid, or holds an operation that the CPU cannot express.
    """
    code = _compiled(text, layout, level, options, nan, toolchain)
    return NativeKernel(kernel, code.launch, code.effects, code.runs)


def emit_checked(
    text: str, options: CpuOptions, *, nan: bool
) -> tuple[EmittedKernel, tuple[Site, ...], tuple[Effect, ...]]:
    """The C text of a kernel with its checks, its sites (watched operations), and the effect through each parameter."""
    module = parse_ttir(text)
    verify(module)
    check_supported(module)
    with refuse_depth():
        effects = argument_effects(module)
        # Without this rewriting, each step of a sort would be an operation, and the C compiler would take half a
        # minute.
        fold_networks(module)
        # a poll becomes a loop, whose iterations the check counts: so a poll that never ends is reported as an endless
        # loop
        spell_out_polls(module)
        sites = instrument(module, nan=nan)
    return emit_supported(module, options), tuple(sites), effects


@lru_cache(maxsize=64)
def _compiled(
    text: str,
    layout: tuple[LayoutSlot, ...],
    level: CpuLevel,
    options: CpuOptions,
    nan: bool,  # noqa: FBT001
    toolchain: CCompiler,
) -> _Code:
    check_layout("the kernel", parse_ttir(text), layout)
    emitted, sites, effects = emit_checked(text, options, nan=nan)
    effort = emitted.effort.flag if emitted.effort.reason else _QUICK
    flags = compile_flags(level, contract=options.fp_contract, libm="libm" in emitted.uses, effort=effort)
    data = build(emitted.source, flags, toolchain).data
    launch = LaunchInfo(
        entry=emitted.entry,
        layout=layout,
        threads=1,
        scratch_bytes=emitted.scratch_bytes,
        scratch_align=64 if emitted.scratch_bytes else 1,
    )
    loaded = load(Compiled(launch, CompiledBlob("so", data)))
    names = tuple(slot.name if slot.type is AbiType.POINTER else "" for slot in layout)
    return _Code(CpuCheckedRuns(loaded.function, sites, names), launch, effects)
