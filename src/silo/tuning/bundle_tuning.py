"""Tunes the kernels of a bundle on this device, compares several compilers' code, and refines the bundle in place."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silo.artifacts.artifact import Artifact
from silo.building.ready_cases import PreparedCase, prepare_recipe
from silo.bundle.contents import BundleRules, BundleVariant, RulesKey
from silo.bundle.mixed_compilers import CompiledConfig, compiler_names, compilers_by_key, mixed_rules, table_of
from silo.bundle.signing import Signing
from silo.bundle.update import KernelUpdate, update_bundle
from silo.core.cases import CaseRecipe
from silo.core.checks import compare
from silo.core.config import Config, ConfigSet
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.dispatch import Bucket, bucket_of
from silo.core.plugins import loader_of, why_unmeasured
from silo.core.protocols import Device
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON
from silo.core.variant import Variant
from silo.errors import BundleError, CaseError, LaunchError, TuneError
from silo.kernels.bundle_kernels import BundledKernel, load
from silo.launch.arguments import SeenCall
from silo.launch.runtime import Launcher, VouchedCode, inspect_call
from silo.machine.process_session import session
from silo.measuring.benches import ConfinedBench, LocalBench, benches_on, grid_at
from silo.measuring.case_session_options import study_seeds
from silo.measuring.evaluators import KnownArtifacts, evaluators
from silo.measuring.metric_plan import plan_metrics, wanted_objective
from silo.measuring.study_key import measure_policy
from silo.settings import settings
from silo.store.signatures import SecretKey
from silo.tuner.failures import TunedCase
from silo.tuner.generalization import Sample, fitted_rules
from silo.tuner.lanes import Lanes
from silo.tuner.ledger import pair_to_document
from silo.tuner.measure import Speed, sample_until_decided
from silo.tuner.objective import Objective, named
from silo.tuner.policy import settle
from silo.tuner.result_check import kept
from silo.tuner.session import tune
from silo.tuner.session_values import Progress, SearchOptions, SessionScope, SessionWatch, TuneOutcome
from silo.tuner.statistics import PPM
from silo.tuner.trial import Study
from silo.tuner.winner import Winner
from silo.tuning.agents.agent_documents import SentCase
from silo.tuning.agents.fleet import Fleet
from silo.tuning.agents.remote_evaluator import fleet_lanes, refused_case
from silo.tuning.case_tuning import CaseLimits, materializer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Compared",
    "CompilerWinner",
    "by_known_times",
    "compare_compilers",
    "joined_outcome",
    "least_loss",
    "tune_bundle",
]

# Another compiler's code is chosen only if it is certainly faster by more than this many millionths.
_MARGIN_PPM = 5_000
_LIMIT_S = 3.0


@dataclass(frozen=True, slots=True)
class CompilerWinner:
    """The best config of one compiler for a case, with its code. ``name`` is the compiler's name for people."""

    compiler: str
    name: str
    artifact: Artifact
    winner: Winner

    @property
    def code(self) -> tuple[Config, Artifact]:
        """The config and its artifact, as a pair that ``side_by_side`` of :mod:`silo.measuring.benches` accepts."""
        return self.winner.config, self.artifact

    @property
    def label(self) -> str:
        """The compiler and the config, for messages."""
        return f"{self.name} with {self.winner.config}"


@dataclass(frozen=True, slots=True)
class Compared:
    """The compiler whose code was chosen, and a line about each other compiler.

    ``times_ppm`` holds, by compiler, the time of its code relative to the first compiler's code, in millionths;
    compilers whose code cannot be used are missing.
    """

    chosen: CompilerWinner
    remarks: tuple[str, ...] = ()
    times_ppm: Mapping[str, int] = field(default_factory=dict[str, int])


Challenge = Callable[[CompilerWinner, CompilerWinner], tuple[Decision, "int | None"]]
"""A function that decides whether another compiler's code replaces the best code so far, and returns its relative time.

The time is in millionths of the best code's time, or None if the other code is wrong.
"""


def least_loss(cases: Sequence[Mapping[str, int]]) -> str:
    """Returns the compiler whose code loses least over several cases that one decision serves.

    ``cases`` holds the times of each case by compiler. The loss in a case is the code's time divided by the time of the
    fastest code for that case; the losses of all cases are multiplied. Only code that is usable in all cases counts; ""
    if no code is. Equal losses go to the earlier compiler.

    >>> least_loss([{"a": 1_000_000, "b": 900_000}, {"a": 1_000_000, "b": 2_000_000}])
    'a'
    >>> least_loss([{"a": 1_000_000, "b": 500_000}, {"a": 1_000_000, "b": 1_100_000}])
    'b'
    >>> least_loss([{"a": 1_000_000}, {"b": 1_000_000}])
    ''
    """
    usable = [name for name in (cases[0] if cases else ()) if all(name in case for case in cases)]
    losses = {name: prod(case[name] / min(case.values()) for case in cases) for name in usable}
    return min(usable, key=lambda name: losses[name], default="")


def compare_compilers(
    winners: Sequence[CompilerWinner], case: PreparedCase, bench: ConfinedBench | LocalBench
) -> Compared:
    """Chooses the fastest of several compilers' best codes whose results agree with the first compiler's.

    The code of each later compiler is launched in turns with the best code so far, and replaces it only if it is
    certainly faster. Arrays for which the case has no expected result must equal the first compiler's result, within
    the usual tolerance.
    """
    first = kept(bench.results(*winners[0].code))

    def challenge(best: CompilerWinner, other: CompilerWinner) -> tuple[Decision, int | None]:
        try:
            if reason := _difference(first, bench.results(*other.code), case):
                return Rejected(f"its result differs from that of {winners[0].name}: {reason}"), None
            return _faster(best, other, bench)
        except LaunchError as error:
            return Rejected(f"it worked at first and failed beside {best.name}: {error}"), None

    return _chosen(winners, challenge)


def by_known_times(winners: Sequence[CompilerWinner]) -> Compared:
    """Chooses a compiler's code by times that were measured separately.

    The code of each later compiler replaces the best code so far if the whole confidence interval of its time is below
    the interval of the best code's time.
    """

    def challenge(best: CompilerWinner, other: CompilerWinner) -> tuple[Decision, int | None]:
        theirs, own = other.winner.time, best.winner.time
        text, part = f"{theirs.median_ns} ns and {own.median_ns} ns, measured apart", theirs.median_ns * PPM
        if theirs.high_ns < own.low_ns:
            return Accepted(text), part // max(own.median_ns, 1)
        return Rejected(f"{text}, do not separate them"), part // max(own.median_ns, 1)

    return _chosen(winners, challenge)


def _chosen(winners: Sequence[CompilerWinner], challenge: Challenge) -> Compared:
    best, remarks = winners[0], list[str]()
    times = {best.compiler: PPM}
    for other in winners[1:]:
        if (other.artifact.blob, other.artifact.launch) == (best.artifact.blob, best.artifact.launch):
            remarks.append(f"{other.name} makes the same code as {best.name}")
            times[other.compiler] = times[best.compiler]
            continue
        decision, part = challenge(best, other)
        if part is not None:
            times[other.compiler] = times[best.compiler] * part // PPM
        word = "is faster than" if decision else "is not chosen over"
        remarks.append(f"{other.label} {word} {best.label}: {decision.reason}")
        best = other if decision else best
    return Compared(best, tuple(remarks), times)


def _difference(first: Mapping[str, NDArray[Any]], results: Mapping[str, NDArray[Any]], case: PreparedCase) -> str:
    """Returns the first difference of two results in arrays for which the case has no check, or ""."""
    for name, array in first.items():
        if name not in case.checks and not (result := compare(results[name], array)):
            return f"{name}: {result.message}"
    return ""


def _faster(
    best: CompilerWinner, other: CompilerWinner, bench: ConfinedBench | LocalBench
) -> tuple[Decision, int | None]:
    def take(_rounds: int) -> tuple[Sequence[int], Sequence[int]]:
        own, theirs = bench.side_by_side([best.code, other.code])
        return theirs, own

    ratio = sample_until_decided(take, _MARGIN_PPM, _LIMIT_S)
    text = f"{ratio.text} of its time"
    decision = Accepted(text) if ratio.speed is Speed.FASTER else Rejected(f"{text}, {ratio.speed.value}")
    return decision, ratio.median_ppm


def joined_outcome(outcomes: Sequence[TuneOutcome], chosen: TuneOutcome, remarks: Sequence[str]) -> TuneOutcome:
    """Returns the chosen compiler's outcome, with the effort, failures and faults of all compilers."""
    failures = Counter[str]()
    for outcome in outcomes:
        failures.update(outcome.failures)
    return replace(
        chosen,
        measured=sum(outcome.measured for outcome in outcomes),
        reused=sum(outcome.reused for outcome in outcomes),
        failures=dict(sorted(failures.items())),
        seconds=sum(outcome.seconds for outcome in outcomes),
        remarks=tuple(dict.fromkeys((*remarks, *(line for outcome in outcomes for line in outcome.remarks)))),
        faults=tuple(fault for outcome in outcomes for fault in outcome.faults),
    )


_log = logging.getLogger("silo")


@dataclass(frozen=True, slots=True)
class _Tuned:
    """A tuned case: its bucket and signature, its outcome, and the outcome of each compiler's code.

    ``compiler`` made the winner's code. ``times_ppm`` are the times of each compiler's code, if several were compared.
    """

    bucket: Bucket
    signature: Signature
    outcome: TuneOutcome
    compiler: str
    each: tuple[TuneOutcome, ...]
    times_ppm: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def rules_key(self) -> RulesKey:
        """The target, the signature and the extents of the case. Cases with an equal key have common rules."""
        return self.outcome.study.target, self.signature, self.outcome.study.specialization.extents


def _benches(
    kernel: BundledKernel,
    case: PreparedCase,
    kinds: AbstractSet[str],
    devices: Sequence[Device],
    code_of: Callable[[Artifact], VouchedCode],
) -> list[ConfinedBench] | list[LocalBench]:
    """Makes the benches that run the variants for one case.

    ``kinds`` are the blob kinds of the variants. The arrays are on ``devices[0]``.
    """
    facts = devices[0].facts()

    def at(config: Config, artifact: Artifact) -> tuple[int, ...]:
        values = {**artifact.variant.specialization.constant_values, **config.as_dict()}
        return grid_at(case.grid or kernel.contents.grid, None, case.arguments, values, facts)

    if reason := why_unmeasured(kinds, devices[0].target.kind):
        raise TuneError(f"{kernel.name} is not measured on {devices[0].target}: {reason}")
    in_library = any(loader_of(kind) is not None for kind in kinds)
    confined = benches_on(kernel.name, devices, case.arguments, at, code_of, in_library=in_library)
    if confined:
        return confined
    launchers: dict[str, Launcher] = {}

    def launcher_of(config: Config, artifact: Artifact) -> Callable[[], object]:
        launcher = launchers.get(artifact.compiler)
        if launcher is None:
            launcher = launchers[artifact.compiler] = kernel.launcher_on(devices[0], artifact.compiler)
        call_values = {**case.arguments, **case.options, **config.as_dict()}
        grid = case.grid_of(config.as_dict(), facts)
        return (lambda: launcher[grid](**call_values)) if grid is not None else (lambda: launcher(**call_values))

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

    With a ``key`` the result is signed. Without a key, a signature that no longer matches is removed, and the returned
    text describes it.

    Without a device, each kernel uses the device that its calls with arrays in host memory run on. The trials are also
    stored, so a run that was stopped can be continued. The bundle is rewritten once per kernel. Raises TuneError in
    deterministic mode, because binaries do not show whether the choice of a config changes results.
    """
    if settings().deterministic:
        raise TuneError(
            f"{path}: in deterministic mode nothing that is measured may change results, and binaries do not say "
            "whether they do; build the bundle from its Python files in that mode: silo build --deterministic"
        )
    loaded = load(path, trust=trust)
    signing: Signing | None = None
    signature = ""
    tuned_cases: list[TunedCase] = []
    for name in kernels or tuple(loaded):
        kernel = loaded[name]
        signing = signing or Signing(kernel.bundle.signed_bytes, key)
        on = device or kernel.host_device()
        kernel.require_consent(on)
        outcomes: list[_Tuned] = []
        for recipe in kernel.recipes():
            tuned_case = _tune_case(kernel, recipe, on, limits, partial(progress, f"{name} {recipe.label}"))
            outcomes.append(tuned_case)
            tuned_cases.append(TunedCase(name, recipe.label, recipe.elements, tuned_case.outcome))
        if not outcomes:
            raise CaseError(f"{path}: {name} has no cases, so there is nothing to tune it on")
        updated = update_bundle(path, {name: _update(kernel, outcomes, limits.anew or frozenset())}, signing=signing)
        signature = updated.signature or signature
    return tuned_cases, signature


def _unsent(kernel: BundledKernel, sent: SentCase, kinds: AbstractSet[str], fleet: Fleet) -> str:
    """Returns the reason why agents cannot run a case; "" if they can."""
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
    tuned = _tune_case(kernel, recipe, device, replace(limits, fleet=None), progress)
    return replace(tuned, outcome=replace(tuned.outcome, remarks=(remark, *tuned.outcome.remarks)))


def _tune_case(
    kernel: BundledKernel, recipe: CaseRecipe, device: Device, limits: CaseLimits, progress: Callable[[Progress], None]
) -> _Tuned:
    case = prepare_recipe(recipe, materializer(None, device))
    call_values = {**case.arguments, **case.options, **case.grid_argument(held=kernel.holds_grid)}
    call = inspect_call(kernel.launcher, kernel.contents.signature, **call_values)
    ranked = kernel.rank(call, device)
    if not ranked:
        raise BundleError(
            f"{kernel.bundle.name}: it has no variant of {kernel.name} for the case {case.label} on {device.target}"
        )
    # Only the most specialized variants compete: a fallback that assumes less is for other calls.
    assumed = ranked[0].artifact.variant.specialization
    rivals = [ranked_variant for ranked_variant in ranked if _assumes(ranked_variant, assumed)]
    # the kinds of blobs to run, because code of some kinds is run by a library and not by a driver
    kinds = {rival.artifact.blob.kind for rival in rivals}
    sides = [_Side(kernel, call, own, device) for own in _by_compiler(kernel, rivals)]
    objective = wanted_objective()
    if len(sides) > 1 and not objective.is_time:
        raise TuneError(
            f"{kernel.bundle.name}: code of several compilers is compared by time alone, not by {objective}: tune by "
            "time, or build it with one toolchain"
        )

    def code_of(artifact: Artifact) -> VouchedCode:
        return kernel.code(next(side for side in sides if side.compiler == artifact.compiler).variant(artifact.variant))

    flops = None if case.work is None else case.work.flops
    outcomes: list[TuneOutcome] = []
    for side in sides:
        if limits.fleet is not None:
            sent = SentCase(side.study, recipe, kernel.contents.grid, {}, tuple(case.arguments))
            if reason := _unsent(kernel, sent, kinds, limits.fleet):
                return _tuned_here(kernel, recipe, reason, limits, progress)
            metrics = plan_metrics(objective, f"the case {case.label}", None, flops)
            placed = fleet_lanes(limits.fleet, sent, side.artifacts, code_of, metrics)
        else:
            benches = _benches(kernel, case, kinds, (device, *limits.devices), code_of)
            metrics = plan_metrics(objective, f"the case {case.label}", device, flops)
            placed = evaluators(side.study, side.artifacts, benches, case.compare, side.configs.listed, metrics)
        with placed as lanes:
            outcomes.append(_searched(side, lanes, objective, limits, progress))
    first = sides[0]
    chosen, remarks = outcomes[0], tuple[str, ...]()
    times: Mapping[str, int] = {}
    if len(sides) > 1:
        compared = _compared(kernel, case, sides, outcomes, (device, kinds, code_of), limits)
        if compared is not None:
            remarks, times = compared.remarks, compared.times_ppm
            first = next(side for side in sides if side.compiler == compared.chosen.compiler)
            chosen = outcomes[sides.index(first)]
    joined = joined_outcome(outcomes, chosen, (*_unpacked(kernel, first.study), *remarks))
    return _Tuned(first.study.bucket, first.study.signature, joined, first.compiler, tuple(outcomes), times)


class _Side:
    """The variants of one compiler that compete for a case, and their study."""

    def __init__(
        self, kernel: BundledKernel, call: SeenCall, variants: Sequence[BundleVariant], device: Device
    ) -> None:
        best = variants[0].artifact.variant
        values = kernel.scalars(call)
        self.compiler = variants[0].artifact.compiler
        self._variants = {own_variant.artifact.variant.config.order_key: own_variant for own_variant in variants}
        self.configs = ConfigSet(variant.artifact.variant.config for variant in self._variants.values())
        self.artifacts = KnownArtifacts({key: variant.artifact for key, variant in self._variants.items()})
        self.study = Study(
            kernel=kernel.name,
            source=best.source,
            signature=best.signature.without_effects(),
            specialization=best.specialization.of_call(),
            target=best.target,
            compiler=self.compiler,
            bucket_names=kernel.contents.key,
            bucket=bucket_of([values[name] for name in kernel.contents.key]),
            device=device.model,
            policy=measure_policy(device),
            driver=device.driver,
        )

    def variant(self, wanted: Variant) -> BundleVariant:
        """Returns the bundle's variant that has the config of ``wanted``."""
        return self._variants[wanted.config.order_key]


def _by_compiler(kernel: BundledKernel, rivals: Sequence[BundleVariant]) -> list[list[BundleVariant]]:
    """Groups variants by their compiler, each group best first; the compilers are in the order of the bundle."""
    variants_by_compiler: dict[str, list[BundleVariant]] = {
        variant.artifact.compiler: [] for variant in kernel.contents.variants
    }
    for rival in rivals:
        variants_by_compiler[rival.artifact.compiler].append(rival)
    return [own for own in variants_by_compiler.values() if own]


def _searched(
    side: _Side, lanes: Lanes, objective: Objective, limits: CaseLimits, progress: Callable[[Progress], None]
) -> TuneOutcome:
    study, configs, records = side.study, side.configs, session().store.records
    outcome = tune(
        study,
        configs,
        lanes,
        records,
        SearchOptions(limits.searcher, study_seeds(study, configs, records), limits.budget),
        # A bundle's configs were chosen when it was built, so configs that spill are set aside only if the setting
        # limits spills.
        SessionScope(most_spills=settings().spills, remeasure=limits.supersedes(study), objective=objective),
        SessionWatch(progress),
    )
    settle(study, records)
    return outcome


def _compared(
    kernel: BundledKernel,
    case: PreparedCase,
    sides: Sequence[_Side],
    outcomes: Sequence[TuneOutcome],
    where: tuple[Device, AbstractSet[str], Callable[[Artifact], VouchedCode]],
    limits: CaseLimits,
) -> Compared | None:
    """Compares the compilers' winners; None if no compiler's code can be used."""
    names = compiler_names((side.compiler for side in sides), kernel.bundle.manifest.toolchain)
    winners = [
        CompilerWinner(
            side.compiler, names[side.compiler], side.artifacts.get(outcome.winner.config).artifact, outcome.winner
        )
        for side, outcome in zip(sides, outcomes, strict=True)
        if outcome.winner is not None
    ]
    unusable = tuple(
        f"{names[side.compiler]}: none of its configs can be used"
        for side, outcome in zip(sides, outcomes, strict=True)
        if outcome.winner is None
    )
    if not winners:
        return None
    if len(winners) == 1:
        return Compared(winners[0], unusable)
    if limits.fleet is not None:
        comparison = by_known_times(winners)
    else:
        device, kinds, code_of = where
        bench = _benches(kernel, case, kinds, (device,), code_of)[0]
        with closing(bench):
            comparison = compare_compilers(winners, case, bench)
    return replace(comparison, remarks=(*unusable, *comparison.remarks))


def _assumes(variant: BundleVariant, assumed: Specialization) -> bool:
    own = variant.artifact.variant.specialization
    return own.facts == assumed.facts and own.extents == assumed.extents


def _unpacked(kernel: BundledKernel, study: Study) -> tuple[str, ...]:
    """Returns a remark in a tuple if the bundle lacks configs of the kernel's space, else an empty tuple."""
    for coverage in kernel.contents.coverage:
        own = (study.target, study.signature, study.specialization.extents)
        if (coverage.target, coverage.signature, coverage.extents) == own and coverage.packed < coverage.space:
            packed = f"{coverage.packed} of the {coverage.space} configs of its space are packed for {coverage.target}"
            return (f"{packed}, so only they can be measured; silo build --configs all packs all of them",)
    return ()


def _update(kernel: BundledKernel, outcomes: Sequence[_Tuned], anew: AbstractSet[str]) -> KernelUpdate:
    """Makes the update of a bundle: new trials, and rules that map each measured bucket to its winner.

    The trials of studies that were measured ``anew`` replace the bundle's trials of these studies.
    """
    trials: list[JSON] = []
    tables: dict[str, _Table] = {}
    compilers = {repr(key): names for key, names in compilers_by_key(kernel.contents.variants).items()}
    sharing: dict[tuple[str, Bucket], list[Mapping[str, int]]] = {}
    for tuned in outcomes:
        if tuned.outcome.winner is not None:
            sharing.setdefault((repr(tuned.rules_key), tuned.bucket), []).append(tuned.times_ppm)
    for tuned in outcomes:
        trials.extend(
            pair_to_document(tune_outcome.study, trial) for tune_outcome in tuned.each for trial in tune_outcome.trials
        )
        outcome = tuned.outcome
        if outcome.winner is None:
            continue
        rules_key = tuned.rules_key
        key = repr(rules_key)
        chosen = CompiledConfig(outcome.winner.config, tuned.compiler)
        together = sharing[key, tuned.bucket]
        best = least_loss(together) if len(together) > 1 else ""
        if best != tuned.compiler:
            # Several cases fall into this bucket, which has one decision: the compiler whose code loses least over all
            # of them.
            winners = [
                tune_outcome.winner
                for tune_outcome in tuned.each
                if tune_outcome.study.compiler == best and tune_outcome.winner is not None
            ]
            chosen = CompiledConfig(winners[0].config, best) if winners else chosen
        if key not in tables:
            own = next((rules for rules in kernel.contents.rules if rules.key == rules_key), None)
            names = compilers.get(key, ())
            table, fallback = table_of(own, names) if own else ({}, chosen)
            objective = named(outcomes[0].outcome.objective)
            tables[key] = _Table(rules_key, table, fallback, own.space if own else 0, objective, mixed=len(names) > 1)
        tables[key].decided[tuned.bucket] = chosen
        sample = Sample.of_trials(tuned.bucket, outcome.trials, outcome.objective)
        if sample is not None:
            tables[key].samples[tuned.bucket] = sample
    rules = tuple(table.rules(kernel.contents.key) for table in tables.values())
    studies = [tune_outcome.study for outcome in outcomes for tune_outcome in outcome.each]
    replaced = {study.key: study.to_json() for study in studies if study.key in anew}
    return KernelUpdate(trials=tuple(trials), rules=rules, replaced=tuple(replaced.values()))


@dataclass(frozen=True, slots=True)
class _Table:
    """The config that was chosen for each bucket, from which rules are made.

    ``mixed``: the chosen configs were compiled by different compilers.
    """

    key: RulesKey
    decided: dict[Bucket, CompiledConfig]
    fallback: CompiledConfig
    space: int
    objective: str
    mixed: bool
    samples: dict[Bucket, Sample] = field(default_factory=dict[Bucket, Sample])

    def rules(self, names: tuple[str, ...]) -> BundleRules:
        """Makes the bundle's dispatch rules from the table; ``names`` are the arguments of the kernel's key."""
        target, signature, extents = self.key
        configs = {bucket: compiled_config.config for bucket, compiled_config in self.decided.items()}
        samples = tuple(self.samples.values())
        rules = fitted_rules(names, configs, self.fallback.config, samples, objective=self.objective)
        compilers = mixed_rules(rules, self.decided, self.fallback) if self.mixed else ()
        return BundleRules(target, signature, rules, self.space, extents, compilers)
