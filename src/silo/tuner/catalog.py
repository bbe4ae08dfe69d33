"""The catalog: a list of the studies of each kernel in a store, for finding results of other sizes and devices.

One list of records a kernel name. A study is written there before its first trial, so every kept trial is found; one
that two processes begin at once is there twice, and counts once.
"""

from __future__ import annotations

from collections.abc import Iterable

from silo.core.keys import effort_key, seeds_key, spills_key, studies_key
from silo.core.protocols import CatchesUp, RecordStore
from silo.core.values import JSON, canonical_json
from silo.errors import StoreError
from silo.tuner.trial import Study

__all__ = ["catch_up", "note_studies", "note_study", "studies_of"]

CATALOG_SCHEMA = "study/1"


def catch_up(study: Study, records: RecordStore, *, follow: bool = False) -> bool:
    """Take in what other machines know of a study and of its kernel; whether anything was new.

    Nothing happens where the store is this machine's alone. ``follow``: trials of others are taken in as they are made.
    """
    if not isinstance(records, CatchesUp):
        return False
    own = (study.key, spills_key(study.key), effort_key(study.key))
    return records.catch_up((*own, studies_key(study.kernel), seeds_key(study.kernel)), follow=follow)


def note_study(study: Study, records: RecordStore) -> None:
    """Write the study into the catalog unless it is there."""
    note_studies(study.kernel, [study], records)


def note_studies(kernel: str, studies: Iterable[Study], records: RecordStore) -> None:
    """Write studies of one kernel into the catalog unless they are there; it is read once."""
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
    """Every study of a kernel of this name, in the order they were begun. Records nobody can read are left out."""
    found: dict[str, Study] = {}
    for record in records.read(studies_key(kernel)):
        if isinstance(record, dict) and set(record) == {"schema", "study"} and record["schema"] == CATALOG_SCHEMA:
            try:
                study = Study.from_json(record["study"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # of a newer Silo
            found.setdefault(study.key, study)
    return tuple(found.values())


def _record(study: Study) -> JSON:
    return {"schema": CATALOG_SCHEMA, "study": study.to_json()}
