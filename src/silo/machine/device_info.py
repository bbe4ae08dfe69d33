"""``silo.device``: descriptions of the devices of this machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from silo.core.device import available_sms
from silo.core.protocols import Device
from silo.errors import DeviceError
from silo.launch.array_libraries.library_table import DEVICE_PACKAGES, devices_through
from silo.launch.native import reserve_sms
from silo.machine.device_plugins import all_devices, default_device, device_named, devices_of_kind

__all__ = ["DeviceInfo", "device", "devices"]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device. Sizes are in bytes, clocks in kHz; a member is None if the device does not report or have the feature.

    ``sm_count`` counts streaming multiprocessors, compute units, subslices or CPU cores; ``warp_size`` is 1 on CPUs.
    ``target`` is the target that Silo compiles for on this device by default; None if Silo compiles nothing for the
    device.
    """

    name: str
    kind: str
    index: int
    model: str
    arch: str
    target: str | None
    sm_count: int
    reserved_sms: int = 0
    warp_size: int | None = None
    shared_per_block: int | None = None
    shared_per_block_optin: int | None = None
    shared_per_sm: int | None = None
    registers_per_block: int | None = None
    registers_per_sm: int | None = None
    max_threads_per_block: int | None = None
    max_threads_per_sm: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    clock_khz: int | None = None
    memory_clock_khz: int | None = None
    memory_bus_bits: int | None = None

    @property
    def num_sms(self) -> int:
        """The number of multiprocessors that a persistent kernel may fill: all that are not reserved, at least one."""
        return available_sms(self.sm_count, self.reserved_sms)

    def reserve(self, count: int) -> DeviceInfo:
        """Leaves ``count`` multiprocessors free from now on, and returns the device's description with this number.

        In this process, grids that read ``a.reserved_sms`` (``lambda a: ...``) get the number.

        Kernels that were called already use the new number from their next call on; bound launchers keep the grid with
        which they were bound.

        Raises:
            SettingsError: a negative count.
        """
        reserve_sms(self.kind, self.index, count)
        return replace(self, reserved_sms=count)


_NUMBERS: Final = frozenset(one.name for one in fields(DeviceInfo)[8:])


def device(name: str | None = None, *, reserved_sms: int | None = None) -> DeviceInfo:
    """Describes a device.

    Args:
        name: ``cuda``, ``cuda:1``, ``hip``, ``cpu`` through Silo's own drivers; ``xpu``, ``mtia``, ``mps`` through
            torch and ``tpu`` through jax, which this call imports. None: the first GPU, or else the CPU.
        reserved_sms: the number of reserved multiprocessors in the returned object only (see
            :meth:`DeviceInfo.reserve`).

    Raises:
        DeviceError: the device does not exist here; contains the reason.

    >>> device("cpu").kind
    'cpu'
    """
    if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's value
        raise DeviceError(f"a device is named by a text, such as 'cpu' or 'cuda:0', not by {name!r}")
    info = _of_plugin(default_device()) if name is None else _named(name)
    return info if reserved_sms is None else replace(info, reserved_sms=reserved_sms)


def devices() -> tuple[DeviceInfo, ...]:
    """Returns every device of this machine that Silo, or a library that is loaded already, can reach."""
    infos = [_of_plugin(known_device) for known_device in all_devices()]
    for kind, package in DEVICE_PACKAGES.items():
        library = sys.modules.get(package)
        if library is not None and not devices_of_kind(kind):
            infos += [_named(f"{kind}:{index}") for index in range(devices_through(package).count(library, kind))]
    return tuple(infos)


def _named(name: str) -> DeviceInfo:
    kind, _, index_text = name.partition(":")
    package = DEVICE_PACKAGES.get(kind)
    if package is None or devices_of_kind(kind):
        return _of_plugin(device_named(name))
    index = int(index_text) if index_text.isdecimal() else 0
    try:
        library: Any = importlib.import_module(package)
    except ImportError:
        raise DeviceError(
            f"no device {name!r}: Silo knows {kind} devices through {package}, which is not installed"
        ) from None
    library_devices = devices_through(package)
    present = library_devices.count(library, kind)
    if index >= present:
        raise DeviceError(f"no device {name!r}: {package} {library.__version__} sees {present or 'no'} {kind} devices")
    info = library_devices.describe(library, kind, index)
    return DeviceInfo(
        name=f"{kind}:{index}",
        kind=kind,
        index=index,
        model=info.model,
        arch=info.arch,
        target=None,
        sm_count=info.sm_count,
        **_numbers(info.facts),
    )


def _of_plugin(device: Device) -> DeviceInfo:
    facts = device.facts()
    return DeviceInfo(
        name=f"{device.target.kind}:{device.index}",
        kind=device.target.kind,
        index=device.index,
        model=device.model.name,
        arch=device.target.arch,
        target=str(device.target),
        sm_count=facts["sm_count"],
        reserved_sms=facts["reserved_sms"],
        **_numbers({"memory_bytes": device.model.memory_bytes, **facts}),
    )


def _numbers(facts: Mapping[str, int | None]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in _NUMBERS}
