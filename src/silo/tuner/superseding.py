"""Superseding records: events that end the counting of trials, kept among the trials of a study.

Trials are never changed or removed. A record names trials by their fingerprints, so it says the same in every store
that it is copied to, in whatever order the records arrive there; trials that it does not name count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from silo.core.json_reader import read_list, read_object, read_text
from silo.core.values import JSON, digest

__all__ = ["event_of", "is_superseding", "superseded_by", "superseding_record"]

SUPERSEDED_SCHEMA = "superseded/1"

_FINGERPRINT = re.compile("[0-9a-f]{32}")


def superseding_record(fingerprints: Iterable[str]) -> JSON:
    """The event that supersedes the trials with these fingerprints (:attr:`silo.tuner.trial.Trial.fingerprint`)."""
    return {"schema": SUPERSEDED_SCHEMA, "trials": sorted(fingerprints)}


def is_superseding(record: JSON) -> bool:
    """Whether a record is such an event, well formed or not."""
    return isinstance(record, dict) and record.get("schema") == SUPERSEDED_SCHEMA


def superseded_by(record: JSON) -> tuple[str, ...]:
    """The fingerprints that an event names; ``ValueError`` on anything else."""
    what = "a superseding record"
    members = read_object(record, ("schema", "trials"), what)
    names = tuple(read_text(name, what) for name in read_list(members["trials"], what))
    for name in names:
        if not _FINGERPRINT.fullmatch(name):
            raise ValueError(f"{what} names no trial by {name[:80]!r}")
    return names


def event_of(record: JSON) -> str:
    """The name of an event: 16 hexadecimal digits, equal for equal records."""
    return digest("superseded/1", record)[:16]
