"""Doubts: the reasons why noise may have decided the winner; and the records that end the counting of trials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from silo.core.json_reader import read_list, read_object, read_text
from silo.core.values import JSON, digest
from silo.tuner.statistics import Scales
from silo.tuner.trial import Stage, Status, Trial, distinct_trials
from silo.tuner.winner import Winner, choose_winner, undecided

__all__ = ["REMEDY", "doubt", "event_of", "is_superseding", "superseded_by", "superseding_record"]

# ---- Doubts: the reasons why noise may have decided the winner, read from its trials ----

REMEDY = "silo tune --remeasure measures anew"

_NOTABLE_PERMILLE = 20  # a drift of the reference below this is not mentioned


def doubt(trials: Sequence[Trial]) -> str:
    """The reason why noise may have decided the winner of ``trials``; "" without a reason, a winner or a rival. Pure.

    In order of weight: nothing was measured beside a reference, so slow phases of the machine do not show; the
    comparison in pairs did not settle which config is the fastest; no pairs were taken, and the reference drifted at
    least as much as the next config is behind; some configs have no reference.
    """
    winner = choose_winner(trials)
    if winner is None or not winner.runners_up:
        return ""
    works = [trial for trial in distinct_trials(trials) if trial.status is Status.OK]
    searched = [trial for trial in works if trial.stage is Stage.SEARCH]
    finals = [trial for trial in works if trial.stage is Stage.FINAL]
    alone = {trial.config.order_key for trial in searched} - {
        trial.config.order_key for trial in searched if trial.reference is not None
    }
    paired = any(trial.comparison for trial in finals)
    if alone and not any(trial.reference for trial in searched):
        return f"nothing was measured beside a reference config, so a slow phase of the machine does not show; {REMEDY}"
    if paired and (near := undecided(finals)):
        rivals = [str(config) for config in near if config.order_key != winner.config.order_key]
        return f"its comparison with {rivals[0]} did not settle which is faster, by noise; {REMEDY}"
    if not paired and (reason := _within_drift(winner, searched)):
        return reason
    if alone:
        configs = "1 config was" if len(alone) == 1 else f"{len(alone)} configs were"
        return f"{configs} measured without a reference, so a slow phase of the machine does not show; {REMEDY}"
    return ""


def _within_drift(winner: Winner, searched: Sequence[Trial]) -> str:
    scales = Scales(searched)
    drift = max(scales.drift_permille(trial) for trial in searched)
    second = winner.runners_up[0]
    margin = (second.time.median_ns - winner.median_ns) * 1000 // max(winner.median_ns, 1)
    if drift < max(margin, _NOTABLE_PERMILLE):
        return ""
    behind, drifted = (f"{one // 10}.{one % 10} %" for one in (max(margin, 0), drift))
    return (
        f"{second.config} is {behind} behind and was not compared with it in pairs, and the reference drifted by "
        f"{drifted} meanwhile; {REMEDY}"
    )


# ---- Superseding records: events that end the counting of trials, kept among the trials of a study ----

SUPERSEDED_SCHEMA = "superseded/1"

_FINGERPRINT = re.compile("[0-9a-f]{32}")


def superseding_record(fingerprints: Iterable[str]) -> JSON:
    """The event that supersedes the trials with these fingerprints (:attr:`silo.tuner.trial.Trial.fingerprint`)."""
    return {"schema": SUPERSEDED_SCHEMA, "trials": sorted(fingerprints)}


def is_superseding(record: JSON) -> bool:
    """Whether a record is a superseding event, well formed or not."""
    return isinstance(record, dict) and record.get("schema") == SUPERSEDED_SCHEMA


def superseded_by(record: JSON) -> tuple[str, ...]:
    """The fingerprints that an event names. Raises ValueError for any other record."""
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
