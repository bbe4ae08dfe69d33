"""Loads exported programs of jax, and calls them with a call's arrays. Does not import Pallas."""

from __future__ import annotations

from typing import Any

from silo.core.decisions import Rejected
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LibraryCall
from silo.errors import DeviceError
from silo.kinds.pallas.bridge import Arrays
from silo.kinds.pallas.call_plan import CallLayout
from silo.kinds.pallas.front.pallas_installation import jax_module, jax_version, usable
from silo.kinds.pallas.gpu_program import MOSAIC_CALL
from silo.kinds.pallas.program_calls import GpuCall, HostCall

__all__ = ["load_jaxexp"]


def load_jaxexp(device: Device, launch: LaunchInfo, blob: bytes, name: str) -> LibraryCall:
    """Loads a ``jaxexp`` and returns its call. Silo has checked consent to these bytes.

    Raises:
        DeviceError: the bytes are damaged, or for another kind of device, or of a newer jax.
    """
    decision = usable()
    if isinstance(decision, Rejected):
        raise DeviceError(f"{name}: its code is run by jax: {decision.reason}")
    try:
        plan = CallLayout.from_text(launch.loader)
    except ValueError as error:
        raise DeviceError(f"{name}: what its launch info says of calls is damaged: {error}") from error
    export = jax_module("jax.export")
    newest = int(export.maximum_supported_calling_convention_version)
    if plan.calling_convention > newest:
        raise DeviceError(
            f"{name}: it was exported with calling convention {plan.calling_convention}, and jax {jax_version()} knows "
            f"up to {newest}: install a later jax, or build the kernel with this one"
        )
    try:
        exported = export.deserialize(bytearray(blob))
    except Exception as error:  # jax may raise anything for unknown bytes
        raise DeviceError(
            f"{name}: jax {jax_version()} does not load its code: {type(error).__name__}: {error}"
        ) from error
    if any(one.is_custom_call() == MOSAIC_CALL for one in exported.disabled_safety_checks):
        jax_module("jax.experimental.mosaic.gpu")  # finds the library that its kernels call
    kind = device.target.kind
    if kind not in exported.platforms:
        raise DeviceError(f"{name}: its code is for {', '.join(exported.platforms)}, not for {kind}")
    _check_avals(plan, exported, name)
    where = _jax_device(kind, device.index, name)
    arrays = Arrays(name, _names(plan, launch), where)
    return (GpuCall if kind == "cuda" else HostCall)(plan, exported.call, where, arrays)


def _check_avals(plan: CallLayout, exported: Any, name: str) -> None:  # noqa: ANN401
    """Checks that the plan matches the program: consent covers both together, but either may be wrong."""
    shapes = [getattr(one, "shape", (1,)) for one in plan.operands]
    dtypes = [one.dtype.name for one in plan.operands]
    given = [(tuple(one.shape), one.dtype.name) for one in exported.in_avals]
    made = [(tuple(one.shape), one.dtype.name) for one in exported.out_avals]
    if given != list(zip(shapes, dtypes, strict=True)) or made != [(one.shape, one.dtype.name) for one in plan.results]:
        raise DeviceError(f"{name}: what its launch info says of calls is not of the program beside it")


def _jax_device(kind: str, index: int, name: str) -> Any:  # noqa: ANN401  # jax's
    try:
        return jax_module().local_devices(backend=kind)[index]
    except (RuntimeError, IndexError) as error:
        raise DeviceError(
            f"{name}: jax {jax_version()} sees no device {kind}:{index}, which runs its code: {error}; is "
            "JAX_PLATFORMS set, or is jax installed without that kind of device?"
        ) from error


def _names(plan: CallLayout, launch: LaunchInfo) -> tuple[str, ...]:
    """Returns the name of each parameter by its index: the layout has the plan's parameters, in its order."""
    places = sorted({one.parameter for one in (*plan.operands, *plan.results)})
    found = {place: slot.name for place, slot in zip(places, launch.layout, strict=False)}
    return tuple(found.get(place, f"argument {place}") for place in range(max(places, default=-1) + 1))
