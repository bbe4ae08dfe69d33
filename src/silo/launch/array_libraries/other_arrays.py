"""Arrays of every other library.

In host memory they are accessed through numpy; numba's arrays on a device are only read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from silo.core.device import HOST_MEMORY, Place
from silo.errors import ArgumentError, CaseError
from silo.launch.array_libraries.array_contents import as_bits, duplicate_of, keep_on_host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.recipes import ArrayRecipe
    from silo.launch.array_libraries.library_table import ArrayLibrary

__all__ = ["LIBRARY"]


class _Other:
    def offers(self, place: Place) -> bool:
        del place
        return False

    def make(self, recipe: ArrayRecipe, place: Place) -> Any:  # noqa: ANN401
        raise CaseError(f"nothing here makes an array of {recipe.dtype} on {place.name}")

    def read(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        import numpy as np  # noqa: PLC0415  # numpy is optional

        if hasattr(array, "copy_to_host"):  # an array of numba on a device
            return cast("NDArray[Any]", array.copy_to_host())
        if hasattr(array, "__array__") or hasattr(array, "__array_interface__"):
            return np.asarray(array)
        return cast("NDArray[Any]", np.from_dlpack(array))

    def bits(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        return as_bits(self.read(array))

    def write(self, array: Any, bits: NDArray[Any]) -> None:  # noqa: ANN401
        _require_host(array, "written")
        self.bits(array)[...] = bits

    def duplicate(self, array: Any) -> Any:  # noqa: ANN401
        _require_host(array, "copied")
        return duplicate_of(array, self.read(array))

    def keep(self, array: Any) -> Callable[[], None]:  # noqa: ANN401
        _require_host(array, "restored")
        return keep_on_host(self, array)


def _require_host(array: Any, done: str) -> None:  # noqa: ANN401
    if hasattr(array, "__dlpack_device__"):
        on_host = array.__dlpack_device__()[0] == HOST_MEMORY
    else:
        on_host = not hasattr(array, "__cuda_array_interface__")
    if not on_host:
        raise ArgumentError(f"arrays of {type(array).__module__} on a device cannot be {done}; torch's and cupy's can")


LIBRARY: Final[ArrayLibrary] = _Other()
