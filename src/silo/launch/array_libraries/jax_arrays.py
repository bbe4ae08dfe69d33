"""Arrays of jax. They are immutable: a kernel that writes to one is refused, so their contents are never restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from silo.core.host_arrays import numpy_dtype
from silo.errors import ArgumentError, CaseError
from silo.launch.array_libraries.array_contents import as_bits, fill
from silo.launch.array_libraries.library_table import ArrayLibrary, imported
from silo.launch.array_parts import ALIGNMENT, extent_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.device import Place
    from silo.core.recipes import ArrayRecipe

__all__ = ["LIBRARY"]

# jax's platform name for each DLPack device type.
_DEVICES = {1: "cpu", 2: "cuda", 10: "rocm"}


class _Jax:
    def offers(self, place: Place) -> bool:
        del place
        return False

    def make(self, recipe: ArrayRecipe, place: Place) -> Any:  # noqa: ANN401
        jax = imported("jax")
        name = place.names.get("jax") or _DEVICES.get(place.device_type)
        if name is None:
            raise CaseError(f"jax has no name for {place.name}, so it makes no array there")
        host = recipe.host(fill)
        if recipe.strides is not None and host.strides != _row_major(host):
            raise CaseError("jax's arrays are row-major; a case with other strides needs numpy or torch")
        try:
            array = jax.device_put(host, jax.devices(name)[place.index])
        except (RuntimeError, IndexError, TypeError) as error:
            message = f"jax {jax.__version__} makes no array of {recipe.dtype} on {place.name}"
            raise CaseError(f"{message}: {error}") from None
        if array.dtype != numpy_dtype(recipe.dtype):
            raise CaseError(
                f"jax makes {array.dtype} of {recipe.dtype}: set JAX_ENABLE_X64=1, or use arrays of another library"
            )
        return array

    def read(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        import numpy as np  # noqa: PLC0415  # jax needs numpy

        return np.asarray(array)

    def bits(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        return as_bits(self.read(array))

    def write(self, array: Any, bits: NDArray[Any]) -> None:  # noqa: ANN401
        del array, bits
        raise ArgumentError("jax's arrays are immutable, so none is written")

    def duplicate(self, array: Any) -> Any:  # noqa: ANN401
        copy = array.copy()
        if (extent_of(copy).address - extent_of(array).address) % ALIGNMENT:
            raise ArgumentError("a jax array at an odd address cannot be copied with its layout")
        return copy

    def keep(self, array: Any) -> Callable[[], None]:  # noqa: ANN401
        del array
        return lambda: None


def _row_major(host: NDArray[Any]) -> tuple[int, ...]:
    steps: list[int] = []
    step = host.itemsize
    for extent in reversed(host.shape):
        steps.insert(0, step)
        step *= extent
    return tuple(steps)


LIBRARY: Final[ArrayLibrary] = _Jax()
