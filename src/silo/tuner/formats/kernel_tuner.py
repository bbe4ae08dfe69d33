"""Kernel Tuner's cache files: one JSON object with a row for each config, times in milliseconds.

The form follows ``kernel_tuner.util.process_cache`` and ``store_cache`` (1.4.0). The file of a run that was cut off
ends in a comma, with two objects still open. ``time`` is the value that the tool ranks a config by, usually the mean of
``times``. In some files ``times`` are other quantities; if ``time`` lies outside of their range, it is the only sample.
A row of a failed config holds the name of a failure class instead of a measured value: under ``time`` in older files,
under ``__error__`` too in newer ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from silo.core.json_reader import read_text
from silo.errors import TuneError
from silo.tuner.formats.foreign import (
    ConfigResult,
    ForeignResults,
    ForeignTrial,
    by_config,
    flat_values,
    items_of,
    members_of,
    milliseconds,
    nanoseconds,
    plain_config,
    taken_in,
)
from silo.tuner.formats.parts import Results
from silo.tuner.statistics import median
from silo.tuner.trial import Status, Trial

__all__ = ["TOOL", "read_cache", "write_cache"]

TOOL = "Kernel Tuner"

_FAILURES = {
    "CompilationFailedConfig": Status.COMPILE,
    "RuntimeFailedConfig": Status.RUN,
    "InvalidConfig": Status.COMPILE,
    "ErrorConfig": Status.RUN,
}
_NAMES = {Status.COMPILE: "CompilationFailedConfig"}  # every other failure is written as one that happened at run time
_COSTS = ("benchmark_time", "verification_time")


def read_cache(results: Results) -> ForeignResults:
    """Reads a cache file. Raises ValueError, which describes the fault, if the file is damaged."""
    data = results.header
    kernel, device = (read_text(data.get(name), name) for name in ("kernel_name", "device_name"))
    names = [
        read_text(name, "a name in tune_params_keys")
        for name in items_of(data.get("tune_params_keys"), "tune_params_keys")
    ]
    rows = (_trial(names, f"the row {key!r}", row, results) for key, row in results.rows("cache", "{"))
    return ForeignResults(TOOL, kernel, device, taken_in(_distinct_configs(rows), results))


def _distinct_configs(trials: Iterable[ForeignTrial]) -> Iterator[ForeignTrial]:
    seen_keys: set[bytes] = set()
    for trial in trials:
        # a digest takes 32 bytes, however many parameters the config has
        key = hashlib.sha256(trial.config.order_key).digest()
        if key in seen_keys:
            raise ValueError("two rows are of one config")
        seen_keys.add(key)
        yield trial


def _trial(names: Sequence[str], label: str, row: object, results: Results) -> ForeignTrial:
    members = members_of(row, label)
    if missing := [name for name in names if name not in members]:
        raise ValueError(f"{label} has no {missing[0]}")
    config = plain_config({name: members[name] for name in names}, label, results)
    compile_ns = nanoseconds(members.get("compile_time") or 0, f"{label}: compile_time")
    bench_ns = sum(nanoseconds(members.get(name) or 0, f"{label}: {name}") for name in _COSTS)
    measured = [value for name, value in members.items() if name not in names and isinstance(value, str)]
    failure = next((value for value in measured if value in _FAILURES), None)
    if failure is not None:
        return ForeignTrial(config, _FAILURES[failure], (), compile_ns, bench_ns, failure)
    times = items_of(members.get("times", [members.get("time")]), f"{label}: times")
    if not times:
        raise ValueError(f"{label} has no times, and no failure")
    samples = tuple(nanoseconds(sample, f"{label}: times") for sample in times)
    if (time := members.get("time")) is not None:
        time_ns = nanoseconds(time, f"{label}: time")
        if not min(samples) <= time_ns <= max(samples):  # ``time`` is not an average of ``times``
            samples = (time_ns,)
    return ForeignTrial(config, Status.OK, samples, compile_ns, bench_ns)


def write_cache(kernel: str, device: str, problem_size: Sequence[int], trials: Iterable[Trial]) -> str:
    """Returns trials of one study as the text of a cache file that Kernel Tuner can replay (``tune_cache``).

    ``time`` is the median, because Silo chooses winners by it; Kernel Tuner's own files hold the mean. The format
    distinguishes two failures, compiling and running; wrong results and time limits are written as failures of running.

    Raises:
        TuneError: the configs do not all have the same names, or hold values that the format cannot hold.
    """
    results = by_config(trials)
    if not results:
        raise TuneError(f"there are no trials of {kernel} to write")
    rows = [(flat_values(result.config, TOOL), result) for result in results]
    names = list(rows[0][0])
    for values, result in rows:
        if list(values) != names:
            raise TuneError(
                f"{TOOL} wants the same parameters in every config; {result.config} of {kernel} has other ones than"
                f" {results[0].config}"
            )
    header = {
        "device_name": device,
        "kernel_name": kernel,
        "problem_size": list(problem_size) or [1],
        "tune_params_keys": names,
        "tune_params": {name: _distinct(values[name] for values, _ in rows) for name in names},
        "objective": "time",
        "cache": {",".join(str(value) for value in values.values()): _row(values, result) for values, result in rows},
    }
    # Kernel Tuner considers a file complete if its last two lines are a closing bracket each: indent=0 writes it so.
    return json.dumps(header, indent=0)


def _distinct(values: Iterable[object]) -> list[object]:
    distinct: dict[str, object] = {json.dumps(value): value for value in values}
    return list(distinct.values())


def _row(values: Mapping[str, object], result: ConfigResult) -> dict[str, object]:
    costs: dict[str, object] = {
        "compile_time": milliseconds(result.compile_ns),
        "verification_time": 0.0,
        "benchmark_time": milliseconds(sum(result.samples_ns)),
        "strategy_time": 0.0,
        "framework_time": 0.0,
    }
    if result.status is not Status.OK:
        name = _NAMES.get(result.status, "RuntimeFailedConfig")
        return {**values, "time": name, "__error__": name, **costs}
    times = [milliseconds(sample) for sample in result.samples_ns]
    return {**values, "time": milliseconds(median(result.samples_ns)), "times": times, **costs}
