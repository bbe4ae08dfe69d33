"""Tunes a kernel of a Python file on its cases, and finds the variants that the cases need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from silo.building.call_context import CallContext
from silo.building.compilation import Compilation
from silo.building.derived_constexprs import call_opaque, derive
from silo.building.loaded_kernels import stored_code
from silo.building.ready_cases import PreparedCase
from silo.calls.candidate_filters import deterministic_remark
from silo.calls.inferred_space import check_grid
from silo.compile.build_list import BuildVariant
from silo.compile.toolchain import select_compiler, target_kinds
from silo.core.cases import Make
from silo.core.config import Config
from silo.core.device import place_of
from silo.core.dispatch import Bucket
from silo.core.protocols import Device
from silo.core.recipes import ArrayRecipe
from silo.core.specialization import Specialization
from silo.core.values import Value, identity_of
from silo.core.variant import Variant
from silo.errors import ArgumentError, CaseError, DeviceError, SpaceError, TargetError, TuneError
from silo.kernels.kernel import Kernel
from silo.launch.array_libraries.array_contents import fill
from silo.launch.array_libraries.library_table import NAMES, materialize
from silo.launch.array_parts import is_descriptor
from silo.launch.runtime import inspect_call
from silo.machine.device_plugins import absent_devices, all_devices, device_named
from silo.machine.process_session import session
from silo.measuring.benches import Bench, LocalBench, benches_on, grid_at
from silo.measuring.case_session_options import refiner_of, spill_limit_of, study_seeds
from silo.measuring.earlier_studies import carry_trials
from silo.measuring.evaluators import CompiledArtifacts, evaluators
from silo.measuring.lock_files import deployed_config
from silo.measuring.metric_plan import plan_metrics, wanted_objective
from silo.sources.kernel_source import BringsCode
from silo.tuner.policy import settle
from silo.tuner.search.searchers import DEFAULT_SEARCHER, check_searcher
from silo.tuner.session import tune
from silo.tuner.session_values import Budget, Progress, SearchOptions, SessionScope, SessionWatch, TuneOutcome
from silo.tuner.trial import Study
from silo.tuning.agents.agent_documents import SentCase
from silo.tuning.agents.fleet import Fleet
from silo.tuning.agents.remote_evaluator import fleet_lanes, refused_case

__all__ = [
    "CaseLimits",
    "CaseStudy",
    "call_arguments",
    "case_benches",
    "case_studies",
    "case_variants",
    "device_of",
    "launcher_of",
    "made_study",
    "make_of",
    "materializer",
    "opaque_constants",
    "sent_case",
    "tune_case",
]

# ---- Tuning a kernel on its cases ----

_log = logging.getLogger("silo")


@dataclass(frozen=True)
class CaseLimits:
    """The limits of tuning one case. ``lock`` is the file of deployed configs.

    ``devices`` are further devices of the same model, which measure configs at the same time. A ``fleet`` measures
    instead of this machine. ``anew`` holds the keys of the studies whose earlier trials this command has superseded so
    far; None: the command supersedes no trials.

    Raises:
        TuneError: no searcher is called ``searcher``.
    """

    searcher: str = DEFAULT_SEARCHER
    budget: Budget = Budget()  # noqa: RUF009  # a shared default is safe, because Budget is frozen
    lock: Path | None = None
    devices: tuple[Device, ...] = ()
    fleet: Fleet | None = None
    anew: set[str] | None = None

    def __post_init__(self) -> None:
        check_searcher(self.searcher)

    def supersedes(self, study: Study) -> bool:
        """Returns whether to supersede a study's earlier trials now: once per command, at the study's first case."""
        if self.anew is None or study.key in self.anew:
            return False
        self.anew.add(study.key)
        return True


@dataclass(frozen=True)
class CaseStudy:
    """One case of a kernel that this process loaded, with its call context on a device."""

    kernel: Kernel
    case: PreparedCase
    situation: CallContext
    bucket: Bucket


def materializer(library: str | None, device: Device | None = None) -> Callable[[ArrayRecipe], Any]:
    """Returns a function that makes arrays of ``library`` on ``device`` (None: CPU).

    Without a library the arrays are numpy's on the CPU. On a GPU they are torch's if torch is loaded, and
    :class:`silo.Buffer` otherwise. Raises CaseError for unknown libraries.
    """
    if library is not None and library not in NAMES:
        raise CaseError(f"--arrays {library}: it is one of {', '.join(NAMES)}")
    array_place = place_of(device)
    return lambda recipe: materialize(recipe, library, array_place)


def make_of(library: str | None, device: Device | None = None) -> Make:
    """Returns the object that a case function gets as ``make``: it makes arrays of a library on a device."""
    return Make(materializer(library, device), fill)


def case_studies(kernel: Kernel, device: Device | None, library: str | None = None) -> list[CaseStudy]:
    """Returns every case of a kernel, with its arguments made on ``device``.

    Raises CaseError if the kernel has no cases.

    Without a device the arguments are in host memory, and the kernel's kind decides the device.
    """
    studies: list[CaseStudy] = []
    for function in kernel.case_functions:
        for values in function.combinations():
            case = function.prepare(values, make_of(library, device))
            try:
                call_values = {**call_arguments(kernel, case), **case.grid_argument(held=kernel.holds_grid)}
                call = inspect_call(kernel.resolver.native, kernel.source.signature, **call_values)
                situation = kernel.resolver.understand(call, device)
                if situation.rule is not None and case.grid is not None:
                    check_grid(kernel, situation.rule, None, case.grid)
            except (ArgumentError, SpaceError) as error:
                where = f"the case {case.label} of {kernel.name} ({function.location})"
                raise CaseError(f"{where}: {error}") from error
            studies.append(CaseStudy(kernel, case, situation, situation.bucket))
    if not studies:
        raise CaseError(
            f"{kernel.name} ({kernel.location}) has no cases, so there is nothing to run it on: "
            f"add @{kernel.name}.cases(...)"
        )
    return studies


def device_of(kernel: Kernel, device: Device | None) -> Device | None:
    """Returns the device for a kernel's cases: ``device`` if given, else None for host memory.

    If no compiler here compiles the kernel for host memory, returns the first device here that a compiler supports.

    Raises:
        DeviceError: no device fits; lists the reasons.
    """
    if device is not None or isinstance(kernel.source, BringsCode):
        return device
    try:
        select_compiler(kernel.source.kind, device_named("cpu").target)
    except TargetError as error:
        refusal = str(error)
    else:
        return None
    fitting = [device for device in all_devices() if _compiles(kernel, device)]
    if not fitting:
        kinds = target_kinds(kernel.source.kind) or tuple(name for name, _ in absent_devices())
        missing = {name: why.reason for name, why in absent_devices() if name in kinds}
        absent = "".join(f"\n  - no {name}: {reason}" for name, reason in missing.items())
        if len(missing) > 1:
            absent = f"\n  - no {' and no '.join(missing)} device is here: silo doctor says why"
        raise DeviceError(f"{kernel.name} has no device here to run on: {refusal}{absent}")
    return None if any(candidate.memory.is_host for candidate in fitting) else fitting[0]


def _compiles(kernel: Kernel, device: Device) -> bool:
    try:
        select_compiler(kernel.source.kind, device.target)
    except TargetError:
        return False
    return True


def call_arguments(kernel: Kernel, case: PreparedCase) -> dict[str, object]:
    """Returns the launcher's arguments: the arguments of the case, its options, and the values of Python heuristics."""
    arguments = {**case.arguments, **case.options}
    if kernel.derived.opaque:
        known_values = {**kernel.agreed_values, **arguments}
        arguments |= call_opaque(kernel.name, kernel.derived, known_values, kernel.config_names)
    return arguments


def launcher_of(study: CaseStudy) -> Callable[[Config], Callable[[], object]]:
    """Returns a function that, given a config, returns a function that launches the case with this config."""
    kernel, case = study.kernel, study.case
    facts = study.situation.device.facts()
    launcher = kernel.resolver.launcher_on(study.situation.device)

    def bound(config: Config) -> Callable[[], object]:
        call_values = {**call_arguments(kernel, case), **config.as_dict()}
        grid = case.grid_of(config.as_dict(), facts)
        if grid is not None:
            launch = launcher[grid]
            return lambda: launch(**call_values)
        return lambda: launcher(**call_values)

    return bound


def _grid(study: CaseStudy, variant: Variant) -> tuple[int, ...]:
    kernel, case, situation = study.kernel, study.case, study.situation
    values = {**variant.specialization.constant_values, **variant.config.as_dict()}
    return grid_at(case.grid or kernel.grid, None, call_arguments(kernel, case), values, situation.device.facts())


def _passed(study: CaseStudy) -> dict[str, object]:
    """Returns the arguments that a launch of the case passes: all except the code's constants and the options."""
    arguments = call_arguments(study.kernel, study.case)
    constants = set(study.situation.specialization.constant_values)
    # a descriptor's constant is its block shape, so the descriptor itself is passed
    constants -= {name for name, value in arguments.items() if is_descriptor(value)}
    return {
        name: value for name, value in arguments.items() if name not in constants and name not in study.case.options
    }


def case_benches(study: CaseStudy, others: Sequence[Device] = ()) -> list[Bench]:
    """Makes benches to run the case's configs: on its own device, and on each of ``others`` of the same model."""
    kernel, case = study.kernel, study.case
    devices = (study.situation.device, *others)
    if reason := kernel.why_unmeasured(devices[0].target):
        raise TuneError(f"{kernel.name} is not measured on {devices[0].target}: {reason}")
    confined = benches_on(
        kernel.name,
        devices,
        _passed(study),
        lambda _, artifact: _grid(study, artifact.variant),
        in_library=kernel.in_library,
    )
    if confined:
        return [*confined]
    launcher = launcher_of(study)
    return [LocalBench(devices[0], case.arguments, lambda config, _: launcher(config))]


def sent_case(study: CaseStudy, search_study: Study) -> SentCase:
    """Returns a case in the form that agents receive.

    Raises CaseError if no recipe describes the case, or if a library runs its code.
    """
    kernel, case = study.kernel, study.case
    if kernel.in_library:
        raise CaseError(f"a library runs the code of {kernel.name}, over objects of this process")
    if case.record is None:
        raise CaseError(f"the case {case.label} of {kernel.name} has no recipe")
    recipe = case.record()
    arguments, own = call_arguments(kernel, case), dict(recipe.arguments)
    values = {name: value for name, value in arguments.items() if name not in own}
    try:
        return SentCase(search_study, recipe, kernel.grid, cast("Any", values), tuple(_passed(study))).checked()
    except (TypeError, ValueError) as error:
        raise CaseError(f"the case {case.label} of {kernel.name} cannot be recorded: {error}") from error


def made_study(study: CaseStudy) -> Study:
    """Returns the study that a case's trials belong to."""
    return study.kernel.resolver.problem(study.situation).study(study.situation.specialization, study.bucket)


def _placed(study: CaseStudy, fleet: Fleet | None) -> tuple[CaseStudy, SentCase | None, tuple[str, ...]]:
    """Returns the case, the case in the form to send to agents, and remarks.

    If the fleet cannot run the case, returns the case on a device of this machine, and None in place of the form to
    send.
    """
    if fleet is None:
        return study, None, ()
    try:
        sent = sent_case(study, made_study(study))
    except CaseError as error:
        reason = str(error)
    else:
        reason = refused_case(fleet, sent)
        if not reason:
            return study, sent, ()
    remark = f"measured on this machine and by no agent: {reason}"
    _log.warning("%s %s is %s", study.kernel.name, study.case.label, remark)
    local_studies = case_studies(study.kernel, device_of(study.kernel, None))
    return (
        next(local_study for local_study in local_studies if local_study.case.label == study.case.label),
        None,
        (remark,),
    )


def tune_case(
    study: CaseStudy, limits: CaseLimits, progress: Callable[[Progress], None] | None = None
) -> tuple[TuneOutcome, Compilation]:
    """Measures the configs of one case and stores every trial. Returns the outcome and the compilations."""
    study, sent, remarks = _placed(study, limits.fleet)
    kernel, situation = study.kernel, study.situation
    full_study = made_study(study)
    compilation, records = Compilation(session(), kernel.source, trials=True), session().store.records
    artifacts = CompiledArtifacts(compilation, lambda config: kernel.resolver.variant(situation, config))
    remeasure = limits.supersedes(full_study)
    if not remeasure:
        carried = carry_trials(full_study, situation.reach, artifacts, session().store, limits.budget)
        if carried:
            remarks = (*remarks, f"{carried} trials of an earlier compiler count, because their code is the same")
    objective = wanted_objective()
    metrics = plan_metrics(
        objective,
        f"the case {study.case.label} of {kernel.name}",
        situation.device if sent is None else None,
        None if study.case.work is None else study.case.work.flops,
        study.case.metrics,
    )
    with (
        evaluators(
            full_study,
            artifacts,
            case_benches(study, limits.devices),
            study.case.compare,
            situation.candidates,
            metrics,
        )
        if sent is None or limits.fleet is None
        else fleet_lanes(
            limits.fleet, sent, artifacts, lambda artifact: stored_code(session().store, artifact), metrics
        )
    ) as lanes:
        outcome = tune(
            full_study,
            situation.searched,
            lanes,
            records,
            SearchOptions(
                limits.searcher, study_seeds(full_study, situation.searched, records, limits.lock), limits.budget
            ),
            SessionScope(
                refiner=refiner_of(situation, lambda config: _grid(study, kernel.resolver.variant(situation, config))),
                most_spills=spill_limit_of(situation),
                deployed=deployed_config(limits.lock, full_study),
                remeasure=remeasure,
                objective=objective,
            ),
            SessionWatch(progress),
        )
    settle(full_study, records)
    if remark := deterministic_remark(situation):
        remarks = (remark, *remarks)
    return replace(outcome, remarks=(*remarks, *outcome.remarks)), compilation


# ---- Completing a planned variant: one variant for each set of derived values that its cases have ----


def case_variants(
    kernel: Kernel, studies: Sequence[CaseStudy], planned: BuildVariant, facts: Mapping[str, int] | None = None
) -> list[BuildVariant]:
    """Completes a planned variant for its cases; returns the completed variants with the cases that each serves.

    ``facts`` are the device facts of the planned target, if a device of this target is here; heuristics may read them.
    """
    reasons: dict[Variant, list[str]] = {}
    for study in studies:
        if _is_served(study, planned):
            specialization = _completed(kernel, study, planned.variant, facts)
            reasons.setdefault(replace(planned.variant, specialization=specialization), []).append(study.case.label)
    return [planned.serving(variant, labels) for variant, labels in reasons.items()]


def _is_served(study: CaseStudy, planned: BuildVariant) -> bool:
    """Returns whether a planned variant serves a case.

    Two cases may share a label, so types and constants are compared too.
    """
    variant, situation = planned.variant, study.situation
    return (
        study.case.label in planned.cases
        and situation.signature == variant.signature
        and identity_of(situation.specialization.constants) == identity_of(variant.specialization.constants)
    )


def _completed(kernel: Kernel, study: CaseStudy, variant: Variant, facts: Mapping[str, int] | None) -> Specialization:
    """Returns the variant's specialization with the constexprs that heuristics compute for the case.

    If the grid decides the code, the grid is added too.
    """
    situation, config = study.situation, variant.config
    device_facts = situation.device.facts() if facts is None else facts
    own = derive(kernel.derived, situation.values, config.as_dict(), device_facts)
    shapes = kernel.source.constants_of(config, variant.specialization)
    constants = {**own, **opaque_constants(study), **shapes, **variant.specialization.constant_values}
    return kernel.resolver.with_grid(situation, config, variant.specialization.with_constants(constants))


def opaque_constants(study: CaseStudy) -> dict[str, Value]:
    """Returns the derived constexprs whose values are known for the case, by name.

    The case passes these values, or a heuristic written in Python computes them for the case.
    """
    kernel = study.kernel
    arguments = call_arguments(kernel, study.case)
    return {name: kernel.source.constant(arguments[name]) for name in kernel.derived.names if name in arguments}
