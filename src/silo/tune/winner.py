"""The winner: a view over trials, decided by a rule that depends on nothing but the set of trials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.plugins import threads_of_option
from silo.tune.statistics import FINALIST_PERMILLE, NOISE_LIMIT_PERMILLE, Estimate, estimate, indistinguishable
from silo.tune.trial import Stage, Status, Trial

__all__ = ["Standing", "Winner", "choose_winner", "disqualified", "finalists", "standings", "undecided"]

_RESOURCES = ("threads", "shared_bytes", "registers")
_UNKNOWN = 1 << 62  # an unknown resource counts as more than any known one

# Failures that say something of the artifact itself: no later success makes such a config fit to win. A compiler
# error or a time limit, on the other hand, may have been the machine's fault.
_DISQUALIFYING = frozenset((Status.WRONG, Status.RUN))


@dataclass(frozen=True, slots=True)
class Standing:
    """How one config did over all its trials; ``tied`` if its samples cannot be told from the fastest config's."""

    config: Config
    time: Estimate
    resources: tuple[int, ...]
    artifact: str
    tied: bool


@dataclass(frozen=True, slots=True)
class Winner:
    """The config to use, why, and who came next (fastest first)."""

    config: Config
    time: Estimate
    artifact: str
    reason: str
    runners_up: tuple[Standing, ...]

    @property
    def median_ns(self) -> int:
        """Its median time, nanoseconds for one launch."""
        return self.time.median_ns


def choose_winner(trials: Iterable[Trial]) -> Winner | None:
    """The winner among ``trials``, or None where no config can be used.

    The order of the trials does not matter, and a trial given twice counts once. Samples of a config's trials are
    pooled. Where finalists were compared with one another, only they can win, by the samples of those comparisons:
    samples taken side by side are not distorted by a machine that drifts. But a config measured later that leaves all
    of them so far behind that no comparison is needed (:func:`finalists`) makes theirs one of losers. Configs that
    cannot be told from the fastest are ranked by the threads, shared memory and registers they need, then by lexical
    order.
    """
    known = tuple(trials)
    usable = _usable(known)
    compared = [[trial for trial in pool if trial.stage is Stage.FINAL] for pool in usable]
    compared = [pool for pool in compared if pool]
    ranking = _rank(usable if _outrun(usable) else compared or usable)
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
            best, fastest, _Counts(len({one.config.order_key for one in known}), len(usable), len(ranking), len(tied))
        ),
        runners_up=tuple(standing for standing in ranking if standing is not best),
    )


def _outrun(usable: Iterable[list[Trial]]) -> bool:
    """Whether every config that was compared is out of reach of one that was not, as they did in the search."""
    medians: dict[bool, list[int]] = {False: [], True: []}
    for pool in usable:
        alone = [sample for trial in pool if trial.stage is Stage.SEARCH for sample in trial.samples_ns]
        if alone:
            medians[any(trial.stage is Stage.FINAL for trial in pool)].append(estimate(alone).median_ns)
    best = min(medians[False], default=None)
    if best is None or not medians[True]:
        return False
    return all(one * 1000 > best * (1000 + FINALIST_PERMILLE) for one in medians[True])


def disqualified(trials: Iterable[Trial]) -> bool:
    """Whether a trial of one config rules it out, however fast others of them were."""
    return any(trial.status in _DISQUALIFYING for trial in trials)


def standings(trials: Iterable[Trial]) -> tuple[Standing, ...]:
    """Every usable config with its pooled samples, fastest first; equal medians in lexical order."""
    return _rank(_usable(trials))


def finalists(trials: Iterable[Trial], count: int, deployed: Config | None = None) -> tuple[Config, ...]:
    """The configs worth comparing side by side: the fastest ``count`` of the search within 10 % of the best.

    As many again may be among them where samples are noisy (the best median is not sure to 1 %): those whose intervals
    overlap with the best one's, for the search says nothing of which is faster. One that is ``deployed`` is among them
    if it works, however it did.
    Fewer than two need no comparison, so then there are none.
    """
    ranking = standings(trial for trial in trials if trial.stage is Stage.SEARCH)
    if not ranking or count < 2:
        return ()
    best = ranking[0].time
    limit = best.median_ns * (1000 + FINALIST_PERMILLE)
    near = [standing for standing in ranking[:count] if standing.time.median_ns * 1000 <= limit]
    if best.noise_permille > NOISE_LIMIT_PERMILLE:
        near += [one for one in ranking[: 2 * count] if one.time.low_ns <= best.high_ns and one not in near]
    if deployed is not None:
        near += [one for one in ranking if one.config.order_key == deployed.order_key and one not in near]
    return tuple(standing.config for standing in near) if len(near) > 1 else ()


def undecided(trials: Iterable[Trial]) -> tuple[Config, ...]:
    """The compared configs whose samples do not say which is the fastest, though their medians differ; or none.

    Their intervals overlap with that of the fastest, and one at least is further behind than a tie is: to compare these
    again takes few samples, and what is picked then is no matter of noise.
    """
    ranking = standings(trial for trial in trials if trial.stage is Stage.FINAL)
    near = [one for one in ranking if one.time.low_ns <= ranking[0].time.high_ns]
    return tuple(one.config for one in near) if any(not one.tied for one in near) else ()


def _usable(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The distinct successful trials of each config that no trial disqualifies."""
    distinct = {trial.identity: trial for trial in trials}.values()
    pools: dict[bytes, list[Trial]] = {}
    for trial in distinct:
        if trial.status is Status.OK:
            pools.setdefault(trial.config.order_key, []).append(trial)
    for trial in distinct:
        if trial.status in _DISQUALIFYING:
            pools.pop(trial.config.order_key, None)
    return list(pools.values())


def _rank(pools: Iterable[list[Trial]]) -> tuple[Standing, ...]:
    rows = [(estimate([sample for trial in pool for sample in trial.samples_ns]), pool) for pool in pools]
    rows.sort(key=lambda row: (row[0].median_ns, row[1][0].config.order_key))
    return tuple(
        Standing(
            config=pool[0].config,
            time=time,
            resources=_resources(pool[0].config, pool),
            artifact=min(trial.artifact for trial in pool),
            tied=indistinguishable(rows[0][0], time),
        )
        for time, pool in rows
    )


def _resources(config: Config, pool: Iterable[Trial]) -> tuple[int, ...]:
    counts: dict[str, int] = {}
    for trial in pool:
        for name, count in trial.resources:
            counts[name] = max(count, counts.get(name, 0))
    return (counts.get("threads", _declared_threads(config)), *(counts.get(name, _UNKNOWN) for name in _RESOURCES[1:]))


def _declared_threads(config: Config) -> int:
    """The threads of a block, as the config's options say them by their declarations."""
    for name, value in config.options:
        each = threads_of_option(name)
        if each and isinstance(value, int):
            return value * each
    return _UNKNOWN


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many configs have a trial, how many of them work, how many of these may win, how many lead."""

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
    return f"needs least of {counts.tied} configs that cannot be told apart, out of {counts.usable} ({where})"
