"""Explains, field by field, why stored results are used for a study or why they are not."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from silo.core.config import Config, ConfigSet
from silo.core.search_space import SearchSpace
from silo.text_tables import format_time
from silo.tuner.objective import TIME, Objective
from silo.tuner.search.searchers import DEFAULT_SEARCHER, make_searcher
from silo.tuner.seeds import Neighbour, Seed
from silo.tuner.spilling import SpillingConfig, ranked
from silo.tuner.statistics import Scales, median
from silo.tuner.trial import Stage, Status, Study, Trial
from silo.tuner.winner import Winner, choose_winner, doubt

__all__ = ["Explanation", "explain_study", "near_lines"]


@dataclass(frozen=True)
class Explanation:
    """The stored knowledge about one study before it is tuned.

    ``known`` configs of the space have trials and are not measured again; ``new`` configs will be measured. ``failed``
    holds the reason why a known config cannot win. ``near`` are studies whose trials do not count here, nearest first;
    ``seeds`` are the configs that they suggest. ``lock`` is the lock's advice, "" without a lock. ``aside`` are configs
    that spill and were not measured: they are neither known nor new, and a session with the same options skips them.
    For a space of groups, at most ``at_most`` configs are measured, and ``new`` are only the configs of the next group,
    because later groups depend on them. ``doubt`` is the reason why noise may have decided the winner
    (:mod:`silo.tuner.winner`), or "". ``unseen`` describes the config that the measured sizes predict for this size,
    with its expected loss; "" if this size was measured or no other size was.
    """

    study: Study
    known: tuple[Config, ...]
    new: tuple[Config, ...]
    failed: tuple[tuple[Config, str], ...]
    winner: Winner | None
    near: tuple[Neighbour, ...]
    seeds: tuple[Seed, ...]
    lock: str = ""
    aside: tuple[SpillingConfig, ...] = ()
    at_most: int | None = None
    doubt: str = ""
    unseen: str = ""

    @property
    def text(self) -> str:
        """The explanation as several lines of text for people."""
        lines = [f"{self.study} ({self.study.device}), study {self.study.key[:12]}", f"  {self._coverage}"]
        if self.winner is not None:
            time = format_time(self.winner.median_ns)
            lines.append(f"  winner {self.winner.config} at {time}: {self.winner.reason}")
        lines += [f"  doubt: {self.doubt}"] if self.doubt else []
        lines += [f"  without measuring: {self.unseen}"] if self.unseen else []
        lines += [f"  {config} cannot win: {why}" for config, why in self.failed]
        lines += [
            f"  {spilling.config} is set aside: {spilling.spills} values of a thread spill" for spilling in self.aside
        ]
        if self.lock:
            lines.append(f"  lock: {self.lock}")
        lines += near_lines(self.near, compared=False)
        lines += [f"  seed {seed.config}: {seed.reason}" for seed in self.seeds]
        return "\n".join(lines)

    @property
    def _coverage(self) -> str:
        total = len(self.known) + len(self.new)
        if not self.known:
            many = f"all {total} configs are new" if self.at_most is None else f"at most {self.at_most}, group by group"
            return f"nothing was measured for this study: {many}"
        if not self.new and self.at_most is None:
            return f"all {total} configs were measured: nothing would be measured"
        if not self.new:
            return f"{total} configs were measured, all that its groups lead to: nothing would be measured"
        if self.at_most is None:
            return f"{len(self.known)} of {total} configs were measured; new: {_some(self.new)}"
        return f"{len(self.known)} configs were measured; next of its groups: {_some(self.new)}"

    def to_json(self) -> dict[str, object]:
        """Returns the explanation as JSON, for programs."""
        return {
            "study": str(self.study),
            "key": self.study.key,
            "kernel": self.study.kernel,
            "known": [str(config) for config in self.known],
            "new": [str(config) for config in self.new],
            "at_most": self.at_most,
            "failed": {str(config): why for config, why in self.failed},
            "winner": None if self.winner is None else str(self.winner.config),
            "doubt": self.doubt,
            "unseen": self.unseen,
            "lock": self.lock,
            "set_aside": {str(item.config): item.spills for item in self.aside},
            "near": [
                {
                    "study": str(item.study),
                    "winner": None if item.winner is None else str(item.winner.config),
                    "differences": [
                        {"field": difference.field, "here": difference.ours, "there": difference.theirs}
                        for difference in item.differences
                    ],
                }
                for item in self.near
            ],
            "seeds": [{"config": str(seed.config), "reason": seed.reason} for seed in self.seeds],
        }


def explain_study(
    study: Study,
    space: SearchSpace,
    trials: Sequence[Trial],
    near: Sequence[Neighbour],
    seeded: Sequence[Seed],
    lock: str = "",
    refined: Container[Config] = (),
    spilling_configs: Sequence[SpillingConfig] = (),
    objective: Objective = TIME,
) -> Explanation:
    """Explains ``study`` by its own ``trials`` and by the similar studies ``near``. Pure.

    A trial of a ``refined`` config counts like a trial of a config of the space. ``Explanation.new``, the configs that
    will be measured, has the configs of the space without a trial, except ``spilling_configs``, which are not measured
    because they spill.
    """
    own = [trial for trial in trials if trial.config in space or trial.config in refined]
    tried = ConfigSet(trial.config for trial in own)
    above = ranked(spilling_configs, space)
    untried = [item for item in above if item.config not in tried]
    skipped = ConfigSet(item.config for item in untried)
    by_groups = space.grouped is not None
    wanted_configs = _next(space, study, own, ConfigSet(item.config for item in above)) if by_groups else space.listed
    tried_configs = [config for config in space.listed if config in tried]
    failed = {trial.config.order_key: trial for trial in own if trial.status is not Status.OK}
    return Explanation(
        study=study,
        known=ConfigSet((*tried_configs, *tried)).listed,
        new=tuple(config for config in wanted_configs if config not in tried and config not in skipped),
        failed=tuple(
            (trial.config, f"{trial.status.value}: {_first_line(trial.message)}") for trial in failed.values()
        ),
        winner=choose_winner(own, objective),
        near=tuple(near),
        seeds=tuple(seeded),
        lock=lock,
        aside=tuple(untried),
        at_most=space.effort if by_groups else None,
        doubt=doubt(own),
    )


def _next(space: SearchSpace, study: Study, trials: Sequence[Trial], above: ConfigSet) -> Sequence[Config]:
    """Returns the configs that the default search of a space of groups measures next, after these trials.

    ``above`` are the configs that spill too much to be measured.
    """
    searcher, scales = make_searcher(DEFAULT_SEARCHER, space, study.key), Scales(trials)
    for config in above:
        searcher.observe(config, None)
    for config in ConfigSet(trial.config for trial in trials if trial.config in space and trial.config not in above):
        samples = [
            sample
            for trial in trials
            if trial.config.order_key == config.order_key and trial.stage is Stage.SEARCH
            for sample in scales.samples(trial)
        ]
        searcher.observe(config, float(median(samples)) if samples else None)
    return searcher.suggest(space.effort)


def near_lines(near: Sequence[Neighbour], limit: int = 4, *, compared: bool = True) -> list[str]:
    """Describes the nearest studies: for each, every difference that keeps the study's trials from counting here.

    ``compared``: whether, for studies that differ only in the compiler, the code of both compilers was compared and
    differs.
    """
    lines: list[str] = []
    for neighbour in near[:limit]:
        difference_text = " and ".join(dict.fromkeys(difference.what for difference in neighbour.differences))
        best = "" if neighbour.winner is None else f", winner {neighbour.winner.config}"
        count = f" ({neighbour.configs} configs{best})" if neighbour.configs else ""
        used = "not used" if compared or difference_text != "compiler" else "used if the code is the same"
        lines.append(f"  {used}: {neighbour.study}{count}: another {difference_text}")
        width = max(len(difference.field) for difference in neighbour.differences)
        for difference in neighbour.differences:
            lines.append(f"    {difference.field:{width}}  here   {difference.ours}")
            lines.append(f"    {'':{width}}  there  {difference.theirs}")
    if len(near) > limit:
        lines.append(f"  and {len(near) - limit} more that are further")
    return lines


def _some(configs: Sequence[Config], limit: int = 4) -> str:
    more_text = f" and {len(configs) - limit} more" if len(configs) > limit else ""
    return "; ".join(str(config) for config in configs[:limit]) + more_text


def _first_line(message: str) -> str:
    return message.splitlines()[0] if message else "no message"
