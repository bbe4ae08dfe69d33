"""Device plug-ins: Silo's own by name, others by entry point; asked when a device of their kind is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from silo.core.decisions import Rejected
from silo.core.plugins import installed_places, load_place, place_of
from silo.core.target import Target
from silo.errors import DeviceError, SiloError, TargetError

if TYPE_CHECKING:
    from silo.core.protocols import Device

__all__ = [
    "absent_devices",
    "all_devices",
    "broken_plugins",
    "device_named",
    "device_of",
    "devices_named",
    "devices_of_kind",
    "resolve_target",
]

_GROUP = "silo.devices"

# Kinds whose absence is what most machines are like, and no fault of the installation.
_OPTIONAL_KINDS = frozenset({"cuda", "hip"})


@cache
def _asked(kind: str) -> tuple[Device, ...] | Rejected:
    """The devices of one plug-in, or why there are none. Opens drivers, so only kinds that are needed are asked."""
    place = place_of(_GROUP, kind)
    if place is None:
        return Rejected(f"Silo has no device plug-in for {kind}")
    try:
        return tuple(cast("Callable[[], Sequence[Device]]", load_place(place))())
    except DeviceError as error:
        return Rejected(str(error))
    except (ImportError, AttributeError, OSError, SiloError) as error:
        return Rejected(f"{type(error).__name__}: {error}")


def devices_of_kind(kind: str) -> tuple[Device, ...]:
    """The devices of one kind, by index; none where there are none."""
    asked = _asked(kind)
    return () if isinstance(asked, Rejected) else asked


def all_devices() -> tuple[Device, ...]:
    """Every device of this machine, in order of kind and index. Opens every driver there is."""
    return tuple(device for kind in installed_places(_GROUP) for device in devices_of_kind(kind))


def _reasons() -> dict[str, Rejected]:
    return {kind: asked for kind in installed_places(_GROUP) if isinstance(asked := _asked(kind), Rejected)}


def broken_plugins() -> tuple[tuple[str, Rejected], ...]:
    """Device plug-ins that could not be asked, each with the reason; a GPU's that has no GPU is none of them."""
    return tuple((kind, reason) for kind, reason in _reasons().items() if kind not in _OPTIONAL_KINDS)


def absent_devices() -> tuple[tuple[str, Rejected], ...]:
    """Kinds that are not here, as on most machines, each with the reason."""
    return tuple((kind, reason) for kind, reason in _reasons().items() if kind in _OPTIONAL_KINDS)


def device_named(text: str) -> Device:
    """The device that ``cpu``, ``cuda``, ``cuda:1`` or a full target names; ``DeviceError`` lists what is here."""
    kind, _, rest = text.partition(":")
    for device in devices_of_kind(kind):
        if not rest or (rest.isdigit() and device.index == int(rest)):
            return device
        if not rest.isdigit() and device.runs(Target.parse(text)):
            return device
    listing = "".join(
        f"\n  - {device.target.kind}:{device.index}, {device.target} ({device.model})"
        for device in all_devices()
        if device.target.kind != "fake"
    )
    reasons = "".join(f"\n  - no {name}: {rejected.reason}" for name, rejected in _reasons().items())
    raise DeviceError(f"no device {text!r} on this machine; it has:{listing or ' none'}{reasons}")


def devices_named(text: str) -> tuple[Device, ...]:
    """The device that ``text`` names and, where it gives a kind alone (``cuda``), all others of the same model.

    Raises:
        DeviceError: there is none.
    """
    first = device_named(text)
    if ":" in text:
        return (first,)
    return tuple(one for one in devices_of_kind(first.target.kind) if one.model == first.model)


def resolve_target(text: str) -> Target:
    """A concrete target: ``cpu`` alone becomes this machine's level; ``cuda`` alone its GPU's arch."""
    target = Target.parse(text)
    if target.is_concrete:
        return target
    try:
        return device_named(text).target
    except DeviceError as error:
        raise TargetError(
            f"the target {text!r} means this machine's device: {error}\nName the arch, for example {text}:ARCH"
        ) from error


def device_of(kernel: str, kind: str | None, index: int) -> Device:
    """The device that holds a call's arrays; the CPU where the call has none. ``DeviceError`` says what is missing.

    Only the plug-in of that kind is asked, so a call on the CPU opens no GPU's driver.
    """
    wanted = kind or "cpu"
    for device in devices_of_kind(wanted):
        if wanted == "cpu" or device.index == index:
            return device
    asked = _asked(wanted)
    reason = asked.reason if isinstance(asked, Rejected) else f"there is no {wanted}:{index}, only {len(asked)} of them"
    raise DeviceError(
        f"{kernel}: the arrays are on {wanted}:{index}, and Silo has no device plug-in for that here: {reason}. "
        f"Move the arrays to the CPU, or build a bundle for {wanted} with silo build"
    )
