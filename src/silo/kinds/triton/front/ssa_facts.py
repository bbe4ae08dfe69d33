"""Facts of code from a kernel's SSA form: effects on memory, traits, numerics, and arguments that decide accesses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from silo.core.code_facts import BlockTraits, Numerics, Traits
from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import digest
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.operation_record import Family, OperationRecord, derived, no_flow
from silo.kinds.triton.front.operations.operation_table import OPERATIONS, family_of, is_arithmetic
from silo.kinds.triton.front.ssa import Attribute, Dense, Module, Operation, Value
from silo.kinds.triton.front.triton_specialize import module_arguments

__all__ = [
    "LoadedAddresses",
    "argument_effects",
    "control_flows",
    "effects_of",
    "loaded_addresses",
    "numerics_of",
    "pointer_roots",
    "traits_of",
]

# ---- Effects: whether a kernel reads or writes through each of its pointers ----

_READS, _WRITES = 1, 2

_BITS = {Effect.NONE: 0, Effect.READ: _READS, Effect.WRITE: _WRITES, Effect.BOTH: _READS | _WRITES}
_EFFECTS = {bits: effect for effect, bits in _BITS.items()}


def effects_of(module: Module, signature: Signature, specialization: Specialization) -> dict[str, Effect]:
    """The effect of each pointer and descriptor parameter, by name; for ``Signature.with_effects``.

    A pointer that is None, or that the kernel never uses, has no effect.
    """
    kinds = (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)
    effects = {parameter.name: Effect.NONE for parameter in signature.parameters if parameter.kind in kinds}
    for slot, effect in zip(module_arguments(signature, specialization, module), argument_effects(module), strict=True):
        if slot.part == "" and slot.parameter in effects:
            effects[slot.parameter] = effect
    return effects


def argument_effects(module: Module) -> tuple[Effect, ...]:
    """The effect through each argument of the kernel, in order; ``NONE`` for scalars."""
    return _Analysis(module).run()


def pointer_roots(module: Module) -> dict[Value, frozenset[int]]:
    """The arguments of the kernel, by position, from which each pointer may derive; -1 means any memory."""
    analysis = _Analysis(module)
    for operation, record in analysis.operations:
        if (None if record is None else record.flow) in (None, no_flow):
            analysis.roots.update({value: {-1} for value in operation.results if _points(value)})
    analysis.solve()
    return {value: frozenset(roots) for value, roots in analysis.roots.items() if _points(value)}


def control_flows(module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Yields (source, target) for every value that a branch, loop or call passes on to another value."""
    record = OPERATIONS.get(operation.name)
    flow = None if record is None else record.flow
    return iter(()) if flow is None or flow is derived else flow(module, operation)


def _points(value: Value) -> bool:
    return value.type.pointer or value.type.element.startswith("!")


@dataclass(slots=True, eq=False)
class _Analysis:
    module: Module
    roots: dict[Value, set[int]] = field(default_factory=dict[Value, set[int]])
    effects: dict[int, int] = field(default_factory=dict[int, int])
    operations: list[tuple[Operation, OperationRecord | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.operations = [(operation, OPERATIONS.get(operation.name)) for operation in self.module.walk()]

    def run(self) -> tuple[Effect, ...]:
        self.solve()
        for operation, record in self.operations:
            access = None if record is None else record.access
            if access is not None:
                self._mark(operation.operands[:1], _BITS[access])
                if len(operation.operands) > 1:
                    # a stored address escapes, so anything may happen through it
                    self._mark(operation.operands[1:], _READS | _WRITES)
            elif operation.name == tt.CALL:
                if self.module.functions.get(operation.callee) is None:
                    self._mark(operation.operands, _READS | _WRITES)
            elif record is None or record.flow is None:
                self._mark(operation.operands, _READS | _WRITES)
        arguments = self.module.entry.regions[0].blocks[0].arguments
        return tuple(_EFFECTS[self.effects.get(index, 0)] for index in range(len(arguments)))

    def solve(self) -> None:
        """Finds, for each pointer of the module, the kernel's arguments from which it may derive."""
        arguments = self.module.entry.regions[0].blocks[0].arguments
        for index, argument in enumerate(arguments):
            if _points(argument):
                self.roots[argument] = {index}
        flows: list[tuple[Value, Value]] = []
        for operation, record in self.operations:
            if record is not None and record.flow is derived:  # results point where operands point
                flows += [(source, target) for target in operation.results for source in operation.operands]
            elif record is not None and record.flow is not None:
                flows += record.flow(self.module, operation)
            elif record is None or record.access is None:
                # Any pointer among the operation's results, or among the arguments of its regions, may be any of the
                # pointer operands.
                targets = list(operation.results)
                for region in operation.regions:
                    targets += region.blocks[0].arguments if region.blocks else ()
                for target in targets:
                    if target.type.pointer or target.type.element.startswith("!"):  # _points() inlined, for speed
                        flows += [(source, target) for source in operation.operands]
        changed = True
        while changed:
            changed = False
            for source, target in flows:
                reached = self.roots.get(source)
                if reached and not reached <= self.roots.setdefault(target, set()):
                    self.roots[target] |= reached
                    changed = True

    def _mark(self, values: Iterable[Value], effect: int) -> None:
        for value in values:
            for root in self.roots.get(value, ()):
                self.effects[root] = self.effects.get(root, 0) | effect


# ---- Traits of a kernel: its kinds of operations, and the axes of its blocks ----

_BELOW = frozenset((2, 6))  # the predicates slt and ult of arith.cmpi


def traits_of(module: Module, names: Sequence[str]) -> Traits:
    """The traits of a module's kernel; functions that the kernel calls count as part of it.

    ``names`` are the names of the kernel's arguments.
    """
    operations = module.walk()
    counts = Counter(family_of(operation) for operation in operations)
    arguments = {value: index for index, value in enumerate(module.entry.regions[0].blocks[0].arguments)}
    along = dict(_along(operations))
    reduced = {length for operation in operations if operation.name == tt.REDUCE for length in _axis_lengths(operation)}
    scanned = {length for operation in operations if operation.name == tt.SCAN for length in _axis_lengths(operation)}
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
    lengths = {length for axis_lengths in along.values() for length in axis_lengths}
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
    """Yields each tensor of integers that is computed from ranges (``tl.arange``), with the lengths of these ranges."""
    memo: dict[Value, frozenset[int]] = {}
    for operation in operations:
        if operation.name == tt.MAKE_RANGE:
            start, end = operation.attributes.get("start"), operation.attributes.get("end")
            lengths = frozenset((end - start,)) if isinstance(start, int) and isinstance(end, int) else frozenset[int]()
        elif _keeps_range(operation):
            lengths = frozenset[int]().union(*(memo.get(operand, frozenset()) for operand in operation.operands))
        else:
            continue
        for result in operation.results:
            memo[result] = lengths
            if lengths:
                yield result, lengths


def _axis_lengths(operation: Operation) -> Iterator[int]:
    """The lengths of the axis along which a reduction or a scan runs."""
    axis = operation.attributes.get("axis")
    if isinstance(axis, int):
        for operand in operation.operands:
            if axis < len(operand.type.shape):
                yield operand.type.shape[axis]


def _placed(operations: list[Operation]) -> Iterator[int]:
    """The constants by which values derived from a program id are multiplied."""
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
    """Yields the step of a counted loop, and the position of the argument that bounds the loop (None if it has none).

    ``range(0, n, B)`` and ``range(cdiv(n, B))`` both give the step ``B`` and the argument ``n``.
    """
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
    attribute: Attribute | None = value.owner.attributes.get("value")
    if isinstance(attribute, Dense):
        attribute = attribute.splat
    return attribute if isinstance(attribute, int) and not isinstance(attribute, bool) else None


def _argument(value: Value, arguments: Mapping[Value, int]) -> int | None:
    """The position of the argument from which a size is computed, or None."""
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


# ---- Numerics of a kernel: the order of each sum, and the expression of each stored value ----

_FLOAT = re.compile(r"b?f\d+\w*")
# Attributes that describe layout or caching, and so do not change results.
_NO_MATTER = frozenset(("cache", "evict", "isVolatile", "operandSegmentSizes", "resultSegmentSizes"))


@dataclass(frozen=True, slots=True)
class _Known:
    """The digest of a value.

    ``data`` is false for a value that is computed only from program ids, ranges, and integer arguments and constants.
    """

    text: str
    data: bool


_POSITION = _Known("position", data=False)


def numerics_of(module: Module) -> Numerics:
    """The numerics of a module's kernel; functions that the kernel calls count as part of it."""
    counts = Counter(record.order for _, record in _recorded(module) if record.order)
    carried = sum(_carries(operation, record) for operation, record in _recorded(module))
    if carried:
        counts["loop or call that carries values"] = carried
    ordered = tuple(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())
    memo = {
        value: _Known(f"argument {index}", data=value.type.pointer or _is_float(value))
        for index, value in enumerate(module.entry.regions[0].blocks[0].arguments)
    }
    return Numerics(ordered, frozenset(_stored(module.entry, memo)))


def _is_float(value: Value) -> bool:
    return not value.type.pointer and _FLOAT.fullmatch(value.type.element) is not None


def _recorded(module: Module) -> Iterator[tuple[Operation, OperationRecord]]:
    for operation in module.walk():
        record = OPERATIONS.get(operation.name)
        if record is not None:
            yield operation, record


def _carries(operation: Operation, record: OperationRecord) -> bool:
    """Whether an operation passes floating-point values around a loop, to another block, or into a function."""
    if record.family is Family.LOOP:
        return any(_is_float(result) for result in operation.results)
    return record.carries and any(_is_float(value) for value in (*operation.operands, *operation.results))


def _stored(operation: Operation, memo: dict[Value, _Known]) -> Iterator[str]:
    """Yields a digest of every store inside of an operation; adds the digest of every value it visits to ``memo``."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _stored(inner, memo)
                if family_of(inner) is Family.STORE:
                    target, *rest = (memo.get(value, _POSITION) for value in inner.operands)
                    yield digest(
                        "store", [inner.name, target.text, *(operand.text for operand in rest if operand.data)]
                    )
                stored = _result(inner, memo)
                memo.update((result, stored) for result in inner.results)


def _result(operation: Operation, memo: Mapping[Value, _Known]) -> _Known:
    """The digest that all results of an operation share."""
    operands = [memo.get(value, _POSITION) for value in operation.operands]
    if operation.name == arith.CONSTANT:
        return _Known(f"constant {_plain(operation.attributes.get('value', ''))}", data=_is_float(operation.result))
    record = OPERATIONS.get(operation.name)
    loads = record is not None and record.family is Family.LOAD
    if record is not None and record.moves and operands and not any(operand.data for operand in operands[1:]):
        return operands[0]
    inside = [
        memo.get(value, _POSITION)
        for region in operation.regions
        for block in region.blocks
        for value in (block.operations[-1].operands if block.operations else ())
    ]
    if not loads and not any(part.data for part in (*operands, *inside)):
        return _POSITION
    attributes = {name: _plain(attribute) for name, attribute in operation.attributes.items() if name not in _NO_MATTER}
    types = [value.type.element for value in operation.results]
    parts = [part.text for part in (*operands, *inside)]
    if loads:
        parts = [operands[0].text, *(operand.text for operand in operands[1:] if operand.data)]
    return _Known(digest("value", [operation.name, types, attributes, parts]), data=True)


def _plain(attribute: Attribute) -> str:
    """An attribute as text, without the shape of a constant."""
    if isinstance(attribute, Dense):
        return repr(attribute.splat if attribute.splat is not None else attribute.values)
    return repr(attribute)


_ANY = -1


@dataclass(frozen=True, slots=True)
class LoadedAddresses:
    """Positions of a kernel's arguments, by what their contents are used for; -1 means memory of unknown origin.

    The contents of ``decisive`` arguments affect an address, a mask, a branch or a loop; the contents of ``stored``
    arguments affect a value that is stored. ``read`` are all arguments that are read.
    """

    decisive: frozenset[int]
    stored: frozenset[int]
    read: frozenset[int]


def loaded_addresses(module: Module) -> LoadedAddresses:
    """Traces every loaded value through the operations, branches and loops of a module.

    If the trace cannot exclude that an argument's contents affect an access or a stored value, the result lists the
    argument.
    """
    operations = tuple(module.walk())
    roots = pointer_roots(module)
    reach: dict[Value, frozenset[int]] = {}
    changed = True
    while changed:
        changed = False
        for operation in operations:
            for target, sources in _address_steps(module, operation, roots, reach):
                if not sources <= reach.get(target, frozenset()):
                    reach[target] = reach.get(target, frozenset()) | sources
                    changed = True
    decisive: set[int] = set()
    stored: set[int] = set()
    read: set[int] = set()
    for operation in operations:
        access = _access(operation)
        if access is not None:
            decisive |= _union(_deciding(operation), reach)
            stored |= _union(operation.operands[1:], reach) if access is not Effect.READ else frozenset()
            read |= roots.get(operation.operands[0], frozenset((_ANY,))) if access is not Effect.WRITE else frozenset()
        elif operation.regions or operation.successors or _decides(operation):
            decisive |= _union((operand for operand in operation.operands if not operand.type.tensor), reach)
    return LoadedAddresses(frozenset(decisive), frozenset(stored), frozenset(read))


def _access(operation: Operation) -> Effect | None:
    record = OPERATIONS.get(operation.name)
    return None if record is None else record.access


def _decides(operation: Operation) -> bool:
    return operation.name == "scf.condition"


def _deciding(operation: Operation) -> Iterator[Value]:
    """The operands of an access that decide its address and whether it happens: pointer, indices and masks."""
    yield operation.operands[0]
    yield from (
        operand for operand in operation.operands[1:] if operand.type.element in ("i1", "index") or _is_index(operation)
    )


def _is_index(operation: Operation) -> bool:
    return "descriptor" in operation.name


def _union(values: Iterable[Value], reach: dict[Value, frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*(reach.get(value, frozenset()) for value in values))


def _address_steps(
    module: Module, operation: Operation, roots: dict[Value, frozenset[int]], reach: dict[Value, frozenset[int]]
) -> Iterator[tuple[Value, frozenset[int]]]:
    """Yields (value, arguments): the kernel's arguments whose contents ``value`` depends on through ``operation``."""
    origins = _union(operation.operands, reach)
    access = _access(operation)
    if access is not None and access is not Effect.WRITE and operation.operands:
        origins |= roots.get(operation.operands[0], frozenset((_ANY,)))
    for result in operation.results:
        yield result, origins
    for region in operation.regions:
        for block in region.blocks:
            for argument in block.arguments:
                yield argument, origins
    for source, target in control_flows(module, operation):
        yield target, reach.get(source, frozenset())
