"""Seeds: configs that did well somewhere else, tried first here. A hint is never a measurement.

Results of other tuners become seeds, because their files say nothing of the source, the compiler and the arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from silo.core.config import Config
from silo.core.json_reader import read_list, read_object, read_text
from silo.core.values import JSON, same_values
from silo.tuner.formats.foreign import ForeignResults
from silo.tuner.statistics import median
from silo.tuner.trial import Status

__all__ = ["MOST_SEEDS", "seeds_from_records", "seeds_to_record", "spoken_of"]

SEEDS_SCHEMA = "seeds/1"

# Of one file; the rest of a large space says little about where its best configs are.
MOST_SEEDS = 256


def seeds_to_record(results: ForeignResults) -> JSON:
    """The record that keeps the fastest configs of ``results``, the fastest first."""
    usable = [trial for trial in results.trials if trial.status is Status.OK and trial.samples_ns]
    usable.sort(key=lambda trial: (median(trial.samples_ns), trial.config.order_key))
    distinct = {trial.config.order_key: trial.config for trial in usable}
    configs = list(distinct.values())[:MOST_SEEDS]
    return {
        "schema": SEEDS_SCHEMA,
        "tool": results.tool,
        "device": results.device,
        "configs": [config.to_json() for config in configs],
    }


def seeds_from_records(records: Iterable[JSON]) -> tuple[Config, ...]:
    """The seeds of several files, the best of each in turn, the latest file first.

    Raises:
        ValueError: a record is none of seeds.
    """
    lists = [_configs(record) for record in records]
    turns = itertools.zip_longest(*reversed(lists))
    found = {config.order_key: config for turn in turns for config in turn if config is not None}
    return tuple(found.values())


def _configs(record: JSON) -> list[Config]:
    members = read_object(record, ("schema", "tool", "device", "configs"), "a record of seeds")
    if read_text(members["schema"], "a schema") != SEEDS_SCHEMA:
        raise ValueError(f"seeds of another schema: {members['schema']!r}")
    return [Config.from_json(config) for config in read_list(members["configs"], "a list of configs")]


def spoken_of(configs: Sequence[Config], seeds: Sequence[Config]) -> tuple[Config, ...]:
    """Those of ``configs`` that a seed speaks of, in the order of the seeds.

    A seed may say more than a config does (Triton's always name stages), never less or something else.

    >>> spoken_of([Config.of(B=1), Config.of(B=2)], [Config.of(B=2, num_stages=3)])
    (Config(values=(('B', 2),), options=()),)
    """
    left = {config.order_key: config for config in configs}
    found: list[Config] = []
    for seed in seeds:
        said = seed.as_dict()
        found += [left.pop(key) for key, config in list(left.items()) if same_values(config.as_dict(), said)]
    return tuple(found)
