"""Copies of a caller's arrays, whatever library they come from: to compare on the host, to restore after a launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from silo.core.host_arrays import dtype_named, numpy_dtype
from silo.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["duplicate", "is_array", "restorer", "to_host"]


def is_array(value: object) -> bool:
    """Whether a value is an array of some library: it has extents and elements."""
    return hasattr(value, "shape") and (hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__"))


def _is_torch(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def to_host(array: Any) -> NDArray[Any]:  # noqa: ANN401  # any library's array
    """A numpy array of the same elements; a view where the memory is on the host, else a copy.

    bfloat16 and the 8-bit floats come as ml_dtypes' types.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if isinstance(array, np.ndarray):
        return cast("NDArray[Any]", array)
    if _is_torch(array):
        plain = array.detach().cpu()
        name = str(plain.dtype).removeprefix("torch.")
        if name == "bfloat16" or name.startswith("float8"):
            import torch  # noqa: PLC0415  # the array is torch's, so it is loaded

            element = dtype_named(name)
            return plain.view(torch.int16 if element.bits == 16 else torch.uint8).numpy().view(numpy_dtype(element))
        return cast("NDArray[Any]", plain.numpy())
    if hasattr(array, "__array__") or hasattr(array, "__array_interface__"):
        return np.asarray(array)
    return cast("NDArray[Any]", np.from_dlpack(array))


def duplicate(array: Any) -> Any:  # noqa: ANN401
    """A copy of the same library, dtype, shape and strides.

    Raises:
        ArgumentError: the copy would lie otherwise in memory (a slice with gaps, a broadcast), so a kernel given its
            strides would not do the same.
    """
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if _is_torch(array):
        copy = array.detach().clone()
        same = copy.stride() == array.stride()
    else:
        host = to_host(array)
        copy = np.copy(host, order="K")
        same = copy.strides == host.strides
    if not same:
        raise ArgumentError("an array with gaps or repeats in memory cannot be copied with its layout")
    return copy


def restorer(array: Any) -> Callable[[], None]:  # noqa: ANN401
    """A function that puts back what ``array`` holds now."""
    import numpy as np  # noqa: PLC0415  # numpy is optional

    if _is_torch(array):
        pristine = array.detach().clone()
        return lambda: cast("None", array.detach().copy_(pristine))
    host = to_host(array)
    kept = np.copy(host, order="K")

    def restore() -> None:
        np.copyto(host, kept)

    return restore
