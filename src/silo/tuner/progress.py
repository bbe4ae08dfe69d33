"""Progress of a session as plain data, and the line that reports its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from silo.core.config import Config
from silo.core.values import Value
from silo.text_tables import format_duration, format_time
from silo.tuner.statistics import median
from silo.tuner.trial import Trial

__all__ = ["Progress", "ProgressCallback", "event_to_json", "note_of"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a session after one more config.

    ``total`` is the number of configs that it will examine if no time limit stops it. ``done`` counts the configs known
    by now, of which ``reused`` came from the store. ``best_ns`` is the median of the fastest so far. ``failures``
    counts configs by kind of failure; ``aside`` counts configs that were set aside because they spill
    (:mod:`silo.tuner.spilling`). ``eta_s`` is at most the rest of a time limit; without a limit it is None until
    something was measured. ``phase`` is ``search``, ``final`` or ``done``.
    """

    done: int
    total: int
    reused: int
    elapsed_s: float
    eta_s: float | None
    best: Config | None = None
    best_ns: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    last: Trial | None = None
    phase: str = "search"
    aside: int = 0


ProgressCallback = Callable[[Progress], None]

EVENT_SCHEMA = "tune-event/1"


def event_to_json(session: str, progress: Progress) -> dict[str, object]:
    """One event as plain JSON, for a line of a log: the state of ``session``, and the trial that was just finished.

    Times of one launch are in nanoseconds (``_ns``), wall times in seconds (``_s``).
    """
    last = progress.last
    trial = None
    if last is not None:
        trial = {
            "config": _plain_members(last.config),
            "status": last.status.value,
            "median_ns": median(last.samples_ns) if last.samples_ns else None,
            "compile_ns": last.compile_ns,
            "message": last.message,
        }
    return {
        "schema": EVENT_SCHEMA,
        "session": session,
        "phase": progress.phase,
        "done": progress.done,
        "total": progress.total,
        "reused": progress.reused,
        "elapsed_s": round(progress.elapsed_s, 3),
        "eta_s": None if progress.eta_s is None else round(progress.eta_s, 3),
        "best": None if progress.best is None else _plain_members(progress.best),
        "best_ns": progress.best_ns,
        "failures": dict(progress.failures),
        "set_aside": progress.aside,
        "last": trial,
    }


def note_of(progress: Progress) -> str:
    """The best config so far, the time left and the failures, to print beside the number of finished configs."""
    parts: list[str] = []
    if progress.best_ns is not None:
        parts.append(f"best {format_time(progress.best_ns)} ({progress.best})")
    if progress.eta_s is not None and progress.done < progress.total:
        parts.append(f"{format_duration(progress.eta_s)} left")
    parts += [f"{count} {kind}" for kind, count in progress.failures.items()]
    parts += [f"{progress.aside} set aside"] if progress.aside else []
    return "; ".join(parts)


def _plain_members(config: Config) -> dict[str, object]:
    return {name: _plain(value) for name, value in config.as_dict().items()}


def _plain(value: Value) -> object:
    """Numbers and strings as they are; values without a JSON form (dtypes, functions) as text."""
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value))
    return value if plain else str(value)
