"""The lock: the config that each study uses, decided once, written to a file, and read by every process.

The winner in the store is computed from the trials, so it may change with every trial. A lock holds decisions: a config
stays as long as no other is faster beyond the noise, so deployed configs change only if the change pays. The file
(``silo.lock.json``) is canonical JSON except for a line break after each entry, which keeps diffs readable::

    {"entries":[
    {"config":{...},"interval_ns":[9901,9950],"median_ns":9920,"reason":"...","samples":60,"study":{...}}
    ],"schema":"silo-lock/1"}

Decisions of other tuners (for example Triton's, in programs that Silo serves) are in a list called ``decisions`` before
``entries``, if the lock holds any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from silo.core.config import Config
from silo.core.dispatch import Bucket, DispatchRules
from silo.core.json_reader import read_integers, read_list, read_natural, read_object, read_text
from silo.core.values import JSON, canonical_json, parse_json
from silo.tuner.foreign_decision import ForeignWinner
from silo.tuner.objective import TIME, Objective
from silo.tuner.refine import ReachableConfigs
from silo.tuner.seeds import Neighbour, StudyDifference, differences, nearest
from silo.tuner.statistics import Estimate, indistinguishable
from silo.tuner.trial import Stage, Status, Study, Trial, distinct_trials
from silo.tuner.winner import choose_winner, standings

__all__ = ["Advice", "Lock", "LockEntry", "LockedChoice", "choose"]

LOCK_SCHEMA = "silo-lock/1"

# Differences across which an entry stays valid: they concern how the decision was measured, not the code it is for.
_NO_MATTER = frozenset(("way of measuring", "driver"))
# A decision made for another alignment or size still applies, but as a prediction (the store treats it the same way).
_PREDICTED = frozenset(("alignment", "size"))


@dataclass(frozen=True, slots=True)
class LockedChoice:
    """The config to deploy, its measured time, and the reason for the choice."""

    config: Config
    time: Estimate
    reason: str


def choose(
    trials: Sequence[Trial],
    deployed: Config | None,
    comparison: Sequence[Trial] = (),
    objective: Objective = TIME,
) -> LockedChoice | None:
    """Chooses the config to deploy: the deployed one, unless another is faster beyond the noise. Pure.

    Returns None if no config works. Two configs are within the noise if :func:`silo.tuner.statistics.indistinguishable`
    returns True for their times. If the deployed config and the winner were measured together in ``comparison``, the
    times of that comparison decide; otherwise the times of all finalists; and if the deployed config was not a
    finalist, the times of the search. For a metric other than time, the deployed config stays if its samples of the
    metric tie with the best.
    """
    winner = choose_winner(trials, objective)
    if winner is None:
        return None
    trials = objective.admitted(distinct_trials(trials))
    best = LockedChoice(winner.config, winner.time, winner.reason)
    if deployed is None:
        return best
    if deployed.order_key == winner.config.order_key:
        return replace(best, reason=f"deployed, and {winner.reason}")
    usable = {standing.config.order_key for standing in standings(trials)}
    if deployed.order_key not in usable:
        return replace(best, reason=f"{winner.reason}; {deployed}, deployed before, {_lost(trials, deployed)}")
    if objective.metric != "time":
        tied = [
            runner_up
            for runner_up in winner.runners_up
            if runner_up.tied and runner_up.config.order_key == deployed.order_key
        ]
        if tied:
            return LockedChoice(deployed, tied[0].time, f"deployed, and as good as any by {objective}")
        return replace(best, reason=f"{winner.reason}; {deployed}, deployed before, is worse")
    compared = {winner.config.order_key: winner.time} | {s.config.order_key: s.time for s in winner.runners_up}
    together = standings(trial for trial in comparison if trial.config.order_key in usable)
    times = {standing.config.order_key: standing.time for standing in together}
    if {deployed.order_key, winner.config.order_key} <= times.keys():
        compared = times
    if deployed.order_key not in compared:
        alone = standings(trial for trial in trials if trial.stage is Stage.SEARCH)
        compared = {standing.config.order_key: standing.time for standing in alone}
    mine = compared[deployed.order_key]
    fastest = min(compared.values(), key=lambda time: time.median_ns)
    permille = (mine.median_ns - fastest.median_ns) * 1000 // max(fastest.median_ns, 1)
    margin_text = f"{permille // 10}.{permille % 10} % behind the fastest"
    if indistinguishable(fastest, mine):
        return LockedChoice(deployed, mine, f"deployed, and {margin_text}, which is within the noise")
    return replace(
        best, reason=f"{winner.reason}; {deployed}, deployed before, is {margin_text}, which is beyond the noise"
    )


def _lost(trials: Sequence[Trial], deployed: Config) -> str:
    failed = [t for t in trials if t.config.order_key == deployed.order_key and t.status is not Status.OK]
    if not failed:
        return "is not among the measured configs"
    first = failed[0].message.splitlines()[0] if failed[0].message else "no message"
    return f"cannot be used ({failed[0].status.value}: {first})"


@dataclass(frozen=True, slots=True)
class LockEntry:
    """The decision for one study: its config, the config's time when it was decided, and the reason.

    ``objective`` names the metric and the constraints that decided; "" stands for time, and is left out of the file.
    """

    study: Study
    config: Config
    time: Estimate
    reason: str
    objective: str = ""

    @property
    def slot(self) -> str:
        """The key of the decision: a hash of the study without its source, compiler, driver and policy."""
        return slot_of(self.study)

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        return {
            "study": self.study.to_json(),
            "config": self.config.to_json(),
            "median_ns": self.time.median_ns,
            "interval_ns": [self.time.low_ns, self.time.high_ns],
            "samples": self.time.samples,
            "reason": self.reason,
            **({"objective": self.objective} if self.objective else {}),
        }

    @classmethod
    def from_json(cls, data: JSON) -> LockEntry:
        """Parses the result of :meth:`to_json`. Raises ValueError for anything else."""
        title = "an entry of a lock"
        names = ("study", "config", "median_ns", "interval_ns", "samples", "reason")
        optional = ("objective",) if isinstance(data, dict) and "objective" in data else ()
        members = read_object(data, (*names, *optional), title)
        interval = read_integers(members["interval_ns"], "the interval of an entry")
        median_ns, samples = (read_natural(members[name], name) for name in ("median_ns", "samples"))
        if len(interval) != 2 or not 0 <= interval[0] <= median_ns <= interval[1] or samples == 0:
            raise ValueError(f"the median {median_ns} is not within the interval {list(interval)} of {samples} samples")
        try:
            study = Study.from_json(members["study"])
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a study with a mistyped member: {error}") from None
        return cls(
            study=study,
            config=Config.from_json(members["config"]),
            time=Estimate(median_ns, interval[0], interval[1], samples),
            reason=read_text(members["reason"], title),
            objective=read_text(members["objective"], title) if optional else "",
        )


def slot_of(study: Study) -> str:
    """Returns the slot of a study: a lock holds at most one decision for each slot.

    Studies that differ only in source, compiler, driver or measurement policy have the same slot.
    """
    return replace(study, source="", compiler="", driver="", policy="").key


@dataclass(frozen=True, slots=True)
class Advice:
    """The config that a lock names for a study, or None with the reason.

    ``exact``: the entry is for exactly this study; otherwise it is the nearest bucket's. ``refused`` are entries of the
    kernel that are not for this study, nearest first.
    """

    config: Config | None
    exact: bool
    reason: str
    refused: tuple[Neighbour, ...] = ()


@dataclass(frozen=True)
class Lock:
    """Decisions in order of kernel and slot. Raises ValueError if two entries have the same :attr:`LockEntry.slot`."""

    entries: tuple[LockEntry, ...] = ()
    decisions: tuple[ForeignWinner, ...] = ()

    def __post_init__(self) -> None:
        decided = tuple(sorted(self.decisions, key=lambda winner: (winner.kernel, winner.slot)))
        for first, other in pairwise(decided):
            if first.slot == other.slot:
                raise ValueError(
                    f"two decisions about {first.kernel} for {list(first.key)} on {first.target}; keep one"
                )
        object.__setattr__(self, "decisions", decided)
        ordered = tuple(sorted(self.entries, key=lambda entry: (entry.study.kernel, entry.slot)))
        for before, after in pairwise(ordered):
            if before.slot == after.slot:
                raise ValueError(f"two entries decide {after.study}; keep one of them")
        object.__setattr__(self, "entries", ordered)

    def deployed(self, study: Study) -> Config | None:
        """Returns the config in the study's slot, whatever source, compiler and driver it was decided with; or None."""
        slot = slot_of(study)
        return next((entry.config for entry in self.entries if entry.slot == slot), None)

    def updated(self, entries: Iterable[LockEntry]) -> Lock:
        """Returns a lock in which these entries replace the entries with the same slots."""
        slots = {entry.slot: entry for entry in self.entries} | {entry.slot: entry for entry in entries}
        return replace(self, entries=tuple(slots.values()))

    def decided(self, winners: Iterable[ForeignWinner]) -> Lock:
        """Returns a lock with these decisions of other tuners added.

        Decisions that this lock already holds are not replaced.
        """
        slots = {winner.slot: winner for winner in winners} | {winner.slot: winner for winner in self.decisions}
        return replace(self, decisions=tuple(slots.values()))

    def advise(self, study: Study, reach: ReachableConfigs) -> Advice:
        """Returns the lock's advice for a study; ``reach`` are the configs that the study may use. Pure.

        An entry counts for its own kernel, source, signature, target, compiler and device model, however it was
        measured. A study of another size or alignment gets the entry of the nearest bucket.
        """
        mine = [entry for entry in self.entries if entry.study.kernel == study.kernel]
        kept_entries: list[LockEntry] = []
        for entry in mine:
            different = {difference.what for difference in differences(study, entry.study)} - _NO_MATTER
            if not different:
                return _allowed(entry.config, reach, exact=True, reason=entry.reason)
            if different <= _PREDICTED:
                kept_entries.append(entry)
        kept_entries.sort(key=lambda entry: len(entry.study.specialization.facts))
        table: dict[Bucket, Config] = {entry.study.bucket: entry.config for entry in kept_entries}
        if table:
            match = DispatchRules.of(study.bucket_names, table, reach.space.default).lookup(study.bucket)
            if match.rule is not None:
                reason = "another alignment" if match.is_exact else match.reason
                return _allowed(match.config, reach, exact=False, reason=reason)
        if not mine:
            return Advice(None, exact=False, reason=f"it has no entry for a kernel called {study.kernel}")
        near = nearest(study, [entry.study for entry in mine])
        parts = _list_of(near[0].differences) if near else "its parameters, key or kind of device"
        reason = f"none of its {len(mine)} entries for {study.kernel} is for this study; the nearest differs in {parts}"
        return Advice(None, exact=False, reason=reason, refused=near)

    def encode(self) -> bytes:
        """Returns the bytes of the file: equal locks have equal bytes."""
        lines = b",\n".join(canonical_json(entry.to_json()) for entry in self.entries)
        decided = b",\n".join(canonical_json(winner.to_json()) for winner in self.decisions)
        before = b'"decisions":[\n' + decided + b"\n]," if decided else b""
        return b"{" + before + b'"entries":[\n' + lines + b'\n],"schema":' + canonical_json(LOCK_SCHEMA) + b"}\n"

    @classmethod
    def decode(cls, data: bytes) -> Lock:
        """Parses the bytes of a lock file, in any layout of the JSON.

        Raises ValueError, which names the faulty entry.
        """
        try:
            document = parse_json(data)
        except UnicodeDecodeError as error:
            raise ValueError(f"not UTF-8: {error}") from None
        if not isinstance(document, dict) or "schema" not in document:
            raise ValueError("not a lock: a JSON object with the members entries and schema")
        if document["schema"] != LOCK_SCHEMA:
            raise ValueError(f"a lock of schema {document['schema']!r}; this Silo reads {LOCK_SCHEMA}")
        member_names = ("decisions", "entries", "schema") if "decisions" in document else ("entries", "schema")
        members = read_object(document, member_names, "a lock")
        entries: list[LockEntry] = []
        for number, item in enumerate(read_list(members["entries"], "the entries of a lock"), start=1):
            try:
                entries.append(LockEntry.from_json(item))
            except ValueError as error:
                raise ValueError(f"entry {number}: {error}") from None
        decisions: list[ForeignWinner] = []
        for number, item in enumerate(read_list(members.get("decisions", []), "the decisions of a lock"), start=1):
            try:
                decisions.append(ForeignWinner.from_json(item))
            except ValueError as error:
                raise ValueError(f"decision {number}: {error}") from None
        return cls(tuple(entries), tuple(decisions))


def _allowed(config: Config, reach: ReachableConfigs, *, exact: bool, reason: str) -> Advice:
    if config in reach:
        return Advice(config, exact, reason)
    return Advice(None, exact, f"it says {config}, which is none of the {len(reach.space.listed)} configs of this call")


def _list_of(different: Sequence[StudyDifference]) -> str:
    return "; ".join(str(difference) for difference in different)
