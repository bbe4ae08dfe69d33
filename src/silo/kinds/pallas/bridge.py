"""Converts a call's arrays to jax's by DLPack, and copies jax's results to the memory of a call's arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, cast

from silo.core.extents import shape_text
from silo.core.values import dtype
from silo.errors import ArgumentError, LaunchError
from silo.forks import Notices
from silo.kinds.pallas.call_plan import ArrayPlace
from silo.kinds.pallas.front.pallas_installation import jax_module, jax_version
from silo.launch.array_libraries.library_table import library_of
from silo.launch.array_parts import extent_of
from silo.sanitized_text import one_line

__all__ = ["NOTICES", "Arrays", "Importer", "is_torch"]

NOTICES: Final = Notices()
"""Logs messages about copied arrays, each only once."""


def is_torch(array: object) -> bool:
    """Whether ``array`` is a tensor of torch. Imports nothing: if torch was never imported, there are no tensors."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


class Importer:
    """Converts a DLPack capsule to an array of jax on one device, without a copy if jax allows it.

    Calls the function of jaxlib that jax's own ``from_dlpack`` calls. This saves 30 microseconds for each array (130 on
    a GPU), in which ``from_dlpack`` would find the device and the dtype, both known here. If jaxlib lacks the function,
    ``from_dlpack`` is used.
    """

    def __init__(self, device: Any) -> None:  # noqa: ANN401  # jax's
        self._device = device
        self._public: Callable[[Any], Any] = jax_module("jax").dlpack.from_dlpack
        self._original_import: Callable[..., Any] | None = None
        try:
            self._original_import = jax_module("jaxlib._jax").dlpack_managed_tensor_to_buffer
        except AttributeError:
            self._slower("it has no dlpack_managed_tensor_to_buffer")

    def __call__(self, tensor: Any, stream: int | None = None) -> Any:  # noqa: ANN401
        """Returns the array for a tensor of torch. ``stream`` is jax's stream, which already waits for the tensor."""
        if self._original_import is not None:
            try:
                return self._original_import(sys.modules["torch"].utils.dlpack.to_dlpack(tensor), self._device, stream)
            except TypeError as error:  # the function of this jaxlib takes other arguments
                self._slower(str(error))
        return self._public(tensor)

    def _slower(self, why: str) -> None:
        self._original_import = None
        NOTICES.once("importer", f"arrays reach jax {jax_version()} by its own from_dlpack, some 100 us each: {why}")


class Arrays:
    """Checks, converts and copies one kernel's arrays in host memory, and logs copies."""

    def __init__(self, kernel: str, names: tuple[str, ...], device: Any) -> None:  # noqa: ANN401  # jax's
        self._kernel = kernel
        self._names = names
        self._jax = jax_module()
        self._array_type: type = self._jax.Array
        self._dtypes: dict[object, str] = {}
        self.importer = Importer(device)

    def name(self, array_place: ArrayPlace) -> str:
        """Returns the name of the array's parameter, for messages."""
        return self._names[array_place.parameter]

    def failed(self, error: Exception) -> LaunchError:
        """Returns the error to raise if jax cannot compile or run the program; ``error`` is jax's, of any class."""
        message = one_line(str(error).strip())[:600]
        return LaunchError(
            f"{self._kernel}: jax {jax_version()} does not run its code: {type(error).__name__}: {message}"
        )

    def check(self, array_place: ArrayPlace, array: Any) -> None:  # noqa: ANN401
        """Checks that an array has the shape and dtype of the code. Needed for bound kernels, which have no guard.

        Raises:
            ArgumentError: another shape or dtype, or a tensor whose gradient would be lost.
        """
        shape: Any = getattr(array, "shape", None)
        if shape != array_place.shape and (shape is None or tuple(shape) != array_place.shape):
            shape = extent_of(array).shape if shape is None else tuple(shape)
            if shape != array_place.shape:
                raise ArgumentError(
                    f"{self._kernel}: {self.name(array_place)} is an array of shape {shape_text(shape)}, passed to "
                    "code for "
                    f"{shape_text(array_place.shape)}"
                )
        if (element := self._dtype_of(array)) != array_place.dtype.name:
            raise ArgumentError(
                f"{self._kernel}: {self.name(array_place)} is an array of {element}, passed to code for "
                f"{array_place.dtype}"
            )
        if getattr(array, "requires_grad", False) and self._records():
            raise ArgumentError(
                f"{self._kernel}: {self.name(array_place)} requires a gradient, which is not computed through jax: "
                "pass "
                f"{self.name(array_place)}.detach(), or call the kernel under torch.no_grad()"
            )

    def check_written(self, array_place: ArrayPlace, array: Any) -> None:  # noqa: ANN401
        """Checks that each element of a written array has its own memory; called after :meth:`check`.

        Raises:
            ArgumentError: an expanded or broadcast array, in which several results would be written to one element.
        """
        if is_torch(array):
            strides = () if array.is_contiguous() else array.stride()
        else:
            strides: Any = getattr(array, "strides", None) or ()
        if 0 in strides and any(not step and size > 1 for step, size in zip(strides, array_place.shape, strict=True)):
            raise ArgumentError(
                f"{self._kernel}: {self.name(array_place)} is written, and several of its elements are one in memory "
                "(an "
                "expanded array): pass a copy that has all of them"
            )

    def take(self, array_place: ArrayPlace, array: Any) -> Any:  # noqa: ANN401
        """Returns an array of jax for an argument: a view if jax allows it, else a copy."""
        if isinstance(array, self._array_type):
            return array
        if is_torch(array):
            plain = array.detach() if array.requires_grad else array
            if plain.is_contiguous() and not plain.is_neg():
                return self.importer(plain)
            self.copied(array_place, "jax has no views of strided arrays")
        return library_of(array).read(array)

    def put(self, array: Any, result: Any) -> None:  # noqa: ANN401
        """Writes a result to the caller's own memory, whatever its strides; returns when it is written.

        Copies with numpy: torch copies 32768 elements or more with threads, which then spin on the cores that jax
        needs.
        """
        import numpy as np  # noqa: PLC0415  # jax needs it

        if is_torch(array) and array.is_neg():  # numpy has no views with negated values
            array.detach().copy_(cast("Any", sys.modules["torch"]).from_dlpack(result))
        elif is_torch(array) and hasattr(np, self._dtype_of(array)):
            np.copyto(array.detach().numpy(), np.asarray(result), casting="no")
        else:
            np.copyto(library_of(array).read(array), np.asarray(result), casting="no")

    def like(self, result: Any, other: object) -> Any:  # noqa: ANN401
        """Returns a result for which the call has no array, converted to the library of ``other``."""
        if is_torch(other):
            return cast("Any", sys.modules["torch"]).from_dlpack(result)
        if other is None or isinstance(other, self._array_type):
            return result
        import numpy as np  # noqa: PLC0415

        return np.array(result)

    def copied(self, array_place: ArrayPlace, why: str) -> None:
        """Logs once that an argument is copied in every call like this one, and why."""
        size = array_place.dtype.itemsize
        for extent in array_place.shape:
            size *= extent
        key = f"{self._kernel} {self.name(array_place)} {why}"
        NOTICES.once(key, f"{self._kernel}: {self.name(array_place)} ({size} bytes) is copied in every call: {why}")

    def _dtype_of(self, array: Any) -> str:  # noqa: ANN401
        kind = getattr(array, "dtype", None)
        try:
            return self._dtypes[kind]
        except KeyError:
            pass
        try:
            name = dtype(str(kind).removeprefix("torch.")).name
        except KeyError:
            name = extent_of(array).dtype.name
        if kind is not None:
            self._dtypes[kind] = name
        return name

    @staticmethod
    def _records() -> bool:
        torch: Any = sys.modules.get("torch")
        return torch is None or bool(torch.is_grad_enabled())
