"""The message of a failed check."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import NamedTuple

from silo.backends.metal.checking.run import CheckedLaunch, Fault, Finding
from silo.backends.metal.checking.state import Found, FoundKind, Suspect
from silo.errors import CheckError

__all__ = ["check_error"]

_ON_STACK = 0xFFFFFFFF
_FAULTS = {
    Fault.BARRIER_MISSED: "barrier",
    Fault.BARRIER_MIXED: "barrier",
    Fault.SIMD_DIVERGED: "divergence",
    Fault.GROUP_MEMORY: "threadgroup memory",
    Fault.STACK: "thread memory",
    Fault.CHECKED: "check",
    Fault.BAD_ARGUMENT: "bad argument",
}


class _Words(NamedTuple):
    kind: str
    what: str
    details: list[str]
    place: str
    argument: str | None = None


def check_error(kernel: str, launch: CheckedLaunch, grid: tuple[int, int, int], finding: Finding) -> CheckError:
    """The error that a launch raises."""
    return _Reporter(launch, grid).error(kernel, finding)


class _Reporter:
    def __init__(self, launch: CheckedLaunch, grid: tuple[int, int, int]) -> None:
        self.launch = launch
        self.grid = grid

    def error(self, kernel: str, finding: Finding) -> CheckError:
        cause = finding.cause
        check = self.launch.check
        group, thread = check.group, check.thread
        if isinstance(cause, Found):
            words, group, thread = self._found(cause), cause.group, cause.thread
        elif isinstance(cause, Suspect):
            words, group, thread = self._suspect(cause, finding), cause.group, cause.thread
        elif isinstance(cause, Fault):
            words = self._fault(cause)
        else:
            words = self._result(cause, finding)
        details = list(words.details)
        if finding.seed:
            details.append(f"Threads ran in the order of seed {finding.seed}")
        program, index = self._program(group), self._thread(thread)
        at = f" at {words.place}" if words.place else ""
        where = f", thread {index} of threadgroup {program}"
        text = f"{kernel}: {words.what}{at}{where}" + "".join(f"\n  {line}" for line in details)
        return CheckError(
            text, kind=words.kind, place=words.place, program=program, index=index, argument=words.argument
        )

    # ---- what the code found

    def _found(self, found: Found) -> _Words:
        kind = FoundKind(found.kind)
        place = self._site(found.site)
        does = "write" if found.write else "read"
        match kind:
            case FoundKind.BOUNDS:
                owner, where = self._where(found.address, found.size)
                return _Words(
                    "out of bounds", f"a {does} out of bounds", [f"{found.size} bytes: {where}"], place, owner
                )
            case FoundKind.READONLY:
                owner, where = self._where(found.address, found.size)
                return _Words("read-only", "a write to memory that is read-only", [where], place, owner)
            case FoundKind.UNINITIALIZED:
                owner, where = self._where(found.address, found.size)
                return _Words("uninitialized", "a read of memory that nothing was written to", [where], place, owner)
            case FoundKind.RACE:
                return self._race(found, place)
            case FoundKind.ENDLESS:
                steps = f"The threadgroup took {self.launch.limits.steps} steps (turns of loops and accesses)"
                waits = "a thread that waits for another without a barrier may wait for ever"
                return _Words("endless", "a loop that does not end", [f"{steps}; {waits}"], place)
            case FoundKind.STACK_BOUNDS:
                what = f"a {does} beyond a variable of the thread"
                return _Words("out of bounds", what, [f"{found.size} bytes"], place)
            case FoundKind.GLOBAL_BOUNDS:
                return _Words("out of bounds", f"a {does} beyond a constant", [f"{found.size} bytes"], place)
            case FoundKind.SCOPE:
                what = f"a {does} of a variable that lives no more"
                return _Words(
                    "out of bounds", what, ["A pointer outlived the block that declares what it points to"], place
                )
            case FoundKind.INDEX:
                name = (found.array_type or b"").decode(errors="replace").strip("'")
                what = f"the index {found.index} of an array that is {name}"
                return _Words("out of bounds", what, [], self._line(found.file, found.line))
            case _:
                other = self._thread(found.other_thread)
                elsewhere = f"{found.index} live threads of the simdgroup are elsewhere, thread {other} among them"
                details = [f"{elsewhere}: what they would hand over is undefined"]
                what = "an operation between lanes in divergent flow"
                return _Words("divergence", what, details, self._line(found.file, found.line))

    def _race(self, found: Found, place: str) -> _Words:
        owner, where = self._where(found.address, found.size)
        does = "write" if found.write else "read"
        did = "wrote" if found.other_write else "read"
        other = f"thread {self._thread(found.other_thread)}"
        if found.other_group != found.group:
            other += f" of threadgroup {self._program(found.other_group)}"
            advice = "and nothing orders threadgroups"
        else:
            advice = "and no barrier of that memory lies between"
        there = self._site(found.other_site)
        said = f"{other[0].upper()}{other[1:]} {did} there{f' at {there}' if there else ''}, {advice}"
        return _Words(
            "race", f"a {does} that races with another thread's", [f"{where[0].upper()}{where[1:]}", said], place, owner
        )

    def _suspect(self, suspect: Suspect, finding: Finding) -> _Words:
        place = self._site(suspect.site)
        details: list[str] = []
        if suspect.area == _ON_STACK:
            what, owner = "a read of a variable that nothing was written to", None
        else:
            what = "a read of threadgroup memory that nothing was written to"
            owner, where = self._where(suspect.address, suspect.size)
            details.append(where)
        if finding.address:
            name, where = self._where(finding.address, 1)
            owner = owner or name
            details.append(f"A result depends on it: {where}")
        return _Words("uninitialized", what, details, place, owner)

    def _result(self, what: str, finding: Finding) -> _Words:
        owner, where = self._where(finding.address, 1)
        kind = "NaN" if "NaN" in what else "race"
        return _Words(kind, what, [f"{where[0].upper()}{where[1:]}"], "", owner)

    # ---- what the runtime found

    def _fault(self, fault: Fault) -> _Words:
        """Its text begins with the place; then what, and in brackets where that was."""
        text = self.launch.check.text.decode(errors="replace")
        place, found, said = text.partition(": ")
        if not found:
            place, said = "", text
        details: list[str] = []
        if fault is Fault.BARRIER_MISSED:
            details = self._waiting()
        return _Words(_FAULTS[fault], said.rpartition(" (thread ")[0] or said, details, place)

    def _waiting(self) -> list[str]:
        check = self.launch.check
        threads = range(check.group_threads)
        absent = [index for index in threads if not check.threads[index].line]
        if not absent:
            return []
        return [f"{len(absent)} of {len(threads)} threads are not there, {self._thread(absent[0])} the first of them"]

    # ---- words

    def _where(self, address: int, size: int) -> tuple[str | None, str]:
        """The array that an address belongs to, or is nearest to, and where in it."""
        check = self.launch.check
        areas = [(name, area.low, area.high, "") for name, area in self.launch.areas]
        for index in range(check.group_array_count):
            array = check.group_arrays[index]
            name = (array.name or b"").decode(errors="replace") or "threadgroup memory"
            words = f", declared at {self._line(array.file, array.line)}" if array.line else ""
            areas.append((name, array.low, array.low + array.bytes, words))
        inside = next((one for one in areas if one[1] <= address < one[2]), None)
        if inside is None and not areas:
            return None, f"address {address:#x}, which lies in no array"
        name, low, high, words = inside or min(areas, key=lambda one: max(one[1] - address, address - one[2]))
        begin = next(
            (one.allocation.address + one.delta for one in self.launch.arena.copies if one.allocation.name == name), low
        )
        where = f"byte {address - begin} of {name} ({high - low} bytes{words})"
        if address < low:
            where += f", {low - address} bytes before its start"
        elif address + size > high:
            where += f", up to {address + size - high} bytes beyond its end"
        return name, where

    def _site(self, site: int) -> str:
        file, line = self.launch.lines.place(site)
        return f"{_short(file)}:{line}" if line else ""

    @staticmethod
    def _line(file: bytes | None, line: int) -> str:
        return f"{_short((file or b'').decode(errors='replace'))}:{line}" if line else ""

    def _program(self, number: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return (number % x, number // x % y, number // x // y)

    def _thread(self, number: int) -> tuple[int, int, int]:
        x, y = self.launch.check.shape[0] or 1, self.launch.check.shape[1] or 1
        return (number % x, number // x % y, number // x // y)


def _short(file: str) -> str:
    return PurePosixPath(file).as_posix().removeprefix("./")
