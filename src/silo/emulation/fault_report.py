"""The faults and reads of unset memory that checked code records: its structs, and the findings made from them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from pathlib import PurePosixPath

from silo.checking.machine import CheckFinding, capital, coordinates, nearest, place_in
from silo.emulation.line_table import LineTable
from silo.frozen import frozen, replace
from silo.launch.argument_memory import Allocation

__all__ = [
    "CELL_BYTES",
    "Area",
    "AreaKind",
    "Check",
    "FaultReporter",
    "FoundFault",
    "FoundKind",
    "ReadSuspect",
    "ThreadFault",
    "Words",
]

# ---- The state that checked code shares with the host: the structs of ``checking/check_state.h`` ----

# Bytes of ``struct Cell``, the state that is kept for each four bytes of memory.
CELL_BYTES = 68


class ThreadFault(IntEnum):
    """``enum class Fault`` in ``silo_threads/group.h``: the result of a kernel's entry function."""

    NONE = 0
    BARRIER_MISSED = 1
    BARRIER_MIXED = 2
    SIMD_DIVERGED = 3
    GROUP_MEMORY = 4
    STACK = 5
    CHECKED = 6
    BAD_ARGUMENT = 7


class FoundKind(IntEnum):
    """``enum class Kind`` in ``check_state.h``: the kinds of faults that checks in the code find."""

    NOTHING = 0
    BOUNDS = 1
    READONLY = 2
    UNINITIALIZED = 3
    RACE = 4
    ENDLESS = 5
    STACK_BOUNDS = 6
    SCOPE = 7
    INDEX = 8
    DIVERGED = 9
    GLOBAL_BOUNDS = 10


class AreaKind(IntEnum):
    """``enum class AreaKind`` in ``check_state.h``: the kinds of memory that an :class:`Area` may be."""

    ARRAY = 0
    GROUP = 1


class Area(ctypes.Structure):
    """``struct Area`` in ``check_state.h``: memory that a kernel may access."""

    _fields_ = (
        ("low", ctypes.c_uint64),
        ("high", ctypes.c_uint64),
        ("origin", ctypes.c_uint64),
        ("cells", ctypes.c_void_p),
        ("fresh", ctypes.c_void_p),
        ("kind", ctypes.c_uint32),
        ("writable", ctypes.c_uint32),
    )


class FoundFault(ctypes.Structure):
    """``struct Found`` in ``check_state.h``: a fault that a check found."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("group", ctypes.c_uint32),
        ("site", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("other_thread", ctypes.c_int32),
        ("other_group", ctypes.c_uint32),
        ("other_site", ctypes.c_uint32),
        ("write", ctypes.c_int32),
        ("other_write", ctypes.c_int32),
        ("area", ctypes.c_int32),
        ("index", ctypes.c_int64),
        ("file", ctypes.c_char_p),
        ("array_type", ctypes.c_char_p),
        ("line", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
    )


class ReadSuspect(ctypes.Structure):
    """``struct Suspect`` in ``check_state.h``: a read of memory that was never written."""

    _fields_ = (
        ("site", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("area", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


class GroupArray(ctypes.Structure):
    """``struct GroupArray`` in ``check_state.h``: an array that the threads of a group share."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("low", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("line", ctypes.c_uint32),
        ("symbol", ctypes.c_uint32),
    )


class Waiting(ctypes.Structure):
    """``struct Waiting`` in ``check_state.h``: file and line at which a thread waits."""

    _fields_ = (("file", ctypes.c_char_p), ("line", ctypes.c_uint32), ("spare", ctypes.c_uint32))


class Check(ctypes.Structure):
    """``struct Check`` in ``check_state.h``: the state of a check."""

    _fields_ = (
        ("bytes", ctypes.c_uint32),
        ("claimed", ctypes.c_int32),
        ("text", ctypes.c_char * 1016),
        ("run", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("fill", ctypes.c_uint64),
        ("areas", ctypes.c_void_p),
        ("row_starts", ctypes.c_void_p),
        ("row_classes", ctypes.c_void_p),
        ("atomics", ctypes.c_void_p),
        ("file", ctypes.c_char_p),
        ("arena_low", ctypes.c_uint64),
        ("arena_high", ctypes.c_uint64),
        ("area_count", ctypes.c_uint32),
        ("row_count", ctypes.c_uint32),
        ("first_group", ctypes.c_uint32),
        ("suspects", ctypes.c_uint32),
        ("any_atomic", ctypes.c_uint32),
        ("unordered_groups", ctypes.c_uint32),
        ("group", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("group_threads", ctypes.c_uint32),
        ("group_array_count", ctypes.c_uint32),
        ("shape", ctypes.c_uint32 * 4),
        ("suspect", ReadSuspect),
        ("found", FoundFault),
        ("group_arrays", GroupArray * 64),
        ("threads", Waiting * 1024),
    )


# ---- Faults and doubtful reads as findings ----

_ON_STACK = 0xFFFFFFFF
_FAULTS = {
    ThreadFault.BARRIER_MISSED: "barrier",
    ThreadFault.BARRIER_MIXED: "barrier",
    ThreadFault.SIMD_DIVERGED: "divergence",
    ThreadFault.GROUP_MEMORY: "shared memory",
    ThreadFault.STACK: "thread memory",
    ThreadFault.CHECKED: "check",
    ThreadFault.BAD_ARGUMENT: "bad argument",
}


@frozen
class Words:
    """The terms of a kind of kernel for findings: a group of threads, a subgroup of lanes, shared memory."""

    group: str
    lanes: str
    memory: str


@frozen
class FaultReporter:
    """Makes the findings of one launch, after the run in which they occurred.

    ``check`` is the state after this run, ``words`` the kernel kind's terms. ``copies`` are the copies of the call's
    arrays that this run used, ``lines`` the line table of the code, ``steps`` the limit of steps for a group, ``seed``
    the order of threads.
    """

    check: Check
    words: Words
    copies: Sequence[Allocation]
    lines: LineTable
    grid: tuple[int, int, int]
    steps: int
    seed: int

    def fault(self, fault: FoundFault | ThreadFault) -> CheckFinding:
        """Returns the finding for a fault, found by a check of an access or by the functions that run the threads."""
        if isinstance(fault, FoundFault):
            return self._placed(self._finding_of(fault), fault.group, fault.thread)
        return self._placed(self._fault(fault), self.check.group, self.check.thread)

    def suspect(self, suspect: ReadSuspect, address: int | None) -> CheckFinding:
        """Returns the finding for a read of unset memory.

        ``address`` is the address of the first result that depends on the read; None if no array shows one.
        """
        return self._placed(self._suspect(suspect, address), suspect.group, suspect.thread)

    def result(self, kind: str, label: str, address: int) -> CheckFinding:
        """Returns the finding for a wrong element of a result, at ``address``."""
        owner, where = self._where(address, 1)
        return self._placed(CheckFinding(kind, label, (capital(where),), owner), self.check.group, self.check.thread)

    def _placed(self, finding: CheckFinding, group: int, thread: int) -> CheckFinding:
        details = finding.details
        if self.seed:
            details = (*details, f"Threads ran in the order of seed {self.seed}")
        program, index = coordinates(group, self.grid), self._thread(thread)
        at = f" at {finding.place}" if finding.place else ""
        where = f"{at}, thread {index} of {self.words.group} {program}"
        return replace(finding, details=details, at=where, program=program, index=index)

    # ---- faults found by checks in the code

    def _finding_of(self, fault: FoundFault) -> CheckFinding:
        kind = FoundKind(fault.kind)
        location = self._site(fault.site)
        does = "write" if fault.write else "read"
        match kind:
            case FoundKind.BOUNDS:
                owner, where = self._where(fault.address, fault.size)
                access = f"{fault.size} bytes: {where}"
                return CheckFinding("out of bounds", f"a {does} out of bounds", (access,), owner, location)
            case FoundKind.READONLY:
                owner, where = self._where(fault.address, fault.size)
                return CheckFinding("read-only", "a write to memory that is read-only", (where,), owner, location)
            case FoundKind.UNINITIALIZED:
                owner, where = self._where(fault.address, fault.size)
                return CheckFinding(
                    "uninitialized", "a read of memory that nothing was written to", (where,), owner, location
                )
            case FoundKind.RACE:
                return self._race(fault, location)
            case FoundKind.ENDLESS:
                steps = f"The {self.words.group} took {self.steps} steps (turns of loops and accesses)"
                waits = "a thread that waits for another without a barrier may wait for ever"
                return CheckFinding("endless", "a loop that does not end", (f"{steps}; {waits}",), None, location)
            case FoundKind.STACK_BOUNDS:
                message = f"a {does} beyond a variable of the thread"
                return CheckFinding("out of bounds", message, (f"{fault.size} bytes",), None, location)
            case FoundKind.GLOBAL_BOUNDS:
                message = f"a {does} beyond a constant"
                return CheckFinding("out of bounds", message, (f"{fault.size} bytes",), None, location)
            case FoundKind.SCOPE:
                message = f"a {does} of a variable that lives no more"
                why = "A pointer outlived the block that declares what it points to"
                return CheckFinding("out of bounds", message, (why,), None, location)
            case FoundKind.INDEX:
                name = (fault.array_type or b"").decode(errors="replace").strip("'")
                message = f"the index {fault.index} of an array that is {name}"
                return CheckFinding("out of bounds", message, place=self._line(fault.file, fault.line))
            case _:
                other = self._thread(fault.other_thread)
                lanes = self.words.lanes
                elsewhere = f"{fault.index} live threads of the {lanes} are elsewhere, thread {other} among them"
                access = f"{elsewhere}: what they would hand over is undefined"
                message = "an operation between lanes in divergent flow"
                return CheckFinding("divergence", message, (access,), place=self._line(fault.file, fault.line))

    def _race(self, fault: FoundFault, location: str) -> CheckFinding:
        owner, where = self._where(fault.address, fault.size)
        does = "write" if fault.write else "read"
        did = "wrote" if fault.other_write else "read"
        other = f"thread {self._thread(fault.other_thread)}"
        if fault.other_group != fault.group:
            other += f" of {self.words.group} {coordinates(fault.other_group, self.grid)}"
            advice = f"and nothing orders {self.words.group}s"
        else:
            advice = "and no barrier of that memory lies between"
        other_location = self._site(fault.other_site)
        description = f"{capital(other)} {did} there{f' at {other_location}' if other_location else ''}, {advice}"
        return CheckFinding(
            "race", f"a {does} that races with another thread's", (capital(where), description), owner, location
        )

    def _suspect(self, suspect: ReadSuspect, address: int | None) -> CheckFinding:
        location = self._site(suspect.site)
        details: list[str] = []
        if suspect.area == _ON_STACK:
            message, owner = "a read of a variable that nothing was written to", None
        else:
            message = f"a read of {self.words.memory} that nothing was written to"
            owner, where = self._where(suspect.address, suspect.size)
            details.append(where)
        if address is not None:
            name, where = self._where(address, 1)
            owner = owner or name
            details.append(f"A result depends on it: {where}")
        return CheckFinding("uninitialized", message, tuple(details), owner, location)

    # ---- faults found by the runtime

    def _fault(self, fault: ThreadFault) -> CheckFinding:
        """Returns the finding for a fault that the C++ headers of the emulation found (``silo_threads``).

        Their text about the fault, in ``check``, is a place, a description, and the thread in brackets.
        """
        text = self.check.text.decode(errors="replace")
        location, separator, description = text.partition(": ")
        if not separator:
            location, description = "", text
        details = self._waiting() if fault is ThreadFault.BARRIER_MISSED else ()
        kind = self.words.memory if fault is ThreadFault.GROUP_MEMORY else _FAULTS[fault]
        return CheckFinding(kind, description.rpartition(" (thread ")[0] or description, details, None, location)

    def _waiting(self) -> tuple[str, ...]:
        check = self.check
        threads = range(check.group_threads)
        absent = [index for index in threads if not check.threads[index].line]
        if not absent:
            return ()
        return (f"{len(absent)} of {len(threads)} threads are not there, {self._thread(absent[0])} the first of them",)

    # ---- words

    def _where(self, address: int, size: int) -> tuple[str | None, str]:
        """Returns an array's name and a description of the address in it, for messages.

        The array is the one that contains the address, or the nearest one; the name is None if there are no arrays.
        """
        check = self.check
        areas = [
            Allocation(copy.name, copy.low, copy.high, copy.address, f"{copy.high - copy.low} bytes")
            for copy in self.copies
        ]
        for index in range(check.group_array_count):
            array = check.group_arrays[index]
            name = (array.name or b"").decode(errors="replace") or self.lines.symbols.get(array.symbol, "")
            name = name or self.words.memory
            words = f"{array.bytes} bytes"
            if array.line:
                words += f", declared at {self._line(array.file, array.line)}"
            areas.append(Allocation(name, array.low, array.low + array.bytes, array.low, words))
        if not areas:
            return None, f"address {address:#x}, which lies in no array"
        area = nearest(areas, address)
        return area.name, place_in(area, address, size)

    def _site(self, site: int) -> str:
        file, line = self.lines.place(site)
        return f"{_short(file)}:{line}" if line else ""

    @staticmethod
    def _line(file: bytes | None, line: int) -> str:
        return f"{_short((file or b'').decode(errors='replace'))}:{line}" if line else ""

    def _thread(self, number: int) -> tuple[int, int, int]:
        return coordinates(number, (self.check.shape[0] or 1, self.check.shape[1] or 1))


def _short(file: str) -> str:
    return PurePosixPath(file).as_posix().removeprefix("./")
