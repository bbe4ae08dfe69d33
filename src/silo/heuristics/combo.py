"""Combos: several kernels in one launch, each with its own blocks, and the space of a combo."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Literal, cast

from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import ConfigValue, Const, Node, OpKind, make
from silo.core.grouped_space import GroupedSpace, Steps
from silo.core.plugins import is_option
from silo.core.signature import ParameterKind, Signature
from silo.core.space import Constraint
from silo.core.values import Value
from silo.errors import SpaceError
from silo.heuristics.candidates import MAX_ELEMENTS, Candidates, HeuristicCandidate, max_block
from silo.heuristics.facts import (
    DIMENSIONS,
    KernelFacts,
    SizeHints,
    TargetFacts,
    TuningEffort,
    block_name,
    is_reduction,
)
from silo.heuristics.heuristic_space import KINDS, OPTIONS, BoundSpace, HeuristicSpace, check_blocks
from silo.heuristics.pointwise import pointwise
from silo.heuristics.reductions import persistent_reduction, reduction

__all__ = ["BoundCombo", "ComboGroup", "ComboLayout", "ComboSpace", "SubKernel", "combo", "combo_space"]

# ---- Combos: several kernels in one launch, each with its own block sizes, all with the same warps and stages ----

_HEURISTICS = {"pointwise": pointwise, "reduction": reduction, "persistent_reduction": persistent_reduction}


# The maximum of threads in a program, on every GPU that Triton supports.
_MOST_THREADS = 1024


def _no_names() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class SubKernel:
    """One kernel of a combo. Equal sub-kernels need to be tuned only once.

    ``names`` maps usual names of block sizes to the combo's names ({"XBLOCK": "BLOCK_A"}), or to "" for a block size
    that is a literal. A block size that ``names`` lacks has its usual name with the sub-kernel's number (``XBLOCK_0``).
    """

    kind: Literal["pointwise", "reduction", "persistent_reduction"]
    hints: SizeHints
    facts: KernelFacts = KernelFacts()  # noqa: RUF009  # frozen
    names: Mapping[str, str] = field(default_factory=_no_names, compare=False)


@dataclass(frozen=True, slots=True)
class ComboGroup:
    """Sub-kernels that are tuned together.

    ``members`` are their numbers. ``configs`` set the block sizes of all members, under the combo's names and without
    warps and stages, best guess first. The first of them is part of the combo's base config.
    """

    members: tuple[int, ...]
    configs: tuple[HeuristicCandidate, ...]


@dataclass(frozen=True, slots=True)
class ComboLayout:
    """The plan for tuning a combo.

    ``base`` is the config to start with. ``groups`` come largest first: a tuner tries the configs of one group while
    the values of all other groups stay unchanged. ``launches`` are the pairs of warps and stages to try at the end.
    ``limits`` are the largest block sizes that are useful when the tuner changes one block size at a time. ``space``
    expresses all of this as a space: the groups, then the launches.
    """

    base: HeuristicCandidate
    groups: tuple[ComboGroup, ...]
    launches: tuple[tuple[int, int], ...]
    limits: tuple[tuple[str, int], ...]
    space: GroupedSpace


def combo(
    target: TargetFacts | Target | str,
    kernels: Sequence[SubKernel],
    *,
    names: Collection[str] | None = None,
    grouped: bool = True,
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> ComboLayout:
    """Makes the tuning plan of a combo, whose sub-kernel ``i`` has the block sizes ``XBLOCK_i`` and so on.

    Each sub-kernel gets the candidates that it would have alone. The base config consists of the first candidate of
    each sub-kernel, with the most warps and stages that any of these candidates requests. Sub-kernels with equal kind,
    sizes and facts are one group, unless ``grouped`` is False.

    Args:
        target: the target to compile for.
        kernels: the sub-kernels in order.
        names: the combo's parameters. If the combo has a parameter for a block size of one sub-kernel (``XBLOCK_0``),
            configs set that parameter; otherwise they set the name without the number (``XBLOCK``), once for the whole
            combo. None: every name keeps its number.
        grouped: whether equal sub-kernels are tuned together.
        effort: the number of configs wanted for each sub-kernel.

    Raises:
        SpaceError: ``kernels`` is empty.
    """
    if not kernels:
        raise SpaceError("a combo without sub-kernels has no config")
    facts_of_target = TargetFacts.of(target)
    candidates = [_HEURISTICS[kernel.kind](facts_of_target, kernel.hints, kernel.facts, effort) for kernel in kernels]
    first = [candidate[0].config.as_dict() for candidate in candidates]
    naming = _Naming(kernels, names)
    members: dict[str, Value] = {}
    for index, config in enumerate(first):
        members |= naming.members(config, index)
    launches = dict.fromkeys(_launch(sub_config.config) for candidate in candidates for sub_config in candidate)
    warps = max(_launch(candidate[0].config)[0] for candidate in candidates)
    stages = max(_launch(candidate[0].config)[1] for candidate in candidates)
    launches.setdefault((warps, stages))
    if facts_of_target.kind == "cpu":
        launches.clear()
    else:
        members |= {"num_warps": warps, "num_stages": stages}
    ordered = sorted(_groups(kernels, grouped=grouped), key=lambda group: -kernels[group[0]].hints.numel)
    groups = tuple(_group(group, candidates[group[0]], naming) for group in ordered)
    limits = {
        (index, dimension): min(max_block(dimension, facts_of_target), kernels[index].hints[dimension])
        for index in range(len(kernels))
        for dimension in naming.own(first[index], index)
    }
    base = Config.of(members)
    choices = [tuple(config.config for config in group.configs) for group in groups]
    if launches:
        choices.append(tuple(Config.of(num_warps=warps, num_stages=stages) for warps, stages in launches))
    steps = list(_steps(kernels, ordered, limits, naming))
    if launches:
        max_warps = _MOST_THREADS // facts_of_target.warp_size
        steps.append(Steps(("num_warps",), tuple(1 << power for power in range(max_warps.bit_length()))))
    return ComboLayout(
        base=HeuristicCandidate(base, "each sub-kernel's first blocks, the most warps and stages of any"),
        groups=groups,
        launches=tuple(launches),
        limits=tuple((naming.name(index, dimension), limit) for (index, dimension), limit in limits.items()),
        space=GroupedSpace(base, tuple(choices), tuple(steps), tuple(_fitting(kernels, first, naming))),
    )


@dataclass(frozen=True)
class _Naming:
    """The combo's names for the block sizes of its sub-kernels.

    ``known`` are the combo's parameters. None: every name counts as a parameter.
    """

    kernels: Sequence[SubKernel]
    known: Collection[str] | None

    def name(self, index: int, dimension: str) -> str:
        """Returns the name of a sub-kernel's own block size."""
        usual = block_name(dimension)
        return self.kernels[index].names.get(usual, f"{usual}_{index}")

    def own(self, config: Mapping[str, Value], index: int) -> Iterator[str]:
        """Yields the dimensions whose block size belongs to this sub-kernel alone, and not to the whole combo."""
        for dimension in DIMENSIONS:
            if block_name(dimension) in config and dimension in self.kernels[index].hints:
                name = self.name(index, dimension)
                if name and self._is_own(name, index):
                    yield dimension

    def members(self, config: Mapping[str, Value], index: int) -> dict[str, Value]:
        """Returns the block sizes and HIP options of a sub-kernel under the combo's names, without warps and stages."""
        members: dict[str, Value] = {}
        for usual, value in config.items():
            if usual in ("num_warps", "num_stages"):
                continue
            name = self.kernels[index].names.get(usual, f"{usual}_{index}")
            if is_option(usual) or (name and not self._is_own(name, index)):
                name = usual
            if name:
                members[name] = value
        return members

    def _is_own(self, name: str, index: int) -> bool:
        return self.known is None or name in self.known or name in self.kernels[index].names.values()


def _launch(config: Config) -> tuple[int, int]:
    options = dict(config.options)
    warps, stages = options.get("num_warps", 1), options.get("num_stages", 1)
    assert isinstance(warps, int)
    assert isinstance(stages, int)
    return warps, stages


def _groups(kernels: Sequence[SubKernel], *, grouped: bool) -> list[list[int]]:
    groups: list[list[int]] = []
    for index, kernel in enumerate(kernels):
        same = next((group for group in groups if grouped and kernels[group[0]] == kernel), None)
        if same is None:
            groups.append([index])
        else:
            same.append(index)
    return groups


def _group(members: Sequence[int], candidates: Candidates, naming: _Naming) -> ComboGroup:
    configs: dict[Config, HeuristicCandidate] = {}
    for candidate in candidates:
        values: dict[str, Value] = {}
        for index in members:
            values |= naming.members(candidate.config.as_dict(), index)
        configs.setdefault(Config.of(values), HeuristicCandidate(Config.of(values), candidate.reason))
    return ComboGroup(tuple(members), tuple(configs.values()))


def _steps(
    kernels: Sequence[SubKernel],
    groups: Sequence[Sequence[int]],
    limits: Mapping[tuple[int, str], int],
    naming: _Naming,
) -> Iterator[Steps]:
    """Yields the block sizes that a tuner may change one at a time. One change applies to all members of a group.

    A block size that several groups have in common is not changed.
    """
    users = {naming.name(index, dimension): set[int]() for index, dimension in limits}
    for number, group in enumerate(groups):
        for index, dimension in limits:
            if index in group:
                users[naming.name(index, dimension)].add(number)
    for group in groups:
        for (index, dimension), limit in limits.items():
            names = tuple(dict.fromkeys(naming.name(member, dimension) for member in group))
            if index == group[0] and all(len(users[name]) == 1 for name in names):
                yield Steps(names, _sizes(kernels[index], dimension, limit))


def _sizes(kernel: SubKernel, dimension: str, limit: int) -> tuple[int, ...]:
    """Returns the values to try for a block size: powers of two from the smallest allowed to ``limit``."""
    facts = kernel.facts
    minimum = facts.min_rblock if is_reduction(dimension) else facts.min_xblock if dimension == "x" else 1
    minimum = max(minimum, facts.descriptor_minimums.get(block_name(dimension), 1))
    return tuple(1 << power for power in range(limit.bit_length()) if 1 << power >= minimum)


def _fitting(kernels: Sequence[SubKernel], first: Sequence[Mapping[str, Value]], naming: _Naming) -> Iterator[Node]:
    """Yields, for each sub-kernel with several block sizes, a constraint: Triton's limit of elements in a tensor."""
    for index, kernel in enumerate(kernels):
        own = [naming.name(index, dimension) for dimension in naming.own(first[index], index)]
        row = kernel.hints.rnumel if kernel.kind == "persistent_reduction" else 1
        if len(own) + (row > 1) > 1:
            count = reduce(lambda left, right: make(OpKind.MUL, left, right), map(ConfigValue, own), Const(row))
            yield make(OpKind.LE, count, Const(MAX_ELEMENTS))


# ---- Combos as the space of a kernel: one heuristic for each sub-kernel, and groups that are tuned in turn ----

_KINDS = ("pointwise", "reduction", "persistent_reduction")


def _no_values() -> Mapping[str, Value]:
    return {}


@dataclass(frozen=True)
class ComboSpace:
    """The description of a combo's space, for ``silo.kernel(space=...)``; made by :func:`combo_space`."""

    parts: tuple[HeuristicSpace, ...]
    grouped: bool = True
    effort: TuningEffort = TuningEffort()  # noqa: RUF009  # frozen
    constants: Mapping[str, Value] = field(default_factory=_no_values)
    kind: Literal["combo"] = "combo"

    def bound(self, kernel: str, signature: Signature, constraints: Sequence[Constraint] = ()) -> BoundCombo:
        """Returns this space for one kernel, with the sizes as expressions over the kernel's arguments.

        Raises SpaceError if the kernel lacks a constexpr that a sub-kernel sets, or an argument that a size reads.
        """
        constants = frozenset(p.name for p in signature.parameters if p.kind is ParameterKind.CONSTEXPR)
        parts = tuple(BoundSpace(kernel, part, part.size_nodes(kernel, signature), ()) for part in self.parts)
        rows = tuple((number, _row_name(part, number, constants)) for number, part in enumerate(self.parts))
        bound_combo = BoundCombo(
            kernel, self, parts, constants, tuple(row for row in rows if row[1]), tuple(constraints)
        )
        check_blocks(kernel, self.kind, bound_combo.blocks, signature)
        return bound_combo


def _row_name(part: HeuristicSpace, number: int, constants: frozenset[str]) -> str:
    """Returns the name of the constexpr for the length of a sub-kernel's row.

    Returns "" if the kernel's text has the length as a literal, or if no block of the sub-kernel holds a whole row.
    """
    usual = f"R0_BLOCK_{number}"
    return part.names.get("R0_BLOCK", usual if usual in constants else "") if part.whole_rows else ""


@dataclass(frozen=True)
class BoundCombo:
    """A combo's space for one kernel: ``parts`` are its sub-kernels, ``constexprs`` the kernel's constexprs.

    ``rows`` are the constexprs that must equal the length of a whole row, each with the number of its sub-kernel.
    """

    kernel: str
    made_by: ComboSpace
    parts: tuple[BoundSpace, ...]
    constexprs: frozenset[str]
    rows: tuple[tuple[int, str], ...]
    constraints: tuple[Constraint, ...] = ()

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The names of the block-size constexprs that configs of this space set."""
        sizes = [{dimension: 64 for dimension, _ in part.sizes} for part in self.parts]
        return tuple(name for name, _ in self._space(self._plan(TargetFacts("cuda"), sizes), sizes).base.values)

    @property
    def deterministic(self) -> BoundCombo:
        """This space with one config for each reduction, so that sums are always made in the same order."""
        effort = replace(self.made_by.effort, deterministic=True)
        return replace(self, made_by=replace(self.made_by, effort=effort))

    @property
    def config_names(self) -> tuple[str, ...]:
        """The names of the constexprs and options that configs of this space set, sorted."""
        return tuple(sorted((*self.blocks, *OPTIONS)))

    @property
    def placed(self) -> tuple[str, ...]:
        """The block sizes that a grid must depend on: none, because a combo's author is responsible for its grid."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the arguments whose values decide the configs, each once; the tuning key must contain them."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.reads))

    @property
    def needed(self) -> tuple[tuple[str, Node], ...]:
        """The constexprs for the lengths of whole rows, each with the expression of its value.

        A wrong value would give wrong results.
        """
        return tuple((name, self.parts[number].row_length) for number, name in self.rows)

    def plan(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> ComboLayout:
        """Returns the tuning plan for one call, from its target, the facts of its device, and the call's scalars."""
        return self._plan(TargetFacts.of(target, device), [part.hints(values) for part in self.parts])

    def space(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> GroupedSpace:
        """Returns the space of one call. Raises SpaceError if the constraints exclude every config."""
        sizes = [part.hints(values) for part in self.parts]
        space = self._space(self.plan(target, device, values), sizes)
        return space.constrained(self.constraints, self.reads) if self.constraints else space

    def explain(self, target: Target, device: Mapping[str, int], values: Mapping[str, Value]) -> str:
        """Explains the space of one call, with a line for each sub-kernel and each choice."""
        plan = self.plan(target, device, values)
        lines = [f"space: a combo of {len(self.parts)} sub-kernels for {target}, at most {plan.space.effort} configs"]
        for number, part in enumerate(self.parts):
            sizes = ", ".join(f"{name}={size}" for name, size in part.hints(values).items())
            lines.append(f"  {number}: {part.made_by.kind} for {sizes}")
        for group in plan.groups:
            lines.append(f"  group of {', '.join(map(str, group.members))}:")
            lines += [f"    {config}" for config in group.configs]
        if plan.launches:
            pairs = ", ".join(f"{warps} and {stages}" for warps, stages in plan.launches)
            lines.append(f"  warps and stages of all: {pairs}")
        return "\n".join(lines)

    def _plan(self, target: TargetFacts, sizes: Sequence[Mapping[str, int]]) -> ComboLayout:
        kernels = [
            SubKernel(cast("Literal['pointwise']", part.kind), SizeHints.of(size), part.facts, part.names)
            for part, size in zip(self.made_by.parts, sizes, strict=True)
        ]
        return combo(target, kernels, names=self.constexprs, grouped=self.made_by.grouped, effort=self.made_by.effort)

    def _space(self, plan: ComboLayout, sizes: Sequence[Mapping[str, int]]) -> GroupedSpace:
        rows = {name: SizeHints.of(sizes[number]).rnumel for number, name in self.rows}
        members = {**plan.space.base.as_dict(), **rows, **self.made_by.constants}
        return replace(plan.space, base=Config.of(members))


def combo_space(
    parts: Sequence[HeuristicSpace],
    *,
    grouped: bool = True,
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
    constants: Mapping[str, Value] | None = None,
) -> ComboSpace:
    """Describes a space for ``silo.kernel(space=...)``, for several kernels combined in one, each in its own programs.

    Sub-kernel ``i`` has the block sizes ``XBLOCK_i`` and so on if the kernel has these constexprs, else ``XBLOCK``,
    which all sub-kernels then share. Sub-kernels are tuned one after the other, the largest first; equal sub-kernels
    (kind, sizes, facts) are tuned together. Warps and stages are tuned at the end.

    Args:
        parts: the sub-kernels in order, each described by :func:`silo.heuristics.space`: pointwise kernels, reductions
            and persistent reductions. ``names`` of a part are the combo's names of its block sizes.
        grouped: whether equal sub-kernels are tuned together.
        effort: the number of configs wanted.
        constants: other constexprs and options that every config sets.

    Raises:
        SpaceError: ``parts`` is empty, or a sub-kernel has constants, an effort, or a kind that combos do not support.
    """
    if not parts:
        raise SpaceError("a combo without sub-kernels has no config")
    for number, part in enumerate(parts):
        if part.kind not in _KINDS or part.function is not KINDS[part.kind]:
            raise SpaceError(
                f"sub-kernel {number} of the combo has the heuristic {part.kind}; it is one of Silo's own "
                f"{', '.join(_KINDS)}"
            )
        if part.constants or part.effort != TuningEffort():
            raise SpaceError(
                f"sub-kernel {number} of the combo has constants or an effort of its own; give them to combo_space"
            )
    return ComboSpace(tuple(parts), grouped, effort, dict(constants or {}))
