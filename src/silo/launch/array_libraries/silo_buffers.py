""":class:`silo.Buffer` as an array library, for programs that load no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from silo.core.decisions import Rejected
from silo.errors import CaseError
from silo.launch import native
from silo.launch.array_libraries.array_contents import fill_into, keep_on_host
from silo.launch.array_libraries.pinned import pinned, tell_where
from silo.launch.array_parts import extent_of
from silo.launch.buffers import Buffer, split_device
from silo.tuner.measure import copy_fits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.device import Place
    from silo.core.recipes import ArrayRecipe
    from silo.launch.array_libraries.library_table import ArrayLibrary

__all__ = ["LIBRARY", "host_bytes", "pristine_copy"]


class _Buffers:
    def offers(self, place: Place) -> bool:
        return place.is_host or native.has_driver(place.name.partition(":")[0])

    def make(self, recipe: ArrayRecipe, place: Place) -> Buffer:
        if not self.offers(place):
            raise CaseError(f"a silo.Buffer lies in host memory or a GPU's, not on {place.name}")
        buffer = Buffer(recipe.shape, recipe.dtype)
        if recipe.strides not in (None, buffer.strides):
            raise CaseError("a silo.Buffer is row-major; a case with other strides needs numpy or torch")
        fill_into(recipe, buffer.raw)
        return buffer if place.is_host else Buffer.of(buffer.raw, recipe.dtype, recipe.shape, place.name)

    def read(self, array: Buffer) -> NDArray[Any]:
        return array.numpy()

    def bits(self, array: Buffer) -> NDArray[Any]:
        return extent_of(array).view(host_bytes(array))

    def write(self, array: Buffer, bits: NDArray[Any]) -> None:
        if array.device == "cpu":
            self.bits(array)[...] = bits
        else:
            array.copy_from(bits.tobytes())

    def duplicate(self, array: Buffer) -> Buffer:
        return Buffer.of(host_bytes(array), array.dtype, array.shape, array.device)

    def keep(self, array: Buffer) -> Callable[[], None]:
        if array.device == "cpu":
            return keep_on_host(self, array)
        other = pristine_copy(array)
        return lambda: array.copy_from(other)


def host_bytes(buffer: Buffer) -> memoryview:
    """Returns the bytes of a buffer: its own memory if that is on the host, else a copy."""
    if buffer.device == "cpu":
        return buffer.raw
    out = bytearray(buffer.nbytes)
    buffer.copy_to(out)
    return memoryview(out)


def pristine_copy(buffer: Buffer) -> Buffer | memoryview:
    """Copies a buffer's contents, on its device if the copy fits there, else to host memory.

    A returned memoryview keeps its host memory alive.
    """
    fits = copy_fits(buffer.nbytes, native.gpu_free_memory(*split_device(buffer.device)))
    if fits:
        return Buffer.of(host_bytes(buffer), buffer.dtype, buffer.shape, buffer.device)
    memory = pinned(buffer.nbytes, buffer.device)
    tell_where(buffer.device, fits, memory)
    image = memoryview(bytearray(buffer.nbytes) if isinstance(memory, Rejected) else memory)
    buffer.copy_to(image)
    return image


LIBRARY: Final[ArrayLibrary] = _Buffers()
