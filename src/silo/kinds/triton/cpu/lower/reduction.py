"""Reductions along the innermost loop: in one accumulator, or in one for each lane of a vector, combined at the end.

Short loops without reductions are cut into vectors here too, so that their last iterations run as one masked vector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, Forever, If, LoopCall, LoopProgram, Statement
from silo.kinds.triton.cpu.lower.half_precision import converted_loads
from silo.kinds.triton.cpu.lower.nest_loops import reads_in_steps
from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.operations.cpu.c_types import INTEGERS, NARROW
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = [
    "FLAG_OF_NUMBERS",
    "OPERATOR_NAMES",
    "UNKNOWN",
    "VECTOR_CTYPES",
    "Accumulation",
    "accumulation",
    "combined",
    "joined_with_start",
    "lanes_of",
    "reduce_in_lanes",
]

# ---- Reductions along the innermost loop: an accumulator that the C compiler may split into vector lanes ----

_FLOAT_ORDER: Mapping[str, tuple[str, str, str]] = {
    arith.MAXNUMF: (">", "-", "max"),
    arith.MAXIMUMF: (">", "-", "max"),
    arith.MINNUMF: ("<", "", "min"),
    arith.MINIMUMF: ("<", "", "min"),
}
FLAG_OF_NUMBERS = "{0} == {0}"  # the condition that an element is not NaN
_SUMS: Mapping[str, tuple[str, str]] = {arith.ADDF: ("+", "0"), arith.MULF: ("*", "1")}
_BITS: Mapping[str, str] = {arith.ADDI: "+", arith.MULI: "*", arith.ANDI: "&", arith.ORI: "|", arith.XORI: "^"}
# start values, formatted with the accumulator's type; 0 for other operations
_STARTS: Mapping[str, str] = {arith.MULI: "1", arith.ANDI: "({})-1"}
_INTEGER_ORDER: Mapping[str, tuple[str, str, bool]] = {
    arith.MAXSI: (">", "max", True),
    arith.MINSI: ("<", "min", True),
    arith.MAXUI: (">", "max", False),
    arith.MINUI: ("<", "min", False),
}


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How to accumulate: the accumulator's C type, its start value, OpenMP's operator, and the texts around the loop.

    ``load`` turns an element into the accumulator's type; ``combine`` takes accumulator and element; ``finish`` turns
    the accumulator into the result. ``flag``, if not "", is a condition on an element; whether it is true for any
    element is passed to ``finish`` as a second argument.
    """

    ctype: str
    start: str
    clause: str
    load: str
    combine: str
    finish: str
    flag: str = ""

    @property
    def repeat(self) -> str:
        """A C text that applies ``combine`` with one element several times, at least once.

        Its format fields are the accumulator, the element and the number of times. "" if repeating ``combine`` needs a
        loop.
        """
        if self.clause == "+":
            return f"{{0}} + ({self.ctype})({{2}}) * {{1}}"
        return "" if self.clause in {"*", "^"} else self.combine


def accumulation(operation: Operation) -> Accumulation:
    """How a loop accumulates by ``operation``, which combines two elements."""
    name, element = operation.name, operation.result.type.element
    if element in INTEGERS:
        return _integer(name, element)
    ctype = "double" if element == "f64" else "float"
    load = f"silo_{element}_to_f32({{0}})" if element in NARROW else "{0}"
    finish = f"silo_f32_to_{element}({{0}})" if element in NARROW else "{0}"
    if name in _SUMS:
        sign, start = _SUMS[name]
        return Accumulation(ctype, start, sign, load, f"{{0}} {sign} {{1}}", finish)
    order, sign, clause = _FLOAT_ORDER[name]
    suffix = "" if element == "f64" else "f"
    nan = f'__builtin_nan{suffix}("")'
    combine = f"({{1}} {order} {{0}} ? {{1}} : {{0}})"
    # The comparisons of the accumulator skip NaNs. The flag records whether any element is a NaN (for maximumf and
    # minimumf, whose result is then NaN), or whether any is a number (for maxnumf and minnumf, whose result is else
    # NaN).
    if name in {arith.MAXNUMF, arith.MINNUMF}:
        chosen, flag = f"({{1}} ? {{0}} : {nan})", FLAG_OF_NUMBERS
    else:
        chosen, flag = f"({{1}} ? {nan} : {{0}})", "{0} != {0}"
    start = f"{sign}__builtin_inf{suffix}()"
    return Accumulation(ctype, start, clause, load, combine, finish.format(chosen), flag)


def _integer(name: str, element: str) -> Accumulation:
    signed = "int64_t" if element == "index" else ops.c_type(Type(element))
    unsigned = signed if signed.startswith("u") else "u" + signed
    bits = INTEGERS[element]
    finish = "(uint8_t)(({0}) & 1u)" if element == "i1" else f"({signed})({{0}})"
    if name in _BITS:
        sign = _BITS[name]
        wide = "uint64_t" if bits == 64 else "uint32_t"
        start = _STARTS.get(name, "0").format(wide)
        return Accumulation(wide, start, sign, f"({wide})({{0}})", f"{{0}} {sign} {{1}}", finish)
    order, clause, is_signed = _INTEGER_ORDER[name]
    combine = f"({{1}} {order} {{0}} ? {{1}} : {{0}})"
    if element == "i1":  # the one-bit number 1 is -1 as signed, so the signed order is reversed
        flipped = is_signed == (clause == "max")
        sign = "&" if flipped else "|"
        return Accumulation("uint32_t", "1" if flipped else "0", sign, "(uint32_t)({0})", f"{{0}} {sign} {{1}}", finish)
    if is_signed:
        minimum = f"(-{2 ** (bits - 1) - 1}{'ll' if bits == 64 else ''} - 1)"
        maximum = f"{2 ** (bits - 1) - 1}{'ll' if bits == 64 else ''}"
        return Accumulation(signed, minimum if clause == "max" else maximum, clause, "{0}", combine, finish)
    start = "0" if clause == "max" else f"({unsigned})-1"
    return Accumulation(unsigned, start, clause, f"({unsigned})({{0}})", combine, finish)


# ---- Reductions in lanes: a loop keeps one partial result for each lane of a vector and combines them at its end ----

_LANE_BITS = 32
_MOST_BITS = 512  # the most bits of a vector
# a loop keeps this many vectors of accumulators if its body has at most _SHORT_BODY statements and no calls
_VECTORS = 4
_SHORT_BODY = 8
_BRIEF_BODY = 24  # the most statements of a body that is compiled with a mask and without one
# the fewest statements of a loop that gets a mask: for a loop that only copies, a mask costs as much as scalar code for
# the last iterations
_LEAST_BODY = 3
# the most iterations of a short loop: in longer loops, the iterations after the last full vector take a small part of
# the time
_SHORT_LOOP = 128
_READ = re.compile(r"\[|(?:^|[(?:]) ?\*")  # matches an array element or a dereferenced pointer
# matches an element of scratch memory whose index is computed from loop indices alone
_OWN = re.compile(r"b[0-9]+\[[i0-9 ()*+]*\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
UNKNOWN = '__asm__("" : "+r"'  # begins an assembly statement that hides the value of a variable from the C compiler
# Matches a masked access, and in it the mask, the access, and the value if the mask is false. In a masked block, this
# mask and the lane's mask are joined by ``&``, because gcc does not vectorise every conditional expression inside of
# another one.
_CHOICE = re.compile(r"(t[0-9]+) \? ([*\w\[\]() ]+) : ([^*\[?]+)")
_POINTED = re.compile(r"(?<![\w)] )\*(\w+)")  # matches a dereferenced pointer, but no product
_VECTOR_CALL = re.compile(r"silo_(exp2?)_f32\((\w+)\)")  # functions that are faster for the lanes of a whole vector
_CALL = re.compile(r"silo_(?!bf16_to_f32|f16_to_f32)\w+\(")
# C types of accumulators that are reduced in vector lanes: elements of four bytes fill one vector, of eight bytes two.
_CTYPES = ("float", "double", "int32_t", "uint32_t", "int64_t", "uint64_t")
_BYTES: Mapping[str, int] = {ctype: 8 if ctype == "double" or "64" in ctype else 4 for ctype in _CTYPES}
VECTOR_CTYPES = tuple(ctype for ctype, size in _BYTES.items() if size * 8 == _LANE_BITS)
# The start value of a lane for each operator of OpenMP; if "", lanes start with the accumulator's value. The next two
# tables hold the operators' names and, for max and min, the comparison by which a new value replaces the old one.
_START: Mapping[str, str] = {"+": "0", "*": "1", "|": "0", "^": "0", "&": "-1", "max": "", "min": ""}
OPERATOR_NAMES: Mapping[str, str] = {
    "+": "sum",
    "*": "product",
    "|": "or",
    "^": "xor",
    "&": "and",
    "max": "max",
    "min": "min",
}
_ORDER: Mapping[str, str] = {"max": ">", "min": "<"}


def reduce_in_lanes(program: LoopProgram, vector_bits: int) -> None:
    """Rewrites the loops of ``program`` that reduce, and short loops of unknown length, to loops over vectors."""
    state = _State(lanes_of(vector_bits))
    program.body = _statements(program.body, state, {})
    for function in program.functions:
        function.body = _statements(function.body, state, {})
    program.constants.extend(state.folds.values())


def lanes_of(vector_bits: int) -> int:
    """The number of partial results that a loop keeps: as many as a vector has 32-bit lanes."""
    return min(vector_bits, _MOST_BITS) // _LANE_BITS


class _State:
    """The state of rewriting one program: the lanes of a vector, a counter for new names, C types and functions."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.count = 0
        self.folds: dict[str, str] = {}

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def vector(self, ctype: str) -> str:
        """The name of the C type of a vector of lanes, "" if its lanes do not fill exactly one vector."""
        if ctype not in VECTOR_CTYPES:
            return ""
        name = f"silo_lanes_{ctype}"
        size = f"vector_size({self.lanes} * sizeof({ctype}))"
        self.folds.setdefault(name, f"typedef {ctype} {name} __attribute__(({size}, may_alias));")
        return name

    def fold(self, ctype: str, operator: str) -> str:
        """The name of the C function that combines an array of lanes."""
        name = f"silo_fold_{OPERATOR_NAMES[operator]}_{ctype}"
        if name not in self.folds:
            self.folds[name] = _fold_text(name, ctype, operator, self.lanes)
        return name


def _fold_text(name: str, ctype: str, operator: str, lanes: int) -> str:
    """The text of a C function that combines lanes by halves, so that the compiler uses vectors.

    The last steps combine whole vectors of 16 bytes, of which one lane is used: for comparisons of scalars, gcc makes
    branches that depend on the data.
    """
    few = 16 // _BYTES[ctype]
    vector = f"{name}_vector"
    both = combined(operator, f"(({ctype} *)&a)[i]", f"(({ctype} *)&b)[i]")
    lines = [
        f"typedef {ctype} {vector} __attribute__((vector_size(16), may_alias));",
        f"SILO_INLINE {vector} {name}_both({vector} a, {vector} b) {{",
        f"  {vector} c;",
        f"#pragma omp simd\n  for (int i = 0; i < {few}; i++)\n    (({ctype} *)&c)[i] = {both};",
        "  return c;",
        "}",
        f"SILO_INLINE {ctype} {name}({ctype} const *of) {{",
        f"  {ctype} lanes[{lanes}];",
        "  __builtin_memcpy(lanes, of, sizeof lanes);",
    ]
    source, width = "lanes", lanes // 2
    while width >= few:
        target = f"to{width}"
        pair = combined(operator, f"{source}[i]", f"{source}[i + {width}]")
        lines.append(f"  {ctype} {target}[{width}];")
        lines.append(f"  for (int i = 0; i < {width}; i++)\n    {target}[i] = {pair};")
        source, width = target, width // 2
    lines.append(f"  {vector} v0;\n  __builtin_memcpy(&v0, {source}, sizeof v0);")
    step = 0
    while width:
        places = ", ".join(str((lane + width) % few) for lane in range(few))
        turned = f"__builtin_shufflevector(v{step}, v{step}, {places})"
        lines.append(f"  {vector} const v{step + 1} = {name}_both(v{step}, {turned});")
        step, width = step + 1, width // 2
    return "\n".join([*lines, f"  return v{step}[0];", "}"])


def joined_with_start(operator: str, accumulator: str, folded: str) -> str:
    """The C text of an accumulator's final value, made of its start value and its combined lanes.

    If the lanes of this operator start with the accumulator's value, the combined lanes are the final value.
    """
    return combined(operator, accumulator, folded) if _START[operator] else folded


def combined(operator: str, left: str, right: str) -> str:
    """The C text that combines two partial results."""
    order = _ORDER.get(operator)
    return f"({right} {order} {left} ? {right} : {left})" if order else f"{left} {operator} {right}"


def _statements(body: list[Statement], state: _State, ctypes: Mapping[str, str]) -> list[Statement]:
    known_types = dict(ctypes)  # the C type of each accumulator that may be in scope
    result: list[Statement] = []
    for statement in body:
        match statement:
            case Define(ctype, name, _, True):
                known_types[name] = ctype
                result.append(statement)
            case For() if statement.simd and (statement.reductions or _is_short(statement, state.lanes)):
                result.extend(_in_lanes(statement, state, known_types))
            case For():
                result.append(replace(statement, body=_statements(statement.body, state, known_types)))
            case If(condition, then, otherwise):
                then, otherwise = _statements(then, state, known_types), _statements(otherwise, state, known_types)
                result.append(If(condition, then, otherwise))
            case Forever(inner):
                result.append(Forever(_statements(inner, state, known_types)))
            case _:
                result.append(statement)
    return result


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes (partial results) of one accumulator."""

    accumulator: str
    operator: str
    ctype: str
    array: str


def _in_lanes(loop: For, state: _State, ctypes: Mapping[str, str]) -> list[Statement]:
    """The loop in blocks of one vector each; unchanged if not even one block would be full.

    Without reductions, a long body is compiled once: every block has a mask. A short body is compiled twice, without a
    mask for full blocks and with a mask for the last one, because masked loads and stores take up to a fifth longer. A
    body that gathers elements is compiled twice, too, because gcc does not vectorise all gathers with a mask.
    """
    lanes = state.lanes
    changed = {statement.target for statement in loop.body if isinstance(statement, Assign)}
    loop = replace(loop, reductions=tuple(pair for pair in loop.reductions if pair[1] in changed))
    if not loop.reductions and not _is_short(loop, lanes):
        return [loop]
    plain = all(isinstance(statement, Define | Assign) for statement in loop.body)
    constant = loop.start == "0" and loop.end.isdigit()
    # the loop's number of iterations, if the loop is a run (`nest_loops.Runs`) of constant length
    run = loop.end.removeprefix(f"{loop.start} + ")
    steps = run.isdigit() and int(run) < lanes and reads_in_steps(loop.body, loop.variable)
    short = steps or (constant and int(loop.end) < lanes)
    supported = [ctypes.get(name) in _CTYPES for _, name in loop.reductions]
    if loop.step != "1" or not plain or short or not all(supported):
        assert not loop.kept, loop
        return [loop]
    if not loop.reductions:
        block = state.name("vector")
        if not (_is_brief(loop, _BRIEF_BODY) or _gathers(loop)):
            return [For(block, loop.start, loop.end, _masked_block(loop, [], state, block), str(lanes))]
        full_end, lane = state.name("whole"), state.name("lane")
        return [
            Define("int64_t", full_end, _whole_blocks(loop.start, loop.end, lanes)),
            For(block, loop.start, full_end, _block(loop, [], state, block, lane), str(lanes)),
            If(f"{full_end} < {loop.end}", _masked_block(loop, [], state, full_end)),
        ]
    all_lanes = [_Lanes(name, operator, ctypes[name], state.name("lanes")) for operator, name in loop.reductions]
    result: list[Statement] = _started(all_lanes, state)
    if constant:
        full_end = str(int(loop.end) // lanes * lanes)
        ragged = full_end != loop.end
    else:
        full_end, ragged = state.name("whole"), True
        result.append(Define("int64_t", full_end, _whole_blocks(loop.start, loop.end, lanes)))
    start, wide = _in_several(loop, all_lanes, state, result)
    block, lane = state.name("vector"), state.name("lane")
    result += [*wide, For(block, start, full_end, _block(loop, all_lanes, state, block, lane), str(lanes))]
    masked = ragged and lanes * _LANE_BITS == _MOST_BITS
    if masked:
        last = _masked_block(loop, all_lanes, state, full_end)
        result += last if constant else [If(f"{full_end} < {loop.end}", last)]
    if loop.kept:
        assert masked or not ragged, loop
        places = dict(loop.kept)
        for lane_array in all_lanes:
            place = f"*({state.vector(lane_array.ctype)} *)({places[lane_array.accumulator]})"
            result.append(Assign(place, f"{lane_array.array}_vector"))
        return result
    for lane_array in all_lanes:
        folded = f"{state.fold(lane_array.ctype, lane_array.operator)}({lane_array.array})"
        result.append(
            Assign(lane_array.accumulator, joined_with_start(lane_array.operator, lane_array.accumulator, folded))
        )
    if ragged and not masked:
        result.append(replace(loop, start=full_end, simd=False, reductions=()))
    # For a row without elements, the lanes are neither set to start values nor combined.
    return result if constant else [If(f"{loop.start} < {loop.end}", result)]


def _is_short(loop: For, lanes: int) -> bool:
    """Returns whether a loop runs in masked vectors: few iterations, but an unknown number, of several statements.

    Only vectors of 512 bits have such masks.
    """
    most = loop.most or (int(loop.end) if loop.end.isdigit() else 0)
    known = loop.start == "0" and loop.end.isdigit()
    small = len(loop.body) < _LEAST_BODY
    return lanes * _LANE_BITS == _MOST_BITS and not known and not small and lanes <= most <= _SHORT_LOOP


def _is_brief(loop: For, most: int) -> bool:
    """Whether the body has at most ``most`` statements and calls no functions."""
    return len(loop.body) <= most and not any(_CALL.search(text) for one in loop.body for text in _texts(one))


def _gathers(loop: For) -> bool:
    """Whether the body reads elements through pointers that it computes for each iteration."""
    defined = {statement.name for statement in loop.body if isinstance(statement, Define)}
    values = [statement.value or "" for statement in loop.body if isinstance(statement, Define)]
    return any(pointer in defined for value in values for pointer in _POINTED.findall(value))


def _started(all_lanes: list[_Lanes], state: _State) -> list[Statement]:
    """Definitions of the lanes, and statements that set their start values.

    Lanes are a variable of a vector type if they fill one vector, because gcc keeps no array in a register.
    """
    lane, count = state.name("lane"), str(state.lanes)
    result: list[Statement] = []
    for lane_array in all_lanes:
        start = _START[lane_array.operator]
        first = f"({lane_array.ctype}){start}" if start else lane_array.accumulator
        if vector := state.vector(lane_array.ctype):
            variable = f"{lane_array.array}_vector"
            # Subtracting zero copies the scalar, also a negative zero, to all lanes.
            result.append(Define(vector, variable, f"{first} - ({vector}){{0}}", mutable=True))
            result.append(Define(f"{lane_array.ctype} *", lane_array.array, f"({lane_array.ctype} *)&{variable}"))
            continue
        result.append(Define(lane_array.ctype, f"{lane_array.array}[{count}]", None, mutable=True))
        result.append(For(lane, "0", count, [Assign(f"{lane_array.array}[{lane}]", first)], ctype="int32_t"))
    return result


def _whole_blocks(start: str, end: str, size: int) -> str:
    """The C text of the end of the last full block.

    If ``end`` is below ``start``, the division rounds toward 0, so the result is at most ``start`` and no loop runs.
    """
    return f"({start}) + (({end}) - ({start})) / {size} * {size}"


def _block(loop: For, all_lanes: list[_Lanes], state: _State, first: str, lane: str) -> list[Statement]:
    """The statements that run one vector of iterations, beginning with the iteration ``first``."""
    # The lane is a 32-bit number, so that each vector of indices takes a single addition.
    own = Define(loop.ctype, loop.variable, f"({loop.ctype})((int32_t){first} + {lane})")
    before, body = _widened(loop, _renamed(loop.body, all_lanes, lane), state, lane, first, "")
    return [*before, *_lane_loops([own], body, state, lane)]


def _widened(
    loop: For, body: list[Statement], state: _State, lane: str, first: str, count: str
) -> tuple[list[Statement], list[Statement]]:
    """Statements that convert the f16 of one vector to f32, and ``body`` with the converted values.

    ``first`` is the index of the vector's first element, and ``count`` the number of its elements ("" for a full
    vector).
    """
    loads = converted_loads(loop) if state.lanes * _LANE_BITS == _MOST_BITS else {}
    before: list[Statement] = []
    for name, pointer in loads.items():
        array, vector = state.name("wide"), state.vector("float")
        function = f"silo_widen_{'some' if count else 'lanes'}_f16"
        before.append(Define(vector, f"{array}_vector", None, mutable=True))
        before.append(Define("float *", array, f"(float *)&{array}_vector"))
        before.append(LoopCall(f"{function}((void *)&{array}_vector, {pointer} + {first}{count and f', {count}'})"))
        call = f"silo_f16_to_f32({name})"
        body = [
            _with_texts(statement, lambda text, call=call, array=array: text.replace(call, f"{array}[{lane}]"))
            for statement in body
            if not (isinstance(statement, Define) and statement.name == name)
        ]
    return before, body


def _masked_block(loop: For, all_lanes: list[_Lanes], state: _State, first: str) -> list[Statement]:
    """Statements that run the iterations from ``first`` on, at most as many as a vector has lanes.

    Each load of an argument's memory is masked. All lanes of accumulators and of scratch memory are written even if
    they are masked off, because the CPU cannot forward a masked store to the load that follows it.
    """
    lane, remaining, on = state.name("lane"), state.name("left"), state.name("on")
    lanes = {f"{lane_array.array}[{lane}]" for lane_array in all_lanes}
    # If the loop counts from 0 and its greatest length (``most``) is a multiple of the lanes, masked-off lanes are
    # still inside the row of scratch memory.
    filled = loop.start == "0" and loop.most > 0 and loop.most % state.lanes == 0
    head = [
        # A 64-bit sum: gcc does not vectorise a masked load whose index may wrap.
        Define(loop.ctype, loop.variable, f"({loop.ctype})({first} + {lane})"),
        Define("int32_t", on, f"{lane} < {remaining}"),
    ]
    body: list[Statement] = []
    before, widened = _widened(loop, _renamed(loop.body, all_lanes, lane), state, lane, first, remaining)
    for statement in widened:
        match statement:
            case Define(_, _, value) if filled and value is not None and _OWN.fullmatch(value):
                body.append(statement)
            case Define(ctype, name, value) if value is not None and (choice := _CHOICE.fullmatch(value)):
                body.append(Define(ctype, name, f"({on} & {choice[1]}) ? {choice[2]} : {choice[3]}"))
            case Define(ctype, name, value) if value is not None and _READ.search(value):
                body.append(Define(ctype, name, f"{on} ? ({value}) : 0"))
            case Assign(target, value, condition) if target in lanes or (filled and _OWN.fullmatch(target)):
                chosen = f"{on} & ({condition})" if condition else on
                body.append(Assign(target, f"{chosen} ? {value} : {target}"))
            case Assign(target, value, condition):
                body.append(Assign(target, value, f"{on} & ({condition})" if condition else on))
            case _:
                body.append(statement)
    return [
        Define("int32_t", remaining, f"(int32_t)(({loop.end}) - {first})", mutable=True),
        # The empty assembly hides the number of remaining iterations from gcc. If gcc knew the number, it would compile
        # the lanes one by one, which is slow. For a body with strided reads the number is not hidden, because masked
        # gathers are slower still.
        *([] if reads_in_steps(loop.body, loop.variable) else [LoopCall(f"{UNKNOWN}({remaining}))")]),
        *before,
        *_lane_loops(head, body, state, lane),
    ]


def _lane_loops(head: list[Define], body: list[Statement], state: _State, lane: str) -> list[Statement]:
    """The loop over the lanes of one vector, split into several loops at each call of a function of whole vectors.

    ``head`` defines values of a lane that each of the loops computes again.
    """

    def loop(statements: list[Statement]) -> For:
        return For(lane, "0", str(state.lanes), [*head, *statements], ctype="int32_t", simd=True)

    calls = [_of_vectors(statement) if state.lanes * _LANE_BITS == _MOST_BITS else None for statement in body]
    if not any(calls):
        return [loop(body)]
    number_of_call = list(accumulate((call is not None for call in calls), initial=0))
    defined = {one.name: (number_of_call[at], one) for at, one in enumerate(body) if isinstance(one, Define)}
    passed: dict[str, str] = {}  # the lanes of each value that a later loop uses
    for at, statement in enumerate(body):
        for name in set(_WORD.findall(" ".join(_texts(statement)))) & defined.keys():
            part, one = defined[name]
            if calls[at] is None and part == number_of_call[at] and _of_vectors(one) is None:
                continue
            if one.ctype not in VECTOR_CTYPES or one.mutable:
                return [loop(body)]
            passed.setdefault(name, state.name("passed"))
    result: list[Statement] = []
    for name, array in passed.items():
        ctype = defined[name][1].ctype
        vector = state.vector(ctype)
        result.append(Define(vector, f"{array}_vector", f"({vector}){{0}}", mutable=True))
        result.append(Define(f"{ctype} *", array, f"({ctype} *)&{array}_vector"))
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, passed))})\b")
    statements: list[Statement] = []
    for at, statement in enumerate(body):
        call = calls[at]
        if call is not None:
            assert isinstance(statement, Define)
            function, argument = call
            if statements:
                result.append(loop(statements))
            statements = []
            if statement.name in passed:
                to = f"{passed[statement.name]}_vector"
                result.append(LoopCall(f"{function}((void *)&{to}, (void const *)&{passed[argument]}_vector)"))
            continue
        elsewhere = {
            name: f"{array}[{lane}]"
            for name, array in passed.items()
            if defined[name][0] != number_of_call[at] or _of_vectors(defined[name][1]) is not None
        }
        statements.append(
            _with_texts(statement, lambda text, own=elsewhere: word.sub(lambda m: own.get(m[0], m[0]), text))
        )
        if isinstance(statement, Define) and statement.name in passed:
            statements.append(Assign(f"{passed[statement.name]}[{lane}]", statement.name))
    return [*result, loop(statements)] if statements else result


def _of_vectors(statement: Statement) -> tuple[str, str] | None:
    """The function that computes a statement's value for a whole vector of lanes, and its argument.

    None if there is no such function.
    """
    match = _VECTOR_CALL.fullmatch(statement.value or "") if isinstance(statement, Define) else None
    return (f"silo_{match[1]}_lanes_f32", match[2]) if match is not None else None


def _texts(statement: Statement) -> list[str]:
    match statement:
        case Define(_, _, value):
            return [value or ""]
        case Assign(target, value, condition):
            return [target, value, condition]
        case _:
            raise AssertionError(statement)  # callers pass only definitions and assignments


def _with_texts(statement: Statement, text: Callable[[str], str]) -> Statement:
    match statement:
        case Define(ctype, name, value, mutable):
            return Define(ctype, name, value and text(value), mutable)
        case Assign(target, value, condition):
            return Assign(text(target), text(value), text(condition))
        case _:
            raise AssertionError(statement)  # callers pass only definitions and assignments


def _in_several(
    loop: For, all_lanes: list[_Lanes], state: _State, before: list[Statement]
) -> tuple[str, list[Statement]]:
    """Makes blocks of several vectors for a short body, each vector with accumulators of its own.

    So an operation does not wait for the operation on the vector before. Returns the index at which the blocks of one
    vector start, and the statements of the larger blocks ([] for a long body); definitions are added to ``before``.
    """
    size = _VECTORS * state.lanes
    if loop.most < 2 * size or not _is_brief(loop, _SHORT_BODY):
        return loop.start, []
    sets = [all_lanes]
    for _ in range(1, _VECTORS):
        sets.append([replace(lane, array=state.name("lanes")) for lane in all_lanes])
        before += _started(sets[-1], state)
    end, block, lane = state.name("whole"), state.name("vector"), state.name("lane")
    before.append(Define("int64_t", end, _whole_blocks(loop.start, loop.end, size)))
    blocks: list[Statement] = []
    for number, own in enumerate(sets):
        blocks += _block(loop, own, state, f"({block} + {number * state.lanes})", lane)
    joined: list[Statement] = []
    for index, lane_array in enumerate(all_lanes):
        names = [f"{own[index].array}[{lane}]" for own in sets]
        while len(names) > 1:
            names = [f"({combined(lane_array.operator, *pair)})" for pair in zip(names[::2], names[1::2], strict=True)]
        target = f"{lane_array.array}[{lane}]"
        joined.append(For(lane, "0", str(state.lanes), [Assign(target, names[0])], ctype="int32_t", simd=True))
    return end, [For(block, loop.start, end, blocks, str(size)), *joined]


def _renamed(body: list[Statement], all_lanes: list[_Lanes], lane: str) -> list[Statement]:
    """The body, with each accumulator replaced by its lane."""
    places = {lane_array.accumulator: f"{lane_array.array}[{lane}]" for lane_array in all_lanes}
    if not places:
        return body
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, places))})\b")

    def text(text: str) -> str:
        return word.sub(lambda found: places[found.group()], text)

    return [_with_texts(statement, text) for statement in body]
