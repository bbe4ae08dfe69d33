"""The trials of one study in a store, for a session; and the catalog of all studies of each kernel in that store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.core.protocols import CatchesUp, ListedRecords, RecordStore
from silo.core.recipes import Work
from silo.core.values import JSON, canonical_json
from silo.core.variant import effort_key, seeds_key, spills_key, studies_key
from silo.errors import StoreError
from silo.tuner.failures import fault_told
from silo.tuner.spilling import SpillingConfig
from silo.tuner.trial import (
    Made,
    Stage,
    Status,
    Study,
    Trial,
    made_of_record,
    trials_from_record,
    trials_to_record,
)
from silo.tuner.winner import event_of, is_superseding, superseded_by, superseding_record
from silo.version import __version__

__all__ = [
    "KeptStudy",
    "Ledger",
    "catch_up",
    "dated_trials",
    "every_study",
    "note_studies",
    "note_study",
    "origin_now",
    "pair_to_document",
    "read_trials",
    "studies_of",
]

# ---- The catalog: for each kernel, a list of its studies in the store, to find results of other sizes and devices ----

CATALOG_SCHEMA = "study/1"


def catch_up(study: Study, records: RecordStore, *, follow: bool = False) -> bool:
    """Fetches other machines' records of a study and of its kernel; returns whether any were new.

    Does nothing if the store is local to this machine. ``follow``: later trials of other machines are fetched too, as
    they are made.
    """
    if not isinstance(records, CatchesUp):
        return False
    own = (study.key, spills_key(study.key), effort_key(study.key))
    return records.catch_up((*own, studies_key(study.kernel), seeds_key(study.kernel)), follow=follow)


def note_study(study: Study, records: RecordStore) -> None:
    """Adds the study to its kernel's catalog, unless the catalog holds it."""
    note_studies(study.kernel, [study], records)


def note_studies(kernel: str, studies: Iterable[Study], records: RecordStore) -> None:
    """Adds the studies of one kernel that are missing in its catalog; reads the catalog once."""
    key = studies_key(kernel)
    try:
        known_lines = {canonical_json(record) for record in records.read(key)}
    except (StoreError, OSError):
        known_lines = set[bytes]()  # writing a study again is harmless: readers count it once
    for study in studies:
        record = _record(study)
        if canonical_json(record) not in known_lines:
            records.append(key, record)


def studies_of(kernel: str, records: RecordStore) -> tuple[Study, ...]:
    """Returns the studies of all kernels with this name, in the order in which they were begun.

    Unreadable records are left out.
    """
    studies_by_key: dict[str, Study] = {}
    for record in records.read(studies_key(kernel)):
        if (study := _study_of(record)) is not None:
            studies_by_key.setdefault(study.key, study)
    return tuple(studies_by_key.values())


def every_study(records: ListedRecords) -> tuple[Study, ...]:
    """Returns every study of every kernel, sorted by kernel. Unreadable records are left out."""
    studies_by_key: dict[str, Study] = {}
    for key in records.keys():  # noqa: SIM118  # the store of records is not a mapping
        lists = iter(records.read(key))
        first = next(lists, None)
        if not isinstance(first, dict) or first.get("schema") != CATALOG_SCHEMA:
            continue
        for record in (first, *lists):
            if (study := _study_of(record)) is not None:
                studies_by_key.setdefault(study.key, study)
    return tuple(sorted(studies_by_key.values(), key=lambda study: study.kernel))


def _study_of(record: JSON) -> Study | None:
    if not isinstance(record, dict) or set(record) != {"schema", "study"} or record["schema"] != CATALOG_SCHEMA:
        return None
    try:
        return Study.from_json(record["study"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # a newer version of Silo may have written a record of another form


def _record(study: Study) -> JSON:
    return {"schema": CATALOG_SCHEMA, "study": study.to_json()}


# ---- Studies read back from a store or a bundle, with their trials and cases, for reports ----


@dataclass(frozen=True)
class KeptStudy:
    """One study and its trials, in the order in which they were stored.

    ``cases`` are the labels of the cases that it was measured on; empty if it was measured only during calls.
    ``default`` is the config of a call before anything is measured, None if unknown. ``work`` is the work that the
    first case declares. ``aside`` are configs that are known to spill and have not been measured.
    """

    study: Study
    trials: tuple[Trial, ...]
    cases: tuple[str, ...] = ()
    default: Config | None = None
    work: Work | None = None
    aside: tuple[SpillingConfig, ...] = ()


def pair_to_document(study: Study, trial: Trial) -> JSON:
    """Returns a trial and its study as the JSON document that bundles store."""
    return {"study": study.to_json(), "trial": trial.to_json()}


# Reading the trials of other processes may take at most 1/_REFRESH_SHARE of a session's time, however many they are.
_REFRESH_SHARE = 20


class Ledger:
    """Reads and stores the trials of ``study``.

    If the store fails, the failure is added to ``notes`` and tuning goes on.
    """

    def __init__(self, study: Study, records: RecordStore) -> None:
        self._study = study
        self._records = records
        self._trials: dict[bytes, Trial] = {}
        self._by_config: dict[bytes, list[Trial]] = {}
        self._comparisons: list[tuple[Trial, ...]] = []
        # the fingerprint of each superseded trial, and the name of the event that superseded it
        self._superseded: dict[str, str] = {}
        self._read = 0
        self._due_ns = 0
        self._noted = False
        self._notes: dict[str, None] = {}
        self.refresh()

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All distinct trials that are not superseded, in the order in which this object read or stored them."""
        return tuple(trial for trial in self._trials.values() if self._counts(trial))

    @property
    def superseded(self) -> int:
        """The number of superseded trials."""
        return len(self._superseded)

    def _counts(self, trial: Trial) -> bool:
        return not self._superseded or trial.fingerprint not in self._superseded

    def comparison_with(self, config: Config) -> tuple[Trial, ...]:
        """The trials of the latest side-by-side comparison that included ``config``; empty if none did."""
        key = config.order_key
        for comparison in reversed(self._comparisons):
            if any(trial.config.order_key == key for trial in comparison):
                return tuple(trial for trial in comparison if self._counts(trial))
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The failures of the store, each once."""
        return tuple(self._notes)

    def of(
        self, config: Config, stage: Stage = Stage.SEARCH, *, besides: frozenset[Status] = frozenset()
    ) -> list[Trial]:
        """Returns the trials of one config and stage, except those whose status is in ``besides``."""
        trials = self._by_config.get(config.order_key, ())
        chosen = (trial for trial in trials if trial.stage is stage and trial.status not in besides)
        return [trial for trial in chosen if self._counts(trial)]

    def refresh(self) -> None:
        """Reads the trials that other processes stored since the last call. Does nothing if that was a moment ago."""
        begin = time.monotonic_ns()
        if begin < self._due_ns:
            return
        try:
            records = list(self._records.read(self._study.key))
        except (StoreError, OSError) as error:
            self._notes[f"kept trials cannot be read, so everything is measured again: {error}"] = None
            return
        now = time.monotonic_ns()
        self._due_ns = now + _REFRESH_SHARE * (now - begin)
        if len(records) < self._read:  # the store was emptied or replaced since the last reading
            self._read = 0
        fresh, self._read = records[self._read :], len(records)
        for record in fresh:
            try:
                if is_superseding(record):
                    self._superseded |= dict.fromkeys(superseded_by(record), event_of(record))
                    continue
                trials = trials_from_record(record)
            except (ValueError, KeyError, TypeError) as error:
                self._notes[f"a kept record was skipped: {error}"] = None
                continue
            self._take(trials)

    def keep(self, trials: Sequence[Trial]) -> None:
        """Appends finished trials as one record, so that either all of them are stored or none.

        A trial that equals a superseded one gets the name of the superseding event, which makes it a new trial that
        counts.
        """
        for trial in trials:
            if reason := self._study.refuses(trial):
                raise ValueError(f"a trial that does not belong to {self._study}: {reason}")
        if self._superseded:
            trials = [self._with_superseding_event(trial) for trial in trials]
        self._append(trials_to_record(trials, origin_now()), "trials are not kept, tuning goes on without")
        self._take(trials)

    def take_over(self, trials: Sequence[Trial]) -> int:
        """Appends trials of an earlier study as one record, without known and superseded ones; returns their number."""
        names = self._superseded
        new = [trial for trial in trials if trial.identity not in self._trials and trial.fingerprint not in names]
        if new:
            self.keep(new)
        return len(new)

    def _with_superseding_event(self, trial: Trial) -> Trial:
        while event := self._superseded.get(trial.fingerprint):
            trial = replace(trial, after=event)
        return trial

    def supersede(self) -> int:
        """Appends the event that supersedes all trials known now, unless there are none; returns their number."""
        names = [trial.fingerprint for trial in self.trials]
        if names:
            record = superseding_record(names)
            self._append(record, "that old trials count no more is not kept")
            self._superseded |= dict.fromkeys(names, event_of(record))
        return len(names)

    def _append(self, record: JSON, failure: str) -> None:
        try:
            if not self._noted:
                # the catalog names the study before it has trials, because readers find trials only through the catalog
                note_study(self._study, self._records)
                self._noted = True
            self._records.append(self._study.key, record)
        except (StoreError, OSError) as error:
            self._notes[f"{failure}: {error}"] = None

    def _take(self, record: Sequence[Trial]) -> None:
        """Adds the trials of one record to those in memory."""
        new: list[Trial] = []
        for trial in record:
            if reason := self._study.refuses(trial):
                self._notes[f"a kept trial was left out: {reason}"] = None
            elif trial.status is not Status.OK and fault_told(trial.message):
                # stored by an early version of Silo, which recorded faults of the machine as failures of configs
                continue
            elif (identity := trial.identity) not in self._trials:
                self._trials[identity] = trial
                self._by_config.setdefault(trial.config.order_key, []).append(trial)
                new.append(trial)
        if any(trial.stage is Stage.FINAL for trial in new):
            self._comparisons.append(tuple(trial for trial in record if trial.stage is Stage.FINAL))


def origin_now() -> Made:
    """Returns the origin for a record that this process stores now: host, time and version."""
    return Made(os.uname().nodename, int(time.time()), __version__)


def dated_trials(study: Study, records: RecordStore) -> tuple[tuple[Trial, Made | None], ...]:
    """Returns the trials of :func:`read_trials`, each with the origin of the record that stored it first."""
    origins: dict[bytes, Made | None] = {}
    for record in records.read(study.key):
        try:
            origin = made_of_record(record)
            for trial in trials_from_record(record):
                origins.setdefault(trial.identity, origin)
        except (ValueError, KeyError, TypeError):
            continue  # ``read_trials`` below skips such a record too
    return tuple((trial, origins.get(trial.identity)) for trial in read_trials(study, records))


def read_trials(study: Study, records: RecordStore) -> tuple[Trial, ...]:
    """Returns every readable trial of ``study`` in the store that is not superseded."""
    return Ledger(study, records).trials
