"""Reads the author's description of a launch and its parameters, as expressions over constants and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar, cast

from silo.core import expressions
from silo.core.expressions import Bindings, ConfigValue, Const, Extent, ItemSize, Node, Op, leaves
from silo.core.plugins import is_option
from silo.core.trace import trace_value
from silo.core.values import JSON, DType, dtype
from silo.errors import CompileError, ExpressionError, SourceError
from silo.frozen import frozen

__all__ = [
    "ArgSpec",
    "ArgumentRole",
    "ArraySpec",
    "Dim",
    "MemorySpace",
    "Pad",
    "Scheme",
    "Scratch",
    "ScratchKind",
    "ScratchSpec",
    "Size",
    "SpecReader",
    "choice",
    "constants_read",
    "size_value",
]

# ---- The author's description of a body's parameters and of its scratch memory ----

Size: TypeAlias = "int | str | Node | Callable[[Any], object]"
"""A number, the name of a constant, or a function of constants and of the arguments' shapes and values."""

Dim: TypeAlias = "int | tuple[int, int, int] | None"
"""The block of a program along one axis.

``n``: the program's index along the grid's axis ``n``. ``(axis, stride, blocks)``: the block ``(index // stride) %
blocks``, if one axis of the grid covers several axes of the array. None: the first block."""

Pad: TypeAlias = "tuple[int, int, int]"
"""``(axis, multiple, extra)``: the axis is padded to a multiple of ``multiple``, and then by ``extra`` elements."""


class MemorySpace(Enum):
    """The memory in which a program sees an array."""

    VMEM = "vmem"  # a block of the array, copied in before the program runs and out afterwards
    SMEM = "smem"  # a block, like VMEM, but in the memory of scalars
    HBM = "hbm"  # the whole array in place; the body copies the parts that it needs


class ArgumentRole(Enum):
    """Whether a body reads or writes an array, or both."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


class Scheme(Enum):
    """How a body accesses its arrays."""

    DEFAULT = "default"  # the body gets blocks; the programs of the grid run one after the other
    PIPELINE = "pipeline"  # the body gets arrays in HBM and runs ``emit_pipeline`` over them
    FORI = "fori"  # the body gets arrays in HBM and copies their parts itself, with semaphores
    # on NVIDIA GPUs: the body gets arrays in GPU memory and copies their parts itself, with barriers
    MOSAIC_GPU = "mosaic_gpu"


class ScratchKind(Enum):
    """The kind of a scratch buffer."""

    VMEM = "vmem"
    SMEM = "smem"
    DMA = "dma_semaphore"
    SEMAPHORE = "semaphore"
    BARRIER = "barrier"


@frozen
class ArgSpec:
    """The description of one array of a Pallas body.

    Attributes:
        block: the part that a program sees: for each axis a :data:`Size`, or None for the whole axis. None: the whole
            array.
        dims: which block a program sees: a :data:`Dim` for each axis. Missing entries are None.
        space: ``vmem``, ``smem`` or ``hbm``; by default VMEM, or HBM for an array without a block that the body copies.
        role: ``in``, ``out`` or ``inout``. The parts of an ``out`` array that no program writes are undefined.
        pad: axes that are padded, for ``pl.ds`` beyond the end: :data:`Pad`. The padding is zero, and is cut off
            from results.
        prefetch: the whole array is in SMEM before the grid begins; index maps may read it.
        index: an index map, in place of ``dims``: takes the program's indices along the grid, then the arrays with
            ``prefetch``, and returns the block's index for each axis.
        buffers: the number of blocks in VMEM at once; with 2, the next block is copied while one is used.
        dtype: the elements' dtype, for example ``fp32``; by default the dtype of a call's array.
        shape: for an ``out`` array that calls leave out: the name of the argument with the same shape, or a size for
            each axis.
    """

    block: Sequence[Size | None] | None = None
    dims: Sequence[Dim] = ()
    space: Literal["vmem", "smem", "hbm"] | None = None
    role: Literal["in", "out", "inout"] = "in"
    pad: Sequence[Pad] = ()
    prefetch: bool = False
    index: Callable[..., object] | None = None
    buffers: int = 2
    dtype: str | None = None
    shape: str | Sequence[Size] | None = None


@frozen
class Scratch:
    """Memory or semaphores for a body; each is passed as one of the body's last parameters.

    Attributes:
        kind: ``vmem``, ``smem``, ``dma_semaphore``, ``semaphore`` or ``barrier``.
        shape: a :data:`Size` for each axis; () for a single semaphore.
        dtype: for memory: a dtype such as ``fp32``, or the name of the argument that has the same dtype.
    """

    kind: Literal["vmem", "smem", "dma_semaphore", "semaphore", "barrier"] = "vmem"
    shape: Sequence[Size] = ()
    dtype: str = "fp32"


# ---- The description of a launch after reading: sizes are expressions over constants and shapes ----

_MOST_BUFFERS = 16

_Choice = TypeVar("_Choice", bound=Enum)


@frozen
class ArraySpec:
    """An :class:`ArgSpec` after reading: with its name, sizes as expressions and words as enumeration members.

    An array that a call leaves out gets the shape and dtype of the argument named by ``like``, or else the shape
    ``made``.
    """

    name: str
    role: ArgumentRole
    space: MemorySpace
    block: tuple[Node | None, ...] | None = None
    dims: tuple[Dim, ...] = ()
    pad: tuple[Pad, ...] = ()
    prefetch: bool = False
    index: Callable[..., object] | None = None
    buffers: int = 2
    like: str = ""
    made: tuple[Node, ...] | None = None

    @property
    def may_be_left_out(self) -> bool:
        """Whether calls may leave the array out, because its shape is known. Such a call returns the array."""
        return bool(self.like) or self.made is not None

    @property
    def sizes(self) -> tuple[Node, ...]:
        """The expressions of the sizes of the block, and of the array that is made if a call leaves it out."""
        return (*(size for size in self.block or () if size is not None), *(self.made or ()))

    def to_json(self) -> JSON:
        """Returns the canonical form, without the index map."""
        block = (
            None if self.block is None else [None if item is None else expressions.to_json(item) for item in self.block]
        )
        sizes = None if self.made is None else [expressions.to_json(item) for item in self.made]
        dims: list[JSON] = [list(dim) if isinstance(dim, tuple) else dim for dim in self.dims]
        return {
            "name": self.name,
            "role": self.role.value,
            "space": self.space.value,
            "block": block,
            "dims": dims,
            "pad": [list(item) for item in self.pad],
            "prefetch": self.prefetch,
            "buffers": self.buffers,
            "like": self.like,
            "made": sizes,
        }


@frozen
class ScratchSpec:
    """A :class:`Scratch` with sizes as expressions.

    ``dtype`` is None for semaphores, and if ``like`` names an argument.
    """

    kind: ScratchKind
    shape: tuple[Node, ...] = ()
    dtype: DType | None = None
    like: str = ""

    def to_json(self) -> JSON:
        """Returns the canonical form."""
        element = None if self.dtype is None else self.dtype.name
        return [self.kind.value, [expressions.to_json(size) for size in self.shape], element, self.like]


def constants_read(arrays: Sequence[ArraySpec], scratch: Sequence[ScratchSpec]) -> tuple[str, ...]:
    """Returns the constants that the expressions read, each once, in order."""
    sizes = [size for array in arrays for size in array.sizes] + [
        size for scratch_spec in scratch for size in scratch_spec.shape
    ]
    names = [leaf.name for size in sizes for leaf in leaves(size) if isinstance(leaf, ConfigValue)]
    return tuple(dict.fromkeys(name for name in names if not is_option(name)))


def size_value(where: str, label: str, size: Node, bindings: Bindings, least: int = 1) -> int:
    """Returns a size's value in one variant.

    Raises CompileError if the value is invalid; this rejects only the variant's config.
    """
    try:
        value = expressions.evaluate(size, bindings)
    except ExpressionError as error:
        raise CompileError(f"{where}: {label} is {size}: {error}") from None
    if value < least:
        raise CompileError(f"{where}: {label} is {size} = {value}; it is {least} or more")
    return value


class SpecReader:
    """Reads the author's description. ``where`` names the kernel in messages; methods raise SourceError and TraceError.

    ``arrays`` names the arguments whose shapes expressions may read, ``constants`` the constants, and ``taken`` the
    other parameters; any further name becomes a constant of the kernel, which a config sets.
    """

    def __init__(
        self, where: str, scheme: Scheme, arrays: Sequence[str], constants: Sequence[str], used_names: Sequence[str]
    ) -> None:
        self._where = where
        self._scheme = scheme
        self._arrays = tuple(arrays)
        self._constants = tuple(constants)
        self._used_names = frozenset(used_names)

    def array(self, name: str, spec: ArgSpec) -> ArraySpec:
        """Returns the spec of one array."""
        label = f"{self._where}: {name}"
        role = choice(label, "role", ArgumentRole, spec.role)
        blocked = spec.block is not None
        own = MemorySpace.VMEM if self._scheme is Scheme.DEFAULT or blocked else MemorySpace.HBM
        space = own if spec.space is None else choice(label, "space", MemorySpace, spec.space)
        if spec.prefetch:
            if role is not ArgumentRole.IN or blocked or spec.dims or spec.index is not None or spec.space == "hbm":
                raise SourceError(
                    f'{label} is prefetched: the whole array is in SMEM, and role="in" is all it can have'
                )
            space = MemorySpace.SMEM
        if space is MemorySpace.HBM and (blocked or spec.dims or spec.index is not None):
            raise SourceError(f'{label} has space="hbm", where a body sees all of an array: leave out block and dims')
        if spec.dims and spec.index is not None:
            raise SourceError(f"{label} has dims and index: they say the same; give one of them")
        block = None
        if spec.block is not None:
            block = tuple(None if item is None else self._size(name, "block", item) for item in spec.block)
        dims = tuple(self._dim(label, dim) for dim in spec.dims)
        if block is not None and len(dims) > len(block):
            raise SourceError(f"{label} has {len(dims)} dims for a block of {len(block)} axes")
        if not 1 <= spec.buffers <= _MOST_BUFFERS:
            raise SourceError(f"{label} has buffers={spec.buffers}; 2 is usual, 1 halves what the array takes of VMEM")
        like = spec.shape if isinstance(spec.shape, str) else ""
        if spec.shape is not None and role is not ArgumentRole.OUT:
            raise SourceError(f'{label} has a shape=, which is for arrays with role="out" that calls leave out')
        if like and like not in self._arrays:
            raise SourceError(f"{label} is to have the shape of {like}, which is none of {', '.join(self._arrays)}")
        sizes = None
        if spec.shape is not None and not isinstance(spec.shape, str):
            sizes = tuple(self._size(name, "shape", item) for item in spec.shape)
        return ArraySpec(
            name=name,
            role=role,
            space=space,
            block=block,
            dims=dims,
            pad=tuple(self._pad(label, item) for item in spec.pad),
            prefetch=spec.prefetch,
            index=spec.index,
            buffers=spec.buffers,
            like=like,
            made=sizes,
        )

    def scratch(self, name: str, scratch: Scratch) -> ScratchSpec:
        """Returns the spec of one scratch buffer."""
        label = f"{self._where}: the scratch {name}"
        kind = choice(label, "kind", ScratchKind, scratch.kind)
        shape = tuple(self._size(name, "shape", size) for size in scratch.shape)
        if kind not in (ScratchKind.VMEM, ScratchKind.SMEM):
            return ScratchSpec(kind, shape)
        if scratch.dtype in self._arrays:
            return ScratchSpec(kind, shape, like=scratch.dtype)
        return ScratchSpec(kind, shape, self.dtype(label, scratch.dtype))

    @staticmethod
    def dtype(label: str, word: str) -> DType:
        """Returns the dtype with this name."""
        try:
            return dtype(word.removeprefix("*"))
        except KeyError as error:
            raise SourceError(f"{label}: its dtype is {word!r}: {error.args[0]}") from None

    def _size(self, name: str, what: str, size: Size) -> Node:
        label = f"{self._where}: a size in {what} of {name}"
        if isinstance(size, str):
            if size in self._used_names or size in self._arrays or not size.isidentifier():
                raise SourceError(f"{label} is {size!r}, which is no constant: make it a constexpr, or write a number")
            return ConfigValue(size)
        if isinstance(size, int) and not isinstance(size, bool):
            if size < 1:
                raise SourceError(f"{label} is {size}; it is 1 or more, or None for all of the axis")
            return Const(size)
        if callable(size):
            node = trace_value(size, (*self._arrays, *self._used_names), self._constants)
        elif isinstance(size, Const | ConfigValue | Extent | ItemSize | Op):
            node = size
        else:
            raise SourceError(
                f"{label} is {size!r}; it is a number, the name of a constant, None, or a function such as "
                "lambda a: a.x.shape[1] // 2"
            )
        for leaf in leaves(node):
            if not isinstance(leaf, Const | ConfigValue | Extent | ItemSize):
                raise SourceError(
                    f"{label} is {node}, which reads {leaf}, a value of each call, and it is part of the code: make "
                    "it a constexpr"
                )
        return node

    @staticmethod
    def _dim(label: str, value: Any) -> Dim:  # noqa: ANN401
        numbers = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        if value is not None and (
            len(numbers) not in (1, 3)
            or (isinstance(value, tuple) and len(numbers) == 1)
            or not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers)
        ):
            raise SourceError(
                f"{label} has {value!r} in dims; it is an axis of the grid, (axis, stride, blocks) or None"
            )
        if len(numbers) == 3 and 0 in numbers[1:]:
            raise SourceError(f"{label} has {value!r} in dims; stride and blocks are 1 or more")
        return cast("Dim", value)

    @staticmethod
    def _pad(label: str, value: Any) -> Pad:  # noqa: ANN401
        match value:
            case (int() as axis, int() as multiple, int() as extra) if axis >= 0 and multiple >= 1 and extra >= 0:
                return axis, multiple, extra
            case _:
                raise SourceError(f"{label} has {value!r} in pad; it is (axis, multiple, extra)")


def choice(where: str, label: str, kind: type[_Choice], value: object) -> _Choice:
    """Returns the member of an enumeration with the value ``value``. Raises SourceError, which lists the values."""
    try:
        return kind(value)
    except ValueError:
        allowed = " or ".join(repr(member.value) for member in kind)
        raise SourceError(f"{where}: {label}={value!r}; it is {allowed}") from None


def read_named(
    values: Sequence[Any] | Mapping[str, Any], names: Sequence[str], where: str, label: str
) -> dict[str, Any]:
    """Returns the entry for each of ``names``, None if it is not given.

    ``values`` lists the entries in the order of ``names``, or maps names to entries.
    """
    if isinstance(values, Mapping):
        if unknown := [given_name for given_name in values if given_name not in names]:
            raise SourceError(f"{where}: {label} names {', '.join(unknown)}; there are {', '.join(names) or 'none'}")
        return {name: values.get(name) for name in names}
    if len(values) > len(names):
        raise SourceError(f"{where}: {label} has {len(values)} entries for {', '.join(names) or 'no parameters'}")
    return {name: values[index] if index < len(values) else None for index, name in enumerate(names)}
