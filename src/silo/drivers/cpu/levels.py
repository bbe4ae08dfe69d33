"""Portable CPU levels: the level of this machine, and the compiler flags of each level."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from silo.core.device import CPU_LEVELS, Target
from silo.errors import TargetError
from silo.frozen import field, frozen

__all__ = ["LEVELS", "CpuFacts", "CpuLevel", "gather_facts", "highest_level", "host_target", "level_of"]

_CPUINFO = Path("/proc/cpuinfo")


@frozen
class CpuLevel:
    """One level: its name in targets, the machine flags of gcc and clang, the vector width in bits.

    ``features``, in Linux's spelling, are the CPU features that it requires beyond the level below it.
    """

    name: str
    flags: tuple[str, ...]
    vector_bits: int
    features: frozenset[str]


# Up to gcc 14, a function that calls no other keeps its arrays in the red zone below the stack pointer. gcc may
# misplace them relative to its own aligned vector stores if it reaches them through copies of the stack pointer
# (https://gcc.gnu.org/PR109780). Without a red zone they are placed correctly.
_ALIGNED_ARRAYS = "-mno-red-zone"

LEVELS: Mapping[str, CpuLevel] = MappingProxyType(
    {
        level.name: level
        for level in (
            CpuLevel(
                "x86-64-v2",
                ("-march=x86-64-v2", _ALIGNED_ARRAYS),
                128,
                frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
            ),
            CpuLevel(
                "x86-64-v3",
                ("-march=x86-64-v3", _ALIGNED_ARRAYS),
                256,
                frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
            ),
            CpuLevel(
                "x86-64-v4",
                ("-march=x86-64-v4", "-mprefer-vector-width=512", _ALIGNED_ARRAYS),
                512,
                frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
            ),
            CpuLevel(
                "aarch64-armv8.2",
                ("-march=armv8.2-a",),
                128,
                frozenset({"fp", "asimd", "atomics", "crc32", "asimdrdm", "dcpop"}),
            ),
        )
    }
)


@frozen
class CpuFacts:
    """The operating system's report on the CPU: the machine (``x86_64``, ``aarch64``), its model and its features."""

    machine: str
    model: str = ""
    features: frozenset[str] = field(default=frozenset[str]())


def highest_level(facts: CpuFacts) -> str | None:
    """Returns the highest level whose own features and all features of lower levels are present; or None.

    >>> highest_level(CpuFacts("x86_64", features=LEVELS["x86-64-v2"].features))
    'x86-64-v2'
    """
    family = {"x86_64": "x86-64", "AMD64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}.get(facts.machine, "")
    highest: str | None = None
    for name in CPU_LEVELS.get(family, ()):
        if not LEVELS[name].features <= facts.features:
            break
        highest = name
    return highest


def level_of(target: Target) -> CpuLevel:
    """Returns the level that a concrete CPU target names. Raises TargetError for any other target."""
    if target.kind != "cpu" or target.arch not in LEVELS:
        raise TargetError(f"{target} names no CPU level; write one of {', '.join(f'cpu:{name}' for name in LEVELS)}")
    return LEVELS[target.arch]


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Returns the model name, and the features that all CPUs have, from the text of ``/proc/cpuinfo``."""
    model = ""
    shared: frozenset[str] | None = None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if key == "model name" and not model:
            model = value
        elif key in ("flags", "Features"):
            shared = _intersect(shared, value.split())
    return model, frozenset() if shared is None else shared


def _intersect(shared: frozenset[str] | None, features: Iterable[str]) -> frozenset[str]:
    return frozenset(features) if shared is None else shared & frozenset(features)


@cache
def gather_facts() -> CpuFacts:
    """Reads the facts of this machine. The features are empty if the system does not report them as Linux does."""
    try:
        model, features = parse_cpuinfo(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        model, features = "", frozenset[str]()
    return CpuFacts(platform.machine(), model or platform.processor(), features)


def host_target() -> Target:
    """Returns the target that ``cpu`` means on this machine. Raises TargetError if the CPU is below every level."""
    facts = gather_facts()
    name = highest_level(facts)
    if name is None:
        raise TargetError(
            f"this CPU ({facts.model or 'of unknown model'}, {facts.machine}) reaches none of the levels "
            f"{', '.join(LEVELS)}: a feature is missing, or the system hides /proc/cpuinfo"
        )
    return Target("cpu", name)
