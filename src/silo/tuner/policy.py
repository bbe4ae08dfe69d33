"""The decision at the first call of a key: use a known config or tune; and the time that first calls have spent.

A first call that tunes appends a record when it begins and another when it ends, so a call that was killed has left
only the first. Tuning while no call waits (``silo tune``, ``silo build``) settles the study: first calls do not tune it
any further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Origin, default_origin
from silo.core.json_reader import read_natural, read_object, read_text
from silo.core.protocols import CatchesUp, RecordStore
from silo.core.values import JSON
from silo.core.variant import effort_key
from silo.errors import StoreError
from silo.tuner.session_values import ENOUGH
from silo.tuner.trial import Study

__all__ = [
    "BEGUN",
    "Action",
    "Origin",
    "PolicyDecision",
    "TimeSpent",
    "TuneMode",
    "Unfinished",
    "decide",
    "note_effort",
    "read_effort",
    "settle",
]


class TuneMode(Enum):
    """The ``tune`` setting."""

    AUTO = "auto"  # tune within a small budget if this device has no measurement yet
    BACKGROUND = "background"  # use the best known config at once, and tune in the background
    CACHED = "cached"  # never measure: use the best known config
    FROZEN = "frozen"  # never measure or guess: use the lock or measurements, or raise
    LEADER = "leader"  # one process measures and writes the lock file, the others wait for it (silo.calls.leader)
    OFF = "off"  # never measure: use the first config

    @property
    def measures(self) -> bool:
        """Whether every process measures for its own calls."""
        return self in (TuneMode.AUTO, TuneMode.BACKGROUND)


class Action(Enum):
    """The action of a call: it uses a known config, tunes first, or is refused."""

    USE = "use"
    TUNE = "tune"
    BESIDE = "tune beside the program"  # this call uses the best known config, later calls the winner
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """The action of a call, the config that it uses, the source of this config, and the reason.

    For ``TUNE`` and ``BESIDE``, the config is used until a winner is found. ``REFUSE`` means that the call may use no
    config; ``config`` is then the space's first.
    """

    action: Action
    config: Config
    origin: Origin
    reason: str


def decide(
    mode: TuneMode,
    configs: Sequence[Config],
    *,
    locked: Config | None = None,
    lock_rule: Config | None = None,
    bucket: Config | None = None,
    earlier: Config | None = None,
    rule: Config | None = None,
    elsewhere: Config | None = None,
    heuristic: Config | None = None,
    can_measure: Decision = Accepted(),  # noqa: B008  # a shared default is safe, because Accepted is frozen
    only: str = "there is one config",
    unfinished: str = "",
) -> PolicyDecision:
    """Decides the action of the first call of a key, and the config that it uses. A pure function.

    ``locked`` and ``bucket`` are decisions for this key. Without them, the call uses the first of ``lock_rule``,
    ``earlier``, ``rule``, ``elsewhere`` and ``heuristic`` that is not None. If the mode measures, the config found then
    serves only until there is a winner. ``FROZEN`` uses ``lock_rule`` or ``rule``, and otherwise refuses the call.
    ``OFF`` always uses the space's first config.

    Args:
        mode: The ``tune`` setting.
        configs: The space for this call, not empty; its first config is the default.
        locked: The config in the lock file for exactly this study.
        lock_rule: The config in the lock file for the nearest bucket.
        bucket: The winner measured on this device model for the bucket of the key's values.
        earlier: The winner for this bucket with another compiler, whose code differs from today's.
        rule: The config that the dispatch rules choose.
        elsewhere: The best config on another device, driver or compiler.
        heuristic: The heuristic's first choice. None means the first config.
        can_measure: Whether this call may measure, or why not (no memory for copies, a graph is captured, ...).
        only: The reason why the space has a single config, if it has. Then calls measure nothing, but use a refinement
            of that config if one was measured earlier.
        unfinished: The progress of first calls that were cut off, if a later call is to continue; "" otherwise.
    """
    first = configs[0]
    tune = Action.BESIDE if mode is TuneMode.BACKGROUND else Action.TUNE
    default = default_origin(len(configs), ruled=heuristic is not None)
    if mode is TuneMode.OFF:
        # the first config of a space that a heuristic made is the heuristic's first choice
        origin = default if heuristic in (None, first) else Origin.FIRST
        return PolicyDecision(
            Action.USE, first, origin, f"tuning is off: {only if origin is Origin.ONLY else origin.phrase}"
        )
    if locked is not None:
        return PolicyDecision(Action.USE, locked, Origin.LOCK, "the lock's entry")
    if bucket is not None:
        reason = "measured for this bucket"
        if not mode.measures or not unfinished:
            return PolicyDecision(Action.USE, bucket, Origin.BUCKET, reason)
        if not can_measure:
            reason += f"; {unfinished}, and this call does not go on: {can_measure.reason}"
            return PolicyDecision(Action.USE, bucket, Origin.BUCKET, reason)
        return PolicyDecision(tune, bucket, Origin.BUCKET, f"{unfinished}; until more are, the best of these")
    if len(configs) == 1:
        return PolicyDecision(Action.USE, first, Origin.ONLY, only)
    if lock_rule is not None and not mode.measures:
        return PolicyDecision(Action.USE, lock_rule, Origin.LOCK, "the lock's entry for the nearest bucket")
    if mode is TuneMode.FROZEN:
        if rule is not None:
            return PolicyDecision(Action.USE, rule, Origin.RULE, Origin.RULE.phrase)
        return PolicyDecision(Action.REFUSE, first, Origin.FIRST, "tuning is frozen and nothing was measured here")
    config, origin = _best_known(first, lock_rule, earlier, rule, elsewhere, heuristic)
    reason = origin.phrase
    if mode is TuneMode.CACHED:
        return PolicyDecision(Action.USE, config, origin, f"never measured here and may not be: {reason}")
    if not can_measure:
        return PolicyDecision(Action.USE, config, origin, f"cannot measure now ({can_measure.reason}): {reason}")
    return PolicyDecision(tune, config, origin, f"never measured here; until then {reason}")


def _best_known(first: Config, *known: Config | None) -> tuple[Config, Origin]:
    origins = (Origin.RULE, Origin.ELSEWHERE, Origin.RULE, Origin.ELSEWHERE, Origin.HEURISTIC)
    candidates = ((config, origin) for config, origin in zip(known, origins, strict=True) if config is not None)
    return next(candidates, (first, Origin.FIRST))


EFFORT_SCHEMA = "effort/1"
# Two values of the member "ended" of a record. Its other values are the reasons why sessions ended.
BEGUN, SETTLED = "begun", "settled"
_WHOLE = frozenset({SETTLED, "complete", "evaluations"})
_DECIDED = _WHOLE | {ENOUGH}


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """The seconds that first calls have spent on a study, and how its latest tuning ended ("" if unknown)."""

    seconds: float = 0.0
    last: str = ""

    @property
    def is_cut_off(self) -> bool:
        """Whether a first call began to tune and did not finish."""
        return bool(self.last) and self.last not in _DECIDED

    @property
    def ended_early(self) -> bool:
        """Whether the latest first call that tuned stopped because the remaining configs could hardly be faster."""
        return self.last == ENOUGH


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A study that a first call did not finish.

    It holds the number of configs ``tried`` and of all configs, the seconds spent and the seconds allowed. ``early``:
    the call stopped because the other configs could hardly be faster. No call waits until these other configs are
    measured, but a later process with ``tune=background`` measures them.
    """

    tried: int
    total: int
    spent_s: float
    allowed_s: float
    early: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether a first call may spend more time on this study."""
        return self.tried < self.total and self.spent_s < self.allowed_s

    def __str__(self) -> str:
        text = f"{self.tried} of {self.total} configs measured"
        if self.early:
            text += ": the search ended early, since the others can hardly be faster; silo tune measures them, and so"
            text += " does a search beside a later process (tune=background)"
        elif self.tried < self.total:
            text += f", in {self.spent_s:.2g} of the {self.allowed_s:g} s that first calls may spend on it"
        return text


def read_effort(study: Study, records: RecordStore) -> TimeSpent:
    """Reads the time that first calls have spent on a study. Unreadable records are left out."""
    total_ms, last, completeness = 0, "", ""
    try:
        effort_records = list(records.read(effort_key(study.key)))
    except (StoreError, OSError):
        # The error is not reported here, because reading the trials from this store will fail too and report it.
        return TimeSpent()
    title = "a record of tuning effort"
    for record in effort_records:
        try:
            members = read_object(record, ("schema", "milliseconds", "ended"), title)
            if read_text(members["schema"], title) != EFFORT_SCHEMA:
                continue
            total_ms += read_natural(members["milliseconds"], title)
            last = read_text(members["ended"], title)
            completeness = last if last in _WHOLE or (last in _DECIDED and not completeness) else completeness
        except (ValueError, KeyError, TypeError):
            continue  # a newer version of Silo may have written a record of another form
    # records of other machines arrive in any order, so the record read last need not be the newest
    if isinstance(records, CatchesUp):
        last = completeness or last
    return TimeSpent(total_ms / 1000, last)


def note_effort(study: Study, records: RecordStore, ended: str, seconds: float = 0.0) -> str:
    """Records that a first call's tuning began or ended.

    Returns "", or the reason why nothing was recorded; a later call may then start tuning again.
    """
    document: JSON = {"schema": EFFORT_SCHEMA, "milliseconds": max(round(seconds * 1000), 0), "ended": ended}
    try:
        records.append(effort_key(study.key), document)
    except (StoreError, OSError) as error:
        return f"what was spent on tuning is not kept: {error}"
    return ""


def settle(study: Study, records: RecordStore) -> None:
    """Records that the study was tuned on purpose, so that first calls do not tune it any further."""
    effort = read_effort(study, records)
    if effort.is_cut_off or effort.ended_early:
        note_effort(study, records, SETTLED)
