"""Refinements: configs outside of the space that measurements of its own configs suggest.

Two kinds, of PyTorch Inductor's runtime. Where a reduction's registers keep blocks from being resident although there
are enough of them, its largest reduction block is halved. Where nothing fits a device, pipelining is given up.

Which configs a refinement may come to follows from the space alone (:func:`refined_forms`), so what was measured of
them counts for it as its own configs do; which of them are measured follows from the trials.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from silo.core.config import Config
from silo.tune.trial import Status, Trial

__all__ = ["Occupancy", "Refinement", "Refiner", "refined_forms"]

# Blocks along an axis that is reduced, by Inductor's names. RSPLIT divides the grid and is none.
_REDUCTION_BLOCK = re.compile(r"R(\d+_)?BLOCK")
# Reductions of so few elements at a time are not made smaller.
_LEAST_REDUCTION = 64


@dataclass(frozen=True, slots=True)
class Refinement:
    """A config to measure besides, and why."""

    config: Config
    reason: str


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What decides how many blocks a GPU holds: registers and threads of one multiprocessor, how many there are."""

    registers: int
    threads: int
    units: int
    warp_size: int

    @classmethod
    def of(cls, facts: Mapping[str, int]) -> Occupancy | None:
        """From a device's facts; None where it has no such numbers."""
        names = ("registers_per_sm", "max_threads_per_sm", "sm_count", "warp_size")
        numbers = [facts.get(name, 0) for name in names]
        return cls(*numbers) if all(numbers) else None

    def resident(self, registers: int, warps: int) -> int:
        """How many blocks of ``warps`` warps the device holds at a time, by their ``registers`` a thread."""
        return max(self.registers // (registers * self.warp_size * warps), 1) * self.units


@dataclass(frozen=True)
class Refiner:
    """Proposes refinements of the space ``configs``.

    ``occupancy`` is None where the device has no such numbers; ``programs`` gives the programs of a launch with a
    config, None where nobody knows. ``fixed`` are members that the caller set himself.
    """

    configs: tuple[Config, ...]
    occupancy: Occupancy | None = None
    programs: Callable[[Config], int | None] = lambda _: None
    fixed: frozenset[str] = frozenset()

    @cached_property
    def forms(self) -> tuple[Config, ...]:
        """Every config that may be proposed."""
        return refined_forms(self.configs, self.fixed)

    def propose(self, trials: Sequence[Trial]) -> tuple[Refinement, ...]:
        """What to measure now, by the trials of the space and of earlier refinements. Pure; ends after a few rounds."""
        allowed = {config.order_key for config in self.forms}
        tried = {trial.config.order_key for trial in trials}
        found = [*self._scaled(trials), *self._unpipelined(trials)]
        distinct = {one.config.order_key: one for one in reversed(found)}
        return tuple(one for key, one in reversed(distinct.items()) if key in allowed and key not in tried)

    def _scaled(self, trials: Sequence[Trial]) -> Iterable[Refinement]:
        if self.occupancy is None:
            return
        for trial in trials:
            registers = dict(trial.resources).get("registers")
            smaller = halved(trial.config)
            if trial.status is not Status.OK or not registers or smaller is None:
                continue
            # With so few registers the threads are the limit.
            if registers <= self.occupancy.registers // self.occupancy.threads:
                continue
            warps = trial.config.as_dict().get("num_warps", 4)
            programs = self.programs(trial.config)
            if not isinstance(warps, int) or programs is None:
                continue
            resident = self.occupancy.resident(registers, warps)
            if programs > resident:
                reason = f"{trial.config} needs {registers} registers, so {resident} of {programs} blocks are resident"
                yield Refinement(smaller, reason)

    def _unpipelined(self, trials: Sequence[Trial]) -> Iterable[Refinement]:
        base = {config.order_key for config in self.configs}
        own = [trial for trial in trials if trial.config.order_key in base]
        refused = all(trial.status in (Status.RUN, Status.COMPILE) for trial in own)
        if not refused or base - {trial.config.order_key for trial in own}:
            return
        for trial in own:
            plain = one_stage(trial.config)
            if plain is not None:
                yield Refinement(plain, f"nothing runs; {trial.config} without pipelining")


def refined_forms(configs: Sequence[Config], fixed: frozenset[str] = frozenset()) -> tuple[Config, ...]:
    """The configs that refinements of ``configs`` may come to, without those of the space itself.

    Members called ``fixed`` stay as they are.

    >>> [str(form) for form in refined_forms([Config.of(R0_BLOCK=256, num_stages=2)])]
    ['R0_BLOCK=128, num_stages=2', 'R0_BLOCK=256, num_stages=1', 'R0_BLOCK=64, num_stages=2']
    """
    mine = {config.order_key for config in configs}
    found: dict[bytes, Config] = {}
    for config in configs:
        plain, smaller = one_stage(config), halved(config)
        made = [] if plain is None else [plain]
        while smaller is not None:
            made.append(smaller)
            smaller = halved(smaller)
        for form in made:
            if form.order_key not in mine and not _changes(config, form) & fixed:
                found[form.order_key] = form
    return tuple(sorted(found.values(), key=str))


def halved(config: Config) -> Config | None:
    """The config with its largest reduction block halved; None where it has none, or they are small already."""
    blocks = {name: value for name, value in config.values if _REDUCTION_BLOCK.fullmatch(name) and type(value) is int}
    if not blocks or math.prod(blocks.values()) <= _LEAST_REDUCTION:
        return None
    largest = max(blocks, key=lambda name: blocks[name])
    return Config.of({**config.as_dict(), largest: blocks[largest] // 2})


def one_stage(config: Config) -> Config | None:
    """The config without pipelining; None where it has none."""
    stages = config.as_dict().get("num_stages")
    if type(stages) is not int or stages <= 1:
        return None
    return Config.of({**config.as_dict(), "num_stages": 1})


def _changes(before: Config, after: Config) -> set[str]:
    ours, theirs = before.as_dict(), after.as_dict()
    return {name for name in ours if ours[name] != theirs[name]}
