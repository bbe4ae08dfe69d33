"""Restoring a caller's arrays after a trial, from copies on the device where they fit, else in host memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from silo.api.machine.array_copies import array_behind, duplicate, extent_of, host_bits, is_device_memory, library_of
from silo.core.decisions import Rejected
from silo.errors import ArgumentError, DeviceError
from silo.launch import native
from silo.launch.buffers import Buffer, split_device
from silo.launch.host_memory import available_memory
from silo.launch.native import PinnedMemory
from silo.tune.measure import copy_fits, pin_fits

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pinned", "restorer", "restorer_of_all", "restorers"]

_log = logging.getLogger("silo")


def pinned(size: int, device: str) -> PinnedMemory | Rejected:
    """``size`` bytes of page-locked host memory for copies to a GPU, or why they are not to be had."""
    decision = pin_fits(size, available_memory())
    if isinstance(decision, Rejected):
        return decision
    try:
        return PinnedMemory(size, *split_device(device))
    except DeviceError as error:
        return Rejected(f"that memory is pageable, which is slower still: {error}")


def restorers(arguments: Mapping[str, object]) -> Mapping[str, Callable[[], None]]:
    """By argument, a function that puts back what its array holds now; arguments that are one array share one."""
    behind = {name: array_behind(value) for name, value in arguments.items()}
    arrays = {id(array): array for array in behind.values() if array is not None}
    made = {key: restorer(array) for key, array in arrays.items()}
    return {name: made[id(array)] for name, array in behind.items() if array is not None}


def restorer_of_all(values: Iterable[object]) -> Callable[[], None]:
    """A function that puts back what the arrays among ``values`` hold now, each once; see :func:`restorer`."""
    put_back = set(restorers({str(number): value for number, value in enumerate(values)}).values())

    def restore() -> None:
        for one in put_back:
            one()

    return restore


def restorer(array: Any) -> Callable[[], None]:  # noqa: ANN401
    """A function that puts back what ``array`` holds now; on a device in the order of its library's current stream.

    It owns the copy. That lies on the device where :func:`silo.tune.measure.copy_fits` says so, else in page-locked
    host memory, and in pageable memory where the driver gives none; each of the latter is logged.
    """
    library = library_of(array)
    if library == "torch":
        pristine = _torch_copy(array)
        return lambda: cast("None", array.detach().copy_(pristine))
    if library == "cupy":
        kept = array.copy()
        return lambda: cast("None", array.__setitem__(..., kept))
    if isinstance(array, Buffer) and array.device != "cpu":
        other = _buffer_copy(array)
        return lambda: array.copy_from(other)
    if is_device_memory(array):
        raise ArgumentError(
            f"arrays of {type(array).__module__} on a device cannot be restored; torch's and cupy's can"
        )
    return _host_restorer(host_bits(array))


def _host_restorer(host: NDArray[Any]) -> Callable[[], None]:
    import numpy as np  # noqa: PLC0415  # numpy is optional

    before = np.copy(host, order="K")

    def restore() -> None:
        np.copyto(host, before)

    return restore


def _buffer_copy(buffer: Buffer) -> Buffer | memoryview:
    """What a buffer on a device holds; a view keeps the memory it is of."""
    fits = copy_fits(buffer.nbytes, native.gpu_free_memory(*split_device(buffer.device)))
    if fits:
        return cast("Buffer", duplicate(buffer))
    memory = pinned(buffer.nbytes, buffer.device)
    _tell(buffer.device, fits, memory)
    image = memoryview(bytearray(buffer.nbytes) if isinstance(memory, Rejected) else memory)
    buffer.copy_to(image)
    return image


def _torch_copy(tensor: Any) -> Any:  # noqa: ANN401
    import torch as library  # noqa: PLC0415  # the array is torch's, so it is loaded

    torch: Any = library  # its stubs are partial
    values = tensor.detach()
    if tensor.device.type != "cuda":  # ROCm's are called so too
        return values.clone()
    size = extent_of(tensor).size
    fits = copy_fits(size, torch.cuda.mem_get_info(tensor.device)[0])
    if fits:
        return values.clone()
    refusal = pin_fits(size, available_memory())
    host = None
    if refusal:
        try:
            host = torch.empty_like(values, device="cpu", pin_memory=True)
        except RuntimeError as error:  # what torch raises for every error of a driver
            refusal = Rejected(f"that memory is pageable, which is slower still: {error}")
    _tell(str(tensor.device), fits, refusal)
    host = torch.empty_like(values, device="cpu") if host is None else host
    return host.copy_(values)


def _tell(device: str, fits: object, pin: object) -> None:
    reasons = [one.reason for one in (fits, pin) if isinstance(one, Rejected)]
    _log.info("an array on %s: %s", device, "; ".join(reasons))
