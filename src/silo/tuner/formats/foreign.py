"""Results of other tuners: configs and outcomes, without the source, compiler and arguments of Silo's trials."""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from silo.core.config import Config
from silo.core.json_reader import read_list, read_mapping
from silo.core.values import JSON, Value
from silo.errors import TuneError
from silo.settings import how_to_raise
from silo.tuner.formats.parts import (
    MEMBER_BYTES,
    PLACE_BYTES,
    SAMPLE_BYTES,
    TRIAL_BYTES,
    LimitError,
    Results,
)
from silo.tuner.statistics import median
from silo.tuner.trial import Status, Study, Trial
from silo.tuner.winner import disqualified

__all__ = [
    "NS_PER_MS",
    "ConfigResult",
    "ForeignResults",
    "ForeignTrial",
    "by_config",
    "counted",
    "fastest_of",
    "flat_values",
    "items_of",
    "members_of",
    "milliseconds",
    "nanoseconds",
    "parse_status",
    "plain_config",
    "taken_in",
]

T = TypeVar("T")

NS_PER_MS = 1_000_000

_LONGEST_NS = 1 << 60  # the longest time that a file may hold: 36 years


@dataclass(frozen=True, slots=True)
class ForeignTrial:
    """The outcome of one config as another tuner measured it.

    ``compile_ns`` and ``bench_ns`` are the times that compiling and measuring took.
    """

    config: Config
    status: Status
    samples_ns: tuple[int, ...] = ()
    compile_ns: int = 0
    bench_ns: int = 0
    message: str = ""


@dataclass(frozen=True)
class ForeignResults:
    """The results of one file. ``kernel`` and ``device`` are "" if the file does not name them.

    ``own`` are trials with their studies, from a file that Silo wrote: they count as ordinary measurements. The other
    trials lack source, compiler and arguments, so they only suggest configs to try first.
    """

    tool: str
    kernel: str
    device: str
    trials: tuple[ForeignTrial, ...]
    own: tuple[tuple[Study, Trial], ...] = ()
    notes: tuple[str, ...] = ()  # for people: the contents of the file that Silo drops


@dataclass(frozen=True, slots=True)
class ConfigResult:
    """The result of one config over all its trials, for formats that have one row per config."""

    config: Config
    status: Status
    samples_ns: tuple[int, ...]
    compile_ns: int
    message: str


def by_config(trials: Iterable[Trial]) -> tuple[ConfigResult, ...]:
    """Returns one result per config, ordered by the first trial of each; the samples of a config's trials are pooled.

    A config that a trial disqualifies (:mod:`silo.tuner.winner`) counts as failed, whatever its other trials show.
    """
    pools: dict[bytes, list[Trial]] = {}
    for trial in trials:
        pools.setdefault(trial.config.order_key, []).append(trial)
    return tuple(_pooled(pool) for pool in pools.values())


def _pooled(pool: Sequence[Trial]) -> ConfigResult:
    good = [trial for trial in pool if trial.status is Status.OK]
    bad = [trial for trial in pool if trial.status is not Status.OK]
    compile_ns = max(trial.compile_ns for trial in pool)
    if good and not disqualified(pool):
        samples = tuple(sample for trial in good for sample in trial.samples_ns)
        return ConfigResult(pool[0].config, Status.OK, samples, compile_ns, "")
    worst = next((trial for trial in bad if disqualified([trial])), bad[0])
    return ConfigResult(pool[0].config, worst.status, (), compile_ns, worst.message)


def members_of(data: object, label: str) -> Mapping[str, Any]:
    """Returns the members of a JSON object. Raises ValueError if ``data`` is something else."""
    return read_mapping(cast("JSON", data), label)


def items_of(data: object, label: str) -> Sequence[Any]:
    """Returns the items of a JSON list. Raises ValueError if ``data`` is something else."""
    return read_list(cast("JSON", data), label)


def parse_status(name: object, table: Mapping[str, Status], label: str) -> Status:
    """Returns the status that a word of the format stands for.

    Raises ValueError for an unknown word; the message lists the known ones.
    """
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{label} is {name!r}, which is none of {', '.join(table)}")
    return table[name]


def nanoseconds(value: object, label: str, unit_ns: int = NS_PER_MS) -> int:
    """Converts a time from the format's unit (by default milliseconds) to nanoseconds.

    Raises ValueError unless the time is a finite number that is not negative.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_NS / unit_ns:
        raise ValueError(f"{label} is {value!r}, which is not a time")
    return round(value * unit_ns)


def milliseconds(time_ns: int) -> float:
    """Converts nanoseconds to milliseconds. For times up to 26 days :func:`nanoseconds` is an exact inverse.

    >>> milliseconds(1_500_000), nanoseconds(milliseconds(2_251_799_813_685_247), "t")
    (1.5, 2251799813685247)
    """
    return time_ns / NS_PER_MS


def counted(trials: Iterable[T], allowed: int, trial_of: Callable[[T], ForeignTrial]) -> tuple[T, ...]:
    """Collects ``trials``. Raises LimitError before they take more than ``allowed`` bytes of memory."""
    trials_counted: list[T] = []
    # The id() of each pair (a parameter and its value) that was counted. An id stays unique because ``trials_counted``
    # keeps the pair alive.
    pairs: set[int] = set()
    memory = 0
    for trial in trials:
        memory += _memory_of(trial_of(trial), pairs)
        if memory > allowed:
            raise LimitError(f"more than {len(trials_counted)} configs and their times; {how_to_raise(allowed)}")
        trials_counted.append(trial)
    return tuple(trials_counted)


def fastest_of(trials: Iterable[ForeignTrial], most: int) -> tuple[ForeignTrial, ...]:
    """Returns the ``most`` fastest usable trials, by the median of their samples, the fastest first.

    If no trial is usable, returns the first one. ``trials`` may be a long iterator: only the returned trials are kept
    in memory.
    """
    heap: list[tuple[int, int, ForeignTrial]] = []  # the slowest of the kept trials is at index 0
    first: ForeignTrial | None = None
    for number, trial in enumerate(trials):
        first = first or trial
        if trial.status is not Status.OK or not trial.samples_ns:
            continue
        item = (-median(trial.samples_ns), -number, trial)
        if len(heap) < most:
            heapq.heappush(heap, item)
        else:
            heapq.heappushpop(heap, item)
    if not heap:
        return () if first is None else (first,)
    return tuple(trial for _, _, trial in sorted(heap, reverse=True, key=lambda item: item[:2]))


def taken_in(trials: Iterable[ForeignTrial], results: Results) -> tuple[ForeignTrial, ...]:
    """Returns the trials that a reader of ``results`` keeps: all, or the ``results.fastest`` fastest ones."""
    if results.fastest is not None:
        return fastest_of(trials, results.fastest)
    return counted(trials, results.allowed, lambda trial: trial)


def _memory_of(trial: ForeignTrial, pairs: set[int]) -> int:
    """Returns the bytes of memory of a trial, without the pairs of names and values that ``pairs`` already counts.

    Adds the ids of the trial's other pairs to ``pairs``.
    """
    members = (*trial.config.values, *trial.config.options)
    memory = TRIAL_BYTES + SAMPLE_BYTES * len(trial.samples_ns)
    for pair in members:
        name, value = pair
        text = 4 * len(value) if isinstance(value, str) else 0
        memory += PLACE_BYTES + len(name) + text
        if id(pair) not in pairs:
            pairs.add(id(pair))
            memory += MEMBER_BYTES
    return memory


def plain_config(values: Mapping[str, object], label: str, results: Results | None = None) -> Config:
    """Makes a config from plain JSON values. Raises ValueError for other values, which no kernel takes.

    All configs of one ``results`` share equal pairs of a name and a value, to save memory.
    """
    for name, value in values.items():
        odd = isinstance(value, float) and not math.isfinite(value)
        if odd or not (value is None or isinstance(value, bool | int | float | str)):
            raise ValueError(
                f"{label}: {name} is {value!r}; the values of a config are numbers, strings, true or false"
            )
    # json makes a new string for each name in each row; interning keeps only one string for each name.
    config = Config.of({sys.intern(name): cast("Value", value) for name, value in values.items()})
    if results is None:
        return config

    def shared(pairs: tuple[tuple[str, Value], ...]) -> tuple[tuple[str, Value], ...]:
        return tuple(results.pairs.setdefault((pair[0], type(pair[1]), pair[1]), pair) for pair in pairs)

    return Config(shared(config.values), shared(config.options))


def flat_values(config: Config, tool: str) -> dict[str, Value]:
    """Returns a config's members as plain JSON values.

    Raises TuneError for other values, which the format cannot hold.
    """
    members = config.as_dict()
    for name, value in members.items():
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise TuneError(f"{tool} keeps numbers and strings only, and a config has {name}={value}")
    return members
