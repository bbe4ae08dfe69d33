"""A tuning session: searches a space, stores every trial, compares the finalists, and names the winner."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from silo.core.config import Config
from silo.core.protocols import RecordStore, Searcher
from silo.core.search_space import SearchSpace
from silo.errors import (
    CompileError,
    CompilerMissingError,
    CompileTimeoutError,
    LaunchError,
    LaunchTimeoutError,
    SiloError,
    TuneError,
)
from silo.tuner.early_end import known_well_enough, shortlist_measured, unconfirmed
from silo.tuner.failures import fault_of
from silo.tuner.lanes import Evaluator, InlineLane, Lanes
from silo.tuner.ledger import Ledger, catch_up
from silo.tuner.refine import Refinement, describe_refinements
from silo.tuner.search.search_state import Seed
from silo.tuner.search.searchers import AHEAD, DEFAULT_SEARCHER, ahead_of, gone_through, make_searcher
from silo.tuner.session_values import (
    ENOUGH,
    Budget,
    Progress,
    SearchOptions,
    SessionScope,
    SessionWatch,
    TuneInterrupted,
    TuneOutcome,
    count_failures,
)
from silo.tuner.spilling import Aside, SpillingConfig, judge
from silo.tuner.statistics import ReferenceConfig, Scales, comparison_name, median, successor
from silo.tuner.trial import Stage, Status, Study, Trial
from silo.tuner.winner import choose_winner, disqualified, finalists, unbeaten, undecided

__all__ = ["FINISH_SHARE", "tune"]

# The fraction of a time budget that the search may use; the rest is for comparing the finalists.
_SEARCH_SHARE = 0.85
# Once this fraction of the search's time is spent, the searcher confirms the best config instead of exploring.
FINISH_SHARE = 0.9
# A session ends after this many configs in a row that could not be tried because of a fault of the machine: the next
# config would fail too.
_MOST_FAULTS = 8
# Finalists that the samples do not separate are compared again _FEW_REPEATS times. They are compared up to
# _MOST_REPEATS times as long as comparing takes at most _COMPARE_SHARE of the time that the session took before.
_FEW_REPEATS = 2
_MOST_REPEATS = 16
_COMPARE_SHARE = 0.25
# The most configs that are compiled in advance while the search may end early.
_AHEAD_OF_AN_END = 2
# The most evaluations of the default searcher in a session without any limit. A budget replaces this limit.
_DEFAULT_EVALUATIONS = 256


def tune(
    study: Study,
    space: SearchSpace,
    evaluator: Evaluator | Lanes,
    records: RecordStore,
    search: SearchOptions = SearchOptions(),  # noqa: B008  # shared defaults are safe, because these three classes are frozen
    scope: SessionScope = SessionScope(),  # noqa: B008
    watch: SessionWatch = SessionWatch(),  # noqa: B008
) -> TuneOutcome:
    """Measures the configs of ``space`` within a budget and names the winner.

    Trials in ``records`` are reused, including trials that other processes finish meanwhile. So a killed session can be
    continued, and a config added to a space costs one measurement. Each trial is stored as soon as it is finished. Near
    the end of the budget the searcher is notified; the default searcher then tries the neighbours of its best config.
    Configs that spill much are set aside; some of them, or all if nothing else works, are measured last
    (:mod:`silo.tuner.spilling`). Finalists are then measured side by side.

    Args:
        study: The study of the trials; its key names them in the store.
        space: The configs, in order; a space of groups is never listed.
        evaluator: Compiles, checks and measures; or several evaluators, side by side.
        records: The store of trials.
        search: How the space is searched.
        scope: Further configs to measure, and configs to leave out.
        watch: The receiver of progress, and the clock.

    Raises:
        TuneError: The space is empty, or no searcher has the name that ``search`` names.
        TuneInterrupted: Ctrl-C; a ``KeyboardInterrupt`` that carries the outcome so far.
    """
    lanes = evaluator if isinstance(evaluator, Lanes) else InlineLane(evaluator)
    catch_up(study, records, follow=True)
    if scope.remeasure:
        search = _superseded(study, records, search, space)
    session = _Session(study, records, lanes, _Searched.of(space, study, search), scope, watch, search)
    try:
        stopped = session.search()
        session.measure_deployed()
        session.measure_aside()
        session.refine()
        session.compare(scope.finalists)
    except KeyboardInterrupt as interrupt:
        raise TuneInterrupted(session.outcome("interrupted")) from interrupt
    session.report("done")
    return session.outcome(stopped)


def _superseded(study: Study, records: RecordStore, search: SearchOptions, space: SearchSpace) -> SearchOptions:
    """Supersedes the trials of a study, and returns options whose search begins with the winner of these trials.

    So the study soon has a winner again.
    """
    ledger = Ledger(study, records)
    winner = choose_winner(ledger.trials)
    ledger.supersede()
    if winner is None or winner.config not in space:
        return search
    return replace(search, seeds=(Seed(winner.config, reason="best by the trials that are superseded"), *search.seeds))


@dataclass(frozen=True, slots=True)
class _Searched:
    """A space in the form that its searcher needs: a space of groups is listed unless the searcher handles groups."""

    space: SearchSpace
    searcher: Searcher
    budget: Budget
    ahead: int

    @classmethod
    def of(cls, space: SearchSpace, study: Study, search: SearchOptions) -> _Searched:
        searcher, budget, ahead = search.searcher, search.budget, search.ahead
        if isinstance(searcher, str):
            space = gone_through(searcher, space)
        if not space.size:
            raise TuneError(f"{study}: the space is empty, so there is nothing to tune; check its constraints")
        if searcher == DEFAULT_SEARCHER and budget == Budget():
            budget = Budget(evaluations=_DEFAULT_EVALUATIONS)
        if isinstance(searcher, str):
            ahead = ahead_of(searcher, space, budget.evaluations) if ahead is None else ahead
            first = None if search.early is None else search.early.first
            searcher = make_searcher(
                searcher, space, study.key, search.seeds, first=first, evaluations=budget.evaluations
            )
        return cls(space, searcher, budget, AHEAD if ahead is None else ahead)


class _Session:
    def __init__(
        self,
        study: Study,
        records: RecordStore,
        lanes: Lanes,
        searched: _Searched,
        scope: SessionScope,
        watch: SessionWatch,
        options: SearchOptions,
    ) -> None:
        self._early_rule = options.early if searched.space.grouped is None else None
        self._estimates = options.estimates
        self._costs: dict[bytes, float | None] = {}  # costs of the space's observed configs, by `Config.order_key`
        self._early_end = ""  # the reason why the search ends early; "" while it goes on
        self._to_confirm: tuple[Config, ...] = ()  # configs to measure before the search may end early
        self._judged = 0  # the number of outcomes when the early end was last decided on
        self._study = study
        self._space = searched.space
        self._refiner = scope.refiner
        deployed = scope.deployed
        self._deployed = deployed if deployed is not None and self._counts(deployed) else None
        self._spilling = Aside(study, searched.space, records, scope.most_spills)
        self._lanes = lanes
        self._searcher = searched.searcher
        self._budget = searched.budget
        self._progress = watch.progress
        self._retry = scope.retry
        self._objective = scope.objective
        self._timeouts_count = scope.timeouts_count
        self._ahead = max(searched.ahead, 2 * lanes.count) if lanes.count > 1 else searched.ahead
        self._clock = watch.clock
        self._start = watch.clock()
        self._ledger = Ledger(study, records)
        self._scales = Scales(self._trials())
        self._reference = self._last_reference()
        self._measured = 0
        self._reused = 0
        self._last: Trial | None = None
        self._best: tuple[float, int, Config] | None = None  # cost, median time in ns, and config of the best trial
        self._failures: Counter[str] = Counter()
        # the number of configs that the searcher proposed or the store held, without spilling configs
        self._considered = 0
        self._known_first = 0  # the value of _considered when the session began: the configs that the store held
        # the number of known or measured configs that _considered leaves out: spilling configs and refinements
        self._more = 0
        self._refinements: dict[bytes, Refinement] = {}  # the refined configs proposed in this session
        self._troubles: list[str] = []
        # configs that could not be tried because of a fault of the machine, each with the fault
        self._faults: dict[bytes, tuple[Config, str]] = {}
        self._faults_running = 0  # the number of faults of the machine since a config was last tried
        self._begun: dict[bytes, int] = {}  # the start time of each config that is being evaluated

    def search(self) -> str:
        """Evaluates the searcher's suggestions until the search ends; returns the reason for its end."""
        queue: deque[Config] = deque()
        self._take_known()
        out_of_time = False
        while True:
            if not out_of_time:
                if self._knows_enough():
                    queue.clear()
                else:
                    self._top_up(queue)
            while queue and self._lanes.free:
                config = queue.popleft()
                self._ledger.refresh()
                if known_trials := self._trials_of(config):
                    self._reused += 1
                    self._take_in(known_trials)
                    self._observe(config, known_trials)
                    self.report("search")
                    break  # observing an outcome may let the searcher suggest more
                if self._spent(_SEARCH_SHARE) and not self._is_first:
                    out_of_time = True
                    queue.clear()
                else:
                    self._start_one(config, self._spilling.limit)
            else:
                if self._lanes.busy:
                    self._finish_one()
                elif out_of_time:
                    return "faults" if self._hopeless else "seconds"
                elif self._early_end:
                    return ENOUGH
                else:
                    return "evaluations" if self._total <= self._considered < self._eligible else "complete"

    @property
    def _eligible(self) -> int:
        """The number of configs of the space that the search may examine: all except those set aside for spilling."""
        return self._space.size - len(self._spilling)

    @property
    def _total(self) -> int:
        """The number of configs that the search will examine, unless the time budget ends it earlier."""
        limit = self._budget.evaluations
        return max(self._eligible if limit is None else min(self._eligible, limit), self._known_first)

    def _knows_enough(self) -> bool:
        """Returns whether the search ends early. Decides anew after each outcome, as long as configs are left."""
        costs = dict.fromkeys(self._faults) | self._costs
        if self._early_rule is None or self._early_end or self._judged == len(costs):
            return bool(self._early_end)
        self._judged = len(costs)
        if self._considered >= self._total:
            return False
        configs = tuple(config for config in self._space.listed if config.order_key not in self._spilling)
        if predicted := shortlist_measured(configs, costs, self._early_rule):
            self._to_confirm, self._early_end = (), predicted.reason
            return True
        decision = known_well_enough(configs, costs, self._early_rule, self._estimates, self._noise)
        self._to_confirm = unconfirmed(configs, costs, self._early_rule) if decision else ()
        if decision and not self._to_confirm:
            self._early_end = decision.reason
        return bool(self._early_end)

    @property
    def _noise(self) -> float:
        """The uncertainty of the best time, as a fraction of it; 0 while no config worked."""
        if self._best is None:
            return 0.0
        works = [trial for trial in self._ledger.of(self._best[2]) if trial.status is Status.OK]
        return self._scales.estimate(works).noise_permille / 1000 if works else 0.0

    def _room(self, waiting: int) -> int:
        """Returns how many configs may be proposed now.

        While the search may end early, only few are proposed, because each is compiled, which is in vain if the search
        ends.
        """
        remaining = self._total - self._considered
        if self._early_rule is None:
            return min(remaining, self._ahead - waiting)
        if self._considered < self._early_rule.first:
            return min(remaining, self._early_rule.first - self._considered)
        ready = len(self._costs) + len(self._faults) >= self._early_rule.first
        return min(remaining, _AHEAD_OF_AN_END - waiting) if ready else 0

    def _top_up(self, queue: deque[Config]) -> None:
        """Takes as many configs from the searcher as may be compiled in advance."""
        if self._considered >= self._total * FINISH_SHARE or self._spent(_SEARCH_SHARE * FINISH_SHARE):
            self._searcher.finish()
        room = self._room(len(queue))
        if room <= 0:
            return
        waiting = {config.order_key for config in queue} | self._begun.keys()
        proposed = self._to_confirm or self._searcher.suggest(room)
        suggested = [config for config in proposed if config.order_key not in waiting][:room]
        queue.extend(suggested)
        if new := [config for config in suggested if not self._trials_of(config)]:
            self._lanes.prepare(new)
        self._considered += len(suggested)

    def _start_one(self, config: Config, most_spills: int | None = None) -> None:
        self._begun[config.order_key] = self._clock()
        self._lanes.start(config, most_spills, self._reference)

    def _finish_one(self) -> None:
        config, result = self._lanes.finish()
        if isinstance(result, SpillingConfig):
            del self._begun[config.order_key]
            self._spilling.add(result)
            self._considered -= 1
            # the config counts as a failure for now; if it is measured later, its time is reported then
            self._searcher.observe(config, None)
            self.report("search")
            return
        trial, refinement = self._trial(config, result), self._refinements.get(config.order_key)
        if trial is None:
            if config in self._space:
                self._searcher.observe(config, None)
            self.report("search")
            return
        trials = [trial if refinement is None else refinement.explained(trial)]
        self._ledger.keep(trials)
        self._measured += 1
        self._take_in(trials)
        self._observe(config, trials)
        self.report("search")

    def _take_in(self, trials: Sequence[Trial]) -> None:
        """Adds new trials to ``self._scales``, which corrects times, and chooses the reference for the next configs."""
        for trial in trials:
            self._scales.add(trial)
            self._reference = successor(self._reference, trial, self._scales)

    def _last_reference(self) -> ReferenceConfig | None:
        """Returns the reference that earlier sessions used last; None if it cannot be measured in this space."""
        reference = None
        for trial in self._trials():
            reference = successor(reference, trial, self._scales)
        if reference is None or not self._counts(reference.config) or disqualified(self._ledger.of(reference.config)):
            return None
        return reference

    def measure_deployed(self) -> None:
        """Measures the deployed config (the one that is in use), unless it has been measured."""
        self._ledger.refresh()
        if self._deployed is not None and not self._trials_of(self._deployed):
            self._measure([self._deployed], 1.0)

    def measure_aside(self) -> None:
        """Measures the spilling configs that :func:`silo.tuner.spilling.judge` accepts, least spilling first."""
        if trouble := self._spilling.keep():
            self._troubles.append(trouble)
        if not len(self._spilling):
            return
        works = choose_winner(trial for trial in self._trials() if trial.config.order_key not in self._spilling)
        limit = self._budget.evaluations
        remaining = None if limit is None else max(limit - self._considered, 0)
        verdicts = judge(self._spilling.configs, others_work=works is not None, evaluations=remaining)
        chosen = [
            verdict.one.config for verdict in verdicts if verdict.decision and not self._trials_of(verdict.one.config)
        ]
        self._measure(chosen, 1.0 if works is None else _SEARCH_SHARE)

    def refine(self) -> None:
        """Measures the refinements that the trials suggest, until no new one is suggested or the time is spent."""
        while self._refiner is not None:
            self._ledger.refresh()
            proposed = {refinement.config.order_key: refinement for refinement in self._refiner.propose(self._trials())}
            if not proposed or self._spent(_SEARCH_SHARE):
                return
            self._refinements.update(proposed)
            self._measure([refinement.config for refinement in proposed.values()], _SEARCH_SHARE)

    def _measure(self, configs: Sequence[Config], share: float) -> None:
        """Measures configs after the search, in order, until the fraction ``share`` of the time budget is spent."""
        if not configs:
            return
        queue = deque(configs)
        self._more += len(queue)
        self._lanes.prepare(configs)
        while True:
            while queue and self._lanes.free and not self._spent(share):
                self._start_one(queue.popleft())
            if not self._lanes.busy:
                self._more -= len(queue)
                return
            self._finish_one()

    def _take_known(self) -> None:
        """Reports the contents of the store to the searcher: trials, and configs that spill too much."""
        known_configs = {
            trial.config.order_key: trial.config for trial in self._trials() if self._trials_of(trial.config)
        }
        for config in known_configs.values():
            self._reused += 1
            self._observe(config, self._trials_of(config))
            self.report("search")
        for spilling in self._spilling:
            if spilling.config.order_key not in known_configs:
                self._searcher.observe(spilling.config, None)
        self._considered = self._known_first = sum(
            config in self._space and key not in self._spilling for key, config in known_configs.items()
        )
        self._more = len(known_configs) - self._considered

    def _observe(self, config: Config, trials: Sequence[Trial]) -> None:
        self._last = trials[-1]
        self._failures.update({trial.status.value for trial in trials if trial.status is not Status.OK})
        samples = [sample for trial in trials for sample in self._scales.samples(trial)]
        time_ns = median(samples) if samples else None
        cost = time_ns if self._objective.is_time else self._cost(trials, time_ns)
        if time_ns is not None and cost is not None and (self._best is None or cost < self._best[0]):
            self._best = (cost, time_ns, config)
        if config in self._space:
            self._costs[config.order_key] = None if cost is None else float(cost)
            # A search by groups counts configs set aside as failures, even if they are measured later, so that a
            # resumed search takes the same path.
            hidden = self._space.grouped is not None and config.order_key in self._spilling
            self._searcher.observe(config, None if cost is None or hidden else float(cost))

    def _cost(self, trials: Sequence[Trial], time_ns: int | None) -> float | None:
        """Returns the value that the search minimizes; None for a config that failed or violates a constraint."""
        cost = self._objective.cost(trials)
        return cost if cost is None or self._objective.metric != "time" or time_ns is None else float(time_ns)

    def compare(self, count: int) -> None:
        """Measures the finalists side by side, unless they have been compared or the time is spent.

        Finalists that the samples do not separate are compared again, so that noise does not choose one. If a finalist
        proves slower than in the search, other configs may become finalists.
        """
        self._ledger.refresh()
        begun_s, repeats = self._elapsed_s(), 0
        chosen = self._contenders(count, _FEW_REPEATS)
        while chosen and not self._spent(1.0):
            self.report("final")
            samples, together = self._side_by_side(chosen)
            if any(config.order_key in self._faults for config in chosen):
                # A config could not be compared because of a fault of the machine, so these samples decide nothing. The
                # next session compares again.
                return
            name = comparison_name(samples) if together else ""
            # Stored as one record, so that readers never see some finalists compared and others not.
            self._ledger.keep([self._remeasured(config, samples.get(config, ()), name) for config in chosen])
            chosen = self._contenders(count, _MOST_REPEATS)
            if self._has_compared(chosen):
                repeats += 1
                taken_s = self._elapsed_s() - begun_s
                if repeats > _MOST_REPEATS or (repeats > _FEW_REPEATS and taken_s > _COMPARE_SHARE * begun_s):
                    return

    def _contenders(self, count: int, repeats: int) -> Sequence[Config]:
        """Returns the configs to compare next: new finalists and possible winners, or else configs within the noise.

        Configs within the noise are compared at most ``repeats`` times, counted in the trials, so that a session after
        a killed one continues.
        """
        if self._objective.metric != "time":
            return ()
        trials = self._objective.admitted(self._trials())
        near = finalists(trials, count, self._deployed)
        new = [config for config in near if not self._ledger.of(config, Stage.FINAL)]
        finals = [trial for trial in trials if trial.stage is Stage.FINAL]
        if new:
            others = unbeaten(finals) if all(trial.comparison for trial in finals) else near
            return tuple({config.order_key: config for config in (*others, *new)}.values())
        done = len({trial.comparison for trial in finals})
        return undecided(finals) if near and done <= repeats else ()

    def _has_compared(self, configs: Sequence[Config]) -> bool:
        return all(self._ledger.of(config, Stage.FINAL) for config in configs)

    def _side_by_side(self, chosen: Sequence[Config]) -> tuple[Mapping[Config, Sequence[int]], bool]:
        """Returns the samples of each config, and whether they were taken in the same rounds."""
        try:
            return self._lanes.compare(chosen), True
        except CompilerMissingError:
            raise
        except (CompileError, LaunchError) as error:
            if len(chosen) == 1:
                if fault := self._fault_of(error):
                    self._faults[chosen[0].order_key] = chosen[0], f"{fault}: {error}"
                return {}, False
            # One of the configs worked in the search and fails now. Each config is measured alone instead, which shows
            # the config that fails. The other configs still get samples that were taken within a short time of each
            # other.
            runs = [self._side_by_side([single])[0] for single in chosen]
            return {
                config: samples for samples_by_config in runs for config, samples in samples_by_config.items()
            }, False

    def _remeasured(self, config: Config, samples: Sequence[int], comparison: str) -> Trial:
        if not samples:
            return self._study.failed(config, Status.RUN, "it worked at first and failed when measured again")
        return next(trial for trial in self._ledger.of(config) if trial.status is Status.OK).remeasured(
            samples, comparison
        )

    def report(self, phase: str) -> None:
        """Passes the session's progress to the caller."""
        if self._progress is None:
            return
        done, elapsed = self._measured + self._reused, self._elapsed_s()
        shown = min(self._total, max(self._space.effort - len(self._spilling), done - self._more))
        total = shown + self._more
        remaining_s = elapsed / self._measured * (total - done) if self._measured else None
        if self._budget.seconds is not None:
            budget_left_s = max(self._budget.seconds - elapsed, 0.0)
            remaining_s = budget_left_s if remaining_s is None else min(remaining_s, budget_left_s)
        self._progress(
            Progress(
                done=done,
                total=total,
                reused=self._reused,
                elapsed_s=elapsed,
                eta_s=remaining_s,
                best=self._best[2] if self._best else None,
                best_ns=self._best[1] if self._best else None,
                failures=dict(self._failures),
                aside=sum(not self._ledger.of(spilling.config) for spilling in self._spilling),
                last=self._last,
                phase=phase,
            )
        )

    def outcome(self, stopped: str) -> TuneOutcome:
        """Returns the outcome at present; ``stopped`` is the reason for the end of the search."""
        trials = self._trials()
        return TuneOutcome(
            study=self._study,
            winner=choose_winner(trials, self._objective),
            objective=self._objective,
            trials=trials,
            measured=self._measured,
            reused=self._reused,
            failures=count_failures(trials),
            seconds=self._elapsed_s(),
            stopped=stopped,
            notes=(*self._ledger.notes, *self._troubles),
            remarks=(
                *filter(None, [self._early_end, self._spilling.remark({trial.config.order_key for trial in trials})]),
                *describe_refinements(trials),
            ),
            aside=self._unmeasured,
            faults=tuple(self._faults.values()),
            comparison=self._ledger.comparison_with(self._deployed) if self._deployed is not None else (),
        )

    @property
    def _unmeasured(self) -> tuple[SpillingConfig, ...]:
        """The configs that were set aside because they spill and were not measured later."""
        return tuple(config for config in self._spilling.configs if not self._ledger.of(config.config))

    def _trials(self) -> tuple[Trial, ...]:
        """Returns the known trials of this space and its refinements.

        The study may hold trials of other configs, from a time when the space was larger.
        """
        return tuple(trial for trial in self._ledger.trials if self._counts(trial.config))

    def _counts(self, config: Config) -> bool:
        return config in self._space or (self._refiner is not None and self._refiner.reach.is_refined_form(config))

    def _trials_of(self, config: Config) -> list[Trial]:
        trials = self._ledger.of(config, besides=self._retry)
        return trials if self._objective.is_measured(trials) else []

    def _elapsed_s(self) -> float:
        return (self._clock() - self._start) / 1e9

    @property
    def _is_first(self) -> bool:
        """Whether this session has not tried any config yet.

        One config is tried in any case, however slowly it compiles, so that sessions advance.
        """
        return not (self._measured or self._lanes.busy or self._faults)

    @property
    def _hopeless(self) -> bool:
        return self._faults_running >= _MOST_FAULTS

    def _spent(self, share: float) -> bool:
        if self._hopeless:
            return True
        return self._budget.seconds is not None and self._elapsed_s() >= self._budget.seconds * share

    def _fault_of(self, error: SiloError) -> str:
        if isinstance(error, CompileTimeoutError | LaunchTimeoutError) and not self._timeouts_count:
            return "a time limit passed while CPUs were short"
        return fault_of(error)

    def _trial(self, config: Config, result: Trial | SiloError) -> Trial | None:
        """Returns the trial of a config's result; None for a fault of the machine, which is no result of the config.

        Raises errors that no config caused and that every other config would meet too.
        """
        compile_ns = self._clock() - self._begun.pop(config.order_key)
        failed = isinstance(result, CompileError | LaunchError) and not isinstance(result, CompilerMissingError)
        if fault := self._fault_of(cast("SiloError", result)) if failed else "":
            self._faults[config.order_key] = config, f"{fault}: {result}"
            self._faults_running += 1
            return None
        self._faults_running = 0
        self._faults.pop(config.order_key, None)
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
