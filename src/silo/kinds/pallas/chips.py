"""TPU chips: what jax calls them, the memory that a kernel has there, and how the compiler counts it."""

from __future__ import annotations

from silo.errors import TargetError
from silo.frozen import frozen

__all__ = ["CHIPS", "INTERPRETED_CHIP", "Chip", "chip_named"]

_MIB = 1 << 20


@frozen
class Chip:
    """One kind of chip, by the arch of its target.

    ``vmem_bytes`` is what a core has, ``vmem_default`` what the compiler lets a kernel use where nobody says more, and
    ``vmem_reserved`` what it keeps for itself. ``topology`` is the smallest one that libtpu compiles for.
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
        """The most that a kernel can be given."""
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
"""The chip that kernels are interpreted as on a CPU: ``emit_pipeline`` asks what it runs on."""


def chip_named(arch: str) -> Chip:
    """The chip of a target's arch. TargetError lists them."""
    if arch not in CHIPS:
        raise TargetError(f"no TPU is called {arch!r}; write tpu:{', tpu:'.join(CHIPS)}")
    return CHIPS[arch]
