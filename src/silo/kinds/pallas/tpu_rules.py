"""Which blocks a TPU takes, told before anything is traced. Pure; imports no jax.

jax has the same rules (0.10 to 0.12) where it lowers a kernel for a TPU, and names neither the argument nor what to do.
An interpreted kernel knows none of them.
"""

from __future__ import annotations

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.dtypes import DTypeKind
from silo.core.extents import shape_text
from silo.kinds.pallas.front.argument_spec import MemorySpace
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch

__all__ = ["blocks_for_tpus"]

_LANES = 128
_SUBLANES = 8
_WORD_BITS = 32


def blocks_for_tpus(launch: BlockedLaunch) -> Decision:
    """Whether every block in VMEM lies as a TPU can copy it."""
    for one in launch.arrays:
        if one.space is MemorySpace.VMEM and (reason := _refused(one)):
            return Rejected(
                f"{one.name} has blocks of {shape_text(one.block)}, its array being {_array(one)}: {reason}"
            )
    return Accepted("its blocks are whole tiles, or have whole axes")


def _refused(one: BlockedArray) -> str:
    if not one.block:
        return 'a value without axes is no block in VMEM: use space="smem"'
    *_, last = one.block
    whole = one.padded[-1]
    if len(one.block) == 1:
        bits = _WORD_BITS if one.dtype.kind is DTypeKind.BOOL else one.dtype.bits
        least = _LANES * (_WORD_BITS // bits)
        power = last >= least and last & (last - 1) == 0
        if last == whole or last % (_LANES * _SUBLANES) == 0 or power:
            return ""
        return (
            f"a block of one axis is a multiple of {_LANES * _SUBLANES}, a power of two of {least} or more, or the "
            "whole axis"
        )
    rows = one.block[-2]
    if (last == whole or last % _LANES == 0) and (rows == one.padded[-2] or rows % _SUBLANES == 0):
        return ""
    return (
        f"the last two axes of a block are divisible by {_SUBLANES} and {_LANES}, or are all of the array's: change "
        "the block, or make the array longer with pad="
    )


def _array(one: BlockedArray) -> str:
    return f"{shape_text(one.padded)} of {one.dtype}"
