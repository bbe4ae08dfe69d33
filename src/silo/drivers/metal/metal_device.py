"""A Mac's GPU as a device, through torch or MLX, and versions of Metal's language. Not tested on hardware yet."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from silo.core.consent import Consent
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import DeviceModel, Measuring, Memory, Target, available_sms
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import LoadedKernel
from silo.drivers.metal import DRIVER
from silo.errors import DeviceError
from silo.frozen import frozen
from silo.launch.array_libraries.library_table import devices_through
from silo.launch.native import reserved_sms

__all__ = ["TARGETS", "MetalDevice", "devices", "runs_version", "version_of_system"]

TARGETS = ("3.0", "3.1", "3.2", "4.0")
# newest version of the Metal language, by the first number of macOS's version
_OF_SYSTEM = {13: "3.0", 14: "3.1", 15: "3.2", 26: "4.0"}


def version_of_system(macos: str) -> str | None:
    """Returns the newest version of the Metal language that a macOS compiles; None before macOS 13.

    >>> version_of_system("15.3"), version_of_system("12.7")
    ('3.2', None)
    """
    first = macos.partition(".")[0]
    number = int(first) if first.isdigit() else 0
    return next((version for minimum, version in reversed(_OF_SYSTEM.items()) if number >= minimum), None)


def runs_version(built: Target, target: Target) -> Decision:
    """Whether a text for one language version compiles on a system whose newest version is ``target``.

    >>> bool(runs_version(Target.parse("metal:3.1"), Target.parse("metal:3.2")))
    True
    """
    if built.kind != target.kind:
        return Rejected(f"built for {built.kind}, the device is {target.kind}")
    if built.arch <= target.arch:
        return Accepted(f"Metal {target.arch} compiles texts for {built.arch}")
    return Rejected(f"its text needs Metal {built.arch}, the system has {target.arch}")


# The libraries that drive the GPU: for each package, the module that is in sys.modules once it was imported.
_LIBRARIES = {"torch": "torch", "mlx": "mlx.core"}


def _present() -> Mapping[str, Any]:
    """Returns the imported libraries that see a GPU. Without one, a program cannot have arrays in Metal's memory."""
    loaded = {package: sys.modules.get(module) for package, module in _LIBRARIES.items()}
    return {
        package: module
        for package, module in loaded.items()
        if module is not None and devices_through(package).count(module, "mps")
    }


def _synchronize() -> None:
    """Waits for the streams of every library."""
    for package, module in _present().items():
        (module.mps if package == "torch" else module).synchronize()


class MetalTimer:
    """Measures the wall time of launches and waits for them: libraries do not report the time of a launch on Metal."""

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Returns the nanoseconds of ``repeats`` launches back to back."""
        _synchronize()
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            launch()
        _synchronize()
        return time.perf_counter_ns() - begin


@frozen
class MetalDevice:
    """The GPU of a Mac, as a :class:`silo.core.protocols.Device`."""

    model: DeviceModel
    target: Target
    driver: str = ""
    index: int = 0

    def facts(self) -> Mapping[str, int]:
        """The facts that grids and spaces may read. ``sm_count`` is the number of the GPU's cores."""
        reserved = reserved_sms("metal", 0)
        return {
            "sm_count": self.model.units,
            "reserved_sms": reserved,
            "num_sms": available_sms(self.model.units, reserved),
            "warp_size": 32,
            "memory_bytes": self.model.memory_bytes,
        }

    @property
    def memory(self) -> Memory:
        """Metal's memory, which holds torch's tensors on ``mps``."""
        return DRIVER.memory

    @property
    def measuring(self) -> Measuring:
        """``HERE``: candidates are timed in this process, because torch launches in it."""
        return Measuring.HERE

    @property
    def timing(self) -> str:
        """The name of the timing method."""
        return "metal-wall/1"

    def runs(self, target: Target, blob_kind: str = "msl") -> Decision:
        """Whether the system's version of Metal compiles code for ``target``."""
        del blob_kind
        return runs_version(target, self.target)

    def synchronize(self) -> None:
        """Waits for the libraries' streams."""
        _synchronize()

    def free_memory(self) -> None:
        """Returns None (unknown): the GPU uses host memory, for which no limit is checked."""

    def timer(self) -> MetalTimer:
        """Returns a :class:`MetalTimer`."""
        return MetalTimer()

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> LoadedKernel:
        """Raises DeviceError: the loader of the kind ``msl`` loads code, not a driver."""
        del launch, blob, consent
        raise DeviceError(f"{name}: a Mac's GPU runs texts (kind msl) through torch or MLX, not {kind!r}")


def devices() -> Sequence[MetalDevice]:
    """Returns the GPU of this Mac. Raises DeviceError with the reason if it finds none."""
    if platform.system() != "Darwin":
        raise DeviceError("Metal is on Macs alone; silo.emulated_metal and the target cpu run its kernels elsewhere")
    version = version_of_system(platform.mac_ver()[0])
    if version is None:
        raise DeviceError(f"macOS {platform.mac_ver()[0]} has no Metal 3; Silo's kernels need macOS 13 or later")
    libraries = _present()
    if not libraries:
        raise DeviceError(
            "neither torch nor MLX is imported and sees a GPU of Apple's: these launch Metal kernels, with their arrays"
        )
    package, module = next(iter(libraries.items()))
    described = devices_through(package).describe(module, "mps", 0)
    memory = int(described.facts.get("memory_bytes") or 0)
    model = DeviceModel(DRIVER.vendor, described.model, version, described.sm_count or 1, memory)
    return (MetalDevice(model, Target("metal", version), f"macOS {platform.mac_ver()[0]}"),)
