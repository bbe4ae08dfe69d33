"""Parts of array arguments: an array's address, shape and strides; a tensor descriptor's base array and tensor map."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from silo.core.host_arrays import numpy_dtype
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.values import DType, from_dlpack
from silo.errors import ArgumentError, DeviceError
from silo.frozen import frozen
from silo.launch.native import is_descriptor_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.compound_arguments import TensorDescriptor

__all__ = [
    "ALIGNMENT",
    "ArrayExtent",
    "Packed",
    "descriptor_slots",
    "extent_of",
    "is_descriptor",
    "map_problem",
    "with_base",
]

# A copy of an array keeps its address modulo this number of bytes: kernels are specialised on that alignment, and their
# vector loads may need it.
ALIGNMENT = 16


@frozen
class ArrayExtent:
    """The memory that an array's elements occupy.

    ``address`` is the address of the first element, and ``strides`` are in elements. The elements occupy ``low`` bytes
    before ``address`` (0 unless a stride is negative) and ``high`` bytes from ``address`` on.
    """

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int

    @property
    def start(self) -> int:
        """The lowest address of the array's elements."""
        return self.address - self.low

    @property
    def size(self) -> int:
        """The number of bytes from the lowest element to the end of the highest."""
        return self.low + self.high

    def view(self, memory: memoryview) -> NDArray[Any]:
        """Returns an array with this array's shape and strides over other ``memory`` of :attr:`size` bytes.

        The elements of the result are unsigned integers of the dtype's width.
        """
        import numpy as np  # noqa: PLC0415  # numpy is optional

        kind = np.dtype(f"uint{self.dtype.bits}")
        steps = [stride * kind.itemsize for stride in self.strides]
        return np.ndarray(self.shape, kind, buffer=memory, offset=self.low, strides=steps)

    def typed(self, bits: NDArray[Any]) -> NDArray[Any]:
        """Views ``bits``, a result of :meth:`view`, as elements of this array's dtype.

        bfloat16 and 8-bit floats have the dtypes of ml_dtypes.
        """
        return bits.view(numpy_dtype(self.dtype))


def extent_of(array: object) -> ArrayExtent:
    """Returns the memory that an array occupies, read through the native module.

    Raises:
        ArgumentError: the array has a dtype that no kernel takes.
    """
    from silo.launch import native  # noqa: PLC0415  # a bundle's listing needs no native module

    address, code, width, _, _, shape, strides = native.read(array)
    element = from_dlpack(code, width)
    if element is None:
        raise ArgumentError(f"an array of DLPack type {code} with {width} bits has a dtype that no kernel knows")
    if not all(shape):
        return ArrayExtent(address, element, shape, strides, 0, 0)
    reach = [(extent - 1) * stride * element.itemsize for extent, stride in zip(shape, strides, strict=True)]
    low = -sum(step for step in reach if step < 0)
    high = sum(step for step in reach if step > 0) + element.itemsize
    return ArrayExtent(address, element, shape, strides, low, high)


_SWIZZLE_BYTES = {1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle: the largest width in bytes of a box's innermost axis
_MAX_BOX = 256
_TYPES = 16  # the number of values of CUtensorMapDataType

Packed: TypeAlias = tuple[int | str | bool | tuple[int | tuple[int, int], ...], ...]
"""One parameter of a binding (loaded code that serves calls), as ``native/python/binding.c`` reads it."""


_is_descriptor_type = lru_cache(256)(is_descriptor_type)


def is_descriptor(value: object) -> bool:
    """Returns whether a value is a tensor descriptor."""
    return _is_descriptor_type(type(value))


def with_base(descriptor: Any, base: object) -> TensorDescriptor:  # noqa: ANN401  # any class of descriptors
    """Returns a copy of a tensor descriptor with the array ``base`` in place of the descriptor's own."""
    from silo.core.compound_arguments import TensorDescriptor  # noqa: PLC0415  # not for a launch

    return TensorDescriptor(
        base,
        tuple(descriptor.shape),
        tuple(descriptor.strides),
        tuple(descriptor.block_shape),
        descriptor.padding,
        bool(getattr(descriptor, "round_f32_to_tf32", False)),
        getattr(descriptor, "layout", None),
    )


def descriptor_slots(kernel: str, launch: LaunchInfo) -> dict[int, Packed]:
    """Returns the data that a binding needs for tensor maps and for parts of descriptors, by position in the layout.

    A binding is loaded code that serves calls. A tensor map's data is its encoding. A part is an address, extent or
    stride that a descriptor passes as a parameter of its own: its data are its name and the descriptor's rank.

    Raises:
        DeviceError: the launch info lacks a tensor map's encoding, or the driver would refuse it.
    """
    ranks = {slot.name: _rank(launch.layout, slot.name) for slot in launch.layout if slot.part}
    maps: dict[str, list[TensorMap]] = {}
    for tensor_map in reversed(launch.tensor_maps):
        maps.setdefault(tensor_map.name, []).append(tensor_map)
    slots: dict[int, Packed] = {}
    for position, slot in enumerate(launch.layout):
        if slot.type is AbiType.TENSORMAP:
            if not (forms := maps.get(slot.name)):
                raise DeviceError(f"{kernel}: parameter {slot.name} is a tensor map, and nothing says how to encode it")
            # If a parameter has several tensor maps, the layout lists the parameter once for each map, in the same
            # order.
            form = forms.pop() if len(forms) > 1 else forms[0]
            if (problem := map_problem(form)) is not None:
                raise DeviceError(f"{kernel}: the tensor map of '{slot.name}' cannot be encoded: {problem}")
            encoding = (form.element_type, form.element_bytes, form.swizzle, form.fp4_padded, form.box)
            slots[position] = (*encoding, form.axes) if form.axes else encoding
        elif slot.member is not None:
            slots[position] = (slot.part, 0)
        elif slot.name in ranks:
            slots[position] = (slot.part or "base", ranks[slot.name])
    return slots


def _rank(layout: Sequence[LayoutSlot], name: str) -> int:
    return len({slot.part for slot in layout if slot.name == name and slot.part.startswith("shape.")})


def map_problem(form: TensorMap) -> str | None:
    """Returns why the driver would refuse a tensor map of any array, or None if it would accept it.

    >>> map_problem(TensorMap("x", swizzle=1, element_bytes=2, element_type=6, box=(64, 32)))
    'its box is 64 bytes wide, and a swizzle of 32 bytes takes at most that'
    """
    if form.swizzle not in (0, *_SWIZZLE_BYTES) or form.element_type >= _TYPES:
        return f"there is no swizzle {form.swizzle} or no element type {form.element_type}"
    if max(form.box) > _MAX_BOX:
        return f"its box {list(form.box)} has more than {_MAX_BOX} elements along an axis"
    width = form.box[-1] * form.element_bytes
    limit = _SWIZZLE_BYTES.get(form.swizzle)
    if limit is not None and width > limit:
        return f"its box is {width} bytes wide, and a swizzle of {limit} bytes takes at most that"
    if width % 16:
        return f"its box is {width} bytes wide, which is not a multiple of 16"
    return None
