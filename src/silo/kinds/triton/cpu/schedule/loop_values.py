"""Values that loops carry, and values that cross the edges between blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silo.kinds.triton.cpu.analysis.affine import is_structurally_affine
from silo.kinds.triton.cpu.analysis.value_properties import any_of, is_whole, scalar_source, stored_operands
from silo.kinds.triton.cpu.schedule.block_schedule import Carried
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.operation_table import DOTS
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["NO_OFFSETS", "Offsets", "carried_of", "declare_results", "jump_arguments"]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Loop-carried values that are an affine start plus an offset, which is equal for all elements of the tile.

    ``wrapped`` are carried values whose start is affine only if ``x % n`` counts as ``x`` (see ``analysis.affine``).
    """

    plain: frozenset[Value] = frozenset()
    wrapped: frozenset[Value] = frozenset()

    def within(self, carried: Sequence[Carried]) -> Offsets:
        """Returns these offsets together with those offsets that an inner loop carries and whose starts are affine."""
        starts = [(entry.argument, entry.initial) for entry in carried if entry.kind == "offset"]
        plain = {argument for argument, start in starts if is_structurally_affine(start, self.plain)}
        wrapped = {arg for arg, start in starts if is_structurally_affine(start, self.wrapped, wrapped=True)}
        return Offsets(self.plain | plain, self.wrapped | wrapped)


NO_OFFSETS = Offsets()


def carried_of(operation: Operation) -> list[Carried]:
    """Returns one ``Carried`` for each value that an ``scf.for`` carries from one iteration to the next."""
    body = operation.regions[0].blocks[0]
    yielded = body.operations[-1].operands
    entries: list[Carried] = []
    for argument, initial, value, result in zip(
        body.arguments[1:], operation.operands[3:], yielded, operation.results, strict=True
    ):
        if not argument.type.tensor:
            entries.append(Carried(argument, initial, value, result, "scalar"))
        elif _is_needed_whole(argument) or _is_needed_whole(result):
            entries.append(Carried(argument, initial, value, result, "buffer"))
        elif value is argument:
            entries.append(Carried(argument, initial, value, result, "invariant"))
        else:
            step = _uniform_step(argument, value)
            kind = "offset" if step is not None else "buffer"
            entries.append(Carried(argument, initial, value, result, kind, step))
    return entries


def _is_needed_whole(root: Value) -> bool:
    """Whether an operation reads ``root``, or a value by which a loop carries it, from memory."""
    return any_of(root, _carried_unchanged)


def _carried_unchanged(value: Value) -> list[Value] | None:
    """The arguments and results by which loops carry ``value``; None if an operation reads ``value`` from memory."""
    values: list[Value] = []
    for user in value.uses:
        places = {position for position, operand in enumerate(user.operands) if operand is value}
        if is_whole(user) or user.name in DOTS or places & stored_operands(user):
            return None
        if user.name == flow.FOR:
            inner = user.regions[0].blocks[0].arguments[1:]
            carried = [position - 3 for position in places if position >= 3]
            values += [alias for position in carried for alias in (inner[position], user.results[position])]
    return values


def _uniform_step(argument: Value, value: Value) -> Value | None:
    operation = value.owner
    if operation is None or operation.name not in {tt.ADDPTR, arith.ADDI} or operation.operands[0] is not argument:
        return None
    return scalar_source(operation.operands[1])


def declare_results(function: Operation) -> None:
    """Adds values for the results of a ``tt.func``.

    A return then assigns to them as a jump assigns to block arguments.
    """
    if function.results:
        return
    for block in function.regions[0].blocks:
        end = block.operations[-1]
        if end.name == tt.RETURN:
            function.results = [Value(f"result{n}", v.type, function, index=n) for n, v in enumerate(end.operands)]
            return


def jump_arguments(operation: Operation) -> list[tuple[Value, Value]]:
    """Pairs (value, destination) for every edge of a terminator.

    Destinations are block arguments or function results.
    """
    if operation.name == tt.RETURN:
        function = operation.block.region.owner if operation.block and operation.block.region else None
        assert function is not None
        return list(zip(operation.operands, function.results, strict=True))
    groups: tuple[tuple[Value, ...], ...] = ()
    if operation.name == flow.BR:
        groups = (tuple(operation.operands),)
    elif operation.name == flow.COND_BR:
        groups = operation.operand_segments()[1:]
    return [
        (value, argument)
        for group, successor in zip(groups, operation.successors, strict=False)
        for value, argument in zip(group, successor.arguments, strict=True)
    ]
