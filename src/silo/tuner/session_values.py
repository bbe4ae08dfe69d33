"""The values of a session: its budget and options, its progress as plain data, and its outcome."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from silo.core.config import Config
from silo.core.protocols import Searcher
from silo.core.values import Value
from silo.errors import TuneError
from silo.text_tables import format_duration, format_time
from silo.tuner.early_end import EarlyEnd
from silo.tuner.objective import TIME, Objective
from silo.tuner.refine import Refiner
from silo.tuner.search.search_state import Seed
from silo.tuner.search.searchers import DEFAULT_SEARCHER
from silo.tuner.spilling import SpillingConfig
from silo.tuner.statistics import median
from silo.tuner.trial import Status, Study, Trial
from silo.tuner.winner import Winner

__all__ = [
    "ENOUGH",
    "Budget",
    "Progress",
    "ProgressCallback",
    "SearchOptions",
    "SessionScope",
    "SessionWatch",
    "TuneInterrupted",
    "TuneOutcome",
    "count_failures",
    "event_to_json",
    "note_of",
]

ENOUGH = "enough"  # the session ended early: other configs could gain too little (silo.tuner.early_end)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one session; None means no limit.

    ``evaluations`` counts examined configs, including those with stored trials, so that a session that was killed can
    be continued to the same end. ``seconds`` is wall time, which includes compiling.

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
    ``interrupted`` or ``faults``. ``notes`` are failures of the store. ``remarks`` describe other work than searching
    the space, with reasons, a line each. ``aside`` are configs of the space that spill too much and were not measured:
    neither failures nor trials. ``comparison`` are the trials of the latest comparison of finalists that included the
    deployed config, if a config is deployed. ``faults`` are configs that could not be tried because of a fault of the
    machine (:mod:`silo.tuner.failures`), each with the fault. Nothing is stored about these configs, so the next
    session tries them.
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
        """Returns the winner.

        Raises:
            TuneError: no config can be used. The message says that no config meets the objective, or how each
                config failed.
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
        """Text about the configs that a fault of the machine left untried: their number, and the first fault; or ""."""
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
        note = "; ".join(self.notes) or "kept in the store"
        if self.stopped == "interrupted":
            note += "; interrupted, the next run goes on from here"
        elif self.stopped == ENOUGH:
            note += "; ended early, and silo tune measures the rest"
        elif self.stopped not in {"complete", "faults"}:
            note += f"; stopped by its budget of {self.stopped}"
        remarks = (*filter(None, [self.fault_remark]), *self.remarks)
        return "; ".join([f"tuned {self.study}: {effort}", won, *remarks, note])


class TuneInterrupted(KeyboardInterrupt):
    """Ctrl-C during a session. ``outcome`` holds every finished trial; only the running evaluation is lost."""

    def __init__(self, outcome: TuneOutcome) -> None:
        super().__init__(outcome.summary)
        self.outcome = outcome


def count_failures(trials: tuple[Trial, ...]) -> dict[str, int]:
    """Counts configs by kind of failure; a config that failed in two ways counts for both."""
    failed = {(trial.config.order_key, trial.status.value) for trial in trials if trial.status is not Status.OK}
    return dict(sorted(Counter(kind for _, kind in failed).items()))


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a session after one more config.

    ``total`` is the number of configs that the session will examine if no time limit stops it. ``done`` counts the
    configs known by now, of which ``reused`` came from the store. ``best_ns`` is the median of the fastest config so
    far. ``failures`` counts configs by kind of failure; ``aside`` counts configs that were set aside because they spill
    (:mod:`silo.tuner.spilling`). ``eta_s`` is the expected time to the end in seconds, at most the rest of the time
    limit; None if unknown. ``phase`` is ``search``, ``final`` or ``done``.
    """

    done: int
    total: int
    reused: int
    elapsed_s: float
    eta_s: float | None
    best: Config | None = None
    best_ns: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    last: Trial | None = None
    phase: str = "search"
    aside: int = 0


ProgressCallback = Callable[[Progress], None]

EVENT_SCHEMA = "tune-event/1"


def event_to_json(session: str, progress: Progress) -> dict[str, object]:
    """Returns one line of a log as plain JSON: the state of ``session``, and the trial that was just finished.

    Times of one launch are in nanoseconds (``_ns``), wall times in seconds (``_s``).
    """
    last = progress.last
    trial = None
    if last is not None:
        trial = {
            "config": _plain_members(last.config),
            "status": last.status.value,
            "median_ns": median(last.samples_ns) if last.samples_ns else None,
            "compile_ns": last.compile_ns,
            "message": last.message,
        }
    return {
        "schema": EVENT_SCHEMA,
        "session": session,
        "phase": progress.phase,
        "done": progress.done,
        "total": progress.total,
        "reused": progress.reused,
        "elapsed_s": round(progress.elapsed_s, 3),
        "eta_s": None if progress.eta_s is None else round(progress.eta_s, 3),
        "best": None if progress.best is None else _plain_members(progress.best),
        "best_ns": progress.best_ns,
        "failures": dict(progress.failures),
        "set_aside": progress.aside,
        "last": trial,
    }


def note_of(progress: Progress) -> str:
    """Returns text to print beside the number of finished configs: the best config so far, time left, failures."""
    parts: list[str] = []
    if progress.best_ns is not None:
        parts.append(f"best {format_time(progress.best_ns)} ({progress.best})")
    if progress.eta_s is not None and progress.done < progress.total:
        parts.append(f"{format_duration(progress.eta_s)} left")
    parts += [f"{count} {kind}" for kind, count in progress.failures.items()]
    parts += [f"{progress.aside} set aside"] if progress.aside else []
    return "; ".join(parts)


def _plain_members(config: Config) -> dict[str, object]:
    return {name: _plain(value) for name, value in config.as_dict().items()}


def _plain(value: Value) -> object:
    """Returns numbers and strings unchanged; values without a JSON form (dtypes, functions) as text."""
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value))
    return value if plain else str(value)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How the configs of a space are searched.

    Attributes:
        searcher: A searcher, or the name of a searcher, which is then seeded by the study's key.
        seeds: Configs to begin with, best guess first; only used if ``searcher`` is a name.
        budget: Limits of the session. Without limits, the default searcher examines 256 configs at most.
        ahead: The number of configs handed to the evaluator for compiling before they are needed; by default eight,
            and more if the searcher does not learn from outcomes.
        early: The limits of an early end (:mod:`silo.tuner.early_end`); None: the search goes on to its budget's end.
        estimates: For each config, a number that its time may depend on
            (:func:`silo.tuner.early_end.known_well_enough`).
    """

    searcher: str | Searcher = DEFAULT_SEARCHER
    seeds: tuple[Seed, ...] = ()
    budget: Budget = Budget()  # the default is shared, which is safe because Budget is frozen
    ahead: int | None = None
    early: EarlyEnd | None = None
    estimates: Mapping[bytes, float] | None = None


@dataclass(frozen=True, slots=True)
class SessionScope:
    """Configs to measure besides those that a search proposes, and configs to leave out.

    Attributes:
        refiner: Proposes further configs by the measurements; they count for the space like its own configs.
        most_spills: Configs whose code keeps more than this many values of a thread in local memory are set aside;
            None: no config is. A config that was set aside is neither a trial nor an evaluation; its searcher counts
            it as failed.
        deployed: A config of the space, or of its refinements, that is in use: it is always measured and compared, so
            that the decision whether it stays has samples taken side by side. The winner does not depend on it.
        retry: Kinds of failure that are tried again although the store holds them.
        finalists: The number of the fastest configs to compare, and more if noise hides which they are; below 2,
            no configs are compared.
        remeasure: The trials known when the session begins are superseded, so every config is measured anew.
        objective: The metric that ranks configs, and constraints. Configs whose trials lack a metric that it names are
            measured again. Finalists are compared side by side only if the metric is time.
        timeouts_count: If true, a config that passes a time limit fails. If false, a passed limit counts as a fault of
            the machine, which may have given the processes too little CPU time, and nothing is stored about the config.
    """

    refiner: Refiner | None = None
    most_spills: int | None = None
    deployed: Config | None = None
    retry: frozenset[Status] = frozenset()
    finalists: int = 4
    remeasure: bool = False
    objective: Objective = TIME
    timeouts_count: bool = True


@dataclass(frozen=True, slots=True)
class SessionWatch:
    """The receiver of progress, called after each config, and the session's clock, which returns nanoseconds."""

    progress: ProgressCallback | None = None
    clock: Callable[[], int] = time.monotonic_ns
