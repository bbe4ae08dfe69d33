"""Tensors of torch, on every device that torch has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from silo.core.decisions import Rejected
from silo.core.device import Place, driver_of
from silo.core.host_arrays import numpy_dtype
from silo.errors import CaseError
from silo.launch.array_libraries.array_contents import as_bits, fill, fill_into, flat_memory
from silo.launch.array_libraries.pinned import tell_where
from silo.launch.array_parts import ALIGNMENT, extent_of
from silo.launch.native import available_memory, torch_with_gpu
from silo.tuner.measure import copy_fits, pin_fits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.recipes import ArrayRecipe
    from silo.launch.array_libraries.library_table import ArrayLibrary

__all__ = ["LIBRARY", "pristine_copy"]

# torch's name for each DLPack device type; torch calls AMD's GPUs "cuda" too
_DEVICES = {2: "cuda", 8: "mps", 10: "cuda", 14: "xpu"}


def _torch() -> Any:  # noqa: ANN401  # the module, whose stubs are partial
    import torch  # noqa: PLC0415  # asked for by name, or loaded: one of its tensors is here

    return torch


class _Torch:
    def offers(self, place: Place) -> bool:
        if place.is_host:
            return False
        kind = place.name.partition(":")[0]
        if driver_of(kind).torch_build:
            return torch_with_gpu(kind) is not None
        torch: Any = sys.modules.get("torch")
        module = None if torch is None else getattr(torch, _name_of(place) or "", None)
        return module is not None and bool(module.is_available())

    def make(self, recipe: ArrayRecipe, place: Place) -> Any:  # noqa: ANN401
        torch = _torch()
        dtype = getattr(torch, recipe.dtype.name, None)
        if dtype is None:
            raise CaseError(f"torch {torch.__version__} has no dtype {recipe.dtype}")
        if recipe.strides is None:
            tensor = torch.empty(recipe.shape, dtype=dtype)
            if recipe.size:
                # A view as bytes, because numpy lacks some of torch's dtypes.
                fill_into(recipe, tensor.view(-1).view(torch.uint8).numpy())
            return _moved(tensor, place)
        host = recipe.host(fill)
        bits = host.view(f"int{recipe.dtype.bits}")
        if place.is_host:
            return torch.from_numpy(bits).view(dtype)
        flat = _moved(torch.from_numpy(flat_memory(recipe, bits)), place)
        return flat.view(dtype).as_strided(host.shape, recipe.strides)

    def read(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        return self.bits(array).view(numpy_dtype(extent_of(array).dtype))

    def bits(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        return as_bits(cast("NDArray[Any]", _integers(array).cpu().numpy()))

    def write(self, array: Any, bits: NDArray[Any]) -> None:  # noqa: ANN401
        import numpy as np  # noqa: PLC0415  # these bits are its own

        integers = _integers(array)
        host = np.require(bits, requirements=["C", "W"]).view(str(integers.dtype).removeprefix("torch."))
        integers.copy_(_torch().from_numpy(host))

    def duplicate(self, array: Any) -> Any:  # noqa: ANN401
        extent = extent_of(array)
        width = extent.dtype.itemsize
        spare = ALIGNMENT // width if width < ALIGNMENT else 0
        storage = _torch().zeros(extent.size // width + spare, dtype=array.dtype, device=array.device)
        # The storage of the copy has at least this alignment, so an offset in elements reproduces the address modulo
        # 16.
        first = (array.data_ptr() - storage.data_ptr()) % ALIGNMENT // width
        copy = storage.as_strided(tuple(array.shape), tuple(array.stride()), first)
        copy.copy_(array.detach())
        return copy

    def keep(self, array: Any) -> Callable[[], None]:  # noqa: ANN401
        pristine = pristine_copy(array)
        return lambda: cast("None", array.detach().copy_(pristine))


def _integers(tensor: Any) -> Any:  # noqa: ANN401  # a tensor
    """Returns a view as integers of the elements' width, because numpy lacks some of torch's dtypes."""
    torch = _torch()
    plain = tensor.detach()
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return plain if plain.dtype is torch.bool else plain.view(kinds[plain.element_size()])


def _name_of(place: Place) -> str | None:
    return place.names.get("torch") or _DEVICES.get(place.device_type)


def _moved(tensor: Any, place: Place) -> Any:  # noqa: ANN401  # a tensor
    """Moves a tensor to a place's device, found by torch's name for the device."""
    if place.is_host:
        return tensor
    name = _name_of(place)
    if name is None:
        raise CaseError(f"torch has no name for {place.name}, so it makes no array there")
    try:
        return tensor.to(f"{name}:{place.index}")
    except (RuntimeError, AssertionError) as error:
        raise CaseError(f"torch makes no array on {place.name}: {error}") from None


def pristine_copy(tensor: Any) -> Any:  # noqa: ANN401
    """Copies a tensor's contents.

    The copy is on the tensor's device if it fits there, else in page-locked host memory, else in pageable memory.
    """
    values = tensor.detach()
    if tensor.device.type != "cuda":  # AMD's GPUs have the type "cuda" too
        return values.clone()
    torch = _torch()
    size = extent_of(tensor).size
    fits = copy_fits(size, torch.cuda.mem_get_info(tensor.device)[0])
    if fits:
        return values.clone()
    refusal = pin_fits(size, available_memory())
    host = None
    if refusal:
        try:
            host = torch.empty_like(values, device="cpu", pin_memory=True)
        except RuntimeError as error:  # torch raises this for every error of a driver
            refusal = Rejected(f"that memory is pageable, which is slower still: {error}")
    tell_where(str(tensor.device), fits, refusal)
    host = torch.empty_like(values, device="cpu") if host is None else host
    return host.copy_(values)


LIBRARY: Final[ArrayLibrary] = _Torch()
