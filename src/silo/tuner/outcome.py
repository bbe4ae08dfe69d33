"""The budget of a session, and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from silo.core.config import Config
from silo.errors import TuneError
from silo.text_tables import format_duration, format_time
from silo.tuner.objective import TIME, Objective
from silo.tuner.spilling import SpillingConfig
from silo.tuner.trial import Status, Study, Trial
from silo.tuner.winner import Winner

__all__ = ["ENOUGH", "Budget", "TuneInterrupted", "TuneOutcome", "count_failures"]

ENOUGH = "enough"  # a session stopped because the rest could gain too little (silo.tuner.early_end)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one session; None means no limit.

    ``evaluations`` counts configs examined, including those with stored trials, so that a session that was killed
    continues to the same end. ``seconds`` is wall time, which includes compiling.

    Raises:
        TuneError: a limit that allows not even a single config.
    """

    evaluations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("evaluations", self.evaluations), ("seconds", self.seconds)):
            if limit is not None and not limit > 0:
                raise TuneError(f"a budget of {limit} {name} measures nothing; give more than 0, or no limit at all")


@dataclass(frozen=True, slots=True)
class TuneOutcome:
    """The outcome of a session.

    ``trials`` are all known trials of configs of the space; ``measured`` and ``reused`` count configs; ``failures``
    counts configs by kind of failure. ``stopped`` is ``complete``, ``enough``, ``evaluations``, ``seconds``,
    ``interrupted`` or ``faults``. ``notes`` are failures of the store. ``remarks`` describe work besides searching the
    space, with reasons, a line each. ``aside`` are configs of the space that spill too much and were not measured:
    neither failures nor trials. ``comparison`` are the trials of the latest comparison of finalists that included the
    deployed config, if one is deployed. ``faults`` are configs that the machine kept from being tried
    (:mod:`silo.tuner.failures`), with the fault: nothing is stored about them, so the next session tries them.
    """

    study: Study
    winner: Winner | None
    trials: tuple[Trial, ...]
    measured: int
    reused: int
    failures: Mapping[str, int]
    seconds: float
    stopped: str
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    aside: tuple[SpillingConfig, ...] = ()
    comparison: tuple[Trial, ...] = ()
    objective: Objective = TIME
    faults: tuple[tuple[Config, str], ...] = ()

    def require_winner(self) -> Winner:
        """The winner.

        Raises:
            TuneError: no config can be used, and why: none meets the objective, or the failure of each.
        """
        if self.winner is not None:
            return self.winner
        if refusal := self.objective.refusal(self.trials):
            raise TuneError(f"{self.study}: {refusal}")
        failed = {trial.config.order_key: trial for trial in self.trials if trial.status is not Status.OK}
        listing = "".join(f"\n  - {trial.config}: {trial.status.value}: {trial.message}" for trial in failed.values())
        tried = "no config was tried" if not failed else f"all {len(failed)} configs that were tried failed"
        listing += "".join(f"\n  {remark}" for remark in (*filter(None, [self.fault_remark]), *self.remarks))
        raise TuneError(f"{self.study}: no config can be used, {tried} (stopped: {self.stopped}){listing}")

    @property
    def fault_remark(self) -> str:
        """The number of configs that the machine kept from being tried, and the first fault; "" without faults."""
        if not self.faults:
            return ""
        config, first = self.faults[0]
        count = f"{len(self.faults)} config{'s were' if len(self.faults) > 1 else ' was'}"
        return f"{count} not tried, by no fault of their own, and will be next time; {config}: {first.splitlines()[0]}"

    @property
    def summary(self) -> str:
        """One line for a log: the study, the effort, the winner, and whether trials were stored."""
        effort = f"{self.measured} configs in {format_duration(self.seconds)}"
        if self.reused:
            effort += f", {self.reused} known before"
        if self.failures:
            effort += ", failed: " + ", ".join(f"{count} {kind}" for kind, count in sorted(self.failures.items()))
        won = "no winner"
        if self.winner is not None:
            won = f"winner {self.winner.config} at {format_time(self.winner.median_ns)}"
            if not self.objective.is_time:
                won += f" by {self.objective}"
        kept = "; ".join(self.notes) or "kept in the store"
        if self.stopped == "interrupted":
            kept += "; interrupted, the next run goes on from here"
        elif self.stopped == ENOUGH:
            kept += "; ended early, and silo tune measures the rest"
        elif self.stopped not in {"complete", "faults"}:
            kept += f"; stopped by its budget of {self.stopped}"
        remarks = (*filter(None, [self.fault_remark]), *self.remarks)
        return "; ".join([f"tuned {self.study}: {effort}", won, *remarks, kept])


class TuneInterrupted(KeyboardInterrupt):
    """Ctrl-C during a session. ``outcome`` holds every finished trial; only the running evaluation is lost."""

    def __init__(self, outcome: TuneOutcome) -> None:
        super().__init__(outcome.summary)
        self.outcome = outcome


def count_failures(trials: tuple[Trial, ...]) -> dict[str, int]:
    """The number of configs by kind of failure; a config that failed in two ways counts in both."""
    failed = {(trial.config.order_key, trial.status.value) for trial in trials if trial.status is not Status.OK}
    return dict(sorted(Counter(kind for _, kind in failed).items()))
