"""Arrays of numpy and of its subclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from silo.core.host_arrays import has_numpy, require_numpy
from silo.errors import CaseError
from silo.launch.array_libraries.array_contents import as_bits, duplicate_of, fill, keep_on_host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.device import Place
    from silo.core.recipes import ArrayRecipe
    from silo.launch.array_libraries.library_table import ArrayLibrary

__all__ = ["LIBRARY"]


class _Numpy:
    def offers(self, place: Place) -> bool:
        return place.is_host and has_numpy()

    def make(self, recipe: ArrayRecipe, place: Place) -> NDArray[Any]:
        require_numpy("--arrays numpy")
        if not place.is_host:
            raise CaseError(f"numpy has no arrays on {place.name}: --arrays torch or --arrays buffer")
        return recipe.host(fill)

    def read(self, array: NDArray[Any]) -> NDArray[Any]:
        import numpy as np  # noqa: PLC0415  # numpy is optional, and here: the array is its own

        return np.asanyarray(array)  # also converts numpy scalars, which have a shape without being arrays

    def bits(self, array: NDArray[Any]) -> NDArray[Any]:
        return as_bits(self.read(array))

    def write(self, array: NDArray[Any], bits: NDArray[Any]) -> None:
        self.bits(array)[...] = bits

    def duplicate(self, array: NDArray[Any]) -> NDArray[Any]:
        return duplicate_of(array, self.read(array))

    def keep(self, array: NDArray[Any]) -> Callable[[], None]:
        return keep_on_host(self, array)


LIBRARY: Final[ArrayLibrary] = _Numpy()
