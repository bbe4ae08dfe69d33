"""The record of one operation: its role for the scheduler, its effect, its cost, its C expression, its refusal."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NoReturn

from silo.backends.cpu.ops_call import Renderer
from silo.sources.triton.ssa import Operation

__all__ = ["RECORDS", "Effect", "Record", "Refusal", "Role", "define"]

Refusal = Callable[[Operation], str]
"""Why the CPU cannot do an operation, or ""."""


class Role(Enum):
    """The role of an operation for the scheduler."""

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


class Effect(Enum):
    """The effect of an operation besides its results."""

    NONE = "nothing"
    WRITES = "writes memory which others may read, or that no load may be moved across"
    TELLS = "says something to the user, in the order of the program"


class Record(str):
    """The name of an operation, to which it is equal, and the facts about it. :func:`define` alone makes records.

    ``cost`` is the cost of one element, in cheap operations; None where it depends on the element's type.
    ``cheap`` says that computing it again costs no more than storing and loading its result. ``associative``
    operations make a reduction or a scan whose elements may be combined in any order. ``render`` writes an elementwise
    operation in C. ``refuse`` says why the CPU cannot do one; where it is None, an operation is refused that has no C
    expression.
    """

    __slots__ = ("associative", "cheap", "cost", "effect", "refuse", "render", "role")

    role: Role
    effect: Effect
    cost: float | None
    cheap: bool
    associative: bool
    render: Renderer | None
    refuse: Refusal | None

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self}: a record is not changed")

    @property
    def dialect(self) -> str:
        """The part of the name before the first point."""
        return self.partition(".")[0]

    @property
    def is_own(self) -> bool:
        """Whether no front end writes it: passes of this compiler put it in the place of others."""
        return self.dialect == "silo"


RECORDS: Final[dict[str, Record]] = {}
"""Every record by its name, in the order of the tables."""


def _never(_: Operation) -> str:
    return ""


def define(
    name: str,
    role: Role = Role.ELEMENTWISE,
    *,
    effect: Effect = Effect.NONE,
    cost: float | None = None,
    cheap: bool = False,
    associative: bool = False,
    render: Renderer | None = None,
    refuse: Refusal | None = None,
) -> Record:
    """Add the record of one operation to the table."""
    assert name not in RECORDS, name
    record = Record(name)
    members = {
        "role": role,
        "effect": effect,
        "cost": cost,
        "cheap": cheap,
        "associative": associative,
        "render": render,
        "refuse": refuse if render is not None and refuse is None else refuse or _never,
    }
    for member, value in members.items():
        object.__setattr__(record, member, value)
    RECORDS[name] = record
    return record
