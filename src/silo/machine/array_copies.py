"""Reads, duplicates and restores the arrays among a call's arguments, of any library and in any memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from silo.errors import ArgumentError
from silo.launch.array_parts import extent_of, is_descriptor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.launch.array_libraries.library_table import ArrayLibrary

__all__ = [
    "array_behind",
    "duplicate",
    "host_bits",
    "is_array",
    "restorer",
    "restorers",
    "to_host",
]


def is_array(value: object) -> bool:
    """Whether a value is an array of some library: it has a shape and an interface to its elements."""
    return hasattr(value, "shape") and any(
        hasattr(value, name) for name in ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
    )


def array_behind(value: Any) -> Any:  # noqa: ANN401  # any library's array
    """Returns the array that a kernel accesses through an argument: the argument itself, or a tensor descriptor's base.

    Returns None for an argument that is neither.
    """
    if is_array(value):
        return value

    return value.base if is_descriptor(value) and is_array(value.base) else None


def _library_of(array: object) -> ArrayLibrary:
    from silo.launch.array_libraries.library_table import library_of  # noqa: PLC0415  # launches copy no arrays

    return library_of(array)


def to_host(array: Any) -> NDArray[Any]:  # noqa: ANN401
    """Returns a numpy array of the same elements; see :meth:`ArrayLibrary.read`."""
    return _library_of(array).read(array)


def host_bits(array: Any) -> NDArray[Any]:  # noqa: ANN401
    """Returns a numpy array of the bits of the elements; see :meth:`ArrayLibrary.bits`."""
    return _library_of(array).bits(array)


def duplicate(array: Any) -> Any:  # noqa: ANN401
    """Returns a copy of the same library, device, dtype, shape, strides and alignment (address modulo 16).

    Memory between the elements of a slice is not copied.

    Raises:
        ArgumentError: elements overlap (a broadcast), or the library's arrays cannot be copied this way.
    """
    extent = extent_of(array)
    if any(stride == 0 and size > 1 for size, stride in zip(extent.shape, extent.strides, strict=True)):
        raise ArgumentError("an array with repeats in memory cannot be copied with its layout")
    return _library_of(array).duplicate(array)


def restorer(array: Any) -> Callable[[], None]:  # noqa: ANN401
    """Returns a function that restores the present content of ``array``.

    It restores an array on a device by a copy in the current stream of the array's library. The function owns the saved
    content, which is on the device if :func:`silo.tuner.measure.copy_fits` accepts that; otherwise in page-locked host
    memory, or in pageable memory if the driver cannot lock it. The last two are logged.
    """
    return _library_of(array).keep(array)


def restorers(arguments: Mapping[str, object]) -> Mapping[str, Callable[[], None]]:
    """Returns, for each argument with an array, a function that restores the array's present content.

    Arguments with the same array object have the same function, so the array is copied once.
    """
    arrays_behind = {name: array_behind(value) for name, value in arguments.items()}
    arrays = {id(array): array for array in arrays_behind.values() if array is not None}
    restorers_by_name = {key: restorer(array) for key, array in arrays.items()}
    return {name: restorers_by_name[id(array)] for name, array in arrays_behind.items() if array is not None}
