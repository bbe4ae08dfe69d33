"""TPUs as devices. jax drives them, as Silo has no driver of its own. Not tested on a TPU yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from silo.artifacts.runs_on import runs_on
from silo.core.consent import Consent
from silo.core.decisions import Decision
from silo.core.device import DeviceModel, Measuring, Memory, Target
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import LoadedKernel
from silo.drivers.tpu import DRIVER
from silo.errors import DeviceError
from silo.frozen import frozen

__all__ = ["CHIPS", "TpuDevice", "TpuTimer", "devices"]

CHIPS: Mapping[str, str] = {
    "TPU v4": "v4",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
    "TPU7x": "7x",
}
"""Maps jax's name of a device to the arch of its target."""

# Device files that exist on machines with TPUs.
_NODES = ("accel0", "vfio/0", "vfio/1")


class TpuTimer:
    """Measures wall time: a launch returns when its results are complete."""

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Returns the nanoseconds of ``repeats`` launches back to back."""
        begin = time.perf_counter_ns()
        for _ in range(repeats):
            launch()
        return time.perf_counter_ns() - begin


@frozen
class TpuDevice:
    """A TPU, as a :class:`silo.core.protocols.Device`; the loaders of ``silo.loaders`` load its code."""

    model: DeviceModel
    target: Target
    index: int
    driver: str
    timing: str = "tpu-wall/1"
    memory: Memory = DRIVER.memory
    measuring: Measuring = Measuring.HERE  # candidates are timed in this process, because it holds jax's arrays

    def facts(self) -> Mapping[str, int]:
        """The facts that grids may read."""
        return {"sm_count": self.model.units, "reserved_sms": 0, "num_sms": self.model.units, "warp_size": 1}

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Whether code is for exactly this chip."""
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Does nothing: launches return when their results are complete."""

    def free_memory(self) -> int | None:
        """Returns the free bytes as jax counts them; None if jax does not count."""
        stats: Mapping[str, Any] = _local(import_module("jax"))[self.index].memory_stats() or {}
        limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use")
        return None if limit is None or used is None else int(limit) - int(used)

    def timer(self) -> TpuTimer:
        """Returns a timer that measures wall time."""
        return TpuTimer()

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> LoadedKernel:
        """Raises DeviceError: the loaders of its kinds of blobs load code, not a driver."""
        del launch, blob, consent
        raise DeviceError(f"{name}: no driver of Silo loads {kind!r} to a TPU; jax does, through the loader of jaxexp")


def devices() -> Sequence[TpuDevice]:
    """Returns the TPUs that this process may use. Imports jax, which takes seconds, only if TPU device files exist.

    Raises:
        DeviceError: no TPU was found; the message has the reason.
    """
    if not any((Path("/dev") / node).exists() for node in _NODES):
        raise DeviceError("this machine has no TPU: there is neither /dev/accel0 nor /dev/vfio")
    missing = [package for package in ("jax", "libtpu") if find_spec(package) is None]
    if missing:
        raise DeviceError(f"TPUs are driven by jax with libtpu; {missing[0]} is not installed: pip install 'jax[tpu]'")
    jax = import_module("jax")
    try:
        local_devices = _local(jax)
    except RuntimeError as error:  # jax raises this if it lacks the backend
        raise DeviceError(f"jax {jax.__version__} sees no TPU: {error}") from error
    return tuple(
        described(local_device, index, str(jax.__version__)) for index, local_device in enumerate(local_devices)
    )


def described(device: Any, index: int, version: str) -> TpuDevice:  # noqa: ANN401  # jax's
    """Returns the device for an object of jax. Raises DeviceError for a chip that no target names."""
    name = str(device.device_kind)
    if name not in CHIPS:
        raise DeviceError(f"jax {version} has a TPU that it calls {name!r}, and Silo knows {', '.join(CHIPS)}")
    statistics: Mapping[str, Any] = device.memory_stats() or {}
    model = DeviceModel(
        vendor=DRIVER.vendor,
        name=name,
        arch=CHIPS[name],
        units=int(getattr(device, "num_cores", 1) or 1),
        memory_bytes=int(statistics.get("bytes_limit") or 0),
    )
    return TpuDevice(model, Target("tpu", CHIPS[name]), index, f"jax {version}")


def _local(jax: Any) -> Sequence[Any]:  # noqa: ANN401  # the module
    return tuple(jax.local_devices(backend="tpu"))
