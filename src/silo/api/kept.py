"""Finding studies again: those of a Python file's kernels in the store, those that a bundle carries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from silo.api.collect import collect_kernels
from silo.api.devices import device_named
from silo.api.kernel import Kernel
from silo.api.session import session
from silo.api.studying import case_studies
from silo.bundle.reader import Bundle, open_bundle
from silo.core.cases import CaseRecipe
from silo.core.dispatch import bucket_of
from silo.core.protocols import Device
from silo.core.recipes import ArrayRecipe, DescriptorRecipe, ScalarRecipe
from silo.core.values import Value
from silo.errors import BundleError, SourceError
from silo.tune.kept import KeptStudy, pair_from_document
from silo.tune.ledger import read_trials
from silo.tune.trial import Study, Trial

__all__ = ["bundle_trials", "kept_studies"]


def kept_studies(path: Path, device: str, kernels: Sequence[str] | None = None) -> list[KeptStudy]:
    """Every study with trials of a Python file's kernels on ``device``, or of a bundle's on any.

    Raises:
        SourceError, BundleError: the file cannot be read, or has no such kernel.
    """
    if path.suffix == ".py":
        found = device_named(device)
        return [kept for kernel in collect_kernels([path], kernels) for kept in _of_kernel(kernel, found)]
    with open_bundle(path) as bundle:
        unknown = [name for name in kernels or () if name not in bundle.kernel_names]
        if unknown:
            raise SourceError(f"{path}: no kernel called {unknown[0]}; there are {', '.join(bundle.kernel_names)}")
        return [kept for name in kernels or bundle.kernel_names for kept in _of_bundle(bundle, name)]


def _of_kernel(kernel: Kernel, device: Device) -> Iterator[KeptStudy]:
    """Those of its cases, in their order, then those of buckets that only calls have met."""
    records = session().store.records
    known: dict[str, KeptStudy] = {}
    others: dict[str, Study] = {}
    for each in case_studies(kernel, device):
        problem = kernel.resolver.problem(each.situation)
        study = problem.study(each.situation.specialization, each.bucket)
        before = known.get(study.key)
        if before is not None:
            known[study.key] = KeptStudy(
                study, before.trials, (*before.cases, each.case.label), before.default, before.work
            )
            continue
        trials = read_trials(study, records)
        known[study.key] = KeptStudy(study, trials, (each.case.label,), each.situation.candidates[0], each.case.work)
        others.update({other.key: other for other in problem.known()})
    for key, study in others.items():
        if key not in known:
            known[key] = KeptStudy(study, read_trials(study, records))
    return (kept for kept in known.values() if kept.trials)


def bundle_trials(bundle: Bundle, kernel: str) -> Iterator[tuple[Study, Trial]]:
    """The trials a bundle carries of one kernel, each with its study. ``BundleError`` for a document that is none."""
    for document in bundle.trials(kernel):
        try:
            pair = pair_from_document(document)
        except (ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{bundle.name}: a trial of {kernel} cannot be read: {error}") from error
        yield pair


def _of_bundle(bundle: Bundle, name: str) -> Iterator[KeptStudy]:
    studies: dict[str, tuple[Study, list[Trial]]] = {}
    for study, trial in bundle_trials(bundle, name):
        studies.setdefault(study.key, (study, []))[1].append(trial)
    recipes = [CaseRecipe.from_json(document) for document in bundle.cases(name)]
    for study, trials in studies.values():
        cases = [recipe for recipe in recipes if _is_case_of(recipe, study)]
        labels = tuple(recipe.label for recipe in cases)
        work = cases[0].work if cases else None
        yield KeptStudy(study, tuple(trials), labels, work=work)


def _is_case_of(recipe: CaseRecipe, study: Study) -> bool:
    """Whether a case falls into a study's bucket, with arrays and constants of its types."""
    arguments = dict(recipe.arguments)
    scalars = {name: one.value for name, one in recipe.arguments if isinstance(one, ScalarRecipe)}
    values = _values_of(study.bucket_names, scalars)
    if values is None or bucket_of(values) != study.bucket:
        return False
    said = {**scalars, **dict(recipe.config)}
    if any(name in said and said[name] != value for name, value in study.specialization.constants):
        return False
    for parameter in study.signature.parameters:
        one = arguments.get(parameter.name)
        array = one.array if isinstance(one, DescriptorRecipe) else one
        if isinstance(array, ArrayRecipe) and parameter.dtype is not None and array.dtype != parameter.dtype:
            return False
    return True


def _values_of(names: Iterable[str], scalars: dict[str, Value]) -> list[Value] | None:
    try:
        return [scalars[name] for name in names]
    except KeyError:
        return None
