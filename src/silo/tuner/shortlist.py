"""The shortlist of an unmeasured size: a few configs, one of which is good if the other sizes predict well.

A single prediction is sometimes wrong, and a config that was chosen by it may be many times as slow as the best. So a
first call that may measure tries a few configs. The first is the choice of the dispatch rules. The others are chosen in
turns: a config that is fast where those before it may be slow, by joint draws of all losses from the loss model
(:mod:`silo.tuner.loss_model`), and the config with the least expected loss. For each size with many measured configs, a
shortlist is made from the other sizes alone, and the loss of its best config is computed. The mean of these losses
decides whether a search may end after the shortlist. Sizes with few measured configs, for example because their search
ended after a shortlist, do not count: their true winner is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from silo.core.config import Config
from silo.core.dispatch import Bucket, bucket_of
from silo.tuner.generalization import Generalization, held_out_losses, regret_ppm
from silo.tuner.loss_model import LossModel, unproven_ppm
from silo.tuner.statistics import PPM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

__all__ = ["Shortlist", "shortlist"]

_MOST = 5  # the most configs in a shortlist
# a size has many measured configs from this number on: the winner of so many is close to the best of the space
_MANY = 12
_FEWEST = 4  # with fewer sizes that have many measured configs, the loss of shortlists is not estimated
# A shortlist is complete when the best of its configs is expected to lose less than this.
_WORTH_PPM = 2_000
# A config that won at no size may be the only choice if its prediction is better than a winner's by a certain lead. To
# be added to a shortlist, it needs only this share of the lead, because another config is used if it turns out to be
# slow.
_UNPROVEN_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The configs to measure at a size, the dispatch rules' choice first.

    ``held_out_ppm`` is the mean regret of shortlists at measured sizes, each made from the other sizes: the time by
    which the shortlist's best config exceeds the size's best, in millionths of the latter time. None if too few sizes
    have many measured configs.
    """

    configs: tuple[Config, ...]
    held_out_ppm: int | None

    @property
    def reason(self) -> str:
        """A phrase for seeds: where the configs come from, and the mean loss of shortlists."""
        lost = "" if self.held_out_ppm is None else f", whose shortlists lost {self.held_out_ppm / 10_000:.1f} %"
        return f"predicted from other sizes{lost}"


def shortlist(generalization: Generalization, values: Bucket, space_size: int) -> Shortlist | None:
    """Returns the shortlist of a size, or None without a model of the sizes or if the size was measured. Pure.

    ``space_size`` is the number of configs of the space. A size has many measured configs if all configs of the space
    worked there, or at least ``_MANY`` (12).
    """
    model = generalization.fitted.model
    bucket = bucket_of(values)
    if model is None or any(sample.bucket == bucket for sample in generalization.samples):
        return None
    choice = generalization.rules.lookup(values).config
    if choice not in model.configs:
        return None
    unproven = unproven_ppm(model.configs, {sample.winner for sample in model.samples})
    chosen = _chosen(
        model.draws(bucket),
        [*map(int.__add__, model.predict(bucket), unproven)],
        unproven,
        model.configs.index(choice),
    )
    shown = [number for number, sample in enumerate(model.samples) if len(sample.times) >= min(_MANY, space_size)]
    held_out = [_held_out_ppm(model, number) for number in shown] if len(shown) >= _FEWEST else []
    mean = sum(held_out) // len(held_out) if held_out else None
    return Shortlist(tuple(model.configs[at] for at in chosen), mean)


def _held_out_ppm(model: LossModel, number: int) -> int:
    """Returns the regret, at one measured size, of the best config of a shortlist made from the other sizes."""
    sample = model.samples[number]
    others = [other for at, other in enumerate(model.samples) if at != number]
    losses = held_out_losses(model, number)
    if not losses:
        return regret_ppm(sample, others[0].winner)
    measured, draws = model.held_out_draws(number)
    eligible = [at for at, config in enumerate(measured) if config in losses]
    configs = tuple(measured[at] for at in eligible)
    expected = [losses[config] for config in configs]
    first = min(range(len(configs)), key=lambda at: (expected[at], configs[at].order_key))
    unproven = unproven_ppm(configs, {other.winner for other in others})
    return min(regret_ppm(sample, configs[at]) for at in _chosen(draws[:, eligible], expected, unproven, first))


def _chosen(draws: Array, expected_ppm: Sequence[int], unproven_ppm: Sequence[int], first: int) -> list[int]:
    """Returns the indices of at most ``_MOST`` configs, beginning with ``first``.

    The others are chosen in turns: the config that most lowers the mean, over the draws, of the least regret of the
    chosen configs; and the config with the least expected regret. ``draws`` are logarithms of regrets, a row for each
    draw and a column for each config.
    """
    import numpy as np  # noqa: PLC0415  # heavy, and few processes meet sizes that were not measured

    extra = np.array(unproven_ppm) * (_UNPROVEN_SHARE / PPM)
    ranking = sorted(range(len(expected_ppm)), key=lambda at: (expected_ppm[at], at))
    chosen = [first]
    while len(chosen) < min(_MOST, len(ranking)):
        least = draws[:, chosen].min(axis=1)
        if least.mean() * PPM < _WORTH_PPM:
            break
        if len(chosen) % 2:
            costs = np.minimum(draws, least[:, None]).mean(axis=0) + extra
            costs[chosen] = np.inf
            chosen.append(int(np.argmin(costs)))
        else:
            chosen.append(next(at for at in ranking if at not in chosen))
    return chosen
