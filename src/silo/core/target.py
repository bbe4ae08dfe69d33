"""Targets: what a variant is compiled for."""

from __future__ import annotations

import re

from silo.errors import TargetError
from silo.frozen import frozen

__all__ = ["CPU_LEVELS", "TARGET_KINDS", "Target"]

TARGET_KINDS = ("cuda", "hip", "xpu", "cpu", "tpu", "metal", "fake")

# Portable CPU levels, each list ordered so that a later level includes every earlier one.
CPU_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("x86-64-v2", "x86-64-v3", "x86-64-v4"),
    "aarch64": ("aarch64-armv8.2",),
}

_ARCH_FORMS = {
    "cuda": r"sm_[1-9][0-9]{1,2}[af]?",
    "hip": r"gfx([0-9a-f]{3,5}|[0-9]{1,2}(-[0-9])?-generic)",
    "cpu": "|".join(re.escape(level) for levels in CPU_LEVELS.values() for level in levels),
    "metal": r"[1-9]\.[0-9]",
}
_ANY_ARCH = r"[a-z0-9][a-z0-9._-]*"
_EXAMPLES = {"cuda": "cuda:sm_90a", "hip": "hip:gfx942", "cpu": "cpu:x86-64-v3", "tpu": "tpu:v5e", "metal": "metal:3.1"}


@frozen
class Target:
    """What a variant is compiled for: a kind and an arch. An empty arch means this machine's device.

    >>> str(Target.parse("cuda:sm_90a"))
    'cuda:sm_90a'
    >>> Target.parse("cpu").is_concrete
    False
    """

    kind: str
    arch: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read ``kind`` or ``kind:arch``; ``TargetError`` names the part that is wrong."""
        kind, colon, arch = text.strip().partition(":")
        if kind not in TARGET_KINDS and kind not in (others := _kinds_of_plugins()):
            raise TargetError(
                f"unknown target {text!r}: the kind {kind!r} is none of {', '.join((*TARGET_KINDS, *others))};"
                " write for example cuda:sm_90"
            )
        form = _ARCH_FORMS.get(kind, _ANY_ARCH)
        if colon and not re.fullmatch(form, arch):
            example = _EXAMPLES.get(kind, f"{kind}:ARCH")
            reason = f"{arch!r} is not an arch of {kind}"
            raise TargetError(f"unknown target {text!r}: {reason}; write for example {example}")
        return cls(kind, arch)

    def __lt__(self, other: Target) -> bool:
        return (self.kind, self.arch) < (other.kind, other.arch)

    @property
    def is_concrete(self) -> bool:
        """Whether the arch is named, so that it can be compiled for."""
        return bool(self.arch)

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind


def _kinds_of_plugins() -> tuple[str, ...]:
    """The kinds of targets that others' device plug-ins add, which are looked for when a kind is not Silo's own."""
    from silo.core.plugins import installed_places  # noqa: PLC0415  # such kinds are rare

    return tuple(name for name in installed_places("silo.devices") if name not in TARGET_KINDS)
