"""Effects: whether a kernel reads or writes through each of its pointers, found in its SSA form.

A pointer's roots are the kernel arguments it may derive from. Roots flow through address arithmetic, shape changes,
selects, loops, branches, calls and block arguments until nothing changes. An operation that is not known to be
harmless counts as reading and writing through every pointer it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.sources.triton.parameters import module_arguments
from silo.sources.triton.ssa import Block, Module, Operation, Value

__all__ = ["argument_effects", "control_flows", "effects_of", "pointer_roots"]

_READS, _WRITES = 1, 2

# What each operation does through its first operand; its other operands are values or indices.
_ACCESSES = {
    "tt.load": _READS,
    "tt.store": _WRITES,
    "tt.atomic_load": _READS,
    "tt.atomic_poll": _READS,
    "tt.atomic_store": _WRITES,
    "tt.atomic_rmw": _READS | _WRITES,
    "tt.atomic_cas": _READS | _WRITES,
    "tt.descriptor_load": _READS,
    "tt.descriptor_gather": _READS,
    "tt.descriptor_store": _WRITES,
    "tt.descriptor_scatter": _WRITES,
    "tt.descriptor_reduce": _READS | _WRITES,
}
# Operations whose results point where their operands point.
_DERIVES = frozenset(
    {
        "tt.addptr",
        "tt.advance",
        "tt.bitcast",
        "tt.broadcast",
        "tt.cat",
        "tt.expand_dims",
        "tt.gather",
        "tt.join",
        "tt.make_tensor_descriptor",
        "tt.make_tensor_ptr",
        "tt.reshape",
        "tt.splat",
        "tt.split",
        "tt.trans",
        "tt.unsplat",
        "arith.select",
    }
)
_HARMLESS = frozenset({"tt.print", "tt.assert", "arith.cmpi"})
_EFFECTS = {0: Effect.NONE, _READS: Effect.READ, _WRITES: Effect.WRITE, _READS | _WRITES: Effect.BOTH}


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
        if operation.name not in _DERIVES and operation.name not in _CONTROL:
            analysis.roots.update({value: {-1} for value in operation.results if _points(value)})
    analysis.solve()
    return {value: frozenset(roots) for value, roots in analysis.roots.items() if _points(value)}


def control_flows(module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """(source, target) of every value that a branch, loop or call hands to another value."""
    return _CONTROL.get(operation.name, _nothing)(module, operation)


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
        name = operation.name
        if name in _DERIVES:
            return ((source, target) for target in operation.results for source in operation.operands)
        if name in _CONTROL:
            return _CONTROL[name](self.module, operation)
        if name in _ACCESSES or name in _TERMINATORS or name in _HARMLESS:
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
        name = operation.name
        if name in _ACCESSES:
            self._mark(operation.operands[:1], _ACCESSES[name])
            self._mark(operation.operands[1:], _READS | _WRITES)  # an address that is stored escapes
        elif name == "tt.call":
            if self.module.functions.get(operation.callee) is None:
                self._mark(operation.operands, _READS | _WRITES)
        elif not (name in _DERIVES or name in _CONTROL or name in _TERMINATORS or name in _HARMLESS):
            self._mark(operation.operands, _READS | _WRITES)

    def _mark(self, values: Iterable[Value], what: int) -> None:
        for value in values:
            for root in self.roots.get(value, ()):
                self.effects[root] = self.effects.get(root, 0) | what


_TERMINATORS = frozenset(
    {"scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", "ub.unreachable"}
)


def _entries(operation: Operation) -> Iterator[Block]:
    return (region.blocks[0] for region in operation.regions if region.blocks)


def _terminators(operation: Operation, region: int) -> Iterator[Operation]:
    for block in operation.regions[region].blocks if region < len(operation.regions) else ():
        if block.operations:
            yield block.operations[-1]


def _for(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    carried = operation.regions[0].blocks[0].arguments[1:]
    yield from zip(operation.operands[3:], carried, strict=False)
    yield from zip(operation.operands[3:], operation.results, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands, carried, strict=False)
        yield from zip(end.operands, operation.results, strict=False)


def _if(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    for region in range(len(operation.regions)):
        for end in _terminators(operation, region):
            yield from zip(end.operands, operation.results, strict=False)


def _while(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    before, after = (operation.regions[index].blocks[0].arguments for index in (0, 1))
    yield from zip(operation.operands, before, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands[1:], after, strict=False)
        yield from zip(end.operands[1:], operation.results, strict=False)
    for end in _terminators(operation, 1):
        yield from zip(end.operands, before, strict=False)


def _reduce(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    inner = operation.regions[0].blocks[0].arguments
    yield from zip((*operation.operands, *operation.operands), inner, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands, operation.results, strict=False)


def _branch(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    for index, block in enumerate(operation.successors):
        yield from zip(operation.successor_operands(index), block.arguments, strict=False)


def _call(module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    callee = module.functions.get(operation.callee)
    if callee is None or not callee.regions[0].blocks:
        return
    yield from zip(operation.operands, callee.regions[0].blocks[0].arguments, strict=False)
    for end in _terminators(callee, 0):
        if end.name == "tt.return":
            yield from zip(end.operands, operation.results, strict=False)


def _nothing(_module: Module, _operation: Operation) -> Iterator[tuple[Value, Value]]:
    return iter(())


_CONTROL = {
    "cf.br": _branch,
    "cf.cond_br": _branch,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "tt.call": _call,
    "tt.func": _nothing,
    "tt.reduce": _reduce,
    "tt.scan": _reduce,
}
