"""Arrays of cases, made by the requested library: the same numbers in each."""

from __future__ import annotations

from typing import Any

from silo.core.device import HOST, Place
from silo.core.recipes import ArrayRecipe
from silo.errors import CaseError
from silo.settings import case_allowance, settings

__all__ = ["materialize", "refuse_large"]


def materialize(recipe: ArrayRecipe, library: str | None = None, place: Place = HOST) -> Any:  # noqa: ANN401
    """The array of a recipe, the same bytes in every library and on every device.

    Args:
        recipe: what to make.
        library: a name of :mod:`silo.launch.array_libraries.library_table`; None: on the CPU numpy where it is
            installed, on a GPU torch where it is loaded, and Buffers elsewhere.
        place: the memory that it is in.

    Raises:
        CaseError: an unknown library, or a library without the dtype, layout or device.
        DeviceError: the device is missing, or its memory is exhausted.
    """
    from silo.launch.array_libraries.library_table import default_library, library_named  # noqa: PLC0415  # not for a launch

    chosen = library_named(default_library(place) if library is None else library)
    what = f"an array of shape {list(recipe.shape)} and dtype {recipe.dtype}"
    refuse_large(recipe.bytes_to_make, what)
    try:
        return chosen.make(recipe, place)
    except MemoryError as error:
        raise CaseError(f"{what} takes {_size(recipe.bytes_to_make)}, and this machine has not as much left") from error


def refuse_large(needed: int, what: str) -> None:
    """``CaseError`` if arrays would take more memory than a case's arrays may."""
    allowed = case_allowance()
    if needed > allowed:
        why = "half of the memory that this process may use" if settings().case_bytes is None else "SILO_CASE_BYTES"
        raise CaseError(
            f"{what} would take {_size(needed)} of memory, and the arrays of a case may take {_size(allowed)} ({why}); "
            "take a smaller case, or set SILO_CASE_BYTES if this one is what you want"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 1 << 30 else f"{count / 2**20:.3g} MiB"
