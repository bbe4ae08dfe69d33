"""Target facts: what heuristics know of the device that a kernel is for, never of the machine they run on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from silo.core.target import Target
from silo.errors import SpaceError

__all__ = ["TargetFacts"]

# Multiprocessors (CUDA) or compute units (HIP) of the largest common device of an arch, from the vendors' data sheets.
_UNITS = {
    "sm_70": 80,
    "sm_75": 40,
    "sm_80": 108,
    "sm_86": 84,
    "sm_87": 16,
    "sm_89": 142,
    "sm_90": 132,
    "sm_100": 148,
    "sm_103": 148,
    "sm_120": 188,
    "sm_121": 48,
    "gfx908": 120,
    "gfx90a": 104,
    "gfx942": 304,
    "gfx950": 256,
    "gfx1030": 80,
    "gfx1100": 96,
    "gfx1101": 60,
    "gfx1151": 40,
    "gfx1201": 64,
}
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
        if named.kind not in ("cuda", "hip", "xpu", "cpu", "fake"):
            raise SpaceError(
                f"no heuristic knows the target {named}: they choose blocks of Triton kernels (cuda, hip, xpu, cpu)"
            )
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
