"""The documents of a bundle as values: the cases of a kernel, and its trials with the studies they belong to."""

from __future__ import annotations

from collections.abc import Iterator

from silo.bundle.format import CASES_KIND, TRIALS_KIND
from silo.bundle.reader import Bundle
from silo.core.recipes import CaseRecipe
from silo.core.values import JSON, canonical_json
from silo.tune.kept import pair_from_document, pair_to_document
from silo.tune.trial import Study, Trial

__all__ = ["case_recipes", "measured_trials"]


def case_recipes(bundle: Bundle, kernel: str) -> list[CaseRecipe]:
    """The recipes of a kernel's cases. ``BundleFormatError`` for a document that is none."""
    found: list[CaseRecipe] = []
    for field, document in bundle.documents(kernel, CASES_KIND):
        check = bundle.checker(kernel, CASES_KIND)
        found.append(check.decoded(document, field, CaseRecipe.from_json, CaseRecipe.to_json))
    return found


def measured_trials(bundle: Bundle, kernel: str) -> Iterator[tuple[Study, Trial]]:
    """The trials of one kernel, each with its study. ``BundleFormatError`` for a document that is none.

    Trials of one study share it: each document repeats it.
    """
    studies: dict[bytes, Study] = {}
    for field, document in bundle.documents(kernel, TRIALS_KIND):
        check = bundle.checker(kernel, TRIALS_KIND)
        study, trial = check.decoded(document, field, pair_from_document, _to_document)
        yield studies.setdefault(canonical_json(study.to_json()), study), trial


def _to_document(pair: tuple[Study, Trial]) -> JSON:
    return pair_to_document(*pair)
