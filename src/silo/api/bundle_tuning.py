"""Tuning what a bundle holds, on this device, and refining the bundle in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from silo.api.bundles import BundledKernel, load
from silo.api.casework import PreparedCase, prepare_recipe
from silo.api.evaluation import contender_of
from silo.api.session import session
from silo.api.studies import measure_policy
from silo.api.studying import Limits, materializer
from silo.bundle.contents import BundleRules, BundleVariant
from silo.bundle.update import KernelUpdate, update_bundle
from silo.core.config import Config
from silo.core.dispatch import Bucket, DispatchRules, bucket_of
from silo.core.protocols import Device, Timer
from silo.core.signature import Signature
from silo.core.values import JSON
from silo.errors import BundleError, CaseError
from silo.launch.runtime import inspect_call
from silo.tune.measure import MeasurePolicy, interleave, measure
from silo.tune.outcome import Budget, TuneOutcome
from silo.tune.progress import Progress
from silo.tune.session import tune
from silo.tune.trial import Status, Study, Trial, resources_of

__all__ = ["BundleEvaluator", "study_document", "tune_bundle"]


@dataclass
class BundleEvaluator:
    """Checks and measures the variants that a bundle holds for one case. Compiles nothing."""

    study: Study
    kernel: BundledKernel
    case: PreparedCase
    variants: Mapping[bytes, BundleVariant]
    device: Device
    timer: Timer
    policy: MeasurePolicy
    _best_ns: list[int] = field(default_factory=list[int])

    @cached_property
    def _restore(self) -> Callable[[], None]:
        return self.case.keeper()

    def prepare(self, configs: Sequence[Config]) -> None:
        """Nothing to do: everything is compiled."""
        del configs

    def evaluate(self, config: Config) -> Trial:
        """Check the result of the variant with this config, and measure it."""
        variant = self.variants[config.order_key]
        launch = self._launch(config)
        self._restore()
        launch()
        result, name = self.case.check()
        error = None if result is None else result.max_abs_error
        if result is not None and not result.ok:
            return self.study.trial(config, Status.WRONG, message=f"{name}: {result.message}", max_error=error)
        contender = contender_of(variant.artifact.variant.signature, self.case.arguments, launch)
        samples = measure(contender, self.timer, self.policy)
        resources = resources_of(variant.artifact.launch)
        return self.study.trial(config, Status.OK, samples, max_error=error, resources=resources)

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measure finalists side by side."""
        contenders = {
            config: contender_of(
                self.variants[config.order_key].artifact.variant.signature, self.case.arguments, self._launch(config)
            )
            for config in configs
        }
        return interleave(contenders, self.timer, self.policy)

    def _launch(self, config: Config) -> Callable[[], object]:
        named = {**self.case.arguments, **self.case.options, **config.as_dict()}
        grid = self.case.grid_of(config.as_dict(), self.device.facts())
        launcher = self.kernel.launcher
        return (lambda: launcher[grid](**named)) if grid is not None else (lambda: launcher(**named))


def tune_bundle(
    path: Path,
    device: Device,
    kernels: Sequence[str] | None,
    limits: Limits,
    *,
    trust: bool,
    progress: Callable[[str, Progress], None],
) -> list[tuple[str, str, TuneOutcome]]:
    """Measure every case of the bundle's kernels with the variants it has for this device, then refine it in place.

    The trials are kept in the store too, so a run that was stopped goes on. The bundle is rewritten once per kernel.
    """
    loaded = load(path, trust=trust)
    found: list[tuple[str, str, TuneOutcome]] = []
    for name in kernels or tuple(loaded):
        kernel = loaded[name]
        outcomes: list[tuple[str, Bucket, Signature, TuneOutcome]] = []
        for recipe in kernel.recipes():
            case = prepare_recipe(recipe, materializer(None))
            one = _tune_case(kernel, case, device, limits, partial(progress, f"{name} {case.label}"))
            outcomes.append(one)
            found.append((name, one[0], one[3]))
        if not outcomes:
            raise CaseError(f"{path}: {name} has no cases, so there is nothing to tune it on")
        update_bundle(path, {name: _update(kernel, device, outcomes)})
    return found


def _tune_case(
    kernel: BundledKernel, case: PreparedCase, device: Device, limits: Limits, progress: Callable[[Progress], None]
) -> tuple[str, Bucket, Signature, TuneOutcome]:
    call = inspect_call(kernel.launcher, kernel.contents.signature, **{**case.arguments, **case.options})
    ranked = kernel.rank(call, device)
    if not ranked:
        raise BundleError(
            f"{kernel.bundle.name}: it has no variant of {kernel.name} for the case {case.label} on {device.target}"
        )
    # Only the most specialised ones compete: a fallback that assumes less is for other calls.
    best = ranked[0].artifact.variant
    rivals = [one for one in ranked if one.artifact.variant.specialization.facts == best.specialization.facts]
    variants = {one.artifact.variant.config.order_key: one for one in rivals}
    values = kernel.scalars(call)
    study = Study(
        kernel=kernel.name,
        source=best.source,
        signature=best.signature.without_effects(),
        specialization=best.specialization,
        target=best.target,
        compiler=ranked[0].artifact.compiler,
        bucket_names=kernel.contents.key,
        bucket=bucket_of([values[name] for name in kernel.contents.key]),
        device=device.model,
        policy=measure_policy(device),
    )
    evaluator = BundleEvaluator(
        study, kernel, case, variants, device, device.timer(), MeasurePolicy(version=device.timing)
    )
    outcome = tune(
        study,
        [one.artifact.variant.config for one in variants.values()],
        evaluator,
        session().store.records,
        searcher=limits.searcher,
        budget=Budget(evaluations=limits.evaluations, seconds=limits.seconds),
        progress=progress,
    )
    return case.label, study.bucket, study.signature, outcome


def _update(
    kernel: BundledKernel, device: Device, outcomes: Sequence[tuple[str, Bucket, Signature, TuneOutcome]]
) -> KernelUpdate:
    """New trials, and rules in which measured winners replace what was there for their buckets."""
    trials: list[JSON] = []
    tables: dict[str, tuple[Any, Signature, dict[Bucket, Config], Config]] = {}
    for _, bucket, signature, outcome in outcomes:
        trials.extend(study_document(outcome.study, trial) for trial in outcome.trials)
        if outcome.winner is None:
            continue
        target = outcome.study.target
        key = f"{target} {signature!r}"
        if key not in tables:
            before = next(
                (r.rules for r in kernel.contents.rules if r.target == target and r.signature == signature), None
            )
            table = dict(before.rules) if before else {}
            tables[key] = (target, signature, table, before.fallback if before else outcome.winner.config)
        tables[key][2][bucket] = outcome.winner.config
    del device
    rules = tuple(
        BundleRules(target, signature, DispatchRules.of(kernel.contents.key, table, fallback))
        for target, signature, table, fallback in tables.values()
    )
    return KernelUpdate(trials=tuple(trials), rules=rules)


def study_document(study: Study, trial: Trial) -> JSON:
    """A trial as a bundle keeps it: with the study it belongs to."""
    return {"study": study.to_json(), "trial": trial.to_json()}
