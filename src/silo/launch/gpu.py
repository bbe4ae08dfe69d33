"""GPU devices of every vendor: facts, loading and timing. A device loads each blob once, as one module.

A sample depends on the state of the L2 cache, which is part of the timing's name:

- ``cold``: one launch between two events, after a fill of twice the cache's size has evicted all other data. The fill
  is enqueued first and takes longer than enqueuing the launch, so the device never waits for the host within a sample.
- ``warm``: launches back to back between two events. If the host needs longer to launch a kernel than the kernel runs,
  the host's time is measured.

Events have a resolution of about half a microsecond; the median of many samples is finer than that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakValueDictionary

from silo.artifacts.runs_on import runs_on
from silo.core.decisions import Decision, Rejected
from silo.core.device import DeviceModel, DriverDeclaration, Measuring, Memory, Target, available_sms, driver_of
from silo.core.launch_info import LaunchInfo, parameter_bytes
from silo.core.plugins import load_place
from silo.errors import DeviceError, SourceError
from silo.forks import Mutex
from silo.frozen import field, frozen
from silo.launch import native
from silo.launch.native import open_driver, reserved_sms, torch_with_gpu
from silo.settings import settings

if TYPE_CHECKING:
    from silo.core.consent import Consent
    from silo.core.protocols import EnergyMeter

__all__ = ["GpuDevice", "GpuTimer", "current_stream", "flush_bytes", "gpu_devices"]

# Loading the same code twice on a device would take its memory twice. A module lives as long as the kernels that use
# it.
_modules: Final[WeakValueDictionary[tuple[str, int, str], native.GpuModule]] = WeakValueDictionary()
_lock = Mutex()


@frozen
class GpuDevice:
    """A GPU: implements :class:`silo.core.protocols.Device` with the native driver table."""

    declared: DriverDeclaration
    index: int
    attributes: Mapping[str, int | str] = field(repr=False)

    @property
    def target(self) -> Target:
        """The target that code for this device is compiled for by default."""
        return Target(self.declared.kind, str(self.attributes["arch"]))

    @property
    def model(self) -> DeviceModel:
        """The identity of the GPU's model."""
        return DeviceModel(
            vendor=self.declared.vendor,
            name=str(self.attributes["name"]),
            arch=self.target.arch,
            units=self._number("sm_count"),
            memory_bytes=self._number("total_memory"),
        )

    def facts(self) -> Mapping[str, int]:
        """Returns the device facts that expressions may read.

        These facts are every number that the driver reports, and the number of SMs that are reserved for other work.
        """
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
        """The memory that kernels can access: the device's, and host memory that the driver pinned or manages."""
        return self.declared.memory

    @property
    def measuring(self) -> Measuring:
        """The way to measure: in a separate process, because a driver refuses all calls of a process after a fault."""
        return Measuring.CONFINED

    def runs(self, target: Target, blob_kind: str = "") -> Decision:
        """Returns whether code for ``target`` runs on this device.

        ``blob_kind`` distinguishes machine code from PTX, which runs on more devices.
        """
        return runs_on(target, self.target, blob_kind)

    def synchronize(self) -> None:
        """Waits for all work of the device's current context."""
        native.gpu_synchronize(self.declared.kind, self.index)

    def free_memory(self) -> int | None:
        """Returns the free bytes of device memory that the driver reports."""
        return native.gpu_free_memory(self.declared.kind, self.index)

    @property
    def driver(self) -> str:
        """The driver's kind and the version of its interface.

        An update of the driver that adds no features keeps this version.
        """
        return f"{self.declared.kind} {self._number('driver_version')}"

    @property
    def timing(self) -> str:
        """The name of the timing method; see :mod:`silo.launch.gpu`."""
        return f"{self.target.kind}-events-{settings().l2}/1"

    def timer(self) -> GpuTimer:
        """Returns a timer that uses events on the stream that launches go to."""
        return GpuTimer(self.target.kind, self.index, self._number("l2_bytes"), cold=settings().l2 == "cold")

    def energy_meter(self) -> EnergyMeter | Rejected:
        """Returns the energy counter of the driver's management library, or the reason why it cannot be read."""
        if self.declared.energy is None:
            return Rejected(f"Silo reads no energy counter of devices of kind {self.declared.kind}")
        open_counter = cast("Callable[[str], EnergyMeter | Rejected]", load_place(self.declared.energy))
        return open_counter(str(self.attributes["pci_bus_id"]))

    def load(
        self, launch: LaunchInfo, blob: bytes, kind: str, name: str, *, consent: Consent | None = None
    ) -> native.LoadedKernel:
        """Loads a kernel in the device's primary context, which the first load creates.

        Consent is not needed, because the code runs on the device, not in this process. But the parameters are checked:
        a launch passes the parameters that the launch info's layout lists, and the driver reads parameters of the
        number and sizes that the code declares. If the layout and the code differ, the driver reads other memory of
        this process.

        Raises:
            DeviceError: code of another kind, code the driver refuses, a launch the device cannot do, or code whose
                parameters differ from the launch info's or are not declared.
        """
        del consent
        if kind not in self.declared.blobs:
            raise DeviceError(
                f"{name}: {self.target} loads code of kind {' or '.join(self.declared.blobs)}, not {kind!r}"
            )
        return self._kernel(lambda: self._module(blob), launch, blob, name)

    def adopt(self, launch: LaunchInfo, blob: bytes, name: str, module: int) -> native.LoadedKernel:
        """Returns a kernel of ``blob`` in a module that other code has loaded on this device.

        The owner keeps the module and unloads it.

        Raises:
            DeviceError: as :meth:`load`, or the thread's current context is not the device's primary one.
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
        """Raises DeviceError unless the launch info's layout matches the code's parameters.

        ``stated`` are the parameters that the driver reports; if it reports none, they are read from the code itself.
        """
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
        # Held while loading, so that a kernel is loaded only once if two threads need it for the first time.
        with _lock:
            module = _modules.get(key)
            if module is None:
                module = _modules[key] = native.GpuModule(self.target.kind, self.index, blob)
            return module

    def _number(self, name: str) -> int:
        return int(self.attributes.get(name, 0))


def gpu_devices(declared: DriverDeclaration) -> Sequence[GpuDevice]:
    """Returns the GPUs of one driver. Opens the driver and reads attributes, but creates no context.

    Raises:
        DeviceError: the driver is missing (with the reason), or finds no device.
    """
    count = open_driver(declared.kind)
    if count == 0:
        raise DeviceError(f"the {declared.kind} driver is here and has no device")
    return tuple(GpuDevice(declared, index, native.gpu_attributes(declared.kind, index)) for index in range(count))


def flush_bytes(kind: str, l2_bytes: int) -> int:
    """Returns how many bytes are written between cold samples.

    >>> flush_bytes("cuda", 50 << 20) >> 20
    100
    """
    return max(2 * l2_bytes, driver_of(kind).least_flush)


def current_stream(kind: str, index: int) -> int:
    """Returns the stream of launches without ``stream=``: torch's current stream if torch uses the GPU, else 0."""
    torch = torch_with_gpu(kind)
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_stream(index).cuda_stream)


class GpuTimer:
    """Times launches with events: implements :class:`silo.core.protocols.Timer`. For use by one thread."""

    def __init__(self, kind: str, index: int, l2_bytes: int, *, cold: bool) -> None:
        self._kind = kind
        self._index = index
        self._flush_bytes = flush_bytes(kind, l2_bytes)
        self._cold = cold
        self._flush: native.GpuBuffer | None = None
        self._events: list[native.GpuEvent] = []

    def elapsed_ns(self, launch: Callable[[], object], repeats: int) -> int:
        """Returns the nanoseconds that ``repeats`` launches take on the device.

        An exception of a launch or of the device propagates.
        """
        stream = current_stream(self._kind, self._index)
        if not self._cold:
            begin, end = self._pair(0)
            begin.record(stream)
            for _ in range(repeats):
                launch()
            end.record(stream)
            end.synchronize()
            return end.elapsed_ns(begin)
        if self._flush is None:
            self._flush = native.GpuBuffer((self._flush_bytes,), "uint8", self._kind, self._index)
        for turn in range(repeats):
            begin, end = self._pair(turn)
            self._flush.fill(0, stream)
            begin.record(stream)
            launch()
            end.record(stream)
        self._pair(repeats - 1)[1].synchronize()
        return sum(end.elapsed_ns(begin) for begin, end in (self._pair(turn) for turn in range(repeats)))

    def _pair(self, turn: int) -> tuple[native.GpuEvent, native.GpuEvent]:
        while len(self._events) < 2 * turn + 2:
            self._events.append(native.GpuEvent(self._kind, self._index))
        return self._events[2 * turn], self._events[2 * turn + 1]
