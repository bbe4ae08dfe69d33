"""The time that first calls have spent on a study, stored beside its trials, so that a later call can continue.

Each first call that tunes appends a record when it begins and another when it ends; a call that died left only the
first. Tuning without a call waiting (``silo tune``, ``silo build``) settles the study: its extent was decided then.
"""

from __future__ import annotations

from dataclasses import dataclass

from silo.core.json_reader import read_natural, read_object, read_text
from silo.core.protocols import CatchesUp, RecordStore
from silo.core.values import JSON
from silo.core.variant import effort_key
from silo.errors import StoreError
from silo.tuner.trial import Study

__all__ = ["BEGUN", "TimeSpent", "Unfinished", "note_effort", "read_effort", "settle"]

EFFORT_SCHEMA = "effort/1"
BEGUN, SETTLED = "begun", "settled"  # the rest are the reasons why sessions ended
_WHOLE = frozenset({SETTLED, "complete", "evaluations"})


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """Seconds that first calls have spent on a study, and the end of its latest tuning ("" if unknown)."""

    seconds: float = 0.0
    last: str = ""

    @property
    def is_cut_off(self) -> bool:
        """Whether a first call began to tune and did not finish."""
        return bool(self.last) and self.last not in _WHOLE


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A study that a first call left: configs ``tried``, configs in all, seconds spent and seconds allowed."""

    tried: int
    total: int
    spent_s: float
    allowed_s: float

    @property
    def goes_on(self) -> bool:
        """Whether a first call may spend more on it."""
        return self.tried < self.total and self.spent_s < self.allowed_s

    def __str__(self) -> str:
        text = f"{self.tried} of {self.total} configs measured"
        if self.tried < self.total:
            text += f", in {self.spent_s:.2g} of the {self.allowed_s:g} s that first calls may spend on it"
        return text


def read_effort(study: Study, records: RecordStore) -> TimeSpent:
    """The stored time of a study. Unreadable records are left out."""
    total_ms, last, whole = 0, "", ""
    try:
        kept = list(records.read(effort_key(study.key)))
    except (StoreError, OSError):
        return TimeSpent()  # the trials are not readable either, and that is reported
    what = "a record of tuning effort"
    for record in kept:
        try:
            members = read_object(record, ("schema", "milliseconds", "ended"), what)
            if read_text(members["schema"], what) != EFFORT_SCHEMA:
                continue
            total_ms += read_natural(members["milliseconds"], what)
            last = read_text(members["ended"], what)
            whole = last if last in _WHOLE else whole
        except (ValueError, KeyError, TypeError):
            continue  # written by a newer Silo
    if isinstance(records, CatchesUp):  # records of other machines arrive in any order
        last = whole or last
    return TimeSpent(total_ms / 1000, last)


def note_effort(study: Study, records: RecordStore, ended: str, seconds: float = 0.0) -> str:
    """Stores that a first call's tuning began or ended; returns "", or why not: a later call may begin anew."""
    document: JSON = {"schema": EFFORT_SCHEMA, "milliseconds": max(round(seconds * 1000), 0), "ended": ended}
    try:
        records.append(effort_key(study.key), document)
    except (StoreError, OSError) as error:
        return f"what was spent on tuning is not kept: {error}"
    return ""


def settle(study: Study, records: RecordStore) -> None:
    """Records that the study was tuned on purpose, so that first calls leave it alone from now on."""
    if read_effort(study, records).is_cut_off:
        note_effort(study, records, SETTLED)
