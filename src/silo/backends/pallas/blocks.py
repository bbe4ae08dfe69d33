"""A Pallas launch with every size known: what each array's blocks are, and the scratch. Pure; imports no jax.

The estimate of memory, the tracing of the body, the plan of calls and the checks all read these values.
"""

from __future__ import annotations

from silo.core.dtypes import DType
from silo.frozen import frozen
from silo.sources.pallas.argument_spec import Dim, MemorySpace, Role, Scheme, ScratchKind

__all__ = ["BlockedArray", "BlockedLaunch", "PassedScalar", "ScratchBuffer"]


@frozen
class BlockedArray:
    """An array argument. ``shape`` is the caller's, ``padded`` what the body sees of it, not less along any axis.

    ``block`` is what a program sees, () for an array in HBM or a prefetched one, which is seen whole. ``dims`` has an
    entry for each axis of the block; it means nothing where ``indexed``: a function of the author's says which block
    a program has. ``prefetch``: the array is in SMEM as a whole before the grid begins.
    """

    name: str
    role: Role
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
        """Elements added at the end of each axis."""
        return tuple(now - was for was, now in zip(self.shape, self.padded, strict=True))


@frozen
class PassedScalar:
    """A scalar argument that is no constant: an SMEM operand of one element, of ``dtype`` (bool is passed as int32)."""

    name: str
    dtype: DType


@frozen
class ScratchBuffer:
    """A piece of scratch; ``dtype`` is None for semaphores."""

    kind: ScratchKind
    shape: tuple[int, ...]
    dtype: DType | None = None


@frozen
class BlockedLaunch:
    """One variant's launch.

    ``arrays`` and ``scalars`` are in the order of the kernel's parameters. jax passes a body its operands in another
    order: first prefetched arrays, then scalars, then the arrays that are read (``in`` and ``inout``), then those that
    are written (``out`` and ``inout``, which is there twice), then scratch. ``vmem_limit_bytes`` is what the author
    said; None: the estimate decides.
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
        """Arrays that are in SMEM before the grid begins."""
        return tuple(one for one in self.arrays if one.prefetch)

    @property
    def inputs(self) -> tuple[BlockedArray, ...]:
        """Arrays that are read, without the prefetched: operands in this order, after scalars."""
        return tuple(one for one in self.arrays if one.role is not Role.OUT and not one.prefetch)

    @property
    def outputs(self) -> tuple[BlockedArray, ...]:
        """Arrays that are written: the results of the program, in this order."""
        return tuple(one for one in self.arrays if one.role is not Role.IN)
