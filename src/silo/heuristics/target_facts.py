"""Target facts: what heuristics know of the device that a kernel is for, never of the machine they run on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from silo.core.target import Target
from silo.errors import SpaceError

__all__ = ["TargetFacts"]

# Multiprocessors (CUDA) or compute units (HIP) of one device of an arch, the one that most code for it is for. Of AMD's
# devices by the ROCm documentation (rocm.docs.amd.com, "AMD GPU hardware specifications"), of NVIDIA's by what stands
# beside them.
_UNITS = {
    "sm_70": 80,  # V100 (sysrqmts.com)
    "sm_75": 40,  # T4 (sysrqmts.com)
    "sm_80": 108,  # A100 (sysrqmts.com)
    "sm_86": 84,  # RTX A6000 (white paper of the RTX PRO Blackwell, table 1)
    "sm_87": 16,  # Jetson AGX Orin (its technical brief: 2048 cores, 128 a multiprocessor)
    "sm_89": 142,  # RTX 6000 Ada (as RTX A6000)
    "sm_90": 132,  # H100 SXM5 (hpctech.co.jp); 114 with PCIe
    "sm_100": 148,  # B200 (Chips and Cheese, "Nvidia's B200"): 74 a die
    "sm_103": 148,  # B300, as programs that were measured on it say
    "sm_120": 188,  # RTX PRO 6000 (as RTX A6000)
    "sm_121": 48,  # GB10 of DGX Spark (Computex 2025: 6144 cores), 128 a multiprocessor
    "gfx908": 120,  # MI100
    "gfx90a": 110,  # MI250X, each die a device; MI250 and MI210 have 104
    "gfx942": 304,  # MI300X; MI300A has 228
    "gfx950": 256,  # MI355X
    "gfx1030": 80,  # RX 6900 XT
    "gfx1100": 96,  # RX 7900 XTX
    "gfx1101": 60,  # RX 7800 XT
    "gfx1151": 40,  # Radeon 8060S (fpsbench.com)
    "gfx1201": 64,  # RX 9070 XT
}
_WITHOUT_BLOCKS = ("tpu", "metal")  # kinds of targets whose kernels do not work on blocks of a tensor
_DEFAULT_UNITS = {"cuda": 132, "hip": 304, "xpu": 64, "cpu": 8}


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What a heuristic needs of a target.

    ``kind`` and ``arch`` are the target's; ``major`` is the compute capability's first number (0 but for CUDA);
    ``warp_size`` lanes a warp; ``units`` multiprocessors, compute units or cores; ``assumed`` names the facts that come
    from a table and not from a device.
    """

    kind: str
    arch: str = ""
    major: int = 0
    warp_size: int = 32
    units: int = 132
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(cls, target: TargetFacts | Target | str, device: Mapping[str, int] | None = None) -> TargetFacts:
        """The facts of a target; ``device`` (leaves of the expression language) overrides what is assumed of its arch.

        ``SpaceError`` for a target whose kernels have no Triton blocks.

        >>> TargetFacts.of("cuda:sm_90a").units
        132
        >>> TargetFacts.of("hip:gfx942", {"sm_count": 80}).warp_size
        64
        """
        if isinstance(target, TargetFacts):
            return target
        named = Target.parse(target) if isinstance(target, str) else target
        if named.kind in _WITHOUT_BLOCKS:
            raise SpaceError(f"no heuristic knows the target {named}: they choose blocks for cuda, hip, xpu and cpu")
        known = device or {}
        units = known.get("sm_count", 0)
        # A CPU states one lane a warp; blocks for it are chosen as for 32, and no option that counts warps is given.
        warp = known.get("warp_size", 0) if named.kind != "cpu" else 32
        return cls(
            kind=named.kind,
            arch=named.arch,
            major=_major(named),
            warp_size=warp if warp > 1 else _warp_size(named),
            units=units or _units(named),
            assumed=tuple(name for name, have in (("units", units), ("warp_size", warp)) if not have),
        )

    @property
    def is_hip(self) -> bool:
        """Whether it is AMD's."""
        return self.kind == "hip"

    @property
    def is_xpu(self) -> bool:
        """Whether it is Intel's."""
        return self.kind == "xpu"

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind


def _units(target: Target) -> int:
    arch = target.arch.rstrip("af") if target.kind == "cuda" else target.arch
    return _UNITS.get(arch, _DEFAULT_UNITS.get(target.kind, 8))


def _major(target: Target) -> int:
    found = re.fullmatch(r"sm_([0-9]+)[0-9][af]?", target.arch)
    return int(found[1]) if target.kind == "cuda" and found else 0


def _warp_size(target: Target) -> int:
    """64 lanes on CDNA and GCN (gfx9 and older), 32 on RDNA (gfx10 and later) and everywhere else."""
    if target.kind != "hip":
        return 32
    found = re.match(r"gfx([0-9]{1,2}?)(?:[0-9a-f]{2}$|-)", target.arch)
    return 32 if found and int(found[1]) >= 10 else 64
