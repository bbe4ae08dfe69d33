"""The output of the scheduler: the steps of each block, in order, and where values are stored.

A group is one loop nest. Its sinks (stores, buffer fills, reductions) are the nest's purpose; every other value is
evaluated inside of it on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from silo.kinds.triton.front.operations.operation_table import WRITES
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = [
    "BlockSchedule",
    "Branch",
    "BufferFill",
    "Carried",
    "DotStep",
    "Jump",
    "Loop",
    "NestGroup",
    "OrderedSink",
    "ReduceSink",
    "ScalarStep",
    "Step",
    "StoreSink",
    "WhileLoop",
    "WholeStep",
    "describe",
    "writes",
]


@dataclass(slots=True, eq=False)
class BufferFill:
    """Writes every element of ``value`` to the buffer of ``target``.

    With ``staged``, it writes to a second buffer, which is copied over ``target`` at the end of the loop body, because
    the old value is still read.
    """

    value: Value
    target: Value
    staged: bool = False


@dataclass(slots=True, eq=False)
class StoreSink:
    """A ``tt.store`` of a tensor."""

    operation: Operation


@dataclass(slots=True, eq=False)
class ReduceSink:
    """A ``tt.reduce`` by an operation for which the compiler has an accumulator, such as a sum."""

    operation: Operation


@dataclass(slots=True, eq=False)
class OrderedSink:
    """An operation that gets a nest for itself, which runs in order: a scan, an atomic, a reduction by any function."""

    operation: Operation


Sink = BufferFill | StoreSink | ReduceSink | OrderedSink


@dataclass(slots=True, eq=False)
class NestGroup:
    """One loop nest over ``shape``.

    ``checks`` are pairs of memory accesses whose ranges must be disjoint or identical for the fused nest to be correct.
    They are compared at run time; if a comparison fails, the stores run one after the other instead. ``inner`` is the
    axis of the innermost loop; it differs from the last axis only if nothing is reduced. If this nest only copies a
    tile along its rows for a nest that needs the tile along its columns, and no other nest uses the tile,
    ``transposed_by`` is that nest: it may instead read the tile itself, part by part.
    """

    shape: tuple[int, ...]
    sinks: list[Sink] = field(default_factory=list["Sink"])
    checks: list[tuple[Operation, Operation]] = field(default_factory=list[tuple[Operation, Operation]])
    inner: int = -1
    transposed_by: NestGroup | None = None

    def __post_init__(self) -> None:
        """Makes the last axis the innermost one, unless the caller chose another axis."""
        if self.inner < 0:
            self.inner += len(self.shape)

    @property
    def stores(self) -> list[Operation]:
        """The stores of the nest, in order."""
        return [sink.operation for sink in self.sinks if isinstance(sink, StoreSink)]

    @property
    def ordered(self) -> Operation | None:
        """The only operation of a nest that runs in order (a scan, an atomic, a general reduction); else None."""
        return next((sink.operation for sink in self.sinks if isinstance(sink, OrderedSink)), None)

    @property
    def writers(self) -> list[Operation]:
        """The operations of the nest that write memory, in order."""
        return [
            sink.operation for sink in self.sinks if not isinstance(sink, BufferFill) and sink.operation.name in WRITES
        ]

    @property
    def reduced(self) -> set[Value]:
        """The results of the nest's reductions."""
        return {r for sink in self.sinks if isinstance(sink, ReduceSink) for r in sink.operation.results}


@dataclass(slots=True, eq=False)
class ScalarStep:
    """One operation on scalars, in program order."""

    operation: Operation


@dataclass(slots=True, eq=False)
class WholeStep:
    """An operation that needs whole tensors in memory, for example a function call."""

    operation: Operation


@dataclass(slots=True, eq=False)
class DotStep:
    """A ``tt.dot`` or ``tt.dot_scaled`` that adds to the buffer of ``target``, which holds the accumulator operand.

    ``accumulator`` is the fill that writes the accumulator to the buffer; None if the buffer already holds the carried
    value, or if the accumulator is zero (``fresh``) and the buffer is overwritten. ``left`` and ``right`` are the nests
    that copy the operands from global memory; each runs only if its tile cannot be read in place.
    """

    operation: Operation
    target: Value
    accumulator: BufferFill | None
    left: NestGroup | None = None
    right: NestGroup | None = None
    fresh: bool = False


@dataclass(slots=True, eq=False)
class Carried:
    """One value carried by a loop, in one of four ways.

    scalar: a C variable. invariant: the loop never changes it. offset: its start plus an offset, equal for all
    elements, that grows by ``step`` in each iteration. buffer: a tensor in scratch memory.
    """

    argument: Value
    initial: Value
    yielded: Value
    result: Value
    kind: Literal["scalar", "invariant", "offset", "buffer"]
    step: Value | None = None


@dataclass(slots=True, eq=False)
class BlockSchedule:
    """The steps of one block, and the values from outside of the block that they need.

    Each of these values has a flag: True if it must be stored in memory, False if it may be evaluated where it is used.
    """

    steps: list[Step]
    free: list[tuple[Value, bool]]


@dataclass(slots=True, eq=False)
class Loop:
    """An ``scf.for``.

    ``dot`` is set if the body does nothing but add a product of two tiles in global memory to a carried tensor: if the
    tiles of successive iterations turn out to be adjacent, they are multiplied as one product.
    """

    operation: Operation
    carried: list[Carried]
    body: BlockSchedule
    dot: DotStep | None = None


@dataclass(slots=True, eq=False)
class WhileLoop:
    """An ``scf.while``: ``before`` computes the condition, ``after`` is the body."""

    operation: Operation
    before: BlockSchedule
    after: BlockSchedule


@dataclass(slots=True, eq=False)
class Branch:
    """An ``scf.if``."""

    operation: Operation
    then: BlockSchedule
    otherwise: BlockSchedule


@dataclass(slots=True, eq=False)
class Jump:
    """The terminator of a block, in a function with several blocks."""

    operation: Operation


Step = NestGroup | ScalarStep | WholeStep | DotStep | Loop | WhileLoop | Branch | Jump


def writes(step: Step) -> bool:
    """Whether a step writes memory."""
    match step:
        case ScalarStep(operation) | WholeStep(operation):
            return operation.name in WRITES
        case NestGroup():
            return bool(step.writers)
        case Loop():
            return any(writes(inner) for inner in step.body.steps)
        case Branch():
            return any(writes(inner) for inner in [*step.then.steps, *step.otherwise.steps])
        case WhileLoop():
            return any(writes(inner) for inner in [*step.before.steps, *step.after.steps])
        case DotStep() | Jump():
            return False


def describe(plan: BlockSchedule, depth: int = 0) -> str:
    """The schedule as indented text, for debugging."""
    pad = "  " * depth
    lines: list[str] = []
    for step in plan.steps:
        match step:
            case NestGroup():
                extents = "x".join(map(str, step.shape))
                sinks = ", ".join(_describe_sink(sink) for sink in step.sinks)
                notes = f" checks {len(step.checks)}" if step.checks else ""
                notes += f" along {step.inner}" if step.inner != len(step.shape) - 1 else ""
                lines.append(f"{pad}nest {extents}: {sinks}{notes}")
            case ScalarStep(operation):
                lines.append(f"{pad}scalar {operation.name}")
            case WholeStep(operation):
                lines.append(f"{pad}whole {operation.name}")
            case DotStep():
                lines.append(f"{pad}dot into {step.target.name}")
            case Loop():
                kinds = ", ".join(f"{carried.argument.name}:{carried.kind}" for carried in step.carried)
                lines.append(f"{pad}for {kinds}")
                lines.append(describe(step.body, depth + 1))
            case WhileLoop():
                lines.append(f"{pad}while")
                lines.append(describe(step.before, depth + 1))
                lines.append(describe(step.after, depth + 1))
            case Branch():
                lines.append(f"{pad}if")
                lines.append(describe(step.then, depth + 1))
                lines.append(describe(step.otherwise, depth + 1))
            case Jump(operation):
                lines.append(f"{pad}{operation.name}")
    return "\n".join(line for line in lines if line)


def _describe_sink(sink: Sink) -> str:
    match sink:
        case BufferFill():
            return f"{sink.value.name} -> {sink.target.name}" + (" (staged)" if sink.staged else "")
        case StoreSink():
            return "store"
        case ReduceSink():
            return f"reduce {sink.operation.results[0].name}"
        case OrderedSink():
            return sink.operation.name
