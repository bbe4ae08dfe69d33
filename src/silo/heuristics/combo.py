"""Combos: several kernels in one launch, each with blocks of its own, all with the same warps and stages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from silo.core.config import Config
from silo.core.grouped_space import GroupedSpace, Steps
from silo.core.nodes import ConfigValue, Const, Node, OpKind, make
from silo.core.plugins import is_option
from silo.core.target import Target
from silo.core.values import Value
from silo.errors import SpaceError
from silo.heuristics.candidates import Candidates, HeuristicCandidate
from silo.heuristics.kernel_facts import DIMENSIONS, KernelFacts, SizeHints, TuningEffort, block_name, is_reduction
from silo.heuristics.limits import MAX_ELEMENTS, max_block
from silo.heuristics.looped_reduction import reduction
from silo.heuristics.persistent_reduction import persistent_reduction
from silo.heuristics.pointwise import pointwise
from silo.heuristics.target_facts import TargetFacts

__all__ = ["ComboGroup", "ComboPlan", "SubKernel", "combo"]

_HEURISTICS = {"pointwise": pointwise, "reduction": reduction, "persistent_reduction": persistent_reduction}


# Threads of one program on every GPU that Triton knows.
_MOST_THREADS = 1024


def _no_names() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class SubKernel:
    """One kernel of a combo. Two that are equal need to be tuned once.

    ``names`` are the combo's own names of its blocks, by the usual ones ({"XBLOCK": "BLOCK_A"}), "" for one that is
    written in; the others have the sub-kernel's number (``XBLOCK_0``).
    """

    kind: Literal["pointwise", "reduction", "persistent_reduction"]
    hints: SizeHints
    facts: KernelFacts = KernelFacts()  # noqa: RUF009  # frozen
    names: Mapping[str, str] = field(default_factory=_no_names, compare=False)


@dataclass(frozen=True, slots=True)
class ComboGroup:
    """Sub-kernels that are tuned as one.

    ``members`` are their numbers, ``configs`` blocks of every member in the combo's names (without warps and stages),
    in the order in which they are worth trying, the base's first.
    """

    members: tuple[int, ...]
    configs: tuple[HeuristicCandidate, ...]


@dataclass(frozen=True, slots=True)
class ComboPlan:
    """How a combo is tuned.

    ``base`` is the config to start with. ``groups`` come largest first: for each its configs are tried with everything
    else as it is. ``launches`` are the warps and stages to try at the end. ``limits`` are the largest useful values of
    blocks, for a descent. ``space`` is all of it as a space: the groups, then the launches.
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
) -> ComboPlan:
    """The plan of a combo, whose sub-kernel ``i`` has its blocks as ``XBLOCK_i`` and so on.

    Each sub-kernel gets the candidates it would have by itself; the first of each make the base, whose warps and stages
    are the most that one of them asks for. Sub-kernels with equal kind, sizes and facts are one group, unless
    ``grouped`` is False.

    Args:
        target: what it is compiled for.
        kernels: the sub-kernels in order.
        names: the combo's parameters; a value whose name with the number is none of them is set without it, once for
            the whole combo. None: all have the number.
        grouped: whether equal sub-kernels are tuned as one.
        effort: as for the sub-kernels.

    Raises:
        SpaceError: there is no sub-kernel.
    """
    if not kernels:
        raise SpaceError("a combo without sub-kernels has no config")
    known = TargetFacts.of(target)
    found = [_HEURISTICS[kernel.kind](known, kernel.hints, kernel.facts, effort) for kernel in kernels]
    first = [made[0].config.as_dict() for made in found]
    naming = _Naming(kernels, names)
    members: dict[str, Value] = {}
    for index, config in enumerate(first):
        members |= naming.members(config, index)
    launches = dict.fromkeys(_launch(one.config) for made in found for one in made)
    warps = max(_launch(made[0].config)[0] for made in found)
    stages = max(_launch(made[0].config)[1] for made in found)
    launches.setdefault((warps, stages))
    if known.kind == "cpu":
        launches.clear()
    else:
        members |= {"num_warps": warps, "num_stages": stages}
    ordered = sorted(_groups(kernels, grouped=grouped), key=lambda group: -kernels[group[0]].hints.numel)
    groups = tuple(_group(group, found[group[0]], naming) for group in ordered)
    limits = {
        (index, dimension): min(max_block(dimension, known), kernels[index].hints[dimension])
        for index in range(len(kernels))
        for dimension in naming.own(first[index], index)
    }
    base = Config.of(members)
    choices = [tuple(one.config for one in group.configs) for group in groups]
    if launches:
        choices.append(tuple(Config.of(num_warps=warps, num_stages=stages) for warps, stages in launches))
    steps = list(_steps(kernels, ordered, limits, naming))
    if launches:
        most = _MOST_THREADS // known.warp_size
        steps.append(Steps(("num_warps",), tuple(1 << power for power in range(most.bit_length()))))
    return ComboPlan(
        base=HeuristicCandidate(base, "each sub-kernel's first blocks, the most warps and stages of any"),
        groups=groups,
        launches=tuple(launches),
        limits=tuple((naming.name(index, dimension), limit) for (index, dimension), limit in limits.items()),
        space=GroupedSpace(base, tuple(choices), tuple(steps), tuple(_fitting(kernels, first, naming))),
    )


@dataclass(frozen=True)
class _Naming:
    """What the combo calls the blocks of its sub-kernels; ``known`` are its parameters, None where all are there."""

    kernels: Sequence[SubKernel]
    known: Collection[str] | None

    def name(self, index: int, dimension: str) -> str:
        """The name of a sub-kernel's own block."""
        usual = block_name(dimension)
        return self.kernels[index].names.get(usual, f"{usual}_{index}")

    def own(self, config: Mapping[str, Value], index: int) -> Iterator[str]:
        """The dimensions of which a sub-kernel has a block of its own."""
        for dimension in DIMENSIONS:
            if block_name(dimension) in config and dimension in self.kernels[index].hints:
                name = self.name(index, dimension)
                if name and self._is_own(name, index):
                    yield dimension

    def members(self, config: Mapping[str, Value], index: int) -> dict[str, Value]:
        """Blocks and HIP's options in the combo's names, without warps and stages."""
        found: dict[str, Value] = {}
        for usual, value in config.items():
            if usual in ("num_warps", "num_stages"):
                continue
            name = self.kernels[index].names.get(usual, f"{usual}_{index}")
            if is_option(usual) or (name and not self._is_own(name, index)):
                name = usual
            if name:
                found[name] = value
        return found

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
    for one in candidates:
        values: dict[str, Value] = {}
        for index in members:
            values |= naming.members(one.config.as_dict(), index)
        configs.setdefault(Config.of(values), HeuristicCandidate(Config.of(values), one.reason))
    return ComboGroup(tuple(members), tuple(configs.values()))


def _steps(
    kernels: Sequence[SubKernel],
    groups: Sequence[Sequence[int]],
    limits: Mapping[tuple[int, str], int],
    naming: _Naming,
) -> Iterator[Steps]:
    """What a descent may change: each block of a group, unless groups share it."""
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
    """The blocks that a descent may try: powers of two from the least that the kernel allows."""
    facts = kernel.facts
    least = facts.min_rblock if is_reduction(dimension) else facts.min_xblock if dimension == "x" else 1
    least = max(least, facts.descriptor_minimums.get(block_name(dimension), 1))
    return tuple(1 << power for power in range(limit.bit_length()) if 1 << power >= least)


def _fitting(kernels: Sequence[SubKernel], first: Sequence[Mapping[str, Value]], naming: _Naming) -> Iterator[Node]:
    """That no sub-kernel has a block of more elements than Triton allows, whatever a descent combines."""
    for index, kernel in enumerate(kernels):
        own = [naming.name(index, dimension) for dimension in naming.own(first[index], index)]
        row = kernel.hints.rnumel if kernel.kind == "persistent_reduction" else 1
        if len(own) + (row > 1) > 1:
            count = reduce(lambda left, right: make(OpKind.MUL, left, right), map(ConfigValue, own), Const(row))
            yield make(OpKind.LE, count, Const(MAX_ELEMENTS))
