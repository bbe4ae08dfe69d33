"""Reductions along an axis other than the innermost: several rows are read and combined at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.affine import is_range_mask
from silo.kinds.triton.cpu.analysis.used_elements import seen_masks
from silo.kinds.triton.cpu.analysis.value_properties import combining_operation, constant_scalar, load_parts
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopCall, Statement
from silo.kinds.triton.cpu.lower.forms import AffineForms, view_axes
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.operation_table import VIEWS
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = [
    "ROW_TYPES",
    "CombinedRow",
    "JoinedRows",
    "WholePart",
    "combined_text",
    "join_rows",
    "joined",
    "seen_extent",
    "whole_tile",
]

ROW_TYPES = frozenset({"f32", "f64", "i32", "i64"})
_MOST_ROWS = 8  # the most rows that are read at a time; a power of two
_LEAST_ROWS = 4
_MATRIX = 2
_FEW = 8  # a second loop, of constant length, is emitted only if one element takes at most this many statements
_MASKING_BITS = 512  # the vector width in bits at which a masked load costs no more than a full one
_NARROW = 64  # the most elements of a short row; of longer rows, fewer are read at a time


@dataclass(frozen=True, slots=True)
class CombinedRow:
    """One reduction: the C texts of the result's element (``target``) and of the row's element combined with it."""

    operation: Operation
    target: str
    element: str


@dataclass(frozen=True, slots=True)
class WholePart:
    """The leading rows of a tile in which no mask excludes an element.

    ``condition`` and ``rows`` are names of C variables: whether such rows are known, and their number (``rows`` is ""
    if they are all rows). ``end`` is the C text of the first row from which on no row changes a result.
    """

    condition: str
    rows: str
    end: str


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The parts of a nest whose rows are joined (several rows are read at a time).

    ``before`` are the statements of a row. A row's limit is the number of its leading elements that need no mask;
    ``limits`` are C texts that compute it from ``limit``. Of each row, the first ``end`` elements are used. For
    elements before the limit, ``values`` compute the numbers that ``rows`` add to the results; for elements after it,
    ``masked`` compute the numbers that ``masked_rows`` add. In the rows of ``whole``, no limit is below ``end``.
    """

    nest: Nest
    axis: int
    before: list[Statement]
    limits: list[str]
    end: str
    values: list[Statement]
    rows: list[CombinedRow]
    masked: list[Statement]
    masked_rows: list[CombinedRow]
    whole: WholePart | None


def joined(nest: Nest, axis: int) -> int:
    """The number of rows along ``axis`` that are read at a time; 0 if each row is read alone."""
    extent, row = nest.shape[axis], nest.shape[nest.axes[-1]]
    count = _MOST_ROWS if row <= _NARROW else _LEAST_ROWS
    return count if extent % count == 0 and nest.index[axis] != "0" else 0


def seen_extent(scope: LoweringScope, nest: Nest, operations: Sequence[Operation]) -> str:
    """A C text for the number of leading elements along the innermost axis whose results in ``operations`` are stored.

    All elements count if the stores have several masks, or no known mask.
    """
    extent = str(nest.shape[nest.axes[-1]])
    if len(operations) != 1:
        return extent
    operation = operations[0]
    masks = seen_masks(operation.result, operation)
    if len(masks) != 1:
        return extent
    reduced, shape = operation.attributes["axis"], operation.result.type.shape
    assert isinstance(reduced, int)
    axis = nest.axes[-1] - (nest.axes[-1] > reduced)
    own = Nest(scope, shape)
    forms = AffineForms(scope, own, counted=axis)
    if not forms.guard_mask(masks[0], tuple(range(len(shape)))) or not forms.counts:
        return extent
    for statement in own.levels[0]:
        scope.emit(statement)
    text = extent
    for count in dict.fromkeys(forms.counts):
        text = f"nest_seen({count}, {text})"
    name = scope.name("seen")
    scope.emit(Define("int64_t", name, text))
    return name


def whole_tile(
    scope: LoweringScope, nest: Nest, end: str, axis: int, count: int, masked_rows: Sequence[CombinedRow]
) -> WholePart | None:
    """The rows along ``axis`` in which no mask of ``nest`` excludes any of the first ``end`` elements.

    The number of these rows is rounded down to a multiple of ``count``. Emits the code that computes it. Returns None
    if the masks are not comparisons from which code can compute that number. ``masked_rows`` combine the rows that
    masks exclude with the results.
    """
    inner = nest.axes[-1]
    own = Nest(scope, nest.shape)
    forms = AffineForms(scope, own, extents={inner: end}, counted=axis)
    for mask, index in nest.untested:
        affine = index == nest.index and is_range_mask(mask) and forms.guard_mask(mask, tuple(range(len(nest.shape))))
        if not affine:
            return None
    if not (forms.guards or forms.counts) or len(nest.axes) != len(nest.shape) or len(nest.axes) != _MATRIX:
        return None
    for statement in own.levels[0]:
        scope.emit(statement)
    name = scope.name("whole")
    guards = " && ".join(dict.fromkeys(f"({guard})" for guard in forms.guards))
    scope.emit(Define("int", name, guards or "1"))
    every = part = str(nest.shape[axis])
    if not forms.counts:
        return WholePart(name, "", every)
    for limit in dict.fromkeys(forms.counts):
        part = f"nest_part({limit}, {part})"
    some, rows = scope.name("part"), scope.name("rows")
    scope.emit(Define("int64_t", some, part))
    scope.emit(Define("int64_t", rows, f"{some} & -{count}"))
    axes: tuple[int | None, ...] = tuple(range(len(nest.shape)))
    for row in masked_rows:
        combining = combining_operation(row.operation)
        neutral = _NEUTRAL.get(combining.name) if combining is not None else None
        counts = frozenset(forms.counts)
        if neutral is None or not _equals_after(scope, nest, row.operation.operands[0], axes, neutral, axis, counts):
            return WholePart(name, rows, every)
    last = scope.name("last")
    # `some` is 0 if the number of leading rows is 0 or unknown; then every row may change the results.
    scope.emit(Define("int64_t", last, f"{some} ? ({some} + {count - 1}) & -{count} : {every}"))
    return WholePart(name, rows, last)


def _equals_after(
    scope: LoweringScope,
    nest: Nest,
    value: Value,
    axes: tuple[int | None, ...],
    number: float,
    axis: int,
    counts: frozenset[str],
) -> bool:
    """Whether ``value`` equals ``number`` in every row along ``axis`` that comes after any of ``counts`` leading rows.

    ``counts`` are C names of numbers of rows. ``axes`` holds the nest's axis for each dimension of ``value``.
    """
    operation = value.owner
    while operation is not None and (operation.name in VIEWS or operation.name == arith.EXTF):
        axes = view_axes(operation, axes) if operation.name in VIEWS else axes
        operation = operation.operands[0].owner
    if operation is None:
        return False
    if operation.name == arith.MULF and number == 0:
        return all(_equals_after(scope, nest, part, axes, number, axis, counts) for part in operation.operands)
    if operation.name != tt.LOAD:
        return False
    _, mask, other = load_parts(operation)
    forms = AffineForms(scope, Nest(scope, nest.shape), counted=axis)
    if mask is None or (other is not None and constant_scalar(other) != number) or (other is None and number != 0):
        return False
    return forms.guard_mask(mask, axes) and counts <= frozenset(forms.counts)


def join_rows(
    scope: LoweringScope, parts: JoinedRows, count: int, common: str, single: list[Statement]
) -> list[Statement]:
    """The loop over the rows, ``count`` rows at a time up to their common limit.

    A row's limit is the number of its leading elements that need no mask. ``common`` is the C name of the limit that
    all ``count`` rows share, 0 if their limits differ; ``single`` handles the elements of one row after the common
    limit.
    """
    inside = _inside(parts)
    if not inside:
        parts = replace(parts, before=_readable(parts))
    nest = parts.nest
    row = nest.index[parts.axis]
    block = scope.name("i")
    numbers = range(count)
    names = [row, *_names(parts.before)]
    body: list[Statement] = []
    ends: list[str] = []
    for own in (_naming(names, number) for number in numbers):
        body.append(Define(nest.ctype, own(row), f"{block} + {len(ends)}"))
        body += [_renamed(statement, own) for statement in parts.before]
        ends.append(scope.name("limit"))
        body.append(Define("int64_t", ends[-1], parts.end, mutable=True))
        body += [Assign(ends[-1], own(text).replace("limit", ends[-1])) for text in parts.limits]

    def columns(first: str, last: str, values: list[Statement], rows: list[CombinedRow]) -> For:
        naming = [_naming([*names, *_names(values)], number) for number in numbers]
        statements = [_renamed(value, own) for own in naming for value in values]
        for combined_row in rows:
            statements += _combined(scope, combined_row, [own(combined_row.element) for own in naming], f"{row}_0")
        return For(nest.inner, first, last, statements, ctype=nest.ctype, simd=True)

    same = scope.name("same")
    body.append(Define("int", same, " && ".join(f"{end} == {ends[0]}" for end in ends[1:])))
    body.append(Define("int64_t", common, f"{same} ? {ends[0]} : 0"))
    body.append(columns("0", common, parts.values, parts.rows))
    alone = For(row, block, f"{block} + {count}", [*parts.before, *single], ctype=nest.ctype)
    if parts.masked_rows:
        alternative = If(same, [columns(common, parts.end, parts.masked, parts.masked_rows)], [alone])
        some = " || ".join(_naming(names, number)(inside) for number in numbers)
        body.append(If(f"{block} == 0 || {some}", [alternative]) if inside else alternative)
    rows = str(nest.shape[parts.axis])
    if parts.whole is None:
        return [For(block, "0", rows, body, step=str(count), ctype=nest.ctype)]
    summed: list[Statement] = [columns("0", parts.end, parts.values, parts.rows)]
    extent = str(nest.shape[nest.axes[-1]])
    if parts.end != extent and int(extent) <= _NARROW and len(parts.values) <= _FEW:
        # With a constant extent, the C compiler can unroll the loop over these few vectors. Loads of elements after the
        # end of a row are replaced by zeros; the results of these elements are not used.
        masked = _up_to(scope, nest, parts) if scope.options.vector_bits == _MASKING_BITS else None
        if masked is not None:
            summed = [columns("0", extent, masked, parts.rows)]
        summed = [If(f"{parts.end} == {extent}", [columns("0", extent, parts.values, parts.rows)], summed)]
    heads: list[Statement] = []
    for number, own in enumerate(_naming(names, number) for number in numbers):
        heads.append(Define(nest.ctype, own(row), f"{block} + {number}"))
        heads += [_renamed(statement, own) for statement in parts.before]
    whole, last = parts.whole.condition, parts.whole.rows or rows
    uncut = For(block, "0", last, [*heads, *summed], step=str(count), ctype=nest.ctype)
    first = f"({whole} ? {last} : 0)" if parts.whole.rows else "0"
    every = For(block, first, parts.whole.end, body, step=str(count), ctype=nest.ctype)
    return [If(whole, [uncut]), every] if parts.whole.rows else [If(whole, [uncut], [every])]


def _up_to(scope: LoweringScope, nest: Nest, parts: JoinedRows) -> list[Statement] | None:
    """The ``values`` of ``parts`` for any element of a row, with zeros instead of loads for elements after the end.

    None if a value reads memory other than by the loop's index, or may divide integers.
    """
    inside = scope.name("on")
    result: list[Statement] = [Define("int32_t", inside, f"{nest.inner} < {parts.end}")]
    for statement in parts.values:
        if not isinstance(statement, Define) or statement.mutable or statement.value is None:
            return None
        value = statement.value
        if re.fullmatch(rf"\w+\[{nest.inner}\]", value):
            value = f"{inside} ? {value} : 0"
        elif any(sign in value for sign in "[*/%") and not re.fullmatch(r"\(\w+ \* \w+\)", value):
            return None
        result.append(replace(statement, value=value))
    return result


def _names(statements: list[Statement]) -> list[str]:
    return [statement.name for statement in statements if isinstance(statement, Define)]


def _naming(names: list[str], number: int) -> Callable[[str], str]:
    """Returns a function that replaces ``names`` in a text by the names of the joined row ``number``."""
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    return lambda text: word.sub(lambda found: f"{found.group()}_{number}", text)


# The neutral element of each reduction of floats.
_NEUTRAL: Mapping[str, float] = {
    arith.ADDF: 0.0,
    arith.MAXNUMF: -math.inf,
    arith.MAXIMUMF: -math.inf,
    arith.MINNUMF: math.inf,
    arith.MINIMUMF: math.inf,
}
_ROW_LIMIT = re.compile(r"(\w+) \? limit : 0")


_ANDED = re.compile(r"\(uint8_t\)\(\((\w+)\) & \((\w+)\)\)")
_TARGET = re.compile(r"(b[0-9]+)\[\w+\]")


def _readable(parts: JoinedRows) -> list[Statement]:
    """The statements of a row, in which the pointer to a row that is entirely masked off points to the results.

    Nothing is read through such a pointer. But a vector load without a single active lane takes the CPU hundreds of
    cycles if its address is not mapped in the process, as may be the case for rows after a tensor's last.
    """
    target = _TARGET.fullmatch(parts.rows[0].target) if parts.rows else None
    masks = {statement.name: statement.value or "" for statement in parts.masked if isinstance(statement, Define)}
    conditions = {match[1] for limit in parts.limits if (match := _ROW_LIMIT.fullmatch(limit))}
    if target is None or not conditions:
        return parts.before

    def masking(pointer: str) -> str:
        """A condition of the row that is true whenever an element is loaded through ``pointer``.

        "" if none is known.
        """
        word, names = re.compile(rf"\b{pointer}\b"), set[str]()
        others = [repr(statement) for statement in [*parts.values, *parts.before] if not _defines(statement, pointer)]
        if any(word.search(text) for text in others):
            return ""
        for statement in parts.masked:
            if not word.search(repr(statement)):
                continue
            load = isinstance(statement, Define) and re.fullmatch(
                rf"(\w+) \? {pointer}\[\w+\] : [^\[\]]*", statement.value or ""
            )
            if not load:
                return ""
            match = _ANDED.fullmatch(masks.get(load[1], ""))
            known_conditions = conditions.intersection(match.groups() if match else [load[1]])
            names.add(min(known_conditions, default=""))
        return names.pop() if len(names) == 1 else ""

    result: list[Statement] = []
    defined: set[str] = set()
    for statement in parts.before:
        masked = statement
        if isinstance(statement, Define):
            if (
                statement.ctype.endswith("*")
                and not statement.mutable
                and (condition := masking(statement.name)) in defined
            ):
                masked = replace(
                    statement, value=f"{condition} ? {statement.value} : ({statement.ctype})(void *){target[1]}"
                )
            defined.add(statement.name)
        result.append(masked)
    return result


def _defines(statement: Statement, name: str) -> bool:
    return isinstance(statement, Define) and statement.name == name


def _inside(parts: JoinedRows) -> str:
    """The name of a condition that must be true for a row to change the results; "" if none is known."""
    for masked_row in parts.masked_rows:
        combining, value = combining_operation(masked_row.operation), masked_row.operation.operands[0]
        while value.owner is not None and value.owner.name == arith.EXTF:
            value = value.owner.operands[0]
        load = value.owner
        if combining is None or load is None or load.name != tt.LOAD:
            return ""
        _, _, other = load_parts(load)
        fill = 0.0 if other is None else constant_scalar(other)
        if fill is None or fill != _NEUTRAL.get(combining.name):
            return ""
    row_limits = [match[1] for limit in parts.limits if (match := _ROW_LIMIT.fullmatch(limit))]
    one_load = len({row.operation.operands[0] for row in parts.masked_rows}) == 1
    return row_limits[0] if row_limits and one_load else ""


_REDUCED: Mapping[str, str] = {
    arith.MAXNUMF: "silo_largest_number",
    arith.MINNUMF: "silo_least_number",
    arith.MAXIMUMF: "silo_largest",
    arith.MINIMUMF: "silo_least",
}


def combined_text(scope: LoweringScope, combining: Operation, left: str, right: str) -> str:
    """The C text of a reduction's combining function, applied to two elements."""
    function = _REDUCED.get(combining.name)
    if function is None or scope.reference or combining.result.type.element not in ("f32", "f64"):
        return scope.expression(combining, [left, right])
    scope.pieces.add("minmax")
    return f"{function}_{combining.result.type.element}({left}, {right})"


def _combined(scope: LoweringScope, row: CombinedRow, elements: list[str], first: str) -> list[Statement]:
    """Combines the elements of one column of the joined rows in pairs, and then with the target.

    If the C text ``first`` is 0 at run time, the elements replace the target.
    """
    combining = combining_operation(row.operation)
    assert combining is not None
    ctype = ops.c_type(combining.result.type)
    statements: list[Statement] = []

    def combine(left: str, right: str) -> str:
        name = scope.name("t")
        statements.append(Define(ctype, name, combined_text(scope, combining, left, right)))
        return name

    while len(elements) > 1:
        elements = [combine(*pair) for pair in zip(elements[::2], elements[1::2], strict=True)]
    total = combine(row.target, elements[0])
    statements.append(Assign(row.target, f"{first} == 0 ? {elements[0]} : {total}"))
    return statements


def _renamed(statement: Statement, own: Callable[[str], str]) -> Statement:
    match statement:
        case Define(ctype, name, value, mutable):
            return Define(ctype, own(name), value and own(value), mutable)
        case Assign(target, value, condition):
            return Assign(own(target), own(value), own(condition))
        case LoopCall(text):
            return LoopCall(own(text))
        case _:
            raise AssertionError(statement)  # callers pass no loops or branches
