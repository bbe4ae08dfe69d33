"""``silo crash``: the suspects of a crash report, each launched again on the CPU with every access checked."""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from silo.checking.crash_report import Argument, CrashKernel, CrashReport, RecordedLaunch, read_report
from silo.commands.crash_suspects import (
    Suspect,
    Verdict,
    contents_of,
    judge,
    layout_of,
    suspects_of,
    unchecked_reason,
)
from silo.compile.toolchain import select_compiler
from silo.core.config import Config
from silo.core.consent import Consent, HostCode, text_sha256
from silo.core.host_arrays import require_numpy
from silo.core.launch_info import AbiType, LaunchInfo
from silo.core.plugins import declarations
from silo.core.protocols import CheckLimits, ChecksKernels
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import CheckError, SiloError, UnsupportedError
from silo.launch.runtime import bind, make_bound_launcher
from silo.machine.device_plugins import device_named
from silo.machine.process_session import session
from silo.settings import child_environment

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CrashExamination", "Examiner", "examine_crash", "number_of", "serve", "signature_of"]

SECONDS = 60.0
"""The longest that one launch is checked."""


@dataclass(frozen=True, slots=True)
class CrashExamination:
    """The verdicts about a report, in the order of suspicion."""

    report: CrashReport
    verdicts: tuple[Verdict, ...]

    @property
    def named(self) -> tuple[Verdict, ...]:
        """The verdicts that name a fault."""
        return tuple(one for one in self.verdicts if one.outcome == "named")

    def lines(self) -> list[str]:
        """The report in words: the cause, the faults that are named, the launches that are undecided."""
        cause = self.report.cause
        where = f" in {cause.kernel}" if cause.kernel else ""
        made = [f"{self.report.path}: {cause.kind}{where}: {cause.text}; {len(self.report.launches)} launches"]
        made += [f"{one.text}\n  {_numbers(one)}" for one in self.named]
        made += [
            f"{one.kernel}: undecided: {one.text}\n  {_numbers(one)}"
            for one in self.verdicts
            if one.outcome == "undecided" and one.kind != "values"
        ]
        addresses = sum(len(one.numbers) for one in self.verdicts if one.kind == "values")
        clean = sum(len(one.numbers) for one in self.verdicts if one.outcome == "clean")
        made.append(f"{clean} launches are clean; of {addresses} the accesses are right, and the values were not kept")
        return made

    def advice(self) -> str:
        """The next step if no fault was named."""
        return (
            "no fault is named: run the program again with silo exec --check-launches "
            f"{self.report.path} SCRIPT, which checks these launches with the arrays that they get"
        )


def _numbers(verdict: Verdict) -> str:
    shown = ", ".join(map(str, verdict.numbers[:5])) + (", ..." if len(verdict.numbers) > 5 else "")
    return f"launch {shown}" if len(verdict.numbers) == 1 else f"{len(verdict.numbers)} launches alike: {shown}"


def examine_crash(
    path: Path, *, trust: bool = False, most: int | None = None, seconds: float = SECONDS
) -> CrashExamination:
    """Check the suspects of a report, each for at most ``seconds``, in a process that is replaced if it ends.

    Args:
        path: the report.
        trust: compile the texts of kernels that this user's store has not seen.
        most: the most suspects to check.
        seconds: the longest that one may take.

    Raises:
        BundleError: the report cannot be read.
        TrustError: it has texts from elsewhere.
    """
    report = read_report(path)
    suspects = suspects_of(report)[:most]
    reasons = [unchecked_reason(report, one.launch) for one in suspects]
    wanted = [one for one, reason in zip(suspects, reasons, strict=True) if not reason]
    examiner = Examiner(report, trust=trust)
    for kernel in dict.fromkeys(one.launch.kernel for one in wanted):
        examiner.consent(report.kernels[kernel])  # before a process is started
    checked = {one.numbers: one for one in _checked(path, wanted, report, trust=trust, seconds=seconds)}
    verdicts = tuple(
        checked[suspect.numbers]
        if not reason
        else Verdict(report.kernels[suspect.launch.kernel].name, suspect.numbers, "undecided", reason)
        for suspect, reason in zip(suspects, reasons, strict=True)
    )
    return CrashExamination(report, verdicts)


# ---- in a process of its own


def _checked(
    path: Path, suspects: Sequence[Suspect], report: CrashReport, *, trust: bool, seconds: float
) -> Iterator[Verdict]:
    """The verdicts about launches that can be checked."""
    rest = list(suspects)
    while rest:
        words = [sys.executable, "-P", "-m", "silo.cli.crash_worker", *(["--trust"] if trust else []), str(path)]
        words += [str(one.launch.number) for one in rest]
        environment = child_environment(SILO_FLIGHT="0", SILO_CHECK="0", SILO_ACCELERATE="0", SILO_FLIGHT_CHECK="")
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as process:  # this Python
            lines = _Lines(cast("IO[bytes]", process.stdout))
            try:
                while rest:
                    line = lines.next(seconds)
                    if line is None:
                        reason = f"checking it takes longer than {seconds:g} s"
                        break
                    if not line:
                        reason = f"the process that checked it ended with code {process.wait()}"
                        break
                    yield _verdict(json.loads(line))
                    rest.pop(0)
                else:
                    return
            finally:
                process.kill()
        failed = rest.pop(0)
        yield Verdict(report.kernels[failed.launch.kernel].name, failed.numbers, "undecided", reason)


class _Lines:
    """The lines of a pipe, each within a time."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._file = stream.fileno()
        self._rest = b""

    def next(self, seconds: float) -> bytes | None:
        """The next line; b"" at the end, None if it takes longer."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._file], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            some = os.read(self._file, 1 << 16)
            if not some:
                return b""
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def serve(path: Path, numbers: Sequence[int], *, trust: bool) -> Iterator[str]:
    """Yields a verdict for each launch, as a line of JSON; runs in the examining process."""
    report = read_report(path)
    by_number = {one.launch.number: one for one in suspects_of(report)}
    examiner = Examiner(report, trust=trust)
    for number in numbers:
        yield json.dumps(asdict(examiner.verdict(by_number[number])))


def _verdict(given: dict[str, Any]) -> Verdict:
    program, index = given["program"], given["index"]
    return Verdict(
        kernel=given["kernel"],
        numbers=tuple(given["numbers"]),
        outcome=given["outcome"],
        text=given["text"],
        kind=given["kind"],
        place=given["place"],
        program=None if program is None else tuple(program),
        index=None if index is None else tuple(index),
        argument=given["argument"],
    )


# ---- one check


class Examiner:
    """Checks launches of one report in this process."""

    def __init__(self, report: CrashReport, *, trust: bool = False) -> None:
        self._report = report
        self._trust = trust

    def consent(self, kernel: CrashKernel) -> Consent:
        """Leave to compile and run the text of a kernel. Raises TrustError."""
        launch = layout_of(kernel)
        digest = text_sha256(str(kernel.members["text"]))
        code = HostCode(digest, str(kernel.members["form"]), launch, text=digest)
        return session().store.trust.vouch(code, origin=str(self._report.path), trust=self._trust)

    def verdict(self, suspect: Suspect) -> Verdict:
        """Check one launch, and judge it; undecided if it cannot be checked."""
        name = self._report.kernels[suspect.launch.kernel].name
        try:
            return self.examine(suspect)[0]
        except SiloError as refused:
            return Verdict(name, suspect.numbers, "undecided", f"it cannot be checked: {refused}")

    def examine(self, suspect: Suspect) -> tuple[Verdict, CheckError | None]:
        """Check one launch, and judge it; the verdict, and the error that the check ended with.

        Raises:
            SiloError: it cannot be checked.
        """
        error = self._check(suspect.launch)
        return judge(self._report, suspect, error), error

    def _check(self, launch: RecordedLaunch) -> CheckError | None:
        kernel = self._report.kernels[launch.kernel]
        info = layout_of(kernel)
        checked = _compiler_of(kernel).check_text(
            str(kernel.members["text"]), _variant(kernel), info, nan=False, consent=self.consent(kernel)
        )
        arguments = self._arguments(kernel, launch, info)
        signature = signature_of(info, checked.effects)
        binding = bind(cast("Any", checked.loaded), checked.launch, signature, Specialization(), {}, tag=checked)
        launcher: Any = make_bound_launcher(kernel.name, binding, signature)
        try:
            with checked.over(arguments, CheckLimits()):
                launcher[launch.grid](*arguments.values())
        except CheckError as error:
            return error
        return None

    def _arguments(self, kernel: CrashKernel, launch: RecordedLaunch, info: LaunchInfo) -> dict[str, object]:
        given = {name: one for (name, _), one in zip(kernel.parameters, launch.arguments, strict=True)}
        bases = self.bases(launch)
        made: dict[str, object] = {}
        for slot in info.layout:
            one = given[slot.name]
            if slot.type is AbiType.POINTER:
                base = bases[one.low]
                made[slot.name] = base[one.word - one.low :] if one.size else base
            else:
                made[slot.name] = number_of(one, slot.type)
        return made

    def bases(self, launch: RecordedLaunch) -> dict[int, NDArray[Any]]:
        """An array for each allocation: kept bytes, or random ones; at the same place within 256 bytes."""
        require_numpy("silo crash")
        import numpy as np  # noqa: PLC0415  # numpy is optional, and here

        contents = contents_of(self._report, launch)
        random = np.random.default_rng(0)
        sizes: dict[int, int] = {}
        for one in launch.arguments:
            sizes[one.low] = max(sizes.get(one.low, 0), one.size)
        bases: dict[int, NDArray[Any]] = {}
        for low, size in sizes.items():
            room: Any = np.empty(size + 512, np.uint8)
            start = (low - room.ctypes.data) % 256
            # An array that owns its memory as far as a check follows views: exactly the allocation.
            base = np.frombuffer(memoryview(room)[start : start + size], np.uint8) if size else np.empty(0, np.uint8)
            kept = contents.get(low)
            if kept is not None and kept.size == size:
                base[:] = np.frombuffer(self._report.content(kept), np.uint8)
            elif size:
                # Bytes that make moderate numbers of each floating-point format.
                base[:] = random.integers(0x3A, 0x3F, size, np.uint8)
            bases[low] = base
        return bases


def number_of(one: Argument, kind: AbiType) -> float:
    """The number of an argument's word, as a kernel's parameter of that type reads it."""
    if kind in (AbiType.FP16, AbiType.BF16, AbiType.FP32, AbiType.FP64):
        return float(struct.unpack("<d", struct.pack("<Q", one.word))[0])
    if kind is AbiType.I1:
        return bool(one.word & 1)
    signed = kind.value.startswith("i")
    return one.word - (1 << 64) if signed and one.word >> 63 else one.word


def _compiler_of(kernel: CrashKernel) -> ChecksKernels:
    form, target = str(kernel.members["form"]), device_named("cpu").target
    for declared in declarations():
        reads = any(one.checked_text and one.name == form for one in declared.blobs)
        if reads and target.kind in declared.targets and declared.sources:
            compiler = select_compiler(declared.sources[0], target)
            if isinstance(compiler, ChecksKernels):
                return compiler
    raise UnsupportedError(f"{kernel.name}: no compiler that is installed here makes code that checks itself of {form}")


def _variant(kernel: CrashKernel) -> Variant:
    """The text as a variant for this CPU; constants are folded already."""
    options = Config.of(enable_fp_fusion=bool(kernel.members["fp_fusion"]))
    target = device_named("cpu").target
    # ``consent`` is for a text without a typed signature.
    return Variant(kernel.name, "", cast("Signature", None), Specialization(), options, target)


_KINDS = {"f": ParameterKind.FLOAT, "b": ParameterKind.FLOAT, "i": ParameterKind.INTEGER, "u": ParameterKind.INTEGER}


def signature_of(info: LaunchInfo, effects: Sequence[Effect]) -> Signature:
    """The signature of a text whose parameters are known by their types alone."""
    parameters: list[Parameter] = []
    for slot, effect in zip(info.layout, effects, strict=True):
        if slot.type is AbiType.POINTER:
            parameters.append(Parameter(slot.name, ParameterKind.POINTER, effect=effect))
        elif slot.type is AbiType.I1:
            parameters.append(Parameter(slot.name, ParameterKind.BOOL, dtype("i1")))
        else:
            parameters.append(Parameter(slot.name, _KINDS[slot.type.value[0]], dtype(slot.type.value)))
    return Signature(tuple(parameters))
