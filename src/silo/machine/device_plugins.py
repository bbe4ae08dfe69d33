"""Device plug-ins: Silo's own by name, others by entry point. Each is loaded when a device of its kind is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from silo.core.decisions import Rejected
from silo.core.device import HOST_MEMORY, Target, driver_of, drivers, memory_name
from silo.core.plugins import DEVICES, driver_kinds, installed_places, load_place, shipped_places
from silo.errors import DeviceError, TargetError
from silo.frozen import frozen

if TYPE_CHECKING:
    from silo.core.protocols import Device

__all__ = [
    "absent_devices",
    "all_devices",
    "broken_plugins",
    "default_device",
    "device_for",
    "device_named",
    "devices_named",
    "devices_of_kind",
    "require_memory",
    "resolve_target",
]


@frozen
class _Missing:
    """The reason why a plug-in lists no devices. ``broken`` is False if the machine merely lacks them."""

    why: Rejected
    broken: bool


def _plugins() -> Mapping[str, str]:
    """Maps each kind of devices that has a plug-in to the ``module:function`` that lists its devices."""
    # Called only if Silo's own plug-ins do not suffice, or to list all plug-ins: the search through the entry points of
    # all installed packages takes milliseconds.
    return installed_places(DEVICES)


@cache
def _listed_devices(kind: str) -> tuple[Device, ...] | _Missing:
    """Returns the devices of one plug-in, or why it lists none. Opens drivers: called only for needed kinds."""
    location = shipped_places(DEVICES).get(kind) or _plugins().get(kind)
    if location is None:
        return _Missing(Rejected(f"Silo has no device plug-in for {kind}"), broken=False)
    loaded = False
    try:
        list_devices = cast("Callable[[], Sequence[Device]]", load_place(location))
        loaded = True
        return tuple(list_devices())
    except Exception as error:  # noqa: BLE001  # any error of a foreign plug-in is the reason why its devices are missing
        if loaded and isinstance(error, DeviceError):  # the plug-in reports that this machine lacks the device
            return _Missing(Rejected(str(error)), broken=False)
        return _Missing(Rejected(f"{type(error).__name__}: {error}"), broken=True)


def devices_of_kind(kind: str) -> tuple[Device, ...]:
    """Returns the devices of one kind, by index; the tuple is empty if the machine lacks them."""
    answer = _listed_devices(kind)
    return () if isinstance(answer, _Missing) else answer


def all_devices() -> tuple[Device, ...]:
    """Returns every device of this machine, in order of kind and index. Opens every driver."""
    return tuple(device for kind in _plugins() for device in devices_of_kind(kind))


def _missing() -> dict[str, _Missing]:
    return {kind: answer for kind in _plugins() if isinstance(answer := _listed_devices(kind), _Missing)}


def broken_plugins() -> tuple[tuple[str, Rejected], ...]:
    """Returns the plug-ins that failed to load or to list devices, with the reasons. A missing GPU is not a failure."""
    return tuple((kind, missing.why) for kind, missing in _missing().items() if missing.broken)


def absent_devices() -> tuple[tuple[str, Rejected], ...]:
    """Returns the kinds of devices that this machine lacks, each with the reason."""
    return tuple((kind, missing.why) for kind, missing in _missing().items() if not missing.broken)


def device_named(text: str) -> Device:
    """Returns the device for ``cpu``, ``cuda``, ``cuda:1`` or a full target.

    Raises:
        DeviceError: the device does not exist here; lists the existing devices, and the reason why devices of this kind
            are missing.
    """
    kind, _, index_text = text.partition(":")
    for device in devices_of_kind(kind):
        if not index_text or (index_text.isdigit() and device.index == int(index_text)):
            return device
        if not index_text.isdigit() and device.runs(Target.parse(text)):
            return device
    listing = "".join(
        f"\n  - {device.target.kind}:{device.index}, {device.target} ({device.model})" for device in all_devices()
    )
    missing = _missing()
    reasons = [f"\n  - no {name}: {missing[name].why.reason}" for name in (kind,) if name in missing]
    from difflib import get_close_matches  # noqa: PLC0415  # only for a message

    near = [] if kind in _plugins() else get_close_matches(kind, _plugins(), n=1)
    advice = f", did you mean {near[0]}?" if near else ""
    raise DeviceError(f"no device {text!r} on this machine{advice}; it has:{listing or ' none'}{''.join(reasons)}")


def devices_named(text: str) -> tuple[Device, ...]:
    """Returns the device that ``text`` names and, if it names only a kind (``cuda``), all others of the same model.

    Raises:
        DeviceError: the device does not exist.
    """
    first = device_named(text)
    if ":" in text:
        return (first,)
    return tuple(device for device in devices_of_kind(first.target.kind) if device.model == first.model)


def default_device() -> Device:
    """Returns the device for a call without arrays: the first GPU, else the CPU. Raises DeviceError."""
    preferred = {driver.preference: driver.kind for driver in drivers() if driver.preference is not None}
    candidates = (devices_of_kind(preferred[preference]) for preference in sorted(preferred))
    return next((devices[0] for devices in candidates if devices), None) or device_named("cpu")


def resolve_target(text: str) -> Target:
    """Returns a concrete target: ``cpu`` alone becomes this machine's level; ``cuda`` alone its GPU's arch."""
    target = Target.parse(text)
    if target.is_concrete:
        return target
    try:
        return device_named(text).target
    except DeviceError as error:
        raise TargetError(
            f"the target {text!r} means this machine's device: {error}\nName the arch, for example {text}:ARCH"
        ) from error


def device_for(kernel: str, device_key: tuple[int, int], serves: Callable[[Device], object]) -> Device:
    """Returns the device for a call: one that accepts the memory of the call's arrays, and that ``serves`` accepts.

    Silo's own plug-ins come first, then the others in order of their names. Only plug-ins for that memory are loaded,
    so a call on the CPU opens no GPU's driver, and entry points are read only if none of Silo's own devices serves. If
    no device serves, returns the first that accepts the memory: compiling for it then reports the missing part.

    Args:
        kernel: the kernel's name, for messages.
        device_key: DLPack's (device type, index) of the arrays; type 0, a call without arrays, counts as host memory.
        serves: whether code of the kernel for a device exists or can be made.

    Raises:
        DeviceError: the arrays are in memory that no device here accepts.
    """
    memory, index = device_key[0] or HOST_MEMORY, device_key[1]
    owners = _owners(memory)
    own_devices = _taking(owners, memory, index)
    for device in own_devices:
        if serves(device):
            return device
    others = _taking((kind for kind in _plugins() if driver_of(kind).preference is None), memory, index)
    for device in others:
        if serves(device):
            return device
    if own_devices or others:
        return (*own_devices, *others)[0]
    raise DeviceError(_no_device(kernel, memory, index, owners))


@cache
def _owners(memory: int) -> tuple[str, ...]:
    """Returns the kind of device that arrays in this memory usually belong to, as a tuple; empty if no kind is known.

    It is the first kind with a ``preference`` whose driver lists the memory, which is a DLPack device type.
    """
    # A kind whose name begins the memory's name comes first: usually it is the result, so only its declaration is read.
    kinds = sorted(driver_kinds(), key=lambda kind: not memory_name(memory).startswith(kind))
    declarations = (driver_of(kind) for kind in kinds)
    owner = next(
        (driver.kind for driver in declarations if driver.preference is not None and memory in driver.memory.types),
        None,
    )
    return () if owner is None else (owner,)


def _taking(kinds: Iterable[str], memory: int, index: int) -> tuple[Device, ...]:
    """Returns the devices of these kinds that accept arrays in this memory.

    For host memory the index does not matter.
    """
    return tuple(
        device
        for kind in kinds
        for device in devices_of_kind(kind)
        if memory in device.memory.types and (memory == HOST_MEMORY or device.index == index)
    )


def _no_device(kernel: str, memory: int, index: int, owners: Sequence[str]) -> str:
    if not owners:
        return (
            f"{kernel}: its arrays are in memory of {memory_name(memory)} (DLPack device type {memory}), which no "
            f"device here takes (plug-ins: {', '.join(_plugins())}). Copy them to the CPU or a GPU"
        )
    kind = owners[0]
    answer = _listed_devices(kind)
    present = (
        answer.why.reason if isinstance(answer, _Missing) else f"there is no {kind}:{index}, only {len(answer)} of them"
    )
    return (
        f"{kernel}: the arrays are on {kind}:{index}, and Silo has no device plug-in for that here: {present}. "
        f"Move the arrays to the CPU, or build a bundle for {kind} with silo build"
    )


def require_memory(kernel: str, device: Device, device_key: tuple[int, int]) -> None:
    """Raises DeviceError if the device of a call does not accept the memory of the call's arrays."""
    memory, index = device_key
    if memory == 0 or (memory in device.memory.types and (memory == HOST_MEMORY or device.index == index)):
        return
    takes = ", ".join(memory_name(type_) for type_ in device.memory.types)
    raise DeviceError(
        f"{kernel}: its arrays are in memory of {memory_name(memory)}:{index}, and it is to run on "
        f"{device.target.kind}:{device.index}, which takes arrays in memory of {takes}"
    )
