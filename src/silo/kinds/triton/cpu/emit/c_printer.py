"""Prints a loop program as C11 text."""

from __future__ import annotations

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
from silo.kinds.triton.cpu.lower.module_lowering import frame_name

__all__ = ["kernel_text"]

_ABI = "void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, void *scratch, void *context"


def kernel_text(program: LoopProgram) -> str:
    """The C text of the kernel function (with the CPU kernel ABI), the functions it calls, and its constant arrays."""
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
    if program.together is None:
        lines.extend(map(_buffer, program.buffers))
    lines.extend(f"  {text}" for text in program.locals)
    # The kernel stores the number of the running program in ``*running``, for fault reports. If the caller's context is
    # too short to have that field, a local variable is written instead.
    lines.append("  uint64_t nobody;")
    lines.append("  uint64_t volatile *const running = context && *(uint32_t const *)context >= 1040")
    lines.append("    ? (uint64_t *)(void *)((char *)context + 1024) : &nobody;")
    if program.together is not None:
        _block(program.together, 1, lines)
    else:
        _programs(program, lines)
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


def _programs(program: LoopProgram, lines: list[str]) -> None:
    """The loop over the programs, or parts of programs, of a call."""
    if program.parts > 1:
        # A call with parts == 0xffffffff runs no program: it only stores in ``parts`` the number of parts into which a
        # program can be cut.
        lines.append("  struct silo_lasting *const launch = silo_lasting_of(context);")
        conditions = [f"(void const *)a{first} == (void const *)a{second}" for first, second in program.distinct]
        part_count = f"{' || '.join(conditions)} ? 1 : {program.parts}" if conditions else str(program.parts)
        lines.append(f"  if (launch && launch->parts == 0xffffffffu) {{ launch->parts = {part_count}; return 0; }}")
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
