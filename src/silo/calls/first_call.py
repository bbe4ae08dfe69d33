"""Tunes a kernel during a first call, on copies of the caller's own arguments."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from silo.artifacts.artifact import Artifact
from silo.building.compilation import Compilation, memory_is_shown
from silo.calls.decision import call_budget_s, tuning_allowance_s
from silo.core.config import Config, ConfigSet
from silo.core.decisions import Decision, Origin, Rejected
from silo.core.host_arrays import has_numpy
from silo.errors import ArgumentError, SiloError, TuneError
from silo.launch.arguments import CallArgument, ValueKind
from silo.launch.array_parts import extent_of, with_base
from silo.machine.array_copies import array_behind, duplicate
from silo.machine.process_session import session
from silo.measuring.benches import RUN_LIMIT_S, Bench, LocalBench, benches_on, grid_at
from silo.measuring.case_session_options import refiner_of, spill_limit_of, study_seeds
from silo.measuring.earlier_studies import contenders_of
from silo.measuring.evaluators import BenchEvaluator, CompiledArtifacts
from silo.measuring.lock_files import lock_of
from silo.measuring.metric_plan import plan_metrics, wanted_objective
from silo.settings import settings
from silo.status_line import Task, announce, working
from silo.tuner.early_end import EarlyEnd
from silo.tuner.policy import BEGUN, TimeSpent, note_effort, read_effort
from silo.tuner.search.search_state import Seed
from silo.tuner.session import tune
from silo.tuner.session_values import Budget, Progress, SearchOptions, SessionScope, SessionWatch, TuneOutcome, note_of
from silo.tuner.shortlist import Shortlist, shortlist
from silo.tuner.statistics import PPM

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.core.device import Target
    from silo.core.search_space import SearchSpace
    from silo.core.variant import Variant
    from silo.measuring.study_key import StudyKey
    from silo.tuner.trial import Study

__all__ = [
    "LiveSearch",
    "call_arguments",
    "call_grid_of",
    "early_end_of",
    "measurable",
    "most_promising",
    "tune_live",
    "tuned_live",
]

_log = logging.getLogger("silo")

_PROMISING = 7  # the number of configs that are tried after the first one, before the search learns from times


def measurable(kernel: DeclaredKernel, context: CallContext, variant: Variant) -> Decision:
    """Decides whether candidates can be measured on copies of the call's arguments.

    ``variant`` is the variant of any one candidate.
    """
    if kernel.grid is None and context.call.grid is None:
        return Rejected("the call gives no grid that other configs could use")
    if kernel.zeroed_always is None:
        return Rejected("its configs set different arguments to zero, which measuring does not do")
    if isinstance(context.device.measuring, Rejected):
        return context.device.measuring
    if reason := kernel.why_unmeasured(context.device.target):
        return Rejected(reason)
    if not has_numpy():
        return Rejected("numpy is not installed, and results are compared with it")
    ranges: list[tuple[int, int, object, str]] = []
    for argument in context.call.arguments:
        if argument.kind is ValueKind.ADDRESS:
            return Rejected(f"{argument.name} is a bare address, which cannot be copied")
        if argument.kind in (ValueKind.POINTER, ValueKind.DESCRIPTOR):
            array = array_behind(argument.value)
            if array is None:
                return Rejected(f"{argument.name} is a {type(argument.value).__name__}, which cannot be copied")
            extent = extent_of(array)
            start, end = extent.start, extent.start + extent.size
            for low, high, other, name in ranges:
                if start < high and low < end and other is not array:
                    return Rejected(f"{argument.name} and {name} overlap in memory")
            ranges.append((start, end, array, argument.name))
    shown = memory_is_shown(kernel.source, variant, call_arguments(context))
    return shown or Rejected(f"{shown.reason}, and what lies there cannot be copied")


def tune_live(
    kernel: DeclaredKernel,
    context: CallContext,
    study_key: StudyKey,
    variant_of: Callable[[Config], Variant],
    launcher: Any,  # noqa: ANN401  # the kernel's launcher without a check
    unmeasured: Origin,
) -> Config | None:
    """Tunes a call like :func:`tuned_live`, and returns the winner's config, or None if no config works."""
    outcome = tuned_live(kernel, context, study_key, variant_of, launcher, unmeasured)
    return None if outcome is None else outcome.require_winner().config


def tuned_live(
    kernel: DeclaredKernel,
    context: CallContext,
    study_key: StudyKey,
    variant_of: Callable[[Config], Variant],
    launcher: Any,  # noqa: ANN401  # the kernel's launcher without a check
    unmeasured: Origin,
) -> TuneOutcome | None:
    """Tunes one call within the budget, logs one line, and returns the outcome, or None if no candidate works.

    ``unmeasured`` is the decision source of the config that the call uses if no candidate works. The caller's arrays
    are only read: candidates run on copies.
    """
    bench = _bench(kernel, context, launcher)
    if bench is None:
        return None
    compilation = Compilation(session(), kernel.source, trials=True)
    live = LiveSearch(kernel, context, study_key, variant_of, bench, CompiledArtifacts(compilation, variant_of))
    spent_s = read_effort(live.study, study_key.records).seconds
    target = context.device.target
    budget_s = call_budget_s(target)
    left_s = max(tuning_allowance_s(target) - spent_s, budget_s / 10)
    return live.run(Budget(seconds=min(budget_s, left_s)), unmeasured)


@dataclass(frozen=True)
class LiveSearch:
    """The search of one call's study. Candidates run on a bench, which holds copies of the call's arguments.

    ``timeouts_count``: whether a config fails if it exceeds a time limit. If False, that is a fault of the machine.
    """

    kernel: DeclaredKernel
    context: CallContext
    study_key: StudyKey
    variant_of: Callable[[Config], Variant]
    bench: Bench
    artifacts: CompiledArtifacts
    timeouts_count: bool = True

    @cached_property
    def study(self) -> Study:
        """The study of the call."""
        return self.study_key.study(self.context.specialization, self.context.bucket)

    def run(self, budget: Budget, unmeasured: Origin) -> TuneOutcome | None:
        """Searches within ``budget``, and closes the bench.

        Logs one line. Returns None, with a warning that ``unmeasured`` is used, if no config works.
        """
        study, study_key = self.study, self.study_key
        # _scope() reads whether an earlier search was cut off. After _note(BEGUN) below, this search would look like
        # one.
        space, scope = _scope(self.kernel, self.context, study_key, study, self.variant_of)
        objective = wanted_objective()
        predicted = self._shortlist(space)
        early = early_end_of(self.context.device.target, read_effort(study, study_key.records), predicted)
        begin, ended = time.monotonic(), "interrupted"
        _note(study, study_key, BEGUN)
        try:
            metrics = plan_metrics(objective, f"the call of {study.kernel}", self.context.device, None)
            with (
                BenchEvaluator(study, self.artifacts, self.bench, None, space.listed, metrics=metrics) as evaluator,
                working(f"tuning {study}") as task,
            ):
                outcome = tune(
                    study,
                    space,
                    evaluator,
                    study_key.records,
                    SearchOptions(
                        seeds=self._seeds(space, predicted),
                        budget=budget,
                        early=early,
                        estimates=None if early is None else self._programs(space),
                    ),
                    replace(scope, timeouts_count=self.timeouts_count, objective=objective),
                    SessionWatch(partial(_show, task)),
                )
            ended = outcome.stopped
            outcome.require_winner()
        except TuneError as error:
            _log.warning("%s; %s is used", error, unmeasured.phrase)
            return None
        finally:
            _note(study, study_key, ended, time.monotonic() - begin)
        announce(outcome.summary)
        return outcome

    def _programs(self, space: SearchSpace) -> dict[bytes, float] | None:
        """Returns the number of programs of this call by config; None if the space consists of groups of choices."""
        if space.grouped is not None:
            return None
        counted = programs_of(self.kernel, self.context, self.variant_of)
        return {config.order_key: float(count) for config in space.listed if (count := counted(config))}

    def _shortlist(self, space: SearchSpace) -> Shortlist | None:
        """Returns the shortlist predicted from measurements of other sizes.

        Returns None without a model for this study, or if ``space`` lacks a config of the shortlist.
        """
        generalization = self.study_key.generalization(self.context.specialization, self.context.reach)
        if generalization is None:
            return None
        values = tuple(self.context.values[name] for name in self.study_key.key)
        predicted = shortlist(generalization, values, space.size)
        return predicted if predicted and all(config in space for config in predicted.configs) else None

    def _seeds(self, space: SearchSpace, predicted: Shortlist | None) -> tuple[Seed, ...]:
        """Returns the configs to try first: the shortlist ``predicted``, and configs of earlier studies.

        Without either, returns on a CPU the configs of :func:`most_promising`, after the space's first config.
        """
        locked = lock_of(self.kernel)
        near = study_seeds(self.study, space, self.study_key.records, locked[0] if locked else None)
        if predicted is not None:
            return (*(Seed(config, reason=predicted.reason) for config in predicted.configs), *near)
        if near:
            return near
        promising = most_promising(self.kernel, self.context, space, self.variant_of, _PROMISING)
        # The space's first config comes first, because the results of the others are compared with its result.
        order = dict.fromkeys((space.listed[0], *promising)) if promising else ()
        return tuple(Seed(config, reason="promising by its grid") for config in order)


def most_promising(
    kernel: DeclaredKernel,
    context: CallContext,
    space: SearchSpace,
    variant_of: Callable[[Config], Variant],
    limit: int,
) -> tuple[Config, ...]:
    """Returns at most ``limit`` configs of a declared space, best first: about four programs for each thread are best.

    The result is empty for other devices than a CPU, for a space that consists of groups of choices, and for a space
    that a heuristic has ordered.
    """
    if context.device.target.kind != "cpu" or context.rule is not None or space.grouped is not None:
        return ()
    from silo.heuristics.unmeasured_choices import promising_configs  # noqa: PLC0415  # known studies need none

    counted = programs_of(kernel, context, variant_of)
    return promising_configs(space.listed, counted, settings().threads, limit)


def programs_of(
    kernel: DeclaredKernel, context: CallContext, variant_of: Callable[[Config], Variant]
) -> Callable[[Config], int | None]:
    """Returns a function from a config to the number of programs of the call, or to None if the grid fails."""

    def counted(config: Config) -> int | None:
        try:
            return math.prod(call_grid_of(kernel, context, variant_of(config)))
        except SiloError:
            return None  # a launch with this config will raise the error

    return counted


def early_end_of(target: Target, effort: TimeSpent, predicted: Shortlist | None = None) -> EarlyEnd | None:
    """Returns the conditions under which a search ends before its budget is spent; None if it must not end early.

    Searches end early only on a CPU, where compiling takes most of the time, and only once for a study: the next search
    measures the remaining configs. A search may end after the configs of the shortlist ``predicted`` if shortlists are
    good at the sizes that were measured: there, the best config of a predicted shortlist is on average slower than the
    winner by at most the fraction ``EarlyEnd.gain``.
    """
    if target.kind != "cpu" or effort.ended_early:
        return None
    if predicted is None or predicted.held_out_ppm is None or predicted.held_out_ppm > EarlyEnd().gain * PPM:
        return EarlyEnd()
    return EarlyEnd(first=len(predicted.configs), shortlist=predicted.configs)


def _scope(
    kernel: DeclaredKernel,
    context: CallContext,
    study_key: StudyKey,
    study: Study,
    variant_of: Callable[[Config], Variant],
) -> tuple[SearchSpace, SessionScope]:
    """Returns the configs to measure, and the scope of the session.

    If the study was decided under an earlier compiler, the configs are only the best ones of that decision.
    """
    contenders = contenders_of(study, study_key.records, context.reach)
    tried = {trial.config.order_key for trial in study_key.trials(context.specialization, context.bucket)}
    is_begun = read_effort(study, study_key.records).is_cut_off
    if contenders and not (is_begun and all(config.order_key in tried for config in contenders)):
        return ConfigSet(contenders), SessionScope(finalists=len(contenders))
    refiner = refiner_of(context, lambda config: call_grid_of(kernel, context, variant_of(config)))
    return context.searched, SessionScope(refiner=refiner, most_spills=spill_limit_of(context))


def _note(study: Study, study_key: StudyKey, ended: str, seconds: float = 0.0) -> None:
    if trouble := note_effort(study, study_key.records, ended, seconds):
        _log.warning("%s", trouble)


def _show(task: Task, progress: Progress) -> None:
    task.note = "; ".join(filter(None, [f"{progress.done} of {progress.total} configs", note_of(progress)]))


def _bench(kernel: DeclaredKernel, context: CallContext, launcher: Any) -> Bench | None:  # noqa: ANN401
    """Makes the bench that runs the candidates. Returns None, and logs why, if the arguments cannot be copied."""
    call = context.call
    confined = benches_on(
        kernel.name,
        [context.device],
        call_arguments(context),
        lambda _, artifact: call_grid_of(kernel, context, artifact.variant),
        limit_s=min(RUN_LIMIT_S, max(1.0, call_budget_s(context.device.target) / 4)),
        in_library=kernel.in_library,
    )
    if confined:
        return confined[0]
    arguments = _copies(context)
    if arguments is None:
        return None
    grid = call.grid

    def launcher_of(config: Config, artifact: Artifact) -> Callable[[], object]:
        del artifact  # unused, because the launcher compiles the config itself
        call_values = {**arguments, **config.as_dict(), **({} if grid is None else {"grid": grid})}
        return lambda: launcher(**call_values)

    return LocalBench(context.device, arguments, launcher_of)


def call_grid_of(kernel: DeclaredKernel, context: CallContext, variant: Variant) -> tuple[int, ...]:
    """Returns the grid of a call with one variant."""
    call, values = context.call, {**variant.specialization.constant_values, **variant.config.as_dict()}
    return grid_at(kernel.grid, call.grid, call.values, values, context.device.facts())


def call_arguments(context: CallContext) -> dict[str, object]:
    """Returns the arguments of a call by name, as candidates receive them."""
    arguments = context.call.arguments
    return {
        argument.name: _plain(argument)
        for argument in arguments
        if argument.kind not in (ValueKind.ABSENT, ValueKind.CONSTANT)
    }


def _plain(argument: CallArgument) -> object:
    """Returns the argument's value; a scalar of an array library becomes a Python scalar."""
    return argument.number if argument.kind in (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT) else argument.value


def _copies(context: CallContext) -> dict[str, object] | None:
    """Copies the call's arguments. Arguments that are the same array share its copy.

    Returns None if an array cannot be copied.
    """
    copies: dict[int, object] = {}
    result: dict[str, object] = {}
    for name, value in context.call.values.items():
        if name in context.given:
            continue
        array = array_behind(value)
        if array is not None:
            if id(array) not in copies:
                try:
                    copies[id(array)] = duplicate(array)
                except ArgumentError as error:
                    _log.info("%s is not tuned on this call: %s: %s", context.call.kernel, name, error)
                    return None
            result[name] = copies[id(array)] if array is value else with_base(value, copies[id(array)])
        else:
            result[name] = value
    return result
