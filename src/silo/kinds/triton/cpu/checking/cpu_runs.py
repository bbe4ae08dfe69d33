"""The runs of a checked kernel: over the caller's memory, one program after another."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from silo.checking.findings import CheckFinding
from silo.checking.kernel import NativeCall
from silo.checking.machine import Difference, Doubt, Exchange, Ran
from silo.checking.memory import Contents, LaunchMemory, MemoryLaunch, allocations_of
from silo.core.check_limits import CheckLimits
from silo.errors import CheckError
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
from silo.kinds.triton.cpu.checking.cpu_report import CpuReporter
from silo.kinds.triton.cpu.checking.sites import Site, SiteKind, Use
from silo.launch.new_memory import is_unset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CpuCheckedRuns", "CpuLaunch", "Order"]

_CLOCK_BYTES = 1 << 28  # the most memory of clocks of atomics
_CLOCK_PROGRAMS = 1 << 14  # more programs than this are taken for ordered once they acquired anything
_OTHER_ORDER_STEPS = 1 << 20
# Values of a suspect, as `lower.checked` numbers them: two others, and 0, the offset of an existing element, in case of
# a wrapped product: if only a mask that is computed from the product keeps it from being used, the mask changes.
_OTHERS = (1, 2)
_IN_RANGE = 3
# Bytes that unset memory is filled with to see whether a result depends on it: zero, and great positive numbers.
_OTHER_UNSET = (0x00, 0x41)
_OF_ADDRESSES = (FaultKind.BOUNDS, FaultKind.UNALIGNED, FaultKind.READONLY)
_NO_PROGRAM = (1 << 64) - 1


class Order(Enum):
    """The order in which programs run, one after another; the value is its text for a report."""

    ASCENDING = ""
    DESCENDING = "from the last to the first"
    SHUFFLED = "shuffled"

    def programs(self, total: int) -> Sequence[int]:
        """Every program of a grid, in this order."""
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

    ``names`` has "" for a parameter that is not a pointer.
    """

    entry: Any
    sites: tuple[Site, ...]
    names: tuple[str, ...]

    def begin(
        self, arguments: Mapping[str, object], limits: CheckLimits, notes: list[str]
    ) -> Callable[[NativeCall], CpuLaunch]:
        """Launches over ``arguments``. Raises ArgumentError for an array that is not in host memory."""
        memory = LaunchMemory(allocations_of(self.names, arguments, limits.memory, views=limits.views))
        return lambda call: CpuLaunch(self, memory, limits, notes, call)


class CpuLaunch(MemoryLaunch[Order, CpuFault, CpuFault | CpuSuspect]):
    """One launch of a checked kernel.

    Args:
        code: the kernel.
        memory: its arrays.
        limits: how much to examine.
        notes: gets a line for each thing that is not examined.
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
        # Memory that torch allocated and nothing was written to.
        self.unset = tuple(one for one in self.allocations if one.size and is_unset(one.low, one.high))
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
        self._quiet = False  # whether it was run once
        self._filled = False  # whether the last run exchanged what unset memory holds
        touched = {*self._writable_regions(), *(memory.region_of(one) for one in self.unset)}
        memory.keep(sorted(touched))

    # ---- for the machine

    @property
    def schedules(self) -> Sequence[Order]:
        """Without atomics any order of the programs shows the same."""
        atomic = any(Use.ATOMIC in site.use for site in self._written)
        return tuple(Order) if atomic and self.total > 1 else (Order.ASCENDING,)

    def run(
        self, schedule: Order, exchange: Exchange[CpuFault | CpuSuspect] | None = None
    ) -> Ran[CpuFault, CpuFault | CpuSuspect]:
        """Run every program in this order."""
        if exchange is not None:
            return Ran(self._exchanged(schedule, exchange))
        if schedule is not Order.ASCENDING:
            return Ran(self._once(schedule, limit=min(self.limits.steps, _OTHER_ORDER_STEPS)))
        fault = self._once(schedule)
        self._note_addresses()
        self._note_shared()
        return Ran(fault, tuple(self._doubts(fault)))

    def difference(self, results: Contents) -> Difference | None:
        """The first byte that differs. Memory that a run with other fill bytes did not write may differ."""
        if not self._filled:
            return super().difference(results)
        np = self._np
        ignored: dict[int, NDArray[np.bool_]] = {}
        for index, held in results.items():
            fresh = self._shadows["fresh"][index]
            if fresh.size:
                ignored[index] = np.repeat(fresh, 1 << self._shift)[: held.size] == Fresh.JUNK
        return self.memory.difference(results, ignored)

    def fault_finding(self, fault: CpuFault, schedule: Order) -> CheckFinding | None:
        """The kernel's own finding; programs that wait for lower ones do not end in another order."""
        if fault.kind is FaultKind.ENDLESS and schedule is not Order.ASCENDING:
            self.notes.append(f"programs wait for one another, so they were not checked {schedule.value}")
            return None
        return self._reporter.fault(fault, schedule.value)

    def doubt_finding(
        self, doubt: Doubt[CpuFault | CpuSuspect], other: int, effect: CpuFault | Difference | None, schedule: Order
    ) -> CheckFinding:
        """A read of unset memory, or an operation with a doubtful result, and the fault or store that it leads to."""
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
        """The first read of unset memory, and the sites of doubtful results, in the order of their first results.

        With a fault: only doubts that may be the reason why an access goes to that address.
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
        found = [site for site in self.sites if site.kind.suspect and self._cells[site.number].events]
        for site in sorted(found, key=lambda site: self._cells[site.number].order):
            cell = self._cells[site.number]
            suspect = CpuSuspect(site.number, cell.program, cell.lane)
            if fault is None:
                yield Doubt(suspect, (*_OTHERS, _IN_RANGE) if site.details.get("how") == "mul" else _OTHERS)
            elif site.kind is not SiteKind.NAN:
                yield Doubt(suspect, _OTHERS[:1])

    def _exchanged(self, schedule: Order, exchange: Exchange[CpuFault | CpuSuspect]) -> CpuFault | None:
        about = [doubt.about for doubt in exchange.doubts]
        change = {one.site: exchange.other for one in about if isinstance(one, CpuSuspect)}
        return self._once(schedule, change=change, fill=exchange.other if len(change) < len(about) else None)

    def _traced(self, suspect: CpuSuspect, other: int, address: int) -> tuple[CpuSuspect, Stored]:
        """Which store wrote a byte that depends on a site, and the site's first such value in the same program."""
        change = {suspect.site: other}
        self._once(Order.ASCENDING, change=change, watch=address)
        state = self._state
        stored = Stored(state.writer_site, state.writer, state.writer_lane, address)
        self._once(Order.ASCENDING, change=change, watch_program=stored.program)
        cell = self._cells[suspect.site]
        return (CpuSuspect(suspect.site, stored.program, cell.watched) if cell.seen else suspect), stored

    def _note_shared(self) -> None:
        for site in self.sites:
            if site.kind is SiteKind.STORE and self._cells[site.number].events:
                place = site.place or f"{site.operation} number {site.ordinal}"
                self.notes.append(
                    f"{place}: several programs store the same value to one element; it counts as no race"
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

    def _once(
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
            for one in self.unset:
                ctypes.memset(one.low, fill, one.size)
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
        found = self._state
        if found.kind == FaultKind.NOTHING:
            if code:  # an assertion in a function that is applied to elements, which is not a site
                raise CheckError(found.text.decode(errors="replace"), kind="assertion", place="")
            return None
        return CpuFault(FaultKind(found.kind), found.site, found.lane, found.program, found.address, found.other)

    def _prepare(self, change: Mapping[int, int], limit: int, watch: int, watch_program: int) -> None:
        reach: list[int] = []
        everything = tuple(range(len(self.allocations)))
        by_name = {one.name: index for index, one in enumerate(self.allocations)}
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
        state.bytes = 1024  # of the part that is struct silo_fault
        state.sites = ctypes.addressof(self._cells)
        state.bounds = ctypes.addressof(self._bounds)
        state.reach = ctypes.addressof(self._reach)
        state.limit, state.shift, state.programs = limit, self._shift, self.total
        state.watch, state.watch_program = watch, watch_program
        state.quiet, self._quiet = self._quiet, True
        self._set_clocks()

    def _shadow(self) -> None:
        """Fresh shadow memory for a run: pages that no access touches are never made."""
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
        named = [one for one in self.allocations if one.name in self.limits.uninitialized]
        for one, kind in (*((one, Fresh.JUNK) for one in self.unset), *((one, Fresh.NEW) for one in named)):
            at = self.memory.region_of(one)
            if at >= 0:
                fresh = self._shadows["fresh"][at]
                if not fresh.size:
                    fresh = self._shadows["fresh"][at] = np.zeros(sizes[at], np.uint8)
                low = one.low - regions[at].low >> self._shift
                fresh[low : one.high - regions[at].low + (1 << self._shift) - 1 >> self._shift] = kind
        for cell, one in zip(self._bounds, self.allocations, strict=False):
            at = self.memory.region_of(one)
            cell.low, cell.high, cell.writable = one.low, one.high, one.writable
            cell.origin = regions[at].low if at >= 0 else 0
            cell.inside = one.inside.ctypes.data if one.inside is not None else None
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

    # ---- memory

    def _granule(self) -> int:
        """The logarithm of the bytes of a shadow cell: the widest that no two elements share."""
        sizes = [site.bytes for site in self.sites if site.use]
        width = min(sizes, default=1)
        if any(region.low % width for region in self.memory.regions):
            width = 1
        return width.bit_length() - 1

    def _writable_regions(self) -> list[int]:
        if any(site.roots is None for site in self._written):
            names = {one.name for one in self.allocations}
        else:
            names = {self.names[root] for site in self._written for root in site.roots or ()}
        found = {self.memory.region_of(one) for one in self.allocations if one.name in names and one.writable}
        return sorted(found - {-1})
