"""Compiles kernels to code that checks each of its memory accesses, and runs it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from silo.checking.kernel import NativeCall
from silo.checking.machine import CheckFinding, Difference, Doubt, Exchange, Ran, Unseen
from silo.checking.memory import Contents, CopiedMemory, MemoryLaunch, allocations_of
from silo.compile.native_build import BuiltObject
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.protocols import CheckLimits
from silo.core.signature import Effect
from silo.core.variant import Compiled, CompiledBlob
from silo.emulation.clang import link_flags
from silo.emulation.fault_report import (
    CELL_BYTES,
    Area,
    AreaKind,
    Check,
    FaultReporter,
    FoundFault,
    FoundKind,
    ReadSuspect,
    ThreadFault,
    Words,
)
from silo.emulation.line_table import LineTable
from silo.emulation.runtime import HOOKS
from silo.errors import ArgumentError
from silo.launch.argument_memory import Allocation
from silo.launch.cpu_objects import load

__all__ = [
    "CHECKED_FLAGS",
    "CHECKED_STACK",
    "SCHEDULES",
    "CheckedLaunch",
    "CheckedRuns",
    "CheckedVariable",
    "Ready",
    "checked_flags",
    "checked_links",
    "checked_runs",
]


# ---- The runs of a kernel that checks itself ----


# Seeds of the order in which threads run; with seed 0 they run one after another.
SCHEDULES: tuple[int, ...] = (0, 1, 2, 3)
_NAN_BYTE = 0xFF  # the fill of memory that was never written: NaN as a float, -1 as an integer
# the fills of unset memory in further runs, as floats large and positive or negative: if such a fill changes a result,
# the result depends on unset memory
_OTHER_BYTES = (0x7E, 0xFE)
_MOST_CELLS = 1 << 25


@dataclass(frozen=True, slots=True)
class Ready:
    """A loaded object: its entry function, its line table, and the file name of the kernel's text."""

    function: Any
    lines: LineTable
    file: str


@dataclass(frozen=True, slots=True)
class CheckedVariable:
    """A variable of the kernel that may be unset when it is read, as clang warns.

    ``objects`` are two builds of the kernel, in which the variable begins with two different values.
    """

    place: str
    name: str
    objects: tuple[Ready, Ready]


@dataclass(frozen=True, slots=True)
class CheckedRuns:
    """A loaded kernel whose code checks each of its memory accesses, with the facts that launches need.

    ``written`` are the parameters that the kernel writes through. ``variable`` is a variable that may be unset when it
    is read, according to a warning of clang; None without such a warning.
    """

    ready: Ready
    layout: tuple[LayoutSlot, ...]
    written: frozenset[str]
    words: Words
    variable: CheckedVariable | None = None
    cooperative: bool = False

    def begin(
        self, arguments: Mapping[str, object], limits: CheckLimits, notes: list[str]
    ) -> Callable[[NativeCall], CheckedLaunch]:
        """Returns a function that makes a :class:`CheckedLaunch` over copies of the arrays in ``arguments``.

        Raises ArgumentError for an array that is not in host memory. The returned function raises ArgumentError for a
        cooperative launch of several groups, because a check runs groups one after another.
        """
        if limits.memory:
            notes.append("memory= is not looked at: the arrays of a kernel of this kind are its arguments")
        pointers = [slot.name for slot in self.layout if slot.type is AbiType.POINTER]
        arrays = allocations_of(pointers, arguments, views=limits.views)

        def launched(call: NativeCall) -> CheckedLaunch:
            if self.cooperative and call.total > 1:
                raise ArgumentError(
                    f"a check runs the {self.words.group}s of a launch one after another, and these {call.total} wait "
                    f"for each other (a cooperative launch): check the kernel with a grid of one {self.words.group}"
                )
            return CheckedLaunch(self, CopiedMemory(arrays), arguments, limits, notes, call)

        return launched


class CheckedLaunch(MemoryLaunch[int, FoundFault | ThreadFault, ReadSuspect | CheckedVariable]):
    """One launch of a kernel that checks itself.

    Args:
        code: the kernel.
        memory: copies of the arrays.
        arguments: the caller's objects by name.
        limits: how much to examine.
        notes: gets a line of text for each kind of check that is not made.
        call: the launch.
    """

    def __init__(
        self,
        code: CheckedRuns,
        memory: CopiedMemory,
        arguments: Mapping[str, object],
        limits: CheckLimits,
        notes: list[str],
        call: NativeCall,
    ) -> None:
        import numpy  # noqa: PLC0415, ICN001  # the memory is read with it

        self._np = numpy
        self.memory = self._copies = memory
        self._code = code
        self._arguments = arguments
        self._limits = limits
        self._notes = notes
        self._call = call
        self._grid = (ctypes.c_uint32 * 3)(*call.grid)
        self._check = Check()
        self._areas: list[tuple[str, Area]] = []
        self._runs = 0
        self._cells: dict[int, Any] = {}
        self._keep: list[Any] = []
        self._prepare(call.params)

    @property
    def schedules(self) -> Sequence[int]:
        """The seeds of the orders in which threads run."""
        return SCHEDULES

    @property
    def unseen(self) -> Sequence[Unseen[ReadSuspect | CheckedVariable]]:
        """The variable that may be unset, if any.

        The compiler may keep the variable in a register, and checks see only accesses to memory. So further runs give
        the variable other initial values, and their results are compared.
        """
        variable = self._code.variable
        return () if variable is None else (Unseen(Doubt(variable, (0, 1)), own=False),)

    def run(
        self, schedule: int, exchange: Exchange[ReadSuspect | CheckedVariable] | None = None
    ) -> Ran[FoundFault | ThreadFault, ReadSuspect | CheckedVariable]:
        """Runs every group, with its threads in the order of the seed ``schedule``."""
        if exchange is not None:
            (doubt,) = exchange.doubts
            if isinstance(doubt.about, CheckedVariable):
                return Ran(self._run_once(schedule, 0, doubt.about.objects[exchange.other]))
            return Ran(self._run_once(schedule, exchange.other))
        fault = self._run_once(schedule, _NAN_BYTE)
        if fault is not None or not self._check.suspects:
            return Ran(fault, comparable=not self._check.any_atomic)
        suspect = ReadSuspect.from_buffer_copy(self._check.suspect)
        return Ran(doubts=(Doubt(suspect, _OTHER_BYTES),), comparable=not self._check.any_atomic)

    def fault_finding(self, fault: FoundFault | ThreadFault, schedule: int) -> CheckFinding:
        """Returns the finding for a fault, found by a check of an access or by the functions that run the threads."""
        return self._reporter(schedule).fault(fault)

    def doubt_finding(
        self,
        doubt: Doubt[ReadSuspect | CheckedVariable],
        other: int,
        effect: FoundFault | ThreadFault | Difference | None,
        schedule: int,
    ) -> CheckFinding:
        """Returns the finding for a read of unset memory or of an unset variable.

        ``effect`` is the fault, or the first difference of results, that occurs if the memory holds other values.
        """
        del other
        about = doubt.about
        if isinstance(about, CheckedVariable):
            return CheckFinding(
                "uninitialized",
                f"a read of {about.name}, which nothing was written to on some way,",
                ("A result depends on it",),
                about.name,
                about.place,
                f" at {about.place}",
            )
        address = self.memory.address(effect) if isinstance(effect, Difference) else None
        return self._reporter(schedule).suspect(about, address)

    def order_finding(self, difference: Difference, schedule: int) -> CheckFinding:
        """Returns the finding for the first byte of a result that differs between two orders of threads."""
        message = "results that depend on the order in which threads run"
        return self._reporter(schedule).result("race", message, self.memory.address(difference))

    def results_finding(self, results: Contents) -> CheckFinding | None:
        """Returns the finding for a NaN computed from numbers, if the limits enable this check."""
        if self._limits.nan and (address := self._new_nan(results)):
            self._run_once(self.schedules[0], _NAN_BYTE)
            return self._reporter(self.schedules[0]).result("NaN", "a NaN made of numbers", address)
        if self._check.unordered_groups:
            group = self._code.words.group
            self._notes.append(f"{group}s that use atomics may be ordered by them: some races between them are missed")
        return None

    def _reporter(self, seed: int) -> FaultReporter:
        code, limits = self._code, self._limits
        return FaultReporter(
            self._check, code.words, self._copies.copies, code.ready.lines, self._call.grid, limits.steps, seed
        )

    def _new_nan(self, results: Contents) -> int:
        """Returns the address of the first element that the run changed from a number to NaN; 0 if there is none."""
        np = self._np
        for copy in self._copies.copies:
            array = _floats(np, self._arguments[copy.name])
            region = self._region_of(copy)
            if region < 0 or array is None or copy.name not in self._code.written:
                continue
            size = array.itemsize
            offset = copy.low - self.memory.starts[region]
            count = (copy.high - copy.low) // size
            if offset % size:
                continue
            now = np.frombuffer(results[region], array, count, offset)
            was = np.frombuffer(self.memory.kept(region), array, count, offset)
            new_nan = np.isnan(now) & ~np.isnan(was)
            if new_nan.any():
                return copy.low + int(new_nan.argmax()) * size
        return 0

    # ---- one run

    def _run_once(self, seed: int, fill: int, ready: Ready | None = None) -> FoundFault | ThreadFault | None:
        self._runs += 1
        self.memory.restore()
        self._fresh()
        check, ready = self._check, ready or self._code.ready
        # ``Check`` begins with the text buffer of ``struct Context``, where the runtime writes the message of a fault
        check.bytes, check.claimed, check.text = 1024, 0, b""
        check.run, check.seed, check.fill = self._runs, seed, fill
        check.first_group = 1 + (self._runs - 1) * self._call.total
        self._point_at_rows(ready)
        check.suspects = check.any_atomic = check.unordered_groups = 0
        check.found.kind = FoundKind.NOTHING
        state = ctypes.addressof(check)
        code = ready.function(self._params, self._grid, 0, self._call.total, self._call.scratch, state)
        if code == ThreadFault.NONE:
            return None
        return (
            FoundFault.from_buffer_copy(check.found)
            if code == ThreadFault.CHECKED and check.found.kind
            else ThreadFault(code)
        )

    def _prepare(self, params: int) -> None:
        """Makes launch parameters that point into the copies of the arrays, and the list of accessible areas."""
        slots = self._code.layout
        places: list[int] = []
        addresses: Sequence[int | None] = (
            (ctypes.c_void_p * max(len(slots), 1)).from_address(params)[:] if slots else []
        )
        self._areas = [(copy.name, self._area(copy)) for copy in self._copies.copies]
        last: tuple[int, int] | None = None
        for slot in slots:
            member = slot.member
            begins = member is None or last is None or last[1] != member[1] or member[0] <= last[0]
            last = member
            if begins:
                address = addresses[len(places)]
                assert address is not None
                # Only pointers are replaced, by addresses in the copies of the arrays. A struct by value that contains
                # a pointer is copied first.
                size = 8 if member is None else member[1]
                pointer = slot.type is AbiType.POINTER
                copied = pointer or member is not None
                cell = ctypes.create_string_buffer(ctypes.string_at(address, size), size) if copied else None
                self._keep.append(cell)
                places.append(address if cell is None else ctypes.addressof(cell))
            if slot.type is AbiType.POINTER:
                own = ctypes.c_uint64.from_address(places[-1] + (0 if member is None else member[0]))
                own.value = self._copies.moved(slot.name, own.value)
        self._params = (ctypes.c_void_p * max(len(places), 1))(*places)
        self._area_cells = (Area * max(len(self._areas), 1))(*[area for _, area in self._areas])
        self._atomics = (ctypes.c_uint8 * max(self._call.total, 1))()
        check = self._check
        check.areas, check.area_count = ctypes.addressof(self._area_cells), len(self._areas)
        check.atomics = ctypes.addressof(self._atomics)
        check.arena_low, check.arena_high = self._copies.low, self._copies.high
        check.steps = self._limits.steps
        check.file = self._code.ready.file.encode()

    def _point_at_rows(self, ready: Ready) -> None:
        stretches = list(ready.lines.stretches())
        starts = (ctypes.c_uint32 * len(stretches))(*[start for start, _ in stretches])
        classes = (ctypes.c_uint8 * len(stretches))(*[int(kind) for _, kind in stretches])
        self._rows = (starts, classes)
        self._check.row_starts, self._check.row_classes = ctypes.addressof(starts), ctypes.addressof(classes)
        self._check.row_count = len(stretches)

    def _area(self, allocation: Allocation) -> Area:
        area = Area(
            allocation.low, allocation.high, allocation.low, None, None, AreaKind.ARRAY, int(allocation.writable)
        )
        index = self._region_of(allocation)
        if index < 0:
            return area
        start, region = self.memory.starts[index], self.memory.regions[index]
        area.origin = start & -4
        mine = {other.name for other in self._copies.copies if self._region_of(other) == index}
        count = (start % 4 + region.high - region.low + 3) // 4
        if not mine & self._code.written:
            return area
        if count > _MOST_CELLS:
            self._notes.append(f"{allocation.name} is too large to look for races in it")
            return area
        if index not in self._cells:
            self._cells[index] = self._np.zeros(count * CELL_BYTES, self._np.uint8)
        area.cells = self._cells[index].ctypes.data
        return area

    def _region_of(self, copy: Allocation) -> int:
        at = self._copies.copies.index(copy)
        return self.memory.region_of(self.memory.allocations[at])

    def _fresh(self) -> None:
        """Marks the arrays in ``uninitialized`` as unwritten, and resets the record of atomic operations."""
        ctypes.memset(self._atomics, 0, ctypes.sizeof(self._atomics))
        for index, (name, area) in enumerate(self._areas):
            if name in self._limits.uninitialized and area.kind == AreaKind.ARRAY and area.high > area.low:
                fresh = self._np.ones(area.high - area.low, self._np.uint8)
                self._keep.append(fresh)
                self._area_cells[index].fresh = fresh.ctypes.data


def _floats(np: Any, value: object) -> Any:  # noqa: ANN401
    """Returns the element type of a numpy or torch array if it is one of numpy's floats, else None."""
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    return np.dtype(name) if name in ("float16", "float32", "float64") else None


# ---- Compilation to code that checks itself ----

CHECKED_STACK = 131072
"""Bytes of a thread's stack in checked code."""

# Flags of checked code: clang's address sanitizer with a call for each access and without shadow memory (the hooks
# define the called functions); line tables for messages; frame pointers. Almost nothing is inlined, and loops are not
# assumed to end.
CHECKED_FLAGS = (
    "-O1",
    "-DSILO_THREADS_CHECKED",
    f"-DSILO_THREADS_STACK={CHECKED_STACK}",
    f"-I{HOOKS}",
    "-gdwarf-4",
    "-gline-tables-only",
    "-gz=none",
    "-ffunction-sections",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fno-inline",
    "-fno-finite-loops",
    "-fsanitize=kernel-address",
    "-fsanitize=array-bounds",
    "-fsanitize-recover=array-bounds",
    "-fsanitize-coverage=trace-pc",
    "-Xclang",
    "-fsanitize-address-use-after-scope",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=0",
    "-mllvm",
    "-asan-stack=1",
    "-mllvm",
    "-asan-globals=1",
    "-mllvm",
    "-asan-opt=0",
    "-mllvm",
    "-asan-use-stack-safety=0",
    "-mllvm",
    "-asan-max-inline-poisoning-size=0",
    "-mllvm",
    "-asan-mapping-offset=0",
    "-mllvm",
    "-asan-kernel-mem-intrinsic-prefix=1",
    # Keeps a local array in memory even if it is never written again. Without this flag, clang would replace such an
    # array by the constant from which it was copied, and accesses to the constant are not checked.
    "-mllvm",
    "-instcombine-max-copied-from-constant-users=0",
)
_UNSET = ("-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized")
# Flags of ordinary code that checked code replaces by others.
_OTHERWISE = frozenset({"-O2", "-g0", "-w"})
_STRIPPED = "-Wl,-s"


def checked_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the compiler flags of checked code for the flags of ordinary code."""
    return (*(flag for flag in flags if flag not in _OTHERWISE), *CHECKED_FLAGS)


def checked_links() -> tuple[str, ...]:
    """Returns the linker flags of checked code, which keeps its symbols."""
    return tuple(flag for flag in link_flags() if flag != _STRIPPED)


def checked_runs(
    build: Callable[[tuple[str, ...]], BuiltObject],
    launch: LaunchInfo,
    effects: Sequence[Effect],
    file: str,
    library: tuple[str, ...],
    words: Words,
) -> CheckedRuns:
    """Builds and loads a kernel that checks itself.

    Args:
        build: compiles the kernel with :data:`CHECKED_FLAGS` and the flags that it is given.
        launch: the kernel's launch info, whose layout has only arrays and scalars.
        effects: the kernel's effect through each parameter of the layout.
        file: the name of the kernel's text in messages.
        library: prefixes of the names of files that are not the user's.
        words: the terms of the kernel's kind for messages.

    Raises:
        CompileError: clang refuses the text.
    """

    def loaded(flags: tuple[str, ...]) -> tuple[Ready, str]:
        built = build(flags)
        function = load(Compiled(launch, CompiledBlob("so", built.data))).function
        return Ready(function, LineTable(built.data, library), file), built.log

    ready, log = loaded(_UNSET)
    written = frozenset(slot.name for slot, effect in zip(launch.layout, effects, strict=True) if effect.writes)
    doubt = next(_doubts(log, file), None)
    if doubt is None:
        return CheckedRuns(ready, launch.layout, written, words, cooperative=launch.cooperative)
    position, name = doubt
    nan, zero = (loaded(("-w", f"-ftrivial-auto-var-init={how}"))[0] for how in ("pattern", "zero"))
    variable = CheckedVariable(position, name, (nan, zero))
    return CheckedRuns(ready, launch.layout, written, words, variable, launch.cooperative)


def _doubts(log: str, file: str) -> Iterator[tuple[str, str]]:
    """Yields place and name of each variable in clang's warnings ``file:line:column: warning: variable 'x' ...``."""
    for line in log.splitlines():
        head, separator, rest = line.partition(": warning: variable '")
        name, _, column = head.rpartition(":")
        if separator and "uninitialized" in rest and name.startswith(file) and column.isdigit():
            yield name, rest.partition("'")[0]
