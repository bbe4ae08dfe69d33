"""Which variants to build, and why. Pure: everything it decides on is passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from silo.core.config import Config
from silo.core.origins import Origin, default_origin
from silo.core.protocols import Heuristic
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.variant import Variant
from silo.errors import SpaceError

__all__ = ["MAX_NEIGHBOURS", "Chosen", "PlanCase", "PlanKernel", "PlannedVariant", "first_config", "plan_variants"]

# How many neighbours of the config that was chosen unmeasured are built for a target that nothing here can measure.
MAX_NEIGHBOURS = 2


def first_config(target: Target, configs: Sequence[Config], hints: Mapping[str, int]) -> Sequence[Config]:
    """The heuristic where there is none: the order of the space itself."""
    del target, hints
    return configs


def _itself(target: Target) -> Target:
    return target


def _no_neighbours(config: Config) -> Sequence[Config]:
    del config
    return ()


class Chosen(NamedTuple):
    """A config that was decided on for a case before the plan, and by what."""

    config: Config
    origin: Origin = Origin.BUCKET


@dataclass(frozen=True, slots=True)
class PlanCase:
    """What one case asks for: its typed signature, what its arguments allow to assume, its sizes for the heuristic.

    ``configs`` narrows the kernel's space where a constraint reads the case's arguments; None is the whole space.
    ``ruled`` where a heuristic made them, its best guess first.
    """

    label: str
    signature: Signature
    specialization: Specialization
    hints: Mapping[str, int] = field(default_factory=dict[str, int])
    configs: tuple[Config, ...] | None = None
    ruled: bool = False


@dataclass(frozen=True, slots=True)
class PlanKernel:
    """One kernel to plan for.

    ``configs`` is its space in order, ``(Config(),)`` for a kernel without one. ``neighbours`` gives the configs one
    step in one parameter away (``Space.neighbours``).
    """

    name: str
    fingerprint: str
    cases: tuple[PlanCase, ...]
    configs: tuple[Config, ...] = (Config(),)
    neighbours: Callable[[Config], Sequence[Config]] = _no_neighbours


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A variant to build. ``reasons`` says why it is in the plan, ``cases`` whom it serves; both in order.

    ``generic`` marks the fallback that assumes nothing of alignment, divisibility or an integer being 1. ``origin``
    says what chose its config first.
    """

    variant: Variant
    reasons: tuple[str, ...]
    cases: tuple[str, ...]
    generic: bool
    origin: Origin = Origin.ONLY


# By variant, and whether it is a fallback: what chose its config, why it is there, whom it serves.
_Entries: TypeAlias = "dict[tuple[Variant, bool], tuple[Origin, list[str], list[str]]]"


def plan_variants(
    kernels: Iterable[PlanKernel],
    targets: Iterable[Target],
    *,
    winners: Mapping[tuple[str, str, Target], Chosen] | None = None,
    has_device: Callable[[Target], bool],
    heuristic: Heuristic = first_config,
    canonical: Callable[[Target], Target] = _itself,
) -> tuple[PlannedVariant, ...]:
    """Every variant that a build needs, without repetition, in a fixed order.

    For each kernel: the specializations of its cases, then one generic fallback per dtype signature. For each target:
    the measured winner of a case where one is known; otherwise the heuristic's choice (without one, the first config)
    and, where no device of that target is here to measure on, up to two of its neighbours besides.

    Args:
        kernels: what to plan for.
        targets: concrete targets.
        winners: what the lock or measurements say, by kernel name, case label and target (as in ``targets``).
        has_device: whether variants of a target can be measured here.
        heuristic: orders a space for a target and sizes, best guess first.
        canonical: what code for a target is really for (``sm_90`` and ``sm_90a`` may be one); variants carry that.

    Raises:
        SpaceError: a space without configs, or a heuristic that leaves none.
    """
    known = winners or {}
    planned: _Entries = {}
    distinct = _distinct(targets, canonical)
    for kernel in kernels:
        for target in distinct:
            chooser = _Chooser(kernel, target, known, heuristic, measured_here=has_device(target))
            for case in kernel.cases:
                for config, origin, reason in chooser.configs(case):
                    variant = _variant(kernel, case.signature, case.specialization, config, canonical(target))
                    _add(planned, variant, origin, f"case {case.label}: {reason}", case.label, generic=False)
            for case, specialization, labels in _fallbacks(kernel):
                # One config serves every key that no variant was made for, so its neighbours would only add bytes.
                config, origin, reason = chooser.configs(case)[0]
                variant = _variant(kernel, case.signature, specialization, config, canonical(target))
                _add(planned, variant, origin, f"fallback that assumes nothing: {reason}", *labels, generic=True)
    return _merged(planned)


def _distinct(targets: Iterable[Target], canonical: Callable[[Target], Target]) -> tuple[Target, ...]:
    """The targets in order, the first of each that are the same for the compiler."""
    first: dict[Target, Target] = {}
    for target in targets:
        first.setdefault(canonical(target), target)
    return tuple(first.values())


@dataclass(frozen=True, slots=True)
class _Chooser:
    """Which configs to build of one kernel for one target."""

    kernel: PlanKernel
    target: Target
    winners: Mapping[tuple[str, str, Target], Chosen]
    heuristic: Heuristic
    measured_here: bool

    def configs(self, case: PlanCase) -> list[tuple[Config, Origin, str]]:
        winner = self.winners.get((self.kernel.name, case.label, self.target))
        if winner is not None:
            return [(winner.config, winner.origin, f"{winner.origin.phrase} on {self.target}")]
        configs = self.kernel.configs if case.configs is None else case.configs
        if not configs:
            raise SpaceError(f"{self.kernel.name}: no config of its space can be used in the case {case.label}")
        ordered = tuple(self.heuristic(self.target, configs, case.hints))
        if not ordered:
            raise SpaceError(f"{self.kernel.name}: the heuristic leaves no config for {self.target}, case {case.label}")
        choice = ordered[0]
        # Not the number that the heuristic leaves: what it left out was there to be chosen.
        origin = default_origin(len(configs), ruled=case.ruled or self.heuristic is not first_config)
        if origin is Origin.ONLY:
            return [(choice, origin, f"{origin.phrase} there is for {self.target}")]
        if self.measured_here:
            return [(choice, origin, f"{origin.phrase} for {self.target}, not measured yet")]
        near = [config for config in self.kernel.neighbours(choice) if config in configs and config != choice]
        ranks = {config: rank for rank, config in enumerate(ordered)}
        near.sort(key=lambda config: ranks.get(config, len(ranks)))  # stable: ties stay in the space's order
        chosen = [(choice, origin, f"{origin.phrase}: no {self.target} is here to measure on")]
        return chosen + [
            (config, origin, f"a neighbour of {origin.phrase} for {self.target}") for config in near[:MAX_NEIGHBOURS]
        ]


def _variant(
    kernel: PlanKernel, signature: Signature, specialization: Specialization, config: Config, target: Target
) -> Variant:
    return Variant(kernel.name, kernel.fingerprint, signature, specialization, config, target)


def _fallbacks(kernel: PlanKernel) -> list[tuple[PlanCase, Specialization, tuple[str, ...]]]:
    """For each dtype signature: its first case, the specialization without assumptions, the labels of its cases.

    Arguments that are None, block shapes and constexpr values given by the caller stay: they are no assumptions about
    values but part of which code this is.
    """
    groups: dict[tuple[Signature, Specialization], tuple[PlanCase, list[str]]] = {}
    for case in kernel.cases:
        kept = tuple((name, fact) for name, fact in case.specialization.facts if not fact.is_assumption)
        generic = Specialization(kept, case.specialization.constants)
        groups.setdefault((case.signature, generic), (case, []))[1].append(case.label)
    return [(case, generic, tuple(labels)) for (_, generic), (case, labels) in groups.items()]


def _add(planned: _Entries, variant: Variant, origin: Origin, reason: str, *labels: str, generic: bool) -> None:
    _, reasons, cases = planned.setdefault((variant, generic), (origin, [], []))
    if reason not in reasons:
        reasons.append(reason)
    cases.extend(label for label in labels if label not in cases)


def _merged(planned: _Entries) -> tuple[PlannedVariant, ...]:
    """A case without any assumption asks for the fallback itself: one variant then serves as both."""
    merged: dict[Variant, PlannedVariant] = {}
    for (variant, generic), (origin, reasons, cases) in planned.items():
        before = merged.get(variant)
        if before is None:
            merged[variant] = PlannedVariant(variant, tuple(reasons), tuple(cases), generic, origin)
        else:
            merged[variant] = PlannedVariant(
                variant,
                (*before.reasons, *reasons),
                tuple(dict.fromkeys((*before.cases, *cases))),
                before.generic or generic,
                before.origin,
            )
    return tuple(merged.values())
