"""The C text of a kernel, from the SSA form of its module.

Multiplying tiles takes a compiler as long as the rest of a kernel, and is the same for its configs and for many
kernels. Such a text has a line (:data:`REST`) after all that may be shared: functions that are ``SILO_APART`` and
blocks of dots. Compiled in one piece they are static; else they are hidden symbols of an object that is linked in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from silo.kinds.triton.cpu import runtime
from silo.kinds.triton.cpu.analysis.networks import find_mirrors, fold_networks
from silo.kinds.triton.cpu.analysis.orders import free_orders, order_memory
from silo.kinds.triton.cpu.analysis.row_parts import RowParts, cut_rows
from silo.kinds.triton.cpu.analysis.ssa_rewriting import join_edges, spell_out_polls, split_inline
from silo.kinds.triton.cpu.analysis.supported import check_supported, refuse_depth
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.compile_effort import USUAL, CompileEffort, effort_of
from silo.kinds.triton.cpu.loop_ir import (
    Assign,
    Break,
    Copy,
    Define,
    For,
    Forever,
    Goto,
    If,
    Label,
    LoopBuffer,
    LoopCall,
    LoopFunction,
    LoopProgram,
    Return,
    Statement,
)
from silo.kinds.triton.cpu.lower.control_lowering import NEXT_PROGRAM
from silo.kinds.triton.cpu.lower.half_precision import PIECE, convert_in_blocks
from silo.kinds.triton.cpu.lower.module_lowering import frame_name, lower_kernel
from silo.kinds.triton.cpu.lower.nest_loops import RUN_PRELUDE
from silo.kinds.triton.cpu.lower.reduction import reduce_in_lanes
from silo.kinds.triton.front.ssa import Module

__all__ = [
    "BLOCK",
    "PRELUDE",
    "REST",
    "EmittedKernel",
    "Parts",
    "emit_c",
    "emit_supported",
    "kernel_text",
    "lower",
    "part",
]


# ---- Prints a loop program as C11 text ----


_ABI = "void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, void *scratch, void *context"


def kernel_text(program: LoopProgram) -> str:
    """The kernel function with the CPU kernel ABI, the functions it calls, and the constant arrays it reads."""
    lines = list(program.constants)
    own = [function for function in program.functions if not function.inline]
    lines.extend(f"enum {{ {frame_name(function.name)} = {function.scratch_bytes} }};" for function in own)
    lines.extend(f"{_head(function)};" for function in own)
    for function in program.functions:
        _function(function, lines)
    lines.append(f"enum {{ {frame_name(program.entry)} = {program.scratch_bytes} }};")
    if program.turns >= 0:
        lines.append(f"static int32_t {program.entry}_turn({_ABI},")
        lines.append("    struct silo_turns const *turns, uint32_t const alone) {")
        lines.append("  (void)turns; (void)alone;")
    else:
        lines.append(f"int32_t {program.entry}({_ABI}) {{")
    lines.append("  (void)params; (void)scratch; (void)context;")
    for index, parameter in enumerate(program.parameters):
        ctype, name = parameter.ctype, parameter.name
        lines.append(f"  {ctype} const {name} = *({ctype} const *)params[{index}]; (void){name};")
    lines.extend(map(_buffer, program.buffers))
    lines.extend(f"  {text}" for text in program.locals)
    # The place where it records the running program; the report of a fault reads it.
    lines.append("  uint64_t nobody;")
    lines.append("  uint64_t volatile *const running = context && *(uint32_t const *)context >= 1040")
    lines.append("    ? (uint64_t *)(void *)((char *)context + 1024) : &nobody;")
    if program.parts > 1:
        # A launch that asks how many parts there may be hands out no program.
        lines.append("  struct silo_lasting *const launch = silo_lasting_of(context);")
        one = [f"(void const *)a{first} == (void const *)a{second}" for first, second in program.apart]
        most = f"{' || '.join(one)} ? 1 : {program.parts}" if one else str(program.parts)
        lines.append(f"  if (launch && launch->parts == 0xffffffffu) {{ launch->parts = {most}; return 0; }}")
        lines.append("  uint64_t const parts = launch && launch->parts ? launch->parts : 1;")
        lines.append("  for (uint64_t part = begin; part < end;) {")
        lines.append("    uint64_t const program = part / parts, part_first = part % parts;")
        lines.append("    uint64_t const part_end = end - part < parts - part_first ? part_first + end - part : parts;")
        lines.append("    part += part_end - part_first;")
    else:
        lines.append("  for (uint64_t program = begin; program < end; program++) {")
    lines.append("    *running = program;")
    lines.append("    int32_t const program_x = (int32_t)(program % grid[0]); (void)program_x;")
    lines.append("    int32_t const program_y = (int32_t)(program / grid[0] % grid[1]); (void)program_y;")
    lines.append("    int32_t const program_z = (int32_t)(program / grid[0] / grid[1]); (void)program_z;")
    _block(program.body, 2, lines)
    lines.append(f"    {NEXT_PROGRAM}: __attribute__((unused));")
    lines.append("  }")
    _block(program.finish, 1, lines)
    lines.append("  return 0;")
    lines.append("}")
    if program.turns >= 0:
        lines.append(f"int32_t {program.entry}({_ABI}) {{")
        lines.append("  struct silo_turns const *const turns = silo_turns_of(context);")
        lines.append(f"  uint32_t const alone = turns ? turns->enter(context, {program.turns}) : 0;")
        passed = "params, grid, begin, end, scratch, context, turns, alone"
        lines.append(f"  int32_t const code = {program.entry}_turn({passed});")
        lines.append("  if (turns) turns->leave(context);")
        lines.append("  return code;")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _buffer(buffer: LoopBuffer) -> str:
    ctype = buffer.ctype
    return f"  {ctype} *const {buffer.name} = ({ctype} *)(void *)((char *)scratch + {buffer.offset});"


def _head(function: LoopFunction) -> str:
    parameters = [f"{parameter.ctype} const {parameter.name}" for parameter in function.parameters]
    if function.surroundings:
        parameters += [f"int32_t const program_{axis}" for axis in "xyz"]
        parameters += ["const uint32_t grid[3]", "void *scratch", "void *context"]
    kind = "int32_t" if function.surroundings else "void"
    placed = "SILO_INLINE" if function.inline else "static"
    return f"{placed} {kind} {function.name}({', '.join(parameters)})"


def _function(function: LoopFunction, lines: list[str]) -> None:
    lines.append(f"{_head(function)} {{")
    lines.extend(f"  (void){parameter.name};" for parameter in function.parameters)
    if function.surroundings:
        lines.append("  (void)program_x; (void)program_y; (void)program_z; (void)grid; (void)scratch; (void)context;")
    lines.extend(map(_buffer, function.buffers))
    _block(function.body, 1, lines)
    lines.append("}")


def _block(body: list[Statement], depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    for statement in body:
        match statement:
            case Define(ctype, name, value, mutable):
                start = f"{pad}{ctype} {'' if mutable else 'const '}{name}"
                lines.append(start + (";" if value is None else f" = {value};"))
            case Assign(target, value, condition):
                lines.append(pad + (f"if ({condition}) " if condition else "") + f"{target} = {value};")
            case LoopCall(text):
                lines.append(f"{pad}{text};")
            case Copy(target, source):
                lines.append(f"{pad}__builtin_memcpy({target.name}, {source.name}, {source.bytes});")
            case For():
                if statement.simd:
                    clauses = "".join(f" reduction({operator}:{name})" for operator, name in statement.reductions)
                    lines.append(f"#pragma omp simd{clauses}")
                if statement.unrolled:
                    lines.append(f"#pragma GCC unroll {statement.unrolled}")
                variable, step = statement.variable, statement.step
                advance = f"{variable}++" if step == "1" else f"{variable} += {step}"
                lines.append(
                    f"{pad}for ({statement.ctype} {variable} = {statement.start};"
                    f" {variable} < {statement.end}; {advance}) {{"
                )
                _block(statement.body, depth + 1, lines)
                lines.append(pad + "}")
            case If(condition, then, otherwise):
                lines.append(f"{pad}if ({condition}) {{")
                _block(then, depth + 1, lines)
                if otherwise:
                    lines.append(pad + "} else {")
                    _block(otherwise, depth + 1, lines)
                lines.append(pad + "}")
            case Forever(inner):
                lines.append(f"{pad}for (;;) {{")
                _block(inner, depth + 1, lines)
                lines.append(pad + "}")
            case Break():
                lines.append(f"{pad}break;")
            case Label(name):
                lines.append(f"{pad}{name}:;")
            case Goto(name):
                lines.append(f"{pad}goto {name};")
            case Return(value):
                lines.append(f"{pad}return {value};" if value else f"{pad}return;")


# ---- The part of a kernel's C text that other kernels share, as a text of its own ----


REST = "/* ---- from here on: of this kernel alone */"
BLOCK = "SILO_DOT_KERNEL_"  # how the line of a block of a dot begins
_STATIC = "#define SILO_APART static __attribute__((noinline, unused))\n"
_HIDDEN = '#define SILO_APART __attribute__((noinline, visibility("hidden")))\n'
_BODY = re.compile(r"^(SILO_APART [^{};]*?) ?\{\n.*?^\}$", re.MULTILINE | re.DOTALL)
_BLOCK_LINE = re.compile(rf"^{BLOCK}(\w+)\((\d+), (\d+)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parts:
    """The C text of one kernel, and its shared part: "" if that is not worth an object."""

    own: str
    shared: str = ""


def part(text: str) -> Parts:
    """The two parts of a kernel's C text.

    >>> part("int f(void);").shared
    ''
    """
    head, line, rest = text.partition(f"\n{REST}\n")
    if not line or _STATIC not in head:
        return Parts(text)
    shared = head.replace(_STATIC, _HIDDEN)
    declared = _BODY.sub(r"\1;", shared)
    declared = _BLOCK_LINE.sub(r"SILO_APART silo_dot_kernel_\1 silo_dot_\1_\2x\3;", declared)
    return Parts(declared + line + rest, shared + "\n")


# ---- The C text of a kernel, from the SSA form of its module ----


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
_WITHOUT_F16 = 128  # bits of the vectors of levels without instructions for f16


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    """C11 text of one kernel, without any include.

    ``entry`` is the exported function, with the CPU kernel ABI. ``scratch_bytes`` is the memory that each thread must
    lend it, aligned to 64. ``uses`` names every runtime piece in the text. ``effort`` is how the C compiler is to
    compile it.
    """

    source: str
    entry: str
    scratch_bytes: int
    uses: frozenset[str]
    effort: CompileEffort = _USUAL


def lower(module: Module, options: CpuOptions) -> tuple[LoopProgram, frozenset[str]]:
    """The loop program of the kernel of ``module``, which is rewritten on the way, and the runtime pieces it calls."""
    check_supported(module)
    return _lower_supported(module, options, "")


def _lower_supported(module: Module, options: CpuOptions, entry: str) -> tuple[LoopProgram, frozenset[str]]:
    split_inline(module)
    join_edges(module)
    spell_out_polls(module)
    # A program that writes memory that it reads has read all of it before; its parts do not wait for each other.
    separate = options.mode == "optimized" and (options.row_parts or options.elements_apart)
    parts = cut_rows(module) if separate else RowParts()
    order_memory(module)
    free_orders(module)
    if options.mode == "optimized":
        fold_networks(module)
        find_mirrors(module)
    program, uses = lower_kernel(module, options, entry)
    if parts.most > 1:
        program.parts, program.apart = parts.most, parts.apart
        uses |= {"lasting"}
    if options.mode == "optimized" and options.vector_bits > _WITHOUT_F16 and convert_in_blocks(program):
        uses |= {PIECE}
    if options.mode == "optimized":
        reduce_in_lanes(program, options.vector_bits)
    return program, uses


def emit_c(module: Module, options: CpuOptions | None = None, entry: str = "") -> EmittedKernel:
    """The C text of the kernel of ``module``.

    Args:
        module: parsed and verified; it is rewritten on the way.
        options: how it is compiled.
        entry: the symbol to export; "" makes one of the kernel's name.

    Raises:
        UnsupportedError: listing every operation the CPU cannot express, with its place and count.
    """
    check_supported(module)
    return emit_supported(module, options or CpuOptions(), entry)


def emit_supported(module: Module, options: CpuOptions, entry: str = "") -> EmittedKernel:
    """:func:`emit_c` of a module that was checked already; it may have been instrumented since."""
    with refuse_depth():
        program, uses = _lower_supported(module, options, entry)
        blocks = [text for text in program.constants if text.startswith(BLOCK)]
        program.constants = [text for text in program.constants if text not in blocks]
        shared = [*blocks, REST] if any(name.startswith("dot_") for name in uses) else []
        text = kernel_text(program)
    head = runtime.text(uses, options.vector_bits, options.dot_units)
    source = "\n".join((head, PRELUDE, *shared, text))
    return EmittedKernel(source, program.entry, program.total_bytes, runtime.with_needs(uses), effort_of(len(text)))
