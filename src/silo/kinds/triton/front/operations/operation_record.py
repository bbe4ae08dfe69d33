"""The record of one operation: all facts about it for the front end and the CPU compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NoReturn, TypeAlias

from silo.core.signature import Effect
from silo.kinds.triton.front.operations.attribute_rules import OWN, AttributeRules
from silo.kinds.triton.front.operations.cpu.c_types import Renderer
from silo.kinds.triton.front.operations.type_rules import TypeRule
from silo.kinds.triton.front.ssa import Module, Operation, Value

__all__ = [
    "JUMPS_OUT",
    "NOT_SUPPORTED",
    "RECORDS",
    "Family",
    "Flow",
    "OperationRecord",
    "OperationRole",
    "Refusal",
    "SideEffect",
    "branch_flow",
    "call_flow",
    "define",
    "derived",
    "for_flow",
    "if_flow",
    "no_flow",
    "reduction_flow",
    "while_flow",
]


# ---- Flows: how values, and pointers above all, pass through an operation ----


Flow: TypeAlias = "Callable[[Module, Operation], Iterator[tuple[Value, Value]]]"
"""Yields (source, target) for every value that an operation of a module passes on to another value."""


def derived(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of address arithmetic and changes of shape: results point to the same memory as the operands."""
    return ((source, target) for target in operation.results for source in operation.operands)


def _terminators(operation: Operation, region: int) -> Iterator[Operation]:
    for block in operation.regions[region].blocks if region < len(operation.regions) else ():
        if block.operations:
            yield block.operations[-1]


def for_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of a counted loop: carried values go from operands and yields to the body's arguments and the results."""
    carried = operation.regions[0].blocks[0].arguments[1:]
    yield from zip(operation.operands[3:], carried, strict=False)
    yield from zip(operation.operands[3:], operation.results, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands, carried, strict=False)
        yield from zip(end.operands, operation.results, strict=False)


def if_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of a conditional: from the yields to the results."""
    for region in range(len(operation.regions)):
        for end in _terminators(operation, region):
            yield from zip(end.operands, operation.results, strict=False)


def while_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of a loop with a condition: from operands, the condition and yields to both regions and the results."""
    before, after = (operation.regions[index].blocks[0].arguments for index in (0, 1))
    yield from zip(operation.operands, before, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands[1:], after, strict=False)
        yield from zip(end.operands[1:], operation.results, strict=False)
    for end in _terminators(operation, 1):
        yield from zip(end.operands, before, strict=False)


def reduction_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of a reduction or a scan: from the operands and its region to the results."""
    inner = operation.regions[0].blocks[0].arguments
    yield from zip((*operation.operands, *operation.operands), inner, strict=False)
    for end in _terminators(operation, 0):
        yield from zip(end.operands, operation.results, strict=False)


def branch_flow(_module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of a branch: from its operands to the arguments of its successors."""
    for index, block in enumerate(operation.successors):
        yield from zip(operation.successor_operands(index), block.arguments, strict=False)


def call_flow(module: Module, operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of a call: from its operands to the function's arguments, and from the function's returns to the results."""
    callee = module.functions.get(operation.callee)
    if callee is None or not callee.regions[0].blocks:
        return
    yield from zip(operation.operands, callee.regions[0].blocks[0].arguments, strict=False)
    for end in _terminators(callee, 0):
        if end.name == "tt.return":
            yield from zip(end.operands, operation.results, strict=False)


def no_flow(_module: Module, _operation: Operation) -> Iterator[tuple[Value, Value]]:
    """Flow of an operation whose operands reach no other value."""
    return iter(())


# ---- The record of one operation ----


Refusal: TypeAlias = "Callable[[Operation], str]"
"""Returns the reason why the CPU compiler does not support an operation, or ""."""


class Family(Enum):
    """Groups of operations that a kernel's traits and numerics treat alike."""

    LOAD = "reads memory"
    STORE = "writes memory"
    ATOMIC = "reads, changes and writes memory in one step"
    DOT = "a product of matrices"
    LOOP = "repeats its regions"
    REDUCTION = "combines the elements along an axis"
    SCAN = "combines the elements along an axis, and keeps each step"


class OperationRole(Enum):
    """How the CPU's scheduler treats an operation."""

    ELEMENTWISE = "evaluated element by element, wherever its result is needed"
    LEAF = "an element is known without any operand: constants, ranges, the program's place"
    VIEW = "its elements are its operand's at other indices"
    SHUFFLE = "its elements come from several operands, or from one that lies in memory"
    ACCESS = "reads or writes memory in a nest that others may share"
    REDUCTION = "combines the elements along an axis"
    DOT = "a product of matrices"
    ORDERED = "has a loop nest of its own, which runs in order"
    WHOLE = "takes whole tensors from memory and leaves whole tensors there"
    CONTROL = "has regions that are scheduled by themselves"
    YIELD = "ends a region of a loop or a branch"
    JUMP = "ends a block of a function"
    REGION_RETURN = "ends a region that is applied to elements"
    FUNCTION = "a function of the module"
    BARRIER = "orders the memory of threads that are one thread here"
    HINT = "means nothing where one thread runs a whole program"
    REWRITTEN = "is spelled out with other operations before anything is scheduled"
    CHECK = "a question that a checking kernel asks"
    FOREIGN = "the CPU has no code for it"


class SideEffect(Enum):
    """An effect of an operation other than its results, which must happen in the order of the program."""

    NONE = "nothing"
    WRITES = "writes memory which others may read, or that no load may be moved across"
    TELLS = "says something to the user, in the order of the program"


class OperationRecord(str):
    """The name of an operation (the object compares equal to it), with facts about it.

    Only :func:`define` creates records.

    For the verifier of a text:
        types: raises for operands, results or regions of wrong types; None if the operation is not
            checked by itself (the check of a loop also covers its ``scf.yield``).
        attributes: the attributes that it may have; None if a text may give it any, because no pass reads them.
        terminator: whether it ends a block.
        region_ends: the terminators that its regions may end with; empty for any.

    For the effects of a kernel's pointers on memory:
        access: its effect through its first operand; None without an effect. Its other operands are values or indices.
        flow: the values that it passes pointers on to. None: unknown, so that it counts as reading and writing through
            every pointer operand, unless it has an ``access``.

    For a kernel's traits and numerics:
        family: the group of operations that it is counted with.
        keeps_range: whether its result runs along the same dimension as its operands.
        keeps_size: whether a size that is compared with a range can be traced through it to its first operand.
        order: for an operation that combines several elements or programs, so that their order affects rounding: its
            name in messages ("reduction"); else "".
        moves: whether its result is its first operand's elements in another shape or place.
        carries: whether it passes values to other blocks or functions, so that sums may be carried around a loop by it.

    For the CPU compiler:
        role: its role for the scheduler.
        side_effect: its effect besides its results.
        cost: the cost of one element, in cheap operations; None if it depends on the element's type.
        cheap: whether computing it again costs at most as much as storing and loading its result.
        associative: whether the elements of a reduction or a scan with it may be combined in any order.
        render: writes an elementwise operation in C; None if it is not an expression of elements.
        refuse: returns the reason why an instance of it is not supported; None if only ``render`` decides.
    """

    __slots__ = ("__dict__",)

    types: TypeRule | None
    attributes: AttributeRules | None
    terminator: bool
    region_ends: tuple[str, ...]
    access: Effect | None
    flow: Flow | None
    family: Family | None
    keeps_range: bool
    keeps_size: bool
    order: str
    moves: bool
    carries: bool
    role: OperationRole
    side_effect: SideEffect
    cost: float | None
    cheap: bool
    associative: bool
    render: Renderer | None
    refuse: Refusal | None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self}: a record is not changed")

    @property
    def dialect(self) -> str:
        """The part of the name before the first period."""
        return self.partition(".")[0]

    @property
    def is_own(self) -> bool:
        """Whether only passes of the CPU compiler write the operation, in place of other operations."""
        return self.startswith(OWN)

    @property
    def on_cpu(self) -> bool:
        """Whether front ends write the operation and the CPU compiler supports it."""
        return self.role is not OperationRole.FOREIGN and not self.is_own


JUMPS_OUT: Final = ("cf.br", "cf.cond_br", "ub.unreachable")
"""Terminators that may end a block of any region with several blocks."""

RECORDS: Final[dict[str, OperationRecord]] = {}
"""All records by name, in the order of the dialects' modules."""


NOT_SUPPORTED: Final = "not supported"
"""The reason to refuse an operation that the CPU compiler has no code for."""


def _foreign(_: Operation) -> str:
    return NOT_SUPPORTED


def _never(_: Operation) -> str:
    return ""


def define(
    name: str,
    role: OperationRole = OperationRole.ELEMENTWISE,
    *,
    types: TypeRule | None,
    attributes: AttributeRules | None,
    terminator: bool = False,
    region_ends: tuple[str, ...] = (),
    access: Effect | None = None,
    flow: Flow | None = None,
    family: Family | None = None,
    keeps_range: bool = False,
    keeps_size: bool = False,
    order: str = "",
    moves: bool = False,
    carries: bool = False,
    side_effect: SideEffect = SideEffect.NONE,
    cost: float | None = None,
    cheap: bool = False,
    associative: bool = False,
    render: Renderer | None = None,
    refuse: Refusal | None = None,
) -> OperationRecord:
    """Adds the record of one operation to the table; :class:`OperationRecord` describes its fields."""
    assert name not in RECORDS, name
    if refuse is None and render is None:
        refuse = _foreign if role is OperationRole.FOREIGN else _never
    record = RECORDS[name] = OperationRecord(name)
    record.__dict__.update(
        types=types,
        attributes=attributes,
        terminator=terminator,
        region_ends=region_ends,
        access=access,
        flow=flow,
        family=family,
        keeps_range=keeps_range,
        keeps_size=keeps_size,
        order=order,
        moves=moves,
        carries=carries,
        role=role,
        side_effect=side_effect,
        cost=cost,
        cheap=cheap,
        associative=associative,
        render=render,
        refuse=refuse,
    )
    return record
