"""Loading exported programs of jax, and calling them with a call's arrays. Imports no Pallas."""

from __future__ import annotations

from typing import Any

import numpy as np

from silo.backends.pallas.call_plan import CallPlan, PlannedArray, PlannedScalar
from silo.core.decisions import Rejected
from silo.core.extents import shape_text
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LibraryCall
from silo.errors import ArgumentError, DeviceError
from silo.launch.array_libraries.table import library_of
from silo.sources.pallas.installation import jax_module, jax_version, usable

__all__ = ["load_jaxexp"]


def load_jaxexp(device: Device, launch: LaunchInfo, blob: bytes, name: str) -> LibraryCall:
    """The loader of ``jaxexp``. Silo asked for consent to these bytes before.

    Raises:
        DeviceError: they are no such program, for another kind of device, or of a newer jax.
    """
    decision = usable()
    if isinstance(decision, Rejected):
        raise DeviceError(f"{name}: its code is run by jax: {decision.reason}")
    try:
        plan = CallPlan.from_text(launch.loader)
    except ValueError as error:
        raise DeviceError(f"{name}: what its launch info says of calls is damaged: {error}") from error
    jax = jax_module()
    export = jax_module("jax.export")
    newest = int(export.maximum_supported_calling_convention_version)
    if plan.calling_convention > newest:
        raise DeviceError(
            f"{name}: it was exported with calling convention {plan.calling_convention}, and jax {jax_version()} knows "
            f"up to {newest}: install a later jax, or build the kernel with this one"
        )
    try:
        exported = export.deserialize(bytearray(blob))
    except Exception as error:  # whatever jax raises for bytes that it does not know
        raise DeviceError(
            f"{name}: jax {jax_version()} does not load its code: {type(error).__name__}: {error}"
        ) from error
    if device.target.kind not in exported.platforms:
        raise DeviceError(f"{name}: its code is for {', '.join(exported.platforms)}, not for {device.target.kind}")
    where = jax.local_devices(backend=device.target.kind)[device.index]
    function = jax.jit(exported.call)
    elements = [jax_module("jax.numpy").dtype(one.dtype.name) for one in plan.operands]

    def call(arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object) -> None:
        del grid, stream  # the program is for one grid; on the host there are no streams
        views: dict[int, Any] = {}
        given: list[Any] = []
        for one, element in zip(plan.operands, elements, strict=True):
            if isinstance(one, PlannedScalar):
                given.append(np.array([arguments[one.parameter]], element))
            else:
                given.append(_view(views, one, arguments, name))
        with jax.default_device(where):
            results = function(*given)
        made = [np.asarray(one) for one in results]
        for one, result in zip(plan.results, made, strict=True):
            np.copyto(_view(views, one, arguments, name), result, casting="no")

    return call


def _view(views: dict[int, Any], one: PlannedArray, arguments: tuple[Any, ...], name: str) -> Any:  # noqa: ANN401
    found = views.get(one.parameter)
    if found is None:
        array = arguments[one.parameter]
        found = views[one.parameter] = library_of(array).read(array)
        if found.shape != one.shape:
            raise ArgumentError(
                f"{name}: an array of shape {shape_text(found.shape)} is passed to code for {shape_text(one.shape)}"
            )
    return found
