"""The tensor maps that a host function makes from its arrays, and the kernel parameters for them.

The maps are read from the traced module.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from silo.core.json_reader import TEXT, Persisted, listed, read_natural, read_object, value_of
from silo.core.launch_info import TensorMap
from silo.core.values import JSON
from silo.errors import CompileError, UnsupportedError
from silo.frozen import field, frozen
from silo.kinds.cute.launch_call import LaunchCall, LayoutLeaf, flat, parse_layout, type_parameters

__all__ = ["BY_THE_DSL", "NO_MAPS", "ArrayMap", "HostMaps", "is_map", "maps_of_kernel", "read_maps"]

# ---- The encoding of tensor maps, and their kernel parameters ----

_MAP_BYTES = 128
BY_THE_DSL = 'let the DSL\'s host function make the map: silo.cute(..., host="dsl")'


@frozen
class ArrayMap:
    """The map of one array: ``argument`` is the host function's argument; other fields are as in :class:`TensorMap`."""

    argument: int
    swizzle: int
    element_bytes: int
    element_type: int
    box: tuple[int, ...]
    axes: tuple[int | tuple[int, int], ...]

    def of(self, name: str) -> TensorMap:
        """Returns the map, for the array in the kernel parameter ``name``."""
        return TensorMap(name, self.swizzle, self.element_bytes, self.element_type, self.box, axes=self.axes)

    def to_json(self) -> JSON:
        """Returns the canonical form: the argument, and the map without the parameter's name."""
        return {"argument": self.argument, "map": self.of("").to_json()}

    @classmethod
    def from_json(cls, data: JSON) -> ArrayMap:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for any other data."""
        members = read_object(data, ("argument", "map"), "the map of an array")
        tensor_map = TensorMap.from_json(members["map"])
        argument = read_natural(members["argument"], "an argument of the host function")
        return cls(
            argument,
            tensor_map.swizzle,
            tensor_map.element_bytes,
            tensor_map.element_type,
            tensor_map.box,
            tensor_map.axes,
        )


@frozen
class HostMaps(Persisted):
    """The maps that a host function makes for the kernel that it launches, in the order of the kernel's parameters.

    ``refused`` is why the launcher cannot make them; it matters only if the kernel takes any of them.
    """

    title = "the maps of a host function"

    maps: tuple[ArrayMap, ...] = field(default=(), form=listed(value_of(ArrayMap)))
    refused: str = field(default="", form=TEXT)


NO_MAPS: Mapping[int, ArrayMap] = MappingProxyType({})


def is_map(size: int, leaves: int) -> bool:
    """Whether a kernel parameter of this size, with this number of scalars (leaves), may be a tensor map."""
    return size == _MAP_BYTES and leaves == _MAP_BYTES // 8


def maps_of_kernel(host: HostMaps, call: LaunchCall) -> Mapping[int, ArrayMap]:
    """Returns the maps among the kernel's parameters, by the parameter's index; empty if no parameter may be a map.

    Args:
        host: the maps that the host function makes, read before the DSL's back end.
        call: the launch that the compiled host function makes.

    Raises:
        UnsupportedError: a map that the launcher cannot make; the message has the reason and a remedy.
    """
    places = [index for index, parameter in enumerate(call.parameters) if is_map(parameter.size, len(parameter.leaves))]
    if not places:
        return NO_MAPS
    if host.refused:
        raise UnsupportedError(host.refused)
    if len(host.maps) != len(places):
        raise UnsupportedError(
            f"the kernel takes {len(places)} parameters of {_MAP_BYTES} bytes, and {len(host.maps)} tensor maps are "
            f"made for it; {BY_THE_DSL}"
        )
    maps = dict(zip(places, host.maps, strict=True))
    for index, array_map in maps.items():
        if call.parameters[index].arguments != (array_map.argument,):
            raise UnsupportedError(
                f"the kernel's parameter {index}, a tensor map, is made of more than one argument of the host "
                f"function; {BY_THE_DSL}"
            )
    return maps


# ---- Reading the maps from the traced module ----

_LOAD = "cute_nvgpu.atom.make_non_exec_tiled_tma_load"
_MADE = {
    _LOAD: "cute_nvgpu.atom.non_exec_tiled_tma_load",
    "cute_nvgpu.atom.make_non_exec_tiled_tma_store": "cute_nvgpu.atom.non_exec_tiled_tma_store",
    "cute_nvgpu.atom.make_non_exec_tiled_tma_reduce": "cute_nvgpu.atom.non_exec_tiled_tma_reduce",
}
_ATOM = "!cute_nvgpu.atom.non_exec_"
_KINDS = ("#cute_nvgpu.tiled_tma_load<sm_90>", "#cute_nvgpu.tiled_tma_load<sm_90_multicast>")
# operations whose result points to the same memory as their first operand
_THROUGH = ("cute.make_view", "cute.get_iter")
# For each element format of the DSL: its number in CUtensorMapDataType, and the bytes of an element.
_FORMATS = {
    "U8": (0, 1),
    "U16": (1, 2),
    "U32": (2, 4),
    "S32": (3, 4),
    "U64": (4, 8),
    "S64": (5, 8),
    "F16_RN": (6, 2),
    "F32_RN": (7, 4),
    "F64_RN": (8, 8),
    "BF16_RN": (9, 2),
    "TF32_RN": (11, 4),
}
# CUtensorMapSwizzle for each of the DSL's swizzles, which permute bytes.
_SWIZZLES = {"S<0,4,3>": 0, "S<1,4,3>": 1, "S<2,4,3>": 2, "S<3,4,3>": 3}
_MAX_RANK = 5
_MAX_BOX = 256


def read_maps(module: Any, ir: Any) -> HostMaps:  # noqa: ANN401
    """Returns the maps that a traced module's host function makes for its one kernel, or why Silo cannot make them.

    Reading the DSL's classes of values adds operations to a module, so the module must not be used afterwards. The
    caller has entered the module's context and a location.
    """
    try:
        return HostMaps(tuple(_maps_of_module(module, ir)))
    except CompileError as error:
        return HostMaps(refused=str(error))


def _maps_of_module(module: Any, ir: Any) -> list[ArrayMap]:  # noqa: ANN401
    """Returns the maps of the only launch, in the order of the kernel's parameters."""
    hosts = [operation for operation in module.body.operations if operation.operation.name == "func.func"]
    if len(hosts) != 1:
        raise CompileError(f"the artifact has {len(hosts)} host functions, and Silo takes one")
    block = hosts[0].regions[0].blocks[0]
    launches = [operation for operation in list(block.operations) if operation.operation.name == "cuda.launch_ex"]
    if len(launches) != 1:
        raise UnsupportedError(f"the host function launches {len(launches)} kernels in its first block; {BY_THE_DSL}")
    with ir.InsertionPoint.at_block_terminator(block):
        values = [_raw(value, ir) for value in launches[0].operands]
        return [_map_of(value, block, ir) for value in values if str(value.type).startswith(_ATOM)]


def _raw(value: Any, ir: Any) -> Any:  # noqa: ANN401
    """Returns ``value`` as a plain MLIR value: the DSL's own classes wrap some values, and hold the plain one."""
    return value if isinstance(value, ir.Value) else value.value


def _map_of(atom: Any, block: Any, ir: Any) -> ArrayMap:  # noqa: ANN401
    operation = atom.owner
    if isinstance(operation, ir.Block):
        raise UnsupportedError(f"the host function is given a tensor map; {BY_THE_DSL}")
    name: str = operation.operation.name
    if name not in _MADE:
        raise UnsupportedError(f"a tensor map is made by {name}, which Silo does not know; {BY_THE_DSL}")
    words = {
        key.strip(): value.strip().removeprefix('<"').removesuffix('">')
        for key, actual, value in (
            type_parameter.partition("=") for type_parameter in type_parameters(str(atom.type), _MADE[name])
        )
        if actual
    }
    if "tma_format" not in words or "tma_gbasis" not in words:
        raise CompileError(f"a TMA atom of the artifact has another form than is known here: {atom.type}")
    if words["tma_format"] not in _FORMATS:
        raise UnsupportedError(f"a tensor map has elements of format {words['tma_format']}; {BY_THE_DSL}")
    element_type, element_bytes = _FORMATS[words["tma_format"]]
    box = _box(words["tma_gbasis"])
    if name == _LOAD:
        box = _multicast(box, operation.attributes)
    view, shared = (_raw(operation.operands[index], ir) for index in range(2))
    coordinates = type_parameters(str(_raw(operation.results[1], ir).type), "cute.coord_tensor")[-1]
    memory = type_parameters(str(view.type), "cute.memref")
    argument, direct = _base(view, block, ir)
    if _bits(memory[0]) != 8 * element_bytes:
        raise UnsupportedError(
            f"a tensor map counts elements of {element_bytes} bytes of an array of {memory[0]}; {BY_THE_DSL}"
        )
    axes = _axes(memory[-1], coordinates, len(box), element_bytes, direct=direct)
    return ArrayMap(argument, _swizzle(str(shared.type)), element_bytes, element_type, box[::-1], axes)


def _box(text: str) -> tuple[int, ...]:
    """Returns the box of a tensor map that a text describes, innermost dimension first."""
    shape = parse_layout(text).shape
    modes = (shape,) if isinstance(shape, LayoutLeaf) else shape
    sizes = [mode.value for mode in modes if isinstance(mode, LayoutLeaf) and mode.value is not None]
    if len(sizes) != len(modes) or len(sizes) > _MAX_RANK or not all(1 <= size <= _MAX_BOX for size in sizes):
        raise UnsupportedError(f"a tensor map has a box of the form {text}; {BY_THE_DSL}")
    return tuple(sizes)


def _multicast(box: tuple[int, ...], attributes: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Returns the part of ``box`` that each block of a multicast loads.

    ``box`` is divided by the number of blocks, beginning with its outermost dimension.
    """
    if str(attributes["kind"]) not in _KINDS:
        raise UnsupportedError(f"a tensor map is for loads of kind {attributes['kind']}; {BY_THE_DSL}")
    blocks = int(attributes["num_multicast"].value) if "num_multicast" in attributes else 1
    sizes = list(box)
    for at in reversed(range(len(box))):
        if blocks > 1 and sizes[at] % blocks and blocks % sizes[at]:
            break
        sizes[at], blocks = max(1, sizes[at] // blocks), max(1, blocks // sizes[at])
    if blocks != 1:
        raise UnsupportedError(f"a box of {box} cannot be cut for the blocks of its multicast; {BY_THE_DSL}")
    return tuple(sizes)


def _swizzle(text: str) -> int:
    if text.startswith("!cute.layout<"):
        return 0
    (words,) = type_parameters(text, "cute.composed_layout")
    if not words.startswith("S<"):
        parse_layout(words)  # raises unless it is a layout without a swizzle
        return 0
    swizzle, offset, _ = (*words.split(" o ", 2), "", "")[:3]
    if swizzle not in _SWIZZLES or offset != "0":
        raise UnsupportedError(f"a tensor map is for shared memory of the layout {words}; {BY_THE_DSL}")
    return _SWIZZLES[swizzle]


def _base(view: Any, block: Any, ir: Any) -> tuple[int, bool]:  # noqa: ANN401
    """Returns the argument in whose memory a tensor begins, and whether the tensor is the argument itself."""
    at, direct = view, True
    while not isinstance(operation := at.owner, ir.Block):
        name = operation.operation.name
        if name not in _THROUGH:
            raise UnsupportedError(
                f"a tensor map is of memory that the host function finds by {name}, not of an array as it is passed; "
                f"{BY_THE_DSL}"
            )
        at, direct = _raw(operation.operands[0], ir), False
    if operation != block:
        raise UnsupportedError(f"a tensor map is made in a loop or a branch; {BY_THE_DSL}")
    return int(ir.BlockArgument(at).arg_number), direct


def _axes(
    memory: str, coordinates: str, rank: int, element_bytes: int, *, direct: bool
) -> tuple[int | tuple[int, int], ...]:
    """Returns each dimension of the map, outermost first: an array's axis, or (size, stride) of a constant layout."""
    layout, steps = parse_layout(memory), parse_layout(coordinates)
    sizes, strides, ways = flat(layout.shape), flat(layout.stride), flat(steps.stride)
    form = f"a tensor map of an array of layout {memory}, with coordinates {coordinates}"
    if len(ways) != len(sizes):
        raise UnsupportedError(f"{form}, is not known; {BY_THE_DSL}")
    constant = all(leaf.value is not None for leaf in (*sizes, *strides))
    if not constant and (not direct or any(not isinstance(mode, LayoutLeaf) for mode in _modes(layout.shape))):
        raise UnsupportedError(f"{form}, is of a layout that the host function works out; {BY_THE_DSL}")
    axis_of: dict[int, int] = {}
    for axis, (size, way) in enumerate(zip(sizes, ways, strict=True)):
        if not way.basis:
            if size.value != 1 or way.value != 0:
                raise UnsupportedError(f"{form}, leaves out axis {axis}; {BY_THE_DSL}")
            continue
        if way.value != 1 or len(way.basis) != 1 or way.basis[0] in axis_of:
            raise UnsupportedError(f"{form}, has not one dimension for each axis; {BY_THE_DSL}")
        axis_of[way.basis[0]] = axis
    if set(axis_of) != set(range(rank)):
        raise UnsupportedError(f"{form}, has not {rank} dimensions; {BY_THE_DSL}")
    order = [axis_of[dimension] for dimension in reversed(range(rank))]
    for at, axis in enumerate(order):
        size, stride = sizes[axis].value, strides[axis].value
        inner = at == rank - 1
        if stride is not None and size != 1 and (stride != 1 if inner else (stride * element_bytes % 16 or stride < 0)):
            requirement = "is contiguous along its first dimension" if inner else "has strides of multiples of 16 bytes"
            raise UnsupportedError(f"{form}, cannot be: one {requirement}, and axis {axis} has stride {stride}")
    if not constant:
        return tuple(order)
    return tuple((sizes[axis].value or 0, strides[axis].value or 0) for axis in order)


def _modes(tree: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return (tree,) if isinstance(tree, LayoutLeaf) else tree


def _bits(element: str) -> int:
    """Returns the bits of an element type of MLIR: ``bf16``, ``f8E4M3FN``, ``i32``."""
    digits = element.removeprefix("b").lstrip("abcdefghijklmnopqrstuvwxyz")
    end = next((at for at, character in enumerate(digits) if not character.isdigit()), len(digits))
    return int(digits[:end]) if digits[:end] else 0
