"""The rule that decides whether a device runs an artifact: one pure function, with a case for each kind of target.

Sources of the rules:

- NVIDIA, plain forms: a cubin runs on devices of the same major compute capability and the same or a higher minor
  one (CUDA Programming Guide, "Compute Capabilities", binary compatibility).
- NVIDIA, ``a`` forms: code of an architecture-specific target runs on devices of exactly that compute capability,
  and so does PTX of one. ``f`` forms: code of a family-specific target runs on the members of its family with the
  same or a higher minor version (CUDA Programming Guide, "Feature Set Compiler Targets"; PTX ISA, ``.target``). The
  families are listed below; 10.x and 11.x are different ones.
- NVIDIA, PTX of a plain form: any device of the same or a higher compute capability.
- AMD: a code object runs on exactly its processor, one of a generic processor on the members of its list (LLVM, "User
  Guide for AMDGPU Backend", generic processors).
- CPU: the portable levels of one machine nest; code for another machine never runs.
"""

from __future__ import annotations

import re

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.target import CPU_LEVELS, Target
from silo.frozen import frozen

__all__ = ["CUDA_FAMILIES", "FIRST_SPECIFIC", "HIP_GENERIC", "capability", "runs_on", "specific_form"]

FIRST_SPECIFIC = 90
"""The compute capability from which on NVIDIA's archs have a form of their own, such as ``sm_90a``."""

# Compute capabilities that share a family, as CUDA 13 lists them; code for one member runs on it and on later ones.
CUDA_FAMILIES: tuple[tuple[int, ...], ...] = ((100, 103), (110,), (120, 121))

# Processors covered by each generic one. gfx9 leaves out the machine-learning processors, which have their own lists.
HIP_GENERIC: dict[str, frozenset[str]] = {
    "gfx9-generic": frozenset({"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"}),
    "gfx9-4-generic": frozenset({"gfx940", "gfx941", "gfx942", "gfx950"}),
    "gfx10-1-generic": frozenset({"gfx1010", "gfx1011", "gfx1012", "gfx1013"}),
    "gfx10-3-generic": frozenset({"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"}),
    "gfx11-generic": frozenset(
        {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"}
    ),
    "gfx12-generic": frozenset({"gfx1200", "gfx1201"}),
}

_SM = re.compile(r"sm_([0-9]{2,3})([af]?)")


@frozen
class _Sm:
    """A compute capability as one number (9.0 is 90) and the suffix of its target."""

    number: int
    suffix: str

    @property
    def version(self) -> tuple[int, int]:
        return divmod(self.number, 10)

    def __str__(self) -> str:
        major, minor = self.version
        return f"{major}.{minor}"


def runs_on(artifact_target: Target, device_target: Target, blob_kind: str = "") -> Decision:
    """Whether code built for ``artifact_target`` runs on a device whose own target is ``device_target``.

    Args:
        artifact_target: what the code was built for.
        device_target: the concrete target of the device; an ``a`` or ``f`` suffix of it says nothing more.
        blob_kind: ``ptx`` applies the rules of PTX; every other kind the rules of finished machine code.

    Returns:
        Accepted or Rejected, both with the rule that decided.

    >>> bool(runs_on(Target.parse("cuda:sm_80"), Target.parse("cuda:sm_86")))
    True
    >>> runs_on(Target.parse("cuda:sm_90a"), Target.parse("cuda:sm_100")).reason
    'sm_90a code runs on compute capability 9.0 only, the device has 10.0'
    """
    for target, what in ((artifact_target, "artifact"), (device_target, "device")):
        if not target.is_concrete:
            return Rejected(f"the {what}'s target {target} names no arch")
    if artifact_target.kind != device_target.kind:
        return Rejected(f"built for {artifact_target.kind}, the device is {device_target.kind}")
    match artifact_target.kind:
        case "cuda":
            return _cuda(artifact_target.arch, device_target.arch, ptx=blob_kind == "ptx")
        case "hip":
            return _hip(artifact_target.arch, device_target.arch)
        case "cpu":
            return _cpu(artifact_target.arch, device_target.arch)
        case _:
            return _exact(artifact_target.arch, device_target.arch)


def capability(target: Target) -> int:
    """The compute capability of an NVIDIA target as one number; 0 where the arch is none.

    >>> capability(Target.parse("cuda:sm_90a"))
    90
    """
    found = _sm(target.arch)
    return 0 if found is None else found.number


def specific_form(target: Target) -> Target:
    """What compilers that make code for exactly one arch make of a device's plain ``sm_90``; others as they are.

    >>> str(specific_form(Target.parse("cuda:sm_100"))), str(specific_form(Target.parse("cuda:sm_86")))
    ('cuda:sm_100a', 'cuda:sm_86')
    """
    found = _sm(target.arch) if target.kind == "cuda" else None
    plain = found is not None and not found.suffix and found.number >= FIRST_SPECIFIC
    return Target("cuda", f"{target.arch}a") if plain else target


def _exact(built: str, device: str) -> Decision:
    if built == device:
        return Accepted(f"built for exactly {device}")
    return Rejected(f"built for exactly {built}, the device is {device}")


def _sm(arch: str) -> _Sm | None:
    match = _SM.fullmatch(arch)
    return _Sm(int(match.group(1)), match.group(2)) if match else None


def _cuda(built: str, device: str, *, ptx: bool) -> Decision:
    code, here = _sm(built), _sm(device)
    if code is None or here is None:
        return Rejected(f"{built if code is None else device} is not a compute capability")
    what = f"{built} {'PTX' if ptx else 'code'}"
    if code.suffix == "a":
        if code.number == here.number:
            return Accepted(f"{what} on exactly compute capability {here}")
        return Rejected(f"{what} runs on compute capability {code} only, the device has {here}")
    if code.suffix == "f":
        return _family(what, code, here)
    if ptx:
        if here.version >= code.version:
            return Accepted(f"{what} is compiled by the driver for {here}")
        return Rejected(f"{what} needs compute capability {code} or higher, the device has {here}")
    if code.version[0] != here.version[0]:
        return Rejected(f"{what} runs on {code.version[0]}.x devices only, the device has {here}")
    if code.version[1] > here.version[1]:
        return Rejected(f"{what} needs compute capability {code} or a higher minor version, the device has {here}")
    return Accepted(f"{what} on compute capability {here}")


def _family(what: str, code: _Sm, here: _Sm) -> Decision:
    family = next((members for members in CUDA_FAMILIES if code.number in members), None)
    if family is None:
        return Rejected(f"{what}: compute capability {code} belongs to no family that is known here")
    if here.number in family and here.number >= code.number:
        return Accepted(f"{what} on compute capability {here} of its family")
    members = ", ".join(str(_Sm(number, "")) for number in family if number >= code.number)
    return Rejected(f"{what} runs on compute capability {members}, the device has {here}")


def _hip(built: str, device: str) -> Decision:
    if not built.endswith("-generic"):
        return _exact(built, device)
    covered = HIP_GENERIC.get(built)
    if covered is None:
        return Rejected(f"{built} is not a generic processor that is known here: {', '.join(HIP_GENERIC)}")
    if device in covered:
        return Accepted(f"{built} covers {device}")
    return Rejected(f"{built} covers {', '.join(sorted(covered))}, the device is {device}")


def _cpu(built: str, device: str) -> Decision:
    for machine, levels in CPU_LEVELS.items():
        if built not in levels:
            continue
        if device not in levels:
            return Rejected(f"{built} is code for {machine}, this machine is {device}")
        if levels.index(built) <= levels.index(device):
            return Accepted(f"{device} includes {built}")
        return Rejected(f"{built} needs instructions that {device} does not have")
    return Rejected(f"{built} is no CPU level that is known here")
