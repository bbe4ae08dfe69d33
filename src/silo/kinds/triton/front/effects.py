"""Effects: whether a kernel reads or writes through each of its pointers, found in its SSA form.

A pointer's roots are the kernel arguments it may derive from. Roots flow through address arithmetic, shape changes,
selects, loops, branches, calls and block arguments until nothing changes. The records of operations hold these flows,
and what is done through a pointer; an operation without either counts as reading and writing through every pointer it
gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.operation_table import OPERATIONS
from silo.kinds.triton.front.operations.pointer_flows import Flow, derived, no_flow
from silo.kinds.triton.front.ssa import Block, Module, Operation, Value
from silo.kinds.triton.front.triton_parameters import module_arguments

__all__ = ["argument_effects", "control_flows", "effects_of", "pointer_roots"]

_READS, _WRITES = 1, 2

_BITS = {Effect.NONE: 0, Effect.READ: _READS, Effect.WRITE: _WRITES, Effect.BOTH: _READS | _WRITES}
_EFFECTS = {bits: effect for effect, bits in _BITS.items()}


def effects_of(module: Module, signature: Signature, specialization: Specialization) -> dict[str, Effect]:
    """The effect of each pointer and descriptor parameter, by name; for ``Signature.with_effects``.

    A pointer that is None, or that the kernel never uses, has no effect.
    """
    kinds = (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)
    found = {parameter.name: Effect.NONE for parameter in signature.parameters if parameter.kind in kinds}
    for slot, effect in zip(module_arguments(signature, specialization, module), argument_effects(module), strict=True):
        if slot.part == "" and slot.parameter in found:
            found[slot.parameter] = effect
    return found


def argument_effects(module: Module) -> tuple[Effect, ...]:
    """The effect through each argument of the kernel, in order; ``NONE`` for scalars."""
    return _Analysis(module).run()


def pointer_roots(module: Module) -> dict[Value, frozenset[int]]:
    """Which arguments of the kernel, by position, each pointer may derive from; -1 for any memory."""
    analysis = _Analysis(module)
    for operation in analysis.operations:
        if _flow(operation) in (None, no_flow):
            analysis.roots.update({value: {-1} for value in operation.results if _points(value)})
    analysis.solve()
    return {value: frozenset(roots) for value, roots in analysis.roots.items() if _points(value)}


def control_flows(module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """(source, target) of every value that a branch, loop or call hands to another value."""
    flow = _flow(operation)
    return iter(()) if flow is None or flow is derived else flow(module, operation)


def _points(value: Value) -> bool:
    return value.type.pointer or value.type.element.startswith("!")


@dataclass(slots=True, eq=False)
class _Analysis:
    module: Module
    roots: dict[Value, set[int]] = field(default_factory=dict[Value, set[int]])
    effects: dict[int, int] = field(default_factory=dict[int, int])
    operations: list[Operation] = field(init=False)

    def __post_init__(self) -> None:
        self.operations = list(self.module.walk())

    def run(self) -> tuple[Effect, ...]:
        self.solve()
        for operation in self.operations:
            self._touch(operation)
        arguments = self.module.entry.regions[0].blocks[0].arguments
        return tuple(_EFFECTS[self.effects.get(index, 0)] for index in range(len(arguments)))

    def solve(self) -> None:
        """Find the roots of every value."""
        arguments = self.module.entry.regions[0].blocks[0].arguments
        for index, argument in enumerate(arguments):
            if _points(argument):
                self.roots[argument] = {index}
        flows = [flow for operation in self.operations for flow in self._flows(operation)]
        changed = True
        while changed:
            changed = False
            for source, target in flows:
                reached = self.roots.get(source)
                if reached and not reached <= self.roots.setdefault(target, set()):
                    self.roots[target] |= reached
                    changed = True

    # -- where pointers flow -----------------------------------------------------------------------------------------

    def _flows(self, operation: Operation) -> Iterator[tuple[Value, Value]]:
        flow = _flow(operation)
        if flow is not None:
            return flow(self.module, operation)
        if _access(operation) is not None:
            return iter(())
        # Unknown: a pointer that comes out may be any that went in, and what its regions get is any of them too.
        inner = (argument for block in _entries(operation) for argument in block.arguments)
        return (
            (source, target)
            for target in (*operation.results, *inner)
            if _points(target)
            for source in operation.operands
        )

    # -- what is done through them -----------------------------------------------------------------------------------

    def _touch(self, operation: Operation) -> None:
        access = _access(operation)
        if access is not None:
            self._mark(operation.operands[:1], _BITS[access])
            self._mark(operation.operands[1:], _READS | _WRITES)  # an address that is stored escapes
        elif operation.name == tt.CALL:
            if self.module.functions.get(operation.callee) is None:
                self._mark(operation.operands, _READS | _WRITES)
        elif _flow(operation) is None:
            self._mark(operation.operands, _READS | _WRITES)

    def _mark(self, values: Iterable[Value], what: int) -> None:
        for value in values:
            for root in self.roots.get(value, ()):
                self.effects[root] = self.effects.get(root, 0) | what


def _entries(operation: Operation) -> Iterator[Block]:
    return (region.blocks[0] for region in operation.regions if region.blocks)


def _flow(operation: Operation) -> Flow | None:
    record = OPERATIONS.get(operation.name)
    return None if record is None else record.flow


def _access(operation: Operation) -> Effect | None:
    record = OPERATIONS.get(operation.name)
    return None if record is None else record.access
