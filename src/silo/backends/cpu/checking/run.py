"""Runs a checked kernel: over the caller's memory, one program after another, several times, and puts it back."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from silo.backends.cpu.checking.sites import Site, SiteKind, Use
from silo.backends.cpu.checking.state import BoundsCell, CheckState, FaultKind, Fresh, SiteCell
from silo.core.host_arrays import require_numpy
from silo.errors import CheckError
from silo.launch.argument_memory import Allocation, Region, allocation_of, holding, regions_of
from silo.launch.new_memory import is_unset

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CheckedLaunch", "Fault", "Finding", "Limits", "Suspicion"]

_CLOCK_BYTES = 1 << 28  # what clocks of atomics may take
_CLOCK_PROGRAMS = 1 << 14  # more programs than this are taken for ordered once they acquired anything
_OTHER_ORDER_STEPS = 1 << 20
_IN_RANGE = 3  # the change of a suspect to 0
# Bytes that unset memory is filled with to see whether a result depends on it: zero, and great positive numbers.
_OTHER_UNSET = (0x00, 0x41)
_OF_ADDRESSES = (FaultKind.BOUNDS, FaultKind.UNALIGNED, FaultKind.READONLY)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a check looks at.

    ``steps``: turns of loops and accesses of one program before it counts as endless. ``uninitialized``: names of
    arguments that hold nothing yet. ``views``: an access must lie in the array that was passed, not only in the memory
    that the array is a view of.
    """

    steps: int = 100_000_000
    uninitialized: tuple[str, ...] = ()
    views: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """What the kernel found while it ran. ``other`` is a cell of shadow (a race), or the element before (a hint)."""

    kind: FaultKind
    site: int
    lane: int
    program: int
    address: int = 0
    other: int = 0


@dataclass(frozen=True, slots=True)
class Suspicion:
    """An operation whose result is none, in ``program`` at ``lane``, and what became of it.

    ``store`` is the site, program and lane that wrote the first byte that differs, at ``address``; or ``fault`` what
    went wrong (or no longer did) when the result was another. ``hidden``: a mask that is computed from the result keeps
    it from being used.
    """

    site: int
    program: int
    lane: int
    address: int = 0
    store: tuple[int, int, int] | None = None
    fault: Fault | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """The first thing that is wrong. ``order`` says how programs were run, "" for in order."""

    cause: Fault | Suspicion
    order: str = ""


class CheckedLaunch:
    """One launch of a checked kernel over one set of arguments.

    Args:
        entry: the kernel, as a foreign function.
        sites: its sites.
        names: its parameters, by position.
        arguments: the caller's objects by name.
        extra: further arrays that pointers in memory may point into.
        limits: how much to look at.
        notes: where to say what was not looked at.
    """

    def __init__(
        self,
        entry: Any,  # noqa: ANN401  # a ctypes function
        sites: Sequence[Site],
        names: Sequence[str],
        arguments: Mapping[str, object],
        extra: Sequence[object],
        limits: Limits,
        notes: list[str],
    ) -> None:
        require_numpy("checking mode")
        import numpy  # noqa: PLC0415, ICN001  # numpy is optional, and here

        self._np = numpy
        self._entry = entry
        self.sites = sites
        self.names = names
        self.limits = limits
        self.notes = notes
        self.allocations = _allocations(names, arguments, extra, views=limits.views)
        self.regions = regions_of(self.allocations)
        self._written = [site for site in sites if Use.WRITES in site.use]
        self._atomic = any(Use.ATOMIC in site.use and Use.WRITES in site.use for site in sites)
        self._syncs = any(site.use & (Use.ACQUIRES | Use.RELEASES) for site in sites)
        self._cells = (SiteCell * max(len(sites), 1))()
        self._bounds = (BoundsCell * max(len(self.allocations), 1))()
        self._reach: Any = None
        self._state = CheckState()
        self._shadows: dict[str, list[np.ndarray[Any, Any]]] = {}
        self._clocks: tuple[Any, Any] | None = None
        self._shift = 0
        self._quiet = False  # whether it was run once
        self.unset: tuple[Allocation, ...] = ()  # memory that torch allocated and nothing was written to

    # ---- the check

    def run(self, params: int, grid: tuple[int, int, int], scratch: int) -> Finding | None:
        """Run every program of ``grid``; the first thing that is wrong, or None.

        Afterwards memory holds what a launch leaves there, or what it held before where something is wrong.
        """
        self._call = (params, (ctypes.c_uint32 * 3)(*grid), scratch)
        self.total = grid[0] * grid[1] * grid[2]
        self.unset = tuple(one for one in self.allocations if one.size and is_unset(one.low, one.high))
        touched = {*self._writable_regions(), *(holding(self.regions, one) for one in self.unset)}
        kept = {index: self.regions[index].read() for index in sorted(touched)}
        self._shift = self._granule()
        self._quiet = False
        clean = False
        try:
            finding = self._find(kept)
            clean = finding is None
        finally:
            if not clean:
                self._restore(kept)
        return finding

    def _find(self, kept: dict[int, bytearray]) -> Finding | None:
        fault = self._run_programs(range(self.total))
        self._note_addresses()
        self._note_shared()
        suspects = self._suspects()
        unset = self._unset_read()
        if fault is not None:
            if unset is not None and fault.kind in _OF_ADDRESSES and self._matters(fault, kept, {}):
                return Finding(unset)
            return Finding(self._cause(fault, suspects, kept) or fault)
        results = {index: self.regions[index].read() for index in kept}
        if unset is not None and self._matters(None, kept, results):
            return Finding(unset)
        found = self._perturbed(suspects, kept, results)
        if found is None and self._atomic and self.total > 1:
            found = self._other_orders(kept)
        if found is None:
            self._restore(results)
        return found

    def _other_orders(self, kept: dict[int, bytearray]) -> Finding | None:
        """What only shows when programs run in another order. Without atomics there is nothing of the kind."""
        shuffled = list(range(self.total))
        random.Random(0).shuffle(shuffled)  # noqa: S311  # any order will do
        for order, programs in (("from the last to the first", range(self.total - 1, -1, -1)), ("shuffled", shuffled)):
            self._restore(kept)
            fault = self._run_programs(programs, limit=min(self.limits.steps, _OTHER_ORDER_STEPS))
            if fault is None:
                continue
            if fault.kind is FaultKind.ENDLESS:
                self.notes.append(f"programs wait for one another, so they were not checked {order}")
                continue
            return Finding(fault, order)
        return None

    # ---- memory that torch allocated and nothing was written to

    def _unset_read(self) -> Fault | None:
        """The first read of such memory in the last run, as the fault that it is if anything depends on it."""
        state = self._state
        if not state.unset_site:
            return None
        return Fault(
            FaultKind.UNINITIALIZED, state.unset_site - 1, state.unset_lane, state.unset_program, state.unset_address
        )

    def _matters(self, fault: Fault | None, kept: dict[int, bytearray], results: dict[int, bytearray]) -> bool:
        """Whether a run over other values in that memory finds another fault than ``fault``, or leaves other results.

        Memory that the other run does not write holds the other values, which is no difference.
        """
        np = self._np
        for value in _OTHER_UNSET:
            self._restore(kept)
            for one in self.unset:
                ctypes.memset(one.low, value, one.size)
            if self._run_programs(range(self.total)) != fault:
                return True
            for index, before in results.items():
                now = np.frombuffer(self.regions[index].read(), np.uint8)
                unequal = now != np.frombuffer(before, np.uint8)
                fresh = self._shadows["fresh"][index]
                if fresh.size:
                    unequal &= np.repeat(fresh, 1 << self._shift)[: now.size] != Fresh.JUNK
                if unequal.any():
                    return True
        return False

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

    # ---- values that are none

    def _suspects(self) -> list[Site]:
        """Sites of values that are none, in the order of their first such value."""
        found = [site for site in self.sites if site.kind.suspect and self._cells[site.number].events]
        return sorted(found, key=lambda site: self._cells[site.number].order)

    def _cause(self, fault: Fault, suspects: Sequence[Site], kept: dict[int, bytearray]) -> Suspicion | None:
        """The first value that is none without which the same fault would not be there."""
        if fault.kind not in _OF_ADDRESSES:
            return None
        first = {site.number: (self._cells[site.number].program, self._cells[site.number].lane) for site in suspects}
        for site in suspects:
            if site.kind is SiteKind.NAN:
                continue
            self._restore(kept)
            other = self._run_programs(range(self.total), change={site.number: 1})
            if other is None or (other.address, other.site) != (fault.address, fault.site):
                return Suspicion(site.number, *first[site.number], fault=fault)
        return None

    def _perturbed(
        self, suspects: Sequence[Site], kept: dict[int, bytearray], results: dict[int, bytearray]
    ) -> Finding | None:
        """The first value that is none and on which a result depends.

        A wrapped product is also exchanged for 0, the offset of an element that exists: if a mask computed from the
        product is all that keeps it from being used, the mask comes out different.
        """
        first = {site.number: (self._cells[site.number].program, self._cells[site.number].lane) for site in suspects}
        products = [site for site in suspects if site.details.get("how") == "mul"]
        for pattern, changed in ((1, suspects), (2, suspects), (_IN_RANGE, products)):
            if not changed or self._differs(changed, pattern, kept, results) is None:
                continue
            for site in changed:
                found = self._differs([site], pattern, kept, results)
                if found is None:
                    continue
                hidden = pattern == _IN_RANGE
                if isinstance(found, Fault):
                    return Finding(Suspicion(site.number, *first[site.number], fault=found, hidden=hidden))
                return Finding(replace(self._traced(site, pattern, found, first[site.number], kept), hidden=hidden))
            # Only together do they matter: then the first of them is as good as any.
            return Finding(Suspicion(changed[0].number, *first[changed[0].number], hidden=pattern == _IN_RANGE))
        return None

    def _differs(
        self, sites: Sequence[Site], pattern: int, kept: dict[int, bytearray], results: dict[int, bytearray]
    ) -> int | Fault | None:
        """The first address whose content is another when the values of ``sites`` are; or the fault that comes up."""
        self._restore(kept)
        fault = self._run_programs(range(self.total), change={site.number: pattern for site in sites})
        if fault is not None:
            return fault
        for index, before in results.items():
            address = self._first_difference(self.regions[index], before)
            if address is not None:
                return address
        return None

    def _first_difference(self, region: Region, before: bytearray) -> int | None:
        np = self._np
        now = np.frombuffer(region.read(), np.uint8)
        unequal = now != np.frombuffer(before, np.uint8)
        return region.low + int(unequal.argmax()) if unequal.any() else None

    def _traced(
        self, site: Site, pattern: int, address: int, first: tuple[int, int], kept: dict[int, bytearray]
    ) -> Suspicion:
        """Which store wrote what depends on a site, and the site's first such value in the same program."""
        self._restore(kept)
        self._run_programs(range(self.total), change={site.number: pattern}, watch=address)
        state = self._state
        store = (state.writer_site, state.writer, state.writer_lane)
        self._restore(kept)
        self._run_programs(range(self.total), change={site.number: pattern}, watch_program=store[1])
        cell = self._cells[site.number]
        program, lane = (store[1], cell.watched) if cell.seen else first
        return Suspicion(site.number, program, lane, address=address, store=store)

    # ---- one run

    def _run_programs(
        self,
        programs: Iterable[int],
        *,
        change: Mapping[int, int] | None = None,
        limit: int | None = None,
        watch: int = 0,
        watch_program: int = (1 << 64) - 1,
    ) -> Fault | None:
        self._prepare(change or {}, limit or self.limits.steps, watch, watch_program)
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
        return Fault(FaultKind(found.kind), found.site, found.lane, found.program, found.address, found.other)

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
        sizes = [(region.high - region.low >> self._shift) + 1 for region in self.regions]
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
            at = holding(self.regions, one)
            if at >= 0:
                fresh = self._shadows["fresh"][at]
                if not fresh.size:
                    fresh = self._shadows["fresh"][at] = np.zeros(sizes[at], np.uint8)
                low = one.low - self.regions[at].low >> self._shift
                fresh[low : one.high - self.regions[at].low + (1 << self._shift) - 1 >> self._shift] = kind
        for cell, one in zip(self._bounds, self.allocations, strict=False):
            at = holding(self.regions, one)
            cell.low, cell.high, cell.writable = one.low, one.high, one.writable
            cell.origin = self.regions[at].low if at >= 0 else 0
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
        """The logarithm of the bytes that a cell of shadow stands for: the widest that no two elements share."""
        sizes = [site.bytes for site in self.sites if site.use]
        width = min(sizes, default=1)
        if any(region.low % width for region in self.regions):
            width = 1
        return width.bit_length() - 1

    def _writable_regions(self) -> list[int]:
        if any(site.roots is None for site in self._written):
            names = {one.name for one in self.allocations}
        else:
            names = {self.names[root] for site in self._written for root in site.roots or ()}
        found = {holding(self.regions, one) for one in self.allocations if one.name in names and one.writable}
        return sorted(found - {-1})

    def _restore(self, held: Mapping[int, bytearray]) -> None:
        for index, content in held.items():
            self.regions[index].write(content)


def _allocations(
    names: Sequence[str], arguments: Mapping[str, object], extra: Sequence[object], *, views: bool
) -> tuple[Allocation, ...]:
    """One for each pointer argument that is an array, and one for each of ``extra``."""
    found: list[Allocation] = []
    for name in dict.fromkeys(names):
        value = arguments.get(name)
        base = getattr(value, "base", None) if hasattr(value, "block_shape") else value
        if hasattr(base, "shape"):
            found.append(allocation_of(name, base, view=views))
    found += [allocation_of(f"memory[{index}]", value, view=views) for index, value in enumerate(extra)]
    return tuple(found)
