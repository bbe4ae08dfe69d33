"""A tuning session: search a space, keep every trial, compare the finalists, name the winner."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from silo.core.config import Config
from silo.core.protocols import RecordStore, Searcher
from silo.errors import (
    CompileError,
    CompilerMissingError,
    CompileTimeoutError,
    LaunchError,
    LaunchTimeoutError,
    SiloError,
    TuneError,
)
from silo.tune.evaluator import Evaluator
from silo.tune.lanes import InlineLane, Lanes
from silo.tune.ledger import Ledger
from silo.tune.outcome import Budget, TuneInterrupted, TuneOutcome, count_failures
from silo.tune.progress import Progress, ProgressCallback
from silo.tune.refine import Refiner
from silo.tune.search.registry import AHEAD, DEFAULT_SEARCHER, ahead_of, make_searcher
from silo.tune.search.seed import Seed
from silo.tune.statistics import median
from silo.tune.trial import Stage, Status, Study, Trial
from silo.tune.winner import choose_winner, finalists

__all__ = ["FINISH_SHARE", "tune"]

_NO_BUDGET = Budget()

# The part of a time budget that the search may use; the rest is for comparing the finalists.
_SEARCH_SHARE = 0.85
# When so much of what the search may use is spent, the searcher is told to make the best sure.
FINISH_SHARE = 0.9
# How many configs the default searcher looks at when no budget says: whoever wants all of a larger space says so.
_DEFAULT_EVALUATIONS = 256


def tune(
    study: Study,
    configs: Sequence[Config],
    evaluator: Evaluator | Lanes,
    records: RecordStore,
    *,
    searcher: str | Searcher = DEFAULT_SEARCHER,
    seeds: Sequence[Seed] = (),
    budget: Budget = _NO_BUDGET,
    progress: ProgressCallback | None = None,
    finalist_count: int = 4,
    refiner: Refiner | None = None,
    retry: frozenset[Status] = frozenset(),
    ahead: int | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> TuneOutcome:
    """Measure ``configs`` within ``budget`` and name the winner.

    Trials that ``records`` holds already are reused, also those that other processes finish meanwhile, so a killed
    session goes on where it was and a config added to a space costs one measurement. Each trial is kept as soon as
    it is finished. Near the end of the budget the searcher is told so, and a default search then descends in the whole
    neighbourhood of its best. Finalists are then measured side by side.

    Args:
        study: What the trials have in common; its key names them in the store.
        configs: The space, in its order.
        evaluator: Compiles, checks and measures; or several that do, side by side.
        records: Where trials are kept.
        searcher: A searcher, or the name of one, which is then seeded by the study's key.
        seeds: Configs to begin with, best guess first; for a searcher given by name.
        budget: Limits of this session. Without any, the default searcher looks at 256 configs at most.
        progress: Called after each config with where the session stands.
        finalist_count: How many of the fastest configs are compared at most; below 2 none are.
        refiner: Proposes further configs by what was measured; they count for the space as its own do.
        retry: Kinds of failure that are tried again although the store holds them.
        ahead: How many configs are handed to the evaluator for compiling before they are needed; by default eight,
            and more where the searcher does not learn from outcomes.
        clock: Wall time in nanoseconds.

    Raises:
        TuneError: The space is empty; no searcher has this name.
        TuneInterrupted: Ctrl-C; a ``KeyboardInterrupt`` that carries the outcome so far.
    """
    space = tuple({config.order_key: config for config in configs}.values())
    if not space:
        raise TuneError(f"{study}: the space is empty, so there is nothing to tune; check its constraints")
    if searcher == DEFAULT_SEARCHER and budget == _NO_BUDGET:
        budget = Budget(evaluations=_DEFAULT_EVALUATIONS)
    if ahead is None:
        ahead = ahead_of(searcher, len(space)) if isinstance(searcher, str) else AHEAD
    if isinstance(searcher, str):
        searcher = make_searcher(searcher, space, study.key, seeds)
    session = _Session(
        study,
        space,
        evaluator if isinstance(evaluator, Lanes) else InlineLane(evaluator),
        records,
        searcher=searcher,
        budget=budget,
        progress=progress,
        retry=retry,
        ahead=ahead,
        clock=clock,
        refiner=refiner,
    )
    try:
        stopped = session.search()
        session.refine()
        session.compare(finalist_count)
    except KeyboardInterrupt as interrupt:
        raise TuneInterrupted(session.outcome("interrupted")) from interrupt
    session.report("done")
    return session.outcome(stopped)


class _Session:
    def __init__(
        self,
        study: Study,
        space: tuple[Config, ...],
        lanes: Lanes,
        records: RecordStore,
        *,
        searcher: Searcher,
        budget: Budget,
        progress: ProgressCallback | None,
        retry: frozenset[Status],
        ahead: int,
        clock: Callable[[], int],
        refiner: Refiner | None,
    ) -> None:
        self._study = study
        self._space = frozenset(config.order_key for config in space)
        self._refiner = refiner
        self._total = len(space) if budget.evaluations is None else min(len(space), budget.evaluations)
        self._lanes = lanes
        self._searcher = searcher
        self._budget = budget
        self._progress = progress
        self._retry = retry
        self._ahead = max(ahead, 2 * lanes.count) if lanes.count > 1 else ahead
        self._clock = clock
        self._start = clock()
        self._ledger = Ledger(study, records)
        self._measured = 0
        self._reused = 0
        self._last: Trial | None = None
        self._best: tuple[int, Config] | None = None
        self._failures: Counter[str] = Counter()
        self._refined = 0  # configs that the refiner proposed, on top of the total of the search
        self._begun: dict[bytes, int] = {}  # when each config that is being evaluated was started

    def search(self) -> str:
        """Go through the searcher's suggestions; why it stopped."""
        queue: deque[Config] = deque()
        asked, out_of_time = self._take_known(), False
        while True:
            if not out_of_time:
                asked = self._top_up(queue, asked)
            while queue and self._lanes.free:
                config = queue.popleft()
                self._ledger.refresh()
                if known := self._known(config):
                    self._reused += 1
                    self._observe(config, known)
                    self.report("search")
                    break  # the searcher may have more to say now
                if self._spent(_SEARCH_SHARE):
                    out_of_time = True
                    queue.clear()
                else:
                    self._begun[config.order_key] = self._clock()
                    self._lanes.start(config)
            else:
                if self._lanes.busy:
                    self._finish_one()
                elif out_of_time:
                    return "seconds"
                else:
                    return "evaluations" if asked < len(self._space) and asked >= self._total else "complete"

    def _top_up(self, queue: deque[Config], asked: int) -> int:
        """Ask the searcher for as many configs as may be compiled ahead; how many it was asked for by now."""
        if asked >= self._total * FINISH_SHARE or self._spent(_SEARCH_SHARE * FINISH_SHARE):
            self._searcher.finish()
        room = min(self._ahead - len(queue), self._total - asked)
        if room <= 0:
            return asked
        suggested = list(self._searcher.suggest(room))
        queue.extend(suggested)
        self._lanes.prepare([config for config in suggested if not self._known(config)])
        return asked + len(suggested)

    def _finish_one(self) -> None:
        config, result = self._lanes.finish()
        known = [self._trial(config, result)]
        self._ledger.keep(known)
        self._measured += 1
        self._observe(config, known)
        self.report("search")

    def refine(self) -> None:
        """Measure what the trials suggest besides the space, until they suggest nothing new or time is up."""
        while self._refiner is not None:
            self._ledger.refresh()
            queue = deque(one.config for one in self._refiner.propose(self._trials()))
            if not queue or self._spent(_SEARCH_SHARE):
                return
            self._refined += len(queue)
            self._lanes.prepare(list(queue))
            while queue or self._lanes.busy:
                while queue and self._lanes.free:
                    self._begun[queue[0].order_key] = self._clock()
                    self._lanes.start(queue.popleft())
                self._finish_one()

    def _take_known(self) -> int:
        """Tell the searcher what the store holds already; how many configs of the space that is."""
        known = {trial.config.order_key: trial.config for trial in self._trials() if self._known(trial.config)}
        for config in known.values():
            self._reused += 1
            self._observe(config, self._known(config))
            self.report("search")
        mine = len(self._space & known.keys())
        self._total = max(self._total, mine)
        self._refined = len(known) - mine
        return mine

    def _observe(self, config: Config, known: Sequence[Trial]) -> None:
        self._last = known[-1]
        self._failures.update({trial.status.value for trial in known if trial.status is not Status.OK})
        samples = [sample for trial in known for sample in trial.samples_ns]
        time_ns = median(samples) if samples else None
        if time_ns is not None and (self._best is None or time_ns < self._best[0]):
            self._best = (time_ns, config)
        if config.order_key in self._space:
            self._searcher.observe(config, None if time_ns is None else float(time_ns))

    def compare(self, count: int) -> None:
        """Measure the finalists side by side, unless that was done already or time is up."""
        self._ledger.refresh()
        chosen = finalists(self._trials(), count)
        while chosen and not self._spent(1.0) and not all(self._ledger.of(config, Stage.FINAL) for config in chosen):
            self.report("final")
            samples = self._side_by_side(chosen)
            # One record: a reader never sees some finalists compared and others not.
            self._ledger.keep([self._remeasured(config, samples.get(config, ())) for config in chosen])
            chosen = finalists(self._trials(), count)  # others, where one of them failed

    def _side_by_side(self, chosen: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        try:
            return self._lanes.compare(chosen)
        except CompilerMissingError:
            raise
        except (CompileError, LaunchError):
            if len(chosen) == 1:
                return {}
            # One of them fails now and did not at first. Each by itself shows which; the others still have samples
            # of about the same time.
            return {config: samples for each in chosen for config, samples in self._side_by_side([each]).items()}

    def _remeasured(self, config: Config, samples: Sequence[int]) -> Trial:
        if not samples:
            return self._study.failed(config, Status.RUN, "it worked at first and failed when measured again")
        return next(trial for trial in self._ledger.of(config) if trial.status is Status.OK).remeasured(samples)

    def report(self, phase: str) -> None:
        """Tell the caller where the session stands."""
        if self._progress is None:
            return
        done, elapsed = self._measured + self._reused, self._elapsed_s()
        total = self._total + self._refined
        left = elapsed / self._measured * (total - done) if self._measured else None
        if self._budget.seconds is not None:
            rest = max(self._budget.seconds - elapsed, 0.0)
            left = rest if left is None else min(left, rest)
        self._progress(
            Progress(
                done=done,
                total=total,
                reused=self._reused,
                elapsed_s=elapsed,
                eta_s=left,
                best=self._best[1] if self._best else None,
                best_ns=self._best[0] if self._best else None,
                failures=dict(self._failures),
                last=self._last,
                phase=phase,
            )
        )

    def outcome(self, stopped: str) -> TuneOutcome:
        """What is known now."""
        trials = self._trials()
        return TuneOutcome(
            study=self._study,
            winner=choose_winner(trials),
            trials=trials,
            measured=self._measured,
            reused=self._reused,
            failures=count_failures(trials),
            seconds=self._elapsed_s(),
            stopped=stopped,
            notes=self._ledger.notes,
        )

    def _trials(self) -> tuple[Trial, ...]:
        """The known trials of this space and its refinements: a study may hold others, of a space that was larger."""
        return tuple(trial for trial in self._ledger.trials if self._counts(trial.config))

    def _counts(self, config: Config) -> bool:
        return config.order_key in self._space or (
            self._refiner is not None and self._refiner.reach.is_refined_form(config)
        )

    def _known(self, config: Config) -> list[Trial]:
        return self._ledger.of(config, besides=self._retry)

    def _elapsed_s(self) -> float:
        return (self._clock() - self._start) / 1e9

    def _spent(self, share: float) -> bool:
        return self._budget.seconds is not None and self._elapsed_s() >= self._budget.seconds * share

    def _trial(self, config: Config, result: Trial | SiloError) -> Trial:
        """What came of a config as a trial. Raises what is no config's fault: every other config would meet it too."""
        compile_ns = self._clock() - self._begun.pop(config.order_key)
        match result:
            case Trial():
                if result.config.order_key != config.order_key:
                    raise ValueError(f"the evaluator was asked for {config} and answered for {result.config}")
                return result
            case CompilerMissingError():
                raise result
            case CompileTimeoutError():
                return self._study.failed(config, Status.TIMEOUT, str(result), compile_ns=compile_ns)
            case CompileError():
                return self._study.failed(config, Status.COMPILE, str(result), compile_ns=compile_ns)
            case LaunchTimeoutError():
                return self._study.failed(config, Status.TIMEOUT, str(result))
            case LaunchError():
                return self._study.failed(config, Status.RUN, str(result))
            case _:
                raise result
