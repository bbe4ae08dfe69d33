"""Properties of SSA values (axes, constants, arguments behind pointers), and walks over the values they are made of."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.further_dialects import FENCE
from silo.kinds.triton.front.operations.operation_table import ASSOCIATIVE, ORDERED, VIEWS, WHOLE, WRITES
from silo.kinds.triton.front.ssa import Block, Module, Operation, Value

__all__ = [
    "all_of",
    "any_of",
    "combining_operation",
    "constant_scalar",
    "defining_block",
    "dot_inputs",
    "every_operation",
    "first_tensor",
    "fold",
    "inner_axis",
    "is_ordered",
    "is_unit_reshape",
    "is_whole",
    "keeps_unchanged",
    "load_parts",
    "loaded_by",
    "may_precede",
    "pointer_roots",
    "remembered",
    "scalar_source",
    "store_parts",
    "stored_operands",
    "unchanged",
]

# ---- Walks over a value's operands without recursion, because chains of operations may be longer than Python's stack
# ----

_Node = TypeVar("_Node")
_Result = TypeVar("_Result")
_FOUND: ContextVar[dict[Hashable, dict[Value, Any]] | None] = ContextVar("found", default=None)


def fold(
    root: _Node,
    parts: Callable[[_Node], Sequence[_Node]],
    result: Callable[[_Node, list[_Result]], _Result],
    memo: dict[_Node, _Result] | None = None,
) -> _Result:
    """Computes the result of ``root`` from the results of its parts, each of which is computed from its own parts.

    Args:
        root: the node to compute.
        parts: returns the nodes whose results a node's result needs; a node must not be a part of itself.
        result: returns the result of a node, given the results of its parts in their order. Called once for each node.
        memo: results of earlier calls, to which this call adds its own.

    >>> fold(5, lambda n: [n - 1, n - 2] if n > 1 else [], lambda n, found: sum(found) or n)
    5
    """
    memo = {} if memo is None else memo
    pending = [root]
    while pending:
        node = pending[-1]
        if node in memo:
            pending.pop()
            continue
        inner = parts(node)
        missing = [part for part in inner if part not in memo]
        if missing:
            pending.extend(reversed(missing))
            continue
        memo[node] = result(node, [memo[part] for part in inner])
        pending.pop()
    return memo[root]


def all_of(root: Value, parts: Callable[[Value], Iterable[Value] | None]) -> bool:
    """Whether ``parts`` returns a list for ``root``, for each value in its list, for each value in their lists, etc.

    Each value is visited once; the walk ends with False as soon as ``parts`` returns None.
    """
    seen: set[Value] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        inner = parts(value)
        if inner is None:
            return False
        pending.extend(inner)
    return True


def any_of(root: Value, parts: Callable[[Value], Iterable[Value] | None]) -> bool:
    """Whether ``parts`` returns None for ``root`` or for a value in the lists that :func:`all_of` would follow."""
    return not all_of(root, parts)


@contextmanager
def unchanged() -> Generator[None]:
    """A context manager: while it is active, :func:`remembered` keeps facts, so no operation may be rewritten."""
    token = _FOUND.set({})
    try:
        yield
    finally:
        _FOUND.reset(token)


def remembered(question: Hashable) -> dict[Value, Any]:
    """Returns the dictionary of results known for ``question``, to be passed to :func:`fold` as its ``memo``.

    Within :func:`unchanged`, all calls with an equal ``question`` return the same dictionary; outside of it, each call
    returns a new one.
    """
    memo = _FOUND.get()
    return {} if memo is None else memo.setdefault(question, {})


# ---- The functions that reductions and scans apply to two elements ----


def combining_operation(operation: Operation) -> Operation | None:
    """The only operation in the region of a ``tt.reduce`` or ``tt.scan``, with which it combines two elements.

    None if the region has other operations.
    """
    block = operation.regions[0].blocks[0]
    if len(operation.operands) != 1 or len(block.operations) != 2:
        return None
    combining, end = block.operations
    if combining.name not in ASSOCIATIVE or end.operands != combining.results:
        return None
    return combining if set(combining.operands) == set(block.arguments) else None


# ---- Properties of values and of the operations that make them: axes, constants, parts ----


def defining_block(value: Value) -> Block | None:
    """The basic block of the operation that defines ``value``, or the block whose argument ``value`` is."""
    return value.owner.block if value.owner is not None else value.block


def is_unit_reshape(operation: Operation) -> bool:
    """Whether a ``tt.reshape`` only adds or removes dimensions of extent one."""
    before = [extent for extent in operation.operands[0].type.shape if extent != 1]
    after = [extent for extent in operation.result.type.shape if extent != 1]
    return before == after


def is_ordered(operation: Operation) -> bool:
    """Whether the operation needs a loop nest of its own that runs in order. On scalars it is a single statement."""
    if not any(operand.type.tensor for operand in operation.operands):
        return False
    if operation.name == tt.REDUCE:
        return combining_operation(operation) is None
    return operation.name in ORDERED


def is_whole(operation: Operation) -> bool:
    """Whether the operation reads its operands as complete tensors in memory.

    In optimized code, a cumulative sum along contiguous rows does this too.
    """
    return operation.name in WHOLE or _is_running_sum(operation)


def _is_running_sum(operation: Operation) -> bool:
    """Whether a ``tt.scan`` is a cumulative sum along contiguous rows, for which the C runtime has functions."""
    if operation.name != tt.SCAN or operation.operands[0].type.element not in {"f32", "f64", "i32", "i64"}:
        return False
    combining = combining_operation(operation)
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    shape = operation.operands[0].type.shape
    within = all(extent == 1 for extent in shape[axis + 1 :])
    return within and combining is not None and combining.name in {arith.ADDF, arith.ADDI}


def first_tensor(operation: Operation) -> Value:
    """The operand over whose indices the loop nest of an ordered operation runs."""
    return next(operand for operand in operation.operands if operand.type.tensor)


def stored_operands(operation: Operation) -> frozenset[int]:
    """Positions of the operands that must be in memory before an element of the result can be evaluated."""
    match operation.name:
        case tt.GATHER:
            return frozenset({0})
        case tt.CAT:
            return frozenset({0, 1})
        case tt.RESHAPE if not is_unit_reshape(operation):
            return frozenset({0})
        case _:
            return frozenset()


def inner_axis(view: Operation, axis: int | None) -> int | None:
    """The axis of ``view``'s operand that becomes ``axis`` of its result; None if the operand has no such axis."""
    if axis is None or view.name == tt.SPLAT:
        return None
    if view.name == tt.SPLIT:
        return axis
    if view.name == tt.JOIN:
        return axis if axis < len(view.operands[0].type.shape) else None
    if view.name not in VIEWS:
        return axis
    before, after = view.operands[0].type.shape, view.result.type.shape
    match view.name:
        case tt.EXPAND_DIMS:
            added = view.attributes["axis"]
            assert isinstance(added, int)
            return None if axis == added else axis - (axis > added)
        case tt.BROADCAST:
            return axis if before[axis] == after[axis] else None
        case tt.TRANS:
            order = view.attributes["order"]
            assert isinstance(order, tuple)
            source = order[axis]
            assert isinstance(source, int)
            return source
        case _:
            if after[axis] == 1 or not is_unit_reshape(view):
                return None
            rank = sum(extent != 1 for extent in after[:axis])
            return [position for position, extent in enumerate(before) if extent != 1][rank]


def constant_scalar(value: Value) -> int | float | bool | None:
    """The value of a scalar constant, or of all elements of a splat constant; None for any other value."""
    operation = value.owner
    if operation is None or operation.name != arith.CONSTANT:
        return None
    attribute = operation.attributes["value"]
    if isinstance(attribute, (int, float)):
        return attribute
    return getattr(attribute, "splat", None)


def scalar_source(value: Value) -> Value | None:
    """The scalar or splat constant that every element of ``value`` provably equals; None if none is known."""
    while value.type.tensor:
        operation = value.owner
        if operation is None:
            return None
        if operation.name == arith.CONSTANT:
            return value if constant_scalar(value) is not None else None
        if operation.name not in VIEWS:
            return None
        value = operation.operands[0]
    return value


def load_parts(operation: Operation) -> tuple[Value, Value | None, Value | None]:
    """The pointer, the mask and the ``other`` operand of a ``tt.load``."""
    groups = operation.operand_segments()
    if len(groups) == 1:
        operands = [*operation.operands, None, None]
        pointer = operands[0]
        assert pointer is not None
        return pointer, operands[1], operands[2]
    return groups[0][0], (groups[1][0] if groups[1] else None), (groups[2][0] if groups[2] else None)


def store_parts(operation: Operation) -> tuple[Value, Value, Value | None]:
    """Pointer, value and mask of a ``tt.store``."""
    operands = operation.operands
    return operands[0], operands[1], (operands[2] if len(operands) > 2 else None)


def dot_inputs(operation: Operation) -> tuple[Value, ...]:
    """The operands of a dot except the accumulator (the third): its factors, and their scales if it has any."""
    return (*operation.operands[:2], *operation.operands[3:])


def loaded_by(value: Value) -> Operation | None:
    """The ``tt.load`` of which ``value`` is the result, perhaps transposed; None for any other value."""
    operation = value.owner
    while operation is not None and operation.name == tt.TRANS:
        operation = operation.operands[0].owner
    return operation if operation is not None and operation.name == tt.LOAD else None


# ---- The arguments that a pointer may be derived from, and the order of a program's operations ----

_STEPS = frozenset({tt.ADDPTR, tt.SPLAT, tt.BROADCAST, tt.EXPAND_DIMS, tt.RESHAPE, tt.TRANS, tt.BITCAST})
# Operations that write memory, or let other programs write memory, that the analysis cannot identify.
_UNSEEN = WRITES - {FENCE, tt.STORE}


def pointer_roots(pointer: Value) -> frozenset[Value] | None:
    """The kernel's arguments that ``pointer`` may be an offset from; None if they are unknown."""
    roots: set[Value] = set()
    seen: set[Value] = set()
    pending = [pointer]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        operation = value.owner
        if operation is not None:
            if operation.name not in _STEPS:
                return None
            pending.append(operation.operands[0])
            continue
        region = value.block.region if value.block is not None else None
        owner = region.owner if region is not None else None
        if owner is None or value.block is None:
            return None
        if owner.name == tt.FUNC and region is not None and value.block is region.blocks[0]:
            roots.add(value)
        elif owner.name == flow.FOR:
            position = value.block.arguments.index(value) - 1
            pending += [owner.operands[3 + position], value.block.operations[-1].operands[position]]
        else:
            return None
    return frozenset(roots)


def keeps_unchanged(module: Module, load: Operation) -> bool:
    """Whether the memory that ``load`` reads can be assumed constant while the programs of a launch run.

    True if nothing is stored through an argument that the load's pointer derives from, and programs cannot wait for
    each other: then no program can observe whether another program's stores came before its own loads. But a program
    can observe its own stores, and two arguments may share memory, so no store of the program may come before the load.
    """
    roots = pointer_roots(load_parts(load)[0])
    if roots is None:
        return False
    for operation in every_operation(module.entry):
        name = operation.name
        if name == tt.STORE:
            stored = pointer_roots(operation.operands[0])
            if stored is None or stored & roots or may_precede(operation, load):
                return False
        elif name in _UNSEEN:
            return False
    return True


def may_precede(operation: Operation, other: Operation) -> bool:
    """Whether a program may run ``operation`` before ``other``: in the text's order, or in an earlier iteration."""
    paths = _path(operation), _path(other)
    for mine, its in zip(*paths, strict=False):
        if mine is its:
            if mine.name in {flow.FOR, flow.WHILE}:
                return True
            continue
        assert mine.block is not None
        assert its.block is not None
        if mine.block is its.block:
            operations = mine.block.operations
            return operations.index(mine) < operations.index(its)
        # Jumps go forward in the order of a function's blocks. Of the two branches of an ``scf.if`` only one runs.
        region = mine.block.region
        if region is None or region is not its.block.region:
            return False
        return region.blocks.index(mine.block) < region.blocks.index(its.block)
    return False


def _path(operation: Operation) -> list[Operation]:
    """The operations that enclose ``operation``, outermost first, and then ``operation`` itself."""
    path = [operation]
    while (block := path[0].block) is not None and block.region is not None and block.region.owner is not None:
        path.insert(0, block.region.owner)
    return path


def every_operation(operation: Operation) -> list[Operation]:
    """``operation`` and all operations within its regions."""
    operations: list[Operation] = []
    pending = [operation]
    while pending:
        current = pending.pop()
        operations.append(current)
        pending += [inner for region in current.regions for block in region.blocks for inner in block.operations]
    return operations
