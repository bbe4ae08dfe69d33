"""Faults and doubtful values of a checked kernel as findings."""

from __future__ import annotations

from collections.abc import Sequence

from silo.checking.findings import CheckFinding, capital, coordinates, index_text, nearest, place_in
from silo.frozen import frozen, replace
from silo.kinds.triton.cpu.checking.cpu_faults import CpuFault, CpuSuspect, FaultKind, Stored
from silo.kinds.triton.cpu.checking.sites import Site, SiteKind, Use
from silo.launch.argument_memory import Allocation

__all__ = ["CpuReporter"]

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
    """The words of findings of one launch.

    ``sites``, ``names`` and ``allocations`` are the kernel's sites, its parameters and the memory of its arguments;
    ``unset`` are the allocations to which nothing was written since torch made them, ``steps`` the limit of a program.
    """

    sites: Sequence[Site]
    names: Sequence[str]
    allocations: Sequence[Allocation]
    unset: Sequence[Allocation]
    steps: int
    grid: tuple[int, int, int]

    def fault(self, fault: CpuFault, order: str = "") -> CheckFinding:
        """The finding made of a fault; ``order`` is the order in which programs ran, "" for ascending."""
        found = self._fault(fault)
        if order:
            found = replace(found, details=(*found.details, f"It shows when programs run {order}"))
        return self._placed(found, fault)

    def suspect(self, suspect: CpuSuspect, effect: Stored | CpuFault | None, *, hidden: bool) -> CheckFinding:
        """The finding made of a doubtful result, and the store or the fault that depends on it.

        ``hidden``: a mask that is computed from the result keeps it from being used.
        """
        return self._placed(self._suspect(suspect, effect, hidden=hidden), suspect)

    def _placed(self, found: CheckFinding, cause: CpuFault | CpuSuspect) -> CheckFinding:
        site = self.sites[cause.site]
        program = coordinates(cause.program, self.grid)
        index = site.index(cause.lane) if cause.lane >= 0 else ()
        at = f" {self._place(site)}, program {program}" + (f", index {index_text(index)}" if index else "")
        return replace(found, at=at, place=site.place, program=program, index=index)

    @staticmethod
    def _place(site: Site) -> str:
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
                what = f"a misaligned {_noun(site)} of {site.bytes} bytes"
                return CheckFinding(
                    "misaligned", what, (f"{where}: the address is not a multiple of {site.bytes}",), owner
                )
            case FaultKind.UNINITIALIZED:
                owner, where = self._where(site, fault.address)
                what = f"a {_noun(site)} of memory that nothing was written to"
                if any(one.name == owner for one in self.unset):
                    why = "It holds what torch's allocator left there: no operator and no kernel wrote to it"
                    return CheckFinding("uninitialized", what, (where, why), owner)
                return CheckFinding("uninitialized", what, (where,), owner)
            case FaultKind.TWICE:
                owner, where = self._where(site, fault.address)
                what = "a store of two values to one address"
                why = "Two elements of one store: which of them memory holds afterwards differs between devices"
                return CheckFinding("collision", what, (capital(where), why), owner)
            case FaultKind.OUTSIDE:
                index, extent = _signed(fault.address), fault.other
                said = f"Index {index} of axis {site.details.get('axis')}, which has {extent} elements"
                return CheckFinding("out of bounds", "a tl.gather outside of its tile", (said,))
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
        said = f"It {does} {site.bytes} bytes: {where}"
        return CheckFinding("out of bounds", f"a {_noun(site)} out of bounds", (said,), owner)

    def _where(self, site: Site, address: int) -> tuple[str | None, str]:
        """The argument that an address belongs to, or derives from, and where in it an access of it is."""
        allocations = self.allocations
        size = site.bytes if site.use else 0
        inside = [one for one in allocations if one.low <= address < one.high]
        mine = self._mine(site)
        own = next((one for one in inside if one in mine), None)
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
        return [one for one in self.allocations if one.name in names]

    def _race(self, site: Site, fault: CpuFault) -> CheckFinding:
        owner, where = self._where(site, fault.address)
        other, number = fault.other >> 24, fault.other >> 12 & 0xFFF
        before = self.sites[number] if number != _NO_SITE and number < len(self.sites) else None
        who = "other programs" if other >= _MANY else f"program {coordinates(other - 1, self.grid)}"
        did = "read" if before is None or Use.WRITES not in before.use else "wrote"
        place = "" if before is None else f" {self._place(before)}"
        return CheckFinding(
            "race",
            f"a {_noun(site)} that races with another program's",
            (capital(where), f"{capital(who)} {did} there{place}, and nothing orders the two"),
            owner,
        )

    def _hint(self, site: Site, fault: CpuFault) -> CheckFinding:
        attribute, name, promise = _PROMISES[fault.kind]
        value, before = _signed(fault.address), _signed(fault.other)
        what = f"a promise of {name} that does not hold"
        if fault.kind is FaultKind.DIVISIBLE and site.details.get("address"):
            owner, where = self._where(site, fault.address)
            said = f"{name} promises that the address {promise} {site.details.get(attribute)}; it is {where}"
            return CheckFinding("hint", what, (said,), owner)
        said = f"{name} promises that the element {promise} {site.details.get(attribute)}"
        shown = f"it is {value}" + ("" if fault.kind is FaultKind.DIVISIBLE else f" after {before}")
        return CheckFinding("hint", what, (f"{said}; {shown}",))

    # ---- invalid values

    def _suspect(self, suspect: CpuSuspect, effect: Stored | CpuFault | None, *, hidden: bool) -> CheckFinding:
        kind, what, advice = _SUSPICIONS[self.sites[suspect.site].kind]
        details: list[str] = []
        argument: str | None = None
        if isinstance(effect, Stored):
            store = self.sites[effect.site]
            index = store.index(effect.lane)
            # The first byte that differs may be any of the element; accesses are aligned.
            argument, where = self._where(store, effect.address & -store.bytes)
            program = coordinates(effect.program, self.grid)
            at = f", index {index_text(index)}" if index else ""
            details.append(f"A result depends on it: {where}, stored {self._place(store)} by program {program}{at}")
        elif effect is not None:
            site = self.sites[effect.site]
            argument = self._where(site, effect.address)[0] if effect.address else None
            details.append(f"It decides whether there is {self._fault(effect).what} {self._place(site)}")
        if hidden:
            details.append("Only a mask that is computed from the wrapped product keeps it from being used")
        if advice:
            details.append(advice)
        return CheckFinding(kind, what, tuple(details), argument)


def _noun(site: Site) -> str:
    return (
        "atomic" if Use.ATOMIC in site.use and Use.WRITES in site.use else "load" if Use.READS in site.use else "store"
    )


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
