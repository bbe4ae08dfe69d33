"""Tuning a kernel on its cases: the same for a Python file and for a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from silo.api.calls.determinism import deterministic_remark
from silo.api.calls.guessed_space import check_grid
from silo.api.code.compilation import Compilation
from silo.api.declared.ready_cases import PreparedCase
from silo.api.declared.situation import Situation
from silo.api.kernels.kernel import Kernel
from silo.api.machine.device_plugins import absent_devices, all_devices, device_named
from silo.api.machine.session import session
from silo.api.trials.benches import Bench, LocalBench, benches_on, grid_at
from silo.api.trials.evaluators import CompiledArtifacts, evaluators
from silo.api.trials.lock_files import deployed_config
from silo.api.trials.session_terms import refiner_of, spill_limit_of, study_seeds
from silo.compile.toolchain import select_compiler, target_kinds
from silo.core.cases import Make
from silo.core.config import Config
from silo.core.device import place_of
from silo.core.dispatch import Bucket
from silo.core.protocols import Device
from silo.core.recipes import ArrayRecipe
from silo.core.values import Value
from silo.core.variant import Variant
from silo.errors import ArgumentError, CaseError, DeviceError, SpaceError, TargetError, TuneError
from silo.launch.array_libraries.filling import fill
from silo.launch.array_libraries.table import NAMES
from silo.launch.cases import materialize
from silo.launch.descriptors import is_descriptor
from silo.launch.runtime import inspect_call
from silo.sources.kernel_source import BringsCode
from silo.tune.effort import settle
from silo.tune.outcome import Budget, TuneOutcome
from silo.tune.progress import Progress
from silo.tune.search.registry import DEFAULT_SEARCHER, check_searcher
from silo.tune.session import tune
from silo.tune.terms import Scope, Search, Watch

__all__ = [
    "CaseStudy",
    "Limits",
    "call_arguments",
    "case_benches",
    "case_studies",
    "device_of",
    "launcher_of",
    "make_of",
    "materializer",
    "tune_case",
]


@dataclass(frozen=True)
class Limits:
    """How far one case is tuned; ``lock`` is the file of what is deployed.

    ``devices`` are devices of the case's model, on which configs are measured at the same time; none: its own alone.

    Raises:
        TuneError: No searcher has this name.
    """

    searcher: str = DEFAULT_SEARCHER
    budget: Budget = Budget()  # noqa: RUF009  # frozen
    lock: Path | None = None
    devices: tuple[Device, ...] = ()

    def __post_init__(self) -> None:
        check_searcher(self.searcher)


@dataclass(frozen=True)
class CaseStudy:
    """One case of a kernel of this process, understood on a device."""

    kernel: Kernel
    case: PreparedCase
    situation: Situation
    bucket: Bucket


def materializer(library: str | None, device: Device | None = None) -> Callable[[ArrayRecipe], Any]:
    """What makes arrays of ``library`` on ``device`` (the CPU where None). ``CaseError`` for an unknown library.

    Without a library it is numpy on the CPU, and on a GPU torch where it is loaded and :class:`silo.Buffer` elsewhere.
    """
    if library is not None and library not in NAMES:
        raise CaseError(f"--arrays {library}: it is one of {', '.join(NAMES)}")
    place = place_of(device)
    return lambda recipe: materialize(recipe, library, place)


def make_of(library: str | None, device: Device | None = None) -> Make:
    """``make`` for a case function."""
    return Make(materializer(library, device), fill)


def case_studies(kernel: Kernel, device: Device | None, library: str | None = None) -> list[CaseStudy]:
    """Every case of a kernel on ``device``, its arguments made there. ``CaseError`` where it has none.

    Without a device the arguments are in host memory, and the kernel's kind says where it runs.
    """
    found: list[CaseStudy] = []
    for function in kernel.case_functions:
        for values in function.combinations():
            case = function.prepare(values, make_of(library, device))
            try:
                named = {**call_arguments(kernel, case), **case.grid_argument(held=kernel.holds_grid)}
                call = inspect_call(kernel.resolver.native, kernel.source.signature, **named)
                situation = kernel.resolver.understand(call, device)
                if situation.rule is not None and case.grid is not None:
                    check_grid(kernel, situation.rule, None, case.grid)
            except (ArgumentError, SpaceError) as error:
                where = f"the case {case.label} of {kernel.name} ({function.location})"
                raise CaseError(f"{where}: {error}") from error
            found.append(CaseStudy(kernel, case, situation, situation.bucket))
    if not found:
        raise CaseError(
            f"{kernel.name} ({kernel.location}) has no cases, so there is nothing to run it on: "
            f"add @{kernel.name}.cases(...)"
        )
    return found


def device_of(kernel: Kernel, device: Device | None) -> Device | None:
    """Where a command runs a kernel's cases: ``device`` where one was named, else None for host memory.

    A kernel that has no code for a device of the host's memory goes to the first device here that it is compiled for.

    Raises:
        DeviceError: there is no such device; says why.
    """
    if device is not None or isinstance(kernel.source, BringsCode):
        return device
    try:
        select_compiler(kernel.source.kind, device_named("cpu").target)
    except TargetError as error:
        refusal = str(error)
    else:
        return None
    fitting = [one for one in all_devices() if _compiles(kernel, one)]
    if not fitting:
        kinds = target_kinds(kernel.source.kind) or tuple(name for name, _ in absent_devices())
        absent = "".join(f"\n  - no {name}: {why.reason}" for name, why in absent_devices() if name in kinds)
        raise DeviceError(f"{kernel.name} has no device here to run on: {refusal}{absent}")
    return None if any(one.memory.is_host for one in fitting) else fitting[0]


def _compiles(kernel: Kernel, device: Device) -> bool:
    try:
        select_compiler(kernel.source.kind, device.target)
    except TargetError:
        return False
    return True


def call_arguments(kernel: Kernel, case: PreparedCase) -> dict[str, object]:
    """What the launcher is called with: the case's arguments and options, and what opaque heuristics say of them."""
    named = {**case.arguments, **case.options}
    for name, function, _ in kernel.derived.opaque:
        if name not in named:
            named[name] = function({**kernel.first_config(_scalars(named)).as_dict(), **named})
    return named


def _scalars(named: Mapping[str, object]) -> dict[str, Value]:
    return {name: value for name, value in named.items() if isinstance(value, int | float | str)}


def launcher_of(study: CaseStudy) -> Callable[[Config], Callable[[], object]]:
    """For a config, the function that launches the case with it."""
    kernel, case = study.kernel, study.case
    facts = study.situation.device.facts()
    launcher = kernel.resolver.launcher_on(study.situation.device)

    def bound(config: Config) -> Callable[[], object]:
        named = {**call_arguments(kernel, case), **config.as_dict()}
        grid = case.grid_of(config.as_dict(), facts)
        if grid is not None:
            launch = launcher[grid]
            return lambda: launch(**named)
        return lambda: launcher(**named)

    return bound


def _grid(study: CaseStudy, variant: Variant) -> tuple[int, ...]:
    kernel, case, situation = study.kernel, study.case, study.situation
    values = {**variant.specialization.constant_values, **variant.config.as_dict()}
    return grid_at(case.grid or kernel.grid, None, call_arguments(kernel, case), values, situation.device.facts())


def case_benches(study: CaseStudy, others: Sequence[Device] = ()) -> list[Bench]:
    """Where the case's configs run: on its device, and on each of ``others`` that is like it."""
    kernel, case = study.kernel, study.case
    named = call_arguments(kernel, case)
    constants = set(study.situation.specialization.constant_values)
    constants -= {name for name, value in named.items() if is_descriptor(value)}  # theirs is a block shape
    passed = {name: value for name, value in named.items() if name not in constants and name not in case.options}
    devices = (study.situation.device, *others)
    if reason := kernel.why_unmeasured(devices[0].target):
        raise TuneError(f"{kernel.name} is not measured on {devices[0].target}: {reason}")
    confined = benches_on(
        kernel.name,
        devices,
        passed,
        lambda _, artifact: _grid(study, artifact.variant),
        in_library=kernel.in_library,
    )
    return confined or [LocalBench(devices[0], case.arguments, launcher_of(study))]


def tune_case(
    study: CaseStudy, limits: Limits, progress: Callable[[Progress], None] | None = None
) -> tuple[TuneOutcome, Compilation]:
    """Measure the configs of one case and keep every trial."""
    kernel, situation = study.kernel, study.situation
    problem = kernel.resolver.problem(situation)
    made = problem.study(situation.specialization, study.bucket)
    compilation, records = Compilation(session(), kernel.source, trials=True), session().store.records
    artifacts = CompiledArtifacts(compilation, lambda config: kernel.resolver.variant(situation, config))
    with evaluators(
        made, artifacts, case_benches(study, limits.devices), study.case.compare, situation.candidates
    ) as lanes:
        outcome = tune(
            made,
            situation.searched,
            lanes,
            records,
            Search(limits.searcher, study_seeds(made, situation.searched, records, limits.lock), limits.budget),
            Scope(
                refiner=refiner_of(situation, lambda config: _grid(study, kernel.resolver.variant(situation, config))),
                most_spills=spill_limit_of(situation),
                deployed=deployed_config(limits.lock, made),
            ),
            Watch(progress),
        )
    settle(made, records)
    if remark := deterministic_remark(situation):
        outcome = replace(outcome, remarks=(remark, *outcome.remarks))
    return outcome, compilation
