"""Seeds: configs worth trying first, because they did well in a study nearby or in another tuner's results."""

from __future__ import annotations

import itertools
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from silo.core.config import Config
from silo.core.json_reader import read_list, read_object, read_text
from silo.core.protocols import RecordStore
from silo.core.values import JSON, same_values
from silo.tuner.catalog import studies_of
from silo.tuner.formats.foreign import ForeignResults
from silo.tuner.ledger import read_trials
from silo.tuner.loss_model import Sample, loss_ppm
from silo.tuner.search.search_state import Seed
from silo.tuner.statistics import PPM, median
from silo.tuner.study_distance import Neighbour, nearest
from silo.tuner.trial import Status, Study, Trial
from silo.tuner.winner import choose_winner

__all__ = ["MOST_SEEDS", "losses_of", "neighbours", "seeds", "seeds_from_records", "seeds_to_record", "spoken_of"]

# ---- Seeds: configs worth trying first, because they were best in a study that is near ----

# Seeds from one study: its winner and the next two. More add little to the winner.
_PER_STUDY = 3
# The loss of a config in a study that did not try it: searches try configs that they expect to be good.
_UNKNOWN_PPM = 500_000
_OCTAVE = 16  # of the distance between studies
# Mixtures of device models: so many are drawn, each with shares from a gamma distribution of this shape. At 1 and less
# one or two models make up most of a mixture, at 10 all mixtures are alike; a shape between serves models that are like
# one of the others and models that are like their mean. Only so many configs of each model, the best, are considered.
_MIXTURES = 64
_SHAPE = 3.0
_BEST_OF_EACH = 128


def neighbours(study: Study, records: RecordStore, limit: int = 8) -> tuple[Neighbour, ...]:
    """The nearest stored studies of a kernel of this name with the winner of each, nearest first.

    Only studies with trials count. Studies of other sizes, devices, drivers, compilers and sources are among them.
    """
    found: list[Neighbour] = []
    for near in nearest(study, studies_of(study.kernel, records)):
        trials = read_trials(near.study, records)
        if trials:
            configs = len({trial.config.order_key for trial in trials})
            losses = losses_of(near.study, trials)
            found.append(replace(near, winner=choose_winner(trials), configs=configs, losses=losses))
        if len(found) == limit:
            break
    return tuple(found)


def losses_of(study: Study, trials: Sequence[Trial]) -> tuple[tuple[Config, int], ...]:
    """The loss of each config that was tried, in millionths; empty if none works."""
    sample = Sample.of_trials(study.bucket, trials)
    if sample is None:
        return ()
    found = {trial.config: PPM for trial in trials}
    return tuple((found | {config: loss_ppm(time, sample.best_ns) for config, time in sample.times}).items())


def seeds(
    configs: Container[Config],
    near: Sequence[Neighbour],
    *,
    deployed: Config | None = None,
    tried: Container[bytes] = (),
    limit: int = 8,
) -> tuple[Seed, ...]:
    """The configs to try first: the deployed config, then the best configs of the nearest studies. Pure.

    The winners of all studies come before any runner-up, in the order of ``near``. If several studies are of other
    device models, the configs come first whose best has the least expected loss, for a device that is like an unknown
    mixture of them: the first is nearly best on all of them, the next are for devices that are more like some than like
    others. A config is a seed once, with its first reason. Configs
    outside of ``configs``, or with an order key in ``tried``, are left out.
    """
    found: dict[bytes, Seed] = {}

    def add(seed: Seed) -> None:
        if seed.config in configs and seed.config.order_key not in tried and len(found) < limit:
            found.setdefault(seed.config.order_key, seed)

    if deployed is not None:
        add(Seed(deployed, reason="deployed"))
    elsewhere = [neighbour for neighbour in near if not neighbour.is_of_this_device and neighbour.losses]
    agreed = _agreed(elsewhere, limit, configs, tried) if len(elsewhere) > 1 else ()
    ranked = [neighbour for neighbour in near if not agreed or neighbour.is_of_this_device]
    for place in range(_PER_STUDY):
        for neighbour in ranked:
            if place < len(neighbour.ranking):
                config, time_ns = neighbour.ranking[place]
                best_ns = max(neighbour.ranking[0][1], 1)
                add(Seed(config, max(time_ns, 1) / best_ns, _reason(neighbour, place)))
        for seed in agreed if place == 0 else ():
            add(seed)
    return tuple(found.values())


def _agreed(
    near: Sequence[Neighbour], limit: int, configs: Container[Config], tried: Container[bytes]
) -> tuple[Seed, ...]:
    """At most ``limit`` configs that cover the mixtures of several studies, nearer ones having greater shares.

    Configs with equal losses in all of them come in the order of their keys.
    """
    least = min(neighbour.apart for neighbour in near)
    weights = [1 / (1 + (neighbour.apart - least) / _OCTAVE) ** 2 for neighbour in near]
    known = [dict(neighbour.losses) for neighbour in near]
    usable = [
        config
        for config in dict.fromkeys(config for losses in known for config in losses)
        if config in configs and config.order_key not in tried
    ]
    rows = {config: [losses.get(config, _UNKNOWN_PPM) for losses in known] for config in usable}
    means = {config: _mean(weights, row) for config, row in rows.items()}
    ordered = sorted((config for config in usable if means[config] < PPM), key=lambda one: (means[one], one.order_key))
    good = dict.fromkeys(ordered[:_BEST_OF_EACH])
    for at in range(len(near)):
        good.update(dict.fromkeys(sorted(ordered, key=lambda one, at=at: rows[one][at])[:_BEST_OF_EACH]))
    mixtures = _mixtures(weights)
    mixed = {config: [_mean(shares, rows[config]) for shares in mixtures] for config in ordered if config in good}
    devices = len({neighbour.study.device for neighbour in near})
    return tuple(
        Seed(
            config,
            PPM / (PPM - means[config]),
            f"a mean loss of {means[config] / 10_000:.1f} % in {len(near)} studies on {devices} other devices",
        )
        for config in _covering(mixed, limit)
    )


def _mean(shares: Sequence[float], losses: Sequence[int]) -> float:
    return sum(share * loss for share, loss in zip(shares, losses, strict=True)) / sum(shares)


def _mixtures(weights: Sequence[float]) -> list[list[float]]:
    """Shares of the studies; the first mixture is of all of them."""
    draws = random.Random("mixtures of devices")  # noqa: S311  # nothing secret
    drawn = [[weight * draws.gammavariate(_SHAPE, 1) + 1e-9 for weight in weights] for _ in range(_MIXTURES)]
    return [list(weights), *drawn]


def _covering(mixed: Mapping[Config, Sequence[float]], limit: int) -> list[Config]:
    """Configs by their losses on each mixture: each time the one that lowers the mean of the least losses most.

    The first has the least loss on the mixture of all. Once no config lowers the mean, they come in the given order.
    """
    left = dict(mixed)
    chosen: list[Config] = []
    least: Sequence[float] = ()
    while left and len(chosen) < limit:
        if chosen:
            totals = {config: sum(map(min, least, losses)) for config, losses in left.items()}
            best = min(left, key=totals.__getitem__)
        else:
            best = min(left, key=lambda config: left[config][0])
        losses = left.pop(best)
        least = [*map(min, least, losses)] if chosen else losses
        chosen.append(best)
    return chosen


def _reason(neighbour: Neighbour, place: int) -> str:
    study = neighbour.study
    what = tuple(dict.fromkeys(one.what for one in neighbour.differences))
    place_text = ("best", "second", "third")[place]
    sizes = ", ".join(f"{one.field}={one.theirs}" for one in neighbour.differences if one.what == "size")
    text = f"{place_text} on {study.device.name}" + (f" at {sizes}" if sizes else "")
    if "compiler" in what:
        text += f" with {' '.join(study.compiler.split()[:2])}"
    return f"{text}: {', '.join(f'another {one}' for one in what)}"


# ---- Seeds: configs that did well somewhere else, tried first here. A hint is never a measurement ----

SEEDS_SCHEMA = "seeds/1"

# The most seeds of one file; the rest of a large space hardly shows where its best configs are.
MOST_SEEDS = 256


def seeds_to_record(results: ForeignResults) -> JSON:
    """The record that stores the fastest configs of ``results``, the fastest first."""
    usable = [trial for trial in results.trials if trial.status is Status.OK]
    timed = [trial for trial in usable if trial.samples_ns]
    timed.sort(key=lambda trial: (median(trial.samples_ns), trial.config.order_key))
    # tables of configs without times are in their own order
    untimed = [trial for trial in usable if not trial.samples_ns]
    distinct = {trial.config.order_key: trial.config for trial in (*timed, *untimed)}
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
        ValueError: a record is not one of seeds.
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
    """The configs of ``configs`` that a seed matches, in the order of the seeds.

    A seed may set more members than a config (Triton's always set stages), but never fewer or other values.

    >>> spoken_of([Config.of(B=1), Config.of(B=2)], [Config.of(B=2, num_stages=3)])
    (Config(values=(('B', 2),), options=()),)
    """
    left = {config.order_key: config for config in configs}
    found: list[Config] = []
    for seed in seeds:
        said = seed.as_dict()
        found += [left.pop(key) for key, config in list(left.items()) if same_values(config.as_dict(), said)]
    return tuple(found)
