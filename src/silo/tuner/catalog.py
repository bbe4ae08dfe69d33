"""The catalog: a list of the studies of each kernel in a store, and a study as it is read back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.protocols import CatchesUp, ListedRecords, RecordStore
from silo.core.recipes import Work
from silo.core.values import JSON, canonical_json
from silo.core.variant import effort_key, seeds_key, spills_key, studies_key
from silo.errors import StoreError
from silo.tuner.spilling import SpillingConfig
from silo.tuner.trial import Study, Trial

__all__ = ["KeptStudy", "catch_up", "every_study", "note_studies", "note_study", "pair_to_document", "studies_of"]

# ---- The catalog: a list of the studies of each kernel in a store, for finding results of other sizes and devices ----

CATALOG_SCHEMA = "study/1"


def catch_up(study: Study, records: RecordStore, *, follow: bool = False) -> bool:
    """Fetches other machines' records of a study and of its kernel; whether any were new.

    Does nothing if the store is this machine's alone. ``follow``: later trials of other machines are fetched as they
    are made.
    """
    if not isinstance(records, CatchesUp):
        return False
    own = (study.key, spills_key(study.key), effort_key(study.key))
    return records.catch_up((*own, studies_key(study.kernel), seeds_key(study.kernel)), follow=follow)


def note_study(study: Study, records: RecordStore) -> None:
    """Writes the study into the catalog unless it is there."""
    note_studies(study.kernel, [study], records)


def note_studies(kernel: str, studies: Iterable[Study], records: RecordStore) -> None:
    """Writes studies of one kernel into the catalog unless they are there; reads it once."""
    key = studies_key(kernel)
    try:
        known = {canonical_json(record) for record in records.read(key)}
    except (StoreError, OSError):
        known = set[bytes]()  # a study that is written twice counts once
    for study in studies:
        record = _record(study)
        if canonical_json(record) not in known:
            records.append(key, record)


def studies_of(kernel: str, records: RecordStore) -> tuple[Study, ...]:
    """Every study of a kernel of this name, in the order in which they were begun. Unreadable records are left out."""
    found: dict[str, Study] = {}
    for record in records.read(studies_key(kernel)):
        if (study := _study_of(record)) is not None:
            found.setdefault(study.key, study)
    return tuple(found.values())


def every_study(records: ListedRecords) -> tuple[Study, ...]:
    """Every study of every kernel, sorted by kernel. Unreadable records are left out."""
    found: dict[str, Study] = {}
    for key in records.keys():  # noqa: SIM118  # it is no mapping
        lists = iter(records.read(key))
        first = next(lists, None)
        if not isinstance(first, dict) or first.get("schema") != CATALOG_SCHEMA:
            continue
        for record in (first, *lists):
            if (study := _study_of(record)) is not None:
                found.setdefault(study.key, study)
    return tuple(sorted(found.values(), key=lambda study: study.kernel))


def _study_of(record: JSON) -> Study | None:
    if not isinstance(record, dict) or set(record) != {"schema", "study"} or record["schema"] != CATALOG_SCHEMA:
        return None
    try:
        return Study.from_json(record["study"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # written by a newer Silo


def _record(study: Study) -> JSON:
    return {"schema": CATALOG_SCHEMA, "study": study.to_json()}


# ---- Studies read back from a store or a bundle, with their trials and cases, for reports ----


@dataclass(frozen=True)
class KeptStudy:
    """One study and its trials, in the order in which they were stored.

    ``cases`` are the labels of the cases that it was measured on; empty if only calls met it. ``default`` is the config
    of a call without measurements, None if unknown. ``work`` is the work that the first case declares. ``aside`` are
    configs that are known to spill and have not been measured.
    """

    study: Study
    trials: tuple[Trial, ...]
    cases: tuple[str, ...] = ()
    default: Config | None = None
    work: Work | None = None
    aside: tuple[SpillingConfig, ...] = ()


def pair_to_document(study: Study, trial: Trial) -> JSON:
    """A trial as a bundle stores it: with the study that it belongs to."""
    return {"study": study.to_json(), "trial": trial.to_json()}
