"""A Pallas launch with all sizes known: the blocks of each array, and the scratch. Does not import jax.

The estimate of memory, the tracing of the body, the layout of calls and the checks all read these values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from silo.core.expressions import Bindings
from silo.core.extents import Extents
from silo.core.values import DType, DTypeKind, dtype
from silo.core.variant import Variant
from silo.errors import SourceError
from silo.frozen import frozen
from silo.kinds.pallas.front.launch_spec import (
    ArgumentRole,
    ArraySpec,
    Dim,
    MemorySpace,
    Pad,
    Scheme,
    ScratchKind,
    ScratchSpec,
    size_value,
)
from silo.kinds.pallas.front.pallas_source import PallasSource

__all__ = ["BlockedArray", "BlockedLaunch", "PassedScalar", "ScratchBuffer", "blocked_launch"]

_WORD_BITS = 32
_FLOAT = dtype("float32")
_INTEGER = dtype("int32")


@frozen
class BlockedArray:
    """An array argument, with the caller's ``shape`` and the ``padded`` shape that the body sees.

    The padded shape is at least as long along each axis. The exported program takes and returns arrays of ``shape``;
    the program itself adds and removes the padding.

    ``block`` is the part that a program sees; it is () for an array in HBM or a prefetched array, which the program
    sees whole. ``dims`` has an entry for each axis of the block. If ``indexed``, ``dims`` is unused, and the author's
    index map computes the block of a program. ``prefetch``: the whole array is in SMEM before the grid begins.
    """

    name: str
    role: ArgumentRole
    space: MemorySpace
    dtype: DType
    shape: tuple[int, ...]
    padded: tuple[int, ...]
    block: tuple[int, ...] = ()
    dims: tuple[Dim, ...] = ()
    indexed: bool = False
    prefetch: bool = False
    buffers: int = 2

    @property
    def pad(self) -> tuple[int, ...]:
        """The numbers of elements added at the end of each axis."""
        return tuple(now - was for was, now in zip(self.shape, self.padded, strict=True))


@frozen
class PassedScalar:
    """A scalar argument that is not a constant. ``dtype`` is the dtype of the value that the body gets."""

    name: str
    dtype: DType

    @property
    def operand(self) -> DType:
        """The dtype of the operand of shape (1,) that passes the scalar in SMEM, which holds words of 32 bits."""
        if self.dtype.kind is DTypeKind.FLOAT:
            return _FLOAT
        return self.dtype if self.dtype.bits == _WORD_BITS else _INTEGER


@frozen
class ScratchBuffer:
    """A scratch buffer; ``dtype`` is None for semaphores."""

    kind: ScratchKind
    shape: tuple[int, ...]
    dtype: DType | None = None


@frozen
class BlockedLaunch:
    """The launch of one variant.

    ``arrays`` and ``scalars`` are in the order of the kernel's parameters. jax passes a body its operands in another
    order: first prefetched arrays, then scalars, then the arrays that are read (``in`` and ``inout``), then the arrays
    that are written (``out`` and ``inout``, which appears twice), then scratch. ``vmem_limit_bytes`` is the author's
    limit; None: the estimate decides.
    """

    kernel: str
    scheme: Scheme
    grid: tuple[int, ...]
    arrays: tuple[BlockedArray, ...]
    scalars: tuple[PassedScalar, ...] = ()
    scratch: tuple[ScratchBuffer, ...] = ()
    dimension_semantics: tuple[str, ...] = ()
    vmem_limit_bytes: int | None = None

    @property
    def prefetched(self) -> tuple[BlockedArray, ...]:
        """The arrays that are in SMEM before the grid begins."""
        return tuple(array for array in self.arrays if array.prefetch)

    @property
    def inputs(self) -> tuple[BlockedArray, ...]:
        """The arrays that are read, except prefetched ones: the operands after the scalars, in this order."""
        return tuple(array for array in self.arrays if array.role is not ArgumentRole.OUT and not array.prefetch)

    @property
    def outputs(self) -> tuple[BlockedArray, ...]:
        """The arrays that are written: the results of the program, in this order."""
        return tuple(array for array in self.arrays if array.role is not ArgumentRole.IN)

    @property
    def operands(self) -> tuple[BlockedArray | PassedScalar, ...]:
        """The exported program's operands, in order; scalars are arrays of shape (1,) and their ``operand`` dtype."""
        return (*self.prefetched, *self.scalars, *self.inputs)

    def array(self, name: str) -> BlockedArray:
        """Returns the array of ``arrays`` with this name."""
        return next(array for array in self.arrays if array.name == name)


def blocked_launch(source: PallasSource, variant: Variant) -> BlockedLaunch:
    """Returns the launch of one variant, with all sizes known.

    Raises:
        SourceError: an error of the author: a block of another rank than its array, a dim past the grid.
        CompileError: a size that is impossible with this config.
    """
    constants = source.constants(variant)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, extents in variant.specialization.extents:
        assert isinstance(extents, Extents)  # the source specializes on shapes, not on dynamic layouts
        shapes[name] = extents.shape
    typed = variant.signature
    bindings = Bindings(
        shapes=shapes,
        itemsizes={name: element.itemsize for name in shapes if (element := typed[name].dtype) is not None},
        config=constants,
    )
    grid = _grid(source, variant)
    where = str(source)
    for array in source.arrays:
        if array.name not in shapes:  # if a call leaves the array out, the launch makes it
            shapes[array.name] = _made_shape(where, array, shapes, bindings)
    dtypes = {name: element for name in typed.names if (element := typed[name].dtype) is not None}
    specs = {array.name: array for array in source.arrays}
    arrays = tuple(_array(where, specs[name], dtypes[name], shapes[name], grid, bindings) for name in specs)
    scalars = tuple(
        PassedScalar(name, dtypes[name]) for name in source.passed if name not in specs and name not in constants
    )
    if refused := _revisited(grid, arrays):
        raise SourceError(f"{where}: {refused}")
    semantics = (*source.dimension_semantics, *["arbitrary"] * len(grid))[: len(grid)]
    return BlockedLaunch(
        kernel=source.name,
        scheme=source.scheme,
        grid=grid,
        arrays=arrays,
        scalars=scalars,
        scratch=tuple(_scratch(where, scratch, dtypes, bindings) for scratch in source.scratch),
        dimension_semantics=semantics,
        vmem_limit_bytes=source.vmem_limit_bytes,
    )


def _grid(source: PallasSource, variant: Variant) -> tuple[int, ...]:
    """Returns the sizes of the grid's axes.

    They are the axes that the body may read, and any further axes up to the last one with more than one program.
    """
    grid = variant.specialization.grid
    if grid is None:
        raise SourceError(f"{source}: a Pallas kernel is compiled for its grid, and the call names none")
    if source.outer:
        if grid[0] != math.prod(source.outer):
            raise SourceError(
                f"{source}: the grid of a call is {tuple(grid)}, and its first axis stands for the axes "
                f"{source.outer}: {math.prod(source.outer)} programs"
            )
        return (*source.outer, *grid[1:])
    used = max((axis + 1 for axis, size in enumerate(grid) if size != 1), default=1)
    return tuple(grid[: max(used, source.axes)])


def _made_shape(
    where: str, spec: ArraySpec, shapes: Mapping[str, tuple[int, ...]], bindings: Bindings
) -> tuple[int, ...]:
    if spec.like:
        if spec.like not in shapes:
            raise SourceError(f"{where}: {spec.name} has the shape of {spec.like}, which the call leaves out too")
        return shapes[spec.like]
    return tuple(size_value(where, f"the shape of {spec.name}", size, bindings, least=0) for size in spec.made or ())


def _array(
    where: str, spec: ArraySpec, element: DType, shape: tuple[int, ...], grid: Sequence[int], bindings: Bindings
) -> BlockedArray:
    label = f"{where}: {spec.name}"
    padded = _padded(label, shape, spec.pad)
    if spec.block is not None and len(spec.block) != len(shape):
        raise SourceError(f"{label} has a block of {len(spec.block)} axes, and the array has {len(shape)}")
    dims = (*spec.dims, *[None] * len(shape))[: max(len(shape), len(spec.dims))]
    for dim in dims:
        axis = dim[0] if isinstance(dim, tuple) else dim
        if axis is not None and axis >= len(grid):
            raise SourceError(f"{label} has the axis {axis} of the grid in dims, and the grid is {tuple(grid)}")
    is_whole = spec.prefetch or spec.space is MemorySpace.HBM
    sizes = spec.block if spec.block is not None else (None,) * len(shape)
    # A block is at most as long as its array.
    block = tuple(
        full if size is None else min(full, size_value(where, f"the block of {spec.name}", size, bindings))
        for size, full in zip(sizes, padded, strict=True)
    )
    return BlockedArray(
        name=spec.name,
        role=spec.role,
        space=spec.space,
        dtype=element,
        shape=shape,
        padded=padded,
        block=() if is_whole else block,
        dims=() if is_whole else dims,
        indexed=spec.index is not None,
        prefetch=spec.prefetch,
        buffers=spec.buffers,
    )


def _padded(label: str, shape: tuple[int, ...], pads: Sequence[Pad]) -> tuple[int, ...]:
    """Returns the padded shape. An axis without elements becomes one element long, as a block cannot be empty.

    >>> _padded("add: x", (1000, 7), ((0, 256, 0), (1, 8, 8))), _padded("add: x", (0, 7), ())
    ((1024, 16), (1, 7))
    """
    padded = list(shape)
    for axis, multiple, extra in pads:
        if axis >= len(shape):
            raise SourceError(f"{label} is padded along axis {axis}, and has {len(shape)}")
        padded[axis] += -shape[axis] % multiple + extra
    return tuple(max(1, size) for size in padded)


def _scratch(where: str, spec: ScratchSpec, dtypes: Mapping[str, DType], bindings: Bindings) -> ScratchBuffer:
    shape = tuple(size_value(where, "the shape of scratch", size, bindings) for size in spec.shape)
    if spec.kind not in (ScratchKind.VMEM, ScratchKind.SMEM):
        return ScratchBuffer(spec.kind, shape)
    return ScratchBuffer(spec.kind, shape, dtypes[spec.like] if spec.like else spec.dtype)


def _revisited(grid: Sequence[int], arrays: Sequence[BlockedArray]) -> str:
    """Returns why some array cannot be both read and written with its blocks; "" if all can.

    A block stays in VMEM while its index does not change. Programs may return to a block later, if an inner axis of the
    grid goes over the blocks and an outer axis repeats them. These programs may read the array's old values or the
    written ones, because the order is undefined.
    """
    for array in arrays:
        if array.role is not ArgumentRole.INOUT or array.indexed or not array.block:
            continue
        used = {dim[0] if isinstance(dim, tuple) else dim for dim in array.dims if dim is not None}
        inner = max((axis for axis in used if grid[axis] > 1), default=0)
        outer = [axis for axis, size in enumerate(grid) if size > 1 and axis not in used and axis < inner]
        if outer:
            return (
                f"{array.name} is read and written, and programs come back to its blocks, for axis {outer[0]} of the "
                "grid goes over all of them: make that the last axis, or leave the array in HBM"
            )
    return ""
