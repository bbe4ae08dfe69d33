"""Arrays of cupy, on NVIDIA and AMD GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from silo.errors import ArgumentError, CaseError
from silo.launch.array_libraries.array_contents import as_bits, fill, flat_memory
from silo.launch.array_libraries.library_table import ArrayLibrary, imported
from silo.launch.array_parts import ALIGNMENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.device import Place
    from silo.core.recipes import ArrayRecipe

__all__ = ["LIBRARY"]

_GPUS = (2, 10)  # DLPack's device types kDLCUDA and kDLROCM


class _Cupy:
    def offers(self, place: Place) -> bool:
        del place
        return False

    def make(self, recipe: ArrayRecipe, place: Place) -> Any:  # noqa: ANN401
        if place.device_type not in _GPUS:
            raise CaseError(f"cupy has arrays on GPUs alone, not on {place.name}")
        cupy = imported("cupy")
        host = recipe.host(fill)
        try:
            with cupy.cuda.Device(place.index):
                if recipe.strides is None:
                    return cupy.asarray(host)
                flat = cupy.asarray(flat_memory(recipe, host))
                return cupy.lib.stride_tricks.as_strided(flat, host.shape, host.strides)
        # cupy lacks bfloat16 and 8-bit floats, which numpy has through ml_dtypes
        except (TypeError, ValueError) as error:
            raise CaseError(f"cupy {cupy.__version__} makes no array of {recipe.dtype}: {error}") from None

    def read(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        return cast("NDArray[Any]", array.get())

    def bits(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        return as_bits(self.read(array))

    def write(self, array: Any, bits: NDArray[Any]) -> None:  # noqa: ANN401
        array[...] = imported("cupy").asarray(bits.view(array.dtype))

    def duplicate(self, array: Any) -> Any:  # noqa: ANN401
        copy = array.copy(order="K")
        if copy.strides != array.strides or (copy.data.ptr - array.data.ptr) % ALIGNMENT:
            raise ArgumentError("a cupy array with gaps or an odd address cannot be copied with its layout")
        return copy

    def keep(self, array: Any) -> Callable[[], None]:  # noqa: ANN401
        copy = array.copy()
        return lambda: cast("None", array.__setitem__(..., copy))


LIBRARY: Final[ArrayLibrary] = _Cupy()
