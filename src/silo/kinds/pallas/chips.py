"""TPU chips: jax's names for them, their memory for a kernel, and the blocks they accept. Does not import jax."""

from __future__ import annotations

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.extents import shape_text
from silo.core.values import DTypeKind
from silo.errors import TargetError
from silo.frozen import frozen
from silo.kinds.pallas.front.launch_spec import MemorySpace
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch

__all__ = ["CHIPS", "INTERPRETED_CHIP", "Chip", "blocks_for_tpus", "chip_named"]

# ---- TPU chips: jax's names, and the memory for a kernel as the compiler counts it ----

_MIB = 1 << 20


@frozen
class Chip:
    """A kind of chip, by the arch of its target.

    ``vmem_bytes`` is the VMEM of a core, ``vmem_default`` the compiler's limit for a kernel that sets none, and
    ``vmem_reserved`` the part that the compiler reserves. ``topology`` is the smallest topology that libtpu compiles
    for.
    """

    arch: str
    device_kind: str
    vmem_bytes: int
    vmem_default: int
    smem_bytes: int
    topology: str
    vmem_reserved: int = 0

    @property
    def vmem_ceiling(self) -> int:
        """The most VMEM that a kernel can use, in bytes."""
        return self.vmem_bytes - self.vmem_reserved


CHIPS = {
    one.arch: one
    for one in (
        Chip("v4", "TPU v4", 16 * _MIB, 16 * _MIB, _MIB, "v4:2x2x1"),
        Chip("v5e", "TPU v5 lite", 128 * _MIB, 16 * _MIB, _MIB, "v5e:2x2"),
        Chip("v5p", "TPU v5", 64 * _MIB, 16 * _MIB, _MIB, "v5p:2x2x1", _MIB // 16),
        Chip("v6e", "TPU v6 lite", 128 * _MIB, 32 * _MIB, _MIB, "v6e:2x2", _MIB // 16),
        Chip("7x", "TPU7x", 64 * _MIB, 32 * _MIB, _MIB, "tpu7x:2x2x1", _MIB // 16),
    )
}
"""The chips that Silo compiles for, by arch. Measured with the compiler of libtpu 0.0.42."""

INTERPRETED_CHIP = "v5e"
"""The chip that a CPU imitates when it interprets kernels: ``emit_pipeline`` depends on the kind of chip."""


def chip_named(arch: str) -> Chip:
    """Returns the chip of a target's arch. Raises TargetError, which lists the chips."""
    if arch not in CHIPS:
        raise TargetError(f"no TPU is called {arch!r}; write tpu:{', tpu:'.join(CHIPS)}")
    return CHIPS[arch]


# ---- The blocks that a TPU accepts, checked before tracing ----

_LANES = 128
_SUBLANES = 8
_WORD_BITS = 32


def blocks_for_tpus(launch: BlockedLaunch) -> Decision:
    """Accepted if a TPU can copy the blocks of all arrays in VMEM; otherwise rejected with the reason."""
    for array in launch.arrays:
        if array.space is MemorySpace.VMEM and (reason := _refused(array)):
            return Rejected(
                f"{array.name} has blocks of {shape_text(array.block)}, its array being {_array(array)}: {reason}"
            )
    return Accepted("its blocks are whole tiles, or have whole axes")


def _refused(blocked_array: BlockedArray) -> str:
    if not blocked_array.block:
        return 'a value without axes is no block in VMEM: use space="smem"'
    *_, last = blocked_array.block
    last_extent = blocked_array.padded[-1]
    if len(blocked_array.block) == 1:
        bits = _WORD_BITS if blocked_array.dtype.kind is DTypeKind.BOOL else blocked_array.dtype.bits
        minimum = _LANES * (_WORD_BITS // bits)
        power = last >= minimum and last & (last - 1) == 0
        if last == last_extent or last % (_LANES * _SUBLANES) == 0 or power:
            return ""
        return (
            f"a block of one axis is a multiple of {_LANES * _SUBLANES}, a power of two of {minimum} or more, or the "
            "whole axis"
        )
    rows = blocked_array.block[-2]
    if (last == last_extent or last % _LANES == 0) and (rows == blocked_array.padded[-2] or rows % _SUBLANES == 0):
        return ""
    return (
        f"the last two axes of a block are divisible by {_SUBLANES} and {_LANES}, or are all of the array's: change "
        "the block, or make the array longer with pad="
    )


def _array(blocked_array: BlockedArray) -> str:
    return f"{shape_text(blocked_array.padded)} of {blocked_array.dtype}"
