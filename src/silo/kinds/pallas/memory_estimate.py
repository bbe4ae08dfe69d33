"""Estimates the VMEM and SMEM that a launch takes on one chip, including the body's own memory.

Does not import jax.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from silo.core.extents import shape_text
from silo.core.json_reader import read_integers, read_list, read_natural, read_object, read_text
from silo.core.values import JSON, DType, DTypeKind, malformed
from silo.errors import ResourceError
from silo.frozen import frozen, names_of
from silo.kinds.pallas.chips import Chip
from silo.kinds.pallas.front.launch_spec import ArgumentRole, MemorySpace, ScratchKind
from silo.kinds.pallas.front.pallas_source import dtype_of
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch, ScratchBuffer

__all__ = ["MemoryReport", "MemoryRow", "body_memory", "estimate", "require_memory", "tiled_bytes"]

# ---- The estimate for a launch, before anything is compiled ----

_NUMBERS = ("vmem", "smem", "limit", "vmem_ceiling", "smem_ceiling")
_LANES = 128
_SUBLANES = 8
_WORD = 4
_SLACK = 64 << 10  # VMEM that the compiler itself uses for kernels without large intermediate values


@frozen
class MemoryRow:
    """The memory of one argument or scratch buffer.

    It consists of ``copies`` blocks of shape ``block``. Each block takes ``bytes``, because it is stored in whole
    tiles.
    """

    name: str
    space: str
    block: tuple[int, ...]
    dtype: str
    copies: int
    bytes: int

    @property
    def total(self) -> int:
        """The bytes of all copies."""
        return self.copies * self.bytes

    def to_json(self) -> JSON:
        """Returns the canonical form."""
        return [self.name, self.space, list(self.block), self.dtype, self.copies, self.bytes]


@frozen
class MemoryReport:
    """The estimate for a chip, in bytes. ``limit`` is the VMEM that the compiler may use."""

    chip: str
    rows: tuple[MemoryRow, ...]
    vmem: int
    smem: int
    limit: int
    vmem_ceiling: int
    smem_ceiling: int

    @property
    def fits(self) -> bool:
        """Whether the launch needs no more memory than the chip has and the limit allows."""
        return self.vmem <= min(self.limit, self.vmem_ceiling) and self.smem <= self.smem_ceiling

    def table(self) -> str:
        """Returns a line for each argument, the largest first."""
        rows = sorted(self.rows, key=lambda one: -one.total)
        return "\n".join(
            f"  {row.name}: {row.copies} x {shape_text(row.block)} of {row.dtype} in {row.space}, {_size(row.total)}"
            for row in rows
        )

    def to_json(self) -> JSON:
        """Returns the canonical form."""
        return {
            "chip": self.chip,
            "rows": [row.to_json() for row in self.rows],
            "vmem": self.vmem,
            "smem": self.smem,
            "limit": self.limit,
            "vmem_ceiling": self.vmem_ceiling,
            "smem_ceiling": self.smem_ceiling,
        }

    @classmethod
    def from_json(cls, data: JSON) -> MemoryReport:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for any other data."""
        members = read_object(data, names_of(cls), "an estimate of memory")
        rows: list[MemoryRow] = []
        for row in read_list(members["rows"], "the rows of an estimate"):
            match read_list(row, "a row of an estimate"):
                case [str() as name, str() as space, block, str() as element, int() as copies, int() as size]:
                    rows.append(MemoryRow(name, space, read_integers(block, "a block"), element, copies, size))
                case _:
                    raise malformed("a row of an estimate", row)
        numbers = {name: read_natural(members[name], f"the {name} of an estimate") for name in _NUMBERS}
        return cls(read_text(members["chip"], "a chip"), tuple(rows), **numbers)


def estimate(launch: BlockedLaunch, chip: Chip, body: Sequence[MemoryRow] = ()) -> MemoryReport:
    """Returns the memory that a launch takes on a chip, and the limit with which it is compiled.

    The limit is the author's, or else all of the chip's VMEM: the program contains only this kernel, so nothing else
    needs the part that the compiler reserves by default. ``body`` is the additional memory of the traced body.
    """
    rows = [_array(array, launch.grid) for array in launch.arrays if array.space is not MemorySpace.HBM]
    # An inout array has a second block, which is written. The compilers for some chips do not count it against the
    # limit, but the memory is used anyway.
    rows += [
        _array(array, launch.grid, f"{array.name} (written)")
        for array in launch.arrays
        if array.role is ArgumentRole.INOUT and array.space is MemorySpace.VMEM
    ]
    rows += [MemoryRow(scalar.name, "smem", (1,), scalar.operand.name, 1, _WORD) for scalar in launch.scalars]
    for index, scratch in enumerate(launch.scratch):
        if scratch.kind in (ScratchKind.VMEM, ScratchKind.SMEM):
            rows.append(_scratch(f"scratch {index}", scratch))
    rows += body
    vmem = sum(row.total for row in rows if row.space == "vmem")
    smem = sum(row.total for row in rows if row.space == "smem")
    requested = launch.vmem_limit_bytes
    limit = chip.vmem_bytes if requested is None else min(chip.vmem_bytes, requested)
    return MemoryReport(chip.arch, tuple(rows), vmem, smem, limit, chip.vmem_ceiling - _SLACK, chip.smem_bytes)


def require_memory(report: MemoryReport, kernel: str) -> None:
    """Raises ResourceError if a launch takes more memory than it may use.

    The error lists each argument, largest first.
    """
    if report.fits:
        return
    if report.smem > report.smem_ceiling:
        kind, need, available = "SMEM", report.smem, report.smem_ceiling
    else:
        kind, need, available = "VMEM", report.vmem, min(report.limit, report.vmem_ceiling)
    raise ResourceError(
        f"{kernel} for tpu:{report.chip} takes about {_size(need)} of {kind}, and it can have {_size(available)}:\n"
        f"{report.table()}\nmake blocks smaller, hold one copy of a block (buffers=1), or leave an array in HBM",
        kind=kind.lower(),
        need=need,
        capacity=available,
    )


def tiled_bytes(shape: Sequence[int], element: DType) -> int:
    """Returns the bytes of a block in VMEM: the last axis in lanes, the axis before it in sublanes, both rounded up.

    >>> from silo.core.values import dtype
    >>> tiled_bytes((256, 100), dtype("fp32")) == 256 * 128 * 4
    True
    >>> tiled_bytes((64, 3, 200), dtype("bf16")) == 64 * 4 * 256 * 2
    True
    """
    width = _WORD if element.kind is DTypeKind.BOOL else element.itemsize
    if not shape:
        return _LANES * _WORD
    if len(shape) == 1:
        words = _LANES * _WORD // width
        return -(-shape[0] // words) * words * width
    *outer, rows, lanes = shape
    # A tile has eight rows, also with narrow elements, because one word holds elements of several rows. A short axis
    # has a smaller tile: a power of two that fills at least one word.
    tile = max(_WORD // width, min(_SUBLANES, 1 << (rows - 1).bit_length()))
    size = -(-rows // tile) * tile * -(-lanes // _LANES) * _LANES
    for axis in outer:
        size *= axis
    return size * width


def _array(blocked_array: BlockedArray, grid: Sequence[int], name: str = "") -> MemoryRow:
    block = blocked_array.block or blocked_array.padded
    if blocked_array.space is MemorySpace.SMEM:
        size = _WORD
        for axis in block:
            size *= axis
        return MemoryRow(
            name or blocked_array.name,
            "smem",
            block,
            blocked_array.dtype.name,
            1 if blocked_array.prefetch else _copies(blocked_array, grid),
            size,
        )
    return MemoryRow(
        name or blocked_array.name,
        "vmem",
        block,
        blocked_array.dtype.name,
        _copies(blocked_array, grid),
        tiled_bytes(block, blocked_array.dtype),
    )


def _copies(blocked_array: BlockedArray, grid: Sequence[int]) -> int:
    """Returns the number of the array's blocks that are in memory at once: 1 if all programs have the same block."""
    if blocked_array.indexed:
        return blocked_array.buffers
    used = {dim[0] if isinstance(dim, tuple) else dim for dim in blocked_array.dims if dim is not None}
    return blocked_array.buffers if any(grid[axis] > 1 for axis in used) else 1


def _scratch(name: str, scratch_buffer: ScratchBuffer) -> MemoryRow:
    assert scratch_buffer.dtype is not None  # only semaphores lack a dtype
    if scratch_buffer.kind is ScratchKind.VMEM:
        return MemoryRow(
            name,
            "vmem",
            scratch_buffer.shape,
            scratch_buffer.dtype.name,
            1,
            tiled_bytes(scratch_buffer.shape, scratch_buffer.dtype),
        )
    size = _WORD
    for axis in scratch_buffer.shape:
        size *= axis
    return MemoryRow(name, "smem", scratch_buffer.shape, scratch_buffer.dtype.name, 1, size)


def _size(count: int) -> str:
    """Formats a number of bytes.

    >>> _size(3 << 19), _size(512)
    ('1.50 MiB', '0.50 KiB')
    """
    return f"{count / (1 << 20):.2f} MiB" if count >= 1 << 20 else f"{count / 1024:.2f} KiB"


# ---- The VMEM of a traced body, besides its blocks and scratch ----

_REGISTERS = 64 * 8 * 128 * 4  # bytes of the vector registers: values that fit into them take no memory

_SCOPED = "run_scoped"
_CALLED = "pallas_call"
_READS = frozenset({"get", "load", "masked_load"})
_WRITES = frozenset({"swap", "store", "masked_swap"})
# The compiler recomputes the results of these operations where they are used, and their inputs are in memory anyway.
_MADE_AGAIN = _READS | {"broadcast_in_dim", "iota", "reshape", "squeeze", "slice"}
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
_PASS = 128  # elements of each row that the matrix unit multiplies in one pass
_REDUCING = ("reduce_", "arg", "cum", "sort")


def body_memory(traced: Any) -> tuple[MemoryRow, ...]:  # noqa: ANN401  # a jaxpr
    """Returns the memory that the body of a traced program takes; the program has one ``pallas_call``."""
    rows: list[MemoryRow] = []
    for equation in _equations(traced):
        if equation.primitive.name == _CALLED:
            for inner in _within(equation):
                rows += _scoped(inner)
                reference_row = _held(inner)
                if reference_row is not None:
                    rows.append(reference_row)
    return tuple(rows)


def _scoped(jaxpr: Any) -> list[MemoryRow]:  # noqa: ANN401
    """Returns the largest memory of nested ``run_scoped`` blocks; blocks that run after each other share memory."""
    largest: list[MemoryRow] = []
    for equation in jaxpr.eqns:
        for inner in _within(equation):
            rows = _scoped(inner)
            if equation.primitive.name == _SCOPED:
                own = (_reference(invar.aval, position) for position, invar in enumerate(inner.invars))
                rows = [*(entry for entry in own if entry is not None), *rows]
            if sum(row.total for row in rows) > sum(entry.total for entry in largest):
                largest = rows
    return largest


def _reference(aval: Any, index: int) -> MemoryRow | None:  # noqa: ANN401
    element = dtype_of(aval.dtype) if str(getattr(aval, "memory_space", "")) == "vmem" else None
    if element is None:
        return None
    shape = tuple(int(size) for size in aval.shape)
    return MemoryRow(f"memory {index} of the body's own", "vmem", shape, element.name, 1, tiled_bytes(shape, element))


def _held(jaxpr: Any) -> MemoryRow | None:  # noqa: ANN401
    """Returns the memory of the body's intermediate values at their peak; None if registers can hold them."""
    best: tuple[int, tuple[int, ...], DType] | None = None
    for size, shape, element in _peaks(jaxpr):
        if best is None or size > best[0]:
            best = size, shape, element
    if best is None or best[0] <= _REGISTERS:
        return None
    size, shape, element = best
    return MemoryRow("values between", "vmem", shape, element.name, 1, size)


def _peaks(jaxpr: Any) -> Iterator[tuple[int, tuple[int, ...], DType]]:  # noqa: ANN401
    """Yields the memory that each product and reduction needs for intermediate values, if it needs any.

    Each item has the bytes of all these values, then the shape and the dtype of the largest one.
    """
    equations: Sequence[Any] = jaxpr.eqns
    last: dict[int, int] = {}
    readers: dict[int, set[str]] = {}
    for index, equation in enumerate(equations):
        for item in equation.invars:
            last[id(item)] = index
            readers.setdefault(id(item), set()).add(equation.primitive.name)
    sources = _sources(equations)
    for index, equation in enumerate(equations):
        name = equation.primitive.name
        sizes: list[tuple[int, tuple[int, ...], DType]] = []
        if name in _PRODUCTS and _length(equation) > _PASS:
            # The matrix unit adds up a result in several passes. The compiler keeps this sum in memory, and needs a
            # quarter of its size more during the additions. If the body only writes the sum to a reference, it is
            # accumulated there without further memory. Sums of 32-bit elements need little temporary memory.
            several = [outvar for outvar in equation.outvars if readers.get(id(outvar), _WRITES) - _WRITES]
            share = 1 / 16 if equation.invars[0].aval.dtype.itemsize >= _WORD else 5 / 4
            sizes += [(int(size[0] * share), *size[1:]) for item in several if (size := _body_memory_size(item.aval))]
        if name in _PRODUCTS or name.startswith(_REDUCING):
            before = [equations[item] for item in sources[index] if equations[item].primitive.name not in _MADE_AGAIN]
            later_inputs = [outvar for other in before for outvar in other.outvars if last.get(id(outvar), -1) > index]
            sizes += [size for later_input_ in later_inputs if (size := _body_memory_size(later_input_.aval))]
        if sizes:
            _, shape, element = max(sizes, key=lambda one: one[0])
            yield sum(size for size, _, _ in sizes), shape, element
        for inner in _within(equation):
            yield from _peaks(inner)


def _sources(equations: Sequence[Any]) -> Mapping[int, frozenset[int]]:
    """Returns for each operation the operations on which its result depends, directly or indirectly."""
    maker: dict[int, int] = {}
    sources: dict[int, frozenset[int]] = {}
    for index, equation in enumerate(equations):
        direct = {maker[id(invar)] for invar in equation.invars if id(invar) in maker}
        sources[index] = frozenset(direct).union(*(sources[source] for source in direct))
        for outvar in equation.outvars:
            maker[id(outvar)] = index
    return sources


def _length(equation: Any) -> int:  # noqa: ANN401
    """Returns the number of products that a matrix product sums for each element; a large number if it is unknown."""
    numbers = equation.params.get("dimension_numbers")
    if equation.primitive.name != "dot_general" or numbers is None:
        return _PASS + 1
    return math.prod(equation.invars[0].aval.shape[axis] for axis in numbers[0][0])


def _body_memory_size(aval: Any) -> tuple[int, tuple[int, ...], DType] | None:  # noqa: ANN401
    element = dtype_of(getattr(aval, "dtype", None))
    shape: tuple[Any, ...] = tuple(getattr(aval, "shape", ()))
    if element is None or not shape or not all(isinstance(extent, int) for extent in shape):
        return None
    return tiled_bytes(shape, element), shape, element


def _equations(traced: Any) -> Iterator[Any]:  # noqa: ANN401
    for equation in _plain(traced).eqns:
        yield equation
        if equation.primitive.name != _CALLED:
            for inner in _within(equation):
                yield from _equations(inner)


def _within(equation: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yields the jaxprs inside an operation, for example the body of a loop or the branches of a condition."""
    for value in equation.params.values():
        for item in cast("Iterable[Any]", value if isinstance(value, tuple | list) else (value,)):
            plain = _plain(item)
            if hasattr(plain, "eqns") and hasattr(plain, "invars"):
                yield plain


def _plain(jaxpr: Any) -> Any:  # noqa: ANN401
    """Returns a jaxpr without its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr)
