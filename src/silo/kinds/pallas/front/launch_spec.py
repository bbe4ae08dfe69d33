"""What an author says of a launch and of its parameters, as expressions over constants and shapes; read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar, cast

from silo.core import nodes
from silo.core.dtypes import DType, dtype
from silo.core.nodes import Bindings, ConfigValue, Const, Extent, ItemSize, Node, Op, leaves
from silo.core.plugins import is_option
from silo.core.trace import trace_value
from silo.core.values import JSON
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

# ---- What an author says of a body's parameters, and of the scratch memory that it gets beside them ----

Size: TypeAlias = "int | str | Node | Callable[[Any], object]"
"""A number, the name of a constant, or a function of constants and of the arguments' shapes and values."""

Dim: TypeAlias = "int | tuple[int, int, int] | None"
"""Which block along one axis a program has: that of its index along an axis of the grid, or of an index
``(pid // stride) % blocks`` where one axis of the grid goes over several of the array, or always the first."""

Pad: TypeAlias = "tuple[int, int, int]"
"""``(axis, multiple, extra)``: the axis is made longer, to a multiple, and by ``extra`` elements more."""


class MemorySpace(Enum):
    """Where a program sees an array."""

    VMEM = "vmem"  # a block of it, copied in before the program runs and out afterwards
    SMEM = "smem"  # the same, in the memory of scalars
    HBM = "hbm"  # all of it, where it is: the body copies what it needs


class ArgumentRole(Enum):
    """What a body does with an array."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


class Scheme(Enum):
    """How a body gets its arrays."""

    DEFAULT = "default"  # blocks, one program of the grid after the other
    PIPELINE = "pipeline"  # arrays in HBM, over which it runs ``emit_pipeline``
    FORI = "fori"  # arrays in HBM, which it copies itself, with semaphores
    MOSAIC_GPU = "mosaic_gpu"  # of an NVIDIA GPU: arrays in its memory, which it copies itself, with barriers


class ScratchKind(Enum):
    """What a piece of scratch is."""

    VMEM = "vmem"
    SMEM = "smem"
    DMA = "dma_semaphore"
    SEMAPHORE = "semaphore"
    BARRIER = "barrier"


@frozen
class ArgSpec:
    """One array of a Pallas body.

    Attributes:
        block: what a program sees of it, an entry an axis: a :data:`Size`, or None for all of the axis; None for all.
        dims: which block a program has, an entry an axis: :data:`Dim`. Missing entries are None.
        space: ``vmem``, ``smem`` or ``hbm``; by default VMEM, and HBM without a block where the body copies.
        role: ``in``, ``out`` or ``inout``. What a program does not write of an array that is ``out`` is not defined.
        pad: axes that are made longer, for ``pl.ds`` beyond the end: :data:`Pad`. What is added is zero, and is cut off
            what is written.
        prefetch: the whole array is in SMEM before the grid begins; index maps may read it.
        index: an index map, in place of ``dims``: takes the program's indices along the grid, then the arrays with
            ``prefetch``, and gives the block's index for each axis.
        buffers: how many blocks of it are held at a time; 2, so that the next one comes while one is worked on.
        dtype: of its elements, such as ``fp32``; by default that of what a call passes.
        shape: of an ``out`` array that calls leave out: the name of the argument that it is like, or a size an axis.
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
    """Memory or semaphores that a body gets after its arguments, one for each of its last parameters.

    Attributes:
        kind: ``vmem``, ``smem``, ``dma_semaphore``, ``semaphore`` or ``barrier``.
        shape: a :data:`Size` an axis; () for a single semaphore.
        dtype: of memory; the name of an argument that it is as, or such as ``fp32``.
    """

    kind: Literal["vmem", "smem", "dma_semaphore", "semaphore", "barrier"] = "vmem"
    shape: Sequence[Size] = ()
    dtype: str = "fp32"


# ---- The author's description of a launch: expressions over constants and shapes ----

_MOST_BUFFERS = 16

_Choice = TypeVar("_Choice", bound=Enum)


@frozen
class ArraySpec:
    """An :class:`ArgSpec` with its name, its sizes as expressions and its words as what they mean.

    ``like`` names the argument that an array which calls leave out has its shape and dtype of; ``made`` is its shape
    otherwise.
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
        """Whether its shape is known without it: calls that leave it out get it back."""
        return bool(self.like) or self.made is not None

    @property
    def sizes(self) -> tuple[Node, ...]:
        """Every expression of it."""
        return (*(one for one in self.block or () if one is not None), *(self.made or ()))

    def to_json(self) -> JSON:
        """The canonical form, without the index map."""
        block = None if self.block is None else [None if one is None else nodes.to_json(one) for one in self.block]
        made = None if self.made is None else [nodes.to_json(one) for one in self.made]
        dims: list[JSON] = [list(one) if isinstance(one, tuple) else one for one in self.dims]
        return {
            "name": self.name,
            "role": self.role.value,
            "space": self.space.value,
            "block": block,
            "dims": dims,
            "pad": [list(one) for one in self.pad],
            "prefetch": self.prefetch,
            "buffers": self.buffers,
            "like": self.like,
            "made": made,
        }


@frozen
class ScratchSpec:
    """A :class:`Scratch` in the same way; ``dtype`` is None for semaphores and where it is that of ``like``."""

    kind: ScratchKind
    shape: tuple[Node, ...] = ()
    dtype: DType | None = None
    like: str = ""

    def to_json(self) -> JSON:
        """The canonical form."""
        element = None if self.dtype is None else self.dtype.name
        return [self.kind.value, [nodes.to_json(one) for one in self.shape], element, self.like]


def constants_read(arrays: Sequence[ArraySpec], scratch: Sequence[ScratchSpec]) -> tuple[str, ...]:
    """The constants that expressions read, each once, in order."""
    sizes = [size for one in arrays for size in one.sizes] + [size for one in scratch for size in one.shape]
    found = [leaf.name for size in sizes for leaf in leaves(size) if isinstance(leaf, ConfigValue)]
    return tuple(dict.fromkeys(name for name in found if not is_option(name)))


def size_value(where: str, what: str, size: Node, bindings: Bindings, least: int = 1) -> int:
    """What a size is in one variant. CompileError where it is none: that costs one config alone."""
    try:
        found = nodes.evaluate(size, bindings)
    except ExpressionError as error:
        raise CompileError(f"{where}: {what} is {size}: {error}") from None
    if found < least:
        raise CompileError(f"{where}: {what} is {size} = {found}; it is {least} or more")
    return found


class SpecReader:
    """Reads what an author says. ``where`` is the kernel for messages; raises SourceError and TraceError.

    ``arrays`` names the arguments whose shapes expressions may read, ``constants`` the constants, and ``taken`` the
    other parameters; any further name is a constant of the kernel's own, which a config sets.
    """

    def __init__(
        self, where: str, scheme: Scheme, arrays: Sequence[str], constants: Sequence[str], taken: Sequence[str]
    ) -> None:
        self._where = where
        self._scheme = scheme
        self._arrays = tuple(arrays)
        self._constants = tuple(constants)
        self._taken = frozenset(taken)

    def array(self, name: str, given: ArgSpec) -> ArraySpec:
        """One array."""
        what = f"{self._where}: {name}"
        role = choice(what, "role", ArgumentRole, given.role)
        blocked = given.block is not None
        own = MemorySpace.VMEM if self._scheme is Scheme.DEFAULT or blocked else MemorySpace.HBM
        space = own if given.space is None else choice(what, "space", MemorySpace, given.space)
        if given.prefetch:
            if role is not ArgumentRole.IN or blocked or given.dims or given.index is not None or given.space == "hbm":
                raise SourceError(f'{what} is prefetched: the whole array is in SMEM, and role="in" is all it can have')
            space = MemorySpace.SMEM
        if space is MemorySpace.HBM and (blocked or given.dims or given.index is not None):
            raise SourceError(f'{what} has space="hbm", where a body sees all of an array: leave out block and dims')
        if given.dims and given.index is not None:
            raise SourceError(f"{what} has dims and index: they say the same; give one of them")
        block = None
        if given.block is not None:
            block = tuple(None if one is None else self._size(name, "block", one) for one in given.block)
        dims = tuple(self._dim(what, one) for one in given.dims)
        if block is not None and len(dims) > len(block):
            raise SourceError(f"{what} has {len(dims)} dims for a block of {len(block)} axes")
        if not 1 <= given.buffers <= _MOST_BUFFERS:
            raise SourceError(f"{what} has buffers={given.buffers}; 2 is usual, 1 halves what the array takes of VMEM")
        like = given.shape if isinstance(given.shape, str) else ""
        if given.shape is not None and role is not ArgumentRole.OUT:
            raise SourceError(f'{what} has a shape=, which is for arrays with role="out" that calls leave out')
        if like and like not in self._arrays:
            raise SourceError(f"{what} is to have the shape of {like}, which is none of {', '.join(self._arrays)}")
        made = None
        if given.shape is not None and not isinstance(given.shape, str):
            made = tuple(self._size(name, "shape", one) for one in given.shape)
        return ArraySpec(
            name=name,
            role=role,
            space=space,
            block=block,
            dims=dims,
            pad=tuple(self._pad(what, one) for one in given.pad),
            prefetch=given.prefetch,
            index=given.index,
            buffers=given.buffers,
            like=like,
            made=made,
        )

    def scratch(self, name: str, given: Scratch) -> ScratchSpec:
        """One piece of scratch."""
        what = f"{self._where}: the scratch {name}"
        kind = choice(what, "kind", ScratchKind, given.kind)
        shape = tuple(self._size(name, "shape", one) for one in given.shape)
        if kind not in (ScratchKind.VMEM, ScratchKind.SMEM):
            return ScratchSpec(kind, shape)
        if given.dtype in self._arrays:
            return ScratchSpec(kind, shape, like=given.dtype)
        return ScratchSpec(kind, shape, self.dtype(what, given.dtype))

    @staticmethod
    def dtype(what: str, word: str) -> DType:
        """The dtype of a name."""
        try:
            return dtype(word.removeprefix("*"))
        except KeyError as error:
            raise SourceError(f"{what}: its dtype is {word!r}: {error.args[0]}") from None

    def _size(self, name: str, what: str, given: Size) -> Node:
        place = f"{self._where}: a size in {what} of {name}"
        if isinstance(given, str):
            if given in self._taken or given in self._arrays or not given.isidentifier():
                raise SourceError(f"{place} is {given!r}, which is no constant: make it a constexpr, or write a number")
            return ConfigValue(given)
        if isinstance(given, int) and not isinstance(given, bool):
            if given < 1:
                raise SourceError(f"{place} is {given}; it is 1 or more, or None for all of the axis")
            return Const(given)
        if callable(given):
            node = trace_value(given, (*self._arrays, *self._taken), self._constants)
        elif isinstance(given, Const | ConfigValue | Extent | ItemSize | Op):
            node = given
        else:
            raise SourceError(
                f"{place} is {given!r}; it is a number, the name of a constant, None, or a function such as "
                "lambda a: a.x.shape[1] // 2"
            )
        for leaf in leaves(node):
            if not isinstance(leaf, Const | ConfigValue | Extent | ItemSize):
                raise SourceError(
                    f"{place} is {node}, which reads {leaf}, a value of each call, and it is part of the code: make "
                    "it a constexpr"
                )
        return node

    @staticmethod
    def _dim(what: str, given: Any) -> Dim:  # noqa: ANN401
        numbers = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
        if given is not None and (
            len(numbers) not in (1, 3)
            or (isinstance(given, tuple) and len(numbers) == 1)
            or not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in numbers)
        ):
            raise SourceError(
                f"{what} has {given!r} in dims; it is an axis of the grid, (axis, stride, blocks) or None"
            )
        if len(numbers) == 3 and 0 in numbers[1:]:
            raise SourceError(f"{what} has {given!r} in dims; stride and blocks are 1 or more")
        return cast("Dim", given)

    @staticmethod
    def _pad(what: str, given: Any) -> Pad:  # noqa: ANN401
        match given:
            case (int() as axis, int() as multiple, int() as extra) if axis >= 0 and multiple >= 1 and extra >= 0:
                return axis, multiple, extra
            case _:
                raise SourceError(f"{what} has {given!r} in pad; it is (axis, multiple, extra)")


def choice(where: str, what: str, kind: type[_Choice], given: object) -> _Choice:
    """A member of an enumeration by its word. SourceError lists them."""
    try:
        return kind(given)
    except ValueError:
        known = " or ".join(repr(one.value) for one in kind)
        raise SourceError(f"{where}: {what}={given!r}; it is {known}") from None


def read_named(given: Sequence[Any] | Mapping[str, Any], names: Sequence[str], where: str, what: str) -> dict[str, Any]:
    """What is said for each of ``names``, in their order or by name; None of those that nothing is said of."""
    if isinstance(given, Mapping):
        if unknown := [one for one in given if one not in names]:
            raise SourceError(f"{where}: {what} names {', '.join(unknown)}; there are {', '.join(names) or 'none'}")
        return {name: given.get(name) for name in names}
    if len(given) > len(names):
        raise SourceError(f"{where}: {what} has {len(given)} entries for {', '.join(names) or 'no parameters'}")
    return {name: given[place] if place < len(given) else None for place, name in enumerate(names)}
