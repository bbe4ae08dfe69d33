"""The members of a backend that Triton reads before it compiles anything.

Light: kernels that are kept need no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silo.core.target import Target
from silo.drivers.cpu.levels import host_target, level_of
from silo.kinds.triton.front.adapter import CpuFrontEnd, cpu_target
from silo.settings import settings

__all__ = ["concrete_target", "front_end", "parse_options"]


def concrete_target(target: Any) -> Target:  # noqa: ANN401  # Triton's
    """Silo's target for one of Triton's; without an arch, as torch gives it, it is this machine's level."""
    return Target("cpu", target.arch) if target.arch else host_target()


def front_end(target: Any) -> CpuFrontEnd:  # noqa: ANN401  # Triton's
    """The front end for one of Triton's targets. ``TargetError``: it names no level of CPUs."""
    concrete = concrete_target(target)
    level_of(concrete)
    return CpuFrontEnd(cpu_target(concrete))


def parse_options(front: CpuFrontEnd, given: Mapping[str, Any]) -> Any:  # noqa: ANN401  # the front end's
    """See the front end; with checks on, assertions are kept and Triton adds none of its own."""
    checked = {"debug": True, "sanitize_overflow": False} if settings().check else {}
    return front.parse_options({**given, **checked})
