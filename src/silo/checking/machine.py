"""The algorithm of a checked launch: which runs it makes, in which order, and which findings follow from them.

This module does not access the arrays and does not depend on a kind of kernel. A kind supplies a
:class:`CheckedLaunch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from silo.errors import CheckError
from silo.frozen import frozen
from silo.launch.argument_memory import Allocation

__all__ = [
    "CheckFinding",
    "CheckedLaunch",
    "Difference",
    "Doubt",
    "Exchange",
    "Ran",
    "Unseen",
    "capital",
    "check_error",
    "check_launch",
    "coordinates",
    "index_text",
    "nearest",
    "place_in",
]


@frozen
class CheckFinding:
    """The first fault found in a launch.

    ``what`` is a noun phrase, such as "a load out of bounds". ``at`` is the rest of the message's first line: the place
    in the kernel and the program. ``details`` are further lines of the message. :class:`silo.errors.CheckError`
    describes the other fields.
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
    r"""Returns the error that a launch of ``kernel`` raises.

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


# ---- Words for messages


def coordinates(number: int, extents: Sequence[int]) -> tuple[int, int, int]:
    """Returns the position of the ``number``-th program of a grid, or thread of a group; x varies fastest.

    >>> coordinates(7, (2, 3, 4))
    (1, 0, 1)
    """
    x, y = extents[0], extents[1]
    return (number % x, number // x % y, number // x // y)


def index_text(index: Sequence[int]) -> str:
    """Formats an index in brackets.

    >>> index_text((4,)), index_text((1, 2))
    ('(4)', '(1, 2)')
    """
    return f"({', '.join(map(str, index))})"


def capital(text: str) -> str:
    """Returns the text with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def nearest(allocations: Sequence[Allocation], address: int) -> Allocation:
    """Returns the allocation that contains an address, or else the closest one (of several, the first)."""

    def rank(allocation: Allocation) -> tuple[bool, int]:
        return not allocation.low <= address < allocation.high, max(allocation.low - address, address - allocation.high)

    return min(allocations, key=rank)


def place_in(allocation: Allocation, address: int, size: int) -> str:
    """Describes the place of an access of ``size`` bytes, counted from the element that an argument points at.

    >>> place_in(Allocation("x", 64, 164, 64, "numpy array of 100 bytes"), 162, 4)
    'byte 98 of x (numpy array of 100 bytes), up to 2 bytes beyond its end'
    """
    where = f"byte {address - allocation.address} of {allocation.name} ({allocation.words})"
    if address < allocation.low:
        return f"{where}, {allocation.low - address} bytes before its start"
    beyond = address + size - allocation.high
    if beyond > 0:
        return f"{where}, up to {beyond} bytes beyond its end"
    return where if allocation.has(address, size) else f"{where}, between its elements"


Schedule = TypeVar("Schedule")
Fault = TypeVar("Fault")
About = TypeVar("About")
Results = TypeVar("Results")


@dataclass(frozen=True, slots=True)
class Doubt(Generic[About]):
    """A value that no result may depend on: the content of memory that was never written, for example.

    ``about`` describes the value in terms of the kernel's kind. ``others`` has the number of each replacement value
    that a check tries: the doubt is reported if a run with such a replacement ends in another fault, or leaves other
    results.
    """

    about: About
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exchange(Generic[About]):
    """The doubtful values that a run replaces, each with its replacement number ``other``."""

    doubts: tuple[Doubt[About], ...]
    other: int


@dataclass(frozen=True, slots=True)
class Unseen(Generic[About]):
    """A doubt about a value whose uses a run cannot observe, so that the value is replaced in further runs.

    These runs follow the runs in all schedules. If ``own`` is True, their results are compared with the results of a
    run with the original value; if False, with the results of a run with the first of ``doubt.others``.
    """

    doubt: Doubt[About]
    own: bool = True


@dataclass(frozen=True, slots=True)
class Ran(Generic[Fault, About]):
    """The outcome of a run. ``fault`` is None if the run ended without a fault.

    ``doubts`` are the doubtful values that the run used, the likeliest causes first; after a fault, the values that may
    have led to it. ``comparable`` is True if a run in another schedule must leave the same results.
    """

    fault: Fault | None = None
    doubts: tuple[Doubt[About], ...] = ()
    comparable: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """The first byte in which the results of two runs differ, counted from the start of its ``region``."""

    region: int
    byte: int


class CheckedLaunch(Protocol[Schedule, Fault, About, Results]):
    """One launch of a kernel over one set of arguments; each kind of kernel has a subclass.

    Each :meth:`run` starts with the memory contents that the launch started with.
    """

    @property
    def schedules(self) -> Sequence[Schedule]:
        """The schedules of the runs: orders of programs or threads, or modes. The results of the first one are kept."""
        ...

    @property
    def unseen(self) -> Sequence[Unseen[About]]:
        """The doubts that are tested after the runs in all schedules, by further runs in the last schedule."""
        return ()

    def run(self, schedule: Schedule, exchange: Exchange[About] | None = None) -> Ran[Fault, About]:
        """Runs all programs. If ``exchange`` is passed, the caller reads only ``fault`` of the returned value."""
        ...

    def results(self) -> Results:
        """Returns a copy of the results of the last run."""
        ...

    def difference(self, results: Results) -> Difference | None:
        """Returns the first place where the results of the last run differ from ``results``; None if they are equal."""
        ...

    def fault_finding(self, fault: Fault, schedule: Schedule) -> CheckFinding | None:
        """Returns the finding for a fault; None if this schedule is expected to have faults of this kind."""
        ...

    def doubt_finding(
        self, doubt: Doubt[About], other: int, effect: Fault | Difference | None, schedule: Schedule
    ) -> CheckFinding:
        """Returns the finding for a doubt.

        ``effect`` is the fault or the difference that the doubt causes. It is None if only several doubts together have
        an effect.
        """
        ...

    def order_finding(self, difference: Difference, schedule: Schedule) -> CheckFinding:
        """Returns the finding for results that differ from the first schedule's results."""
        del difference, schedule
        return CheckFinding("race", "results that depend on the order in which programs run")

    def results_finding(self, results: Results) -> CheckFinding | None:
        """Returns a finding in the results themselves, for example a NaN, or None. Called after all other checks."""
        del results
        return None

    def publish(self, results: Results) -> None:
        """Writes results to the caller's arrays."""
        ...

    def put_back(self) -> None:
        """Restores the caller's arrays to their contents at the start of the launch."""
        ...


def check_launch(launch: CheckedLaunch[Schedule, Fault, About, Results]) -> CheckFinding | None:
    """Runs a launch in all its schedules; returns the first fault, or None.

    Afterwards the caller's arrays hold the results of the first schedule. After a finding or an exception they hold
    their old contents.
    """
    published = False
    try:
        finding = _runs(launch)
        if isinstance(finding, CheckFinding):
            return finding
        launch.publish(finding.results)
        published = True
        return None
    finally:
        if not published:
            launch.put_back()


@dataclass(frozen=True, slots=True)
class _Clean(Generic[Results]):
    results: Results


def _runs(launch: CheckedLaunch[Schedule, Fault, About, Results]) -> CheckFinding | _Clean[Results]:
    first: Results | None = None
    last: Results | None = None
    for schedule in launch.schedules:
        ran = launch.run(schedule)
        if ran.fault is not None:
            finding = _cause(launch, schedule, ran.fault, ran.doubts) or launch.fault_finding(ran.fault, schedule)
            if finding is not None:
                return finding
            continue
        if first is not None and not (ran.comparable or ran.doubts or launch.unseen):
            continue
        last = launch.results()
        # A doubt names an operation; a difference between results does not. So if a run has both, the doubt is
        # reported.
        differs = launch.difference(first) if first is not None and ran.comparable else None
        finding = _weighed(launch, schedule, ran.doubts, last)
        if finding is None and differs is not None:
            finding = launch.order_finding(differs, schedule)
        if finding is not None:
            return finding
        first = last if first is None else first
    assert first is not None
    assert last is not None
    finding = _unseen(launch, last) or launch.results_finding(first)
    return _Clean(first) if finding is None else finding


def _cause(
    launch: CheckedLaunch[Schedule, Fault, About, Results],
    schedule: Schedule,
    fault: Fault,
    doubts: Sequence[Doubt[About]],
) -> CheckFinding | None:
    """Returns the finding for the first doubtful value whose replacement makes the fault change or disappear."""
    for doubt in doubts:
        for other in doubt.others:
            if launch.run(schedule, Exchange((doubt,), other)).fault != fault:
                return launch.doubt_finding(doubt, other, fault, schedule)
    return None


def _weighed(
    launch: CheckedLaunch[Schedule, Fault, About, Results],
    schedule: Schedule,
    doubts: Sequence[Doubt[About]],
    results: Results,
) -> CheckFinding | None:
    """Returns the finding for the first doubtful value that affects the results.

    All doubtful values are replaced at once; only if that has an effect, each is replaced alone.
    """
    for other in dict.fromkeys(other for doubt in doubts for other in doubt.others):
        changed = tuple(doubt for doubt in doubts if other in doubt.others)
        effect = _effect(launch, schedule, Exchange(changed, other), results)
        if effect is None:
            continue
        if len(changed) == 1:
            return launch.doubt_finding(changed[0], other, effect, schedule)
        for doubt in changed:
            effect = _effect(launch, schedule, Exchange((doubt,), other), results)
            if effect is not None:
                return launch.doubt_finding(doubt, other, effect, schedule)
        # No value alone has an effect, so the first of ``changed`` is reported.
        return launch.doubt_finding(changed[0], other, None, schedule)
    return None


def _effect(
    launch: CheckedLaunch[Schedule, Fault, About, Results],
    schedule: Schedule,
    exchange: Exchange[About],
    results: Results,
) -> Fault | Difference | None:
    fault = launch.run(schedule, exchange).fault
    return launch.difference(results) if fault is None else fault


def _unseen(launch: CheckedLaunch[Schedule, Fault, About, Results], results: Results) -> CheckFinding | None:
    schedule = launch.schedules[-1]
    for unseen in launch.unseen:
        doubt, begins = unseen.doubt, results
        others = doubt.others
        if not unseen.own:
            fault = launch.run(schedule, Exchange((doubt,), others[0])).fault
            if fault is not None:
                return launch.doubt_finding(doubt, others[0], fault, schedule)
            begins, others = launch.results(), others[1:]
        for other in others:
            effect = _effect(launch, schedule, Exchange((doubt,), other), begins)
            if effect is not None:
                return launch.doubt_finding(doubt, other, effect, schedule)
    return None
