"""``silo crash``: launches each suspect of a crash report again on the CPU, with every access checked."""

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
"""The time limit for checking one launch."""


@dataclass(frozen=True, slots=True)
class CrashExamination:
    """The verdicts about a report's suspects, the most likely first."""

    report: CrashReport
    verdicts: tuple[Verdict, ...]

    @property
    def named(self) -> tuple[Verdict, ...]:
        """The verdicts that name a fault."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome == "named")

    def lines(self) -> list[str]:
        """Returns the examination as text: the cause, the named faults, and the undecided launches."""
        cause = self.report.cause
        where = f" in {cause.kernel}" if cause.kernel else ""
        lines = [f"{self.report.path}: {cause.kind}{where}: {cause.text}; {len(self.report.launches)} launches"]
        lines += [f"{suspect.text}\n  {_numbers(suspect)}" for suspect in self.named]
        lines += [
            f"{verdict.kernel}: undecided: {verdict.text}\n  {_numbers(verdict)}"
            for verdict in self.verdicts
            if verdict.outcome == "undecided" and verdict.kind != "values"
        ]
        addresses = sum(len(verdict.numbers) for verdict in self.verdicts if verdict.kind == "values")
        clean = sum(len(verdict.numbers) for verdict in self.verdicts if verdict.outcome == "clean")
        lines.append(f"{clean} launches are clean; of {addresses} the accesses are right, and the values were not kept")
        return lines

    def advice(self) -> str:
        """Returns the next step to take if no fault was named."""
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
    """Checks the suspects of a report in a separate process, which is started again if it dies.

    Args:
        path: the report.
        trust: compile the texts of kernels that this user's store has not seen.
        most: the number of suspects to check at most.
        seconds: the time limit for each.

    Raises:
        BundleError: the report cannot be read.
        TrustError: the report has texts from elsewhere, and ``trust`` is False.
    """
    report = read_report(path)
    suspects = suspects_of(report)[:most]
    reasons = [unchecked_reason(report, suspect.launch) for suspect in suspects]
    to_check = [suspect for suspect, reason in zip(suspects, reasons, strict=True) if not reason]
    examiner = Examiner(report, trust=trust)
    for kernel in dict.fromkeys(entry.launch.kernel for entry in to_check):
        examiner.consent(report.kernels[kernel])  # raises, if consent is missing, before a process is started
    checked = {entry.numbers: entry for entry in _checked(path, to_check, report, trust=trust, seconds=seconds)}
    verdicts = tuple(
        checked[suspect.numbers]
        if not reason
        else Verdict(report.kernels[suspect.launch.kernel].name, suspect.numbers, "undecided", reason)
        for suspect, reason in zip(suspects, reasons, strict=True)
    )
    return CrashExamination(report, verdicts)


# ---- the separate process


def _checked(
    path: Path, suspects: Sequence[Suspect], report: CrashReport, *, trust: bool, seconds: float
) -> Iterator[Verdict]:
    """Yields verdicts about the launches that can be checked."""
    pending = list(suspects)
    while pending:
        words = [sys.executable, "-P", "-m", "silo.cli.crash_worker", *(["--trust"] if trust else []), str(path)]
        words += [str(suspect.launch.number) for suspect in pending]
        environment = child_environment(SILO_FLIGHT="0", SILO_CHECK="0", SILO_ACCELERATE="0", SILO_FLIGHT_CHECK="")
        # runs this Python interpreter
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as process:
            lines = _Lines(cast("IO[bytes]", process.stdout))
            try:
                while pending:
                    line = lines.next(seconds)
                    if line is None:
                        reason = f"checking it takes longer than {seconds:g} s"
                        break
                    if not line:
                        reason = f"the process that checked it ended with code {process.wait()}"
                        break
                    yield _verdict(json.loads(line))
                    pending.pop(0)
                else:
                    return
            finally:
                process.kill()
        failed = pending.pop(0)
        yield Verdict(report.kernels[failed.launch.kernel].name, failed.numbers, "undecided", reason)


class _Lines:
    """Reads lines from a pipe with a time limit for each."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._file = stream.fileno()
        self._partial_line = b""

    def next(self, seconds: float) -> bytes | None:
        """Returns the next line, b"" at the end of the pipe, or None if no line came in time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._partial_line:
            ready, _, _ = select.select([self._file], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            some = os.read(self._file, 1 << 16)
            if not some:
                return b""
            self._partial_line += some
        line, _, self._partial_line = self._partial_line.partition(b"\n")
        return line


def serve(path: Path, numbers: Sequence[int], *, trust: bool) -> Iterator[str]:
    """Yields a verdict for each launch, as a line of JSON. Runs in the separate process."""
    report = read_report(path)
    by_number = {suspect.launch.number: suspect for suspect in suspects_of(report)}
    examiner = Examiner(report, trust=trust)
    for number in numbers:
        yield json.dumps(asdict(examiner.verdict(by_number[number])))


def _verdict(verdict: dict[str, Any]) -> Verdict:
    program, index = verdict["program"], verdict["index"]
    return Verdict(
        kernel=verdict["kernel"],
        numbers=tuple(verdict["numbers"]),
        outcome=verdict["outcome"],
        text=verdict["text"],
        kind=verdict["kind"],
        place=verdict["place"],
        program=None if program is None else tuple(program),
        index=None if index is None else tuple(index),
        argument=verdict["argument"],
    )


# ---- one check


class Examiner:
    """Checks launches of a report in this process."""

    def __init__(self, report: CrashReport, *, trust: bool = False) -> None:
        self._report = report
        self._trust = trust

    def consent(self, kernel: CrashKernel) -> Consent:
        """Returns the consent to compile and run the text of a kernel. Raises TrustError if it is missing."""
        launch = layout_of(kernel)
        digest = text_sha256(str(kernel.members["text"]))
        code = HostCode(digest, str(kernel.members["form"]), launch, text=digest)
        return session().store.trust.vouch(code, origin=str(self._report.path), trust=self._trust)

    def verdict(self, suspect: Suspect) -> Verdict:
        """Checks a suspect and returns the verdict, which is undecided if the launch cannot be checked."""
        name = self._report.kernels[suspect.launch.kernel].name
        try:
            return self.examine(suspect)[0]
        except SiloError as refused:
            return Verdict(name, suspect.numbers, "undecided", f"it cannot be checked: {refused}")

    def examine(self, suspect: Suspect) -> tuple[Verdict, CheckError | None]:
        """Checks a suspect. Returns the verdict, and the error that the check ended with or None.

        Raises:
            SiloError: the launch cannot be checked.
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
        values = {name: value for (name, _), value in zip(kernel.parameters, launch.arguments, strict=True)}
        bases = self.bases(launch)
        arguments: dict[str, object] = {}
        for slot in info.layout:
            value = values[slot.name]
            if slot.type is AbiType.POINTER:
                base = bases[value.low]
                arguments[slot.name] = base[value.word - value.low :] if value.size else base
            else:
                arguments[slot.name] = number_of(value, slot.type)
        return arguments

    def bases(self, launch: RecordedLaunch) -> dict[int, NDArray[Any]]:
        """Makes an array for each allocation of a launch, with the kept bytes or with random ones.

        Addresses are equal to the recorded ones modulo 256, so that arguments have the same alignment.
        """
        require_numpy("silo crash")
        import numpy as np  # noqa: PLC0415  # numpy is optional, and here

        contents = contents_of(self._report, launch)
        random = np.random.default_rng(0)
        sizes: dict[int, int] = {}
        for argument in launch.arguments:
            sizes[argument.low] = max(sizes.get(argument.low, 0), argument.size)
        bases: dict[int, NDArray[Any]] = {}
        for low, size in sizes.items():
            room: Any = np.empty(size + 512, np.uint8)
            start = (low - room.ctypes.data) % 256
            # The array is made from a memoryview of exactly the allocation, without the padding of ``room``. To find
            # the memory that an argument may access, the check follows the ``base`` of views up to the last array,
            # which is this one.
            base = np.frombuffer(memoryview(room)[start : start + size], np.uint8) if size else np.empty(0, np.uint8)
            content = contents.get(low)
            if content is not None and content.size == size:
                base[:] = np.frombuffer(self._report.content(content), np.uint8)
            elif size:
                # Read as a number of any floating-point format, these bytes give a moderate value.
                base[:] = random.integers(0x3A, 0x3F, size, np.uint8)
            bases[low] = base
        return bases


def number_of(argument: Argument, kind: AbiType) -> float:
    """Converts an argument's recorded 64-bit word to the number that a parameter of this type receives."""
    if kind in (AbiType.FP16, AbiType.BF16, AbiType.FP32, AbiType.FP64):
        return float(struct.unpack("<d", struct.pack("<Q", argument.word))[0])
    if kind is AbiType.I1:
        return bool(argument.word & 1)
    signed = kind.value.startswith("i")
    return argument.word - (1 << 64) if signed and argument.word >> 63 else argument.word


def _compiler_of(kernel: CrashKernel) -> ChecksKernels:
    form, target = str(kernel.members["form"]), device_named("cpu").target
    for declared in declarations():
        reads = any(blob.checked_text and blob.name == form for blob in declared.blobs)
        if reads and target.kind in declared.targets and declared.sources:
            compiler = select_compiler(declared.sources[0], target)
            if isinstance(compiler, ChecksKernels):
                return compiler
    raise UnsupportedError(f"{kernel.name}: no compiler that is installed here makes code that checks itself of {form}")


def _variant(kernel: CrashKernel) -> Variant:
    """Returns a variant of the kernel's text for this CPU. The text contains its constants already."""
    options = Config.of(enable_fp_fusion=bool(kernel.members["fp_fusion"]))
    target = device_named("cpu").target
    # The text declares no types, so the signature is None, here and in the code that :meth:`Examiner.consent` names.
    return Variant(kernel.name, "", cast("Signature", None), Specialization(), options, target)


_KINDS = {"f": ParameterKind.FLOAT, "b": ParameterKind.FLOAT, "i": ParameterKind.INTEGER, "u": ParameterKind.INTEGER}


def signature_of(info: LaunchInfo, effects: Sequence[Effect]) -> Signature:
    """Makes a signature from the types in a launch info, which are all that is known of the text's parameters."""
    parameters: list[Parameter] = []
    for slot, effect in zip(info.layout, effects, strict=True):
        if slot.type is AbiType.POINTER:
            parameters.append(Parameter(slot.name, ParameterKind.POINTER, effect=effect))
        elif slot.type is AbiType.I1:
            parameters.append(Parameter(slot.name, ParameterKind.BOOL, dtype("i1")))
        else:
            parameters.append(Parameter(slot.name, _KINDS[slot.type.value[0]], dtype(slot.type.value)))
    return Signature(tuple(parameters))
