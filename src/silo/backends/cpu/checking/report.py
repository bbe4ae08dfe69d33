"""The message of a failed check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from silo.backends.cpu.checking.run import CheckedLaunch, Fault, Finding, Suspicion
from silo.backends.cpu.checking.sites import Site, SiteKind, Use
from silo.backends.cpu.checking.state import FaultKind
from silo.errors import CheckError
from silo.launch.argument_memory import Allocation

__all__ = ["check_error"]

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


class _Words(NamedTuple):
    kind: str
    what: str
    details: Sequence[str]
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
        words = self._fault(cause) if isinstance(cause, Fault) else self._suspicion(cause)
        site = self.launch.sites[cause.site]
        program = self._program(cause.program)
        index = site.index(cause.lane) if cause.lane >= 0 else ()
        details = list(words.details)
        if finding.order:
            details.append(f"It shows when programs run {finding.order}")
        at = f", program {program}" + (f", index {_tuple(index)}" if index else "")
        text = f"{kernel}: {words.what} {self._place(site)}{at}" + "".join(f"\n  {line}" for line in details)
        return CheckError(
            text, kind=words.kind, place=site.place, program=program, index=index, argument=words.argument
        )

    def _program(self, number: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return (number % x, number // x % y, number // x // y)

    @staticmethod
    def _place(site: Site) -> str:
        if site.place:
            return f"at {site.place}"
        return f"in {site.operation} number {site.ordinal} (the text of the kernel has no lines)"

    # ---- faults

    def _fault(self, fault: Fault) -> _Words:
        site = self.launch.sites[fault.site]
        match fault.kind:
            case FaultKind.BOUNDS:
                return self._bounds(site, fault)
            case FaultKind.RACE:
                return self._race(site, fault)
            case FaultKind.READONLY:
                owner, where = self._where(site, fault.address)
                return _Words("read-only", f"a {_noun(site)} to memory that is read-only", [where], owner)
            case FaultKind.UNALIGNED:
                owner, where = self._where(site, fault.address)
                what = f"a misaligned {_noun(site)} of {site.bytes} bytes"
                return _Words("misaligned", what, [f"{where}: the address is not a multiple of {site.bytes}"], owner)
            case FaultKind.UNINITIALIZED:
                owner, where = self._where(site, fault.address)
                details = [where]
                if any(one.name == owner and one in self.launch.unset for one in self.launch.allocations):
                    details.append("It holds what torch's allocator left there: no operator and no kernel wrote to it")
                return _Words("uninitialized", f"a {_noun(site)} of memory that nothing was written to", details, owner)
            case FaultKind.TWICE:
                owner, where = self._where(site, fault.address)
                what = "a store of two values to one address"
                why = "Two elements of one store: which of them memory holds afterwards differs between devices"
                return _Words("collision", what, [f"{where[0].upper()}{where[1:]}", why], owner)
            case FaultKind.OUTSIDE:
                index, extent = _signed(fault.address), fault.other
                said = f"Index {index} of axis {site.details.get('axis')}, which has {extent} elements"
                return _Words("out of bounds", "a tl.gather outside of its tile", [said])
            case FaultKind.ENDLESS:
                steps = f"The program took {self.launch.limits.steps} steps (turns of loops and accesses)"
                waits = "programs run one after another, so it may also wait for one that comes later"
                return _Words("endless", "a loop that does not end", [f"{steps}; {waits}"])
            case FaultKind.ASSERT:
                message = str(site.details.get("message", ""))
                return _Words("assertion", "a failed device_assert", [message] if message else [])
            case FaultKind.ASSUME:
                return _Words("assumption", "a tl.assume that does not hold", [])
            case _:
                return self._hint(site, fault)

    def _bounds(self, site: Site, fault: Fault) -> _Words:
        owner, where = self._where(site, fault.address)
        does = "accesses" if Use.ATOMIC in site.use else "reads" if Use.READS in site.use else "writes"
        return _Words(
            "out of bounds", f"a {_noun(site)} out of bounds", [f"It {does} {site.bytes} bytes: {where}"], owner
        )

    def _where(self, site: Site, address: int) -> tuple[str | None, str]:
        """The argument that an address belongs to, or derives from, and where in it an access of it is."""
        allocations = self.launch.allocations
        size = site.bytes if site.use else 0
        inside = [one for one in allocations if one.low <= address < one.high]
        mine = self._mine(site)
        own = next((one for one in inside if one in mine), None)
        if own is not None:
            return own.name, f"{_offset(own, address)} of {own.name} ({own.words}){_reach(own, address, size)}"
        elsewhere = f", inside of {inside[0].name}" if inside else ""
        if site.roots is None:
            return None, (
                f"address {address:#x}, which is computed from a number and lies in no array of the call; name the "
                "array it points into in memory="
            )
        if not mine:
            names = " and ".join(sorted({self.launch.names[root] for root in site.roots}))
            return names, f"address {address:#x}; of {names} only the address is known: name its array in memory="
        nearest = min(mine, key=lambda one: max(one.low - address, address - one.high))
        return nearest.name, (
            f"{_offset(nearest, address)} of {nearest.name} ({nearest.words})"
            f"{_reach(nearest, address, size)}{elsewhere}"
        )

    def _mine(self, site: Site) -> list[Allocation]:
        if site.roots is None:
            return list(self.launch.allocations)
        names = {self.launch.names[root] for root in site.roots}
        return [one for one in self.launch.allocations if one.name in names]

    def _race(self, site: Site, fault: Fault) -> _Words:
        owner, where = self._where(site, fault.address)
        other, number = fault.other >> 24, fault.other >> 12 & 0xFFF
        before = self.launch.sites[number] if number != _NO_SITE and number < len(self.launch.sites) else None
        who = "other programs" if other >= _MANY else f"program {self._program(other - 1)}"
        did = "read" if before is None or Use.WRITES not in before.use else "wrote"
        place = "" if before is None else f" {self._place(before)}"
        return _Words(
            "race",
            f"a {_noun(site)} that races with another program's",
            [
                f"{where[0].upper()}{where[1:]}",
                f"{who[0].upper()}{who[1:]} {did} there{place}, and nothing orders the two",
            ],
            owner,
        )

    def _hint(self, site: Site, fault: Fault) -> _Words:
        attribute, name, promise = _PROMISES[fault.kind]
        value, before = _signed(fault.address), _signed(fault.other)
        what = f"a promise of {name} that does not hold"
        if fault.kind is FaultKind.DIVISIBLE and site.details.get("address"):
            owner, where = self._where(site, fault.address)
            said = f"{name} promises that the address {promise} {site.details.get(attribute)}; it is {where}"
            return _Words("hint", what, [said], owner)
        said = f"{name} promises that the element {promise} {site.details.get(attribute)}"
        shown = f"it is {value}" + ("" if fault.kind is FaultKind.DIVISIBLE else f" after {before}")
        return _Words("hint", what, [f"{said}; {shown}"])

    # ---- values that are none

    def _suspicion(self, found: Suspicion) -> _Words:
        site = self.launch.sites[found.site]
        kind, what, advice = _SUSPICIONS[site.kind]
        details: list[str] = []
        argument: str | None = None
        if found.store is not None:
            number, program, lane = found.store
            store = self.launch.sites[number]
            index = store.index(lane)
            # The first byte that differs may be any of the element; accesses are aligned.
            argument, where = self._where(store, found.address & -store.bytes)
            at = f", index {_tuple(index)}" if index else ""
            details.append(
                f"A result depends on it: {where}, stored {self._place(store)} by program {self._program(program)}{at}"
            )
        elif found.fault is not None:
            fault = self.launch.sites[found.fault.site]
            argument = self._where(fault, found.fault.address)[0] if found.fault.address else None
            details.append(f"It decides whether there is {self._fault(found.fault).what} {self._place(fault)}")
        if found.hidden:
            details.append("Only a mask that is computed from the wrapped product keeps it from being used")
        if advice:
            details.append(advice)
        return _Words(kind, what, details, argument)


def _noun(site: Site) -> str:
    return (
        "atomic" if Use.ATOMIC in site.use and Use.WRITES in site.use else "load" if Use.READS in site.use else "store"
    )


def _offset(allocation: Allocation, address: int) -> str:
    return f"byte {address - allocation.address}"


def _reach(allocation: Allocation, address: int, size: int) -> str:
    if address < allocation.low:
        return f", {allocation.low - address} bytes before its start"
    beyond = address + size - allocation.high
    if beyond > 0:
        return f", up to {beyond} bytes beyond its end"
    return "" if allocation.has(address, size) else ", between its elements"


def _tuple(index: Sequence[int]) -> str:
    return f"({', '.join(map(str, index))})"


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
