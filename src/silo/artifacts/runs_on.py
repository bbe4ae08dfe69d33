"""The rule that decides whether a device runs an artifact, and the forms of NVIDIA's targets.

The native module implements the rule (``native/core/runs_on.c``) and also uses it to choose among the variants of a
bundle. The parts of the rule and their sources:

- NVIDIA, plain forms: a cubin runs on devices of the same major compute capability and the same or a higher minor
  one (CUDA Programming Guide, "Compute Capabilities", binary compatibility).
- NVIDIA, ``a`` forms: code of an architecture-specific target runs on devices of exactly that compute capability,
  and so does its PTX. ``f`` forms: code of a family-specific target runs on the members of its family with the
  same or a higher minor version (CUDA Programming Guide, "Feature Set Compiler Targets"; PTX ISA, ``.target``).
  10.x and 11.x are different families.
- NVIDIA, PTX of a plain form: runs on any device of the same or a higher compute capability.
- AMD: a code object runs on exactly its processor, or, if built for a generic processor, on the processors that LLVM
  lists for it (LLVM, "User Guide for AMDGPU Backend", generic processors).
- CPU: code for one of the portable levels runs on machines of the same or a higher level of that architecture; code
  for another architecture never runs.
"""

from __future__ import annotations

import re

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.errors import native_missing

try:
    from silo._native import runs_on as _decided
except ImportError as error:
    raise native_missing(error) from error

__all__ = ["FIRST_SPECIFIC", "capability", "runs_on", "specific_form"]

FIRST_SPECIFIC = 90
"""The lowest compute capability whose archs have an architecture-specific form, for example ``sm_90a``."""

_SM = r"sm_([0-9]{2,3})([af]?)"  # compiled when first used, because a launch from a bundle never needs it


def runs_on(artifact_target: Target, device_target: Target, blob_kind: str = "") -> Decision:
    """Decides whether code built for ``artifact_target`` runs on a device whose own target is ``device_target``.

    Args:
        artifact_target: the target that the code was built for.
        device_target: the concrete target of the device; its ``a`` or ``f`` suffix is ignored.
        blob_kind: ``ptx`` applies the rules of PTX; every other kind the rules of finished machine code.

    Returns:
        Accepted or Rejected, both with the part of the rule that decided.

    >>> bool(runs_on(Target.parse("cuda:sm_80"), Target.parse("cuda:sm_86")))
    True
    >>> runs_on(Target.parse("cuda:sm_90a"), Target.parse("cuda:sm_100")).reason
    'sm_90a code runs on compute capability 9.0 only, the device has 10.0'
    """
    runs, reason = _decided(str(artifact_target), str(device_target), blob_kind)
    return Accepted(reason) if runs else Rejected(reason)


def capability(target: Target) -> int:
    """Returns the compute capability of an NVIDIA target as one number; 0 if the arch is not NVIDIA's.

    >>> capability(Target.parse("cuda:sm_90a"))
    90
    """
    match = re.fullmatch(_SM, target.arch)
    return 0 if match is None else int(match.group(1))


def specific_form(target: Target) -> Target:
    """Returns the target that a compiler uses if its code is for a single arch: ``sm_90a`` in place of ``sm_90``.

    A target without such a form is returned unchanged.

    >>> str(specific_form(Target.parse("cuda:sm_100"))), str(specific_form(Target.parse("cuda:sm_86")))
    ('cuda:sm_100a', 'cuda:sm_86')
    """
    match = re.fullmatch(_SM, target.arch)
    plain = match is not None and not match.group(2) and int(match.group(1)) >= FIRST_SPECIFIC
    return Target(target.kind, f"{target.arch}a") if plain else target
