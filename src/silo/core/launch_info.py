"""Launch info: the facts that a driver needs, besides the blob, for a launch; and facts read from the binary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from silo.core.json_reader import (
    BOOL,
    NATURAL,
    TEXT,
    Form,
    Persisted,
    PersistedRow,
    built,
    enumerated,
    integer,
    listed,
    members_of,
    named,
    optional,
    read_mapping,
    read_members,
    read_natural,
    value_of,
    write_members,
)
from silo.core.plugins import is_launch_option
from silo.core.values import JSON, MAX_PARAMETERS, malformed
from silo.frozen import field, frozen, remembered

__all__ = [
    "ABI_BYTES",
    "AbiType",
    "LaunchInfo",
    "LayoutSlot",
    "StructLeaf",
    "TensorMap",
    "format_block",
    "parameter_bytes",
]

_PART = r"(shape|stride)\.[0-4]|nan|tf32|member\.\d{1,5}\.\d{1,5}"
_MEMBER = re.compile(r"member\.(\d{1,5})\.(\d{1,5})")
_MAX_RANK = 5  # the most dimensions of a tensor map
_MAX_AXES = 32  # the most axes of an array
_MAX_EXTENT = (1 << 31) - 1  # the largest extent along one dimension of a tensor map
_MAX_STRIDE = 1 << 40
_AXES = "the axes of a tensor map"
_MAX_LEAVES = 1 + 2 * _MAX_RANK
_LEAF_PART = r"(shape|stride)\.[0-4]"
# the most slots of a parameter layout: one parameter that is a tensor descriptor takes up to 13 of them
_MAX_SLOTS = 16 * MAX_PARAMETERS


class AbiType(Enum):
    """The form of one kernel parameter in memory, whose size the ABI fixes.

    ``i1`` is 1 byte for CPU code, and 4 on GPUs, as Triton passes it; pointers are 8 bytes; ``tensormap`` is 128 bytes
    aligned to 64; ``struct`` is laid out as a C struct of its members (:class:`StructLeaf`).
    """

    POINTER = "ptr"
    I1 = "i1"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"
    FP64 = "fp64"
    TENSORMAP = "tensormap"
    STRUCT = "struct"  # an array as a struct by value: its address, extents and strides, or some of these
    SCRATCH = "scratch"  # global scratch memory, null when its size is zero
    PROFILE = "profile"  # profiling scratch memory, null
    EMPTY = "empty"  # a struct without members, which takes one byte, 0


ABI_BYTES = {
    AbiType.I1: 1,
    AbiType.I8: 1,
    AbiType.U8: 1,
    AbiType.I16: 2,
    AbiType.U16: 2,
    AbiType.FP16: 2,
    AbiType.BF16: 2,
    AbiType.I32: 4,
    AbiType.U32: 4,
    AbiType.FP32: 4,
    AbiType.I64: 8,
    AbiType.U64: 8,
    AbiType.FP64: 8,
    AbiType.POINTER: 8,
    AbiType.SCRATCH: 8,
    AbiType.PROFILE: 8,
    AbiType.EMPTY: 1,
    AbiType.TENSORMAP: 128,
}
"""The bytes of one parameter of a GPU kernel; for a struct, :attr:`LayoutSlot.bytes` computes them."""


_ABI_TYPE: Final = enumerated(AbiType)


@frozen
class StructLeaf(PersistedRow):
    """One member of a struct: the address (type ``ptr``, part ``""``), or an extent or a stride (``i32`` or ``i64``).

    ``part`` is ``shape.0``, ``stride.0``, ...; strides count elements.
    """

    title = "a member of a struct"

    type: AbiType = field(form=_ABI_TYPE)
    part: str = field(default="", form=TEXT)

    def __post_init__(self) -> None:
        integers = (AbiType.I32, AbiType.I64)
        right = self.type in integers and re.fullmatch(_LEAF_PART, self.part) if self.part else self.type.value == "ptr"
        if not right:
            raise ValueError(f"a struct has no member {self.part or 'address'!r} of type {self.type.value}")


_LEAVES: Final = listed(value_of(StructLeaf), most=_MAX_LEAVES)


@frozen
class LayoutSlot:
    """One parameter of the binary: the kernel parameter it comes from ("" for scratch and empty) and its ABI type.

    If the kernel parameter is a tensor descriptor, ``part`` names the part of it that the slot passes: "" is the tensor
    map (type ``tensormap``) or the base address (type ``ptr``), ``shape.0``, ``stride.0``, ... are in elements, ``nan``
    is 1 to pad with NaN, ``tf32`` is 1 to round what is loaded.

    A struct by value that holds several parameters has one slot for each member, with rising offsets. The slot's
    ``part`` is ``member.OFFSET.SIZE``: the member's offset in the struct, and the struct's size.

    ``leaves`` are the members of a struct that holds one array, in the struct's order, none twice; empty for other
    types.

    >>> slot = LayoutSlot.struct("x", [("ptr", ""), ("i32", "shape.0"), ("i64", "stride.0")])
    >>> slot.offsets, slot.bytes
    ((0, 8, 16), 24)
    """

    name: str
    type: AbiType
    part: str = ""
    leaves: tuple[StructLeaf, ...] = ()

    def __post_init__(self) -> None:
        if (self.type is AbiType.STRUCT) != bool(self.leaves):
            raise ValueError(f"the parameter {self.name} of type {self.type.value} has {len(self.leaves)} members")
        if self.leaves and (self.part or len({leaf.part for leaf in self.leaves}) != len(self.leaves)):
            raise ValueError(f"the struct of {self.name} has a member twice, or is a part of a descriptor")

    @classmethod
    def struct(cls, name: str, leaves: Iterable[tuple[str, str]]) -> LayoutSlot:
        """Returns the slot of a struct that holds the array ``name``; each leaf is ``(type, part)``."""
        return cls(name, AbiType.STRUCT, leaves=tuple(StructLeaf(AbiType(kind), part) for kind, part in leaves))

    @property
    def member(self) -> tuple[int, int] | None:
        """For a member of a struct by value, its offset and the struct's bytes; None for any other slot."""
        match = _MEMBER.fullmatch(self.part) if self.part else None
        return None if match is None else (int(match[1]), int(match[2]))

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offset of each member of a struct in C's layout."""
        offsets: list[int] = []
        end = 0
        for leaf in self.leaves:
            size = ABI_BYTES[leaf.type]
            offsets.append(-(-end // size) * size)
            end = offsets[-1] + size
        return tuple(offsets)

    @property
    def bytes(self) -> int:
        """The bytes of the parameter of a GPU kernel; for a struct, with the padding that C adds at its end."""
        if not self.leaves:
            return ABI_BYTES[self.type]
        align = max(ABI_BYTES[leaf.type] for leaf in self.leaves)
        return -(-(self.offsets[-1] + ABI_BYTES[self.leaves[-1].type]) // align) * align

    def to_json(self) -> JSON:
        """Returns the canonical JSON form: ``[name, type]``, then ``part`` or a struct's leaves if there are any."""
        if self.leaves:
            return [self.name, self.type.value, [leaf.to_json() for leaf in self.leaves]]
        return [self.name, self.type.value, self.part] if self.part else [self.name, self.type.value]

    @classmethod
    def from_json(cls, data: JSON) -> LayoutSlot:
        """Returns the slot with this JSON form; raises ``ValueError`` for any other JSON."""
        title = "a parameter layout"
        match data:
            case [str() as name, "struct", list() as leaves]:
                return cls(name, AbiType.STRUCT, leaves=_LEAVES.read(leaves, "the members of a struct"))
            case [str() as name, kind]:
                return cls(name, _ABI_TYPE.read(kind, title))
            case [str() as name, kind, str() as part] if re.fullmatch(_PART, part):
                return cls(name, _ABI_TYPE.read(kind, title), part)
            case _:
                raise malformed(title, data)


def parameter_bytes(layout: Iterable[LayoutSlot]) -> list[int]:
    """Returns the bytes of each parameter of the binary: the members of a struct by value are one parameter.

    >>> slots = [LayoutSlot("p.x", AbiType.POINTER, "member.0.16"), LayoutSlot("p.n", AbiType.I32, "member.8.16")]
    >>> parameter_bytes([LayoutSlot("a", AbiType.I64), *slots])
    [8, 16]
    """
    sizes: list[int] = []
    last: tuple[int, int] | None = None
    for slot in layout:
        member = slot.member
        if member is None:
            sizes.append(slot.bytes)
        elif last is None or last[1] != member[1] or member[0] <= last[0]:
            sizes.append(member[1])
        last = member
    return sizes


def _read_axis(data: JSON, label: str) -> int | tuple[int, int]:
    if not isinstance(data, list):
        axis = read_natural(data, label)
        if axis >= _MAX_AXES:
            raise malformed(label, data)
        return axis
    match [read_natural(number, label) for number in data]:
        case [extent, stride] if 1 <= extent <= _MAX_EXTENT and stride < _MAX_STRIDE:
            return (extent, stride)
        case _:
            raise malformed(label, data)


def _write_axis(axis: int | tuple[int, int]) -> JSON:
    return axis if isinstance(axis, int) else list(axis)


def _read_element_bytes(data: JSON, label: str) -> int:
    value = read_natural(data, label)
    if value not in (1, 2, 4, 8):
        raise malformed(label, data)
    return value


@frozen
class TensorMap(Persisted):
    """The encoding of one descriptor's tensor map (``cuTensorMapEncodeTiled``), besides the descriptor's members.

    ``swizzle`` and ``element_type`` are the driver's numbers (``CUtensorMapSwizzle``, ``CUtensorMapDataType``); ``box``
    counts elements, outermost first. With ``fp4_padded`` an element of the descriptor is two elements of the map along
    the innermost axis.

    If ``axes`` is set, the call passes the array itself as a pointer. ``axes`` then describes each dimension of the
    map, outermost first like ``box``: an integer is an axis of the array, with the call's extent and stride; a pair is
    an extent and a stride (in elements) that were compiled in, whatever the array is.
    """

    title = "a tensor map"

    name: str = field(form=TEXT)
    swizzle: int = field(form=integer(0, 15))
    element_bytes: int = field(form=Form(_read_element_bytes, int))
    element_type: int = field(form=integer(0, 31))
    box: tuple[int, ...] = field(form=listed(integer(1, 1 << 20), 1, _MAX_RANK))
    fp4_padded: bool = field(default=False, form=BOOL)
    axes: tuple[int | tuple[int, int], ...] = field(default=(), form=listed(Form(_read_axis, _write_axis)), since=3)

    @classmethod
    def from_json(cls, data: JSON) -> TensorMap:
        """Returns the tensor map with this JSON form; raises ``ValueError`` for values that no driver accepts."""
        tensor_map = built(cls, read_members(cls, data))
        if tensor_map.axes and len(tensor_map.axes) != len(tensor_map.box):
            raise malformed(_AXES, data)
        return tensor_map


def _read_sizes(data: JSON, label: str) -> tuple[int, int, int]:
    match data:
        case [int() as x, int() as y, int() as z] if not any(isinstance(size, bool) or size < 1 for size in (x, y, z)):
            return (x, y, z)
        case _:
            raise malformed(label, data)


_SIZES: Form[tuple[int, int, int]] = Form(_read_sizes, list)


@frozen
class LaunchInfo(Persisted):
    """The facts that a launch of one artifact needs. Sizes are in bytes.

    ``threads`` is the number of threads of a block (num_warps x warp size; 1 on a CPU). ``block`` arranges the threads
    along x, y and z; the product is ``threads``, and (threads, 1, 1) is the default. ``layout`` lists the parameters
    that remain after constants were folded away, in the binary's order. ``scratch_bytes`` is the scratch memory of one
    program: on a CPU part of the thread's scratch stack, on a GPU global memory. ``registers`` and ``spills`` are read
    from the binary; None if the target lacks them. ``options`` are the compiler's launch options
    (:class:`silo.core.declaration.Option`) that are not 0: natural numbers sorted by name, which the device or the
    loader reads. The grid counts programs, and each program is one cluster of blocks. With ``counts_blocks`` the grid
    counts blocks, and a launch is refused if ``cluster`` does not divide it; ``counts_blocks`` is stored as False if a
    cluster is one block, because blocks and programs are then the same. ``tensor_maps`` has one entry for each
    parameter of type ``tensormap`` in the layout, in its order. ``loader`` is text for the loader of this kind of
    blobs, in the loader's own form; "" without such text.
    """

    title = "launch info"

    entry: str = field(form=TEXT)
    layout: tuple[LayoutSlot, ...] = field(form=listed(value_of(LayoutSlot), most=_MAX_SLOTS))
    num_warps: int = field(default=1, form=NATURAL)
    threads: int = field(default=1, form=NATURAL)
    block: tuple[int, int, int] = field(default=(0, 0, 0), form=_SIZES, left_out=True)
    cluster: tuple[int, int, int] = field(default=(1, 1, 1), form=_SIZES)
    shared_bytes: int = field(default=0, form=NATURAL)
    scratch_bytes: int = field(default=0, form=NATURAL)
    scratch_align: int = field(default=1, form=NATURAL)
    profile_bytes: int = field(default=0, form=NATURAL)
    profile_align: int = field(default=1, form=NATURAL)
    cooperative: bool = field(default=False, form=BOOL)
    pdl: bool = field(default=False, form=BOOL)
    registers: int | None = field(default=None, form=optional(NATURAL))
    spills: int | None = field(default=None, form=optional(NATURAL))
    tensor_maps: tuple[TensorMap, ...] = field(
        default=(), form=listed(value_of(TensorMap), most=MAX_PARAMETERS), left_out=True
    )
    options: tuple[tuple[str, int], ...] = field(default=(), form=named(integer(1)), left_out=True)
    counts_blocks: bool = field(default=False, form=BOOL, left_out=True)
    loader: str = field(default="", form=TEXT, since=3)

    def __post_init__(self) -> None:
        """Raises ``ValueError`` if the block does not have ``threads`` threads."""
        object.__setattr__(self, "options", tuple(sorted(item for item in self.options if item[1])))
        object.__setattr__(self, "counts_blocks", self.counts_blocks and self.cluster != (1, 1, 1))
        if self.block == (0, 0, 0):
            object.__setattr__(self, "block", self._line)
        elif self.block[0] * self.block[1] * self.block[2] != self.threads:
            raise ValueError(f"a block of {format_block(self.block)} threads has not {self.threads}")

    def option(self, name: str) -> int:
        """Returns the value of the launch option ``name``; 0 if the option is not in ``options``."""
        return dict(self.options).get(name, 0)

    def counts(self) -> Iterator[tuple[str, int]]:
        """Yields the name and the value of each count that drivers and loaders get unchanged.

        These are the numbers of warps, threads, shared bytes, registers and spills, and the launch options. Counts that
        are None, and the bytes of scratch and profiling memory, are left out.
        """
        for name in ("num_warps", "threads", "shared_bytes", "registers", "spills"):
            if (value := getattr(self, name)) is not None:
                yield name, value
        yield from self.options

    @property
    def _line(self) -> tuple[int, int, int]:
        return (self.threads, 1, 1)

    def to_json(self) -> JSON:
        """Returns the canonical JSON form. Each launch option is a member by its own name."""
        return dict(self._json)

    @remembered
    def _json(self) -> Mapping[str, JSON]:
        """The canonical JSON form; cached, because the keys of all code with this layout contain it."""
        data = write_members(self)
        if self.block == self._line:
            del data["block"]
        if self.options:
            data |= dict(self.options)
            del data["options"]
            data = dict(sorted(data.items()))
        return data

    @classmethod
    def from_json(cls, data: JSON) -> LaunchInfo:
        """Returns the launch info with this JSON form; raises ``ValueError`` for unknown, missing or wrong members."""
        mapping = read_mapping(data, cls.title)
        own = {member.member for member in members_of(cls)} - {"options"}
        options = {name: mapping[name] for name in sorted(set(mapping) - own)}
        if not all(is_launch_option(name) for name in options):
            raise malformed(cls.title, data)
        members: dict[str, JSON] = {name: value for name, value in mapping.items() if name in own}
        if options:
            members["options"] = options
        launch = built(cls, read_members(cls, members))
        idle = "counts_blocks" in members and not launch.counts_blocks
        # ``to_json`` never writes these defaults, so other code wrote the data
        if idle or ("block" in members and launch.block == (launch.threads, 1, 1)):
            raise malformed(cls.title, data)
        return launch


def format_block(block: tuple[int, int, int]) -> str:
    """Formats a block for messages, without trailing axes of 1.

    >>> format_block((16, 16, 1)), format_block((256, 1, 1)), format_block((1, 1, 4))
    ('16 x 16', '256', '1 x 1 x 4')
    """
    axes = 3 if block[2] != 1 else 2 if block[1] != 1 else 1
    return " x ".join(map(str, block[:axes]))
