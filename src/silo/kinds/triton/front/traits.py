"""Traits of a kernel, read from its SSA form: what kinds of operations it has, and what its blocks run over.

A block is a range ``0 .. length - 1`` (``tl.arange``). Where offsets made from it are compared with an argument of the
kernel, in a mask, that argument is how far the block's dimension goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from silo.core.code_facts import BlockTraits, Traits
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.operation_record import Family
from silo.kinds.triton.front.operations.operation_table import OPERATIONS, family_of, is_arithmetic
from silo.kinds.triton.front.ssa import Attribute, Dense, Module, Operation, Value

__all__ = ["traits_of"]

_BELOW = frozenset((2, 6))  # slt, ult of arith.cmpi


def traits_of(module: Module, names: Sequence[str]) -> Traits:
    """The traits of a module's kernel; functions it calls count as part of it. ``names`` are its arguments' names."""
    operations = list(module.walk())
    counts = Counter(family_of(operation) for operation in operations)
    arguments = {value: index for index, value in enumerate(module.entry.regions[0].blocks[0].arguments)}
    along = dict(_along(operations))
    reduced = {length for one in operations if one.name == tt.REDUCE for length in _axis_lengths(one)}
    scanned = {length for one in operations if one.name == tt.SCAN for length in _axis_lengths(one)}
    limits: dict[int, dict[int, None]] = {}
    for operation in operations:
        if operation.name == arith.CMPI and operation.attributes.get("predicate") in _BELOW:
            lengths = along.get(operation.operands[0], frozenset())
            position = _argument(operation.operands[1], arguments)
            if len(lengths) == 1 and position is not None:
                limits.setdefault(next(iter(lengths)), {})[position] = None
    loops = [operation for operation in operations if family_of(operation) is Family.LOOP]
    stepped = {step: position for loop in loops for step, position in _steps(loop, arguments)}
    placed = set(_placed(operations))
    lengths = {length for found in along.values() for length in found}
    for length in lengths:
        position = stepped.get(length)
        if position is not None:
            limits.setdefault(length, {})[position] = None
    return Traits(
        loads=counts[Family.LOAD],
        stores=counts[Family.STORE],
        atomics=counts[Family.ATOMIC],
        dots=counts[Family.DOT],
        reductions=counts[Family.REDUCTION],
        scans=counts[Family.SCAN],
        blocks={
            length: BlockTraits(
                length,
                tuple(names[position] for position in limits.get(length, {})),
                reduced=length in reduced,
                scanned=length in scanned,
                stepped=length in stepped,
                placed=length in placed,
            )
            for length in sorted(lengths)
        },
    )


def _along(operations: list[Operation]) -> Iterator[tuple[Value, frozenset[int]]]:
    """Of which ranges each tensor of integers is made, by their length."""
    known: dict[Value, frozenset[int]] = {}
    for operation in operations:
        if operation.name == tt.MAKE_RANGE:
            start, end = operation.attributes.get("start"), operation.attributes.get("end")
            found = frozenset((end - start,)) if isinstance(start, int) and isinstance(end, int) else frozenset[int]()
        elif _keeps_range(operation):
            found = frozenset[int]().union(*(known.get(operand, frozenset()) for operand in operation.operands))
        else:
            continue
        for result in operation.results:
            known[result] = found
            if found:
                yield result, found


def _axis_lengths(operation: Operation) -> Iterator[int]:
    """How long the axis of a reduction or a scan is."""
    axis = operation.attributes.get("axis")
    if isinstance(axis, int):
        for operand in operation.operands:
            if axis < len(operand.type.shape):
                yield operand.type.shape[axis]


def _placed(operations: list[Operation]) -> Iterator[int]:
    """Constants by which something that comes from a program's number is multiplied."""
    numbers: set[Value] = set()
    for operation in operations:
        if operation.name == tt.GET_PROGRAM_ID or (
            is_arithmetic(operation.name) and any(operand in numbers for operand in operation.operands)
        ):
            numbers.update(operation.results)
            if operation.name == arith.MULI:
                factors = [_constant(operand) for operand in operation.operands]
                yield from (factor for factor in factors if factor is not None)


def _steps(loop: Operation, arguments: Mapping[Value, int]) -> Iterator[tuple[int, int | None]]:
    """What a counted loop steps by, and the argument it goes up to: ``range(0, n, B)`` and ``range(cdiv(n, B))``."""
    if loop.name != flow.FOR:
        return
    _, upper, step = loop.operands[:3]
    by = _constant(step)
    if by is not None and by > 1:
        yield by, _argument(upper, arguments)
    owner = upper.owner
    if by == 1 and owner is not None and owner.name in (arith.DIVSI, arith.CEILDIVSI):
        divisor = _constant(owner.operands[1])
        if divisor is not None:
            yield divisor, _argument(owner.operands[0], arguments)


def _constant(value: Value) -> int | None:
    if value.owner is None or value.owner.name != arith.CONSTANT:
        return None
    found: Attribute | None = value.owner.attributes.get("value")
    if isinstance(found, Dense):
        found = found.splat
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _argument(value: Value, arguments: Mapping[Value, int]) -> int | None:
    """The position of the argument that a size comes from, or None."""
    while value not in arguments:
        if value.owner is None or not _keeps_size(value.owner):
            return None
        value = value.owner.operands[0]
    return arguments[value]


def _keeps_range(operation: Operation) -> bool:
    record = OPERATIONS.get(operation.name)
    return record is not None and record.keeps_range


def _keeps_size(operation: Operation) -> bool:
    record = OPERATIONS.get(operation.name)
    return record is not None and record.keeps_size
