"""The numbers of a case's arrays, made by the native generator: the same in every library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from silo.core.expressions import EvalError
from silo.core.host_arrays import numpy_dtype
from silo.core.recipes import ArrayRecipe
from silo.errors import ExpressionError
from silo.launch import native

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fill", "fill_into"]


def fill_into(recipe: ArrayRecipe, out: object) -> None:
    """Write every element of the recipe, in C order, to a contiguous writable buffer of its size."""
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
        place: list[int] = []
        for extent in reversed(shape):
            number, index = divmod(number, extent)
            place.insert(0, index)
        raise ExpressionError(f"at {place}: {EvalError(error).name.lower()}")


def fill(recipe: ArrayRecipe) -> NDArray[Any]:
    """The elements, flat, in numpy: what ``core.generator.generate`` makes, some hundred times faster."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    bits = np.empty(recipe.size, dtype=f"uint{recipe.dtype.bits}")
    fill_into(recipe, bits)
    return cast("NDArray[Any]", bits.view(numpy_dtype(recipe.dtype)))
