"""The contents of arrays: the values of a case's arrays, made by the native generator, and copies in host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from silo.core.expressions import EvalError
from silo.core.host_arrays import numpy_dtype
from silo.core.recipes import ArrayRecipe
from silo.errors import ExpressionError
from silo.launch import native
from silo.launch.array_parts import ALIGNMENT, extent_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.launch.array_libraries.library_table import ArrayLibrary

__all__ = ["as_bits", "duplicate_of", "fill", "fill_into", "flat_memory", "keep_on_host"]


def fill_into(recipe: ArrayRecipe, out: object) -> None:
    """Writes the elements of a recipe, in C order, to ``out``: a contiguous writable buffer of the recipe's size."""
    if recipe.own is not None:
        if recipe.size:  # an empty view cannot be cast to bytes
            memoryview(cast("Any", out)).cast("B")[:] = recipe.own_bytes(_tabulate)
        return
    params = recipe.fill_params
    element = recipe.dtype
    native.generate(
        int(recipe.fill),
        element.code,
        element.bits,
        recipe.seed,
        0,
        recipe.size,
        float(params.a),
        float(params.b),
        params.low,
        params.span,
        out,
    )


def _tabulate(program: bytes, shape: tuple[int, ...], out: object) -> None:
    error, number = native.tabulate(program, shape, out)
    if error:
        indices: list[int] = []
        for extent in reversed(shape):
            number, index = divmod(number, extent)
            indices.insert(0, index)
        raise ExpressionError(f"at {indices}: {EvalError(error).name.lower()}")


def fill(recipe: ArrayRecipe) -> NDArray[Any]:
    """Returns the elements of a recipe as a flat numpy array.

    The native module computes the same values as ``core.generator.generate``, some hundred times faster.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    bits = np.empty(recipe.size, dtype=f"uint{recipe.dtype.bits}")
    fill_into(recipe, bits)
    return cast("NDArray[Any]", bits.view(numpy_dtype(recipe.dtype)))


def as_bits(host: NDArray[Any]) -> NDArray[Any]:
    """Returns a view of the array's elements as unsigned integers of the same width."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    return host.view(np.dtype(f"uint{8 * host.dtype.itemsize}"))


def duplicate_of(array: object, host: NDArray[Any]) -> NDArray[Any]:
    """Copies an array to a new numpy array with the same strides and alignment.

    ``host`` is a numpy view of ``array``.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    extent = extent_of(array)
    storage = np.zeros(extent.size + ALIGNMENT, dtype=np.uint8)
    first = (extent.start - storage.ctypes.data) % ALIGNMENT
    steps = [stride * host.itemsize for stride in extent.strides]
    copy: NDArray[Any] = np.ndarray(host.shape, host.dtype, storage.data, first + extent.low, steps)
    copy[...] = host
    return copy


def keep_on_host(library: ArrayLibrary, array: object) -> Callable[[], None]:
    """Copies the contents of an array to host memory and returns a function that writes them back to the array."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    before = np.copy(library.bits(array), order="K")
    return lambda: library.write(array, before)


def flat_memory(recipe: ArrayRecipe, host: NDArray[Any]) -> NDArray[Any]:
    """Returns the memory of a recipe's strided array, from its first element on.

    The gaps between elements are included, because kernels may read them.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    strides = recipe.strides or ()
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(host.shape, strides, strict=True))
    return np.lib.stride_tricks.as_strided(host, (span if host.size else 0,), (host.itemsize,))
