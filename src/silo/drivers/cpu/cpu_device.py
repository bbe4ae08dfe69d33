"""The CPU as a device: its facts, and loading code to run on it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence

from silo.artifacts.runs_on import runs_on
from silo.core.consent import Consent, require_consent
from silo.core.decisions import Decision
from silo.core.device import DeviceModel, Measuring, Memory, Target, available_sms
from silo.core.launch_info import LaunchInfo
from silo.drivers.cpu import DRIVER
from silo.errors import DeviceError
from silo.frozen import frozen
from silo.launch.native import (
    CpuModule,
    LoadedKernel,
    cpu_level,
    cpu_pin_threads,
    cpu_short_handed,
    cpu_threads,
    reserved_sms,
)
from silo.settings import settings

__all__ = ["CPU_TIMING", "CpuDevice", "CpuTimer", "devices", "load_entry"]

# Caches are as warm as the previous launch left them. Wall time is measured, not the threads' CPU time: a kernel that
# is spread over more threads should win if it is done sooner.
CPU_TIMING = "cpu-wall-warm/1"


class CpuTimer:
    """Reads the monotonic clock around launches that return when the kernel is done.

    >>> CpuTimer().elapsed_ns(lambda: None, 3) >= 0
    True
    """

    def __init__(self) -> None:
        self._disturbed = False

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Returns the nanoseconds of ``repeats`` launches back to back."""
        clock = time.perf_counter_ns
        turns = range(repeats)
        before = cpu_short_handed()
        begin = clock()
        for _ in turns:
            launch()
        elapsed = clock() - begin
        self._disturbed = cpu_short_handed() != before
        return elapsed

    def disturbed(self) -> bool:
        """Whether a launch ran on fewer threads than it requested: other processes occupied their processors."""
        return self._disturbed

    def settle(self) -> None:
        """Pins the threads of launches, which a busy system may otherwise keep on one processor for seconds."""
        cpu_pin_threads()


@frozen
class CpuDevice:
    """The cores that this process may use, as a :class:`silo.core.protocols.Device`."""

    model: DeviceModel
    target: Target
    index: int = 0

    def facts(self) -> Mapping[str, int]:
        """The facts that grids and spaces may read. ``sm_count`` is the number of threads that a launch uses."""
        threads, reserved = cpu_threads(), reserved_sms("cpu", self.index)
        return {
            "sm_count": threads,
            "reserved_sms": reserved,
            "num_sms": available_sms(threads, reserved),
            "warp_size": 1,
            "memory_bytes": self.model.memory_bytes,
        }

    @property
    def memory(self) -> Memory:
        """Host memory."""
        return DRIVER.memory

    @property
    def measuring(self) -> Measuring:
        """``CONFINED``: candidates are timed in a separate process, because code that faults ends its process."""
        return Measuring.CONFINED

    def runs(self, target: Target, blob_kind: str = "so") -> Decision:
        """Whether code for ``target`` runs here."""
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Does nothing: launches return when they are done."""

    def free_memory(self) -> None:
        """Returns None (unknown): no limit is checked for arrays in host memory."""

    @property
    def driver(self) -> str:
        """Always empty: CPUs need no driver."""
        return ""

    @property
    def timing(self) -> str:
        """The name of the timing method, :data:`CPU_TIMING`."""
        return CPU_TIMING

    def timer(self) -> CpuTimer:
        """Returns a timer that reads the wall clock."""
        return CpuTimer()

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> LoadedKernel:
        """Maps a shared object, which runs its initialisers.

        Raises:
            DeviceError: the blob is not a shared object, or lacks the entry.
            TrustError: no consent was given to these bytes and this launch.
        """
        if kind != "so":
            raise DeviceError(f"{name}: the CPU loads shared objects (kind so), not {kind!r}")
        require_consent(consent, launch, blob, kind, name)
        try:
            return load_entry(CpuModule(blob), launch, name)
        except DeviceError as error:
            raise DeviceError(f"{name}: {error}") from error


def load_entry(module: CpuModule, launch: LaunchInfo, name: str) -> LoadedKernel:
    """Returns the kernel of a mapped shared object. Raises DeviceError if the object lacks it."""
    return LoadedKernel(
        module,
        launch.entry,
        name,
        scratch_bytes=launch.scratch_bytes,
        chunk=launch.option("cpu_chunk"),
        threads=launch.option("cpu_threads"),
        work=launch.option("cpu_work"),
        together=settings().programs_at_once,
        cooperative=launch.cooperative,
    )


def devices() -> Sequence[CpuDevice]:
    """Returns the CPU of this machine. Raises ``TargetError`` if the CPU is below every level of Silo."""
    level = cpu_level()
    target = _missing_level() if level is None else Target("cpu", level)
    vendor, name = _maker_and_model()
    machine = platform.machine()
    return (
        CpuDevice(
            DeviceModel(
                vendor=vendor or machine,
                name=name or platform.processor() or machine,
                arch=target.arch,
                units=os.cpu_count() or 1,
                memory_bytes=_memory_bytes(),
            ),
            target,
        ),
    )


def _missing_level() -> Target:
    """Calls ``host_target`` on a machine below every level, to raise its TargetError, which describes the CPU."""
    from silo.drivers.cpu.levels import host_target  # noqa: PLC0415  # few machines are below every level

    return host_target()


def _maker_and_model() -> tuple[str, str]:
    """Returns the maker (GenuineIntel, AuthenticAMD, an ARM implementer's number) and the model, as Linux names them.

    Maker and model are "" on other systems.
    """
    values: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  # pathlib takes long
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("vendor_id", "CPU implementer", "model name"):
                    values.setdefault(key.strip().replace("CPU implementer", "vendor_id"), value.strip())
                if len(values) == 2:
                    break
    except OSError:
        return "", ""
    return values.get("vendor_id", ""), values.get("model name", "")


def _memory_bytes() -> int:
    """Returns the installed memory in bytes; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
