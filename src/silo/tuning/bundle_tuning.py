"""Tuning the kernels of a bundle on this device, and refining the bundle in place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path

from silo.artifacts.artifact import Artifact
from silo.building.ready_cases import PreparedCase, prepare_recipe
from silo.bundle.contents import BundleRules, BundleVariant, RulesKey
from silo.bundle.signing import Signing
from silo.bundle.update import KernelUpdate, update_bundle
from silo.core.cases import CaseRecipe
from silo.core.config import Config, ConfigSet
from silo.core.dispatch import Bucket, bucket_of
from silo.core.plugins import loader_of, why_unmeasured
from silo.core.protocols import Device
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON
from silo.errors import BundleError, CaseError, TuneError
from silo.kernels.bundle_kernels import BundledKernel, load
from silo.launch.runtime import VouchedCode, inspect_call
from silo.machine.process_session import session
from silo.measuring.benches import Bench, LocalBench, benches_on, grid_at
from silo.measuring.case_session_options import study_seeds
from silo.measuring.evaluators import KnownArtifacts, evaluators
from silo.measuring.metric_plan import plan_metrics, wanted_objective
from silo.measuring.study_key import measure_policy
from silo.settings import settings
from silo.store.signatures import SecretKey
from silo.tuner.catalog import pair_to_document
from silo.tuner.failures import TunedCase
from silo.tuner.generalization import Sample, fitted_rules
from silo.tuner.objective import named
from silo.tuner.outcome import TuneOutcome
from silo.tuner.progress import Progress
from silo.tuner.session import tune
from silo.tuner.session_options import SearchOptions, SessionScope, SessionWatch
from silo.tuner.time_spent import settle
from silo.tuner.trial import Study
from silo.tuning.agents.fleet import Fleet
from silo.tuning.agents.remote_evaluator import fleet_lanes, refused_case
from silo.tuning.agents.sent_case import SentCase
from silo.tuning.case_tuning import CaseLimits, materializer

__all__ = ["tune_bundle"]

_log = logging.getLogger("silo")

# A case's label, bucket and signature, and the outcome of tuning it.
_Tuned = tuple[str, Bucket, Signature, TuneOutcome]


def _benches(
    kernel: BundledKernel,
    case: PreparedCase,
    kinds: AbstractSet[str],
    devices: Sequence[Device],
    code_of: Callable[[Artifact], VouchedCode],
) -> list[Bench]:
    """The benches that run the variants for one case; ``kinds`` are their blob kinds; arrays are on ``devices[0]``."""
    facts = devices[0].facts()

    def at(config: Config, artifact: Artifact) -> tuple[int, ...]:
        values = {**artifact.variant.specialization.constant_values, **config.as_dict()}
        return grid_at(case.grid or kernel.contents.grid, None, case.arguments, values, facts)

    if reason := why_unmeasured(kinds, devices[0].target.kind):
        raise TuneError(f"{kernel.name} is not measured on {devices[0].target}: {reason}")
    in_library = any(loader_of(kind) is not None for kind in kinds)
    confined = benches_on(kernel.name, devices, case.arguments, at, code_of, in_library=in_library)
    if confined:
        return [*confined]

    launcher = kernel.launcher_on(devices[0])

    def launcher_of(config: Config) -> Callable[[], object]:
        named = {**case.arguments, **case.options, **config.as_dict()}
        grid = case.grid_of(config.as_dict(), facts)
        return (lambda: launcher[grid](**named)) if grid is not None else (lambda: launcher(**named))

    return [LocalBench(devices[0], case.arguments, launcher_of)]


def tune_bundle(
    path: Path,
    device: Device | None,
    kernels: Sequence[str] | None,
    limits: CaseLimits,
    *,
    trust: bool,
    key: SecretKey | None,
    progress: Callable[[str, Progress], None],
) -> tuple[list[TunedCase], str]:
    """Measures every case of the bundle's kernels with its variants for this device, then refines the bundle in place.

    With a ``key`` the result is signed. Without, a signature that does not match any more is removed; the returned text
    describes it.

    Without a device, each kernel uses the device that its calls with arrays in host memory run on. The trials are
    stored too, so a run that was stopped continues. The bundle is rewritten once per kernel. Raises TuneError in
    deterministic mode: binaries do not show whether a kernel sums.
    """
    if settings().deterministic:
        raise TuneError(
            f"{path}: in deterministic mode nothing that is measured may change results, and binaries do not say "
            "whether they do; build the bundle from its Python files in that mode: silo build --deterministic"
        )
    loaded = load(path, trust=trust)
    signing: Signing | None = None
    signature = ""
    found: list[TunedCase] = []
    for name in kernels or tuple(loaded):
        kernel = loaded[name]
        signing = signing or Signing(kernel.bundle.signed_bytes, key)
        on = device or kernel.host_device()
        kernel.require_consent(on)
        outcomes: list[_Tuned] = []
        for recipe in kernel.recipes():
            one = _tune_case(kernel, recipe, on, limits, partial(progress, f"{name} {recipe.label}"))
            outcomes.append(one)
            found.append(TunedCase(name, recipe.label, recipe.elements, one[3]))
        if not outcomes:
            raise CaseError(f"{path}: {name} has no cases, so there is nothing to tune it on")
        updated = update_bundle(path, {name: _update(kernel, outcomes, limits.anew or frozenset())}, signing=signing)
        signature = updated.signature or signature
    return found, signature


def _unsent(kernel: BundledKernel, sent: SentCase, kinds: AbstractSet[str], fleet: Fleet) -> str:
    """The reason why agents cannot run a case; "" if they can."""
    if any(loader_of(kind) is not None for kind in kinds):
        return f"a library runs the code of {kernel.name}, over objects of this process"
    return refused_case(fleet, sent)


def _tuned_here(
    kernel: BundledKernel, recipe: CaseRecipe, reason: str, limits: CaseLimits, progress: Callable[[Progress], None]
) -> _Tuned:
    remark = f"measured on this machine and by no agent: {reason}"
    _log.warning("%s %s is %s", kernel.name, recipe.label, remark)
    device = kernel.host_device()
    kernel.require_consent(device)
    label, bucket, signature, outcome = _tune_case(kernel, recipe, device, replace(limits, fleet=None), progress)
    return label, bucket, signature, replace(outcome, remarks=(remark, *outcome.remarks))


def _tune_case(
    kernel: BundledKernel, recipe: CaseRecipe, device: Device, limits: CaseLimits, progress: Callable[[Progress], None]
) -> _Tuned:
    case = prepare_recipe(recipe, materializer(None, device))
    given = {**case.arguments, **case.options, **case.grid_argument(held=kernel.holds_grid)}
    call = inspect_call(kernel.launcher, kernel.contents.signature, **given)
    ranked = kernel.rank(call, device)
    if not ranked:
        raise BundleError(
            f"{kernel.bundle.name}: it has no variant of {kernel.name} for the case {case.label} on {device.target}"
        )
    # Only the most specialized variants compete: a fallback that assumes less is for other calls.
    best = ranked[0].artifact.variant
    assumed = best.specialization
    rivals = [one for one in ranked if _assumes(one, assumed)]
    variants = {one.artifact.variant.config.order_key: one for one in rivals}
    values = kernel.scalars(call)
    study = Study(
        kernel=kernel.name,
        source=best.source,
        signature=best.signature.without_effects(),
        specialization=best.specialization.of_call(),
        target=best.target,
        compiler=ranked[0].artifact.compiler,
        bucket_names=kernel.contents.key,
        bucket=bucket_of([values[name] for name in kernel.contents.key]),
        device=device.model,
        policy=measure_policy(device),
        driver=device.driver,
    )
    configs = ConfigSet(one.artifact.variant.config for one in variants.values())
    records, objective = session().store.records, wanted_objective()
    artifacts = KnownArtifacts({key: one.artifact for key, one in variants.items()})
    kinds = {one.artifact.blob.kind for one in rivals}  # a variant for another device may be code that a library runs

    def code_of(artifact: Artifact) -> VouchedCode:
        return kernel.code(variants[artifact.variant.config.order_key])

    if limits.fleet is not None:
        sent = SentCase(study, recipe, kernel.contents.grid, {}, tuple(case.arguments))
        if reason := _unsent(kernel, sent, kinds, limits.fleet):
            return _tuned_here(kernel, recipe, reason, limits, progress)
        plan_metrics(objective, f"the case {case.label}", None, None)
        placed = fleet_lanes(limits.fleet, sent, artifacts, code_of)
    else:
        benches = _benches(kernel, case, kinds, (device, *limits.devices), code_of)
        flops = None if case.work is None else case.work.flops
        metrics = plan_metrics(objective, f"the case {case.label}", device, flops)
        placed = evaluators(study, artifacts, benches, case.compare, configs.listed, metrics)
    with placed as lanes:
        outcome = tune(
            study,
            configs,
            lanes,
            records,
            SearchOptions(limits.searcher, study_seeds(study, configs, records), limits.budget),
            # A bundle's configs were chosen already, so spills do not matter unless the setting limits them.
            SessionScope(most_spills=settings().spills, remeasure=limits.supersedes(study), objective=objective),
            SessionWatch(progress),
        )
    settle(study, records)
    outcome = replace(outcome, remarks=(*_unpacked(kernel, study), *outcome.remarks))
    return case.label, study.bucket, study.signature, outcome


def _assumes(one: BundleVariant, assumed: Specialization) -> bool:
    own = one.artifact.variant.specialization
    return own.facts == assumed.facts and own.extents == assumed.extents


def _unpacked(kernel: BundledKernel, study: Study) -> tuple[str, ...]:
    """A remark if the bundle lacks configs of the space."""
    for one in kernel.contents.coverage:
        own = (study.target, study.signature, study.specialization.extents)
        if (one.target, one.signature, one.extents) == own and one.packed < one.space:
            packed = f"{one.packed} of the {one.space} configs of its space are packed for {one.target}"
            return (f"{packed}, so only they can be measured; silo build --configs all packs all of them",)
    return ()


def _update(kernel: BundledKernel, outcomes: Sequence[_Tuned], anew: AbstractSet[str]) -> KernelUpdate:
    """New trials, and rules in which measured winners replace the earlier configs of their buckets.

    The trials of studies that were measured ``anew`` replace the bundle's trials of these studies.
    """
    trials: list[JSON] = []
    tables: dict[str, tuple[RulesKey, dict[Bucket, Config], Config, int]] = {}
    samples: dict[str, dict[Bucket, Sample]] = {}
    for _, bucket, signature, outcome in outcomes:
        trials.extend(pair_to_document(outcome.study, trial) for trial in outcome.trials)
        if outcome.winner is None:
            continue
        wanted: RulesKey = (outcome.study.target, signature, outcome.study.specialization.extents)
        key = f"{wanted!r}"
        if key not in tables:
            own = next((rules for rules in kernel.contents.rules if rules.key == wanted), None)
            table = dict(own.rules.rules) if own else {}
            fallback = own.rules.fallback if own else outcome.winner.config
            tables[key] = (wanted, table, fallback, own.space if own else 0)
        tables[key][1][bucket] = outcome.winner.config
        sample = Sample.of_trials(bucket, outcome.trials, outcome.objective)
        if sample is not None:
            samples.setdefault(key, {})[bucket] = sample
    rules = tuple(
        BundleRules(
            target,
            signature,
            fitted_rules(
                kernel.contents.key,
                table,
                fallback,
                tuple(samples.get(key, {}).values()),
                objective=named(outcomes[0][3].objective),
            ),
            space,
            extents,
        )
        for key, ((target, signature, extents), table, fallback, space) in tables.items()
    )
    replaced = {one[3].study.key: one[3].study.to_json() for one in outcomes if one[3].study.key in anew}
    return KernelUpdate(trials=tuple(trials), rules=rules, replaced=tuple(replaced.values()))
