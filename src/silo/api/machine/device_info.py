"""``silo.device``: descriptions of the devices of this machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from silo.api.machine.device_plugins import all_devices, default_device, device_named
from silo.core.device import available_sms
from silo.core.protocols import Device
from silo.errors import DeviceError
from silo.launch.resources import reserve_sms

__all__ = ["DeviceInfo", "device", "devices"]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device. Sizes are in bytes, clocks in kHz; None where the device does not say or has no such thing.

    ``sm_count`` counts streaming multiprocessors, compute units, subslices or CPU cores; ``warp_size`` is 1 on CPUs.
    ``target`` is what Silo compiles for it by default, None where it compiles nothing.
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
        """How many multiprocessors a persistent kernel may fill: at least one, all where none is reserved."""
        return available_sms(self.sm_count, self.reserved_sms)

    def reserve(self, count: int) -> DeviceInfo:
        """Leave ``count`` multiprocessors alone from now on: grids of this process see it as ``a.reserved_sms``.

        Kernels called before see it at their next call; bound launchers keep the grid they were bound with.

        Raises:
            SettingsError: a negative count.
        """
        reserve_sms(self.kind, self.index, count)
        return replace(self, reserved_sms=count)


_NUMBERS: Final = frozenset(one.name for one in fields(DeviceInfo)[8:])


def device(name: str | None = None, *, reserved_sms: int | None = None) -> DeviceInfo:
    """What a device is.

    Args:
        name: ``cuda``, ``cuda:1``, ``hip``, ``cpu`` through Silo's own drivers; ``xpu``, ``mtia``, ``mps`` through
            torch and ``tpu`` through jax, which are imported for it. None: the first GPU, or else the CPU.
        reserved_sms: say that so many multiprocessors are reserved, in this object only (see
            :meth:`DeviceInfo.reserve`).

    Raises:
        DeviceError: it is not here, and why.

    >>> device("cpu").kind
    'cpu'
    """
    found = _of_plugin(default_device()) if name is None else _named(name)
    return found if reserved_sms is None else replace(found, reserved_sms=reserved_sms)


def devices() -> tuple[DeviceInfo, ...]:
    """Every device of this machine that Silo or a library which is loaded already can reach."""
    found = [_of_plugin(one) for one in all_devices()]
    for kind, (library, count, _) in _LIBRARIES.items():
        module: Any = sys.modules.get(library)
        if module is not None:
            found += [_named(f"{kind}:{index}") for index in range(count(module))]
    return tuple(found)


def _named(name: str) -> DeviceInfo:
    kind, _, rest = name.partition(":")
    if kind not in _LIBRARIES:
        return _of_plugin(device_named(name))
    index = int(rest) if rest.isdecimal() else 0
    library, count, describe = _LIBRARIES[kind]
    try:
        module = importlib.import_module(library)
    except ImportError:
        raise DeviceError(
            f"no device {name!r}: Silo knows {kind} devices through {library}, which is not installed"
        ) from None
    here = count(module)
    if index >= here:
        raise DeviceError(f"no device {name!r}: {library} {module.__version__} sees {here or 'no'} {kind} devices")
    return describe(module, index)


def _of_plugin(found: Device) -> DeviceInfo:
    facts = found.facts()
    return DeviceInfo(
        name=f"{found.target.kind}:{found.index}",
        kind=found.target.kind,
        index=found.index,
        model=found.model.name,
        arch=found.target.arch,
        target=str(found.target),
        sm_count=facts["sm_count"],
        reserved_sms=facts["reserved_sms"],
        **_numbers({"memory_bytes": found.model.memory_bytes, **facts}),
    )


def _numbers(facts: Mapping[str, int]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in _NUMBERS}


def _xpu(torch: Any, index: int) -> DeviceInfo:  # noqa: ANN401  # an optional library
    properties = torch.xpu.get_device_properties(index)
    return DeviceInfo(
        name=f"xpu:{index}",
        kind="xpu",
        index=index,
        model=str(properties.name),
        arch=str(getattr(properties, "architecture", "")),
        target=None,
        sm_count=int(properties.gpu_subslice_count),
        warp_size=max(map(int, getattr(properties, "sub_group_sizes", ())), default=None),
        max_threads_per_block=_optional(properties, "max_work_group_size"),
        memory_bytes=_optional(properties, "total_memory"),
    )


def _mtia(torch: Any, index: int) -> DeviceInfo:  # noqa: ANN401
    properties = torch.mtia.get_device_properties(index)
    try:
        units = int(properties.max_grid_height * properties.max_grid_width)
    except AttributeError:
        known = ", ".join(name for name in dir(properties) if not name.startswith("_"))
        raise DeviceError(f"mtia:{index}: torch does not say how large its grid is; it says {known}") from None
    return DeviceInfo(
        name=f"mtia:{index}",
        kind="mtia",
        index=index,
        model=str(getattr(properties, "name", "MTIA")),
        arch="",
        target=None,
        sm_count=units,
        memory_bytes=_optional(properties, "total_memory"),
    )


def _mps(torch: Any, index: int) -> DeviceInfo:  # noqa: ANN401
    backend = torch.backends.mps
    return DeviceInfo(
        name=f"mps:{index}",
        kind="mps",
        index=index,
        model=str(backend.get_name()),
        arch="",
        target=None,
        sm_count=int(backend.get_core_count()),
        warp_size=32,
        memory_bytes=int(torch.mps.recommended_max_memory()),
    )


def _tpu(jax: Any, index: int) -> DeviceInfo:  # noqa: ANN401
    found = jax.devices("tpu")[index]
    statistics: dict[str, Any] = found.memory_stats() or {}
    limit: int | None = statistics.get("bytes_limit")
    return DeviceInfo(
        name=f"tpu:{index}",
        kind="tpu",
        index=index,
        model=str(found.device_kind),
        arch=str(found.device_kind).lower().removeprefix("tpu ").replace(" ", ""),
        target=None,
        sm_count=int(getattr(found, "num_cores", 1)),
        memory_bytes=limit,
    )


def _optional(properties: object, name: str) -> int | None:
    value = getattr(properties, name, None)
    return None if value is None else int(value)


def _torch_count(kind: str) -> Callable[[Any], int]:
    def count(torch: Any) -> int:  # noqa: ANN401
        module = getattr(torch, kind, None)
        return int(module.device_count()) if module is not None and module.is_available() else 0

    return count


def _mps_count(torch: Any) -> int:  # noqa: ANN401
    return int(torch.backends.mps.is_available())


def _tpu_count(jax: Any) -> int:  # noqa: ANN401
    try:
        return len(jax.devices("tpu"))
    except RuntimeError:  # jax's way to say that it has no such backend
        return 0


# The library that knows the devices of a kind, how many it sees, and what one of them is.
_LIBRARIES: Final[Mapping[str, tuple[str, Callable[[Any], int], Callable[[Any, int], DeviceInfo]]]] = {
    "xpu": ("torch", _torch_count("xpu"), _xpu),
    "mtia": ("torch", _torch_count("mtia"), _mtia),
    "mps": ("torch", _mps_count, _mps),
    "tpu": ("jax", _tpu_count, _tpu),
}
