"""The documents of a bundle as values: the cases of a kernel, and its trials with the studies that they belong to."""

from __future__ import annotations

from collections.abc import Iterator

from silo.bundle.format import CASES_KIND, MAX_CASES, MAX_STUDIES, TRIALS_KIND
from silo.bundle.reader import Bundle
from silo.core.recipes import CaseRecipe
from silo.core.values import canonical_json
from silo.tuner.trial import Study, Trial

__all__ = ["case_recipes", "measured_trials"]

_PAIR = frozenset({"study", "trial"})


def case_recipes(bundle: Bundle, kernel: str) -> list[CaseRecipe]:
    """Returns the recipes of a kernel's cases. Raises ``BundleFormatError`` if a document is not such a recipe."""
    recipes: list[CaseRecipe] = []
    check = bundle.checker(kernel, CASES_KIND)
    for field, document in bundle.documents(kernel, CASES_KIND):
        if len(recipes) == MAX_CASES:
            raise check.error(field, f"more than {MAX_CASES} cases")
        recipes.append(check.decoded(document, field, CaseRecipe.from_json, CaseRecipe.to_json))
    return recipes


def measured_trials(bundle: Bundle, kernel: str) -> Iterator[tuple[Study, Trial]]:
    """Yields the trials of one kernel, each with its study.

    Each document repeats its study, but equal studies are returned as one object. Raises ``BundleFormatError`` if a
    document is not a trial with its study.
    """
    studies: dict[bytes, Study] = {}
    check = bundle.checker(kernel, TRIALS_KIND)
    for field, document in bundle.documents(kernel, TRIALS_KIND):
        members = check.members(document, field, _PAIR)
        text = canonical_json(members["study"])
        study = studies.get(text)
        if study is None:
            study = studies[text] = check.decoded(members["study"], f"{field}.study", Study.from_json, Study.to_json)
            if len(studies) > MAX_STUDIES:
                raise check.error(field, f"trials of more than {MAX_STUDIES} studies")
        trial = check.decoded(members["trial"], f"{field}.trial", Trial.from_json, Trial.to_json)
        if reason := study.refuses(trial):
            raise check.error(field, f"the trial is none of its study: {reason}")
        yield study, trial
