"""Runs a kernel that checks itself: over copies of the caller's arrays, group after group, in several schedules."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from silo.backends.metal.checking.arena import Arena, Copied
from silo.backends.metal.checking.lines import LineTable
from silo.backends.metal.checking.state import CELL_BYTES, Area, AreaKind, Check, Found, FoundKind, Suspect
from silo.core.host_arrays import require_numpy
from silo.core.launch_info import AbiType, LaunchInfo

__all__ = ["SCHEDULES", "CheckedLaunch", "Fault", "Finding", "Limits", "Ready"]

# Seeds of the order in which threads go on; 0 is one after another.
SCHEDULES = (0, 1, 2, 3)
_NAN_BYTE = 0xFF  # of what is unset: NaN as a float, -1 as an integer
_OTHER_BYTES = (0x7E, 0xFE)  # great numbers of either sign
_MOST_CELLS = 1 << 25


class Fault(IntEnum):
    """``enum class Fault`` of the runtime: what an entry returns."""

    NONE = 0
    BARRIER_MISSED = 1
    BARRIER_MIXED = 2
    SIMD_DIVERGED = 3
    GROUP_MEMORY = 4
    STACK = 5
    CHECKED = 6
    BAD_ARGUMENT = 7


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a check looks at.

    ``steps``: accesses and turns of one threadgroup before it counts as endless. ``views``: an access must lie between
    the first and the last element of the array that was passed, not only in the memory that it is a view of.
    """

    steps: int = 100_000_000
    uninitialized: tuple[str, ...] = ()
    nan: bool = False
    seeds: tuple[int, ...] = SCHEDULES
    views: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """A loaded object: its entry as a foreign function, its lines, the file that is the kernel's text."""

    function: Any
    lines: LineTable
    file: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The first thing that is wrong.

    ``cause`` is what the code found, the first read of what was unset, the runtime's fault, or words. ``seed`` is the
    schedule it shows in; ``address`` that of the first result that differs or is no number, in the arena.
    """

    cause: Found | Suspect | Fault | str
    seed: int
    address: int = 0


class CheckedLaunch:
    """One launch over one set of arguments.

    Args:
        ready: the code.
        launch: its launch info.
        arguments: the caller's objects by name.
        written: the parameters that it writes through.
        limits: how much to look at.
        notes: where to say what was not looked at.
    """

    def __init__(
        self,
        ready: Ready,
        launch: LaunchInfo,
        arguments: Mapping[str, object],
        written: frozenset[str],
        limits: Limits,
        notes: list[str],
    ) -> None:
        require_numpy("checking mode")
        import numpy  # noqa: PLC0415, ICN001  # numpy is optional, and here

        self._np = numpy
        self._ready = ready
        self._launch = launch
        self.limits = limits
        self._notes = notes
        self._written = written
        self._arguments = arguments
        self._pointers = [slot.name for slot in launch.layout if slot.type is AbiType.POINTER]
        self.arena = Arena(self._pointers, arguments, views=limits.views)
        self.check = Check()
        self.areas: list[tuple[str, Area]] = []
        self._runs = 0
        self._first: list[bytes] = []
        self._cells: dict[int, Any] = {}
        self._keep: list[Any] = []

    @property
    def lines(self) -> LineTable:
        """Lines of the code."""
        return self._ready.lines

    # ---- the check

    def run(self, params: int, grid: tuple[int, int, int], scratch: int) -> Finding | None:
        """Run every group of ``grid`` in each schedule; the first thing that is wrong, or None.

        The caller's arrays hold what they held before, until :meth:`publish`.
        """
        self._grid = (ctypes.c_uint32 * 3)(*grid)
        self.total = grid[0] * grid[1] * grid[2]
        self._scratch = scratch
        self._prepare(params)
        first: list[bytes] = []
        for seed in self.limits.seeds:
            found = self._once(seed, _NAN_BYTE)
            if found is not None:
                return found
            results = self.arena.results()
            suspect, suspects = Suspect.from_buffer_copy(self.check.suspect), self.check.suspects
            finding = self._unset(seed, results, suspect) if suspects else None
            if finding is None and first and not self.check.any_atomic:
                address = self._difference(first, results)
                if address:
                    finding = Finding("results that depend on the order in which threads run", seed, address)
            if finding is not None:
                return finding
            first = first or results
        if self.limits.nan and (address := self._new_nan(first)):
            self._once(self.limits.seeds[0], _NAN_BYTE)
            return Finding("a NaN made of numbers", self.limits.seeds[0], address)
        if self.check.unordered_groups:
            self._notes.append(
                "threadgroups that use atomics may be ordered by them: some races between them are missed"
            )
        self._first = first
        return None

    def publish(self) -> None:
        """Leave in the caller's arrays what the first schedule left."""
        self.arena.publish(self._first)

    def results_of(self, ready: Ready, fill: int) -> list[bytes] | Finding:
        """What other code of the same kernel leaves in the first schedule."""
        mine, self._ready = self._ready, ready
        try:
            return self._once(self.limits.seeds[0], fill) or self.arena.results()
        finally:
            self._ready = mine

    def _unset(self, seed: int, results: list[bytes], suspect: Suspect) -> Finding | None:
        """What was read unset counts where the results differ once it holds something else."""
        for fill in _OTHER_BYTES:
            found = self._once(seed, fill)
            if found is not None:
                return Finding(suspect, seed)
            address = self._difference(results, self.arena.results())
            if address:
                return Finding(suspect, seed, address)
        return None

    def _difference(self, before: Sequence[bytes], now: Sequence[bytes]) -> int:
        """The address in the arena of the first byte that differs; 0 where none does."""
        np = self._np
        for start, one, other in zip(self.arena.starts, before, now, strict=True):
            if one != other:
                return start + int((np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8)).argmax())
        return 0

    def _new_nan(self, results: Sequence[bytes]) -> int:
        """The address of the first element that is no number and was another before; 0 where none is."""
        np = self._np
        for one in self.arena.copies:
            array = _floats(np, self._arguments[one.allocation.name])
            if one.region < 0 or array is None or one.allocation.name not in self._written:
                continue
            size = array.itemsize
            offset = one.low - self.arena.starts[one.region]
            count = (one.high - one.low) // size
            if offset % size:
                continue
            now = np.frombuffer(results[one.region], array, count, offset)
            was = np.frombuffer(self.arena.before(one.region), array, count, offset)
            made = np.isnan(now) & ~np.isnan(was)
            if made.any():
                return one.low + int(made.argmax()) * size
        return 0

    # ---- one run

    def _once(self, seed: int, fill: int) -> Finding | None:
        self._runs += 1
        self.arena.restore()
        self._fresh()
        check = self.check
        check.bytes, check.claimed, check.text = 1024, 0, b""  # of the part that any kernel is lent
        check.run, check.seed, check.fill = self._runs, seed, fill
        check.first_group = 1 + (self._runs - 1) * self.total
        self._point_at_rows()
        check.suspects = check.any_atomic = check.unordered_groups = 0
        check.found.kind = FoundKind.NOTHING
        code = self._ready.function(self._params, self._grid, 0, self.total, self._scratch, ctypes.addressof(check))
        if code == Fault.NONE:
            return None
        cause = Found.from_buffer_copy(check.found) if code == Fault.CHECKED and check.found.kind else Fault(code)
        return Finding(cause, seed)

    def _prepare(self, params: int) -> None:
        """Parameters that point into the arena; the areas that the code may reach."""
        slots = self._launch.layout
        given: Sequence[int | None] = (ctypes.c_void_p * len(slots)).from_address(params)[:] if slots else []
        cells: list[Any] = []
        self.areas = [(one.allocation.name, self._area(one)) for one in self.arena.copies]
        for slot, address in zip(slots, given, strict=False):
            assert address is not None
            if slot.type is AbiType.POINTER:
                caller = ctypes.c_uint64.from_address(address).value
                cells.append(ctypes.c_uint64(self.arena.address(slot.name, caller)))
                continue
            cells.append(address)
        places = [one if isinstance(one, int) else ctypes.addressof(one) for one in cells]
        self._params = (ctypes.c_void_p * max(len(slots), 1))(*places)
        self._areas = (Area * max(len(self.areas), 1))(*[area for _, area in self.areas])
        atomics = (ctypes.c_uint8 * max(self.total, 1))()
        self._keep += [cells, atomics]
        check = self.check
        check.areas, check.area_count = ctypes.addressof(self._areas), len(self.areas)
        check.atomics = ctypes.addressof(atomics)
        check.arena_low, check.arena_high = self.arena.low, self.arena.high
        check.steps = self.limits.steps
        check.file = self._ready.file.encode()
        self._atomics = atomics

    def _point_at_rows(self) -> None:
        stretches = list(self._ready.lines.stretches())
        starts = (ctypes.c_uint32 * len(stretches))(*[start for start, _ in stretches])
        classes = (ctypes.c_uint8 * len(stretches))(*[int(kind) for _, kind in stretches])
        self._rows = (starts, classes)
        self.check.row_starts, self.check.row_classes = ctypes.addressof(starts), ctypes.addressof(classes)
        self.check.row_count = len(stretches)

    def _area(self, one: Copied) -> Area:
        writable = int(one.allocation.writable)
        area = Area(one.low, one.high, one.low, None, None, AreaKind.ARRAY, writable)
        if one.region < 0:
            return area
        start = self.arena.starts[one.region]
        area.origin = start & -4
        region = self.arena.regions[one.region]
        mine = {other.allocation.name for other in self.arena.copies if other.region == one.region}
        count = (start % 4 + region.high - region.low + 3) // 4
        if not mine & self._written:
            return area
        if count > _MOST_CELLS:
            self._notes.append(f"{one.allocation.name} is too large to look for races in it")
            return area
        if one.region not in self._cells:
            self._cells[one.region] = self._np.zeros(count * CELL_BYTES, self._np.uint8)
        area.cells = self._cells[one.region].ctypes.data
        return area

    def _fresh(self) -> None:
        """Nothing was written yet to the arrays that the caller says hold nothing; no atomic was done."""
        ctypes.memset(self._atomics, 0, ctypes.sizeof(self._atomics))
        for index, (name, area) in enumerate(self.areas):
            if name in self.limits.uninitialized and area.kind == AreaKind.ARRAY and area.high > area.low:
                fresh = self._np.ones(area.high - area.low, self._np.uint8)
                self._keep.append(fresh)
                self._areas[index].fresh = fresh.ctypes.data


def _floats(np: Any, value: object) -> Any:  # noqa: ANN401
    """The type of a numpy or torch array's elements, where that is a float of numpy's."""
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    return np.dtype(name) if name in ("float16", "float32", "float64") else None
