"""Finds the stored studies of the kernels of a Python file, and the studies in a bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from silo.building.compilation import compiler_identity
from silo.bundle.documents import case_recipes, measured_trials
from silo.bundle.reader import Bundle, open_bundle
from silo.core.cases import CaseRecipe
from silo.core.config import Config
from silo.core.dispatch import bucket_of
from silo.core.recipes import ArrayRecipe, DescriptorRecipe, ScalarRecipe
from silo.core.specialization import Fact
from silo.core.values import Value, identity_of, same_values
from silo.errors import BundleError, CompilerMissingError, SourceError, TargetError, ToolchainError
from silo.kernels.collection import collect_kernels
from silo.kernels.kernel import Kernel
from silo.machine.device_plugins import device_named
from silo.machine.process_session import session
from silo.machine.user_files import PlaceKind, kind_of
from silo.tuner.ledger import KeptStudy, read_trials, studies_of
from silo.tuner.spilling import SpillingConfig, known_spills
from silo.tuner.trial import Study, Trial
from silo.tuning.case_tuning import make_of

__all__ = ["case_values", "kept_studies", "studies_of_kernels"]

_MOST_PAIRS = 1 << 19  # the most pairs of a case and a study that are compared, which takes seconds


def kept_studies(path: Path, device: str | None = None, kernels: Sequence[str] | None = None) -> list[KeptStudy]:
    """Returns every study with trials of a Python file's current kernels, or of a bundle's. Makes no arrays.

    For a file, these are the store's studies of the same source and, if a compiler for the target is installed, the
    same compiler; of any device, or only of ``device``.

    Raises:
        SourceError, BundleError: the file cannot be read, or lacks the kernel.
        DeviceError: the device does not exist.
    """
    model = None if device is None else device_named(device).model
    if kind_of(path) is not PlaceKind.BUNDLE:
        return studies_of_kernels(collect_kernels([path], kernels), device)
    with open_bundle(path) as bundle:
        unknown = [name for name in kernels or () if name not in bundle.kernel_names]
        if unknown:
            raise SourceError(f"{path}: no kernel called {unknown[0]}; there are {', '.join(bundle.kernel_names)}")
        studies = [kept_study for name in kernels or bundle.kernel_names for kept_study in _of_bundle(bundle, name)]
    return [kept_study for kept_study in studies if model is None or kept_study.study.device == model]


def studies_of_kernels(kernels: Sequence[Kernel], device: str | None = None) -> list[KeptStudy]:
    """Returns the studies in the store that :func:`kept_studies` finds for the kernels of a file."""
    model = None if device is None else device_named(device).model
    studies = [kept_study for kernel in kernels for kept_study in _of_kernel(kernel)]
    return [kept_study for kept_study in studies if model is None or kept_study.study.device == model]


def case_values(path: Path, kernels: Sequence[str] | None = None) -> dict[str, list[dict[str, Value]]]:
    """Returns the scalar arguments of each case of a Python file's kernels, or of a bundle's, by kernel.

    Makes no arrays.

    Raises:
        SourceError, BundleError: the file cannot be read, or lacks the kernel.
    """
    if kind_of(path) is not PlaceKind.BUNDLE:
        recipes = {kernel.name: _recipes(kernel) for kernel in collect_kernels([path], kernels)}
    else:
        with open_bundle(path) as bundle:
            recipes = {name: case_recipes(bundle, name) for name in kernels or bundle.kernel_names}
    return {name: [_scalars(recipe) for recipe in case_list] for name, case_list in recipes.items()}


def _scalars(recipe: CaseRecipe) -> dict[str, Value]:
    return {
        name: recipe_argument.value
        for name, recipe_argument in recipe.arguments
        if isinstance(recipe_argument, ScalarRecipe)
    }


def _of_kernel(kernel: Kernel) -> list[KeptStudy]:
    """Returns the studies of the kernel's cases in the cases' order, then the studies that no case belongs to."""
    records = session().store.records
    recipes = _recipes(kernel)
    numbered_studies: list[tuple[int, KeptStudy]] = []
    current = [
        study
        for study in studies_of(kernel.name, records)
        if study.source == kernel.source.fingerprint and _is_current(kernel, study)
    ]
    owned = _cases_of(current, recipes)
    for study in current:
        trials = read_trials(study, records)
        if trials:
            cases = owned[study.key]
            first = recipes[cases[0]] if cases else None
            kept_study = KeptStudy(
                study,
                trials,
                tuple(recipes[number].label for number in cases),
                _default(kernel, study, first),
                first.work if first else None,
                _set_aside(study, trials),
            )
            numbered_studies.append((cases[0] if cases else len(recipes), kept_study))
    return [kept_study for _, kept_study in sorted(numbered_studies, key=lambda pair: pair[0])]


def _set_aside(study: Study, trials: Sequence[Trial]) -> tuple[SpillingConfig, ...]:
    measured = {trial.config.order_key for trial in trials}
    spills = known_spills(study, session().store.records)
    return tuple(spilling for spilling in spills if spilling.config.order_key not in measured)


def _recipes(kernel: Kernel) -> list[CaseRecipe]:
    """Returns the kernel's cases as recipes, without making their arrays."""
    make = make_of(None)
    return [function.outline(values, make) for function in kernel.case_functions for values in function.combinations()]


def _is_current(kernel: Kernel, study: Study) -> bool:
    """Returns whether the study is of the installed compiler; True if no compiler for its target is installed."""
    try:
        return compiler_identity(kernel.source.kind, study.target) == study.compiler
    except (TargetError, ToolchainError, CompilerMissingError):
        return True


def _default(kernel: Kernel, study: Study, recipe: CaseRecipe | None) -> Config | None:
    """Returns the first config of the space that has the values which the case or the study's constants fix.

    If no config has them, returns the space's default config with these values. Returns None if a heuristic makes the
    space.
    """
    options = dict(recipe.config) if recipe else {}
    constants = study.specialization.constant_values
    if kernel.rule is not None or any(name not in constants for name in kernel.open_blocks):
        return None
    values = {**{name: value for name, value in constants.items() if name in kernel.config_names}, **options}
    fitting = (config for config in kernel.space.configs() if same_values(values, config.as_dict()))
    return next(fitting, Config.of({**kernel.space.default.as_dict(), **values}))


def _of_bundle(bundle: Bundle, name: str) -> Iterator[KeptStudy]:
    studies: dict[str, tuple[Study, list[Trial]]] = {}
    for study, trial in measured_trials(bundle, name):
        studies.setdefault(study.key, (study, []))[1].append(trial)
    recipes = case_recipes(bundle, name)
    if len(studies) * len(recipes) > _MOST_PAIRS:
        count = f"{len(recipes)} cases and {len(studies)} studies"
        raise BundleError(f"{bundle.name}: {count} of {name} are too many to find which belong together")
    owned = _cases_of([study for study, _ in studies.values()], recipes)
    for study, trials in studies.values():
        cases = [recipes[number] for number in owned[study.key]]
        work = cases[0].work if cases else None
        yield KeptStudy(study, tuple(trials), tuple(recipe.label for recipe in cases), work=work)


def _cases_of(studies: Sequence[Study], recipes: Sequence[CaseRecipe]) -> dict[str, list[int]]:
    """Returns the indices of the cases that belong to each study, by the study's key.

    If a case fits several studies of one device and target, it belongs to the most specialized of them.
    """
    owned: dict[str, list[int]] = {study.key: [] for study in studies}
    for number, recipe in enumerate(recipes):
        places: dict[tuple[object, ...], list[Study]] = {}
        for study in studies:
            if _is_case_of(recipe, study):
                places.setdefault((study.device, str(study.target)), []).append(study)
        for fitting in places.values():
            most_facts = max(len(study.specialization.facts) for study in fitting)
            for study in fitting:
                if len(study.specialization.facts) == most_facts:
                    owned[study.key].append(number)
    return owned


def _is_case_of(recipe: CaseRecipe, study: Study) -> bool:
    """Returns whether a case falls into a study's bucket, and has the study's array types and constants."""
    arguments = dict(recipe.arguments)
    scalars = _scalars(recipe)
    values = _values_of(study.bucket_names, scalars)
    if values is None or bucket_of(values) != study.bucket:
        return False
    values_by_name = {**scalars, **dict(recipe.config)}
    if any(
        name in values_by_name and identity_of(values_by_name[name]) != identity_of(value)
        for name, value in study.specialization.constants
    ):
        return False
    if not all(_holds(fact, scalars[name]) for name, fact in study.specialization.facts if name in scalars):
        return False
    for parameter in study.signature.parameters:
        argument = arguments.get(parameter.name)
        array = argument.array if isinstance(argument, DescriptorRecipe) else argument
        if isinstance(array, ArrayRecipe) and parameter.dtype is not None and array.dtype != parameter.dtype:
            return False
    shapes = {name: argument.shape for name, argument in arguments.items() if isinstance(argument, ArrayRecipe)}
    return all(name not in shapes or extents.may_have(shapes[name]) for name, extents in study.specialization.extents)


def _holds(fact: Fact, value: Value) -> bool:
    if isinstance(value, int) and fact in (Fact.DIVISIBLE_16, Fact.EQUAL_1):
        return value % 16 == 0 if fact is Fact.DIVISIBLE_16 else value == 1
    return fact is not Fact.NONE or value is None


def _values_of(names: Iterable[str], scalars: dict[str, Value]) -> list[Value] | None:
    try:
        return [scalars[name] for name in names]
    except KeyError:
        return None
