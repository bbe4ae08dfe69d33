"""Runs a checked kernel over the caller's memory, one program after another."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from silo.checking.kernel import NativeCall
from silo.checking.machine import (
    CheckFinding,
    Difference,
    Doubt,
    Exchange,
    Ran,
    capital,
    coordinates,
    index_text,
    nearest,
    place_in,
)
from silo.checking.memory import Contents, LaunchMemory, MemoryLaunch, allocations_of
from silo.core.protocols import CheckLimits
from silo.errors import CheckError
from silo.frozen import frozen, replace
from silo.kinds.triton.cpu.checking.cpu_faults import (
    BoundsCell,
    CheckState,
    CpuFault,
    CpuSuspect,
    FaultKind,
    Fresh,
    SiteCell,
    Stored,
)
from silo.kinds.triton.cpu.checking.sites import Site, SiteKind, Use
from silo.launch.argument_memory import Allocation
from silo.launch.new_memory import is_unset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CpuCheckedRuns", "CpuLaunch", "CpuReporter", "Order"]


# ---- Findings made of the faults and doubtful values of a checked kernel ----


_MANY = (1 << 40) - 1
_NO_SITE = 0xFFF
_SUSPICIONS = {
    SiteKind.FILL: (
        "masked-off value",
        "a value that a masked load never loaded",
        "Give the load an other=, or select with the mask before the value counts",
    ),
    SiteKind.DIVISION: ("division by zero", "an integer divided by zero", "What it gives differs between devices"),
    SiteKind.WRAP: (
        "overflow",
        "32-bit arithmetic that wraps",
        "Compute the offset in 64 bits: .to(tl.int64) before the multiplication",
    ),
    SiteKind.NAN: ("NaN", "a NaN made of numbers", ""),
}
_PROMISES = {
    FaultKind.DIVISIBLE: ("tt.divisibility", "tl.multiple_of", "is divisible by"),
    FaultKind.CONTIGUOUS: ("tt.contiguity", "tl.max_contiguous", "follows the one before, in groups of"),
    FaultKind.CONSTANT: ("tt.constancy", "tl.max_constancy", "equals the one before, in groups of"),
}


@frozen
class CpuReporter:
    """Makes the findings of one launch from its faults and doubtful values.

    ``sites``, ``names`` and ``allocations`` are the kernel's sites (watched operations), its parameters and the memory
    of its arguments. ``unset`` are the allocations to which nothing was written since torch allocated them. ``steps``
    is the most steps that a program may take.
    """

    sites: Sequence[Site]
    names: Sequence[str]
    allocations: Sequence[Allocation]
    unset: Sequence[Allocation]
    steps: int
    grid: tuple[int, int, int]

    def fault(self, fault: CpuFault, order: str = "") -> CheckFinding:
        """The finding for a fault; ``order`` is the order in which programs ran, "" for ascending."""
        finding = self._fault(fault)
        if order:
            finding = replace(finding, details=(*finding.details, f"It shows when programs run {order}"))
        return self._placed(finding, fault)

    def suspect(self, suspect: CpuSuspect, effect: Stored | CpuFault | None, *, hidden: bool) -> CheckFinding:
        """The finding for a doubtful value; ``effect`` is the store or the fault that depends on it.

        ``hidden``: the value would be used, but a mask that is computed from the value itself excludes the element.
        """
        return self._placed(self._suspect(suspect, effect, hidden=hidden), suspect)

    def _placed(self, finding: CheckFinding, cause: CpuFault | CpuSuspect) -> CheckFinding:
        site = self.sites[cause.site]
        program = coordinates(cause.program, self.grid)
        index = site.index(cause.lane) if cause.lane >= 0 else ()
        at = f" {self._location_of(site)}, program {program}" + (f", index {index_text(index)}" if index else "")
        return replace(finding, at=at, place=site.place, program=program, index=index)

    @staticmethod
    def _location_of(site: Site) -> str:
        if site.place:
            return f"at {site.place}"
        return f"in {site.operation} number {site.ordinal} (the text of the kernel has no lines)"

    # ---- faults

    def _fault(self, fault: CpuFault) -> CheckFinding:
        site = self.sites[fault.site]
        match fault.kind:
            case FaultKind.BOUNDS:
                return self._bounds(site, fault)
            case FaultKind.RACE:
                return self._race(site, fault)
            case FaultKind.READONLY:
                owner, where = self._where(site, fault.address)
                return CheckFinding("read-only", f"a {_noun(site)} to memory that is read-only", (where,), owner)
            case FaultKind.UNALIGNED:
                owner, where = self._where(site, fault.address)
                problem = f"a misaligned {_noun(site)} of {site.bytes} bytes"
                return CheckFinding(
                    "misaligned", problem, (f"{where}: the address is not a multiple of {site.bytes}",), owner
                )
            case FaultKind.UNINITIALIZED:
                owner, where = self._where(site, fault.address)
                problem = f"a {_noun(site)} of memory that nothing was written to"
                if any(allocation.name == owner for allocation in self.unset):
                    why = "It holds what torch's allocator left there: no operator and no kernel wrote to it"
                    return CheckFinding("uninitialized", problem, (where, why), owner)
                return CheckFinding("uninitialized", problem, (where,), owner)
            case FaultKind.TWICE:
                owner, where = self._where(site, fault.address)
                problem = "a store of two values to one address"
                why = "Two elements of one store: which of them memory holds afterwards differs between devices"
                return CheckFinding("collision", problem, (capital(where), why), owner)
            case FaultKind.OUTSIDE:
                index, extent = _signed(fault.address), fault.other
                detail = f"Index {index} of axis {site.details.get('axis')}, which has {extent} elements"
                return CheckFinding("out of bounds", "a tl.gather outside of its tile", (detail,))
            case FaultKind.ENDLESS:
                steps = f"The program took {self.steps} steps (turns of loops and accesses)"
                waits = "programs run one after another, so it may also wait for one that comes later"
                return CheckFinding("endless", "a loop that does not end", (f"{steps}; {waits}",))
            case FaultKind.ASSERT:
                message = str(site.details.get("message", ""))
                return CheckFinding("assertion", "a failed device_assert", (message,) if message else ())
            case FaultKind.ASSUME:
                return CheckFinding("assumption", "a tl.assume that does not hold")
            case _:
                return self._hint(site, fault)

    def _bounds(self, site: Site, fault: CpuFault) -> CheckFinding:
        owner, where = self._where(site, fault.address)
        does = "accesses" if Use.ATOMIC in site.use else "reads" if Use.READS in site.use else "writes"
        detail = f"It {does} {site.bytes} bytes: {where}"
        return CheckFinding("out of bounds", f"a {_noun(site)} out of bounds", (detail,), owner)

    def _where(self, site: Site, address: int) -> tuple[str | None, str]:
        """The argument that ``address`` belongs to or derives from, and a description of the address for the report."""
        allocations = self.allocations
        size = site.bytes if site.use else 0
        inside = [allocation for allocation in allocations if allocation.low <= address < allocation.high]
        mine = self._mine(site)
        own = next((candidate for candidate in inside if candidate in mine), None)
        if own is not None:
            return own.name, place_in(own, address, size)
        elsewhere = f", inside of {inside[0].name}" if inside else ""
        if site.roots is None:
            return None, (
                f"address {address:#x}, which is computed from a number and lies in no array of the call; name the "
                "array it points into in memory="
            )
        if not mine:
            names = " and ".join(sorted({self.names[root] for root in site.roots}))
            return names, f"address {address:#x}; of {names} only the address is known: name its array in memory="
        closest = nearest(mine, address)
        return closest.name, f"{place_in(closest, address, size)}{elsewhere}"

    def _mine(self, site: Site) -> list[Allocation]:
        if site.roots is None:
            return list(self.allocations)
        names = {self.names[root] for root in site.roots}
        return [allocation for allocation in self.allocations if allocation.name in names]

    def _race(self, site: Site, fault: CpuFault) -> CheckFinding:
        owner, where = self._where(site, fault.address)
        other, number = fault.other >> 24, fault.other >> 12 & 0xFFF
        before = self.sites[number] if number != _NO_SITE and number < len(self.sites) else None
        who = "other programs" if other >= _MANY else f"program {coordinates(other - 1, self.grid)}"
        did = "read" if before is None or Use.WRITES not in before.use else "wrote"
        location = "" if before is None else f" {self._location_of(before)}"
        return CheckFinding(
            "race",
            f"a {_noun(site)} that races with another program's",
            (capital(where), f"{capital(who)} {did} there{location}, and nothing orders the two"),
            owner,
        )

    def _hint(self, site: Site, fault: CpuFault) -> CheckFinding:
        attribute, name, promise = _PROMISES[fault.kind]
        value, before = _signed(fault.address), _signed(fault.other)
        problem = f"a promise of {name} that does not hold"
        if fault.kind is FaultKind.DIVISIBLE and site.details.get("address"):
            owner, where = self._where(site, fault.address)
            detail = f"{name} promises that the address {promise} {site.details.get(attribute)}; it is {where}"
            return CheckFinding("hint", problem, (detail,), owner)
        detail = f"{name} promises that the element {promise} {site.details.get(attribute)}"
        shown = f"it is {value}" + ("" if fault.kind is FaultKind.DIVISIBLE else f" after {before}")
        return CheckFinding("hint", problem, (f"{detail}; {shown}",))

    # ---- invalid values

    def _suspect(self, suspect: CpuSuspect, effect: Stored | CpuFault | None, *, hidden: bool) -> CheckFinding:
        kind, problem, advice = _SUSPICIONS[self.sites[suspect.site].kind]
        details: list[str] = []
        argument: str | None = None
        if isinstance(effect, Stored):
            store = self.sites[effect.site]
            index = store.index(effect.lane)
            # The first byte that differs may be any byte of an element; accesses are aligned, so rounding down finds
            # its start.
            argument, where = self._where(store, effect.address & -store.bytes)
            program = coordinates(effect.program, self.grid)
            at = f", index {index_text(index)}" if index else ""
            details.append(
                f"A result depends on it: {where}, stored {self._location_of(store)} by program {program}{at}"
            )
        elif effect is not None:
            site = self.sites[effect.site]
            argument = self._where(site, effect.address)[0] if effect.address else None
            details.append(f"It decides whether there is {self._fault(effect).what} {self._location_of(site)}")
        if hidden:
            details.append("Only a mask that is computed from the wrapped product keeps it from being used")
        if advice:
            details.append(advice)
        return CheckFinding(kind, problem, tuple(details), argument)


def _noun(site: Site) -> str:
    return (
        "atomic" if Use.ATOMIC in site.use and Use.WRITES in site.use else "load" if Use.READS in site.use else "store"
    )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


# ---- The runs of a checked kernel ----


_CLOCK_BYTES = 1 << 28  # the most memory for the vector clocks of atomics
# With more programs than this, vector clocks are not kept: once a program has run an atomic with acquire semantics, it
# counts as ordered after all other programs, so some races may be missed.
_CLOCK_PROGRAMS = 1 << 14
_OTHER_ORDER_STEPS = 1 << 20
# A doubtful value is one on which no result may depend, such as an offset that wrapped. Further runs replace it, to
# show whether a result depends on it. These are the numbers of the replacements, which `lower.messages` writes as C
# text. 1 and 2 differ much from the doubtful value. 3 is the value 0, and replaces only a product that may have
# wrapped. It is needed if the kernel also computes a mask from the wrapped product, and this mask hides the fault by
# excluding the access. For the offset 0, which is valid in any array, the mask may be true; the access then changes a
# result, which shows the fault.
_OTHERS = (1, 2)
_IN_RANGE = 3
# Bytes with which unset memory is filled to find out whether a result depends on it: zero, and large positive numbers.
_OTHER_UNSET = (0x00, 0x41)
_OF_ADDRESSES = (FaultKind.BOUNDS, FaultKind.UNALIGNED, FaultKind.READONLY)
_NO_PROGRAM = (1 << 64) - 1


class Order(Enum):
    """The order in which programs run, one after another; the value is the phrase for a report."""

    ASCENDING = ""
    DESCENDING = "from the last to the first"
    SHUFFLED = "shuffled"

    def programs(self, total: int) -> Sequence[int]:
        """The numbers of all ``total`` programs of a grid, in this order."""
        if self is Order.ASCENDING:
            return range(total)
        if self is Order.DESCENDING:
            return range(total - 1, -1, -1)
        shuffled = list(range(total))
        random.Random(0).shuffle(shuffled)  # noqa: S311  # any order will do
        return shuffled


@dataclass(frozen=True, slots=True)
class CpuCheckedRuns:
    """The loaded code of a checked kernel: its entry as a foreign function, its sites by number, its parameters.

    A site is an operation that the check watches. ``names`` holds the name of each parameter, "" for a parameter that
    is not a pointer.
    """

    entry: Any
    sites: tuple[Site, ...]
    names: tuple[str, ...]

    def begin(
        self, arguments: Mapping[str, object], limits: CheckLimits, notes: list[str]
    ) -> Callable[[NativeCall], CpuLaunch]:
        """Returns a function that makes checked launches over ``arguments``.

        Raises:
            ArgumentError: an array is not in host memory.
        """
        memory = LaunchMemory(allocations_of(self.names, arguments, limits.memory, views=limits.views))
        return lambda call: CpuLaunch(self, memory, limits, notes, call)


class CpuLaunch(MemoryLaunch[Order, CpuFault, CpuFault | CpuSuspect]):
    """One launch of a checked kernel.

    Args:
        code: the kernel.
        memory: its arrays.
        limits: how much to examine.
        notes: receives a line for each check that is left out.
        call: the launch.
    """

    def __init__(
        self, code: CpuCheckedRuns, memory: LaunchMemory, limits: CheckLimits, notes: list[str], call: NativeCall
    ) -> None:
        import numpy  # noqa: PLC0415, ICN001  # the memory is read with it

        self._np = numpy
        self.memory = memory
        self.sites = code.sites
        self.names = code.names
        self.limits = limits
        self.notes = notes
        self.allocations = memory.allocations
        self.total = call.total
        # the memory that torch allocated and to which nothing was written since
        self.unset = tuple(
            allocation
            for allocation in self.allocations
            if allocation.size and is_unset(allocation.low, allocation.high)
        )
        self._reporter = CpuReporter(self.sites, self.names, self.allocations, self.unset, limits.steps, call.grid)
        self._entry = code.entry
        self._call = (call.params, (ctypes.c_uint32 * 3)(*call.grid), call.scratch)
        self._written = [site for site in self.sites if Use.WRITES in site.use]
        self._syncs = any(site.use & (Use.ACQUIRES | Use.RELEASES) for site in self.sites)
        self._cells = (SiteCell * max(len(self.sites), 1))()
        self._bounds = (BoundsCell * max(len(self.allocations), 1))()
        self._reach: Any = None
        self._state = CheckState()
        self._shadows: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._clocks: tuple[Any, Any] | None = None
        self._shift = self._granule()
        self._quiet = False  # whether an earlier run has printed the kernel's messages
        self._filled = False  # whether the last run filled unset memory with a byte of _OTHER_UNSET
        touched = {*self._writable_regions(), *(memory.region_of(unset_allocation) for unset_allocation in self.unset)}
        memory.keep(sorted(touched))

    # ---- the methods that the check's state machine calls

    @property
    def schedules(self) -> Sequence[Order]:
        """The orders in which to run the programs.

        A kernel without atomics runs in ascending order alone, because its results and faults are the same in every
        order.
        """
        atomic = any(Use.ATOMIC in site.use for site in self._written)
        return tuple(Order) if atomic and self.total > 1 else (Order.ASCENDING,)

    def run(
        self, schedule: Order, exchange: Exchange[CpuFault | CpuSuspect] | None = None
    ) -> Ran[CpuFault, CpuFault | CpuSuspect]:
        """Runs every program in the order ``schedule``; with ``exchange``, doubtful values are replaced."""
        if exchange is not None:
            return Ran(self._exchanged(schedule, exchange))
        if schedule is not Order.ASCENDING:
            return Ran(self._run_once(schedule, limit=min(self.limits.steps, _OTHER_ORDER_STEPS)))
        fault = self._run_once(schedule)
        self._note_addresses()
        self._note_shared()
        return Ran(fault, tuple(self._doubts(fault)))

    def difference(self, results: Contents) -> Difference | None:
        """The first byte that differs from ``results``, the memory after an earlier run; None if no byte differs.

        If the last run filled unset memory with a byte of ``_OTHER_UNSET``, memory that this run did not write is
        ignored.
        """
        if not self._filled:
            return super().difference(results)
        np = self._np
        ignored: dict[int, NDArray[np.bool_]] = {}
        for index, result in results.items():
            fresh = self._shadows["fresh"][index]
            if fresh.size:
                ignored[index] = np.repeat(fresh, 1 << self._shift)[: result.size] == Fresh.JUNK
        return self.memory.difference(results, ignored)

    def fault_finding(self, fault: CpuFault, schedule: Order) -> CheckFinding | None:
        """The finding for ``fault``; None for an endless loop in an order other than ascending.

        In another order, a correct kernel may loop endlessly, because a program may wait for a program with a lower
        number that runs only after it.
        """
        if fault.kind is FaultKind.ENDLESS and schedule is not Order.ASCENDING:
            self.notes.append(f"programs wait for one another, so they were not checked {schedule.value}")
            return None
        return self._reporter.fault(fault, schedule.value)

    def doubt_finding(
        self, doubt: Doubt[CpuFault | CpuSuspect], other: int, effect: CpuFault | Difference | None, schedule: Order
    ) -> CheckFinding:
        """The finding for a read of unset memory, or for a doubtful result and the store or fault that it changes.

        ``other`` is the replacement with which the change was seen: a value's number, or the byte in unset memory.
        """
        del schedule
        about = doubt.about
        if isinstance(about, CpuFault):
            return self._reporter.fault(about)
        hidden = other == _IN_RANGE
        if not isinstance(effect, Difference):
            return self._reporter.suspect(about, effect, hidden=hidden)
        about, stored = self._traced(about, other, self.memory.address(effect))
        return self._reporter.suspect(about, stored, hidden=hidden)

    # ---- doubtful values

    def _doubts(self, fault: CpuFault | None) -> Iterable[Doubt[CpuFault | CpuSuspect]]:
        """The first read of unset memory, then the sites with doubtful results, in the order of their first results.

        If ``fault`` is passed, yields only the doubts that may explain why an access went to a wrong address.
        """
        if fault is not None and fault.kind not in _OF_ADDRESSES:
            return
        state = self._state
        if state.unset_site:
            unset = CpuFault(
                FaultKind.UNINITIALIZED,
                state.unset_site - 1,
                state.unset_lane,
                state.unset_program,
                state.unset_address,
            )
            yield Doubt(unset, _OTHER_UNSET)
        suspects = [site for site in self.sites if site.kind.suspect and self._cells[site.number].events]
        for site in sorted(suspects, key=lambda site: self._cells[site.number].order):
            cell = self._cells[site.number]
            suspect = CpuSuspect(site.number, cell.program, cell.lane)
            if fault is None:
                yield Doubt(suspect, (*_OTHERS, _IN_RANGE) if site.details.get("how") == "mul" else _OTHERS)
            elif site.kind is not SiteKind.NAN:
                yield Doubt(suspect, _OTHERS[:1])

    def _exchanged(self, schedule: Order, exchange: Exchange[CpuFault | CpuSuspect]) -> CpuFault | None:
        about = [doubt.about for doubt in exchange.doubts]
        change = {suspect.site: exchange.other for suspect in about if isinstance(suspect, CpuSuspect)}
        return self._run_once(schedule, change=change, fill=exchange.other if len(change) < len(about) else None)

    def _traced(self, suspect: CpuSuspect, other: int, address: int) -> tuple[CpuSuspect, Stored]:
        """The first doubtful value at the suspect's site in the program that wrote ``address``, and that store."""
        change = {suspect.site: other}
        self._run_once(Order.ASCENDING, change=change, watch=address)
        state = self._state
        stored = Stored(state.writer_site, state.writer, state.writer_lane, address)
        self._run_once(Order.ASCENDING, change=change, watch_program=stored.program)
        cell = self._cells[suspect.site]
        return (CpuSuspect(suspect.site, stored.program, cell.watched) if cell.seen else suspect), stored

    def _note_shared(self) -> None:
        for site in self.sites:
            if site.kind is SiteKind.STORE and self._cells[site.number].events:
                location = site.place or f"{site.operation} number {site.ordinal}"
                self.notes.append(
                    f"{location}: several programs store the same value to one element; it counts as no race"
                )

    def _note_addresses(self) -> None:
        for site in self.sites:
            if site.kind is SiteKind.HINT and self._cells[site.number].events:
                self.notes.append(
                    f"{site.place or site.operation}: tl.multiple_of promises an address that is divisible by "
                    f"{site.details.get('tt.divisibility')}, which this one is not: what libraries allocate on a GPU "
                    "begins at such an address, and this memory of the host does not, so it counts as no fault"
                )

    # ---- one run

    def _run_once(
        self,
        order: Order,
        *,
        change: Mapping[int, int] | None = None,
        fill: int | None = None,
        limit: int | None = None,
        watch: int = 0,
        watch_program: int = _NO_PROGRAM,
    ) -> CpuFault | None:
        self.memory.restore()
        self._filled = fill is not None
        if fill is not None:
            for allocation in self.unset:
                ctypes.memset(allocation.low, fill, allocation.size)
        self._prepare(change or {}, limit or self.limits.steps, watch, watch_program)
        programs = order.programs(self.total)
        params, grid, scratch = self._call
        state = ctypes.addressof(self._state)
        code = 0
        if isinstance(programs, range) and programs.step == 1:
            code = self._entry(params, grid, programs.start, programs.stop, scratch, state)
        else:
            for program in programs:
                code = self._entry(params, grid, program, program + 1, scratch, state)
                if code:
                    break
        check_state = self._state
        if check_state.kind == FaultKind.NOTHING:
            if code:  # a failed assertion in a function that a reduction or scan applies to elements; it has no site
                raise CheckError(check_state.text.decode(errors="replace"), kind="assertion", place="")
            return None
        return CpuFault(
            FaultKind(check_state.kind),
            check_state.site,
            check_state.lane,
            check_state.program,
            check_state.address,
            check_state.other,
        )

    def _prepare(self, change: Mapping[int, int], limit: int, watch: int, watch_program: int) -> None:
        reach: list[int] = []
        everything = tuple(range(len(self.allocations)))
        by_name = {allocation.name: index for index, allocation in enumerate(self.allocations)}
        for site in self.sites:
            cell = self._cells[site.number]
            mine = everything
            if site.roots is not None:
                names = [self.names[root] for root in sorted(site.roots)]
                mine = tuple(by_name[name] for name in names if name in by_name)
            ctypes.memset(ctypes.addressof(cell), 0, ctypes.sizeof(cell))
            cell.use, cell.bytes, cell.first, cell.count = int(site.use), site.bytes, len(reach), len(mine)
            cell.change = change.get(site.number, 0)
            reach += mine
        self._reach = (ctypes.c_uint32 * max(len(reach), 1))(*reach)
        self._shadow()
        state = self._state
        ctypes.memset(ctypes.addressof(state), 0, ctypes.sizeof(state))
        state.bytes = 1024  # the size of the leading struct silo_fault
        state.sites = ctypes.addressof(self._cells)
        state.bounds = ctypes.addressof(self._bounds)
        state.reach = ctypes.addressof(self._reach)
        state.limit, state.shift, state.programs = limit, self._shift, self.total
        state.watch, state.watch_program = watch, watch_program
        state.quiet, self._quiet = self._quiet, True
        self._set_clocks()

    def _shadow(self) -> None:
        """Allocates shadow memory for a run, all zero; the system commits only the pages that accesses touch."""
        np = self._np
        races = self.total > 1 and bool(self._written)
        regions = self.memory.regions
        sizes = [(region.high - region.low >> self._shift) + 1 for region in regions]
        lanes = any(site.kind is SiteKind.STORE and site.shape for site in self._written)
        wide = [(size if lanes else 0, (size << self._shift) if lanes else 0) for size in sizes]
        self._shadows = {
            "writers": [np.zeros(size if races else 0, np.uint64) for size in sizes],
            "readers": [np.zeros(size if races else 0, np.uint64) for size in sizes],
            "shared": [np.zeros(size if races else 0, np.uint8) for size in sizes],
            "fresh": [np.zeros(0, np.uint8) for _ in sizes],
            "stamps": [np.zeros(size, np.uint64) for size, _ in wide],
            "stored": [np.zeros(size, np.uint8) for _, size in wide],
        }
        uninitialized = [allocation for allocation in self.allocations if allocation.name in self.limits.uninitialized]
        for shadowed, kind in (
            *((shadowed, Fresh.JUNK) for shadowed in self.unset),
            *((shadowed, Fresh.NEW) for shadowed in uninitialized),
        ):
            at = self.memory.region_of(shadowed)
            if at >= 0:
                fresh = self._shadows["fresh"][at]
                if not fresh.size:
                    fresh = self._shadows["fresh"][at] = np.zeros(sizes[at], np.uint8)
                low = shadowed.low - regions[at].low >> self._shift
                fresh[low : shadowed.high - regions[at].low + (1 << self._shift) - 1 >> self._shift] = kind
        for cell, allocation in zip(self._bounds, self.allocations, strict=False):
            at = self.memory.region_of(allocation)
            cell.low, cell.high, cell.writable = allocation.low, allocation.high, allocation.writable
            cell.origin = regions[at].low if at >= 0 else 0
            cell.inside = allocation.inside.ctypes.data if allocation.inside is not None else None
            for name, arrays in self._shadows.items():
                setattr(cell, name, arrays[at].ctypes.data if at >= 0 and arrays[at].size else None)

    def _set_clocks(self) -> None:
        if not self._syncs or self.total < 2:
            return
        state = self._state
        if self.total > _CLOCK_PROGRAMS:
            note = f"{self.total} programs are too many to follow what orders them: some races may be missed"
            if note not in self.notes:
                self.notes.append(note)
            return
        np = self._np
        rows = max(16, min(1 << 16, _CLOCK_BYTES // (2 * self.total)))
        self._clocks = (np.zeros((rows + 1, self.total), np.uint16), np.zeros(rows, np.uint64))
        state.clocks, state.locations = (array.ctypes.data for array in self._clocks)
        state.rows = rows

    # ---- the memory of the arguments

    def _granule(self) -> int:
        """The binary logarithm of the number of bytes that one shadow cell describes.

        This number is the largest for which no two elements share a cell.
        """
        sizes = [site.bytes for site in self.sites if site.use]
        width = min(sizes, default=1)
        if any(region.low % width for region in self.memory.regions):
            width = 1
        return width.bit_length() - 1

    def _writable_regions(self) -> list[int]:
        if any(site.roots is None for site in self._written):
            names = {allocation.name for allocation in self.allocations}
        else:
            names = {self.names[root] for site in self._written for root in site.roots or ()}
        regions = {
            self.memory.region_of(allocation)
            for allocation in self.allocations
            if allocation.name in names and allocation.writable
        }
        return sorted(regions - {-1})
