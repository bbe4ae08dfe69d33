"""Lowers operations that have a nest of their own: scans, general reductions, ordered memory accesses, messages."""

from __future__ import annotations

import math

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.value_properties import load_parts
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.atomic import (
    ALONE,
    atomic_call,
    atomic_mask,
    atomic_runs,
    combined,
    plain_updates,
    volatile_load,
)
from silo.kinds.triton.cpu.lower.index import linear_index
from silo.kinds.triton.cpu.lower.leading import Body, leading_loops
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.messages import flush_statement, message_statements
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.cpu.schedule.block_schedule import NestGroup
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.further_dialects import VOLATILE_LOAD
from silo.kinds.triton.front.operations.operation_table import ATOMICS, MESSAGES
from silo.kinds.triton.front.ssa import Operation

__all__ = ["lower_ordered"]

_LANES = 16  # the number of partial results of a general reduction: several, so that the C compiler can use vectors


def lower_ordered(scope: LoweringScope, group: NestGroup) -> None:
    """Emits the nest of the only operation of ``group`` and binds its results."""
    operation = group.ordered
    assert operation is not None
    nest = Nest(scope, group.shape)
    nest.begin_body(fast=False)
    if operation.name == tt.SCAN:
        _scan(scope, nest, operation)
    elif operation.name == tt.REDUCE:
        _reduce(scope, nest, operation)
    elif operation.name == tt.ASSERT and not scope.reference and math.prod(group.shape) >= _LANES:
        _assertion(scope, group.shape, operation)
    elif operation.name in MESSAGES:
        _message(scope, nest, operation)
    elif operation.name in ATOMICS:
        _atomic(scope, nest, operation)
    elif operation.name == VOLATILE_LOAD:
        _volatile(scope, nest, operation)
    elif operation.name == tt.HISTOGRAM:
        _histogram(scope, nest, operation)
    else:
        assert operation.name == tt.UNSPLAT
        _unsplat(scope, nest, operation)


def _results(scope: LoweringScope, operation: Operation) -> list[LoopBuffer]:
    buffers = [scope.buffer_for(result) for result in operation.results]
    for buffer in buffers:
        scope.lifetimes.touch(buffer)
    return buffers


def _emit(scope: LoweringScope, statements: list[Statement]) -> None:
    for statement in statements:
        scope.emit(statement)


def _elements(nest: Nest, operation: Operation) -> list[str]:
    return [nest.value(operand, nest.index) for operand in operation.operands]


# ---- scans


def _scan(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    """Emits a scan: each result combines an element with the previous result, which is read from its buffer."""
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    shape = operation.operands[0].type.shape
    results = _results(scope, operation)
    elements = _elements(nest, operation)
    offset = linear_index(nest.index, shape)
    step = 1
    for extent in shape[axis + 1 :]:
        step *= extent
    reverse = bool(operation.attributes.get("reverse"))
    before = f"{offset} {'+' if reverse else '-'} {step}"
    first: list[Statement] = [
        Assign(f"{b.name}[{offset}]", element) for b, element in zip(results, elements, strict=True)
    ]
    if shape[axis] == 1:
        body = first
    else:
        last = [f"{b.name}[{before}]" for b in results]
        combine = scope.apply(operation, [*last, *elements], [f"&{b.name}[{offset}]" for b in results])
        start = str(shape[axis] - 1) if reverse else "0"
        body = [If(f"{nest.index[axis]} == {start}", first, combine)]
    # If the scan is along another axis than the innermost, the elements of a row do not depend on each other.
    independent = scope.vectorizes(operation) and nest.axes[-1] != axis
    _emit(scope, nest.loops([*nest.levels[nest.depth], *body], simd=independent, backward=axis if reverse else None))


# ---- reductions by any function


def _reduce(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    if nest.axes[-1] == axis:
        _reduce_inner(scope, nest, operation)
    else:
        _reduce_outer(scope, nest, operation, axis)


def _element_lvalues(scope: LoweringScope, nest: Nest, operation: Operation, axis: int) -> list[str]:
    """C lvalues of one element of each result."""
    other_indices = tuple(name for position, name in enumerate(nest.index) if position != axis)
    if not operation.results[0].type.tensor:
        return [scope.scalar(result) for result in operation.results]
    index = linear_index(other_indices, operation.results[0].type.shape)
    return [f"{buffer.name}[{index}]" for buffer in _results(scope, operation)]


def _declare_scalars(scope: LoweringScope, operation: Operation) -> None:
    for result in operation.results:
        if not result.type.tensor:
            name = scope.name("r")
            scope.emit(Define(ops.c_type(result.type), name, "0", mutable=True))
            scope.bind(result, name)


def _reduce_outer(scope: LoweringScope, nest: Nest, operation: Operation, axis: int) -> None:
    """Copies the first row to the result, and combines each later row with it."""
    _declare_scalars(scope, operation)
    places = _element_lvalues(scope, nest, operation, axis)
    elements = _elements(nest, operation)
    first: list[Statement] = [Assign(target, element) for target, element in zip(places, elements, strict=True)]
    combine = scope.apply(operation, [*places, *elements], [f"&{target}" for target in places])
    at_first = nest.index[axis]
    body: list[Statement] = first if at_first == "0" else [If(f"{at_first} == 0", first, combine)]
    _emit(scope, nest.loops([*nest.levels[nest.depth], *body], simd=scope.vectorizes(operation)))


def _reduce_inner(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    """Reduces into lanes of partial results, which are then combined as a tree; in reference mode there is one lane."""
    _declare_scalars(scope, operation)
    axis = nest.axes[-1]
    extent = nest.shape[axis]
    lanes = _LANES if scope.vectorizes(operation) and extent >= 2 * _LANES else 1
    elements = _elements(nest, operation)
    sums = [scope.name("part") for _ in elements]
    types = [ops.c_type(result.type) for result in operation.results]
    lane, start = scope.name("lane"), scope.name("i")
    cells = [f"{name}[{lane}]" for name in sums]
    body = [Define("int64_t", nest.inner, f"{start} + {lane}"), *nest.levels[nest.depth]]
    first = [Assign(cell, element) for cell, element in zip(cells, elements, strict=True)]
    combine = scope.apply(operation, [*cells, *elements], [f"&{cell}" for cell in cells])
    simd = lanes > 1
    inner: list[Statement] = [
        Define(ctype, f"{name}[{lanes}]", None, mutable=True) for ctype, name in zip(types, sums, strict=True)
    ]
    inner.append(Define("int64_t", start, "0", mutable=True))
    inner.append(For(lane, "0", str(lanes), [*body, *first], simd=simd))
    again: list[Statement] = [
        Assign(start, f"{start} + {lanes}"),
        For(lane, "0", str(lanes), [*body, *combine], simd=simd),
    ]
    inner.append(For(scope.name("n"), str(lanes), str(extent), again, step=str(lanes)))
    width = lanes // 2
    while width:
        other = [f"{name}[{lane} + {width}]" for name in sums]
        fold = scope.apply(operation, [*cells, *other], [f"&{cell}" for cell in cells])
        inner.append(For(lane, "0", str(width), fold, simd=width > 1))
        width //= 2
    places = _element_lvalues(scope, nest, operation, axis)
    inner.extend(Assign(target, f"{name}[0]") for target, name in zip(places, sums, strict=True))
    _emit(scope, nest.outer_loops(inner))


# ---- memory


def _atomic(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    mask = atomic_mask(operation)
    operands = operation.operands if mask is None else operation.operands[:2]
    names = [nest.value(operand, nest.index) for operand in operands]
    condition = "" if mask is None else nest.value(mask, nest.index)
    call = atomic_call(scope, operation, names)
    alone = plain_updates(scope, nest, operation, names, condition)
    if alone:
        with scope.collecting() as shared:
            _shared_atomic(scope, nest, operation, names, condition, call)
        scope.emit(If(f"alone == {ALONE}", alone, shared))
    else:
        _shared_atomic(scope, nest, operation, names, condition, call)


def _shared_atomic(
    scope: LoweringScope, nest: Nest, operation: Operation, names: list[str], condition: str, call: str
) -> None:
    """Emits atomics on memory that other threads may access at the same time."""
    result = operation.result
    table = combined(scope, operation, names)
    if table is not None:
        _emit(scope, [*table.before])
        ways = [nest.loops([*nest.levels[nest.depth], _only_if(condition, text)]) for text in (call, table.add)]
        scope.emit(If(table.direct, *ways))
        _emit(scope, [*table.after])
        return
    if runs := atomic_runs(scope, operation):
        _emit(scope, runs)
        return
    body: list[Statement]
    if not result.uses:
        body = [_only_if(condition, call)]
    else:
        (buffer,) = _results(scope, operation)
        element = f"{buffer.name}[{linear_index(nest.index, nest.shape)}]"
        body = [Assign(element, call)]
        if condition:
            body = [Assign(element, "0"), Assign(element, call, condition)]
    _emit(scope, nest.loops([*nest.levels[nest.depth], *body]))


def _only_if(condition: str, call: str) -> Statement:
    return If(condition, [LoopCall(call)]) if condition else LoopCall(call)


def _volatile(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    (buffer,) = _results(scope, operation)
    texts = [nest.value(part, nest.index) if part is not None else "" for part in load_parts(operation)]
    element = volatile_load(scope, operation.result.type, *texts)
    body = [Assign(f"{buffer.name}[{linear_index(nest.index, nest.shape)}]", element)]
    _emit(scope, nest.loops([*nest.levels[nest.depth], *body]))


def _histogram(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    """Emits a histogram; values outside of the bins are not counted."""
    (buffer,) = _results(scope, operation)
    bins = operation.result.type.elements
    zero = scope.name("i")
    scope.emit(For(zero, "0", str(bins), [Assign(f"{buffer.name}[{zero}]", "0")], simd=not scope.reference))
    value = nest.value(operation.operands[0], nest.index)
    masked = operation.operands[1:]
    bin_ = nest.put("uint64_t", f"(uint64_t)(int64_t){value}", nest.depth)
    condition = f"{bin_} < {bins}" + (f" && {nest.value(masked[0], nest.index)}" if masked else "")
    body: list[Statement] = [Assign(f"{buffer.name}[{bin_}]", f"{buffer.name}[{bin_}] + 1", condition)]
    _emit(scope, nest.loops([*nest.levels[nest.depth], *body]))


# ---- messages


def _message(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    (element,) = _elements(nest, operation)
    body = message_statements(scope, operation, element, nest.index)
    _emit(scope, nest.loops([*nest.levels[nest.depth], *body]))
    if operation.name == tt.PRINT:
        scope.emit(flush_statement())


def _assertion(scope: LoweringScope, shape: tuple[int, ...], operation: Operation) -> None:
    """Tests with vectors whether an assertion is true for all elements; if not, tests the elements again one by one."""
    failed = scope.name("failed")
    (condition,) = operation.operands
    stored = scope.buffer(condition)
    if stored is not None:  # another operation uses the condition too, so it is in a buffer
        scope.lifetimes.touch(stored)
        scope.pieces.add("all")
        scope.emit(Define("int32_t", failed, f"!silo_all({stored.name}, {stored.elements})"))
        _tell_failure(scope, shape, operation, failed)
        return

    def body(nest: Nest) -> Body:
        element = nest.asserted(condition, nest.index)
        ask = Assign(failed, f"{failed} | !{element}")
        if nest.fast and nest.runs is not None and nest.level(element) == nest.depth - 1:
            # the element is the same for a whole run of indices (`nest_loops.Runs`)
            nest.levels[nest.depth - 1].append(ask)
            return Body([], simd=True)
        return Body([ask], simd=True)

    loops = leading_loops(scope, shape, body, (("|", failed),))
    scope.emit(Define("int32_t", failed, "0", mutable=True))
    _emit(scope, loops)
    _tell_failure(scope, shape, operation, failed)


def _tell_failure(scope: LoweringScope, shape: tuple[int, ...], operation: Operation, failed: str) -> None:
    """Emits code that, if the C variable ``failed`` is set, tests the elements one by one and reports the failure."""
    with scope.collecting() as one_by_one:
        asking = Nest(scope, shape)
        asking.begin_body(fast=False)
        _message(scope, asking, operation)
    scope.emit(If(failed, one_by_one))


def _unsplat(scope: LoweringScope, nest: Nest, operation: Operation) -> None:
    _declare_scalars(scope, operation)
    element = nest.value(operation.operands[0], nest.index)
    body: list[Statement] = [Assign(scope.scalar(operation.result), element)]
    _emit(scope, nest.loops([*nest.levels[nest.depth], *body]))
