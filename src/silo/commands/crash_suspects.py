"""Decisions about the launches of a crash report: which are suspects, and the verdict after a check. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from silo.checking.crash_report import Argument, CrashKernel, CrashReport, KeptArray, RecordedLaunch
from silo.core.launch_info import AbiType, LaunchInfo
from silo.errors import CheckError
from silo.frozen import frozen

__all__ = [
    "MOST_BYTES",
    "Suspect",
    "Verdict",
    "contents_of",
    "judge",
    "layout_of",
    "likeness_of",
    "suspects_of",
    "unchecked_reason",
]

MOST_BYTES = 1 << 30
"""The memory that the arrays of a checked launch may take at most."""

# Kinds of findings that depend only on addresses, sizes and scalars. Other kinds may depend on the values in arrays.
_BY_ADDRESS = frozenset(("out of bounds", "misaligned", "overflow", "hint", "endless", "race", "read-only"))


@frozen
class Suspect:
    """A group of equal launches: the launch to check, and the launch numbers of all, the last first."""

    launch: RecordedLaunch
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check: "named" (a fault was found), "clean", or "undecided".

    ``text`` describes the fault, or is the reason for the other outcomes. The members from ``kind`` on describe the
    fault, as in :class:`silo.errors.CheckError`.
    """

    kernel: str
    numbers: tuple[int, ...]
    outcome: Literal["named", "clean", "undecided"]
    text: str = ""
    kind: str = ""
    place: str = ""
    program: tuple[int, ...] | None = None
    index: tuple[int, ...] | None = None
    argument: str | None = None


def suspects_of(report: CrashReport) -> list[Suspect]:
    """Returns the launches that may have caused the crash, the most likely first.

    A signal on the CPU comes from a launch whose call has not returned. An error of a GPU is noticed later, by a launch
    or by a call of another library, so all launches are suspects, and the latest come first. The same holds for a hang
    and for a requested report, but launches whose call has not returned come before the others.
    """
    running = [launch for launch in report.launches if launch.state == "running"]
    others = [launch for launch in report.launches if launch.state != "running"]
    ordered = [*reversed(running), *(() if report.cause.kind == "signal" and running else reversed(others))]
    named_kernel = report.cause.kernel if report.cause.kind == "signal" else ""
    ordered.sort(key=lambda one: bool(named_kernel) and report.kernels[one.kernel].name != named_kernel)
    groups: dict[object, list[RecordedLaunch]] = {}
    for launch in ordered:
        groups.setdefault(likeness_of(report, launch), []).append(launch)
    return [Suspect(group[0], tuple(member.number for member in group)) for group in groups.values()]


def likeness_of(report: CrashReport, launch: RecordedLaunch) -> object:
    """Returns a value that is equal for equal launches, of which only one is checked.

    Launches are equal if their kernel texts, grids, scalar arguments, array sizes and kept array contents are equal.
    """
    kernel = report.kernels[launch.kernel]
    first: dict[int, int] = {}
    arguments: list[object] = []
    for (_, address), argument in zip(kernel.parameters, launch.arguments, strict=bool(kernel.parameters)):
        if address:
            shared = first.setdefault(argument.low, len(first))  # arguments in the same allocation get the same number
            arguments.append((argument.word - argument.low, argument.size, argument.low % 256, shared, argument.view))
        else:
            arguments.append(argument.word)
    contents = tuple(report.content(array) for array in report.arrays if array.launch == launch.number)
    text: object = kernel.members.get("text") or launch.kernel
    options = repr(kernel.members.get("options"))  # the compile options matter when a device runs the launch
    return text, kernel.name, options, launch.grid, tuple(arguments), contents


def contents_of(report: CrashReport, launch: RecordedLaunch) -> dict[int, KeptArray]:
    """Returns the kept bytes of a launch's allocations by address; a copy made before the launch takes precedence."""
    arrays = sorted((array for array in report.arrays if array.launch == launch.number), key=lambda one: one.copy)
    return {kept_array.address: kept_array for kept_array in arrays}


def layout_of(kernel: CrashKernel) -> LaunchInfo:
    """Returns the launch info of a kernel's text. Raises ``ValueError`` if the report is damaged."""
    return LaunchInfo.from_json(kernel.members["launch"])


def _placed(kernel: CrashKernel, launch: RecordedLaunch) -> Iterator[tuple[AbiType, Argument | None]]:
    """Yields, for each parameter of the kernel's text, its type and the launch's argument (None if it is missing)."""
    by_name = {name: argument for (name, _), argument in zip(kernel.parameters, launch.arguments, strict=True)}
    yield from ((slot.type, by_name.get(slot.name)) for slot in layout_of(kernel).layout)


def unchecked_reason(report: CrashReport, launch: RecordedLaunch) -> str:
    """Returns why a launch cannot be checked at all; "" if it can."""
    kernel = report.kernels[launch.kernel]
    if not kernel.members.get("text"):
        return kernel.reason or "nothing here has the text of its code"
    if 0 in launch.grid:
        return ""
    sizes: dict[int, int] = {}
    places = list(_placed(kernel, launch))
    if len(places) != len(kernel.members.get("elements", ())):
        return "its text has other parameters than its launch"
    for (kind, argument), slot in zip(places, layout_of(kernel).layout, strict=True):
        if argument is None:
            return f"the argument {slot.name} was not kept"
        if kind is not AbiType.POINTER or (argument.word == 0 and argument.size == 0):
            continue
        if argument.size == 0:
            return f"the size of the memory behind {slot.name} is unknown"
        if not argument.low <= argument.word <= argument.low + argument.size:
            return f"{slot.name} points outside of the memory of its own array"
        sizes[argument.low] = max(sizes.get(argument.low, 0), argument.size)
    if sum(sizes.values()) > MOST_BYTES:
        return f"its arrays have {sum(sizes.values())} bytes, and a check takes up to {MOST_BYTES}"
    return ""


def _unkept(report: CrashReport, launch: RecordedLaunch, positions: Sequence[int]) -> list[str]:
    """Returns the names of the arguments whose contents at the launch are unknown.

    ``positions`` are the positions in the kernel's text of the arguments to consider.
    """
    kernel = report.kernels[launch.kernel]
    contents = contents_of(report, launch)
    layout = layout_of(kernel).layout
    places = [region for _, region in _placed(kernel, launch)]
    changed = {places[index].low for index in kernel.members["written"] if _has_address(places, index)}  # type: ignore[union-attr]
    names: list[str] = []
    for index in positions:
        if index < 0:
            names.append("memory that no argument names")
            continue
        region = places[index]
        content = None if region is None else contents.get(region.low)
        # A copy that was made while the kernel ran may contain the kernel's own results.
        if (
            region is None
            or content is None
            or content.size != region.size
            or (not content.copy and region.low in changed)
        ):
            names.append(layout[index].name)
    return names


def _has_address(arguments: Sequence[Argument | None], index: int) -> bool:
    return 0 <= index < len(arguments) and arguments[index] is not None


def judge(report: CrashReport, suspect: Suspect, error: CheckError | None) -> Verdict:
    """Returns the verdict about a suspect after a check in which arrays without kept bytes had random values.

    A fault is named only if the random values cannot have influenced it: no address, mask, branch or loop depends on
    them, and neither does the kind of fault. A launch is clean if everything it reads was kept. An undecided verdict
    with the ``kind`` "values" means that the accesses are right, but values of the launch were not kept.
    """
    launch = suspect.launch
    kernel = report.kernels[launch.kernel]
    decisive = _unkept(report, launch, kernel.members["decisive"])
    if decisive:
        return _undecided(kernel, suspect, f"its accesses depend on values of {_list(decisive)}, which were not kept")
    values = _unkept(report, launch, sorted({*kernel.members["read"], *kernel.members["stored"]}))
    if error is None:
        # Random values do not reveal faults that depend on values (reads of unset memory or of masked lanes).
        text = f"no access is wrong, and the values of {_list(values)} were not kept" if values else ""
        return Verdict(
            kernel.name, suspect.numbers, "undecided" if values else "clean", text, "values" if values else ""
        )
    argument = next(
        (
            argument
            for (name, _), argument in zip(kernel.parameters, launch.arguments, strict=True)
            if name == error.argument
        ),
        None,
    )
    if error.kind == "out of bounds" and argument is not None and argument.view:
        return _undecided(
            kernel, suspect, f"it leaves the array {error.argument}, whose allocation is unknown and may be larger"
        )
    by_values = error.kind not in _BY_ADDRESS or _is_race_of_stores(error)
    if by_values and values:
        return _undecided(
            kernel, suspect, f"{error.kind}, but that depends on values of {_list(values)}, which were not kept"
        )
    return Verdict(
        kernel.name,
        suspect.numbers,
        "named",
        str(error),
        error.kind,
        error.place,
        error.program,
        error.index,
        error.argument,
    )


def _is_race_of_stores(error: CheckError) -> bool:
    """Returns whether a finding is a race of two stores. It depends on values: stores of equal values do not race."""
    text = str(error)
    return error.kind == "race" and "a store that races" in text and " wrote there" in text


def _undecided(kernel: CrashKernel, suspect: Suspect, reason: str) -> Verdict:
    return Verdict(kernel.name, suspect.numbers, "undecided", reason)


def _list(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
