"""Findings of a check as values, the error made of a finding, and words for places in memory that all kinds use."""

from __future__ import annotations

from collections.abc import Sequence

from silo.errors import CheckError
from silo.frozen import frozen
from silo.launch.argument_memory import Allocation

__all__ = ["CheckFinding", "capital", "check_error", "coordinates", "index_text", "nearest", "place_in"]


@frozen
class CheckFinding:
    """The first thing that is wrong with a launch.

    ``what`` is a noun phrase, as "a load out of bounds". ``at`` is the rest of the first line: the place in the kernel
    and the program. ``details`` are further lines. :class:`silo.errors.CheckError` describes the other fields.
    """

    kind: str
    what: str
    details: tuple[str, ...] = ()
    argument: str | None = None
    place: str = ""
    at: str = ""
    program: tuple[int, int, int] | None = None
    index: tuple[int, ...] | None = None


def check_error(kernel: str, finding: CheckFinding) -> CheckError:
    r"""The error that a launch of ``kernel`` raises.

    >>> found = CheckFinding("race", "a race", ("Byte 0 of x",), place="k.py:3", at=" at k.py:3")
    >>> str(check_error("k", found))
    'k: a race at k.py:3\n  Byte 0 of x'
    """
    text = f"{kernel}: {finding.what}{finding.at}" + "".join(f"\n  {line}" for line in finding.details)
    return CheckError(
        text,
        kind=finding.kind,
        place=finding.place,
        program=finding.program,
        index=finding.index,
        argument=finding.argument,
    )


# ---- words


def coordinates(number: int, extents: Sequence[int]) -> tuple[int, int, int]:
    """The position of the ``number``-th program of a grid, or thread of a group; x runs fastest.

    >>> coordinates(7, (2, 3, 4))
    (1, 0, 1)
    """
    x, y = extents[0], extents[1]
    return (number % x, number // x % y, number // x // y)


def index_text(index: Sequence[int]) -> str:
    """An index in brackets.

    >>> index_text((4,)), index_text((1, 2))
    ('(4)', '(1, 2)')
    """
    return f"({', '.join(map(str, index))})"


def capital(text: str) -> str:
    """The text, beginning with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def nearest(allocations: Sequence[Allocation], address: int) -> Allocation:
    """The allocation that holds an address, else the one with the smallest gap to it; the first of several."""

    def rank(one: Allocation) -> tuple[bool, int]:
        return not one.low <= address < one.high, max(one.low - address, address - one.high)

    return min(allocations, key=rank)


def place_in(one: Allocation, address: int, size: int) -> str:
    """The place of an access of ``size`` bytes, counted from the element that an argument points at.

    >>> place_in(Allocation("x", 64, 164, 64, "numpy array of 100 bytes"), 162, 4)
    'byte 98 of x (numpy array of 100 bytes), up to 2 bytes beyond its end'
    """
    where = f"byte {address - one.address} of {one.name} ({one.words})"
    if address < one.low:
        return f"{where}, {one.low - address} bytes before its start"
    beyond = address + size - one.high
    if beyond > 0:
        return f"{where}, up to {beyond} bytes beyond its end"
    return where if one.has(address, size) else f"{where}, between its elements"
