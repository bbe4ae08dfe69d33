"""Refinements: configs outside of the space that measurements of its own configs suggest.

Two kinds, of PyTorch Inductor's runtime. Where a reduction's registers keep blocks from being resident although there
are enough of them, its largest reduction block is halved. Where nothing fits a device, pipelining is given up.

Which configs a refinement may come to follows from the space alone (:mod:`silo.tune.reach`), so what was measured of
them counts for it as its own configs do; which of them are measured follows from the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from silo.core.config import Config
from silo.tune.reach import Reach, halved, one_stage
from silo.tune.trial import Status, Trial

__all__ = ["Occupancy", "Refinement", "Refiner"]


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
    def reach(self) -> Reach:
        """What may be proposed besides the space."""
        return Reach(self.configs, self.fixed)

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
