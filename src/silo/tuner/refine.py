"""Refinements: configs outside a space that measurements suggest; and the reachable configs of a space."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from silo.core.config import Config, ConfigSet
from silo.core.search_space import SearchSpace
from silo.core.values import Value, identity_of
from silo.text_tables import format_time
from silo.tuner.statistics import median
from silo.tuner.trial import Stage, Status, Trial

__all__ = [
    "Occupancy",
    "ReachableConfigs",
    "Refinement",
    "Refiner",
    "changed",
    "describe_refinements",
    "halved",
    "one_stage",
    "reason_of",
    "reduction_blocks",
]

# ---- Reachable configs: the configs of a space, and the configs that refining them can produce ----

# Inductor's names of blocks along a reduced axis. RSPLIT divides the grid, so it is not among them.
_REDUCTION_BLOCK = re.compile(r"R(\d+_)?BLOCK")
# Blocks of this many reduced elements, or fewer, are not halved.
_LEAST_REDUCTION = 64

_Members = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class ReachableConfigs:
    """The configs whose trials count for a space: its own configs, and the configs that refining them can produce.

    The space must not be empty. No refinement changes the members in ``fixed``, because the caller set them. Of a space
    that consists of groups of choices, only the configs in ``space.listed`` are refined.

    >>> from silo.core.config import ConfigSet
    >>> reach = ReachableConfigs(ConfigSet([Config.of(R0_BLOCK=256, num_stages=2)]))
    >>> Config.of(R0_BLOCK=64, num_stages=2) in reach, Config.of(R0_BLOCK=64, num_stages=1) in reach
    (True, False)
    """

    space: SearchSpace
    fixed: frozenset[str] = frozenset()

    def __contains__(self, config: Config) -> bool:
        return self.holds(config) or self.is_refined_form(config)

    def holds(self, config: Config) -> bool:
        """Returns whether ``config`` belongs to the space itself."""
        return config in self.space

    def is_refined_form(self, config: Config) -> bool:
        """Returns whether ``config`` is outside of the space and refining the space can produce it."""
        key = config.order_key
        return not self.holds(config) and any(
            form.order_key == key
            for base in self._relatives.get(_unrefined(config), ())
            for form in _refined(base, self.fixed)
        )

    @property
    def refinable(self) -> bool:
        """Whether any config of the space has a refined form."""
        return any(True for config in self.space.listed for _ in _refined(config, self.fixed))

    @cached_property
    def _relatives(self) -> dict[_Members, list[Config]]:
        """The listed configs by the members that no refinement changes: each refinement has its config's key."""
        relatives: dict[_Members, list[Config]] = {}
        for config in self.space.listed:
            relatives.setdefault(_unrefined(config), []).append(config)
        return relatives


def _unrefined(config: Config) -> _Members:
    """Returns the members that no refinement changes, each with a form of its value that distinguishes 1 from True."""
    return tuple(
        (name, identity_of(value))
        for name, value in config.values + config.options
        if name != "num_stages" and not _REDUCTION_BLOCK.fullmatch(name)
    )


def _refined(config: Config, fixed: frozenset[str]) -> Iterator[Config]:
    """Yields the configs that refining ``config`` can produce."""
    plain = one_stage(config)
    if plain is not None and "num_stages" not in fixed:
        yield plain
    smaller = halved(config)
    while smaller is not None:
        if not changed(config, smaller).keys() & fixed:
            yield smaller
        smaller = halved(smaller)


def reduction_blocks(configs: Iterable[Config]) -> frozenset[str]:
    """Returns the names of the blocks that a refinement may halve."""
    return frozenset(name for config in configs for name, _ in config.values if _REDUCTION_BLOCK.fullmatch(name))


def halved(config: Config) -> Config | None:
    """Returns the config with its largest reduction block halved; None if it has no such block, or only small ones."""
    blocks = {name: value for name, value in config.values if _REDUCTION_BLOCK.fullmatch(name) and type(value) is int}
    if not blocks or math.prod(blocks.values()) <= _LEAST_REDUCTION:
        return None
    largest = max(blocks, key=lambda name: blocks[name])
    return Config.of({**config.as_dict(), largest: blocks[largest] // 2})


def one_stage(config: Config) -> Config | None:
    """Returns the config without pipelining; None if it does not pipeline."""
    stages = config.as_dict().get("num_stages")
    if type(stages) is not int or stages <= 1:
        return None
    return Config.of({**config.as_dict(), "num_stages": 1})


def changed(before: Config, after: Config) -> dict[str, Value]:
    """Returns the members of ``after`` whose values differ from those in ``before``."""
    ours, theirs = before.as_dict(), after.as_dict()
    return {name: theirs[name] for name in ours if identity_of(ours[name]) != identity_of(theirs[name])}


# ---- Refinements: configs outside of the space that measurements of the space's configs suggest ----

# The prefix of the line in a trial's message that explains why the refined config was proposed.
_MARK = "refined: "
_SHOWN = 4  # the most refinements that are described one by one


@dataclass(frozen=True, slots=True)
class Refinement:
    """A further config to measure.

    ``reason`` names the changed members, and the measurement that suggested the change.
    """

    config: Config
    reason: str

    def explained(self, trial: Trial) -> Trial:
        """Returns a trial of this config with ``reason`` added to its message; the message of a failure comes first."""
        lines = [f"{_MARK}{self.reason}", *filter(None, [trial.message])]
        return replace(trial, message="\n".join(lines if trial.status is Status.OK else reversed(lines)))


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Limits of the resident blocks of a GPU: registers and threads per multiprocessor, multiprocessors, warp size."""

    registers: int
    threads: int
    units: int
    warp_size: int

    @classmethod
    def of(cls, facts: Mapping[str, int]) -> Occupancy | None:
        """Reads the limits from a device's facts; None if one is missing."""
        names = ("registers_per_sm", "max_threads_per_sm", "sm_count", "warp_size")
        numbers = [facts.get(name, 0) for name in names]
        return cls(*numbers) if all(numbers) else None

    def resident(self, registers: int, warps: int) -> int:
        """Returns how many blocks of ``warps`` warps with ``registers`` registers per thread are resident at a time."""
        return max(self.registers // (registers * self.warp_size * warps), 1) * self.units


@dataclass(frozen=True)
class Refiner:
    """Proposes refinements of the space ``configs``.

    ``occupancy`` has the device's limits of resident blocks; None for a device that does not report all of them, such
    as a CPU. ``programs`` returns the number of programs of a launch with a config, None if unknown. ``fixed`` are
    members that the caller set, which no refinement changes.
    """

    configs: tuple[Config, ...]
    occupancy: Occupancy | None = None
    programs: Callable[[Config], int | None] = lambda _: None
    fixed: frozenset[str] = frozenset()

    @cached_property
    def reach(self) -> ReachableConfigs:
        """The configs of the space and all refinements that may be proposed."""
        return ReachableConfigs(ConfigSet(self.configs), self.fixed)

    def propose(self, trials: Sequence[Trial]) -> tuple[Refinement, ...]:
        """Returns the refinements to measure now, given all trials so far; empty after a few rounds. Pure."""
        tried = {trial.config.order_key for trial in trials}
        refinements = [*self._scaled(trials), *self._unpipelined(trials)]
        distinct = {refinement.config.order_key: refinement for refinement in reversed(refinements)}
        return tuple(
            refinement
            for key, refinement in reversed(distinct.items())
            if key not in tried and self.reach.is_refined_form(refinement.config)
        )

    def _scaled(self, trials: Sequence[Trial]) -> Iterable[Refinement]:
        if self.occupancy is None:
            return
        for trial in trials:
            registers = dict(trial.resources).get("registers")
            smaller = halved(trial.config)
            if trial.status is not Status.OK or not registers or smaller is None:
                continue
            # with so few registers a thread, the number of threads limits the resident blocks
            if registers <= self.occupancy.registers // self.occupancy.threads:
                continue
            warps = trial.config.as_dict().get("num_warps", 4)
            programs = self.programs(trial.config)
            if not isinstance(warps, int) or programs is None:
                continue
            resident = self.occupancy.resident(registers, warps)
            if programs > resident:
                changes = ", ".join(
                    f"{name} halved to {value}" for name, value in changed(trial.config, smaller).items()
                )
                why = f"{trial.config} needs {registers} registers, so {resident} of {programs} blocks are resident"
                yield Refinement(smaller, f"{changes}: {why}")

    def _unpipelined(self, trials: Sequence[Trial]) -> Iterable[Refinement]:
        base = {config.order_key for config in self.configs}
        own = [trial for trial in trials if trial.config.order_key in base]
        refused = all(trial.status in (Status.RUN, Status.COMPILE) for trial in own)
        if not refused or base - {trial.config.order_key for trial in own}:
            return
        for trial in own:
            plain = one_stage(trial.config)
            if plain is not None:
                yield Refinement(plain, f"pipelining given up: nothing runs, {trial.config} neither")


def reason_of(trial: Trial) -> str:
    """Returns the reason for the trial's config; "" if the config is not a refinement."""
    return next((line.removeprefix(_MARK) for line in trial.message.splitlines() if line.startswith(_MARK)), "")


def describe_refinements(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Describes each refinement among ``trials`` in a line, with its outcome; of many, the first few and a count."""
    lines = [
        f"refined: {reason} ({format_time(median(trial.samples_ns)) if trial.samples_ns else trial.status.value})"
        for trial in trials
        if trial.stage is Stage.SEARCH and (reason := reason_of(trial))
    ]
    more = len(lines) - _SHOWN
    return (*lines[:_SHOWN], *([f"refined: {more} more"] if more > 0 else []))
