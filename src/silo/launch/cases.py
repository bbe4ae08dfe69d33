"""Arrays of cases, made by the native generator for the library asked for: the same numbers in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from silo.core.host_arrays import numpy_dtype
from silo.core.recipes import ArrayRecipe
from silo.errors import CaseError
from silo.launch import native
from silo.launch.buffers import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LIBRARIES", "fill", "fill_into", "materialize"]


def fill_into(recipe: ArrayRecipe, out: object) -> None:
    """Write every element of the recipe, in C order, to a contiguous writable buffer of its size."""
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


def fill(recipe: ArrayRecipe) -> NDArray[Any]:
    """The elements, flat, in numpy: what ``core.generator.generate`` makes, some hundred times faster."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    bits = np.empty(recipe.size, dtype=f"uint{recipe.dtype.bits}")
    fill_into(recipe, bits)
    return cast("NDArray[Any]", bits.view(numpy_dtype(recipe.dtype)))


def materialize(recipe: ArrayRecipe, library: str = "numpy") -> Any:  # noqa: ANN401  # any library's array
    """The array of a recipe in host memory. ``library`` is one of :data:`LIBRARIES`.

    Raises:
        CaseError: an unknown library, or one that has no such dtype or layout.
    """
    make = _MAKERS.get(library)
    if make is None:
        raise CaseError(f"cases make arrays of {', '.join(LIBRARIES)}, not of {library!r}")
    return make(recipe)


def _numpy(recipe: ArrayRecipe) -> object:
    return recipe.host(fill)


def _torch(recipe: ArrayRecipe) -> object:
    import torch as library  # noqa: PLC0415  # asked for by name

    torch: Any = library  # its stubs are partial
    dtype = getattr(torch, recipe.dtype.name, None)
    if dtype is None:
        raise CaseError(f"torch {torch.__version__} has no dtype {recipe.dtype}")
    if recipe.strides is None:
        tensor = torch.empty(recipe.shape, dtype=dtype)
        if recipe.size:
            # numpy shares the memory as bytes, which both libraries have, whatever the dtype.
            fill_into(recipe, tensor.view(-1).view(torch.uint8).numpy())
        return tensor
    host = recipe.host(fill)
    bits = host.view(f"int{recipe.dtype.bits}")
    return torch.from_numpy(bits).view(dtype)


def _buffer(recipe: ArrayRecipe) -> object:
    buffer = Buffer(recipe.shape, recipe.dtype)
    if recipe.strides not in (None, buffer.strides):
        raise CaseError("a silo.Buffer is row-major; a case with other strides needs numpy or torch")
    fill_into(recipe, buffer.raw)
    return buffer


_MAKERS: dict[str, Callable[[ArrayRecipe], object]] = {"numpy": _numpy, "torch": _torch, "buffer": _buffer}
LIBRARIES = tuple(_MAKERS)
