"""Dispatch rules for sizes that were not measured: a decision list learnt from all trials, or the nearest bucket.

A model of every config's loss (:mod:`silo.tuner.loss_model`) predicts which configs are good between the measured
sizes. A few configs are kept that together cover all sizes with little loss. The decision list, which compares sizes
with bounds, is grown over a grid of sizes like a decision tree. So a launch compares numbers and needs no model. For
each measured size, the choice is also predicted from the other sizes. If these predictions choose worse configs than
the nearest bucket does, the rule of the nearest bucket is kept. The loss of the predicted choices at the measured sizes
is the loss to expect at other sizes, and sizes with a great expected loss are worth measuring next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import combinations, pairwise, product

from silo.core.config import Config, ConfigSet
from silo.core.dispatch import Bound, Bucket, DecisionList, DispatchRules, Step, bucket_of, bucket_to_json, distance
from silo.core.host_arrays import has_numpy
from silo.core.values import ExactTuple, canonical_json
from silo.forks import Notices
from silo.tuner.loss_model import LossModel, Sample, is_modelled, octaves_apart, unproven_ppm
from silo.tuner.statistics import PPM

__all__ = [
    "Expectation",
    "Fitted",
    "Generalization",
    "Sample",
    "Suggestion",
    "fit_unseen",
    "fitted_rules",
    "generalize",
    "held_out_losses",
    "regret_ppm",
    "suggest",
]

_notices = Notices()

# With fewer measured buckets, no list is fitted: if one bucket is held out, too few remain to learn from.
_FEWEST = 4
_DEPTH = 6
# A decision list of this depth is grown from the measured buckets alone, without the model. It replaces the model's
# list if it saves time at held-out buckets, by more than this many standard errors of the saving.
_PLAIN_DEPTH = 3
_STANDARD_ERRORS = 2
_MOST_WINNERS = 8  # the most configs that a list chooses among
# A list gets one more config, or one more bound, only if that saves this fraction of the time, on average over the
# sizes, or in total over the sizes of a split.
_WORTH_PPM = 2_000
# The regret (time beyond the best config's, relative to that time) that is assumed for a config that failed or was not
# tried at a size. If the slowest config that ran at this size has a greater regret, that regret is assumed.
_UNKNOWN_PPM = 1_000_000
# A list is used if its regret on held-out buckets is smaller than that of the nearest bucket. If fewer than _MANY
# buckets were measured and the nearest bucket's regret exceeds _GOOD_PPM, a list is used unless it is worse beyond
# chance: on recorded times, lists were usually better in this case.
_MANY = 12
_GOOD_PPM = 20_000
# The grid has at most _GRID sizes, and extends _BEYOND octaves beyond the measured sizes.
_GRID = 400
_BEYOND = 1
# Without a model, the expected regret grows with the distance to the nearest measured size, by a factor within these
# limits.
_LEAST_FACTOR, _MOST_FACTOR = 0.5, 3.0
# The model's regrets are corrected by the quotient of true and predicted regrets at held-out sizes, within these
# limits.
_LEAST_RIGHT, _MOST_RIGHT = 0.25, 2.0


def regret_ppm(sample: Sample, config: Config) -> int:
    """Returns the time of a config on a bucket beyond the winner's time, in millionths of the winner's time.

    0 if the config is faster than the winner.
    """
    times, best = dict(sample.times), sample.best_ns
    if config in times:
        return max(times[config] - best, 0) * PPM // best
    return max(_UNKNOWN_PPM, (max(times.values()) - best) * PPM // best)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted rule for unmeasured sizes: the decision list ``unseen``, or None for the rule of the nearest bucket.

    A regret is a time beyond the best config's time, relative to that time. ``list_ppm`` and ``nearest_ppm`` are the
    mean regrets of a list and of the nearest bucket on held-out buckets, in millionths. ``held_out`` is the regret of
    the chosen rule on each held-out bucket, in the order of :func:`ordered`; empty if there are too few buckets to hold
    one out. ``foretold`` is the regret that ``model`` predicted for the same choices; empty without a model.
    """

    unseen: DecisionList | None
    list_ppm: int | None
    nearest_ppm: int | None
    reason: str
    held_out: tuple[int, ...] = ()
    model: LossModel | None = field(default=None, compare=False, repr=False)
    foretold: tuple[int, ...] = ()


def ordered(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Returns the samples in the canonical order of their buckets."""
    return tuple(sorted(samples, key=lambda sample: canonical_json(bucket_to_json(sample.bucket))))


def fit_unseen(key: Sequence[str], samples: Sequence[Sample], configs: Sequence[Config]) -> Fitted:
    """Fits a decision list that chooses among ``configs``, and compares it with the rule of the nearest bucket. Pure.

    If the key has a value that is not a natural number, no list is fitted.
    """
    distinct = ConfigSet(configs).listed
    return _fit(tuple(key), ordered(samples), tuple(sorted(distinct, key=lambda config: config.order_key)))


def fitted_rules(
    key: Sequence[str],
    table: Mapping[Bucket, Config],
    fallback: Config,
    samples: Sequence[Sample],
    allowed: Sequence[Config] | None = None,
    objective: str = "",
) -> DispatchRules:
    """Makes the dispatch rules of a table of measured buckets.

    The rules have a decision list if ``samples`` cover exactly the table's buckets and the list chooses better than the
    rule of the nearest bucket. The list chooses among ``allowed``, by default the configs of the table. ``objective``
    names the metric and the constraints that the configs were chosen by; "" is time.
    """
    covered = {canonical_json(bucket_to_json(sample.bucket)) for sample in samples}
    is_complete = len(samples) == len(table) and covered == {canonical_json(bucket_to_json(bucket)) for bucket in table}
    configs = tuple(table.values()) if allowed is None else tuple(allowed)
    unseen = fit_unseen(key, samples, configs).unseen if is_complete else None
    return DispatchRules.of(key, table, fallback, unseen, objective)


# A leaf of the tree: for each argument the bounds of its box, ``above < value <= most``, and the config for this box.
_Leaf = tuple[tuple[tuple[int | None, int | None], ...], Config]
_Row = tuple[tuple[int, ...], tuple[int, ...]]  # the key's values of a bucket, and the loss of each config there


@lru_cache(maxsize=64)
def _fit(key: tuple[str, ...], samples: tuple[Sample, ...], allowed: tuple[Config, ...]) -> Fitted:
    if not key or len(samples) < _FEWEST:
        return Fitted(None, None, None, f"{len(samples)} measured buckets are too few to fit anything")
    numbers = range(len(samples))
    nearest = _regrets_of(samples, [_nearest_left_out(samples, number) for number in numbers])
    nearest_ppm = sum(nearest) // len(samples)

    def stays(reason: str) -> Fitted:
        return Fitted(None, None, nearest_ppm, reason, nearest)

    if not is_modelled(samples):
        return stays("the key holds more than natural numbers")
    if len({sample.winner for sample in samples}) < 2 or len(allowed) < 2:
        return stays("one config is best everywhere")
    if not has_numpy():
        text = "numpy is not installed, so sizes that were not measured get the config of the nearest measured one"
        _notices.once(text, text)
        return stays("numpy is not installed")
    model = LossModel(samples)
    places = [at for at, config in enumerate(model.configs) if config in allowed]
    if len(places) < 2:
        return stays("one config is best everywhere")
    leaves, extra_ppm, plain_extra_ppm = _leaves(model, places)
    choices = [_predicted(model, number, allowed) for number in numbers]
    listed = tuple(regret + extra_ppm for regret in _regrets_of(samples, choices))
    winners = tuple(config for config in allowed if config in {sample.winner for sample in samples})
    plain_choices = [_grown_choice(samples, number, winners) for number in numbers]
    plain = tuple(regret + plain_extra_ppm for regret in _regrets_of(samples, plain_choices))
    if _better([model_ppm - plain_ppm for model_ppm, plain_ppm in zip(listed, plain, strict=True)]):
        leaves, listed, choices = _measured_leaves(samples, winners), plain, plain_choices
    list_ppm = sum(listed) // len(samples)
    compared = f"{_percent(list_ppm)} against {_percent(nearest_ppm)} slower than the best on held-out buckets"
    doubtful = len(samples) < _MANY and nearest_ppm > _GOOD_PPM
    worse = _errors([listed_loss - nearest_loss for listed_loss, nearest_loss in zip(listed, nearest, strict=True)], 1)
    if list_ppm >= nearest_ppm and (not doubtful or worse):
        reason = f"the nearest bucket: a list is {compared}"
        foretold = _foretold(model, [_nearest_left_out(samples, number) for number in numbers])
        return Fitted(None, list_ppm, nearest_ppm, reason, nearest, model, foretold)
    reason = f"a decision list: {compared} by the nearest one"
    return Fitted(_flat(key, leaves), list_ppm, nearest_ppm, reason, listed, model, _foretold(model, choices))


def _regrets_of(samples: Sequence[Sample], choices: Sequence[Config]) -> tuple[int, ...]:
    return tuple(regret_ppm(sample, config) for sample, config in zip(samples, choices, strict=True))


def _foretold(model: LossModel, choices: Sequence[Config]) -> tuple[int, ...]:
    """Returns the regret that the model expects of the config chosen for each bucket, when that bucket is held out."""
    return tuple(model.held_out(number).get(config, _UNKNOWN_PPM) for number, config in enumerate(choices))


def _measured_leaves(samples: Sequence[Sample], configs: tuple[Config, ...]) -> list[_Leaf]:
    """Grows leaves from the measured buckets alone, without the model.

    If the times of all configs change at one size, the model would smooth the change out.
    """
    rows = [
        (_numbers(sample.bucket), tuple(_measured_loss(sample, config) for config in configs)) for sample in samples
    ]
    return _grow(rows, configs, ((None, None),) * len(rows[0][0]), _PLAIN_DEPTH)


def _measured_loss(sample: Sample, config: Config) -> int:
    regret = regret_ppm(sample, config)
    return regret * PPM // (PPM + regret)


def _grown_choice(samples: Sequence[Sample], number: int, configs: tuple[Config, ...]) -> Config:
    """Returns the config for bucket ``number`` by leaves that were grown from all other buckets."""
    leaves = _measured_leaves([*samples[:number], *samples[number + 1 :]], configs)
    return _choice(leaves, _numbers(samples[number].bucket))


def _better(saved_ppm: Sequence[int]) -> bool:
    """Returns whether the mean saving is at least ``_WORTH_PPM``, and more than ``_STANDARD_ERRORS`` above zero."""
    return sum(saved_ppm) >= _WORTH_PPM * len(saved_ppm) and _errors(saved_ppm, _STANDARD_ERRORS)


def _leaves(model: LossModel, config_indices: Sequence[int]) -> tuple[list[_Leaf], int, int]:
    """Grows leaves over a grid of sizes, for a few of the configs at the indices ``config_indices`` of the model.

    Returns the leaves and two mean excess regrets over the grid, in millionths, as the model predicts them: of the
    leaves, and of leaves grown from the measured buckets alone. The excess regret at a size is the regret of the chosen
    config minus the least regret of any config at ``config_indices``.
    """
    numbers = [_numbers(sample.bucket) for sample in model.samples]
    grid = _grid(numbers)
    winners = {sample.winner for sample in model.samples}
    unproven = unproven_ppm(model.configs, winners)
    predicted = [[*map(int.__add__, model.predict(sizes), unproven)] for sizes in grid]
    few = [config_indices[at] for at in _cover([[losses[at] for at in config_indices] for losses in predicted])]
    rows = [(_numbers(sizes), tuple(losses[at] for at in few)) for sizes, losses in zip(grid, predicted, strict=True)]
    configs = tuple(model.configs[at] for at in few)
    leaves = _grow(rows, configs, ((None, None),) * len(numbers[0]), _DEPTH)
    fewest = sum(min(losses[at] for at in config_indices) for losses in predicted)
    chosen = sum(losses[configs.index(_choice(leaves, sizes))] for sizes, losses in rows)
    plain = _measured_leaves(
        model.samples, tuple(model.configs[at] for at in config_indices if model.configs[at] in winners)
    )
    index = {config: at for at, config in enumerate(model.configs)}
    elsewhere = sum(
        losses[index[_choice(plain, _numbers(sizes))]] for sizes, losses in zip(grid, predicted, strict=True)
    )
    return leaves, (chosen - fewest) // len(rows), (elsewhere - fewest) // len(rows)


def _choice(leaves: Sequence[_Leaf], sizes: Sequence[int]) -> Config:
    return next(
        config
        for box, config in leaves
        if all(
            (low is None or size > low) and (high is None or size <= high)
            for size, (low, high) in zip(sizes, box, strict=True)
        )
    )


def _errors(values_ppm: Sequence[int], errors: int) -> bool:
    """Returns whether the mean exceeds zero by more than ``errors`` times its standard error. Computes in integers."""
    count, total = len(values_ppm), sum(values_ppm)
    # The test is mean > errors * sqrt(variance / count), where variance = (sum of squares - total^2 / count) /
    # (count - 1). Both sides are squared and multiplied out.
    scatter = sum(value * value for value in values_ppm) * count - total * total
    return total > 0 and total * total * (count - 1) > errors * errors * scatter


def _nearest_left_out(samples: Sequence[Sample], number: int) -> Config:
    """Returns the winner of the other bucket that is nearest to bucket ``number``."""
    return _nearest(samples[number], [*samples[:number], *samples[number + 1 :]])


def _predicted(model: LossModel, number: int, allowed: Sequence[Config]) -> Config:
    """Returns the config that the model would choose for bucket ``number`` if this bucket had not been measured.

    Only configs that were tried on this bucket can be chosen, because the regret of the others is unknown. If
    ``allowed`` holds only winners of measured buckets, only winners of the other buckets can be chosen.
    """
    winners = {other.winner for at, other in enumerate(model.samples) if at != number}
    every_winner = {sample.winner for sample in model.samples}
    eligible = winners.intersection(allowed) if all(config in every_winner for config in allowed) else set(allowed)
    losses = {config: loss for config, loss in held_out_losses(model, number).items() if config in eligible}
    if not losses:
        return _nearest_left_out(model.samples, number)
    return min(losses, key=lambda config: (losses[config], config.order_key))


def held_out_losses(model: LossModel, number: int) -> dict[Config, int]:
    """Returns the losses by which to choose among the configs of bucket ``number``, as if it had not been measured.

    Only configs that other buckets tried too are included. A loss is the regret that the other buckets predict, in
    millionths. A config that won at no other bucket gets 2 % (``UNPROVEN_PPM``) added, because it must be predicted
    better than a winner by that much.
    """
    others = [*model.samples[:number], *model.samples[number + 1 :]]
    tried = {config for other in others for config, _ in other.times}
    regrets = {config: regret for config, regret in model.held_out(number).items() if config in tried}
    leads = unproven_ppm(regrets, {other.winner for other in others})
    return {config: regret + lead for (config, regret), lead in zip(regrets.items(), leads, strict=True)}


def _numbers(bucket: Bucket) -> tuple[int, ...]:
    return tuple(value for value in bucket if isinstance(value, int))


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.1f} %"


def _nearest(sample: Sample, others: Sequence[Sample]) -> Config:
    """Returns the winner of the bucket that is nearest to the sample's: the rule of a table without a decision list.

    ``others`` are in canonical order, so the first of equally near buckets decides.
    """

    def apart(other: Sample) -> float:
        gap = distance(sample.bucket, other.bucket)
        return math.inf if gap is None else gap

    return min(others, key=apart).winner


def _grid(measured: Sequence[tuple[int, ...]]) -> list[Bucket]:
    """Returns a grid of buckets: on each axis the measured values, and powers of two up to an octave beyond them."""
    axes: list[list[int]] = []
    for values in zip(*measured, strict=True):
        low, high = max(min(values), 1) >> _BEYOND, max(values) << _BEYOND
        powers = [1 << power for power in range(max(low, 1).bit_length() - 1, high.bit_length())]
        (*bucket_values,) = bucket_of(sorted({*powers, *values}))
        axes.append(sorted({size for size in bucket_values if isinstance(size, int)}))
    while math.prod(map(len, axes)) > _GRID and any(len(axis) > 3 for axis in axes):
        longest = max(axes, key=len)
        longest[:] = [*longest[:-1:2], longest[-1]]
    return [ExactTuple(sizes) for sizes in product(*axes)]


def _cover(rows: Sequence[Sequence[int]]) -> list[int]:
    """Chooses a few columns (configs) so that the sum, over the rows (sizes), of the least chosen loss is small.

    Greedy: each further column is the one that lowers the sum most.
    """
    chosen: list[int] = []
    smallest = [max(row) for row in rows]
    while len(chosen) < _MOST_WINNERS:
        totals = [sum(map(min, smallest, column)) for column in zip(*rows, strict=True)]
        best = min(range(len(totals)), key=lambda at: (totals[at], at))
        if chosen and sum(smallest) - totals[best] < _WORTH_PPM * len(rows):
            break
        chosen.append(best)
        smallest = [min(before, row[best]) for before, row in zip(smallest, rows, strict=True)]
    return chosen


def _grow(
    rows: Sequence[_Row],
    configs: tuple[Config, ...],
    box: tuple[tuple[int | None, int | None], ...],
    depth: int,
) -> list[_Leaf]:
    """Grows the leaves of one box of sizes, by the split that lowers the total loss of its rows most."""
    totals = [sum(column) for column in zip(*(losses for _, losses in rows), strict=True)]
    best = min(range(len(configs)), key=lambda number: (totals[number], configs[number].order_key))
    if depth == 0:
        return [(box, configs[best])]
    best_split: tuple[int, int, int] | None = None  # total loss, axis, bound
    for axis in range(len(box)):
        ascending = sorted(rows, key=lambda row, axis=axis: row[0][axis])
        low = [0] * len(configs)
        for (sizes, losses), (following, _) in pairwise(ascending):
            low = [total + loss for total, loss in zip(low, losses, strict=True)]
            if sizes[axis] != following[axis]:
                cost = min(low) + min(total - part for total, part in zip(totals, low, strict=True))
                if best_split is None or cost < best_split[0]:
                    best_split = (cost, axis, _between(sizes[axis], following[axis]))
    if best_split is None or best_split[0] > totals[best] - _WORTH_PPM:
        return [(box, configs[best])]
    _, axis, bound = best_split
    above, end = box[axis]
    lower = (*box[:axis], (above, bound), *box[axis + 1 :])
    upper = (*box[:axis], (bound, end), *box[axis + 1 :])
    return [
        *_grow([row for row in rows if row[0][axis] <= bound], configs, lower, depth - 1),
        *_grow([row for row in rows if row[0][axis] > bound], configs, upper, depth - 1),
    ]


def _between(small: int, large: int) -> int:
    """Returns the bound between two buckets: the largest bucket that is no nearer to ``large`` than to ``small``."""
    bound = small
    while True:
        (following,) = bucket_of((bound + 1,))
        assert isinstance(following, int)
        if following >= large or (distance((following,), (small,)) or 0) > (distance((following,), (large,)) or 0):
            return bound
        bound = following


def _flat(key: tuple[str, ...], leaves: Sequence[_Leaf]) -> DecisionList:
    """Makes a decision list of the leaves.

    The last step has no bounds, because the other steps cover all other boxes.
    """
    steps = [
        Step(
            tuple(
                Bound(name, low, high)
                for name, (low, high) in zip(key, box, strict=True)
                if low is not None or high is not None
            ),
            config,
        )
        for box, config in leaves
    ]
    last = Step((), steps.pop().config)
    while steps and steps[-1].config == last.config:
        steps.pop()
    return DecisionList((*steps, last))


# ---- The loss to expect at sizes that were not measured, and the sizes to measure next ----


@dataclass(frozen=True, slots=True)
class Expectation:
    """The config chosen for an unmeasured size, and its expected regret in millionths of the best config's time.

    ``regret_ppm`` is None if too few sizes were measured to hold one out. ``exact`` means that the size was measured,
    but only for calls with other alignments.
    """

    config: Config
    regret_ppm: int | None
    reason: str
    exact: bool

    def __str__(self) -> str:
        if self.exact:
            return "predicted: this size was measured for other alignments"
        if self.regret_ppm is None:
            return f"predicted ({self.reason}); the loss is unknown, because too few sizes were measured"
        return f"predicted ({self.reason}): about {_percent(self.regret_ppm)} slower than its own winner would be"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A size worth measuring: its bucket, the expected regret of the present choice in millionths, and the reason.

    ``regret_ppm`` is None if the regret is unknown.
    """

    bucket: Bucket
    regret_ppm: int | None
    reason: str


@dataclass(frozen=True)
class Generalization:
    """The dispatch rules of a kernel's measured sizes, and the quality of their choices at other sizes."""

    rules: DispatchRules
    samples: tuple[Sample, ...]
    fitted: Fitted

    def expect(self, values: Bucket) -> Expectation:
        """Returns the config for a size that was not measured, with its expected regret. Pure.

        With a model, the expected regret is the model's prediction for this config and size, corrected by the quotient
        of true and predicted regrets at held-out sizes. Without a model, it is the mean regret of the held-out sizes,
        weighted by their nearness, times a factor that grows with the distance to the nearest measured size.
        """
        match = self.rules.lookup(values)
        expected = self.expected_ppm(bucket_of(values), match.config)
        return Expectation(match.config, expected, match.reason, match.is_exact)

    def expected_ppm(self, bucket: Bucket, config: Config) -> int | None:
        """Returns the expected regret of a config at a size, in millionths; None if too few sizes were measured."""
        model, held_out = self.fitted.model, self.fitted.held_out
        if model is None or config not in model.configs:
            return _expected_ppm(bucket, self.samples, held_out)
        right = (sum(held_out) + _WORTH_PPM) / (sum(self.fitted.foretold) + _WORTH_PPM)
        return round(model.predict(bucket)[model.configs.index(config)] * min(max(right, _LEAST_RIGHT), _MOST_RIGHT))

    @property
    def text(self) -> str:
        """Text for people: the configs that cover unmeasured sizes, and the time that these choices lose."""
        configs = ConfigSet(step.config for step in self.fitted.unseen.steps) if self.fitted.unseen else ConfigSet(())
        few = f"{len(configs)} configs cover the other sizes ({'; '.join(map(str, configs))}): " if configs else ""
        return f"sizes that were not measured: {few}{self.fitted.reason}"


def generalize(
    key: Sequence[str],
    samples: Sequence[Sample],
    fallback: Config,
    allowed: Sequence[Config] | None = None,
    objective: str = "",
) -> Generalization:
    """Fits dispatch rules to at least one measured bucket, and estimates how much time they lose at other sizes.

    The arguments are the same as for :func:`fitted_rules`.
    """
    table = {sample.bucket: sample.winner for sample in samples}
    rules = fitted_rules(key, table, fallback, samples, allowed, objective)
    configs = tuple(table.values()) if allowed is None else tuple(allowed)
    return Generalization(rules, ordered(samples), fit_unseen(key, samples, configs))


def _expected_ppm(bucket: Bucket, samples: Sequence[Sample], held_out: Sequence[int]) -> int | None:
    near = [(octaves_apart(bucket, sample.bucket), sample) for sample in samples if _comparable(bucket, sample.bucket)]
    if not held_out or not near:
        return None
    weights = {sample.bucket: 1 / (1 + apart * apart) for apart, sample in near}
    regrets = [
        (weights[sample.bucket], regret)
        for sample, regret in zip(samples, held_out, strict=True)
        if sample.bucket in weights
    ]
    mean = sum(weight * regret for weight, regret in regrets) / sum(weight for weight, _ in regrets)
    usual = [
        min(octaves_apart(sample.bucket, other.bucket) for other in samples if other is not sample)
        for sample in samples
        if len(samples) > 1
    ]
    factor = (1 + min(apart for apart, _ in near)) / (1 + sum(usual) / len(usual))
    return round(mean * min(max(factor, _LEAST_FACTOR), _MOST_FACTOR))


def _comparable(bucket: Bucket, other: Bucket) -> bool:
    return distance(bucket, other) is not None


def suggest(generalization: Generalization, wanted: Sequence[Bucket], count: int) -> tuple[Suggestion, ...]:
    """Returns at most ``count`` sizes to measure next, the most worthwhile first. Pure.

    A size is worth more the larger its expected regret (time lost against the best config) and its distance to the
    measured sizes are; each suggested size counts as measured when the next is chosen. The sizes of cases (``wanted``)
    come first, then sizes in the middle between two measured ones.
    """
    samples = generalization.samples

    @cache
    def chosen_ppm(bucket: Bucket) -> int | None:
        return generalization.expect(bucket).regret_ppm

    measured = [sample.bucket for sample in samples]
    between = [_middle(a, b) for a, b in combinations(measured, 2)] if is_modelled(samples) else []
    suggestions: list[Suggestion] = []
    for candidates, origin in ((wanted, "a case"), (between, "between measured sizes")):
        candidates_left = [bucket for bucket in dict.fromkeys(map(bucket_of, candidates)) if bucket not in measured]
        while candidates_left and len(suggestions) < count:
            apart = {bucket: _distance_to(bucket, measured) for bucket in candidates_left}
            expected = {bucket: chosen_ppm(bucket) for bucket in candidates_left}
            best = max(candidates_left, key=lambda bucket: ((expected[bucket] or 0) * apart[bucket], apart[bucket]))
            reason = f"{origin}, {apart[best]:g} octaves from the nearest measured size"
            suggestions.append(Suggestion(best, expected[best], reason))
            measured.append(best)
            candidates_left.remove(best)
    return tuple(suggestions)


def _middle(bucket: Bucket, other: Bucket) -> Bucket:
    """Returns the bucket of the geometric mean of two sizes, axis by axis."""
    return bucket_of([math.isqrt(a * b) for a, b in zip(_numbers(bucket), _numbers(other), strict=True)])


def _distance_to(bucket: Bucket, measured: Sequence[Bucket]) -> float:
    return min(
        (
            octaves_apart(bucket, measured_bucket)
            for measured_bucket in measured
            if _comparable(bucket, measured_bucket)
        ),
        default=math.inf,
    )
