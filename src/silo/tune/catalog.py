"""The catalog: which studies of a kernel a store holds, so that those of other sizes, devices and compilers are found.

One list of records a kernel name. A study is written there before its first trial, so every kept trial is found; one
that two processes begin at once is there twice, and counts once.
"""

from __future__ import annotations

from silo.core.keys import studies_key
from silo.core.protocols import RecordStore
from silo.core.values import JSON
from silo.errors import StoreError
from silo.tune.trial import Study

__all__ = ["note_study", "studies_of"]

CATALOG_SCHEMA = "study/1"


def note_study(study: Study, records: RecordStore) -> None:
    """Write the study into the catalog unless it is there."""
    key, record = studies_key(study.kernel), _record(study)
    try:
        known = any(other == record for other in records.read(key))
    except (StoreError, OSError):
        known = False  # a study that is written twice counts once
    if not known:
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
