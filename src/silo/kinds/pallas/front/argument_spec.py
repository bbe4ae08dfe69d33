"""What an author says of a body's parameters, and of the scratch memory that it gets beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias

from silo.core.nodes import Node
from silo.frozen import frozen

__all__ = ["ArgSpec", "ArgumentRole", "Dim", "MemorySpace", "Pad", "Scheme", "Scratch", "ScratchKind", "Size"]

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
