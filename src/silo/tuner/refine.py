"""Refinements: configs outside of the space that measurements of its own configs suggest.

Two kinds, of PyTorch Inductor's runtime. Where a reduction's registers keep blocks from being resident although there
are enough of them, its largest reduction block is halved. Where nothing fits a device, pipelining is given up.

Which configs a refinement may come to follows from the space alone (:mod:`silo.tuner.reachable_configs`), so what was
measured of
them counts for it as its own configs do; which of them are measured follows from the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from silo.core.config import Config, ConfigSet
from silo.tuner.progress import format_time
from silo.tuner.reachable_configs import ReachableConfigs, changed, halved, one_stage
from silo.tuner.statistics import median
from silo.tuner.trial import Stage, Status, Trial

__all__ = ["Occupancy", "Refinement", "Refiner", "describe_refinements", "reason_of"]

# How the line of a trial's message begins that says why its config was made.
_MARK = "refined: "
_SHOWN = 4  # refinements that are described one by one


@dataclass(frozen=True, slots=True)
class Refinement:
    """A config to measure besides, and why: what was changed, and what was measured of which config."""

    config: Config
    reason: str

    def explained(self, trial: Trial) -> Trial:
        """The trial of its config with the reason in its message; what a failure says of itself comes first."""
        lines = [f"{_MARK}{self.reason}", *filter(None, [trial.message])]
        return replace(trial, message="\n".join(lines if trial.status is Status.OK else reversed(lines)))


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
    def reach(self) -> ReachableConfigs:
        """What may be proposed besides the space."""
        return ReachableConfigs(ConfigSet(self.configs), self.fixed)

    def propose(self, trials: Sequence[Trial]) -> tuple[Refinement, ...]:
        """What to measure now, by the trials of the space and of earlier refinements. Pure; ends after a few rounds."""
        tried = {trial.config.order_key for trial in trials}
        found = [*self._scaled(trials), *self._unpipelined(trials)]
        distinct = {one.config.order_key: one for one in reversed(found)}
        return tuple(
            one
            for key, one in reversed(distinct.items())
            if key not in tried and self.reach.is_refined_form(one.config)
        )

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
                made = ", ".join(f"{name} halved to {value}" for name, value in changed(trial.config, smaller).items())
                why = f"{trial.config} needs {registers} registers, so {resident} of {programs} blocks are resident"
                yield Refinement(smaller, f"{made}: {why}")

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
    """Why the trial's config was made; "" where it is no refinement."""
    return next((line.removeprefix(_MARK) for line in trial.message.splitlines() if line.startswith(_MARK)), "")


def describe_refinements(trials: Iterable[Trial]) -> tuple[str, ...]:
    """A line for each refinement among ``trials``, with what came of it; of many, the first few and their number."""
    lines = [
        f"refined: {reason} ({format_time(median(trial.samples_ns)) if trial.samples_ns else trial.status.value})"
        for trial in trials
        if trial.stage is Stage.SEARCH and (reason := reason_of(trial))
    ]
    more = len(lines) - _SHOWN
    return (*lines[:_SHOWN], *([f"refined: {more} more"] if more > 0 else []))
