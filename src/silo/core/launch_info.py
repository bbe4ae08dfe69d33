"""Launch info: everything a driver needs besides the blob, and what the binary says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum

from silo.core.json_reader import read_bool, read_list, read_mapping, read_natural, read_object, read_text
from silo.core.plugins import is_launch_option
from silo.core.values import JSON, MAX_PARAMETERS, malformed
from silo.frozen import frozen, names_of

__all__ = ["ABI_BYTES", "AbiType", "LaunchInfo", "LayoutSlot", "StructLeaf", "TensorMap", "format_block"]

_PART = r"(shape|stride)\.[0-4]|nan|tf32"
_MAX_RANK = 5  # of a tensor map
_MAX_AXES = 32  # of an array
_MAX_EXTENT = (1 << 31) - 1  # of a tensor map
_MAX_STRIDE = 1 << 40
_AXES = "the axes of a tensor map"
_MAX_LEAVES = 1 + 2 * _MAX_RANK
_LEAF_PART = r"(shape|stride)\.[0-4]"
_MAX_SLOTS = 16 * MAX_PARAMETERS  # a tensor descriptor has up to 13
# Members of launch info that are left out where they are the default.
_OPTIONAL = frozenset({"block", "tensor_maps", "counts_blocks", "loader"})


class AbiType(Enum):
    """How one kernel parameter lies in memory: its size is fixed by the ABI.

    ``i1`` 1 byte for CPU code and 4 on GPUs as Triton passes it; pointers 8 bytes; ``tensormap`` 128 bytes aligned to
    64; ``struct`` as C lays out its leaves.
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
    STRUCT = "struct"  # of an array, by value: its address, extents and strides, or some of these
    SCRATCH = "scratch"  # global scratch memory, null when its size is zero
    PROFILE = "profile"  # profiling scratch memory, null
    EMPTY = "empty"  # a struct without members: one byte, 0


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
"""Bytes of one parameter of a GPU kernel, but of a struct (:attr:`LayoutSlot.bytes`)."""


@frozen
class StructLeaf:
    """One member of a struct: the address (type ``ptr``, part ``""``), or an extent or a stride (``i32`` or ``i64``).

    ``part`` is ``shape.0``, ``stride.0``, ...; strides count elements.
    """

    type: AbiType
    part: str = ""

    def __post_init__(self) -> None:
        integers = (AbiType.I32, AbiType.I64)
        right = self.type in integers and re.fullmatch(_LEAF_PART, self.part) if self.part else self.type.value == "ptr"
        if not right:
            raise ValueError(f"a struct has no member {self.part or 'address'!r} of type {self.type.value}")

    def to_json(self) -> JSON:
        """The canonical form: ``[type, part]``."""
        return [self.type.value, self.part]

    @classmethod
    def from_json(cls, data: JSON) -> StructLeaf:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        items = [read_text(item, "a member of a struct") for item in read_list(data, "a member of a struct")]
        if len(items) != 2:
            raise malformed("a member of a struct", data)
        return cls(AbiType(items[0]), items[1])


@frozen
class LayoutSlot:
    """One parameter of the binary: the kernel parameter it comes from ("" for scratch and empty) and its ABI type.

    ``part`` says what of a tensor descriptor it is: "" the tensor map (type ``tensormap``) or the base address (type
    ``ptr``), ``shape.0``, ``stride.0``, ... (elements), ``nan`` (1: pad with NaN), ``tf32`` (1: round what is loaded).

    ``leaves`` are the members of a struct, in its order, none twice; of any other type there are none.

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
        """A struct of ``(type, part)`` of the array ``name``."""
        return cls(name, AbiType.STRUCT, leaves=tuple(StructLeaf(AbiType(kind), part) for kind, part in leaves))

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each member of a struct begins, as C lays it out."""
        found: list[int] = []
        end = 0
        for leaf in self.leaves:
            size = ABI_BYTES[leaf.type]
            found.append(-(-end // size) * size)
            end = found[-1] + size
        return tuple(found)

    @property
    def bytes(self) -> int:
        """Bytes of the parameter of a GPU kernel; of a struct with what C adds at its end."""
        if not self.leaves:
            return ABI_BYTES[self.type]
        align = max(ABI_BYTES[leaf.type] for leaf in self.leaves)
        return -(-(self.offsets[-1] + ABI_BYTES[self.leaves[-1].type]) // align) * align

    def to_json(self) -> JSON:
        """The canonical form: ``[name, type]``, ``[name, type, part]``, or of a struct ``[name, type, [leaf...]]``."""
        if self.leaves:
            return [self.name, self.type.value, [leaf.to_json() for leaf in self.leaves]]
        return [self.name, self.type.value, self.part] if self.part else [self.name, self.type.value]

    @classmethod
    def from_json(cls, data: JSON) -> LayoutSlot:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        match data:
            case [str() as name, AbiType.STRUCT.value, list() as leaves]:
                members = read_list(leaves, "the members of a struct", _MAX_LEAVES)
                return cls(name, AbiType.STRUCT, leaves=tuple(StructLeaf.from_json(leaf) for leaf in members))
            case _:
                pass
        items = [read_text(item, "a parameter layout") for item in read_list(data, "a parameter layout")]
        if len(items) not in (2, 3) or (len(items) == 3 and not re.fullmatch(_PART, items[2])):
            raise malformed("a parameter layout", data)
        return cls(items[0], AbiType(items[1]), "".join(items[2:]))


@frozen
class TensorMap:
    """How the tensor map of one descriptor is encoded (``cuTensorMapEncodeTiled``), besides what the descriptor says.

    ``swizzle`` and ``element_type`` are the driver's numbers (``CUtensorMapSwizzle``, ``CUtensorMapDataType``);
    ``box`` counts elements, outermost first. With ``fp4_padded`` an element of the descriptor is two of the map's
    along the innermost axis.

    With ``axes`` it is the map of an array that a call passes as such (a pointer): what each of the map's dimensions
    is, outermost first like ``box``. An integer is that axis of the array, whose extent and stride a call says; a
    pair is an extent and a stride (in elements) that the code was made for, whatever the array has.
    """

    name: str
    swizzle: int
    element_bytes: int
    element_type: int
    box: tuple[int, ...]
    fp4_padded: bool = False
    axes: tuple[int | tuple[int, int], ...] = ()

    def to_json(self) -> JSON:
        """The canonical form; a descriptor's map has no ``axes``."""
        data: dict[str, JSON] = {
            "name": self.name,
            "swizzle": self.swizzle,
            "element_bytes": self.element_bytes,
            "element_type": self.element_type,
            "box": list(self.box),
            "fp4_padded": self.fp4_padded,
        }
        if self.axes:
            data["axes"] = [axis if isinstance(axis, int) else list(axis) for axis in self.axes]
        return data

    @classmethod
    def from_json(cls, data: JSON) -> TensorMap:
        """The inverse of :meth:`to_json`; ``ValueError`` on what no driver could be given."""
        of_array = isinstance(data, dict) and "axes" in data
        names = [name for name in names_of(cls) if of_array or name != "axes"]
        members = read_object(data, names, "a tensor map")
        made = cls(
            name=read_text(members["name"], "the name of a tensor map"),
            swizzle=read_natural(members["swizzle"], "the swizzle of a tensor map"),
            element_bytes=read_natural(members["element_bytes"], "the element_bytes of a tensor map"),
            element_type=read_natural(members["element_type"], "the element_type of a tensor map"),
            box=tuple(_positive(size, "the box of a tensor map") for size in read_list(members["box"], "a box")),
            fp4_padded=read_bool(members["fp4_padded"], "the fp4_padded flag of a tensor map"),
            axes=tuple(_axis(axis) for axis in read_list(members["axes"], _AXES)) if of_array else (),
        )
        if of_array and len(made.axes) != len(made.box):
            raise malformed(_AXES, data)
        in_range = made.swizzle <= 15 and made.element_type <= 31 and max(made.box, default=0) <= 1 << 20
        if not in_range or made.element_bytes not in (1, 2, 4, 8) or not 1 <= len(made.box) <= _MAX_RANK:
            raise malformed("a tensor map", data)
        return made


@frozen
class LaunchInfo:
    """How to launch one artifact. Sizes are in bytes; ``threads`` is per block (num_warps x warp size; 1 on a CPU).

    ``block`` is how they lie, threads along x, y and z, whose product is ``threads``; (threads, 1, 1) by default.
    ``layout`` lists the parameters that remain after constants were folded away, in the binary's order.
    ``scratch_bytes`` is per program on a CPU thread's own stack of scratch, per program instance in global memory on
    a GPU. ``registers`` and ``spills`` are read from the binary; None where the target has no such thing.
    ``options`` are the compiler's launch options (:class:`silo.core.declaration.Option`) that are not 0: natural
    numbers sorted by name, which its device or loader has to know besides.
    A grid counts programs, of a cluster each; with ``counts_blocks`` it counts blocks, and is refused where ``cluster``
    does not divide it. It is False where a cluster is one block, which is the same.
    ``tensor_maps`` has one entry for each parameter of type ``tensormap`` in the layout, in its order.
    ``loader`` is what only the loader of its kind of blobs reads: text of whatever form it has; "" where there is none.
    """

    entry: str
    layout: tuple[LayoutSlot, ...]
    num_warps: int = 1
    threads: int = 1
    block: tuple[int, int, int] = (0, 0, 0)
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    scratch_bytes: int = 0
    scratch_align: int = 1
    profile_bytes: int = 0
    profile_align: int = 1
    cooperative: bool = False
    pdl: bool = False
    registers: int | None = None
    spills: int | None = None
    tensor_maps: tuple[TensorMap, ...] = ()
    options: tuple[tuple[str, int], ...] = ()
    counts_blocks: bool = False
    loader: str = ""

    def __post_init__(self) -> None:
        """``ValueError`` for a block of other than ``threads`` threads."""
        object.__setattr__(self, "options", tuple(sorted(item for item in self.options if item[1])))
        object.__setattr__(self, "counts_blocks", self.counts_blocks and self.cluster != (1, 1, 1))
        if self.block == (0, 0, 0):
            object.__setattr__(self, "block", self._line)
        elif self.block[0] * self.block[1] * self.block[2] != self.threads:
            raise ValueError(f"a block of {format_block(self.block)} threads has not {self.threads}")

    def option(self, name: str) -> int:
        """One of ``options``; 0 where it is not there."""
        return dict(self.options).get(name, 0)

    def counts(self) -> Iterator[tuple[str, int]]:
        """Every number that a driver or a loader is given as it is, by name, and is not a size in bytes."""
        for name in ("num_warps", "threads", "shared_bytes", "registers", "spills"):
            if (value := getattr(self, name)) is not None:
                yield name, value
        yield from self.options

    @property
    def _line(self) -> tuple[int, int, int]:
        return (self.threads, 1, 1)

    def to_json(self) -> JSON:
        """The canonical form; every field is present but fields of ``_OPTIONAL`` that have the default.

        Each launch option is a member by its own name.
        """
        data: dict[str, JSON] = {name: getattr(self, name) for name in names_of(LaunchInfo)}
        data["layout"] = [slot.to_json() for slot in self.layout]
        data["block"] = list(self.block)
        data["cluster"] = list(self.cluster)
        data["tensor_maps"] = [one.to_json() for one in self.tensor_maps]
        if self.block == self._line:
            del data["block"]
        if not self.tensor_maps:
            del data["tensor_maps"]
        if not self.counts_blocks:
            del data["counts_blocks"]
        if not self.loader:
            del data["loader"]
        del data["options"]
        return dict(sorted((data | dict(self.options)).items()))

    @classmethod
    def from_json(cls, data: JSON) -> LaunchInfo:
        """The inverse of :meth:`to_json`; ``ValueError`` on unknown, missing or mistyped members."""
        required = {*names_of(cls)} - _OPTIONAL - {"options"}
        members = read_mapping(data, "launch info")
        options = sorted(set(members) - required - _OPTIONAL)
        if (
            not required <= set(members)
            or not all(is_launch_option(name) for name in options)
            or not all(members.get(name, True) for name in ("tensor_maps", "counts_blocks", "loader", *options))
        ):
            raise malformed("launch info", data)
        layout = tuple(
            LayoutSlot.from_json(item) for item in read_list(members["layout"], "a parameter layout", _MAX_SLOTS)
        )
        maps = read_list(members.get("tensor_maps", []), "the tensor maps of launch info", MAX_PARAMETERS)

        def natural(name: str) -> int:
            return read_natural(members[name], f"the {name} of launch info")

        def optional(name: str) -> int | None:
            return None if members[name] is None else natural(name)

        made = cls(
            entry=read_text(members["entry"], "the entry of launch info"),
            layout=layout,
            num_warps=natural("num_warps"),
            threads=natural("threads"),
            block=_sizes(members["block"], "a block") if "block" in members else (0, 0, 0),
            cluster=_sizes(members["cluster"], "a cluster"),
            shared_bytes=natural("shared_bytes"),
            scratch_bytes=natural("scratch_bytes"),
            scratch_align=natural("scratch_align"),
            profile_bytes=natural("profile_bytes"),
            profile_align=natural("profile_align"),
            cooperative=read_bool(members["cooperative"], "the cooperative flag of launch info"),
            pdl=read_bool(members["pdl"], "the pdl flag of launch info"),
            registers=optional("registers"),
            spills=optional("spills"),
            tensor_maps=tuple(TensorMap.from_json(item) for item in maps),
            options=tuple((name, natural(name)) for name in options),
            counts_blocks=read_bool(members.get("counts_blocks", False), "the counts_blocks flag of launch info"),
            loader=read_text(members.get("loader", ""), "what the loader reads of launch info"),
        )
        idle = "counts_blocks" in members and not made.counts_blocks
        if idle or ("block" in members and made.block == made._line):  # which is never written
            raise malformed("launch info", data)
        return made


def format_block(block: tuple[int, int, int]) -> str:
    """A block for messages, without the axes at the end that are 1.

    >>> format_block((16, 16, 1)), format_block((256, 1, 1)), format_block((1, 1, 4))
    ('16 x 16', '256', '1 x 1 x 4')
    """
    axes = 3 if block[2] != 1 else 2 if block[1] != 1 else 1
    return " x ".join(map(str, block[:axes]))


def _sizes(data: JSON, what: str) -> tuple[int, int, int]:
    match [_positive(size, what) for size in read_list(data, what)]:
        case [x, y, z]:
            return (x, y, z)
        case _:
            raise malformed(what, data)


def _axis(data: JSON) -> int | tuple[int, int]:
    if not isinstance(data, list):
        axis = read_natural(data, _AXES)
        if axis >= _MAX_AXES:
            raise malformed(_AXES, data)
        return axis
    match [read_natural(number, _AXES) for number in data]:
        case [extent, stride] if 1 <= extent <= _MAX_EXTENT and stride < _MAX_STRIDE:
            return (extent, stride)
        case _:
            raise malformed(_AXES, data)


def _positive(data: JSON, what: str) -> int:
    value = read_natural(data, what)
    if value == 0:
        raise malformed(what, data)
    return value
