"""Triton's autotune files (``NAME.autotune.json`` in its cache): each config with the times that Triton took.

The form follows ``Autotuner.check_disk_cache`` in ``triton.runtime.autotuner`` (3.6 to 3.9): ``key``, the values that
tuning depended on, followed by dtypes; ``configs_timings``, pairs of a config's members and three quantiles of its time
in milliseconds (0.5, 0.2, 0.8). Infinity means that a config did not compile or required too much.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from silo.core.values import Value
from silo.errors import TuneError
from silo.tuner.formats.foreign import (
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
from silo.tuner.trial import Status, Trial

__all__ = ["SUFFIX", "TOOL", "read_autotune", "write_autotune"]

TOOL = "Triton"
SUFFIX = ".autotune.json"

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # members of a config besides kwargs
_DEFAULTS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None}
_UNSET = ("pre_hook", "ir_override")  # members without a counterpart in Silo
_QUANTILES = (500, 200, 800)  # per mille


def read_autotune(results: Results) -> ForeignResults:
    """Reads one file, which is named after its kernel. Raises ValueError with the fault of the file."""
    items_of(results.header.get("key"), "key")
    if results.cut:
        raise ValueError("it ends before its outermost object does")
    kernel = results.name.removesuffix(".gz").removesuffix(SUFFIX)
    rows = (_trial(pair, f"config {number}") for number, pair in results.rows("configs_timings", "["))
    return ForeignResults(TOOL, kernel, "", taken_in(rows, results))


def _trial(pair: object, what: str) -> ForeignTrial:
    parts = items_of(pair, what)
    if len(parts) != 2:
        raise ValueError(f"{what} is {pair!r}; a pair of a config and its times was expected")
    members, timing = members_of(parts[0], what), parts[1]
    if odd := set(members) - {"kwargs", *_OPTIONS, *_UNSET}:
        raise ValueError(f"{what} has the member {min(odd)!r}, which no config of Triton 3.6 to 3.9 has")
    for name in _UNSET:
        if members.get(name) is not None:
            raise ValueError(f"{what} has {name}={members[name]!r}; Silo has no such thing in a config")
    kwargs = members_of(members.get("kwargs"), f"{what}: kwargs")
    options = {name: members[name] for name in _OPTIONS if members.get(name) is not None}
    if options.get("num_ctas") == 1:  # as Silo reads @triton.autotune: one block is not a cluster
        del options["num_ctas"]
    config = plain_config({**kwargs, **options}, what)
    times = (timing,) if isinstance(timing, int | float) else items_of(timing, what)
    first = times[0] if times else None
    if first == float("inf"):
        return ForeignTrial(config, Status.COMPILE, message="Triton could not compile it, or it asked for too much")
    return ForeignTrial(config, Status.OK, (nanoseconds(first, f"{what}: its time"),))


def write_autotune(key: Sequence[Value], trials: Iterable[Trial]) -> str:
    """Writes trials of one study in Triton's form. Triton then takes the config with the least median.

    ``key`` is Triton's key: the values of the key's arguments, then the dtypes of the array arguments.

    Raises:
        TuneError: without trials, or if a config holds values that the format cannot hold.
    """
    results = by_config(trials)
    if not results:
        raise TuneError("there are no trials to write")
    pairs: list[object] = []
    for result in results:
        members = flat_values(result.config, TOOL)
        options = {name: members.pop(name, default) for name, default in _DEFAULTS.items()}
        if odd := [name for name, _ in result.config.options if name in members]:
            raise TuneError(f"a config of {TOOL} has no {odd[0]}: {result.config}")
        config = {"kwargs": members, **options, "pre_hook": None, "ir_override": None}
        pairs.append([config, _quantiles(result.samples_ns)])
    return json.dumps({"key": list(key), "configs_timings": pairs})


def _quantiles(samples_ns: Sequence[int]) -> list[float]:
    """Quantiles as ``triton.testing`` takes them: linear between neighbours; infinity without samples."""
    if not samples_ns:
        return [float("inf")] * len(_QUANTILES)
    ordered = sorted(samples_ns)
    found: list[float] = []
    for permille in _QUANTILES:
        below, rest = divmod((len(ordered) - 1) * permille, 1000)
        above = ordered[min(below + 1, len(ordered) - 1)]
        found.append(milliseconds(ordered[below] + (above - ordered[below]) * rest // 1000))
    return found
