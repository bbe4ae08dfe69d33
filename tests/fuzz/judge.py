"""Runs kernels in every way there is and says which of them differ."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from silo.errors import SiloError, UnsupportedError
from silo.launch.cpu_objects import KernelObject

from .apart import keeps_apart
from .batch import Part, compile_parts, part_of
from .inputs import Memory, contents
from .interpreter import Interpreter, InterpreterError
from .kinds import KINDS, to_float64
from .launches import THREADS, Scratch, launch
from .lowered import Lowered, arguments_of, lower
from .program import Kernel, Storage
from .rounded import error, shadow, tolerance

__all__ = ["Verdict", "difference", "judge"]

_MODES = ("reference", "optimized")
Arrays = dict[str, np.ndarray]


@dataclass
class Verdict:
    """What came of one kernel.

    ``status``: ``same``; ``differs`` (a fault of ours, or a new one of the interpreter); ``broken`` (our compiler
    failed where it should not); ``refused`` (Triton's front end does not take the kernel); ``sensitive`` (rounding is
    too large to tell from a fault); ``unsupported`` (an operation that the CPU target says it lacks);
    ``uninterpreted`` (same in both modes, and the interpreter could not run it).
    """

    seed: int
    profile: str
    status: str
    reason: str = ""
    features: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether somebody has to look at it."""
        return self.status in {"differs", "broken"}


@dataclass
class _Case:
    kernel: Kernel
    filled: Arrays
    memory: Memory
    verdict: Verdict | None = None
    lowered: Lowered | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    loaded: dict[str, KernelObject] = field(default_factory=dict)
    results: dict[str, Arrays] = field(default_factory=dict)
    shadow: _Case | None = None
    exact: Arrays | None = None
    by_turns: str = ""  # how launches that took turns with another kernel's differ from one alone
    interpreted: Future[Arrays] | None = None
    modes: tuple[str, ...] = _MODES

    def end(self, status: str, reason: str = "") -> None:
        if self.verdict is None:
            features = tuple(sorted(self.kernel.features))
            self.verdict = Verdict(self.kernel.seed, self.kernel.profile, status, reason, features)


def judge(kernels: Sequence[Kernel], interpreter: Interpreter | None, note=lambda text: None) -> list[Verdict]:
    """Compile ``kernels`` together and run each in both modes and under ``interpreter``.

    ``note`` is told what is about to happen, for the case that the process does not survive it.
    """
    cases: list[_Case] = []
    with ThreadPoolExecutor(1) as pool:
        for kernel in kernels:
            filled = contents(kernel)
            case = _Case(kernel, filled, Memory(kernel, filled))
            cases.append(case)
            if interpreter is not None:
                case.interpreted = pool.submit(interpreter.run, kernel, filled)
            if kernel.rounded:
                wide, arrays = shadow(kernel, filled)
                case.shadow = _Case(wide, arrays, Memory(wide, arrays), modes=("reference",))
        everything = [*cases, *(case.shadow for case in cases if case.shadow is not None)]
        for place, case in enumerate(everything):
            _lower(case, place)
        _compile(everything)
        for case in everything:
            _run(case, note)
        _run_by_turns([case for case in cases if case.verdict is None], note)
        for case in everything:
            case.memory.close()
        for case in cases:
            if case.shadow is not None and case.verdict is None:
                case.verdict = case.shadow.verdict
                case.exact = case.shadow.results.get("reference")
        for case in cases:
            _compare(case)
    return [case.verdict for case in cases if case.verdict is not None]


def _lower(case: _Case, place: int) -> None:
    kernel = case.kernel
    arguments = arguments_of(kernel, case.memory.arrays)
    addresses = {name: value.ctypes.data for name, value in arguments.items() if isinstance(value, np.ndarray)}
    try:
        case.lowered = lower(kernel, addresses)
    except SiloError as error:
        # The front end's own refusals come first in the text; anything else is ours.
        refused = "cannot be lowered" in str(error)
        case.end("refused" if refused else "broken", str(error))
        return
    for mode in case.modes:
        try:
            apart = keeps_apart(kernel)
            case.parts[mode] = part_of(case.lowered, mode, place, contract=_contracts(kernel, mode), apart=apart)
        except UnsupportedError as error:
            case.end("unsupported", str(error))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong in the compiler under test is a finding
            case.end("broken", f"{mode}: {type(error).__name__}: {error}")


def _contracts(kernel: Kernel, mode: str) -> bool:
    return kernel.contract and mode == "optimized"


def _compile(cases: list[_Case]) -> None:
    for mode, contract in (("reference", False), ("optimized", False), ("optimized", True)):
        wanted = [case for case in cases if case.verdict is None and mode in case.modes]
        chosen = [case for case in wanted if _contracts(case.kernel, mode) is contract]
        if not chosen:
            continue
        parts = [case.parts[mode] for case in chosen]
        try:
            loaded = compile_parts(parts, contract=contract, optimize=mode == "optimized")
        except SiloError as error:
            loaded = [str(error)] * len(chosen)
        for case, found in zip(chosen, loaded, strict=True):
            if isinstance(found, str):
                case.end("broken", f"{mode}: {found}")
            else:
                case.loaded[mode] = found


def _run(case: _Case, note) -> None:
    if case.verdict is not None:
        return
    for mode in case.modes:
        note(f"{case.kernel.profile} {case.kernel.seed} {mode}")
        case.results[mode] = _launched(case, mode, [Scratch(case.loaded[mode].launch.scratch_bytes)])
    note("")


def _launched(case: _Case, mode: str, scratches: list[Scratch]) -> Arrays:
    """The storages after one launch, from their state at the start."""
    for name, array in case.memory.arrays.items():
        if case.kernel.storages[name].written:
            array[:] = case.filled[name]
    launch(case.kernel, case.loaded[mode], arguments_of(case.kernel, case.memory.arrays), scratches)
    return case.memory.copies()


def _run_by_turns(cases: list[_Case], note) -> None:
    """Launch two kernels in turn on the same threads, one and several: each does what it did alone.

    What programs and launches before left in scratch memory must not show.
    """
    for one, other in zip(cases, [*cases[1:], *cases[:1]], strict=True):
        size = max(case.loaded["optimized"].launch.scratch_bytes for case in (one, other))
        for threads in (1, THREADS):
            scratches = [Scratch(size) for _ in range(threads)]
            for turn, case in enumerate((one, other, one, other)):
                note(f"{case.kernel.profile} {case.kernel.seed} turn {turn} of {threads} threads")
                found = _launched(case, "optimized", scratches)
                reason = difference(case.kernel, case.results["optimized"], found)
                if reason and not case.by_turns:
                    case.by_turns = f"launches alone and in turn, by {threads} threads: {reason}"
    note("")


def _compare(case: _Case) -> None:
    if case.verdict is None:
        reason = _difference(case, case.results["optimized"])
        if reason is None and not case.by_turns:
            case.end("sensitive")
        elif reason:
            case.end("differs", f"optimized and reference: {reason}")
        elif case.by_turns:
            case.end("differs", case.by_turns)
    if case.interpreted is None:
        case.end("same")
        return
    try:
        found = case.interpreted.result()
    except InterpreterError as error:
        case.end("uninterpreted", str(error))
        return
    if case.verdict is None:
        reason = _difference(case, found)
        if reason:
            case.end("differs", f"reference and interpreter: {reason}")
    case.end("same")


def _difference(case: _Case, found: Arrays) -> str | None:
    if case.exact is None:
        return difference(case.kernel, case.results["reference"], found)
    return _distance(case.kernel, case.results["reference"], found, case.exact)


def _distance(kernel: Kernel, reference: Arrays, found: Arrays, exact: Arrays) -> str | None:
    """Storages in which ``found`` is farther from float64 than rounding explains; None where that cannot be told."""
    lines: list[str] = []
    for name, storage in kernel.storages.items():
        if not storage.written:
            continue
        if not KINDS[storage.kind].floating:
            lines.extend([f"{name}: integers differ"] if (reference[name] != found[name]).any() else [])
            continue
        off, scale = error(reference[name], storage.kind, exact[name])
        most = tolerance(kernel, off, scale)
        if most is None:
            return None
        distance, _ = error(found[name], storage.kind, exact[name])
        if distance > most:
            names = "/".join(p.name for p in kernel.parameters if p.storage == name)
            lines.append(
                f"{names} ({storage.kind}) is {distance:.3g} from float64, the reference {off:.3g} of {scale:.3g}"
            )
    return "; ".join(lines)


def difference(kernel: Kernel, one: Arrays, two: Arrays) -> str:
    """The first element of each storage that is not the same in both, or "".

    Same is: equal bits, any NaN for any NaN and, where arithmetic is exact, either zero for a zero (the sign of a sum
    of zeros depends on where it starts).
    """
    lines: list[str] = []
    for name, storage in kernel.storages.items():
        if not storage.written:
            continue
        different = _different(storage, one[name], two[name], zeros=kernel.signless)
        if different.any():
            at = int(np.flatnonzero(different)[0])
            names = [p.name for p in kernel.parameters if p.storage == name]
            lines.append(
                f"{'/'.join(names)} ({storage.kind}) at {at % storage.region + storage.low} of program"
                f" {at // storage.region}: {_shown(storage, one[name][at])} and {_shown(storage, two[name][at])}"
                f" ({int(different.sum())} of {different.size} differ)"
            )
    return "; ".join(lines)


def _different(storage: Storage, one: np.ndarray, two: np.ndarray, *, zeros: bool) -> np.ndarray:
    if not KINDS[storage.kind].floating:
        return one != two
    a, b = to_float64(one, storage.kind), to_float64(two, storage.kind)
    same = (a == b) & (zeros | (np.signbit(a) == np.signbit(b)))
    return ~(same | (np.isnan(a) & np.isnan(b)))


def _shown(storage: Storage, value: object) -> str:
    return repr(float(to_float64(np.array([value]), storage.kind)[0])) if KINDS[storage.kind].floating else str(value)
