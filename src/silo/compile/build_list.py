"""The plan of a build: which variants to compile, and why. Reads no state; its functions get all data as arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from silo.core.config import Config
from silo.core.decisions import Decision, Origin, Rejected, default_origin
from silo.core.device import Target
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.errors import SpaceError, TargetError

__all__ = [
    "DEFAULT_CODE_BYTES",
    "DEFAULT_CONFIGS",
    "BuildCase",
    "BuildKernel",
    "BuildVariant",
    "Chosen",
    "LeftOut",
    "Packing",
    "Pairs",
    "first_of",
    "pair_kernels",
    "plan_variants",
    "within_bytes",
]


# ---- The configs that a build packs for a target without a measured winner ----


# The most configs that are packed for each case: more than most spaces have, at the cost of some minutes of compiling
# on few cores.
DEFAULT_CONFIGS = 128
DEFAULT_CODE_BYTES = 64 << 20  # the most bytes of code for each kernel and target, before compression

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Packing:
    """The most configs to pack for each case, and the most bytes of code for each kernel and target; None: no limit.

    By default, a case with a winner that was measured on a device of this machine gets only this winner. With
    ``everywhere``, it gets as many configs as any other case.
    """

    configs: int | None = DEFAULT_CONFIGS
    code_bytes: int | None = DEFAULT_CODE_BYTES
    everywhere: bool = False

    @classmethod
    def parse(cls, text: str | None) -> Packing:
        """Parses the value of ``--configs``; None is the default.

        Raises ``SpaceError`` for a text that is neither a number nor ``all``.

        >>> Packing.parse("all").configs, Packing.parse("12").configs, Packing.parse(None).configs
        (None, 12, 128)
        """
        if text is None:
            return cls()
        if text != "all" and (not text.isdecimal() or int(text) < 1):
            raise SpaceError(f"--configs {text}: it is a number of configs from 1 on, or all")
        return cls(None if text == "all" else int(text), None, everywhere=True)


def first_of(
    ordered: Sequence[Config], neighbours: Callable[[Config], Iterable[Config]], limit: int | None
) -> tuple[Config, ...]:
    """Returns at most ``limit`` of the configs, beginning with the first of ``ordered``.

    If not all fit, the neighbours of the first config come next, because the first may be nearly right. Then come
    configs from all over the space, in an order unrelated to the space's own, as neighbouring configs of the space are
    alike.
    """
    if limit is None or len(ordered) <= limit:
        return tuple(ordered)
    choice = ordered[0]
    places = {config.order_key: position for position, config in enumerate(ordered)}
    near = {config.order_key for config in neighbours(choice)}

    def preference(config: Config) -> tuple[bool, bool, int, bytes]:
        key = config.order_key
        return key != choice.order_key, key not in near, places[key] if key in near else 0, hashlib.sha256(key).digest()

    return tuple(sorted(ordered, key=preference)[:limit])


def within_bytes(sizes: Iterable[tuple[T, int, Sequence[tuple[str, int]]]], limit: int | None) -> frozenset[T]:
    """Returns the items whose blobs, pairs of sha256 and size, fit into a limit of bytes; equal blobs count once.

    Each item comes with its rank. Items of rank 0 always stay. The others are taken by rank, then in the given order.
    """
    items: set[T] = set()
    counted: set[str] = set()
    total = 0
    for item, rank, blobs in sorted(sizes, key=lambda one: one[1]):
        new = {sha256: size for sha256, size in blobs if sha256 not in counted}
        if rank and limit is not None and total + sum(new.values()) > limit:
            continue
        items.add(item)
        counted |= set(new)
        total += sum(new.values())
    return frozenset(items)


# ---- The plan of a build ----


def _itself(target: Target) -> Target:
    return target


def _no_neighbours(config: Config) -> Sequence[Config]:
    del config
    return ()


class Chosen(NamedTuple):
    """A config that was chosen for a case before the plan, and its decision source."""

    config: Config
    origin: Origin = Origin.BUCKET


@dataclass(frozen=True, slots=True)
class BuildCase:
    """One case of a kernel: its typed signature and the specialization that its arguments allow.

    ``configs`` is the part of the kernel's space that constraints allow for the case's arguments; None is the whole
    space. ``ruled``: a heuristic made the configs, its best guess first.
    """

    label: str
    signature: Signature
    specialization: Specialization
    configs: tuple[Config, ...] | None = None
    ruled: bool = False


@dataclass(frozen=True, slots=True)
class BuildKernel:
    """A kernel to plan for.

    ``configs`` is its space in order, ``(Config(),)`` for a kernel without one. ``neighbours`` returns the configs that
    differ by one step in one parameter (``Space.neighbours``). ``has_fallback`` is False if the code is made for
    certain extents: then calls that differ from all cases are not served.
    """

    name: str
    fingerprint: str
    cases: tuple[BuildCase, ...]
    configs: tuple[Config, ...] = (Config(),)
    neighbours: Callable[[Config], Sequence[Config]] = _no_neighbours
    has_fallback: bool = True


@dataclass(frozen=True, slots=True)
class BuildVariant:
    """A variant to build. ``reasons`` are the reasons for it, ``cases`` the cases that it serves; both in order.

    ``leads`` are the cases for which a measurement or a heuristic chose its config: calls like these cases use the
    variant until another config is measured. ``generic`` marks the fallback, which assumes nothing about alignment,
    divisibility or an integer being 1. ``origin`` is the decision source of its config for the first case.
    """

    variant: Variant
    reasons: tuple[str, ...]
    cases: tuple[str, ...]
    generic: bool
    origin: Origin = Origin.ONLY
    leads: tuple[str, ...] = ()

    def serving(self, variant: Variant, cases: Sequence[str]) -> BuildVariant:
        """Returns a copy of this entry that serves only ``cases`` and builds ``variant``.

        Reasons that are about other cases are left out.
        """
        others = tuple(_said_of(label) for label in self.cases if label not in cases)
        return replace(
            self,
            variant=variant,
            reasons=tuple(reason for reason in self.reasons if not reason.startswith(others)),
            cases=tuple(cases),
            leads=tuple(label for label in self.leads if label in cases),
        )


def _said_of(case: str) -> str:
    """Returns the prefix of reasons that are about one case."""
    return f"case {case}: "


def plan_variants(
    kernels: Iterable[BuildKernel],
    targets: Iterable[Target],
    *,
    winners: Mapping[tuple[str, str, Target], Chosen] | None = None,
    has_device: Callable[[Target], bool],
    canonical: Callable[[Target], Target] = _itself,
    packing: Packing = Packing(),  # a shared default is safe: Packing is immutable
) -> tuple[BuildVariant, ...]:
    """Returns every variant that a build needs, each once, in a fixed order.

    For each kernel: the specializations of its cases, then one generic fallback per dtype signature, unless its code is
    made for certain extents. For each target: the measured winner of a case if it is known. Otherwise the first config
    (a heuristic may have put it first) and, if this machine has no device of that target to measure on, as much more of
    the space as ``packing`` allows, so that the space can be tuned on a device later.

    Args:
        kernels: the kernels to build.
        targets: concrete targets.
        winners: the winners of the lock or of measurements, by kernel name, case label and target (as in ``targets``).
        has_device: whether variants of a target can be measured here.
        canonical: maps a target to the target that code is compiled for (``sm_90`` and ``sm_90a`` may be one), which
            variants carry.
        packing: how many configs of a case to pack.

    Raises:
        SpaceError: a space without configs.
    """
    winners_by_case = winners or {}
    planned: dict[tuple[Variant, bool], _Entry] = {}
    distinct = _distinct(targets, canonical)
    for kernel in kernels:
        for target in distinct:
            chooser = _Chooser(kernel, target, winners_by_case, packing, measured_here=has_device(target))
            for case in kernel.cases:
                for rank, (config, origin, reason) in enumerate(chooser.configs(case)):
                    variant = _variant(kernel, case.signature, case.specialization, config, canonical(target))
                    entry = planned.setdefault((variant, False), _Entry(origin))
                    entry.add(_said_of(case.label) + reason, case.label, leads=rank == 0)
            for case, specialization, labels in _fallbacks(kernel):
                # The fallback serves all calls without a variant of their own, with this one config: a fallback for
                # each further config would add bytes and serve no more calls.
                config, origin, reason = chooser.configs(case)[0]
                variant = _variant(kernel, case.signature, specialization, config, canonical(target))
                entry = planned.setdefault((variant, True), _Entry(origin))
                entry.add(f"fallback that assumes nothing: {reason}", *labels, leads=False)
    return _merged(planned)


def _distinct(targets: Iterable[Target], canonical: Callable[[Target], Target]) -> tuple[Target, ...]:
    """Returns the targets in order; of targets that are the same to the compiler, only the first."""
    first: dict[Target, Target] = {}
    for target in targets:
        first.setdefault(canonical(target), target)
    return tuple(first.values())


@dataclass(frozen=True, slots=True)
class _Chooser:
    """Chooses the configs to build for a kernel and a target."""

    kernel: BuildKernel
    target: Target
    winners: Mapping[tuple[str, str, Target], Chosen]
    packing: Packing
    measured_here: bool

    def configs(self, case: BuildCase) -> list[tuple[Config, Origin, str]]:
        """Returns the configs to build, each with its decision source and reason; calls use the first."""
        winner = self.winners.get((self.kernel.name, case.label, self.target))
        if winner is not None:
            chosen = (winner.config, winner.origin, f"{winner.origin.phrase} on {self.target}")
            if not self.packing.everywhere:
                return [chosen]
            remaining = [config for config in self._ordered(case)[0] if config != winner.config]
            return [chosen, *self._packed([winner.config, *remaining], Origin.FIRST)]
        ordered, origin = self._ordered(case)
        if origin is Origin.ONLY:
            return [(ordered[0], origin, f"{origin.phrase} there is for {self.target}")]
        packed = self._packed(ordered, origin)
        if self.measured_here:
            chosen = (ordered[0], origin, f"{origin.phrase} for {self.target}, not measured yet")
            return [chosen, *packed] if self.packing.everywhere else [chosen]
        return [(ordered[0], origin, f"{origin.phrase}: no {self.target} is here to measure on"), *packed]

    def _ordered(self, case: BuildCase) -> tuple[Sequence[Config], Origin]:
        """Returns the case's configs, best guess first, and the decision source of that guess.

        Raises ``SpaceError`` without a valid config.
        """
        configs = self.kernel.configs if case.configs is None else case.configs
        if not configs:
            raise SpaceError(f"{self.kernel.name}: no config of its space can be used in the case {case.label}")
        return tuple(configs), default_origin(len(configs), ruled=case.ruled)

    def _packed(self, ordered: Sequence[Config], origin: Origin) -> list[tuple[Config, Origin, str]]:
        """Returns the configs to pack besides the first. A process that uses the bundle measures them."""
        packed = first_of(ordered, self._neighbours, self.packing.configs)
        reason = f"one of {len(packed)} configs to measure on {self.target}"
        if len(packed) < len(ordered):
            reason += f", of {len(ordered)} that the space has"
        return [(config, origin, reason) for config in packed[1:]]

    def _neighbours(self, config: Config) -> Sequence[Config]:
        # A winner may be a refinement, which the space does not contain.
        return self.kernel.neighbours(config) if config in self.kernel.configs else ()


@dataclass(slots=True)
class _Entry:
    """The entry of a variant while the plan is made: its config's decision source, its reasons, and its cases."""

    origin: Origin
    reasons: list[str] = field(default_factory=list[str])
    cases: list[str] = field(default_factory=list[str])
    leads: list[str] = field(default_factory=list[str])

    def add(self, reason: str, *labels: str, leads: bool) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.cases.extend(label for label in labels if label not in self.cases)
        if leads:
            self.leads.extend(label for label in labels if label not in self.leads)


def _variant(
    kernel: BuildKernel, signature: Signature, specialization: Specialization, config: Config, target: Target
) -> Variant:
    return Variant(kernel.name, kernel.fingerprint, signature, specialization, config, target)


def _fallbacks(kernel: BuildKernel) -> list[tuple[BuildCase, Specialization, tuple[str, ...]]]:
    """Returns for each dtype signature: its first case, the specialization without assumptions, its cases' labels.

    Arguments that are None, block shapes and constexpr values given by the caller stay in the specialization, because
    code for other values could not serve the calls.
    """
    groups: dict[tuple[Signature, Specialization], tuple[BuildCase, list[str]]] = {}
    for case in kernel.cases if kernel.has_fallback else ():
        lasting_facts = tuple((name, fact) for name, fact in case.specialization.facts if not fact.is_assumption)
        generic = Specialization(lasting_facts, case.specialization.constants)
        groups.setdefault((case.signature, generic), (case, []))[1].append(case.label)
    return [(case, generic, tuple(labels)) for (_, generic), (case, labels) in groups.items()]


def _merged(planned: Mapping[tuple[Variant, bool], _Entry]) -> tuple[BuildVariant, ...]:
    """Merges entries of equal variants: if a case's variant assumes nothing, it is also the fallback."""
    merged: dict[Variant, BuildVariant] = {}
    for (variant, generic), entry in planned.items():
        before = merged.get(variant) or BuildVariant(variant, (), (), generic=False, origin=entry.origin)
        merged[variant] = BuildVariant(
            variant,
            (*before.reasons, *entry.reasons),
            tuple(dict.fromkeys((*before.cases, *entry.cases))),
            before.generic or generic,
            before.origin,
            tuple(dict.fromkeys((*before.leads, *entry.leads))),
        )
    return tuple(merged.values())


# ---- The pairs of a kernel and a target that a bundle contains, and the pairs that are left out ----


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A kernel that is not built for a target, and the reason."""

    kernel: str
    target: str
    reason: str

    def __str__(self) -> str:
        """Returns the first line of the reason. The reasons of the plug-ins follow on further lines."""
        return f"{self.kernel} is left out for {self.target}: {self.reason.partition(chr(10))[0].rstrip(':')}"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The targets for which each kernel is built, by the kernel's name, and the pairs that are left out."""

    targets: Mapping[str, tuple[Target, ...]]
    left_out: tuple[LeftOut, ...] = ()


def pair_kernels(kernels: Mapping[str, Callable[[Target], Decision]], targets: Sequence[Target]) -> Pairs:
    """Pairs each kernel with the targets that its decision accepts. Reads no other state.

    Raises:
        TargetError: a kernel that accepts no target, or a target that no kernel accepts; with the reasons.
    """
    decisions = {name: {target: decide(target) for target in targets} for name, decide in kernels.items()}
    accepted: dict[str, tuple[Target, ...]] = {}
    left_out: list[LeftOut] = []
    for name, by_target in decisions.items():
        accepted[name] = tuple(target for target, decision in by_target.items() if decision)
        refused = {target: entry.reason for target, entry in by_target.items() if isinstance(entry, Rejected)}
        if not accepted[name] and refused:
            raise TargetError(_nothing(f"{name} is for none of the targets", refused.values()))
        left_out += [LeftOut(name, str(target), reason) for target, reason in refused.items()]
    for target in targets:
        if kernels and not any(target in paired for paired in accepted.values()):
            reasons = [entry.reason for entry in left_out if entry.target == str(target)]
            raise TargetError(_nothing(f"no kernel is for {target}", reasons))
    return Pairs(accepted, tuple(left_out))


def _nothing(label: str, reasons: Iterable[str]) -> str:
    unique = dict.fromkeys(reasons)
    return f"{label}; name other targets, or other kernels:" + "".join(f"\n{reason}" for reason in unique)
