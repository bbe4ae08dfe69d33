"""The winner, computed from a set of trials in any order; and the reasons to doubt it, if noise may have decided."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from silo.core.config import Config
from silo.core.json_reader import read_list, read_object, read_text
from silo.core.plugins import threads_of_option
from silo.core.values import JSON, digest
from silo.tuner.objective import TIME, Objective, metric_text, values_of
from silo.tuner.statistics import (
    FINALIST_PERMILLE,
    NOISE_LIMIT_PERMILLE,
    PPM,
    Estimate,
    Rounds,
    Scales,
    estimate,
    indistinguishable,
    median,
)
from silo.tuner.trial import Stage, Status, Trial, distinct_trials

__all__ = [
    "REMEDY",
    "Standing",
    "Winner",
    "choose_winner",
    "disqualified",
    "doubt",
    "event_of",
    "finalists",
    "is_superseding",
    "standings",
    "superseded_by",
    "superseding_record",
    "unbeaten",
    "undecided",
]

_RESOURCES = ("threads", "shared_bytes", "registers")
# If the search was noisy and a reference shows how much, up to this many times the usual number of finalists are
# compared.
_MOST_NOISY = 4
# A config is equal to the fastest one, and is not compared again, if even the upper end of its confidence interval is
# slower than the fastest config by at most this many thousandths.
_EQUAL_PERMILLE = 20
# The samples of a metric are compared as integers: _COST_UNITS stands for the largest value that any config has.
_COST_UNITS = 1 << 40
_MOST_COST = 1 << 20
_UNKNOWN = 1 << 62  # an unknown resource counts as more than any known one

# Failures of the artifact itself: no later success makes its config eligible. Compiler errors and time limits are not
# among them, because the machine may have caused these.
_DISQUALIFYING = frozenset((Status.WRONG, Status.RUN))


@dataclass(frozen=True, slots=True)
class Standing:
    """The result of one config over all its trials.

    ``tied``: its samples do not separate it from the fastest config.
    """

    config: Config
    time: Estimate
    resources: tuple[int, ...]
    artifact: str
    tied: bool


@dataclass(frozen=True, slots=True)
class Winner:
    """The config to use, the reason, and the other eligible configs, best first by the objective that decided."""

    config: Config
    time: Estimate
    artifact: str
    reason: str
    runners_up: tuple[Standing, ...]
    objective: Objective = TIME

    @property
    def median_ns(self) -> int:
        """The median time of the winner, in nanoseconds for one launch."""
        return self.time.median_ns


def choose_winner(trials: Iterable[Trial], objective: Objective = TIME) -> Winner | None:
    """Chooses the winner among ``trials`` for an objective; None if no config works and meets its constraints.

    The order of the trials does not matter, and a trial given twice counts once. Samples of a config's trials are
    pooled, scaled by their reference (:mod:`silo.tuner.statistics`). If finalists were compared with one another, only
    they can win, by the samples of those comparisons, pair by pair: samples taken side by side are not distorted by a
    machine that drifts. The exception is a config measured later that is so far ahead of all of them that no comparison
    is needed (:func:`finalists`). Configs that the samples do not separate from the fastest are ranked by the threads,
    shared memory and registers that they need, then by lexical order.

    Only configs that meet the objective's constraints are eligible. For a metric other than time, the samples of the
    metric are pooled and compared in the same way, without side-by-side comparisons. If the metric is a resource of the
    code, the fastest of the configs with equal values wins.
    """
    distinct = distinct_trials(trials)
    if objective.metric != "time":
        return _choose_by_metric(distinct, objective)
    if objective.constraints:
        among, distinct = distinct, objective.admitted(distinct)
        winner = choose_winner(distinct)
        count = len({trial.config.order_key for trial in _flattened(_usable(among))})
        met = " and ".join(map(str, objective.constraints))
        if winner is None:
            return None
        return replace(
            winner, reason=f"{winner.reason}; of {count} that work only these meet {met}", objective=objective
        )
    scales = Scales(distinct)
    usable = _usable(distinct)
    compared = _compared(usable)
    outrun = _outrun(usable, scales)
    ranking = _rank(usable, scales) if outrun or not compared else _rank_compared(compared, scales)
    if not ranking:
        return None
    fastest = ranking[0]
    tied = [standing for standing in ranking if standing.tied]
    best = min(tied, key=lambda standing: (standing.resources, standing.config.order_key))
    return Winner(
        config=best.config,
        time=best.time,
        artifact=best.artifact,
        reason=_reason(
            best,
            fastest,
            _Counts(len({trial.config.order_key for trial in distinct}), len(usable), len(ranking), len(tied)),
        ),
        runners_up=tuple(standing for standing in ranking if standing is not best),
    )


def _flattened(pools: Iterable[list[Trial]]) -> list[Trial]:
    return [trial for pool in pools for trial in pool]


def _choose_by_metric(trials: Sequence[Trial], objective: Objective) -> Winner | None:
    """Chooses the winner by a metric other than time."""
    among = {pool[0].config.order_key: pool for pool in _usable(objective.admitted(trials))}
    values = {
        config.order_key: value for config, value in values_of(objective.metric, _flattened(among.values())).items()
    }
    pools = [pool for key, pool in among.items() if key in values]
    if not pools:
        return None
    scales = Scales(trials)
    largest = max(objective.cost_of(value) for value in values.values())
    rows: list[tuple[Estimate, Standing]] = []
    for pool in pools:
        samples = [
            item
            for trial in pool
            for name, metric_values in trial.metrics
            if name == objective.metric
            for item in metric_values
        ]
        costs = [objective.cost_of(sample) for sample in samples or [values[pool[0].config.order_key]]]
        scaled = estimate([round(min(cost / largest, _MOST_COST) * _COST_UNITS) if largest else 0 for cost in costs])
        rows.append((scaled, _standing(scales.estimate(pool), pool, tied=False)))
    rows.sort(key=lambda row: (row[0].median_ns, row[1].time.median_ns, row[1].config.order_key))
    measured = objective.metric in objective.measured
    least_cost = rows[0][0]
    ranked = [
        replace(item, tied=indistinguishable(least_cost, cost) if measured else cost.median_ns == least_cost.median_ns)
        for cost, item in rows
    ]
    tied = [item for item in ranked if item.tied]
    best = min(tied, key=lambda one: (one.resources, one.config.order_key)) if measured else ranked[0]
    best_word = "most" if objective.cost_of(1.0) < objective.cost_of(0.5) else "least"
    reason = f"{best_word} {objective.metric}, {metric_text(objective.metric, values[best.config.order_key])}, of "
    reason += f"{len(ranked)} configs" + (f" ({len(tied)} are equal in it)" if len(tied) > 1 else "")
    if objective.constraints:
        reason += f" that meet {' and '.join(map(str, objective.constraints))}"
    return Winner(
        best.config, best.time, best.artifact, reason, tuple(item for item in ranked if item is not best), objective
    )


def _compared(usable: Iterable[list[Trial]]) -> list[list[Trial]]:
    """Returns, for each config that has trials of the final stage, these trials."""
    finals = [[trial for trial in pool if trial.stage is Stage.FINAL] for pool in usable]
    return [pool for pool in finals if pool]


def _outrun(usable: Iterable[list[Trial]], scales: Scales) -> bool:
    """Returns whether some config that was not compared was over 10 % faster in the search than all compared ones."""
    medians: dict[bool, list[int]] = {False: [], True: []}
    for pool in usable:
        alone = [sample for trial in pool if trial.stage is Stage.SEARCH for sample in scales.samples(trial)]
        if alone:
            medians[any(trial.stage is Stage.FINAL for trial in pool)].append(median(alone))
    best = min(medians[False], default=None)
    if best is None or not medians[True]:
        return False
    return all(time * 1000 > best * (1000 + FINALIST_PERMILLE) for time in medians[True])


def disqualified(trials: Iterable[Trial]) -> bool:
    """Returns whether one of a config's trials rules the config out, however fast its other trials were."""
    return any(trial.status in _DISQUALIFYING for trial in trials)


def standings(trials: Iterable[Trial]) -> tuple[Standing, ...]:
    """Returns every usable config with its pooled samples, fastest first; equal medians in lexical order.

    If all configs were compared side by side, they are ranked pair by pair.
    """
    distinct = distinct_trials(trials)
    usable, scales = _usable(distinct), Scales(distinct)
    compared = all(trial.stage is Stage.FINAL for pool in usable for trial in pool)
    return _rank_compared(usable, scales) if compared and usable else _rank(usable, scales)


def finalists(trials: Iterable[Trial], count: int, deployed: Config | None = None) -> tuple[Config, ...]:
    """Returns the configs worth comparing side by side: the fastest ``count`` of the search within 10 % of the best.

    If samples are noisy (the best median is not certain to 1 %), configs whose intervals overlap with the best one's
    are added, because the search does not show which is faster: as many again, or three times as many if trials have a
    reference, whose drift widens the intervals. With a reference, the ``count`` configs with the shortest single
    samples are added too, because other work on the machine makes samples longer and never shorter. If the reference
    drifted much, the fastest ``count`` are compared even beyond 10 %, because the best may have been lucky. A config
    that a comparison showed to have been lucky in the search sets no limit for others. The ``deployed`` config is added
    if it works, however slow it was. The result is empty if fewer than two configs remain, because these need no
    comparison.
    """
    distinct = distinct_trials(trials)
    scales = Scales(distinct)
    usable = _usable(distinct)
    searched = _searched(usable)
    ranking = _rank(searched, scales)
    if not ranking or count < 2:
        return ()
    times = _corrected(ranking, _compared(usable), scales)
    best = min(ranking, key=lambda one: (times[one.config.order_key].median_ns, one.config.order_key))
    reach = times[best.config.order_key]
    limit = reach.median_ns * (1000 + FINALIST_PERMILLE)
    near = list(ranking[:count])
    if not scales.restless:
        near = [standing for standing in near if times[standing.config.order_key].median_ns * 1000 <= limit]
    noisy = max(reach.noise_permille, best.time.noise_permille if scales else 0) > NOISE_LIMIT_PERMILLE
    if noisy:
        finalist_limit = count * (_MOST_NOISY if scales else 2)
        overlapping = [entry for entry in ranking if times[entry.config.order_key].low_ns <= reach.high_ns]
        near += [
            entry
            for entry in (overlapping if scales else ranking)[:finalist_limit]
            if entry in overlapping and entry not in near
        ]
    if scales and (noisy or scales.restless):
        quickest = sorted(searched, key=lambda pool: (_quickest(pool), pool[0].config.order_key))[:count]
        keys = {pool[0].config.order_key for pool in quickest}
        near += [entry for entry in ranking if entry.config.order_key in keys and entry not in near]
    if deployed is not None:
        near += [entry for entry in ranking if entry.config.order_key == deployed.order_key and entry not in near]
    return tuple(standing.config for standing in near) if len(near) > 1 else ()


def _searched(usable: Iterable[list[Trial]]) -> list[list[Trial]]:
    """Returns, for each config that has trials of the search, these trials."""
    alone = [[trial for trial in pool if trial.stage is Stage.SEARCH] for pool in usable]
    return [pool for pool in alone if pool]


def _quickest(pool: Iterable[Trial]) -> int:
    """Returns the shortest sample of one config's trials, in nanoseconds."""
    return min(min(trial.samples_ns) for trial in pool)


def _corrected(ranking: Sequence[Standing], compared: Sequence[list[Trial]], scales: Scales) -> dict[bytes, Estimate]:
    """Returns the times of the search; for compared configs, their times in the comparison, scaled to the search.

    The scale is the median over the compared configs, so that a config that was lucky in the search does not affect it.
    """
    times = {item.config.order_key: item.time for item in ranking}
    if not scales or len(compared) < 2:
        return times
    paired = {item.config.order_key: item.time for item in _rank_compared(compared, scales)}
    shares = [times[key].median_ns * PPM // max(time.median_ns, 1) for key, time in paired.items() if key in times]
    scale = median(shares) if shares else PPM
    for key, time in paired.items():
        if key in times:
            low, middle, high = (item * scale // PPM for item in (time.low_ns, time.median_ns, time.high_ns))
            times[key] = Estimate(middle, low, high, time.samples)
    return times


def unbeaten(trials: Iterable[Trial]) -> tuple[Config, ...]:
    """Returns the compared configs that may be the fastest, judged by their intervals; the fastest comes first."""
    finals = tuple(trial for trial in trials if trial.stage is Stage.FINAL)
    ranking = standings(finals)
    if not ranking:
        return ()
    in_rounds = any(trial.comparison for trial in finals)
    limit = ranking[0].time.median_ns if in_rounds else ranking[0].time.high_ns
    return tuple(standing.config for standing in ranking if standing is ranking[0] or standing.time.low_ns <= limit)


def undecided(trials: Iterable[Trial]) -> tuple[Config, ...]:
    """Returns the compared configs if their samples do not show which one is the fastest, else an empty tuple.

    By their intervals each of the returned configs may be the fastest, and at least one is too far behind the fastest
    to count as tied. Comparing them again takes few samples, and then noise does not decide between them. Configs that
    were compared in rounds count as tied only once their interval of quotients to the fastest is within 2 %.
    """
    finals = tuple(trial for trial in trials if trial.stage is Stage.FINAL)
    near = unbeaten(finals)
    times = {standing.config.order_key: standing for standing in standings(finals)}
    if any(trial.comparison for trial in finals) and near:
        limit = times[near[0].order_key].time.median_ns * (1000 + _EQUAL_PERMILLE)
        unsure = any(times[config.order_key].time.high_ns * 1000 > limit for config in near[1:])
    else:
        unsure = any(not times[config.order_key].tied for config in near)
    return near if unsure else ()


def _usable(distinct: Sequence[Trial]) -> list[list[Trial]]:
    """Returns the successful trials of each config that no trial disqualifies."""
    pools: dict[bytes, list[Trial]] = {}
    for trial in distinct:
        if trial.status is Status.OK:
            pools.setdefault(trial.config.order_key, []).append(trial)
    for trial in distinct:
        if trial.status in _DISQUALIFYING:
            pools.pop(trial.config.order_key, None)
    return list(pools.values())


def _rank(pools: Iterable[list[Trial]], scales: Scales) -> tuple[Standing, ...]:
    rows = [(scales.estimate(pool), pool) for pool in pools]
    rows.sort(key=lambda row: (row[0].median_ns, row[1][0].config.order_key))
    return tuple(_standing(time, pool, tied=indistinguishable(rows[0][0], time)) for time, pool in rows)


def _rank_compared(pools: Sequence[list[Trial]], scales: Scales) -> tuple[Standing, ...]:
    """Ranks compared configs by their quotients to the leader if rounds are known, otherwise by their own times.

    The leader's time is its time in the quiet (undisturbed) rounds; the times of the others are the leader's multiplied
    by their quotients.
    """
    rounds = Rounds({pool[0].config.order_key: pool for pool in pools})
    if not rounds:
        return _rank(pools, scales)
    leader = rounds.leader()
    time = rounds.time(leader)
    rows: list[tuple[Estimate, list[Trial], bool]] = []
    for pool in pools:
        key = pool[0].config.order_key
        if key == leader:
            rows.append((time, pool, True))
            continue
        beside = rounds.quotient(key, leader)
        low, middle, high = (
            ratio * time.median_ns // PPM for ratio in (beside.low_ns, beside.median_ns, beside.high_ns)
        )
        tied = indistinguishable(Estimate(PPM, PPM, PPM, beside.samples), beside)
        rows.append((Estimate(middle, low, high, beside.samples), pool, tied))
    rows.sort(key=lambda row: (row[1][0].config.order_key != leader, row[0].median_ns, row[1][0].config.order_key))
    return tuple(_standing(time, pool, tied=tied) for time, pool, tied in rows)


def _standing(time: Estimate, pool: Sequence[Trial], *, tied: bool) -> Standing:
    return Standing(
        config=pool[0].config,
        time=time,
        resources=_resources(pool[0].config, pool),
        artifact=min(trial.artifact for trial in pool),
        tied=tied,
    )


def _resources(config: Config, pool: Iterable[Trial]) -> tuple[int, ...]:
    counts: dict[str, int] = {}
    for trial in pool:
        for name, count in trial.resources:
            counts[name] = max(count, counts.get(name, 0))
    return (counts.get("threads", _declared_threads(config)), *(counts.get(name, _UNKNOWN) for name in _RESOURCES[1:]))


def _declared_threads(config: Config) -> int:
    """Returns the number of threads of a block that the config's options declare."""
    for name, value in config.options:
        threads = threads_of_option(name)
        if threads and isinstance(value, int):
            return value * threads
    return _UNKNOWN


@dataclass(frozen=True, slots=True)
class _Counts:
    """Numbers of configs: with a trial, working, eligible to win, and tied for the lead."""

    tried: int
    usable: int
    ranked: int
    tied: int


def _reason(best: Standing, fastest: Standing, counts: _Counts) -> str:
    if counts.usable == 1:
        tried = counts.tried
        return "the only config that was tried" if tried == 1 else f"the only one of {tried} configs that works"
    if counts.tied == 1:
        compared = "" if counts.ranked == counts.usable else f", {counts.ranked} of them compared side by side"
        return f"fastest of {counts.usable} configs{compared}"
    where = "the fastest" if best is fastest else f"{fastest.config} is not measurably faster"
    return f"fewest resources of {counts.tied} configs that are equally fast, out of {counts.usable} ({where})"


# ---- Doubts: the reasons why noise may have decided the winner, read from its trials ----

REMEDY = "silo tune --remeasure measures anew"

_NOTABLE_PERMILLE = 20  # smaller drifts of the reference are not mentioned


def doubt(trials: Sequence[Trial]) -> str:
    """Returns the reason why noise may have decided the winner of ``trials``; "" without a reason. Pure.

    Returns "" too if no config won, or if only one config can win. The reasons, the weightiest first: nothing was
    measured beside a reference, so a slow phase of the machine does not show; the paired comparison did not settle
    which config is the fastest; no pairs were taken, and the reference drifted at least as much as the second config is
    behind; some configs were measured without a reference.
    """
    winner = choose_winner(trials)
    if winner is None or not winner.runners_up:
        return ""
    works = [trial for trial in distinct_trials(trials) if trial.status is Status.OK]
    searched = [trial for trial in works if trial.stage is Stage.SEARCH]
    finals = [trial for trial in works if trial.stage is Stage.FINAL]
    alone = {trial.config.order_key for trial in searched} - {
        trial.config.order_key for trial in searched if trial.reference is not None
    }
    paired = any(trial.comparison for trial in finals)
    if alone and not any(trial.reference for trial in searched):
        return f"nothing was measured beside a reference config, so a slow phase of the machine does not show; {REMEDY}"
    if paired and (near := undecided(finals)):
        rivals = [str(config) for config in near if config.order_key != winner.config.order_key]
        return f"its comparison with {rivals[0]} did not settle which is faster, by noise; {REMEDY}"
    if not paired and (reason := _within_drift(winner, searched)):
        return reason
    if alone:
        configs = "1 config was" if len(alone) == 1 else f"{len(alone)} configs were"
        return f"{configs} measured without a reference, so a slow phase of the machine does not show; {REMEDY}"
    return ""


def _within_drift(winner: Winner, searched: Sequence[Trial]) -> str:
    scales = Scales(searched)
    drift = max(scales.drift_permille(trial) for trial in searched)
    second = winner.runners_up[0]
    margin = (second.time.median_ns - winner.median_ns) * 1000 // max(winner.median_ns, 1)
    if drift < max(margin, _NOTABLE_PERMILLE):
        return ""
    margin_text, drifted = (f"{permille // 10}.{permille % 10} %" for permille in (max(margin, 0), drift))
    return (
        f"{second.config} is {margin_text} behind and was not compared with it in pairs, and the reference drifted by "
        f"{drifted} meanwhile; {REMEDY}"
    )


# ---- Superseding records: events among the trials of a study, after which earlier trials no longer count ----

SUPERSEDED_SCHEMA = "superseded/1"

_FINGERPRINT = re.compile("[0-9a-f]{32}")


def superseding_record(fingerprints: Iterable[str]) -> JSON:
    """Returns the event that supersedes trials, by their fingerprints (:attr:`silo.tuner.trial.Trial.fingerprint`)."""
    return {"schema": SUPERSEDED_SCHEMA, "trials": sorted(fingerprints)}


def is_superseding(record: JSON) -> bool:
    """Returns whether a record is a superseding event, well formed or not."""
    return isinstance(record, dict) and record.get("schema") == SUPERSEDED_SCHEMA


def superseded_by(record: JSON) -> tuple[str, ...]:
    """Returns the fingerprints that a superseding event names. Raises ValueError for any other record."""
    title = "a superseding record"
    members = read_object(record, ("schema", "trials"), title)
    names = tuple(read_text(name, title) for name in read_list(members["trials"], title))
    for name in names:
        if not _FINGERPRINT.fullmatch(name):
            raise ValueError(f"{title} names no trial by {name[:80]!r}")
    return names


def event_of(record: JSON) -> str:
    """Returns the name of an event: 16 hexadecimal digits, equal for equal records."""
    return digest("superseded/1", record)[:16]
