"""Tensor descriptors made on the host, as values: an array, and how a kernel walks over it block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = ["TensorDescriptor"]


@dataclass(eq=False)
class TensorDescriptor:
    """A tensor descriptor that does not need Triton; launches accept Triton's own class too.

    ``base`` is an array at a multiple of 16 bytes; ``strides`` count elements, are multiples of 16 bytes and end in 1;
    ``padding`` is the value of loads outside: ``zero`` or ``nan``; ``round_f32_to_tf32`` rounds float32 as it is
    loaded. ``layout`` is how a block lies in shared memory (Gluon's ``NVMMASharedLayout``), for kernels that depend
    on it; None means the default of the block. Checked at each launch, so members may be set.
    """

    __tensor_descriptor__: ClassVar[bool] = True

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False
    layout: Any = None
