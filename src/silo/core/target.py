"""Targets: the kind and the arch that a variant is compiled for."""

from __future__ import annotations

from typing import Final

from silo.core.json_reader import Form, read_text
from silo.core.plugins import DEVICES, driver_kinds, driver_of, installed_places
from silo.core.values import JSON
from silo.errors import TargetError
from silo.frozen import frozen

__all__ = ["CPU_LEVELS", "TARGET", "Target", "read_target", "target_kinds"]

_WITHOUT_DRIVER = ("fake", "xpu")  # kinds that code is compiled for and no driver here runs

# Portable CPU levels, each list ordered so that a later level includes every earlier one.
CPU_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("x86-64-v2", "x86-64-v3", "x86-64-v4"),
    "aarch64": ("aarch64-armv8.2",),
}


@frozen
class Target:
    """The target of a variant: a kind and an arch. An empty arch means this machine's device.

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
        if kind not in target_kinds() and kind not in (others := _kinds_of_plugins()):
            raise TargetError(
                f"unknown target {text!r}: the kind {kind!r} is none of {', '.join((*target_kinds(), *others))};"
                " write for example cuda:sm_90"
            )
        if colon and not (driver := driver_of(kind)).is_arch(arch):
            raise TargetError(
                f"unknown target {text!r}: {arch!r} is not an arch of {kind}; write for example {kind}:{driver.example}"
            )
        return cls(kind, arch)

    def __lt__(self, other: Target) -> bool:
        return (self.kind, self.arch) < (other.kind, other.arch)

    @property
    def is_concrete(self) -> bool:
        """Whether the arch is named, so that it can be compiled for."""
        return bool(self.arch)

    @property
    def device_arch(self) -> str:
        """The arch of the devices that it is for, without the letters of features that code may use.

        >>> Target.parse("cuda:sm_90a").device_arch, Target.parse("hip:gfx90a").device_arch
        ('sm_90', 'gfx90a')
        """
        return self.arch.rstrip(driver_of(self.kind).suffixes)

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind


def target_kinds() -> tuple[str, ...]:
    """The kinds of targets that a bundle may name wherever it is read, sorted.

    >>> "cuda" in target_kinds(), "xpu" in target_kinds()
    (True, True)
    """
    return tuple(sorted({*driver_kinds(), *_WITHOUT_DRIVER}))


def _kinds_of_plugins() -> tuple[str, ...]:
    """The kinds of targets that others' device plug-ins add, which are looked for when a kind is not Silo's own."""
    return tuple(name for name in installed_places(DEVICES) if name not in target_kinds())


def read_target(data: JSON, what: str) -> Target:
    """A target in its own spelling, from JSON; ``what`` names it in the ``ValueError`` for anything else."""
    try:
        return Target.parse(read_text(data, what))
    except TargetError as error:
        raise ValueError(str(error)) from None


TARGET: Final[Form[Target]] = Form(read_target, str)
"""A target as a member of JSON."""
