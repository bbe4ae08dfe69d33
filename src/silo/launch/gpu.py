"""The common part of GPU devices of every vendor: facts, loading, one module for each device and blob."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakValueDictionary

from silo.artifacts.runs_on import runs_on
from silo.core.decisions import Decision, Rejected
from silo.core.device import DeviceModel, DriverDeclaration, Measuring, Memory, available_sms
from silo.core.launch_info import LaunchInfo, parameter_bytes
from silo.core.plugins import load_place
from silo.core.target import Target
from silo.errors import DeviceError, SourceError
from silo.forks import Mutex
from silo.frozen import field, frozen
from silo.launch import native
from silo.launch.native import open_driver, reserved_sms
from silo.settings import settings

if TYPE_CHECKING:
    from silo.core.consent import Consent
    from silo.core.protocols import EnergyMeter
    from silo.launch.gpu_timer import GpuTimer

__all__ = ["GpuDevice", "gpu_devices"]

# The same code loaded twice on a device would hold its memory twice. Modules live as long as kernels that use them.
_modules: Final[WeakValueDictionary[tuple[str, int, str], native.GpuModule]] = WeakValueDictionary()
_lock = Mutex()


@frozen
class GpuDevice:
    """Implements :class:`silo.core.protocols.Device` over the native driver table."""

    declared: DriverDeclaration
    index: int
    attributes: Mapping[str, int | str] = field(repr=False)

    @property
    def target(self) -> Target:
        """The target that code for this device is compiled for by default."""
        return Target(self.declared.kind, str(self.attributes["arch"]))

    @property
    def model(self) -> DeviceModel:
        """Its identity."""
        return DeviceModel(
            vendor=self.declared.vendor,
            name=str(self.attributes["name"]),
            arch=self.target.arch,
            units=self._number("sm_count"),
            memory_bytes=self._number("total_memory"),
        )

    def facts(self) -> Mapping[str, int]:
        """Leaves of the expression language: every number the driver states, and the SMs that are left alone."""
        reserved = reserved_sms(self.target.kind, self.index)
        stated = {name: value for name, value in self.attributes.items() if isinstance(value, int)}
        return {
            **stated,
            "memory_bytes": self._number("total_memory"),
            "reserved_sms": reserved,
            "num_sms": available_sms(self._number("sm_count"), reserved),
        }

    @property
    def memory(self) -> Memory:
        """Its own memory, and host memory that the driver pinned or manages."""
        return self.declared.memory

    @property
    def measuring(self) -> Measuring:
        """After a fault the driver refuses everything in the process."""
        return Measuring.CONFINED

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Whether code for ``target`` runs here: machine code, or PTX, for which other rules hold."""
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Wait for the device's current context."""
        native.gpu_synchronize(self.declared.kind, self.index)

    def free_memory(self) -> int | None:
        """The driver's answer."""
        return native.gpu_free_memory(self.declared.kind, self.index)

    @property
    def driver(self) -> str:
        """The driver's reported version. It describes its abilities, so an update that adds none keeps it."""
        return f"{self.declared.kind} {self._number('driver_version')}"

    @property
    def timing(self) -> str:
        """How times are taken; see :mod:`silo.launch.gpu_timer`."""
        return f"{self.target.kind}-events-{settings().l2}/1"

    def timer(self) -> GpuTimer:
        """Events of the driver, on the stream that launches go to."""
        from silo.launch.gpu_timer import GpuTimer  # noqa: PLC0415  # a launch is not timed

        return GpuTimer(self.target.kind, self.index, self._number("l2_bytes"), cold=settings().l2 == "cold")

    def energy_meter(self) -> EnergyMeter | Rejected:
        """The energy counter of the driver's management library, or the reason why it cannot be read."""
        if self.declared.energy is None:
            return Rejected(f"Silo reads no energy counter of devices of kind {self.declared.kind}")
        open_counter = cast("Callable[[str], EnergyMeter | Rejected]", load_place(self.declared.energy))
        return open_counter(str(self.attributes["pci_bus_id"]))

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> native.LoadedKernel:
        """Load a kernel under the device's primary context, which is made when the first one is loaded.

        Needs no consent: the driver runs it on the device, and takes no native code. But the driver reads each
        parameter of a launch, with the number and sizes that the code declares, from a list made by the launch info's
        layout.

        Raises:
            DeviceError: code of another kind, code the driver refuses, a launch the device cannot do, or code that
                takes other parameters than the launch info says, or does not say which it takes.
        """
        del consent
        if kind not in self.declared.blobs:
            raise DeviceError(
                f"{name}: {self.target} loads code of kind {' or '.join(self.declared.blobs)}, not {kind!r}"
            )
        return self._kernel(lambda: self._module(blob), launch, blob, name)

    def adopt(self, launch: LaunchInfo, blob: bytes, name: str, module: int) -> native.LoadedKernel:
        """A kernel of ``blob``, which somebody else has loaded here as ``module``, keeps, and unloads in the end.

        Raises:
            DeviceError: as :meth:`load`, or the thread's context now is not the device's primary one.
        """
        kind, index = self.target.kind, self.index
        return self._kernel(lambda: native.GpuModule(kind, index, module=module), launch, blob, name)

    def _kernel(
        self, module: Callable[[], native.GpuModule], launch: LaunchInfo, blob: bytes, name: str
    ) -> native.LoadedKernel:
        try:
            loaded = native.LoadedKernel(
                module(),
                launch.entry,
                name,
                block=launch.block,
                cluster=launch.cluster,
                shared_bytes=launch.shared_bytes,
                scratch_bytes=launch.scratch_bytes,
                scratch_align=launch.scratch_align,
                profile_bytes=launch.profile_bytes,
                profile_align=launch.profile_align,
                cooperative=launch.cooperative,
                pdl=launch.pdl,
                counts_blocks=launch.counts_blocks,
            )
        except DeviceError as error:
            raise DeviceError(f"{name}: {error}") from error
        stated = loaded.parameters
        if stated is None or [size for _, size in stated] != parameter_bytes(launch.layout):
            self._require_layout(stated, launch, blob, name)
        return loaded

    def _require_layout(
        self, stated: Sequence[tuple[int, int]] | None, launch: LaunchInfo, blob: bytes, name: str
    ) -> None:
        """Compare with the driver's report, or without a report with the code's own description."""
        from silo.artifacts.device_code import check_parameters, read_device_code  # noqa: PLC0415  # few loads need it

        try:
            if stated is None:
                stated = read_device_code(blob, "the code").kernel(launch.entry, "the code").parameters
            check_parameters(launch.entry, stated, launch.layout)
        except SourceError as error:
            raise DeviceError(
                f"{name} on {self.target}: {error}\nThe driver would read other memory of this process than its "
                "arguments, so it is not loaded; build it again from its source"
            ) from None

    def _module(self, blob: bytes) -> native.GpuModule:
        key = (self.target.kind, self.index, hashlib.sha256(blob).hexdigest())
        # Held while loading: two threads that meet the same kernel first load it once.
        with _lock:
            module = _modules.get(key)
            if module is None:
                module = _modules[key] = native.GpuModule(self.target.kind, self.index, blob)
            return module

    def _number(self, name: str) -> int:
        return int(self.attributes.get(name, 0))


def gpu_devices(declared: DriverDeclaration) -> Sequence[GpuDevice]:
    """The GPUs of one driver. Opens it and reads attributes; makes no context.

    Raises:
        DeviceError: the driver is missing, with the reason, or finds no device.
    """
    count = open_driver(declared.kind)
    if count == 0:
        raise DeviceError(f"the {declared.kind} driver is here and has no device")
    return tuple(GpuDevice(declared, index, native.gpu_attributes(declared.kind, index)) for index in range(count))
