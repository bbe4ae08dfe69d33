"""Seeds: configs worth trying first, because they did well in a similar study; and the distance between two studies."""

from __future__ import annotations

import itertools
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.core.dispatch import distance
from silo.core.json_reader import read_list, read_object, read_text
from silo.core.protocols import RecordStore
from silo.core.signature import Parameter
from silo.core.values import JSON, Value, same_values
from silo.tuner.formats.foreign import ForeignResults
from silo.tuner.ledger import read_trials, studies_of
from silo.tuner.loss_model import Sample, loss_ppm
from silo.tuner.search.search_state import Seed
from silo.tuner.statistics import PPM, median
from silo.tuner.trial import Status, Study, Trial
from silo.tuner.winner import Winner, choose_winner

__all__ = [
    "MOST_SEEDS",
    "Neighbour",
    "StudyDifference",
    "differences",
    "losses_of",
    "nearest",
    "neighbours",
    "seeds",
    "seeds_from_records",
    "seeds_to_record",
    "spoken_of",
]

# The weights of differences between two studies: how far each difference is likely to move the best config. Their unit
# is a sixteenth of an octave, as for distances of buckets. Weights only order studies, so only their order matters.
_POLICY = 2
_FACTS = 4
_DRIVER = 4
_COMPILER = 8
_SOURCE = 24
_MODEL = 24
_LEVEL = 16  # the weight of another architecture, in addition to _MODEL
_EXTENTS = 48
_CONSTANT = 48
_DTYPE = 48


@dataclass(frozen=True, slots=True)
class StudyDifference:
    """One field in which two studies differ: its kind (``what``, for people), its name, and its values in both studies.

    ``apart`` is the weight of the difference in sixteenths of an octave. None means that results of one study are
    useless for the other.
    """

    what: str
    field: str
    ours: str
    theirs: str
    apart: int | None

    def __str__(self) -> str:
        return f"{self.field}: {self.ours} here, {self.theirs} there"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A stored study similar to another study: their differences, their distance, and the stored study's winner.

    ``losses`` holds the loss of each config that was tried in the stored study
    (:func:`silo.tuner.loss_model.loss_ppm`): a million for a config that failed.
    """

    study: Study
    differences: tuple[StudyDifference, ...]
    apart: int
    winner: Winner | None = None
    configs: int = 0
    losses: tuple[tuple[Config, int], ...] = ()

    @property
    def is_of_this_device(self) -> bool:
        """Whether both studies were measured on the same device model."""
        return all(difference.what != "device" for difference in self.differences)

    @property
    def ranking(self) -> tuple[tuple[Config, int], ...]:
        """The usable configs of the stored study with their median times in nanoseconds, the winner first."""
        if self.winner is None:
            return ()
        runners_up = tuple((standing.config, standing.time.median_ns) for standing in self.winner.runners_up)
        return ((self.winner.config, self.winner.median_ns), *runners_up)


def differences(ours: Study, theirs: Study) -> tuple[StudyDifference, ...]:
    """Returns every field in which two studies differ; empty if they are the same."""
    all_differences: list[StudyDifference] = []

    def compare(label: str, field: str, own_value: object, other_value: object, distance: int | None) -> None:
        # str() distinguishes 1 from True, as keys do; == does not
        if str(own_value) != str(other_value):
            all_differences.append(StudyDifference(label, field, _shown(own_value), _shown(other_value), distance))

    compare("kernel", "kernel", ours.kernel, theirs.kernel, _SOURCE)
    compare("source", "source", ours.source[:16], theirs.source[:16], _SOURCE)
    all_differences += _signature(ours, theirs)
    same_kind = ours.target.kind == theirs.target.kind
    compare("target", "target", ours.target, theirs.target, _LEVEL if same_kind else None)
    compare("compiler", "compiler", ours.compiler, theirs.compiler, _COMPILER)
    all_differences += _device(ours, theirs)
    compare("driver", "driver", ours.driver, theirs.driver, _DRIVER)
    compare("way of measuring", "policy", ours.policy, theirs.policy, _POLICY)
    facts, others = (tuple(f"{name} {fact.value}" for name, fact in s.specialization.facts) for s in (ours, theirs))
    compare("alignment", "assumes", ", ".join(facts), ", ".join(others), _FACTS)
    constants, other_constants = ours.specialization.constant_values, theirs.specialization.constant_values
    for name in sorted({*constants, *other_constants}):
        compare("constexpr", name, constants.get(name, "absent"), other_constants.get(name, "absent"), _CONSTANT)
    shapes, other_shapes = dict(ours.specialization.extents), dict(theirs.specialization.extents)
    for name in sorted({*shapes, *other_shapes}):
        compare("shape", name, shapes.get(name, "any"), other_shapes.get(name, "any"), _EXTENTS)
    all_differences += _bucket(ours, theirs)
    return tuple(all_differences)


def nearest(ours: Study, others: Iterable[Study]) -> tuple[Neighbour, ...]:
    """Returns the studies whose results are useful for ``ours``, nearest first, without ``ours`` itself. Pure."""
    neighbours_found: list[Neighbour] = []
    for study in others:
        different = differences(ours, study)
        weights = [difference.apart for difference in different if difference.apart is not None]
        if different and len(weights) == len(different):
            neighbours_found.append(Neighbour(study, different, sum(weights)))
    return tuple(sorted(neighbours_found, key=lambda neighbour: (neighbour.apart, neighbour.study.key)))


def _signature(ours: Study, theirs: Study) -> list[StudyDifference]:
    if ours.signature.names != theirs.signature.names:
        mine, others = (", ".join(study.signature.names) or "none" for study in (ours, theirs))
        return [StudyDifference("parameters", "parameters", mine, others, None)]
    differences_found: list[StudyDifference] = []
    for parameter, their_parameter in zip(ours.signature.parameters, theirs.signature.parameters, strict=True):
        if parameter != their_parameter:
            differences_found.append(
                StudyDifference("dtype", parameter.name, _typed(parameter), _typed(their_parameter), _DTYPE)
            )
    return differences_found


def _typed(parameter: Parameter) -> str:
    text = f"{parameter.kind.value} {parameter.dtype.name}" if parameter.dtype is not None else parameter.kind.value
    marks = [word for word, is_kept in (("not specialized", parameter.specialize), ("any alignment", parameter.align))
             if not is_kept]  # fmt: skip
    return ", ".join([text, *marks])


def _device(ours: Study, theirs: Study) -> list[StudyDifference]:
    our_device, their_device = ours.device.to_json(), theirs.device.to_json()
    assert isinstance(our_device, dict)
    assert isinstance(their_device, dict)
    differences_found: list[StudyDifference] = []
    for name, mine in our_device.items():
        if mine != their_device[name]:
            # The devices are of different models: the first field that differs gets the whole weight, each other one 0.
            weight = 0 if differences_found else _MODEL
            differences_found.append(
                StudyDifference("device", f"device {name}", str(mine), str(their_device[name]), weight)
            )
    return differences_found


def _bucket(ours: Study, theirs: Study) -> list[StudyDifference]:
    if ours.bucket_names != theirs.bucket_names:
        mine, others = (", ".join(study.bucket_names) or "none" for study in (ours, theirs))
        return [StudyDifference("key", "key", mine, others, None)]
    differences_found: list[StudyDifference] = []
    for name, own_value, their_value in zip(ours.bucket_names, ours.bucket, theirs.bucket, strict=True):
        if type(own_value) is not type(their_value) or own_value != their_value:
            differences_found.append(
                StudyDifference(
                    "size", name, _value(own_value), _value(their_value), distance((own_value,), (their_value,))
                )
            )
    return differences_found


def _value(value: Value) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _shown(value: object) -> str:
    return str(value) or "nothing"


# ---- Seeds from similar studies in the store ----

# The most seeds from one study: its winner and the next two. Further seeds of the study help little.
_PER_STUDY = 3
# The assumed loss of a config that a study did not try. It is large, because searches try the configs that they expect
# to be good.
_UNKNOWN_PPM = 500_000
_OCTAVE = 16  # one octave, in the unit of distances between studies
# An unknown device is modelled as a mixture of known ones. _MIXTURES mixtures are drawn; the shares of the devices come
# from a gamma distribution of shape _SHAPE. With a shape of 1 or less, one or two devices make up most of a mixture;
# with 10, all mixtures are alike. A shape between serves both devices that resemble one known device and devices that
# resemble the mean of all. Only the _BEST_OF_EACH best configs of each device are considered.
_MIXTURES = 64
_SHAPE = 3.0
_BEST_OF_EACH = 128


def neighbours(study: Study, records: RecordStore, limit: int = 8) -> tuple[Neighbour, ...]:
    """Returns the nearest stored studies of kernels with this name, each with its winner, nearest first.

    Only studies with trials are returned. They may differ in sizes, device, driver, compiler and source.
    """
    neighbours_found: list[Neighbour] = []
    for near in nearest(study, studies_of(study.kernel, records)):
        trials = read_trials(near.study, records)
        if trials:
            configs = len({trial.config.order_key for trial in trials})
            losses = losses_of(near.study, trials)
            neighbours_found.append(replace(near, winner=choose_winner(trials), configs=configs, losses=losses))
        if len(neighbours_found) == limit:
            break
    return tuple(neighbours_found)


def losses_of(study: Study, trials: Sequence[Trial]) -> tuple[tuple[Config, int], ...]:
    """Returns the loss of each config that was tried, in millionths; empty if no config works."""
    sample = Sample.of_trials(study.bucket, trials)
    if sample is None:
        return ()
    losses = {trial.config: PPM for trial in trials}
    return tuple((losses | {config: loss_ppm(time, sample.best_ns) for config, time in sample.times}).items())


def seeds(
    configs: Container[Config],
    near: Sequence[Neighbour],
    *,
    deployed: Config | None = None,
    tried: Container[bytes] = (),
    limit: int = 8,
) -> tuple[Seed, ...]:
    """Returns the configs to try first: the deployed config, then the best configs of the nearest studies. Pure.

    The winners of all studies come before any runner-up, in the order of ``near``. If several studies are of other
    device models, their configs are ordered by expected loss on a device that is like an unknown mixture of these
    models: the first config is nearly best on all of them, and each of the next is for devices that are more like some
    of them than like others. A config that several studies suggest is a seed once, with the first reason. Configs
    outside of ``configs``, or with an order key in ``tried``, are left out.
    """
    seeds_by_key: dict[bytes, Seed] = {}

    def add(seed: Seed) -> None:
        if seed.config in configs and seed.config.order_key not in tried and len(seeds_by_key) < limit:
            seeds_by_key.setdefault(seed.config.order_key, seed)

    if deployed is not None:
        add(Seed(deployed, reason="deployed"))
    elsewhere = [neighbour for neighbour in near if not neighbour.is_of_this_device and neighbour.losses]
    agreed = _agreed(elsewhere, limit, configs, tried) if len(elsewhere) > 1 else ()
    ranked = [neighbour for neighbour in near if not agreed or neighbour.is_of_this_device]
    for position in range(_PER_STUDY):
        for neighbour in ranked:
            if position < len(neighbour.ranking):
                config, time_ns = neighbour.ranking[position]
                best_ns = max(neighbour.ranking[0][1], 1)
                add(Seed(config, max(time_ns, 1) / best_ns, _reason(neighbour, position)))
        for seed in agreed if position == 0 else ():
            add(seed)
    return tuple(seeds_by_key.values())


def _agreed(
    near: Sequence[Neighbour], limit: int, configs: Container[Config], tried: Container[bytes]
) -> tuple[Seed, ...]:
    """Returns at most ``limit`` configs that together do well on all mixtures of several studies.

    Nearer studies have greater shares. Configs with equal losses in all studies come in the order of their keys.
    """
    least_distance = min(neighbour.apart for neighbour in near)
    weights = [1 / (1 + (neighbour.apart - least_distance) / _OCTAVE) ** 2 for neighbour in near]
    losses_known = [dict(neighbour.losses) for neighbour in near]
    usable = [
        config
        for config in dict.fromkeys(config for losses in losses_known for config in losses)
        if config in configs and config.order_key not in tried
    ]
    rows = {config: [losses.get(config, _UNKNOWN_PPM) for losses in losses_known] for config in usable}
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
    """Returns mixtures: lists with a share of each study.

    The first one has the shares ``weights``, the others are random.
    """
    draws = random.Random("mixtures of devices")  # noqa: S311  # nothing secret
    drawn = [[weight * draws.gammavariate(_SHAPE, 1) + 1e-9 for weight in weights] for _ in range(_MIXTURES)]
    return [list(weights), *drawn]


def _covering(mixed: Mapping[Config, Sequence[float]], limit: int) -> list[Config]:
    """Chooses configs by their losses on each mixture, one after another.

    The first has the least loss on the first mixture. Each further config is the one that most lowers the mean, over
    the mixtures, of the least loss of any chosen config. Once no config lowers the mean, the rest keep their given
    order.
    """
    remaining = dict(mixed)
    chosen: list[Config] = []
    smallest: Sequence[float] = ()
    while remaining and len(chosen) < limit:
        if chosen:
            totals = {config: sum(map(min, smallest, losses)) for config, losses in remaining.items()}
            best = min(remaining, key=totals.__getitem__)
        else:
            best = min(remaining, key=lambda config: remaining[config][0])
        losses = remaining.pop(best)
        smallest = [*map(min, smallest, losses)] if chosen else losses
        chosen.append(best)
    return chosen


def _reason(neighbour: Neighbour, rank: int) -> str:
    study = neighbour.study
    difference_kinds = tuple(dict.fromkeys(difference.what for difference in neighbour.differences))
    place_text = ("best", "second", "third")[rank]
    sizes = ", ".join(
        f"{difference.field}={difference.theirs}" for difference in neighbour.differences if difference.what == "size"
    )
    text = f"{place_text} on {study.device.name}" + (f" at {sizes}" if sizes else "")
    if "compiler" in difference_kinds:
        text += f" with {' '.join(study.compiler.split()[:2])}"
    return f"{text}: {', '.join(f'another {difference_kind}' for difference_kind in difference_kinds)}"


# ---- Seeds from files of other tuners. They are only tried first, and never count as measurements ----

SEEDS_SCHEMA = "seeds/1"

# The most seeds that are kept of one file: further results of a large space say little about its best configs.
MOST_SEEDS = 256


def seeds_to_record(results: ForeignResults) -> JSON:
    """Returns the record that stores the fastest configs of ``results``, the fastest first."""
    usable = [trial for trial in results.trials if trial.status is Status.OK]
    timed = [trial for trial in usable if trial.samples_ns]
    timed.sort(key=lambda trial: (median(trial.samples_ns), trial.config.order_key))
    # files without times keep the order of their configs
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
    """Returns the seeds of several files in turns: the best of each, then the second of each, the latest file first.

    Raises:
        ValueError: a record is not a record of seeds.
    """
    lists = [_configs(record) for record in records]
    turns = itertools.zip_longest(*reversed(lists))
    configs_by_key = {config.order_key: config for turn in turns for config in turn if config is not None}
    return tuple(configs_by_key.values())


def _configs(record: JSON) -> list[Config]:
    members = read_object(record, ("schema", "tool", "device", "configs"), "a record of seeds")
    if read_text(members["schema"], "a schema") != SEEDS_SCHEMA:
        raise ValueError(f"seeds of another schema: {members['schema']!r}")
    return [Config.from_json(config) for config in read_list(members["configs"], "a list of configs")]


def spoken_of(configs: Sequence[Config], seeds: Sequence[Config]) -> tuple[Config, ...]:
    """Returns the configs among ``configs`` that a seed matches, in the order of the seeds.

    A seed matches a config if it sets everything that the config sets, to the same values. The seed may set
    more (Triton's configs always set stages).

    >>> spoken_of([Config.of(B=1), Config.of(B=2)], [Config.of(B=2, num_stages=3)])
    (Config(values=(('B', 2),), options=()),)
    """
    remaining = {config.order_key: config for config in configs}
    matching: list[Config] = []
    for seed in seeds:
        seed_values = seed.as_dict()
        matching += [
            remaining.pop(key) for key, config in list(remaining.items()) if same_values(config.as_dict(), seed_values)
        ]
    return tuple(matching)
