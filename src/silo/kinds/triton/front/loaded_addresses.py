"""Which arguments' contents decide the accesses of a kernel, and the values that it stores: a data-flow analysis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from silo.core.signature import Effect
from silo.kinds.triton.front.operations.operation_table import OPERATIONS
from silo.kinds.triton.front.ssa import Module, Operation, Value
from silo.kinds.triton.front.ssa_facts import control_flows, pointer_roots

__all__ = ["LoadedAddresses", "loaded_addresses"]

_ANY = -1


@dataclass(frozen=True, slots=True)
class LoadedAddresses:
    """Positions of arguments of a kernel; -1 stands for memory that no argument names.

    The content of ``decisive`` arguments decides an address, a mask, a branch or a loop; the content of ``stored`` ones
    decides a value that is stored. ``read`` are all arguments that are read.
    """

    decisive: frozenset[int]
    stored: frozenset[int]
    read: frozenset[int]


def loaded_addresses(module: Module) -> LoadedAddresses:
    """Follow every loaded value through the operations, branches and loops of a module. Errs towards more arguments."""
    operations = tuple(module.walk())
    roots = pointer_roots(module)
    reach: dict[Value, frozenset[int]] = {}
    changed = True
    while changed:
        changed = False
        for operation in operations:
            for target, sources in _steps(module, operation, roots, reach):
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
            decisive |= _union((one for one in operation.operands if not one.type.tensor), reach)
    return LoadedAddresses(frozenset(decisive), frozenset(stored), frozenset(read))


def _access(operation: Operation) -> Effect | None:
    record = OPERATIONS.get(operation.name)
    return None if record is None else record.access


def _decides(operation: Operation) -> bool:
    return operation.name == "scf.condition"


def _deciding(operation: Operation) -> Iterator[Value]:
    """The operands of an access that decide where it goes and whether it happens: its address and its masks."""
    yield operation.operands[0]
    yield from (one for one in operation.operands[1:] if one.type.element in ("i1", "index") or _is_index(operation))


def _is_index(operation: Operation) -> bool:
    return "descriptor" in operation.name


def _union(values: Iterable[Value], reach: dict[Value, frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*(reach.get(value, frozenset()) for value in values))


def _steps(
    module: Module, operation: Operation, roots: dict[Value, frozenset[int]], reach: dict[Value, frozenset[int]]
) -> Iterator[tuple[Value, frozenset[int]]]:
    """(value, the arguments whose content it depends on by this operation)."""
    own = _union(operation.operands, reach)
    access = _access(operation)
    if access is not None and access is not Effect.WRITE and operation.operands:
        own |= roots.get(operation.operands[0], frozenset((_ANY,)))
    for result in operation.results:
        yield result, own
    for region in operation.regions:
        for block in region.blocks:
            for argument in block.arguments:
                yield argument, own
    for source, target in control_flows(module, operation):
        yield target, reach.get(source, frozenset())
