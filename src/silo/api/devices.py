"""Device plug-ins, found by entry point; a broken one becomes a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import cast

from silo.core.decisions import Rejected
from silo.core.protocols import Device
from silo.core.target import Target
from silo.errors import DeviceError, SiloError, TargetError

__all__ = ["all_devices", "broken_plugins", "device_named", "device_of", "resolve_target"]

_GROUP = "silo.devices"


@cache
def _discovered() -> tuple[tuple[Device, ...], tuple[tuple[str, Rejected], ...]]:
    found: list[Device] = []
    broken: list[tuple[str, Rejected]] = []
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        try:
            list_devices = cast("Callable[[], Sequence[Device]]", point.load())
            found.extend(list_devices())
        except (ImportError, AttributeError, OSError, SiloError) as error:
            broken.append((point.name, Rejected(f"{type(error).__name__}: {error}")))
    return tuple(found), tuple(broken)


def all_devices() -> tuple[Device, ...]:
    """Every device of this machine, in order of plug-in name and index."""
    return _discovered()[0]


def broken_plugins() -> tuple[tuple[str, Rejected], ...]:
    """Device plug-ins that could not be asked, each with the reason."""
    return _discovered()[1]


def device_named(text: str) -> Device:
    """The device that ``cpu``, ``cuda``, ``cuda:1`` or a full target names; ``DeviceError`` lists what is here."""
    kind, _, rest = text.partition(":")
    here = all_devices()
    for device in here:
        if device.target.kind != kind:
            continue
        if not rest or (rest.isdigit() and device.index == int(rest)):
            return device
        if not rest.isdigit() and device.runs(Target.parse(text)):
            return device
    shown = [device for device in here if device.target.kind != "fake"]
    listing = "".join(f"\n  - {device.target} ({device.model})" for device in shown)
    reasons = "".join(f"\n  - {name}: {rejected.reason}" for name, rejected in broken_plugins())
    raise DeviceError(f"no device {text!r} on this machine; it has:{listing or ' none'}{reasons}")


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
    """The device that holds a call's arrays; the CPU where the call has none. ``DeviceError`` says what is missing."""
    wanted = kind or "cpu"
    for device in all_devices():
        if device.target.kind == wanted and (wanted == "cpu" or device.index == index):
            return device
    here = ", ".join(sorted({device.target.kind for device in all_devices()})) or "none"
    raise DeviceError(
        f"{kernel}: the arrays are on {wanted}:{index}, and Silo has no device plug-in for that here (it has: {here}). "
        f"Move the arrays to the CPU, or build a bundle for {wanted} with silo build"
    )
