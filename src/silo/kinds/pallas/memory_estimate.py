"""What a launch takes of VMEM and SMEM on one chip, before anything is compiled. Pure; imports no jax.

A block is held twice, so that the next one comes while one is worked on, and once where every program has the same.
Its axes are rounded up to the tiles that it lies in. What the body takes besides is known once it is traced
(:mod:`silo.kinds.pallas.body_memory`) and added to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from silo.core.dtypes import DType, DTypeKind
from silo.core.extents import shape_text
from silo.core.json_reader import read_integers, read_list, read_natural, read_object, read_text
from silo.core.values import JSON, malformed
from silo.errors import ResourceError
from silo.frozen import frozen, names_of
from silo.kinds.pallas.chips import Chip
from silo.kinds.pallas.front.argument_spec import ArgumentRole, MemorySpace, ScratchKind
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch, ScratchBuffer

__all__ = ["MemoryReport", "MemoryRow", "estimate", "require_memory", "tiled_bytes"]

_NUMBERS = ("vmem", "smem", "limit", "vmem_ceiling", "smem_ceiling")
_LANES = 128
_SUBLANES = 8
_WORD = 4
_SLACK = 64 << 10  # what the compiler takes for itself in kernels without large intermediate values


@frozen
class MemoryRow:
    """What one argument or one piece of scratch takes: ``copies`` of ``block``, each of ``bytes`` as it lies."""

    name: str
    space: str
    block: tuple[int, ...]
    dtype: str
    copies: int
    bytes: int

    @property
    def total(self) -> int:
        """All copies."""
        return self.copies * self.bytes

    def to_json(self) -> JSON:
        """The canonical form."""
        return [self.name, self.space, list(self.block), self.dtype, self.copies, self.bytes]


@frozen
class MemoryReport:
    """The estimate for a chip. ``limit`` is the VMEM that the compiler is allowed."""

    chip: str
    rows: tuple[MemoryRow, ...]
    vmem: int
    smem: int
    limit: int
    vmem_ceiling: int
    smem_ceiling: int

    @property
    def fits(self) -> bool:
        """Whether there is that much."""
        return self.vmem <= min(self.limit, self.vmem_ceiling) and self.smem <= self.smem_ceiling

    def table(self) -> str:
        """A line an argument, the largest first."""
        rows = sorted(self.rows, key=lambda one: -one.total)
        return "\n".join(
            f"  {one.name}: {one.copies} x {shape_text(one.block)} of {one.dtype} in {one.space}, {_size(one.total)}"
            for one in rows
        )

    def to_json(self) -> JSON:
        """The canonical form."""
        return {
            "chip": self.chip,
            "rows": [one.to_json() for one in self.rows],
            "vmem": self.vmem,
            "smem": self.smem,
            "limit": self.limit,
            "vmem_ceiling": self.vmem_ceiling,
            "smem_ceiling": self.smem_ceiling,
        }

    @classmethod
    def from_json(cls, data: JSON) -> MemoryReport:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
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
    """What a launch takes on a chip, and the limit that it is compiled with.

    That is all that the chip has, where the author says no other: the program holds this kernel alone, so what the
    compiler keeps by default for others is nobody's. ``body`` is what the traced body takes besides.
    """
    rows = [_array(one, launch.grid) for one in launch.arrays if one.space is not MemorySpace.HBM]
    # What is written of an array that is read and written is a block of its own: a limit counts it once on some chips,
    # and the memory is taken all the same.
    rows += [
        _array(one, launch.grid, f"{one.name} (written)")
        for one in launch.arrays
        if one.role is ArgumentRole.INOUT and one.space is MemorySpace.VMEM
    ]
    rows += [MemoryRow(one.name, "smem", (1,), one.operand.name, 1, _WORD) for one in launch.scalars]
    for place, one in enumerate(launch.scratch):
        if one.kind in (ScratchKind.VMEM, ScratchKind.SMEM):
            rows.append(_scratch(f"scratch {place}", one))
    rows += body
    vmem = sum(one.total for one in rows if one.space == "vmem")
    smem = sum(one.total for one in rows if one.space == "smem")
    asked = launch.vmem_limit_bytes
    limit = chip.vmem_bytes if asked is None else min(chip.vmem_bytes, asked)
    return MemoryReport(chip.arch, tuple(rows), vmem, smem, limit, chip.vmem_ceiling - _SLACK, chip.smem_bytes)


def require_memory(report: MemoryReport, kernel: str) -> None:
    """ResourceError where a launch takes more than there is: it names each argument, the largest first."""
    if report.fits:
        return
    if report.smem > report.smem_ceiling:
        kind, need, there = "SMEM", report.smem, report.smem_ceiling
    else:
        kind, need, there = "VMEM", report.vmem, min(report.limit, report.vmem_ceiling)
    raise ResourceError(
        f"{kernel} for tpu:{report.chip} takes about {_size(need)} of {kind}, and it can have {_size(there)}:\n"
        f"{report.table()}\nmake blocks smaller, hold one copy of a block (buffers=1), or leave an array in HBM",
        kind=kind.lower(),
        need=need,
        capacity=there,
    )


def tiled_bytes(shape: Sequence[int], element: DType) -> int:
    """Bytes of a block as it lies in VMEM: its last axis in lanes, the one before in sublanes, both rounded up.

    >>> from silo.core.dtypes import dtype
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
    # Eight rows whatever their width, for a word holds narrow elements of several rows; a short axis has a smaller
    # tile, of a power of two, and no less than fills a word.
    tile = max(_WORD // width, min(_SUBLANES, 1 << (rows - 1).bit_length()))
    size = -(-rows // tile) * tile * -(-lanes // _LANES) * _LANES
    for axis in outer:
        size *= axis
    return size * width


def _array(one: BlockedArray, grid: Sequence[int], name: str = "") -> MemoryRow:
    block = one.block or one.padded
    if one.space is MemorySpace.SMEM:
        size = _WORD
        for axis in block:
            size *= axis
        return MemoryRow(
            name or one.name, "smem", block, one.dtype.name, 1 if one.prefetch else _copies(one, grid), size
        )
    return MemoryRow(name or one.name, "vmem", block, one.dtype.name, _copies(one, grid), tiled_bytes(block, one.dtype))


def _copies(one: BlockedArray, grid: Sequence[int]) -> int:
    """How many blocks are held: one where all programs have the same."""
    if one.indexed:
        return one.buffers
    used = {dim[0] if isinstance(dim, tuple) else dim for dim in one.dims if dim is not None}
    return one.buffers if any(grid[axis] > 1 for axis in used) else 1


def _scratch(name: str, one: ScratchBuffer) -> MemoryRow:
    assert one.dtype is not None  # memory has a dtype
    if one.kind is ScratchKind.VMEM:
        return MemoryRow(name, "vmem", one.shape, one.dtype.name, 1, tiled_bytes(one.shape, one.dtype))
    size = _WORD
    for axis in one.shape:
        size *= axis
    return MemoryRow(name, "smem", one.shape, one.dtype.name, 1, size)


def _size(count: int) -> str:
    """Bytes for people.

    >>> _size(3 << 19), _size(512)
    ('1.50 MiB', '0.50 KiB')
    """
    return f"{count / (1 << 20):.2f} MiB" if count >= 1 << 20 else f"{count / 1024:.2f} KiB"
