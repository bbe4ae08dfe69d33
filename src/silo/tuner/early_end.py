"""The decision to end a search early, because no unmeasured config is likely to be faster than the best one.

A model of the measured times (:mod:`silo.tuner.search.model`) predicts the time of every other config, with its
uncertainty. The sum of the expected gains of these configs is an upper bound of the gain to expect from the best of
them, however their times are correlated.

If other sizes of the kernel were measured, their trials may predict a shortlist well enough to end the search after it
(:mod:`silo.tuner.shortlist`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev

from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.host_arrays import has_numpy

__all__ = ["MOST_CONFIGS", "EarlyEnd", "known_well_enough", "shortlist_measured", "unconfirmed"]

# In a larger space, computing the features of the configs takes longer than measuring a config.
MOST_CONFIGS = 1024
# Times above this quantile are set to it before the model learns them: the exact time of a bad config predicts nothing.
_CLIP = 0.8
_BEST = 2


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """The limits that decide whether a search ends early.

    Attributes:
        first: The number of configs to measure before a model chooses the next ones.
        least: The number of configs that are measured in any case.
        gain: The search ends if the unmeasured configs are expected to gain less than this fraction of the best time.
            Measured times whose logarithms have a smaller standard deviation count as equal.
        noisy_gain: The same limit on a machine so noisy that smaller gains could not be seen.
        shortlist: Once these configs are measured, the search ends if one of them works, however few they are.
            Empty without a shortlist.
    """

    first: int = 8
    least: int = 12
    gain: float = 0.03
    noisy_gain: float = 0.1
    shortlist: tuple[Config, ...] = ()


def known_well_enough(
    configs: Sequence[Config],
    costs: Mapping[bytes, float | None],
    rule: EarlyEnd = EarlyEnd(),  # the default is shared, which is safe because EarlyEnd is frozen
    estimates: Mapping[bytes, float] | None = None,
    noise: float = 0.0,
) -> Decision:
    """Decides whether the best of the measured ``configs`` is known well enough to end the search. Pure.

    Args:
        configs: The space, without the configs that must not be measured.
        costs: The measured times by ``Config.order_key``; None for a config that failed.
        rule: The limits.
        estimates: For each config, a positive number that its time may depend on, such as its number of programs.
        noise: The uncertainty of the best time, as a fraction of it. A smaller gain could not be seen, so the search
            may also end if the expected gain is below ``noise`` and below ``rule.noisy_gain``.
    """
    measured = [at for at, config in enumerate(configs) if config.order_key in costs]
    unmeasured = len(configs) - len(measured)
    if len(measured) < rule.least:
        return Rejected(f"{len(measured)} configs are measured, and {rule.least} are in any case")
    if not unmeasured:
        return Accepted("every config is measured")
    if len(configs) > MOST_CONFIGS:
        return Rejected(f"a model of {len(configs)} configs would take too long")
    costs_known = [costs[configs[at].order_key] for at in measured]
    if all(cost is None for cost in costs_known):
        return Rejected("no config works so far")
    if not has_numpy():
        return Rejected("numpy, which predicts the other configs, is not installed")
    gain = _expected_gain(configs, measured, costs_known, estimates)
    expected = f"the other {unmeasured} of {len(configs)} configs are expected to gain {100 * gain:.1f} % at most"
    if gain < rule.gain:
        return Accepted(expected)
    if gain < min(noise, rule.noisy_gain):
        return Accepted(f"{expected}, and the best time is known to {100 * noise:.0f} %")
    return Rejected(expected)


def shortlist_measured(
    configs: Sequence[Config], costs: Mapping[bytes, float | None], rule: EarlyEnd = EarlyEnd()
) -> Decision:
    """Decides whether the search ends because all shortlisted configs are measured, and one of them works. Pure.

    ``configs`` and ``costs`` are as in :func:`known_well_enough`; ``rule.shortlist`` holds the shortlisted configs.
    """
    if not rule.shortlist:
        return Rejected("other sizes predict no shortlist")
    wanted = {config.order_key for config in rule.shortlist} & {config.order_key for config in configs}
    if left := sum(key not in costs for key in wanted):
        return Rejected(f"{left} of the {len(rule.shortlist)} configs that other sizes predict are not measured")
    if all(costs[key] is None for key in wanted):
        return Rejected("no config that other sizes predict works")
    rest = len(configs) - len(wanted)
    return Accepted(f"other sizes predict that one of {len(wanted)} configs is as fast as the other {rest}, or nearly")


def unconfirmed(
    configs: Sequence[Config],
    costs: Mapping[bytes, float | None],
    rule: EarlyEnd = EarlyEnd(),
) -> tuple[Config, ...]:
    """Returns the unmeasured configs one step away from the two fastest measured ones. Pure.

    They are measured before a search ends early: a model that learnt from few times is smooth, and cannot predict that
    times drop at some size, for example at the first block that holds a whole row. Two configs are taken because noise
    may have exchanged the best two. Returns an empty tuple if fewer than two configs work, or if their times are nearly
    equal: then the parameters that were varied do not matter.
    """
    from silo.core.lattice import Lattice  # noqa: PLC0415  # imports numpy, which is slow to import

    known_costs = {at: cost for at, config in enumerate(configs) if (cost := costs.get(config.order_key)) is not None}
    fastest = sorted(known_costs, key=lambda at: (known_costs[at], at))
    log_costs = [math.log(max(known_costs[at], 1e-3)) for at in fastest[: math.ceil(_CLIP * len(fastest))]]
    if len(log_costs) < 2 or pstdev(log_costs) < rule.gain:
        return ()
    lattice = Lattice(tuple(configs))
    near = dict.fromkeys(at for best in fastest[:_BEST] for at in lattice.neighbours(best))
    return tuple(configs[at] for at in near if configs[at].order_key not in costs)


def _expected_gain(
    configs: Sequence[Config],
    measured: Sequence[int],
    costs: Sequence[float | None],
    estimates: Mapping[bytes, float] | None,
) -> float:
    """Returns the sum of the expected gains of all unmeasured configs, as a fraction of the best time.

    ``measured`` holds the indices of the measured configs, and ``costs`` their times.
    """
    import numpy as np  # noqa: PLC0415  # slow to import, and only searches need it

    from silo.core.lattice import Lattice  # noqa: PLC0415
    from silo.tuner.search import model  # noqa: PLC0415

    logarithms = np.array([math.nan if cost is None else math.log(max(cost, 1e-3)) for cost in costs])
    values = np.fmin(logarithms, np.quantile(logarithms[~np.isnan(logarithms)], _CLIP))
    spread = float(values.std())
    if spread == 0:
        return 0.0
    values = (values - values.mean()) / spread
    points = model.features(Lattice(tuple(configs)))
    if estimates is not None:
        column = np.log2([max(estimates.get(config.order_key, 1.0), 1e-9) for config in configs])
        width = float(np.ptp(column))
        points = np.hstack([points, ((column - column.min()) / (width or 1.0))[:, None]])
    others = sorted(set(range(len(configs))) - set(measured))
    known_points = points[list(measured)]
    with model.one_thread():
        kernel = model.fit_kernel(known_points, values)
        # Leave-one-out errors: each measured value minus its prediction from the other values, in standard deviations
        # of that prediction. If they are larger than the model expects, the model's deviations are raised.
        inverse = np.linalg.inv(kernel.covariance(known_points))
        misses = inverse @ values / np.sqrt(np.diag(inverse))
        posterior = model.Posterior(kernel, points[others])
        posterior.extend(known_points)
        prediction = posterior.predict(values)
        doubt = max(1.0, float(np.sqrt((misses**2).mean())))
        prediction = model.Prediction(prediction.mean, prediction.deviation * doubt)
        gains = model.expected_improvement(prediction, float(values.min()))
    return -math.expm1(-float(gains.sum()) * spread)
