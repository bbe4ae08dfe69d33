"""The pairs of a kernel and a target that a bundle is built of, and the pairs that are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from silo.core.decisions import Decision, Rejected
from silo.core.target import Target
from silo.errors import TargetError

__all__ = ["LeftOut", "Pairs", "pair_kernels"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A kernel that is not built for a target, and why."""

    kernel: str
    target: str
    reason: str

    def __str__(self) -> str:
        """The first line of the reason; the reason of each plug-in follows it."""
        return f"{self.kernel} is left out for {self.target}: {self.reason.partition(chr(10))[0].rstrip(':')}"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The targets that each kernel is built for, by the kernel's name, and the pairs that are left out."""

    targets: Mapping[str, tuple[Target, ...]]
    left_out: tuple[LeftOut, ...] = ()


def pair_kernels(kernels: Mapping[str, Callable[[Target], Decision]], targets: Sequence[Target]) -> Pairs:
    """Pair each kernel with the targets that its decision accepts. Pure.

    Raises:
        TargetError: a kernel that no target accepts, or a target that no kernel does; each with the reasons.
    """
    decisions = {name: {target: decide(target) for target in targets} for name, decide in kernels.items()}
    found: dict[str, tuple[Target, ...]] = {}
    left_out: list[LeftOut] = []
    for name, by_target in decisions.items():
        found[name] = tuple(target for target, decision in by_target.items() if decision)
        refused = {target: one.reason for target, one in by_target.items() if isinstance(one, Rejected)}
        if not found[name] and refused:
            raise TargetError(_nothing(f"{name} is for none of the targets", refused.values()))
        left_out += [LeftOut(name, str(target), reason) for target, reason in refused.items()]
    for target in targets:
        if kernels and not any(target in paired for paired in found.values()):
            reasons = [one.reason for one in left_out if one.target == str(target)]
            raise TargetError(_nothing(f"no kernel is for {target}", reasons))
    return Pairs(found, tuple(left_out))


def _nothing(what: str, reasons: Iterable[str]) -> str:
    said = dict.fromkeys(reasons)
    return f"{what}; name other targets, or other kernels:" + "".join(f"\n{reason}" for reason in said)
