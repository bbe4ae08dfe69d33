"""Combos: several kernels in one launch, each with blocks of its own, all with the same warps and stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from silo.core.config import OPTION_NAMES, Config
from silo.core.target import Target
from silo.core.values import Value
from silo.errors import SpaceError
from silo.tune.heuristics.candidates import Candidate, Candidates
from silo.tune.heuristics.facts import DIMENSIONS, Effort, KernelFacts, SizeHints, block_name
from silo.tune.heuristics.limits import max_block
from silo.tune.heuristics.persistent_reduction import persistent_reduction
from silo.tune.heuristics.pointwise import pointwise
from silo.tune.heuristics.reduction import reduction
from silo.tune.heuristics.target_facts import TargetFacts

__all__ = ["ComboGroup", "ComboPlan", "SubKernel", "combo"]

_HEURISTICS = {"pointwise": pointwise, "reduction": reduction, "persistent_reduction": persistent_reduction}


@dataclass(frozen=True)
class SubKernel:
    """One kernel of a combo. Two that are equal need to be tuned once."""

    kind: Literal["pointwise", "reduction", "persistent_reduction"]
    hints: SizeHints
    facts: KernelFacts = KernelFacts()  # noqa: RUF009  # frozen


@dataclass(frozen=True, slots=True)
class ComboGroup:
    """Sub-kernels that are tuned as one.

    ``members`` are their numbers, ``configs`` blocks of every member in the combo's names (without warps and stages),
    in the order in which they are worth trying, the base's first.
    """

    members: tuple[int, ...]
    configs: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class ComboPlan:
    """How a combo is tuned.

    ``base`` is the config to start with. ``groups`` come largest first: for each its configs are tried with everything
    else as it is. ``launches`` are the warps and stages to try at the end. ``limits`` are the largest useful values of
    blocks, for a descent.
    """

    base: Candidate
    groups: tuple[ComboGroup, ...]
    launches: tuple[tuple[int, int], ...]
    limits: tuple[tuple[str, int], ...]

    def with_group(self, config: Config, choice: Candidate) -> Config:
        """``config`` with the blocks of one group's choice."""
        return Config.of({**config.as_dict(), **choice.config.as_dict()})

    def with_launch(self, config: Config, launch: tuple[int, int]) -> Config:
        """``config`` with other warps and stages."""
        return Config.of({**config.as_dict(), "num_warps": launch[0], "num_stages": launch[1]})

    @property
    def configs(self) -> tuple[Config, ...]:
        """Every config that differs from the base in one group or in warps and stages, the base first."""
        base = self.base.config
        found = [base, *(self.with_group(base, one) for group in self.groups for one in group.configs)]
        found += [self.with_launch(base, launch) for launch in self.launches]
        return tuple(dict.fromkeys(found))


def combo(
    target: TargetFacts | Target | str,
    kernels: Sequence[SubKernel],
    *,
    names: Collection[str] | None = None,
    grouped: bool = True,
    effort: Effort = Effort(),  # noqa: B008  # frozen
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
    members: dict[str, Value] = {}
    for index, config in enumerate(first):
        members |= _suffixed(config, index, names)
    launches = dict.fromkeys(_launch(one.config) for made in found for one in made)
    warps = max(_launch(made[0].config)[0] for made in found)
    stages = max(_launch(made[0].config)[1] for made in found)
    launches.setdefault((warps, stages))
    if known.kind != "cpu":
        members |= {"num_warps": warps, "num_stages": stages}
    ordered = sorted(_groups(kernels, grouped=grouped), key=lambda group: -kernels[group[0]].hints.numel)
    return ComboPlan(
        base=Candidate(Config.of(members), "each sub-kernel's first blocks, the most warps and stages of any"),
        groups=tuple(_group(group, found[group[0]], names) for group in ordered),
        launches=tuple(launches) if known.kind != "cpu" else (),
        limits=tuple(_limits(known, kernels, first, names)),
    )


def _suffixed(config: Mapping[str, Value], index: int, names: Collection[str] | None) -> dict[str, Value]:
    """Blocks and HIP's options in the combo's names, without warps and stages."""
    found: dict[str, Value] = {}
    for name, value in config.items():
        if name in ("num_warps", "num_stages"):
            continue
        own = f"{name}_{index}"
        keeps = name in OPTION_NAMES or (names is not None and own not in names)
        found[name if keeps else own] = value
    return found


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


def _group(members: Sequence[int], candidates: Candidates, names: Collection[str] | None) -> ComboGroup:
    configs: dict[Config, Candidate] = {}
    for one in candidates:
        values: dict[str, Value] = {}
        for index in members:
            values |= _suffixed(one.config.as_dict(), index, names)
        configs.setdefault(Config.of(values), Candidate(Config.of(values), one.reason))
    return ComboGroup(tuple(members), tuple(configs.values()))


def _limits(
    target: TargetFacts,
    kernels: Sequence[SubKernel],
    first: Sequence[Mapping[str, Value]],
    names: Collection[str] | None,
) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for index, kernel in enumerate(kernels):
        for dimension in DIMENSIONS:
            name = f"{block_name(dimension)}_{index}"
            if block_name(dimension) in first[index] and dimension in kernel.hints and (names is None or name in names):
                found.append((name, min(max_block(dimension, target), kernel.hints[dimension])))
    return found
