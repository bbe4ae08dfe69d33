"""Dispatch rules for sizes that were not measured: the nearest measured bucket, or a small decision list.

The list is grown like a decision tree on the measured buckets: at each node, the argument and the bound that lower the
total regret most. Regret on buckets held out in turn decides which of the two is used: the list has to be better there
by more than chance explains, or else the nearest bucket is used. Over smooth tables the nearest bucket is hard to beat;
lists pay if a bound matters (a size above which nothing fits, an argument that decides alone).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from silo.core.config import Config
from silo.core.dispatch import Bound, Bucket, DecisionList, DispatchRules, Step, bucket_of, bucket_to_json, distance
from silo.core.values import canonical_json
from silo.tuner.trial import Trial
from silo.tuner.winner import choose_winner, standings

__all__ = ["Fitted", "Sample", "fit_unseen", "fitted_rules", "regret_ppm"]

# With fewer buckets none can be held out.
_FEWEST = 4
_FOLDS = 8
_DEPTH = 3
# The list has to save this much of the time of held-out buckets, on average: less may be noise, and nearest is simpler.
_WORTH_PPM = 1_000
# It has to save at least this many standard errors: with one, most lists that were chosen on smooth tables were worse
# elsewhere.
_ERRORS = 2
# The regret of a config that cannot run or was not tried: at least this, and at least as much as the worst that did
# run.
_UNKNOWN_PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured bucket: its winner and the median time in nanoseconds of each usable config, by order key."""

    bucket: Bucket
    winner: bytes
    times: tuple[tuple[bytes, int], ...]

    @classmethod
    def of(cls, bucket: Bucket, winner: Config, times: Mapping[Config, int]) -> Sample:
        """A sample from configs."""
        return cls(bucket, winner.order_key, tuple(sorted((config.order_key, ns) for config, ns in times.items())))

    @classmethod
    def of_trials(cls, bucket: Bucket, trials: Sequence[Trial]) -> Sample | None:
        """A sample from a bucket's trials; None if no config can be used."""
        winner = choose_winner(trials)
        if winner is None:
            return None
        return cls.of(bucket, winner.config, {one.config: one.time.median_ns for one in standings(trials)})


@dataclass(frozen=True, slots=True)
class Fitted:
    """A list, or None for the nearest bucket; the mean regret of both on held-out buckets in millionths; the reason."""

    unseen: DecisionList | None
    list_ppm: int | None
    nearest_ppm: int | None
    reason: str


def regret_ppm(sample: Sample, config: bytes) -> int:
    """The time that a config takes on a bucket beyond the best time, in millionths of the best time."""
    times = dict(sample.times)
    best = max(min(times.values()), 1)
    if config in times:
        return (times[config] - best) * 1_000_000 // best
    return max(_UNKNOWN_PPM, (max(times.values()) - best) * 1_000_000 // best)


def fit_unseen(key: Sequence[str], samples: Sequence[Sample], configs: Sequence[Config]) -> Fitted:
    """Fits a decision list of ``configs`` (it names no others) and compares it with the nearest bucket. Pure.

    Keys with anything but natural numbers get no list.
    """
    ordered = tuple(sorted(samples, key=lambda sample: canonical_json(bucket_to_json(sample.bucket))))
    by_key = {config.order_key: config for config in configs}
    leaves, list_ppm, nearest_ppm, reason = _fit(len(key), ordered, tuple(sorted(by_key)))
    if leaves is None:
        return Fitted(None, list_ppm, nearest_ppm, reason)
    return Fitted(_flat(tuple(key), leaves, by_key), list_ppm, nearest_ppm, reason)


def fitted_rules(
    key: Sequence[str], table: Mapping[Bucket, Config], fallback: Config, samples: Sequence[Sample]
) -> DispatchRules:
    """Rules from a table, with a decision list of its configs if ``samples`` cover all its buckets and favour it."""
    covered = {canonical_json(bucket_to_json(sample.bucket)) for sample in samples}
    whole = len(samples) == len(table) and covered == {canonical_json(bucket_to_json(bucket)) for bucket in table}
    unseen = fit_unseen(key, samples, tuple(table.values())).unseen if whole else None
    return DispatchRules.of(key, table, fallback, unseen)


# A leaf: for each argument the bounds (above, most) of its box, and its config.
_Leaf = tuple[tuple[tuple[int | None, int | None], ...], bytes]
_Regrets = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # sizes, and regret by config, of each bucket


@lru_cache(maxsize=256)
def _fit(
    axes: int, samples: tuple[Sample, ...], allowed: tuple[bytes, ...]
) -> tuple[tuple[_Leaf, ...] | None, int | None, int | None, str]:
    if axes == 0 or len(samples) < _FEWEST:
        return None, None, None, f"{len(samples)} measured buckets are too few to fit anything"
    if any(type(value) is not int or value < 0 for sample in samples for value in sample.bucket):
        return None, None, None, "the key holds more than natural numbers"
    winners = tuple(sorted({sample.winner for sample in samples} & set(allowed)))
    if len(winners) < 2:
        return None, None, None, "one config is best everywhere"
    rows: _Regrets = tuple(
        (_sizes(sample), tuple(regret_ppm(sample, config) for config in winners)) for sample in samples
    )
    folds = min(_FOLDS, len(samples))
    listed, near = [0] * len(samples), [0] * len(samples)
    for fold in range(folds):
        kept = [number for number in range(len(samples)) if number % folds != fold]
        leaves = _grow([rows[number] for number in kept], winners, ((None, None),) * axes, _DEPTH)
        for number in range(fold, len(samples), folds):
            listed[number] = regret_ppm(samples[number], _choice(leaves, rows[number][0]))
            near[number] = regret_ppm(samples[number], _nearest(samples[number], [samples[other] for other in kept]))
    list_ppm, nearest_ppm = sum(listed) // len(samples), sum(near) // len(samples)
    compared = f"{_percent(list_ppm)} against {_percent(nearest_ppm)} slower than the best on held-out buckets"
    if not _better([there - here for here, there in zip(listed, near, strict=True)]):
        return None, list_ppm, nearest_ppm, f"the nearest bucket: a list is {compared}"
    leaves = _grow(list(rows), winners, ((None, None),) * axes, _DEPTH)
    return tuple(leaves), list_ppm, nearest_ppm, f"a decision list: {compared} by the nearest one"


def _better(saved_ppm: Sequence[int]) -> bool:
    """Whether the mean saving is large enough, and more than chance explains by its standard error; in integers."""
    count, total = len(saved_ppm), sum(saved_ppm)
    if total < _WORTH_PPM * count:
        return False
    # mean > e * sqrt(variance / n), with variance = (sum of squares - total^2 / n) / (n - 1), both sides squared.
    scatter = sum(saved * saved for saved in saved_ppm) * count - total * total
    return total * total * (count - 1) > _ERRORS * _ERRORS * scatter


def _sizes(sample: Sample) -> tuple[int, ...]:
    return tuple(value for value in sample.bucket if isinstance(value, int))


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.1f} %"


def _nearest(sample: Sample, others: Sequence[Sample]) -> bytes:
    """The table's choice; ``others`` are in canonical order, so the first of equally near buckets decides."""
    return min(others, key=lambda other: distance(sample.bucket, other.bucket) or 0).winner


def _choice(leaves: Sequence[_Leaf], sizes: Sequence[int]) -> bytes:
    return next(
        config
        for box, config in leaves
        if all(
            (low is None or size > low) and (high is None or size <= high)
            for size, (low, high) in zip(sizes, box, strict=True)
        )
    )


def _grow(
    rows: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    configs: tuple[bytes, ...],
    box: tuple[tuple[int | None, int | None], ...],
    depth: int,
) -> list[_Leaf]:
    """The leaves for the buckets of one box, by the split that lowers their total regret most."""
    totals = [sum(column) for column in zip(*(regrets for _, regrets in rows), strict=True)]
    best = min(range(len(configs)), key=lambda number: (totals[number], configs[number]))
    if depth == 0 or totals[best] == 0:
        return [(box, configs[best])]
    found: tuple[int, int, int] | None = None  # total regret, axis, bound
    for axis in range(len(box)):
        ordered = sorted(rows, key=lambda row, axis=axis: row[0][axis])
        low = [0] * len(configs)
        for (sizes, regrets), (following, _) in pairwise(ordered):
            low = [total + regret for total, regret in zip(low, regrets, strict=True)]
            if sizes[axis] != following[axis]:
                cost = min(low) + min(total - part for total, part in zip(totals, low, strict=True))
                if found is None or cost < found[0]:
                    found = (cost, axis, _between(sizes[axis], following[axis]))
    if found is None or found[0] >= totals[best]:
        return [(box, configs[best])]
    _, axis, bound = found
    above, most = box[axis]
    lower = (*box[:axis], (above, bound), *box[axis + 1 :])
    upper = (*box[:axis], (bound, most), *box[axis + 1 :])
    return [
        *_grow([row for row in rows if row[0][axis] <= bound], configs, lower, depth - 1),
        *_grow([row for row in rows if row[0][axis] > bound], configs, upper, depth - 1),
    ]


def _between(small: int, large: int) -> int:
    """The largest bucket no nearer to ``large`` than to ``small``: bounds fall between buckets, not into one."""
    bound = small
    while True:
        (following,) = bucket_of((bound + 1,))
        assert isinstance(following, int)
        if following >= large or (distance((following,), (small,)) or 0) > (distance((following,), (large,)) or 0):
            return bound
        bound = following


def _flat(key: tuple[str, ...], leaves: Sequence[_Leaf], configs: Mapping[bytes, Config]) -> DecisionList:
    """The boxes as steps. The last step needs no bounds, because the others cover the rest."""
    steps = [
        Step(
            tuple(
                Bound(name, low, high)
                for name, (low, high) in zip(key, box, strict=True)
                if low is not None or high is not None
            ),
            configs[config],
        )
        for box, config in leaves
    ]
    last = Step((), steps.pop().config)
    while steps and steps[-1].config.order_key == last.config.order_key:
        steps.pop()
    return DecisionList((*steps, last))
