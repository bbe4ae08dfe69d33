"""``silo crash --device``: launches each suspect of a crash report alone on a device, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from silo.artifacts.artifact import Artifact, blob_ref
from silo.checking.crash_report import CrashKernel, CrashReport, RecordedLaunch
from silo.commands.crash_suspects import Suspect, layout_of, unchecked_reason
from silo.commands.examine_crash import Examiner, number_of, signature_of
from silo.compile.toolchain import select_compiler
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType
from silo.core.plugins import declarations
from silo.core.protocols import CompilesText
from silo.core.signature import Effect
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.errors import DeviceError, LaunchTimeoutError, SiloError, UnsupportedError
from silo.judging.device_stage import local_fleet
from silo.machine.device_plugins import device_named
from silo.tuning.agents.fleet import Fleet, Turn
from silo.tuning.agents.sent_launches import SentLaunch, SentLaunches, launch_on

__all__ = ["AloneOnDevice", "launch_suspects"]


@dataclass(frozen=True, slots=True)
class AloneOnDevice:
    """The outcome of launching a suspect alone: "faults", "hangs", "writes beside" an array, "ends", or "unknown"."""

    kernel: str
    numbers: tuple[int, ...]
    outcome: str
    text: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the launch did something that no correct launch does."""
        return self.outcome in ("faults", "hangs", "writes beside")

    def __str__(self) -> str:
        return f"{self.kernel} (launch {self.numbers[0]}) alone on the device: {self.outcome}" + (
            f": {self.text}" if self.text else ""
        )


def launch_suspects(
    report: CrashReport, suspects: Sequence[Suspect], device: str, *, trust: bool, seconds: float
) -> Iterator[AloneOnDevice]:
    """Launches each suspect once on a GPU of this machine. Arrays whose contents the report lacks get random contents.

    Raises:
        DeviceError: the device is absent, or is not a GPU.
        TrustError: the report has kernel texts that this user's store does not know.
    """
    if device_named(device).memory.is_host:
        raise DeviceError(f"--device takes a GPU, such as cuda:0: silo crash itself checks on the CPU, not {device!r}")
    examiner = Examiner(report, trust=trust)
    with local_fleet(device) as fleet:
        for suspect in suspects:
            kernel = report.kernels[suspect.launch.kernel]
            reason = unchecked_reason(report, suspect.launch)
            if reason:
                yield AloneOnDevice(kernel.name, suspect.numbers, "unknown", reason)
                continue
            examiner.consent(kernel)
            yield _alone(examiner, fleet, kernel, suspect, seconds)


def _alone(examiner: Examiner, fleet: Fleet, kernel: CrashKernel, suspect: Suspect, seconds: float) -> AloneOnDevice:
    try:
        sent, names = _sent(examiner, fleet.device.target, kernel, suspect.launch, seconds)
    except SiloError as error:
        return AloneOnDevice(kernel.name, suspect.numbers, "unknown", f"it cannot be launched: {error}")
    try:
        result = fleet.ask(Turn(), kernel.name, lambda connection: launch_on(connection, sent))
    except LaunchTimeoutError as error:
        return AloneOnDevice(kernel.name, suspect.numbers, "hangs", str(error))
    except SiloError as error:
        return AloneOnDevice(kernel.name, suspect.numbers, "faults", str(error))
    if result.beside:
        arrays = ", ".join(names[index] for _, index in result.beside)
        return AloneOnDevice(kernel.name, suspect.numbers, "writes beside", f"the memory of {arrays}")
    return AloneOnDevice(kernel.name, suspect.numbers, "ends")


def _sent(
    examiner: Examiner, target: Target, kernel: CrashKernel, launch: RecordedLaunch, seconds: float
) -> tuple[SentLaunches, list[str]]:
    """Returns a launch in the form that an agent takes, and for each array the first argument that uses it."""
    info = layout_of(kernel)
    options: Mapping[str, int] = kernel.members.get("options", {})
    compiler = _compiler_of(kernel, target)
    job = compiler.text_job(str(kernel.members["text"]), kernel.name, target, info, options)
    compiled = select_compiler(_source_kind(kernel), job.target).compile(job)
    signature = signature_of(info, [Effect.BOTH] * len(info.layout))
    variant = Variant(kernel.name, "", signature, Specialization(), Config.of(), job.target)
    blob = compiled.blob
    artifact = Artifact(variant, compiled.launch, blob_ref(blob.kind, blob.data), (), job.compiler, "")
    values = {name: value for (name, _), value in zip(kernel.parameters, launch.arguments, strict=True)}
    lows: list[int] = []
    names: list[str] = []
    arguments: list[Any] = []
    for slot in info.layout:
        value = values[slot.name]
        if slot.type is not AbiType.POINTER:
            arguments.append(number_of(value, slot.type))
        elif value.size == 0:
            arguments.append(value.word)  # a null pointer
        else:
            if value.low not in lows:
                lows.append(value.low)
                names.append(slot.name)
            arguments.append({"array": lows.index(value.low), "at": value.word - value.low})
    bases = examiner.bases(launch)
    arrays = tuple((bases[low].tobytes(), low % 256) for low in lows)
    sent = SentLaunch(0, launch.grid, tuple(arguments))
    return SentLaunches(arrays, ((artifact, blob.data),), (sent,), limit_s=seconds), names


def _source_kind(kernel: CrashKernel) -> str:
    form = str(kernel.members["form"])
    for declared in declarations():
        if declared.sources and any(blob.checked_text and blob.name == form for blob in declared.blobs):
            return declared.sources[0]
    raise UnsupportedError(f"{kernel.name}: no compiler that is installed here reads {form}")


def _compiler_of(kernel: CrashKernel, target: Target) -> CompilesText:
    compiler = select_compiler(_source_kind(kernel), target)
    if not isinstance(compiler, CompilesText):
        raise UnsupportedError(f"{kernel.name}: the compiler for {target} takes no text of a report")
    return compiler
