"""The plan of the scheduler: the steps of each block, in order, and the places of values.

A group is one loop nest. Its sinks are the nest's purpose; everything else is evaluated on demand inside it.
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
    """Write every element of ``value`` to the buffer of ``target``.

    ``staged`` writes to a second buffer that is copied over ``target`` at the end of the loop body, because the old
    value is still read.
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
    """A ``tt.reduce``."""

    operation: Operation


@dataclass(slots=True, eq=False)
class OrderedSink:
    """An operation whose nest is its own and runs in order: a scan, an atomic, a reduction by any function."""

    operation: Operation


Sink = BufferFill | StoreSink | ReduceSink | OrderedSink


@dataclass(slots=True, eq=False)
class NestGroup:
    """One loop nest over ``shape``.

    ``checks`` are pairs of memory accesses whose ranges must be disjoint or identical for the fused form to be right;
    tested at run time, with the stores one after the other as the fallback. ``inner`` is the axis of the innermost
    loop; it differs from the last only if nothing is reduced. ``transposed_by`` is the only nest that uses the tile
    which this one reads along another axis; it may read the tile in parts.
    """

    shape: tuple[int, ...]
    sinks: list[Sink] = field(default_factory=list["Sink"])
    checks: list[tuple[Operation, Operation]] = field(default_factory=list[tuple[Operation, Operation]])
    inner: int = -1
    transposed_by: NestGroup | None = None

    def __post_init__(self) -> None:
        """The last axis by default."""
        if self.inner < 0:
            self.inner += len(self.shape)

    @property
    def stores(self) -> list[Operation]:
        """The stores among the sinks, in order."""
        return [sink.operation for sink in self.sinks if isinstance(sink, StoreSink)]

    @property
    def ordered(self) -> Operation | None:
        """The operation that has this nest for itself, if one has."""
        return next((sink.operation for sink in self.sinks if isinstance(sink, OrderedSink)), None)

    @property
    def writers(self) -> list[Operation]:
        """The operations among the sinks that write memory, in order."""
        return [
            sink.operation for sink in self.sinks if not isinstance(sink, BufferFill) and sink.operation.name in WRITES
        ]

    @property
    def reduced(self) -> set[Value]:
        """Results of the reductions among the sinks."""
        return {r for sink in self.sinks if isinstance(sink, ReduceSink) for r in sink.operation.results}


@dataclass(slots=True, eq=False)
class ScalarStep:
    """One operation on scalars, in program order."""

    operation: Operation


@dataclass(slots=True, eq=False)
class WholeStep:
    """An operation on whole tensors in memory, for example a call of a function."""

    operation: Operation


@dataclass(slots=True, eq=False)
class DotStep:
    """A ``tt.dot`` or ``tt.dot_scaled`` that adds to the buffer of ``target``, which holds the accumulator operand.

    ``accumulator`` is how the buffer got its value; None if it is the carried value itself, or if that value is zero
    (``fresh``) and the buffer is overwritten. ``left`` and ``right`` are the nests that would copy the operands from
    global memory: run only if the tile cannot be read in place.
    """

    operation: Operation
    target: Value
    accumulator: BufferFill | None
    left: NestGroup | None = None
    right: NestGroup | None = None
    fresh: bool = False


@dataclass(slots=True, eq=False)
class Carried:
    """One value carried by a loop.

    scalar: a C variable. invariant: the loop never changes it. offset: its start plus a uniform offset that grows by
    ``step`` each time. buffer: a tensor in scratch memory.
    """

    argument: Value
    initial: Value
    yielded: Value
    result: Value
    kind: Literal["scalar", "invariant", "offset", "buffer"]
    step: Value | None = None


@dataclass(slots=True, eq=False)
class BlockSchedule:
    """The steps of one block, and the values from outside that they need.

    With each value goes whether it must be stored; where not, it may be evaluated in place.
    """

    steps: list[Step]
    free: list[tuple[Value, bool]]


@dataclass(slots=True, eq=False)
class Loop:
    """An ``scf.for``.

    ``dot`` is the one step of a body that does nothing but add a product of two tiles of global memory to a carried
    tensor: if the tiles of successive iterations turn out to be adjacent, they are multiplied at once.
    """

    operation: Operation
    carried: list[Carried]
    body: BlockSchedule
    dot: DotStep | None = None


@dataclass(slots=True, eq=False)
class WhileLoop:
    """An ``scf.while``: ``before`` decides, ``after`` is the body."""

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
    """The terminator of a block of a function with several."""

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
    """The plan as indented text, for people."""
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
