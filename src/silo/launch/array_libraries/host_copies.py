"""Copies of arrays in host memory. The libraries whose arrays numpy can view use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from silo.launch.array_extents import ALIGNMENT, extent_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.recipes import ArrayRecipe
    from silo.launch.array_libraries.array_library import ArrayLibrary

__all__ = ["as_bits", "duplicate_of", "flat_memory", "keep_on_host"]


def as_bits(host: NDArray[Any]) -> NDArray[Any]:
    """A view as unsigned integers of the elements' width."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    return host.view(np.dtype(f"uint{8 * host.dtype.itemsize}"))


def duplicate_of(array: object, host: NDArray[Any]) -> NDArray[Any]:
    """A copy in numpy of an array, which ``host`` is a view of, with its layout and alignment."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    extent = extent_of(array)
    storage = np.zeros(extent.size + ALIGNMENT, dtype=np.uint8)
    first = (extent.start - storage.ctypes.data) % ALIGNMENT
    steps = [stride * host.itemsize for stride in extent.strides]
    copy: NDArray[Any] = np.ndarray(host.shape, host.dtype, storage.data, first + extent.low, steps)
    copy[...] = host
    return copy


def keep_on_host(library: ArrayLibrary, array: object) -> Callable[[], None]:
    """A function that restores the present contents of an array; the copy is in host memory."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    before = np.copy(library.bits(array), order="K")
    return lambda: library.write(array, before)


def flat_memory(recipe: ArrayRecipe, host: NDArray[Any]) -> NDArray[Any]:
    """The memory of a recipe's strided array from its first element on, gaps included: kernels may read them."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    strides = recipe.strides or ()
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(host.shape, strides, strict=True))
    return np.lib.stride_tricks.as_strided(host, (span if host.size else 0,), (host.itemsize,))
