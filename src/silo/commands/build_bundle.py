"""``silo build``: builds the kernels of Python files into one bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from silo.building.compilation import compiler_identity
from silo.building.early_worker import start_early_worker
from silo.building.packed_code import PackedCode, compile_plans
from silo.bundle.contents import (
    Basis,
    BundleContents,
    BundleKernel,
    BundleRules,
    BundleVariant,
    RulesKey,
    calls_of,
    host_cases,
    host_code,
    host_plans,
    host_text,
    rules_key,
)
from silo.bundle.format import CASES_KIND, TRIALS_KIND
from silo.bundle.signing import header_of, settle_signature
from silo.bundle.update import document_blob
from silo.bundle.writer import write_bundle
from silo.calls.candidate_filters import allowed_configs
from silo.calls.decision import lock_advice
from silo.commands.results import BuildRow, BuildSummary
from silo.compile.build_list import (
    BuildCase,
    BuildKernel,
    BuildVariant,
    Chosen,
    Packing,
    Pairs,
    pair_kernels,
    plan_variants,
)
from silo.compile.toolchain import select_compiler
from silo.core.config import Config, ConfigSet
from silo.core.decisions import Accepted, Decision, Origin, Rejected
from silo.core.device import Target
from silo.core.dispatch import Bucket
from silo.core.expressions import Node
from silo.core.protocols import Device
from silo.core.recipes import CaseRecipe, ScalarRecipe
from silo.core.recorded_plans import RecordedPlan
from silo.core.space import Space
from silo.core.values import JSON, Value, identity_of
from silo.core.variant import Variant
from silo.errors import ArgumentError, BundleError, CaseError, NoVariantError, TargetError
from silo.kernels.collection import Collected, Place, collect
from silo.kernels.kernel import Kernel
from silo.kernels.recorded_steps import record_step
from silo.machine.device_plugins import all_devices, device_named, devices_of_kind, resolve_target
from silo.machine.process_session import session
from silo.measuring.metric_plan import wanted_objective
from silo.settings import override, settings
from silo.sources.kernel_source import BringsCode, KernelSource
from silo.sources.kinds import kind_named
from silo.sources.source_kind import NeedsPackages, UnnamedInBundles
from silo.store.signatures import SecretKey
from silo.tuner.failures import TunedCase, require_winners
from silo.tuner.generalization import Sample, fitted_rules
from silo.tuner.ledger import pair_to_document, read_trials
from silo.tuner.objective import Objective, named
from silo.tuner.policy import TuneMode
from silo.tuner.session_values import Budget, Progress
from silo.tuning.case_tuning import (
    CaseLimits,
    CaseStudy,
    case_studies,
    case_variants,
    make_of,
    opaque_constants,
    tune_case,
)
from silo.version import __version__

__all__ = ["BuildRow", "BuildSummary", "build_bundle", "note_trust", "require_place"]

OnStage = Callable[[str, int, int], None]
OnTuning = Callable[[str, Progress], None]


@dataclass(frozen=True)
class _Planned:
    """A kernel to build into a bundle. ``spaces`` has the configs of its cases by target, signature and extents."""

    kernel: Kernel
    studies: tuple[CaseStudy, ...]
    tuned: tuple[CaseStudy, ...]  # the cases whose config was measured or locked, on the device of their target
    winners: Mapping[tuple[str, str, Target], Chosen]
    variants: tuple[BuildVariant, ...]
    spaces: Mapping[RulesKey, ConfigSet] = field(default_factory=dict[RulesKey, ConfigSet])


def build_bundle(
    files: Sequence[Place],
    output: Path,
    *,
    targets: Sequence[str] | None = None,
    kernels: Sequence[str] | None = None,
    tune: str | None = None,
    budget_s: float | None = None,
    configs: str | None = None,
    key: SecretKey | None = None,
    progress: OnStage | None = None,
    tuning: OnTuning | None = None,
) -> BuildSummary:
    """Compiles the kernels of ``files`` for every target and writes them to ``output``, all or nothing.

    A kernel is built for each of the targets that its kind of source supports; the summary lists the other targets.

    Kernels are tuned on their cases if a target's device is here, unless ``tune`` is ``cached`` (known winners only),
    ``frozen`` (an error without a winner) or ``off`` (never); decisions of the lock (``SILO_LOCK``) take precedence
    over winners. With tuning off, the same inputs give the same bytes, in any folder and at any time. Code that
    exists already (``silo.binary``) is included if it runs on one of the targets. ``configs``, a number or ``all``, is
    the number of configs of each case that are packed. By default a target without measurements gets its whole space,
    within the limits of :class:`silo.compile.build_list.Packing`, and a measured target its winners. Without
    ``targets`` kernels are compiled for this machine's CPU (kernels of a kind that cannot run on it, for the first
    device here that they can run on), and all code that exists already is included. The functions that ``silo.step``
    marked run with their examples on this machine, and the bundle keeps their plans. The bundle is signed with ``key``.

    Raises:
        TargetError: a kernel that no compiler here compiles for any of the targets, or a target without a kernel.
        CaseError: a kernel without cases.
        NoVariantError: a kernel whose code exists already, but for none of the targets.
        SourceError, CompileError: a kernel that does not compile.
        SpaceError: ``configs`` is neither a number nor ``all``.
        ArgumentError: a step cannot be a plan of the bundle.
        TuneError: no config of a case can be used: each fails, or its result is wrong.
        FrozenError, LockError: see :mod:`silo.calls.decision`.
        BundleError: the file cannot be written; an earlier file there is unchanged.
        SignatureError: the bundle was written, but not its signature.
    """
    begin = time.monotonic()
    packing = Packing.parse(configs)
    require_place(output)
    given_targets = None if targets is None else tuple(dict.fromkeys(resolve_target(text) for text in targets))
    shared = session()
    start_early_worker(
        shared, [file for file in files if isinstance(file, Path)], given_targets or (resolve_target("cpu"),), output
    )
    collected = collect(files, kernels)
    declared = collected.kernels
    given_variants = {
        entry.name: _given_variants(entry.source, given_targets)
        for entry in declared
        if isinstance(entry.source, BringsCode)
    }
    concrete = given_targets or _usual_targets([entry.source for entry in declared if entry.name not in given_variants])
    # Raises before anything is compiled. Code that exists already keeps its own targets, unless the caller names
    # targets.
    paired = {
        entry.name: partial(_builds, entry.source)
        for entry in declared
        if given_targets is not None or entry.name not in given_variants
    }
    pairs = pair_kernels(paired, concrete)
    mode = tune or settings().tune
    devices = _devices_for(concrete)
    report, report_tuning = progress or _silent_stage, tuning or _silent_tuning
    limits = CaseLimits(budget=Budget(seconds=budget_s))
    planned = [
        _Planned(kernel, (), (), {}, given_variants[kernel.name])
        if kernel.name in given_variants
        else _plan(kernel, pairs.targets[kernel.name], devices, mode, limits, packing, report_tuning)
        for kernel in declared
    ]
    codes = compile_plans(shared, [(entry.kernel.source, entry.variants) for entry in planned], packing, report)
    variants_by_kernel = {entry.kernel.name: code.variants for entry, code in zip(planned, codes, strict=True)}
    plans, plan_remarks = _record_steps(collected, only=kernels is not None)
    documents: dict[str, bytes] = {}
    contents = BundleContents(
        kernels=tuple(
            _contents(replace(entry, variants=code.variants), code, mode, documents)
            for entry, code in zip(planned, codes, strict=True)
        ),
        producer=(("silo", __version__),),
        toolchain=_toolchain(declared, pairs),
        plans=plans,
    )

    def read_blob(sha256: str) -> bytes | None:
        return documents.get(sha256) or shared.store.blobs.get(sha256)

    note_trust(contents)  # recorded before the file exists, because another process may use the file immediately
    before = header_of(output)
    written = write_bundle(output, contents, read_blob)
    return BuildSummary(
        path=str(output),
        size_bytes=written.size_bytes,
        identity=written.identity,
        variants=sum(len(kernel.variants) for kernel in contents.kernels),
        blobs=len({ref.sha256 for kernel in contents.kernels for ref in kernel.refs}),
        compiled=sum(code.compiled for code in codes),
        reused=sum(code.reused for code in codes),
        seconds=time.monotonic() - begin,
        rows=tuple(row for kernel in contents.kernels for row in _rows(kernel, variants_by_kernel[kernel.name])),
        remarks=(*(remark for code in codes for remark in code.remarks), *plan_remarks),
        left_out=pairs.left_out,
        signature=settle_signature(output, before, written.header, key),
        plans=tuple(plan.name for plan in plans),
    )


def require_place(output: Path) -> None:
    """Raises BundleError if no bundle can be written to this path."""
    if output.suffix != ".silo":
        raise BundleError(
            f"{output}: a bundle's name ends in .silo; write for example -o {output.stem or 'kernels'}.silo"
        )
    if not output.parent.is_dir():
        raise BundleError(f"{output.parent} is not a folder; make it first")


def note_trust(contents: BundleContents) -> None:
    """Records that this user built a bundle's native code, cases and plans, so that they need no consent."""
    trust = session().store.trust
    for kernel in contents.kernels:
        calls = calls_of(kernel)
        native = [(variant, host_code(variant, calls)) for variant in kernel.variants if variant.artifact.runs_on_host]
        called = [code for _, code in native]
        cases = host_cases(kernel, called)
        texts = [text for bundle_variant, code in native if (text := host_text(bundle_variant, code)) is not None]
        trust.note_variants(*called)
        trust.note_built(*texts, *(() if cases is None else (cases,)))
    trust.note_built(*(plan for plan, _ in host_plans(contents)))


def _record_steps(collected: Collected, *, only: bool) -> tuple[tuple[RecordedPlan, ...], tuple[str, ...]]:
    """Returns the plans of the files' steps, and remarks.

    The examples of the steps run on this machine, with configs that need no tuning, because a plan keeps no config.
    ``only`` means that some kernels were selected; a step that needs another kernel is then left out, with a remark.
    """
    plans: list[RecordedPlan] = []
    remarks: list[str] = []
    with override(tune="off"):
        for step in collected.steps:
            try:
                plans.append(record_step(step, collected.kernels))
            except ArgumentError as error:
                if not only:
                    raise
                remarks.append(f"the step {step.name} is left out: {error}")
    return tuple(plans), tuple(remarks)


def _builds(source: KernelSource, target: Target) -> Decision:
    """Returns whether code of a kernel for a target exists or can be made. Raises ToolchainError."""
    try:
        if isinstance(source, BringsCode):
            source.code_for((target,))
            return Accepted("it has code for it")
        compiler_identity(source.kind, target)
    except (TargetError, NoVariantError) as error:
        return Rejected(str(error))
    return Accepted()


def _usual_targets(sources: Sequence[KernelSource]) -> tuple[Target, ...]:
    """Returns the targets to use if the caller names none.

    That is this machine's CPU; for a kind of source without CPU code, the first device here that it can run on.
    """
    targets: dict[Target, None] = {}
    for source in {source.kind: source for source in sources}.values():
        cpu = resolve_target("cpu")
        others = (
            ()
            if _builds(source, cpu)
            else (device.target for device in all_devices() if _builds(source, device.target))
        )
        targets[next(iter(others), cpu)] = None
    return tuple(targets)


def _given_variants(source: BringsCode, targets: Sequence[Target] | None) -> tuple[BuildVariant, ...]:
    """Returns the variants of a source whose code exists already: for ``targets``, or all without ``targets``."""
    return tuple(
        BuildVariant(variant.variant, (variant.reason,), (), generic=variant.generic)
        for variant in source.code_for(targets or source.own_targets)
    )


def _silent_stage(_name: str, _done: int, _total: int) -> None:
    pass


def _silent_tuning(_name: str, _event: Progress) -> None:
    pass


def _plan(
    kernel: Kernel,
    targets: Sequence[Target],
    local_devices: Mapping[Target, Device],
    mode: str,
    limits: CaseLimits,
    packing: Packing,
    report: OnTuning,
) -> _Planned:
    """Returns a kernel's cases, winners and variants to build. Without tuning, the winners come from stored trials."""
    host = device_named("cpu")
    if local_devices and not _builds(kernel.source, host.target):
        host = local_devices.get(targets[0], host)
    studies = tuple(case_studies(kernel, host))
    winners: dict[tuple[str, str, Target], Chosen] = {}
    tuned: list[CaseStudy] = []
    for target, device in local_devices.items():
        if mode == "off" or target not in targets:
            continue
        for study in studies if device == host else case_studies(kernel, device):
            if len(study.situation.candidates) == 1:
                chosen = _refined_form(kernel, study)
            else:
                if TuneMode(mode).measures and not kernel.why_unmeasured(device.target):
                    _tune(kernel, study, limits, report)
                chosen = _decided(kernel, study, mode)
            if chosen is not None:
                tuned.append(study)
                # The canonical target of the code may differ from the requested target, and variants have the canonical
                # one.
                for candidate_target in (target, _canonical(kernel, target)):
                    winners[kernel.name, study.case.label, candidate_target] = chosen
    distinct: dict[Target, Target] = {}
    for target in targets:
        distinct.setdefault(_canonical(kernel, target), target)
    plan: list[BuildVariant] = []
    spaces: dict[RulesKey, ConfigSet] = {}
    for canonical, target in distinct.items():
        planned = _plan_kernel(kernel, studies, target, local_devices.get(target))
        for case in planned.cases:
            key = (canonical, case.signature.without_effects(), case.specialization.extents)
            spaces[key] = ConfigSet((*spaces.get(key, ConfigSet(())), *(case.configs or ())))
        shared = plan_variants(
            [planned],
            [target],
            winners=winners,
            has_device=lambda target: target in local_devices,
            canonical=lambda target: _canonical(kernel, target),
            packing=packing,
        )
        facts = local_devices[target].facts() if target in local_devices else None
        plan += [
            case_variant
            for shared_study in shared
            for case_variant in case_variants(kernel, studies, shared_study, facts)
        ]
    return _Planned(kernel, studies, tuple(tuned), winners, tuple(plan), spaces)


def _tune(kernel: Kernel, study: CaseStudy, limits: CaseLimits, report: OnTuning) -> None:
    """Measures a case. Raises TuneError if none of its configs can be used."""
    name = f"{kernel.name} {study.case.label}"
    study.case.verify()
    outcome, _ = tune_case(study, limits, lambda event: report(name, event))
    # Without trials and faults, the budget was used up before this case. Then the case's first config is packed.
    if outcome.trials or outcome.faults:
        require_winners([TunedCase(kernel.name, study.case.label, study.case.elements, outcome)])


def _refined_form(kernel: Kernel, study: CaseStudy) -> Chosen | None:
    """Returns the config to pack for a case whose space has one config, if a refinement of this config is better.

    A refinement is better if it won a measurement or the lock names it; otherwise returns None.
    """
    if not study.situation.reach.refinable:
        return None
    chosen = _decided(kernel, study, "cached")
    return None if chosen is None or study.situation.reach.holds(chosen.config) else chosen


def _decided(kernel: Kernel, study: CaseStudy, mode: str) -> Chosen | None:
    """Returns the lock's config for a case, else the winner of its trials, else None.

    In mode ``frozen``, raises FrozenError instead of returning None.
    """
    if mode == "frozen":
        return kernel.resolver.chosen(study.situation, mode=TuneMode.FROZEN)
    study_key = kernel.resolver.problem(study.situation)
    locked = lock_advice(kernel, study_key, study.situation)
    if locked is not None and locked[1].exact and locked[1].config is not None:
        return Chosen(locked[1].config, Origin.LOCK)
    situation = (study.situation.specialization, study.bucket, study.situation.reach)
    winner = study_key.winner(*situation)
    if winner is None:
        kernel.resolver.carry(study.situation)
        winner = study_key.winner(*situation)
    return None if winner is None else Chosen(winner.config, Origin.BUCKET)


def _devices_for(targets: Sequence[Target]) -> dict[Target, Device]:
    """Returns, for each target with a device in this machine, a device to measure on."""
    devices: dict[Target, Device] = {}
    for target in targets:
        for device in devices_of_kind(target.kind):
            if device.target.arch == target.device_arch:
                devices.setdefault(target, device)
    return devices


def _canonical(kernel: Kernel, target: Target) -> Target:
    return select_compiler(kernel.source.kind, target).artifact_target(target)


def _plan_kernel(kernel: Kernel, studies: Sequence[CaseStudy], target: Target, device: Device | None) -> BuildKernel:
    """Returns a kernel with its cases and configs for one target. A heuristic's configs depend on target and case."""
    facts: Mapping[str, int] = {} if device is None else device.facts()
    configs = [_candidates_on(study, target, facts) for study in studies]
    ruled = any(study.situation.rule is not None for study in studies)
    of_calls = ruled or kernel.space.grouped is not None
    listed = Space.of(
        [config for config_group in configs for config in config_group] if of_calls else kernel.space.listed
    )
    return BuildKernel(
        name=kernel.name,
        fingerprint=kernel.source.fingerprint,
        cases=tuple(_plan_case(study, config) for study, config in zip(studies, configs, strict=True)),
        configs=listed.configs(),
        neighbours=listed.neighbours,
        has_fallback=kernel.extents is None,
    )


def _candidates_on(study: CaseStudy, target: Target, facts: Mapping[str, int]) -> tuple[Config, ...]:
    """Returns the candidates of a case on another target.

    In deterministic mode, these are only the candidates with the same numerical results as the first one.
    """
    context = study.situation
    return study.kernel.resolver.same_bits(context, context.candidates_on(target, facts))[0]


def _plan_case(study: CaseStudy, configs: tuple[Config, ...]) -> BuildCase:
    context = study.situation
    return BuildCase(study.case.label, context.signature, context.specialization, configs, context.rule is not None)


def _key(entry: _Planned) -> tuple[str, ...]:
    """Returns the names of the arguments that tuning depends on.

    Raises CaseError if only some of the cases leave block sizes to a heuristic.
    """
    keys = {study.situation.key for study in entry.studies}
    if len(keys) > 1:
        raise CaseError(
            f"{entry.kernel.name}: some of its cases give every block size and others leave some to a heuristic; "
            "let all of them do the same"
        )
    return next(iter(keys), entry.kernel.key)


def _contents(entry: _Planned, code: PackedCode, mode: str, documents: dict[str, bytes]) -> BundleKernel:
    kernel = entry.kernel
    variants: dict[Variant, BundleVariant] = {}
    for planned in entry.variants:
        labels = planned.cases if planned.generic else planned.leads
        chosen = [entry.winners.get((kernel.name, label, planned.variant.target)) for label in labels]
        measured = any(choice is not None and choice.origin.measured for choice in chosen)
        basis = Basis.MEASURED if measured else Basis.HEURISTIC
        variants.setdefault(
            planned.variant, BundleVariant(code.artifacts[planned.variant], "; ".join(planned.reasons), basis)
        )
    recipes = _recipes(entry)
    cases = trials = None
    if recipes:  # code that exists already has no cases and needs none
        cases, data = document_blob(CASES_KIND, recipes)
        documents[cases.sha256] = data
    trial_documents = () if mode == "off" else _trials(entry)
    if trial_documents:
        trials, data = document_blob(TRIALS_KIND, trial_documents)
        documents[trials.sha256] = data
    return BundleKernel(
        name=kernel.name,
        signature=kernel.source.signature,
        key=_key(entry),
        config_names=tuple(sorted({*kernel.config_names, *_open_names(entry)})),
        derived=(*kernel.derived.nodes, *_needed(entry), *_allowed(entry)),
        grid=kernel.grid,
        variants=tuple(variants.values()),
        rules=tuple(_rules(entry)),
        cases=cases,
        trials=trials,
        kind=_kind_in_bundles(kernel.source.kind),
        contiguous=kernel.contiguous,
    )


def _recipes(entry: _Planned) -> tuple[JSON, ...]:
    """Returns the kernel's cases. The values of heuristics written in Python are stored with each case.

    A process that opens the bundle cannot run these heuristics.
    """
    kernel = entry.kernel
    recipes = [
        function.recipe(values, make_of(None))
        for function in kernel.case_functions
        for values in function.combinations()
    ]
    if kernel.derived.opaque:
        recipes = [_with_opaque(recipe, study) for recipe, study in zip(recipes, entry.studies, strict=True)]
    return tuple(recipe.to_json() for recipe in recipes)


def _with_opaque(recipe: CaseRecipe, study: CaseStudy) -> CaseRecipe:
    arguments = dict(recipe.arguments)
    opaque = opaque_constants(study).items()
    own = tuple((name, ScalarRecipe(value)) for name, value in opaque if name not in arguments)
    return replace(recipe, arguments=(*recipe.arguments, *own))


def _kind_in_bundles(kind: str) -> str:
    plugin = kind_named(kind)
    return "" if isinstance(plugin, UnnamedInBundles) and plugin.unnamed_in_bundles else kind


def _open_names(entry: _Planned) -> set[str]:
    """Returns the config names that calls in this process leave to a heuristic."""
    return {name for study in entry.studies if study.situation.rule for name in study.situation.config_names}


def _needed(entry: _Planned) -> tuple[tuple[str, Node], ...]:
    """Returns derived constexprs, with their expressions, that the bundle must compute for each call.

    A case's value of such a constexpr would give wrong results in calls of other sizes.
    """
    rules = [study.situation.rule for study in entry.studies]
    return tuple(dict.fromkeys(pair for rule in rules if rule is not None for pair in rule.needed))


def _allowed(entry: _Planned) -> tuple[tuple[str, Node], ...]:
    """Returns a condition, so that each call gets only configs that the author's pruner allowed in the matching case.

    The condition is a pair: the name of a config value, and an expression that the value must equal. Returns () if no
    condition is needed or possible.
    """
    return allowed_configs(entry.kernel, [study.situation for study in entry.studies])


def _trials(entry: _Planned) -> tuple[JSON, ...]:
    """Returns the stored trials of every study that chose a winner, each with its study."""
    documents_by_key: dict[str, tuple[JSON, ...]] = {}
    for study in entry.tuned:
        study_key = entry.kernel.resolver.problem(study.situation)
        full_study = study_key.study(study.situation.specialization, study.bucket)
        documents_by_key[full_study.key] = tuple(
            pair_to_document(full_study, trial) for trial in read_trials(full_study, study_key.records)
        )
    return tuple(document for documents in documents_by_key.values() for document in documents)


def _rules(entry: _Planned) -> list[BundleRules]:
    """Returns, for each target, dtype signature and extents, the config of each bucket.

    The config of the first case is the fallback. A decision list for other buckets may name any packed config.
    """
    tables: dict[RulesKey, dict[Bucket, Config]] = {}
    first: dict[RulesKey, Config] = {}
    keys = {rules_key(planned.variant) for planned in entry.variants}
    packed = {
        key: ConfigSet(planned.variant.config for planned in entry.variants if rules_key(planned.variant) == key)
        for key in keys
    }
    for planned in entry.variants:
        variant = planned.variant
        key = rules_key(variant)
        first.setdefault(key, variant.config)
        table = tables.setdefault(key, {})
        if planned.generic:
            continue
        for study in entry.studies:
            if study.case.label in planned.leads:
                table.setdefault(study.bucket, variant.config)
    objective = wanted_objective()
    samples = {key: _samples(entry, key, objective) for key in first}
    measured_by = named(objective)
    return [
        BundleRules(
            target,
            signature,
            fitted_rules(
                _key(entry),
                tables[key],
                fallback,
                samples[key],
                packed[key].listed,
                measured_by if samples[key] else "",
            ),
            _space_size(entry, key),
            extents,
        )
        for key, fallback in first.items()
        for target, signature, extents in [key]
    ]


def _space_size(entry: _Planned, key: RulesKey) -> int:
    """Returns how many configs the cases of one target, signature and extents have together.

    Returns 0 if the cases have no choice of configs.
    """
    size = len(entry.spaces.get(key, ()))
    return size if size > 1 else 0


def _samples(entry: _Planned, key: RulesKey, objective: Objective) -> tuple[Sample, ...]:
    """Returns the measured buckets of one target, signature and extents; empty if the cases' constexprs differ."""
    kernel = entry.kernel
    target, signature, extents = key
    samples: dict[Bucket, Sample] = {}
    constants: list[tuple[tuple[str, Value], ...]] = []
    for study in entry.tuned:
        context = study.situation
        own = context.device.target
        if target not in (own, _canonical(kernel, own)) or context.signature.without_effects() != signature:
            continue
        if context.specialization.extents != extents:
            continue
        constants.append(context.specialization.constants)
        study_key = kernel.resolver.problem(context)
        trials = study_key.trials(context.specialization, study.bucket, context.reach)
        sample = Sample.of_trials(study.bucket, trials, objective)
        if sample is not None:
            samples.setdefault(study.bucket, sample)
    return (
        tuple(samples.values())
        if all(identity_of(constant) == identity_of(constants[0]) for constant in constants)
        else ()
    )


def _toolchain(kernels: Sequence[Kernel], pairs: Pairs) -> tuple[tuple[str, str], ...]:
    """Returns the versions of the compilers. Code that existed already is left out, because its compiler is unknown."""
    versions: dict[str, str] = {}
    compiled: dict[tuple[str, Target], None] = {}
    for kernel in kernels:
        if not isinstance(kernel.source, BringsCode):
            compiled.update(dict.fromkeys((kernel.source.kind, target) for target in pairs.targets[kernel.name]))
    for source in dict.fromkeys(source for source, _ in compiled):
        kind = kind_named(source)
        versions.update(kind.versions() if isinstance(kind, NeedsPackages) else {})
    for source, target in compiled:
        several = len({other for other, wanted_target in compiled if wanted_target.kind == target.kind}) > 1
        label = f"compiler of {source} for {target.kind}" if several else f"compiler for {target.kind}"
        versions[label] = compiler_identity(source, target)
    return tuple(sorted(versions.items()))


def _rows(contents: BundleKernel, planned: Sequence[BuildVariant]) -> list[BuildRow]:
    by_target: dict[Target, dict[Variant, Origin]] = {}
    for entry in planned:
        by_target.setdefault(entry.variant.target, {}).setdefault(entry.variant, entry.origin)
    rows: list[BuildRow] = []
    for target, variants in by_target.items():
        best, origin = next(iter(variants.items()))
        chosen = "measured" if origin is Origin.BUCKET else origin.value
        coverage = [entry for entry in contents.coverage if entry.target == target]
        packed, space = sum(entry.packed for entry in coverage), sum(entry.space for entry in coverage)
        serves = tuple(
            dict.fromkeys(variant.specialization.served for variant in variants if variant.specialization.made_for_some)
        )
        size = len(variants)
        rows.append(BuildRow(contents.name, str(target), size, packed, space, str(best.config), chosen, serves))
    return rows
