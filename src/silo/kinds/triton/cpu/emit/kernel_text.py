"""Emits the C text of a kernel from the SSA form of its module."""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu import runtime
from silo.kinds.triton.cpu.analysis.float_extremes import join_float_extremes
from silo.kinds.triton.cpu.analysis.nan_choices import split_nan_choices
from silo.kinds.triton.cpu.analysis.narrow_compares import narrow_compares
from silo.kinds.triton.cpu.analysis.networks import find_mirrors, fold_networks
from silo.kinds.triton.cpu.analysis.orders import free_orders, order_memory
from silo.kinds.triton.cpu.analysis.pointer_casts import cast_bases
from silo.kinds.triton.cpu.analysis.row_parts import RowParts, cut_rows
from silo.kinds.triton.cpu.analysis.ssa_rewriting import join_edges, spell_out_polls, split_inline
from silo.kinds.triton.cpu.analysis.supported import check_supported, refuse_depth
from silo.kinds.triton.cpu.analysis.tile_sums import sum_tiles_first
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.compile_effort import USUAL, CompileEffort, effort_of
from silo.kinds.triton.cpu.emit.c_printer import kernel_text
from silo.kinds.triton.cpu.emit.shared_text import BLOCK, REST
from silo.kinds.triton.cpu.loop_ir import LoopProgram
from silo.kinds.triton.cpu.lower.adjacent_programs import join_adjacent_programs
from silo.kinds.triton.cpu.lower.half_precision import PIECE, convert_in_blocks
from silo.kinds.triton.cpu.lower.module_lowering import lower_kernel
from silo.kinds.triton.cpu.lower.nest_loops import RUN_PRELUDE
from silo.kinds.triton.cpu.lower.reduction import lanes_of, reduce_in_lanes
from silo.kinds.triton.front.ssa import Module

__all__ = ["PRELUDE", "EmittedKernel", "emit_c", "emit_supported", "lower"]

# Small C helpers that every kernel text may use.
PRELUDE = (
    """\
/* How many leading i of 0..limit-1 have base + i < bound, given that values are 32-bit and base may have left them. */
SILO_INLINE int64_t nest_below(int64_t base, int64_t bound, int64_t limit) {
  int64_t count = base < -2147483647 - 1 ? 0 : bound - base;
  count = count < 0 ? 0 : count;
  return count < limit ? count : limit;
}

/* The same where nothing else has looked at the numbers: 0 where one of them leaves 32 bits. */
SILO_INLINE int64_t nest_part(int64_t base, int64_t bound, int64_t limit) {
  if (base < -2147483647 - 1 || base + limit > 2147483647 || bound < -2147483647 - 1 || bound > 2147483647)
    return 0;
  return bound <= base ? 0 : bound - base < limit ? bound - base : limit;
}

/* And all of them there, else at least 1. */
SILO_INLINE int64_t nest_seen(int64_t base, int64_t bound, int64_t limit) {
  if (base < -2147483647 - 1 || base + limit > 2147483647 || bound < -2147483647 - 1 || bound > 2147483647)
    return limit;
  return bound <= base ? 1 : bound - base < limit ? bound - base : limit;
}

/* Whether none of them is. */
SILO_INLINE int nest_none(int64_t base, int64_t bound, int64_t limit) {
  return bound <= base && base >= -2147483647 - 1 && base + limit <= 2147483647 && bound >= -2147483647 - 1;
}

/* Whether base .. base + limit - 1 are 32-bit values. */
SILO_INLINE int nest_fits(int64_t base, int64_t limit) {
  return base >= -2147483647 - 1 && base + limit - 1 <= 2147483647;
}

"""
    + RUN_PRELUDE
)


_USUAL = CompileEffort(USUAL)
_WITHOUT_F16 = 128  # the width in bits of vectors at CPU levels without f16 instructions
_WITH_MASKS = 512  # the width in bits of vectors at CPU levels that have masked loads


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    """C11 text of one kernel, without any include.

    ``entry`` is the exported function, with the ABI of CPU kernels. ``scratch_bytes`` is the scratch memory that each
    thread must provide, aligned to 64. ``uses`` names every piece of the C runtime that the text calls. ``effort`` is
    the optimization level for the C compiler.
    """

    source: str
    entry: str
    scratch_bytes: int
    uses: frozenset[str]
    effort: CompileEffort = _USUAL


def lower(module: Module, options: CpuOptions) -> tuple[LoopProgram, frozenset[str]]:
    """Lowers the kernel of ``module`` to a loop program, rewriting the module on the way.

    Returns the program and the names of the runtime pieces that it calls.
    """
    check_supported(module)
    return _lower_supported(module, options, "")


def _lower_supported(module: Module, options: CpuOptions, entry: str) -> tuple[LoopProgram, frozenset[str]]:
    split_inline(module)
    join_edges(module)
    spell_out_polls(module)
    if options.mode == "optimized":
        join_float_extremes(module)
        cast_bases(module)
        sum_tiles_first(module)
    # A whole program finishes its reads before it writes; parts of a program do not wait for each other. So a kernel is
    # cut only if it does not write memory that it reads.
    separate = options.mode == "optimized" and (options.row_parts or options.elements_apart)
    parts = cut_rows(module) if separate else RowParts()
    order_memory(module)
    free_orders(module)
    if options.mode == "optimized":
        fold_networks(module)
        find_mirrors(module)
        split_nan_choices(module)
        narrow_compares(module)
    program, uses = lower_kernel(module, options, entry)
    if parts.most > 1:
        program.parts, program.distinct = parts.most, parts.distinct
        uses |= {"lasting"}
    if options.mode == "optimized" and options.vector_bits > _WITHOUT_F16:
        lanes = lanes_of(options.vector_bits) if options.vector_bits >= _WITH_MASKS else 0
        if convert_in_blocks(program, lanes):
            uses |= {PIECE}
    if options.mode == "optimized":
        reduce_in_lanes(program, options.vector_bits)
        join_adjacent_programs(program, module)
    return program, uses


def emit_c(module: Module, options: CpuOptions | None = None, entry: str = "") -> EmittedKernel:
    """The C text of the kernel of ``module``.

    Args:
        module: parsed and verified; it is rewritten on the way.
        options: how it is compiled.
        entry: the symbol to export; "" derives one from the kernel's name.

    Raises:
        UnsupportedError: the CPU cannot express an operation; the message lists each with its place and count.
    """
    check_supported(module)
    return emit_supported(module, options or CpuOptions(), entry)


def emit_supported(module: Module, options: CpuOptions, entry: str = "") -> EmittedKernel:
    """Like :func:`emit_c`, for a module that was checked already; operations of a check may have been added since."""
    with refuse_depth():
        program, uses = _lower_supported(module, options, entry)
        blocks = [text for text in program.constants if text.startswith(BLOCK)]
        program.constants = [text for text in program.constants if text not in blocks]
        shared = [*blocks, REST] if any(name.startswith("dot_") for name in uses) else []
        text = kernel_text(program)
    head = runtime.text(uses, options.vector_bits, options.dot_units)
    source = "\n".join((head, PRELUDE, *shared, text))
    return EmittedKernel(source, program.entry, program.total_bytes, runtime.with_needs(uses), effort_of(len(text)))
