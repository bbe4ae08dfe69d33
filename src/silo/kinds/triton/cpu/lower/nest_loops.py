"""Writes the loops of one nest: one for each axis, or flat loops over several short axes.

The innermost loop may also be cut into runs: consecutive indices with the same quotient.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, is_unit_reshape, scalar_source
from silo.kinds.triton.cpu.loop_ir import Assign, Break, Define, For, Forever, If, Statement
from silo.kinds.triton.cpu.lower.index import Index, linear_index, remap
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.schedule.block_schedule import BufferFill, NestGroup, StoreSink
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.further_dialects import MIRROR
from silo.kinds.triton.front.operations.operation_table import OPAQUE, VIEWS
from silo.kinds.triton.front.ssa import Value

__all__ = [
    "RUN_PRELUDE",
    "FlatLoops",
    "NestLoops",
    "Runs",
    "flat_cut",
    "holds_within",
    "reads_in_steps",
    "unless_masked",
    "usual_length",
]

# ---- Conditions that are true in the leading iterations of an innermost loop, up to its limits ----


def holds_within(
    limits: Sequence[str], condition: Value, index: Index, limit_of: Callable[[Value, Index], str | None]
) -> bool:
    """Whether ``condition`` at ``index`` is true in all iterations before the lowest of ``limits``.

    A limit is the C text of the number of leading iterations in which some condition is true. ``limits`` were set by
    the masks of accesses. ``limit_of`` returns the limit that a comparison or a loop-invariant condition would set;
    None if the condition must not be split, because its value is in memory.
    """
    seen: set[tuple[Value, Index]] = set()
    pending = [(condition, index)]
    while pending:
        part = pending.pop()
        if part in seen:
            continue
        seen.add(part)
        source = scalar_source(part[0])
        if source is not None and constant_scalar(source) is not None:
            if not constant_scalar(source):
                return False
            continue
        limit = limit_of(*part)
        if limit is None:
            return False
        if limit and limit in limits:
            continue
        operands = conjunction(*part)
        if not operands:
            return False
        pending.extend(reversed(operands))
    return True


def unless_masked(condition: Value) -> tuple[Value, Value] | None:
    """Splits the value ``condition | ~mask`` into (condition, mask); None for values of another form."""
    either = condition.owner
    if either is None or either.name != arith.ORI:
        return None
    for operand, other in (either.operands, either.operands[::-1]):
        inverted = other.owner
        if inverted is None or inverted.name != arith.XORI or other.type.element != "i1":
            continue
        for mask, ones in (inverted.operands, inverted.operands[::-1]):
            source = scalar_source(ones)
            if source is not None and constant_scalar(source):
                return operand, mask
    return None


def conjunction(condition: Value, index: Index) -> list[tuple[Value, Index]]:
    """The operands of a conjunction, or the operand of a view, each with its index; [] for any other value."""
    operation = condition.owner
    if operation is None or not condition.type.tensor:
        return []
    if operation.name in VIEWS and not (operation.name == tt.RESHAPE and not is_unit_reshape(operation)):
        return [(operation.operands[0], remap(operation, index))]
    return [(operand, index) for operand in operation.operands] if operation.name == arith.ANDI else []


def limited(limit: str, end: str, limits: Sequence[str]) -> list[Statement]:
    """The statements that define ``limit``, the number of leading iterations of at most ``end`` for which masks hold.

    ``limits`` are C texts that each compute a new limit from ``limit``.
    """
    return [
        Define("int64_t", limit, end, mutable=True),
        *(Assign(limit, text.replace("limit", limit)) for text in limits),
    ]


# ---- Rows of a known length that is not a power of two ----

_NUMBER = re.compile(r"\(int64_t\)\(\(int32_t\)([0-9]+)\)")
_BELOW = re.compile(rf"nest_below\(.*, {_NUMBER.pattern}, limit\)")


def usual_length(limits: Sequence[str], extent: int) -> int:
    """The constant number of elements that masks select in the first row, if it is below ``extent``; else 0.

    ``limits`` are the C texts by which comparisons limit the leading part of an innermost loop. If rows begin at
    multiples of ``extent``, the comparison with the least constant selects no element of a later row.

    >>> usual_length(["nest_below((int64_t)s4 + (int64_t)0, (int64_t)((int32_t)14), limit)", "s2 ? limit : 0"], 16)
    14
    """
    bounds = [int(found[1]) for limit in limits if (found := _BELOW.fullmatch(limit)) is not None]
    least = min(bounds, default=0)
    return least if least < extent else 0


def reads_in_steps(body: Sequence[Statement], inner: str) -> bool:
    """Whether ``body`` reads an array with a stride of several elements (``[index * step]``).

    Without a mask, the C compiler can load such elements without gather instructions.
    """
    texts = [statement.value or "" for statement in body if isinstance(statement, Define)]
    return any(f"[{inner} * " in text for text in texts)


# ---- Runs of an innermost loop: consecutive indices for which a quotient stays the same ----

# Lengths of complete runs for which a loop of constant length is emitted: short lengths, and multiples of 16 (full
# vectors). In a loop of unknown length, the elements after a run's last full vector would cost much.
_WHOLE = (*range(4, 64), *range(64, 1025, 16))
_WORD = re.compile(r"[A-Za-z_]\w*")
# A shorter run costs more than computing a quotient for each element, unless its length is a known constant.
_SHORTEST = 16

RUN_PRELUDE = """\
/* limit, where base .. base + limit - 1 are natural 32-bit numbers and the divisor makes runs worth having; else 0. */
SILO_INLINE int64_t nest_runs(int64_t base, int64_t divisor, int64_t shortest, int64_t limit) {
  return base >= 0 && divisor >= shortest && base + limit - 1 <= 2147483647 ? limit : 0;
}

/* Of natural numbers; most are below the divisor. */
SILO_INLINE int64_t nest_quotient(int64_t dividend, int64_t divisor) {
  return dividend < divisor ? 0 : (int64_t)((uint64_t)dividend / (uint64_t)divisor);
}
"""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One division in a nest: C texts of the dividend's base and the divisor, and the names of a run's results.

    ``quotient`` and ``remainder`` are the values at the start of a run.
    """

    base: str
    divisor: str
    quotient: str
    remainder: str


@dataclass(slots=True)
class Runs:
    """The runs of one nest: consecutive indices of the innermost loop with the same quotient.

    ``first`` is the C name of the index at which a run begins.
    """

    name: Callable[[str], str]
    first: str
    _pairs: dict[tuple[str, str], _Pair] = field(default_factory=dict[tuple[str, str], _Pair])

    def pair(self, base: str, divisor: str) -> _Pair:
        """The names of the quotient and remainder of ``base + index`` by ``divisor`` at the start of a run."""
        pair = self._pairs.get((base, divisor))
        if pair is None:
            pair = _Pair(base, divisor, self.name("quotient"), self.name("remainder"))
            self._pairs[base, divisor] = pair
        return pair

    @property
    def limits(self) -> list[str]:
        """C texts, one for each division: ``limit`` if the leading ``limit`` indices can be cut into runs, else 0.

        Runs need a divisor that is not too small, and dividends from 0 to 2^31 - 1.
        """
        shortest = min(_SHORTEST, self._whole_length() or _SHORTEST)
        return [f"nest_runs({pair.base}, {pair.divisor}, {shortest}, limit)" for pair in self._pairs.values()]

    def loop(self, end: str, before: list[Statement], inner: Callable[[str, str], For]) -> list[Statement]:
        """The loop over the runs up to the index ``end``.

        ``before`` are the statements at the start of each run; ``inner(first, last)`` returns the loop over the indices
        of one run.
        """
        last = self.name("last")
        run: list[Statement] = [If(f"{self.first} >= {end}", [Break()])]
        for pair in self._pairs.values():
            dividend = f"{pair.base} + {self.first}"
            run.append(Define("int64_t", pair.quotient, f"nest_quotient({dividend}, {pair.divisor})"))
            run.append(Define("int64_t", pair.remainder, f"{dividend} - {pair.quotient} * ({pair.divisor})"))
        run.append(Define("int64_t", last, end, mutable=True))
        for pair in self._pairs.values():
            next_ = f"{self.first} + ({pair.divisor}) - {pair.remainder}"
            run.append(Assign(last, f"{last} < {next_} ? {last} : {next_}"))
        body: Statement = inner(self.first, last)
        if (length := self._whole_length()) is not None:
            body = If(f"{last} - {self.first} == {length}", [inner(self.first, f"{self.first} + {length}")], [body])
        run += [*before, body, Assign(self.first, last)]
        return [Define("int64_t", self.first, "0", mutable=True), Forever(run)]

    def by_quotients(
        self, end: str, body: list[Statement], reductions: tuple[tuple[str, str], ...]
    ) -> list[Statement] | None:
        """A loop over the quotients up to ``end`` that executes ``body`` once for each run (indices with one quotient).

        Returns None if there are several divisions, or ``body`` needs the index or the remainder.
        """
        pairs = list(self._pairs.values())
        if len(pairs) != 1 or not all(isinstance(statement, Define | Assign) for statement in body):
            return None
        (pair,) = pairs
        if {self.first, pair.remainder} & set(_WORD.findall(" ".join(map(repr, body)))):
            return None
        low, high = self.name("low"), self.name("high")

        def quotient(of: str) -> str:  # with a negative dividend, ``end`` is 0 (``nest_runs``)
            return f"{end} > 0 ? nest_quotient({of}, {pair.divisor})"

        return [
            Define("int64_t", low, f"{quotient(pair.base)} : 0"),
            Define("int64_t", high, f"{quotient(f'{pair.base} + {end} - 1')} + 1 : 0"),
            For(pair.quotient, low, high, body, simd=True, reductions=reductions),
        ]

    def _whole_length(self) -> int | None:
        """The length of the longest runs, if all divisors are known and the least one is in ``_WHOLE``; else None."""
        numbers = [_NUMBER.fullmatch(pair.divisor) for pair in self._pairs.values()]
        least = min((int(number[1]) if number is not None else 0 for number in numbers), default=0)
        return least if least in _WHOLE else None


# ---- Loops over many short axes as one or two flat loops; the index along each axis is some bits of the counter ----

_SHORT = 16  # an innermost loop of fewer iterations is not worth its overhead
_FEWEST_AXES = 3


class FlatLoops:
    """An outer loop over the axes before ``cut``, and an inner loop over the others; all extents are powers of two."""

    def __init__(self, scope: LoweringScope, shape: tuple[int, ...], index: tuple[str, ...], cut: int) -> None:
        self.shape, self.index, self.cut = shape, index, cut
        parts = [shape[:cut], shape[cut:]] if cut else [shape]
        self.loops = [(scope.name("i"), math.prod(part)) for part in parts]
        self.levels = {name: self._level(axis) for axis, name in enumerate(index) if name != "0"}

    def coordinates(self, level: int) -> list[Statement]:
        """Definitions of the indices along the axes of the loop at ``level``."""
        return [
            Define("int32_t", name, self._coordinate(axis, level))
            for axis, name in enumerate(self.index)
            if name != "0" and self._level(axis) == level
        ]

    def _coordinate(self, axis: int, level: int) -> str:
        return f"{self.loops[level - 1][0]} >> {self._shift(axis)} & {self.shape[axis] - 1}"

    def linear(self, exchanged: list[int]) -> str:
        """The row-major position of the current index, mirrored along the axes ``exchanged``, each of extent 2."""
        texts: list[str] = []
        for level, (name, _) in enumerate(self.loops, 1):
            bits = sum(1 << self._shift(axis) for axis in exchanged if self._level(axis) == level)
            texts.append(f"({name} ^ {bits})" if bits else name)
        return texts[0] if len(texts) == 1 else f"{texts[0]} * {self.loops[1][1]} + {texts[1]}"

    def _level(self, axis: int) -> int:
        return 2 if self.cut and axis >= self.cut else 1

    def _shift(self, axis: int) -> int:
        """Returns log2 of the number of elements in the axes that follow ``axis`` in the same loop."""
        end = self.cut if self.cut and axis < self.cut else len(self.shape)
        return math.prod(self.shape[axis + 1 : end]).bit_length() - 1


def flat_cut(scope: LoweringScope, group: NestGroup) -> int | None:
    """The axis at which to cut a nest into two flat loops, 0 for a single flat loop.

    None if a loop for each axis is better.
    """
    shape = group.shape
    long = [extent for extent in shape if extent != 1]
    if len(long) < _FEWEST_AXES or long[-1] >= _SHORT or any(extent & (extent - 1) for extent in shape):
        return None
    if group.checks or not all(isinstance(sink, BufferFill | StoreSink) for sink in group.sinks):
        return None
    mirrored = _mirrored_axes(scope, group)
    if not mirrored:
        cut = next((axis for axis in range(len(shape), 0, -1) if math.prod(shape[axis:]) >= _SHORT), 0)
        return cut if math.prod(shape[cut:]) >= _SHORT else 0
    # Elements along the axes after the last mirrored axis are exchanged together, so they form the inner loop.
    cut = max(mirrored) + 1
    return cut if math.prod(shape[cut:]) >= _SHORT else 0


def _mirrored_axes(scope: LoweringScope, group: NestGroup) -> set[int]:
    """The axes along which the nest reads elements exchanged with their neighbours."""
    axes: set[int] = set()
    seen: set[Value] = set()
    pending = [operand for sink in group.sinks for operand in _roots(sink)]
    while pending:
        value = scope.resolve(pending.pop())
        operation = value.owner
        filled = any(isinstance(sink, BufferFill) and sink.value is value for sink in group.sinks)
        if value in seen or operation is None or operation.name in OPAQUE:
            continue
        seen.add(value)
        if scope.buffer(value) is not None and not filled:
            continue
        if operation.name == MIRROR:
            axis = operation.attributes["axis"]
            assert isinstance(axis, int)
            axes.add(axis)
        pending.extend(operation.operands)
    return axes


def _roots(sink: object) -> list[Value]:
    if isinstance(sink, BufferFill):
        return [sink.value]
    return list(sink.operation.operands) if isinstance(sink, StoreSink) else []


# ---- The loops of one nest, and the statements of each of their levels ----


class NestLoops:
    """The loops over ``shape``: the names of their indices, and the statements of each level.

    ``inner`` is the axis of the innermost loop if it is not the last one. If ``cut`` is an axis, the axes before it
    form one flat loop, and the axes from it on another one; None: a loop for each axis. With ``in_runs``, the innermost
    loop goes through one run (consecutive indices with the same quotient) after another.
    """

    def __init__(
        self, scope: LoweringScope, shape: tuple[int, ...], *, cut: int | None, inner: int | None, in_runs: bool
    ) -> None:
        self.scope = scope
        self.shape = shape
        axes = [axis for axis, extent in enumerate(shape) if extent != 1] or [len(shape) - 1]
        if inner in axes:
            axes.append(axes.pop(axes.index(inner)))
        self.axes = axes  # the axes in the order of their loops
        self.index: Index = tuple(scope.name("i") if axis in axes else "0" for axis in range(len(shape)))
        self.flat = None if cut is None else FlatLoops(scope, shape, self.index, cut)
        if self.flat is None:
            self.ctype = "int64_t"
            self.loops_over = [(self.index[axis], shape[axis]) for axis in axes]
        else:
            self.ctype = "int32_t"
            self.loops_over = self.flat.loops
        self.inner = self.loops_over[-1][0]
        self.runs = Runs(scope.name, scope.name("first")) if in_runs else None
        # the level of the innermost body; with runs, the loop over the runs has the level before it
        self.depth = len(self.loops_over) + in_runs
        self.levels: list[list[Statement]] = [[] for _ in range(self.depth + 1)]
        self.level_of: dict[str, int] = {name: level + 1 for level, (name, _) in enumerate(self.loops_over)}
        self.level_of[self.inner] = self.depth
        if self.flat is not None:
            self.level_of |= self.flat.levels
            if self.depth == 2:
                self.levels[1] = self.flat.coordinates(1)
        if self.runs is not None:
            self.level_of[self.runs.first] = self.depth - 1
        self._mirrors: dict[str, str] = {}  # maps the name of an index to the name of its mirror image
        self._mirror_of: dict[str, str] = {}

    def clear_body(self) -> None:
        """Removes the statements of the innermost body, and the names that they define."""
        self.levels[self.depth] = [] if self.flat is None else self.flat.coordinates(self.depth)
        self._mirrors = {name: other for name, other in self._mirrors.items() if self.level(other) < self.depth}

    def put(self, ctype: str, text: str, level: int) -> str:
        """Defines a new constant at ``level`` and returns its name."""
        name = self.scope.name("t")
        self.levels[level].append(Define(ctype, name, text))
        self.level_of[name] = level
        return name

    def level(self, *names: str) -> int:
        """The outermost level at which all of ``names`` are defined."""
        return max((self.level_of.get(name, 0) for name in names), default=0)

    def text_level(self, *texts: str) -> int:
        """The outermost level at which every name in ``texts`` is defined."""
        return max(self.level(*_WORD.findall(text)) for text in texts)

    def outer_loops(self, body: list[Statement], *, within: int = 1) -> list[Statement]:
        """``body`` inside of all loops except the ``within`` innermost, with the statements of each level."""
        return self._within(body, len(self.loops_over) - within, None)

    def loops(self, body: list[Statement], *, simd: bool = False, backward: int | None = None) -> list[Statement]:
        """``body`` inside of all loops; the loop over the axis ``backward`` runs from its end to its start."""
        loop = self._loop(self.depth, body, backward, simd=simd)
        return self._within([loop], self.depth - 1, backward)

    def _within(self, body: list[Statement], depth: int, backward: int | None) -> list[Statement]:
        for level in range(depth, -1, -1):
            body = [*self.levels[level], *body]
            if level > 0:
                body = [self._loop(level, body, backward)]
        return body

    def _loop(self, level: int, body: list[Statement], backward: int | None, *, simd: bool = False) -> For:
        index, extent = self.loops_over[level - 1]
        if backward is None or index != self.index[backward]:
            return For(index, "0", str(extent), body, ctype=self.ctype, simd=simd)
        counter = self.scope.name("n")
        return For(counter, "0", str(extent), [Define("int64_t", index, f"{extent - 1} - {counter}"), *body], simd=simd)

    def mirrored(self, name: str) -> str:
        """The name of the mirror image of an index along an axis of extent 2; the first call defines it."""
        mirror = self._mirrors.get(name)
        if mirror is None:
            mirror = self.put(self.ctype, f"{name} ^ 1", self.level(name))
            self._mirrors[name] = mirror
            self._mirror_of[mirror] = name
        return mirror

    def linear(self, index: Index, shape: tuple[int, ...]) -> str:
        """The row-major position of ``index`` in a buffer of ``shape``; flat loops over it use their counters."""
        if self.flat is None or shape != self.shape:
            return linear_index(index, shape)
        exchanged: list[int] = []
        for axis, name in enumerate(index):
            origin, times = name, 0
            while origin in self._mirror_of:
                origin, times = self._mirror_of[origin], times + 1
            if origin != self.index[axis]:
                return linear_index(index, shape)
            if times % 2:
                exchanged.append(axis)
        return self.flat.linear(exchanged)
