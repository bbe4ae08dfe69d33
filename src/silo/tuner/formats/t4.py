"""T4, the results format of the auto-tuning community's schema: a list of results, times in milliseconds.

The form follows ``schema/T4/1.0.0/results-schema.json`` of Kernel Tuner 1.4.0, which benchmark_hub publishes too. T4
has no members for kernel, device, source and compiler. Files that Silo writes carry these in members named ``silo``,
which the schema allows and other readers skip: reading them back gives exactly the same trials.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from silo.tuner.formats.foreign import (
    ForeignResults,
    ForeignTrial,
    counted,
    flat_values,
    items_of,
    members_of,
    milliseconds,
    nanoseconds,
    parse_status,
    plain_config,
)
from silo.tuner.formats.parts import Results
from silo.tuner.statistics import median
from silo.tuner.trial import Status, Study, Trial

__all__ = ["TOOL", "read_t4", "write_t4"]

TOOL = "T4"
VERSION = "1.0.0"

_WORDS = {
    "correct": Status.OK,
    "compile": Status.COMPILE,
    "runtime": Status.RUN,
    "timeout": Status.TIMEOUT,
    "correctness": Status.WRONG,
    "constraints": Status.COMPILE,
}
_WORD_OF = {status: word for word, status in _WORDS.items() if word != "constraints"}
_UNITS_NS = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
# The names of the member with the compile time: the schema has the first name, Kernel Tuner writes the second.
_COMPILING = ("compilation_time", "compilation")
_COSTS = ("framework", "search_algorithm", "validation", "benchmark")


def read_t4(results: Results) -> ForeignResults:
    """Reads a results file. Raises ValueError, which describes the fault, if the file is damaged."""
    data = results.header
    version = data.get("schema_version")
    if not isinstance(version, str) or version.partition(".")[0] != "1":
        raise ValueError(f"schema_version is {version!r}; this reads T4 1.x")
    metadata = members_of(data.get("metadata", {}), "metadata")
    unit = metadata.get("timeunit", "milliseconds")
    if unit not in _UNITS_NS:
        raise ValueError(f"metadata: timeunit is {unit!r}, which is none of {', '.join(_UNITS_NS)}")
    if results.cut:
        raise ValueError("it ends before its outermost object does")
    studies = _studies(metadata)
    rows = (
        _row(members_of(row, f"result {number}"), f"result {number}", _UNITS_NS[unit], studies)
        for number, row in results.rows("results", "[")
    )
    counted_rows = counted(rows, results.allowed, lambda row: row[0])
    trials = tuple(trial for trial, _ in counted_rows)
    own = tuple(pair for _, pair in counted_rows if pair is not None)
    kernels = {study.kernel for study in studies}
    devices = {study.device.name for study in studies}
    return ForeignResults(
        TOOL,
        kernels.pop() if len(kernels) == 1 else "",
        devices.pop() if len(devices) == 1 else "",
        trials,
        own,
    )


def _row(
    row: Mapping[str, Any], label: str, unit_ns: int, studies: tuple[Study, ...]
) -> tuple[ForeignTrial, tuple[Study, Trial] | None]:
    trial = _trial(row, label, unit_ns)
    own = _own_trial(members_of(row["silo"], f"{label}: silo"), trial, studies, label) if "silo" in row else None
    return trial, own


def _trial(row: Mapping[str, Any], label: str, unit_ns: int) -> ForeignTrial:
    for name in ("configuration", "times", "invalidity"):
        if name not in row:
            raise ValueError(f"{label} has no {name}")
    config = plain_config(members_of(row["configuration"], f"{label}: configuration"), label)
    times = members_of(row["times"], f"{label}: times")
    status = parse_status(row["invalidity"], _WORDS, f"{label}: invalidity")
    compiling = next((times[name] for name in _COMPILING if name in times), 0)
    costs = sum(nanoseconds(times.get(name) or 0, f"{label}: {name}", unit_ns) for name in _COSTS)
    compile_ns = nanoseconds(compiling or 0, f"{label}: compilation", unit_ns)
    if status is not Status.OK:
        return ForeignTrial(config, status, (), compile_ns, costs, str(row["invalidity"]))
    samples = items_of(times.get("runtimes"), f"{label}: runtimes")
    if not samples:
        raise ValueError(f"{label} is correct and has no runtimes")
    runs = tuple(nanoseconds(sample, f"{label}: runtimes", unit_ns) for sample in samples)
    return ForeignTrial(config, status, runs, compile_ns, costs if "benchmark" in times else costs + sum(runs))


def _studies(metadata: Mapping[str, Any]) -> tuple[Study, ...]:
    if "silo" not in metadata:
        return ()
    listed = members_of(metadata["silo"], "metadata: silo").get("studies")
    return tuple(Study.from_json(item) for item in items_of(listed, "metadata: silo: studies"))


def _own_trial(
    member: Mapping[str, Any], seen: ForeignTrial, studies: tuple[Study, ...], label: str
) -> tuple[Study, Trial]:
    number: object = member.get("study")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(studies):
        raise ValueError(f"{label}: silo: study is {number!r}; the file has {len(studies)} studies")
    study, trial = studies[number], Trial.from_json(member.get("trial"))
    if reason := study.refuses(trial):
        raise ValueError(f"{label}: silo: the trial is none of its study: {reason}")
    same_config = seen.config.order_key == trial.config.order_key
    if not same_config or (seen.status, seen.samples_ns) != (trial.status, trial.samples_ns):
        raise ValueError(f"{label} and its silo member tell different things; one of them was changed")
    return study, trial


def write_t4(pairs: Iterable[tuple[Study, Trial]]) -> str:
    """Returns trials with their studies as the text of a T4 file, with one result per trial.

    Raises:
        TuneError: a config holds a value that plain JSON cannot hold.
    """
    studies: dict[str, int] = {}
    documents: list[object] = []
    results: list[dict[str, object]] = []
    for study, trial in pairs:
        if study.key not in studies:
            studies[study.key] = len(documents)
            documents.append(study.to_json())
        results.append(_result(trial, studies[study.key]))
    metadata = {"timeunit": "milliseconds", "silo": {"studies": documents}}
    return json.dumps({"schema_version": VERSION, "metadata": metadata, "results": results}, indent=1)


def _result(trial: Trial, study: int) -> dict[str, object]:
    measured = trial.samples_ns
    return {
        "configuration": flat_values(trial.config, TOOL),
        "objectives": ["time"],
        "times": {
            "compilation_time": milliseconds(trial.compile_ns),
            "runtimes": [milliseconds(sample) for sample in trial.samples_ns],
            "framework": 0,
            "search_algorithm": 0,
            "validation": 0,
        },
        "invalidity": _WORD_OF[trial.status],
        "correctness": 0 if trial.status is Status.WRONG else 1,
        "measurements": [{"name": "time", "value": milliseconds(median(measured)), "unit": "ms"}] if measured else [],
        "silo": {"study": study, "trial": trial.to_json()},
    }
