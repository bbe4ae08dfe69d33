"""Schedules: kernels, sizes and devices to tune within a budget, and the choice of the next task.

A schedule is a TOML file. Its state is a folder beside it: a list of turns, to which several runs may add at the same
time. A turn is one session of one task (a kernel's case on a device). Trials are kept in the store as always, so a turn
that was killed has lost at most one config; the state only decides which task is tuned next.
"""

from __future__ import annotations

import math
import os
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from silo.core.values import JSON
from silo.errors import TuneError
from silo.forks import Mutex, Notices
from silo.store.records import DiskRecords

__all__ = [
    "History",
    "Schedule",
    "ScheduleState",
    "ScheduledDevice",
    "ScheduledKernels",
    "Task",
    "Turn",
    "choose_task",
    "read_schedule",
]

_GAIN = 0.005  # a turn counts as one without a gain if it makes the best time shorter by a smaller fraction than this
_FIRST_GUESS = 0.05  # the gain that is expected of a task's second turn, as a fraction of the best time
_DECAY = 0.5  # the expected gain is multiplied by this for each turn without a gain
_MOST_BYTES = 1 << 20
_KEY = "turns"


@dataclass(frozen=True, slots=True)
class ScheduledKernels:
    """Kernels of one file: their names, and patterns of the labels of their cases; an empty tuple stands for all.

    A gain of a kernel of weight 2 counts twice as much as the same gain of a kernel of weight 1.
    """

    file: Path
    names: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    weight: float = 1.0

    def takes(self, label: str) -> bool:
        """Returns whether a case with this label is tuned."""
        return not self.cases or any(fnmatchcase(label, pattern) for pattern in self.cases)


@dataclass(frozen=True, slots=True)
class ScheduledDevice:
    """Where tasks are measured: a device of this machine, agents, or actors of a Ray cluster."""

    name: str
    device: str | None = None
    agents: tuple[str, ...] = ()
    ray: str | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule. ``budget_s`` is the time of one run, None without a limit; ``turn_s`` is the time of one turn.

    A task is settled after ``patience`` turns in a row without a gain.
    """

    path: Path
    kernels: tuple[ScheduledKernels, ...]
    devices: tuple[ScheduledDevice, ...]
    budget_s: float | None = None
    turn_s: float = 60.0
    patience: int = 2

    @property
    def state(self) -> Path:
        """The folder of the schedule's state: ``nightly.state`` beside ``nightly.toml``."""
        return self.path.with_suffix(".state")


def read_schedule(path: Path) -> Schedule:
    """Reads a schedule.

    Raises:
        TuneError: the file cannot be read, or is not a schedule; names the faulty member.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise TuneError(f"{path}: a schedule has at most {_MOST_BYTES} bytes")
        document = tomllib.loads(text.decode())
    except OSError as error:
        raise TuneError(f"{path}: it cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TuneError(f"{path}: not TOML: {error}") from error
    try:
        schedule = _schedule_of(path, document)
    except ValueError as error:
        raise TuneError(f"{path}: {error}") from None
    names = [device.name for device in schedule.devices]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise TuneError(f"{path}: two devices are called {twice!r}: give them different names")
    return schedule


def _schedule_of(path: Path, document: Mapping[str, Any]) -> Schedule:
    _check_names(document, ("budget_s", "turn_s", "patience", "kernels", "devices"), "the schedule")
    kernels = tuple(_kernels_of(path, row) for row in _tables(document, "kernels"))
    if not kernels:
        raise ValueError("it names no kernels: add a table [[kernels]] with file = 'kernels.py'")
    devices = tuple(_device_of(row, number) for number, row in enumerate(_tables(document, "devices")))
    return Schedule(
        path,
        kernels,
        devices or (ScheduledDevice("this machine"),),
        _number(document, "budget_s", None),
        cast("float", _number(document, "turn_s", 60.0)),
        _natural(document, "patience", 2) or 2,
    )


def _kernels_of(path: Path, row: Mapping[str, Any]) -> ScheduledKernels:
    _check_names(row, ("file", "names", "cases", "weight"), "[[kernels]]")
    file = row.get("file")
    if not isinstance(file, str) or not file:
        raise ValueError("[[kernels]] needs file, the path of a Python file")
    return ScheduledKernels(
        path.parent / Path(file).expanduser(),
        _texts(row, "names"),
        _texts(row, "cases"),
        cast("float", _number(row, "weight", 1.0)),
    )


def _device_of(row: Mapping[str, Any], number: int) -> ScheduledDevice:
    _check_names(row, ("name", "device", "agents", "ray", "gpus"), "[[devices]]")
    agents = _texts(row, "agents")
    device_names = [name for name in ("device", "ray") if row.get(name) is not None] + (["agents"] if agents else [])
    if len(device_names) > 1:
        raise ValueError(f"[[devices]] has {' and '.join(device_names)}: a device is measured in one of these ways")
    for name in ("name", "device", "ray"):
        if row.get(name) is not None and not isinstance(row[name], str):
            raise ValueError(f"{name} is a text, not {row[name]!r}")
    gpus = _natural(row, "gpus", None)
    if gpus is not None and row.get("ray") is None:
        raise ValueError("gpus counts actors on Ray: name the cluster with ray")
    own = f"agents {number + 1}" if agents else "this machine"
    name = row.get("name") or row.get("device") or row.get("ray") or own
    return ScheduledDevice(str(name), row.get("device"), agents, row.get("ray"), gpus)


def _check_names(row: Mapping[str, Any], names: Sequence[str], label: str) -> None:
    if odd := sorted(set(row) - set(names)):
        raise ValueError(f"{label} has no member {odd[0]!r}; there are {', '.join(names)}")


def _tables(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = document.get(name, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in cast("list[object]", rows)):
        raise ValueError(f"{name} is a list of tables: [[{name}]]")
    return cast("list[Mapping[str, Any]]", rows)


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    texts = row.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(item, str) for item in cast("list[object]", texts)):
        raise ValueError(f"{name} is a list of texts, not {texts!r}")
    return tuple(cast("list[str]", texts))


def _number(row: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = row.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is a number above 0, not {value!r}")
    return float(value)


def _natural(row: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = row.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} is a whole number from 1, not {value!r}")
    return value


# ---- Tasks, their turns, and the choice of the next task ----


@dataclass(frozen=True, slots=True)
class Task:
    """One case of a kernel on a device."""

    file: Path
    kernel: str
    case: str
    device: ScheduledDevice
    weight: float = 1.0

    @property
    def key(self) -> str:
        """The task's name in the state. It does not depend on the schedule's folder, which may be moved."""
        return f"{self.file.name}|{self.kernel}|{self.case}|{self.device.name}"

    def __str__(self) -> str:
        return f"{self.kernel} {self.case}".strip() + f" on {self.device.name}"


@dataclass(frozen=True, slots=True)
class Turn:
    """One session of a task: seconds spent, configs measured, and the best time known at its end.

    ``best_ns`` is None if no config can be used. ``stopped`` is the reason for the session's end: ``complete`` if no
    config of the space is left, ``failed`` if the case is at fault, with the reason in ``message``.
    """

    seconds: float
    measured: int
    best_ns: int | None
    stopped: str
    ended_s: int = 0
    message: str = ""


@dataclass(frozen=True)
class History:
    """The turns of one task, in order. ``is_claimed``: another run is working on the task."""

    turns: tuple[Turn, ...] = ()
    is_claimed: bool = False

    @property
    def best_ns(self) -> int | None:
        """The best time so far, in nanoseconds."""
        return min((turn.best_ns for turn in self.turns if turn.best_ns is not None), default=None)

    @property
    def seconds(self) -> float:
        """The time that all turns took."""
        return sum(turn.seconds for turn in self.turns)

    @property
    def gains(self) -> tuple[float, ...]:
        """The fraction by which each turn after the first made the best time shorter."""
        fractions: list[float] = []
        best: int | None = None
        for turn in self.turns:
            if best is not None:
                fractions.append(max(0.0, 1 - turn.best_ns / best) if turn.best_ns is not None and best else 0.0)
            if turn.best_ns is not None:
                best = turn.best_ns if best is None else min(best, turn.best_ns)
        return tuple(fractions)

    @property
    def idle(self) -> int:
        """The number of turns without a gain since the last gain."""
        count = 0
        for gain in reversed(self.gains):
            if gain >= _GAIN:
                break
            count += 1
        return count

    def state(self, patience: int) -> str:
        """Returns ``new``, ``open``, ``settled`` (no gains lately), ``complete``, ``failed`` or ``claimed``."""
        if self.is_claimed:
            return "claimed"
        if not self.turns:
            return "new"
        last = self.turns[-1].stopped
        if last in ("complete", "failed"):
            return last
        return "settled" if self.idle >= patience else "open"

    @property
    def promise(self) -> float:
        """The gain to expect of another turn: the mean of the last two gains, lowered by each turn without a gain."""
        if not self.turns:
            return math.inf
        gainful = [gain for gain in self.gains if gain >= _GAIN][-2:]
        expected = sum(gainful) / len(gainful) if gainful else _FIRST_GUESS
        return expected * _DECAY ** (self.idle + len(self.gains) / 4)


def choose_task(
    tasks: Sequence[Task], histories: Mapping[str, History], patience: int, failed_now: Iterable[str] = ()
) -> Task | None:
    """Returns the most promising task, or None if none is left. Pure.

    New tasks come first, the greatest weight first, in the schedule's order. Then comes the task with the
    largest product of weight and expected gain for each second of a turn. Complete, settled and claimed tasks are left
    out, and so are tasks in ``failed_now``; a task that failed in an earlier run is tried again.
    """
    skipped = set(failed_now)

    def order(task: Task) -> tuple[bool, float]:
        history = histories.get(task.key, History())
        if not history.turns:
            return True, task.weight
        seconds = history.seconds / len(history.turns)
        return False, task.weight * history.promise / max(seconds, 1e-3)

    candidates = [
        task
        for task in tasks
        if histories.get(task.key, History()).state(patience) in ("new", "open", "failed") and task.key not in skipped
    ]
    return max(candidates, key=order, default=None)  # max() returns the first of equal tasks


# ---- The state, to which several runs may add at the same time ----


class ScheduleState:
    """The turns of a schedule, in a folder.

    Several runs may use it at the same time, and may be killed at any moment.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._records = DiskRecords(schedule.state, Notices("silo.tune"))
        self._turn_s = schedule.turn_s
        self._lock = Mutex()

    def histories(self) -> dict[str, History]:
        """Returns the turns of each task, by the task's key."""
        return _histories(self._records.read(_KEY))

    def claim(self, tasks: Sequence[Task], patience: int, failed_now: Iterable[str] = ()) -> tuple[Task, str] | None:
        """Chooses the next task and claims it, in one step; returns the task and the claim's name, or None.

        A claim ends with its turn, or when its process is gone (on this host), and at the latest after ten minutes plus
        three times the time of a turn.
        """
        chosen: list[Task] = []
        name = f"{os.uname().nodename} {os.getpid()} {time.time_ns()}"

        def judge(records: Iterator[JSON]) -> JSON:
            chosen.clear()
            task = choose_task(tasks, _histories(records), patience, failed_now)
            if task is None:
                return None
            chosen.append(task)
            return {
                "claim": name,
                "task": task.key,
                "host": os.uname().nodename,
                "process": os.getpid(),
                "until": int(time.time() + 3 * self._turn_s + 600),
            }

        with self._lock:
            try:
                self._records.append_judged(_KEY, judge)
            except OSError as error:
                raise TuneError(f"the state of the schedule cannot be written: {error.strerror or error}") from error
        return (chosen[0], name) if chosen else None

    def end(self, claim: str, task: Task, turn: Turn) -> None:
        """Records the end of a claimed turn."""
        record: JSON = {
            "end": claim,
            "task": task.key,
            "milliseconds": round(turn.seconds * 1000),
            "measured": turn.measured,
            "best_ns": turn.best_ns,
            "stopped": turn.stopped,
            "ended": turn.ended_s or int(time.time()),
            "message": turn.message,
        }
        self._records.append(_KEY, record)


def _histories(records: Iterable[JSON]) -> dict[str, History]:
    turns: dict[str, list[Turn]] = {}
    claims: dict[str, Mapping[str, JSON]] = {}
    for record in records:
        if not isinstance(record, dict) or not isinstance(key := record.get("task"), str):
            continue
        if isinstance(claim := record.get("claim"), str):
            claims[claim] = record
        elif isinstance(end := record.get("end"), str) and (turn := _turn_of(record)) is not None:
            claims.pop(end, None)
            turns.setdefault(key, []).append(turn)
    live_tasks = {str(claim["task"]) for claim in claims.values() if _lives(claim)}
    return {key: History(tuple(turns.get(key, ())), key in live_tasks) for key in {*turns, *live_tasks}}


def _turn_of(record: Mapping[str, JSON]) -> Turn | None:
    spent, measured, best, ended = (record.get(name) for name in ("milliseconds", "measured", "best_ns", "ended"))
    stopped, message = record.get("stopped"), record.get("message")
    if not isinstance(spent, int) or not isinstance(measured, int) or not isinstance(stopped, str):
        return None
    return Turn(
        spent / 1000,
        measured,
        best if isinstance(best, int) else None,
        stopped,
        ended if isinstance(ended, int) else 0,
        message if isinstance(message, str) else "",
    )


def _lives(claim: Mapping[str, JSON]) -> bool:
    until, host, process = claim.get("until"), claim.get("host"), claim.get("process")
    if not isinstance(until, int) or until < time.time():
        return False
    if host != os.uname().nodename or not isinstance(process, int):
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
