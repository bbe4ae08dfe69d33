"""Studies read back from a store or a bundle, with their trials and cases, for reports."""

from __future__ import annotations

from dataclasses import dataclass

from silo.core.case_work import Work
from silo.core.config import Config
from silo.core.values import JSON
from silo.tuner.spill_filter import SpillingConfig
from silo.tuner.trial import Study, Trial

__all__ = ["KeptStudy", "pair_to_document"]


@dataclass(frozen=True)
class KeptStudy:
    """One study and its trials in the order they were kept.

    ``cases`` are the labels of the cases it was measured on (none: it was met in a call). ``default`` is the config
    that a call gets where nothing is measured, None where nobody can say any more. ``work`` is what the first case
    declares. ``aside`` are configs that are known to spill and have no trial.
    """

    study: Study
    trials: tuple[Trial, ...]
    cases: tuple[str, ...] = ()
    default: Config | None = None
    work: Work | None = None
    aside: tuple[SpillingConfig, ...] = ()


def pair_to_document(study: Study, trial: Trial) -> JSON:
    """A trial as a bundle keeps it: with the study it belongs to."""
    return {"study": study.to_json(), "trial": trial.to_json()}
