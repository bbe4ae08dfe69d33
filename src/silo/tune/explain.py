"""Why kept results are or are not used for a study, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silo.core.config import Config
from silo.tune.nearness import Neighbour
from silo.tune.progress import format_time
from silo.tune.seeds import Seed
from silo.tune.spilling import SpillingConfig, ranked
from silo.tune.trial import Status, Study, Trial
from silo.tune.winner import Winner, choose_winner

__all__ = ["Explanation", "explain_study", "near_lines"]


@dataclass(frozen=True)
class Explanation:
    """What is known of one study before it is tuned.

    ``known`` configs of the space have trials and are not measured again, ``new`` ones are; ``failed`` says of a known
    one why it cannot win. ``near`` are studies whose trials do not count here, nearest first; ``seeds`` what they
    suggest. ``lock`` is what the lock says, "" without one. ``aside`` are configs that spill and were not measured:
    they are neither known nor new, and a session that is no different leaves them alone.
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

    @property
    def text(self) -> str:
        """For people, some lines."""
        total = len(self.known) + len(self.new)
        lines = [f"{self.study} ({self.study.device}), study {self.study.key[:12]}"]
        if not self.known:
            lines.append(f"  nothing was measured for this study: all {total} configs are new")
        elif not self.new:
            lines.append(f"  all {total} configs were measured: nothing would be measured")
        else:
            lines.append(f"  {len(self.known)} of {total} configs were measured; new: {_some(self.new)}")
        if self.winner is not None:
            time = format_time(self.winner.median_ns)
            lines.append(f"  winner {self.winner.config} at {time}: {self.winner.reason}")
        lines += [f"  {config} cannot win: {why}" for config, why in self.failed]
        lines += [f"  {one.config} is set aside: {one.spills} values of a thread spill" for one in self.aside]
        if self.lock:
            lines.append(f"  lock: {self.lock}")
        lines += near_lines(self.near)
        lines += [f"  seed {seed.config}: {seed.reason}" for seed in self.seeds]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """For programs: the same facts."""
        return {
            "study": str(self.study),
            "key": self.study.key,
            "kernel": self.study.kernel,
            "known": [str(config) for config in self.known],
            "new": [str(config) for config in self.new],
            "failed": {str(config): why for config, why in self.failed},
            "winner": None if self.winner is None else str(self.winner.config),
            "lock": self.lock,
            "set_aside": {str(one.config): one.spills for one in self.aside},
            "near": [
                {
                    "study": str(one.study),
                    "winner": None if one.winner is None else str(one.winner.config),
                    "differences": [
                        {"field": each.field, "here": each.ours, "there": each.theirs} for each in one.differences
                    ],
                }
                for one in self.near
            ],
            "seeds": [{"config": str(seed.config), "reason": seed.reason} for seed in self.seeds],
        }


def explain_study(
    study: Study,
    configs: Sequence[Config],
    trials: Sequence[Trial],
    near: Sequence[Neighbour],
    seeded: Sequence[Seed],
    lock: str = "",
    refined: Sequence[Config] = (),
    aside: Sequence[SpillingConfig] = (),
) -> Explanation:
    """What is known of ``study`` from its own ``trials`` and from studies that are ``near``. Pure.

    Trials of ``refined`` configs count as those of ``configs`` do, but are not missed where there are none; nor are
    those of configs ``aside``.
    """
    tried = {trial.config.order_key for trial in trials}
    left = [one for one in ranked(aside, configs) if one.config.order_key not in tried]
    skipped = {one.config.order_key for one in left}
    forms = [form for form in refined if form.order_key in tried]
    mine = {config.order_key: config for config in (*configs, *forms)}
    own = [trial for trial in trials if trial.config.order_key in mine]
    failed = {trial.config.order_key: trial for trial in own if trial.status is not Status.OK}
    return Explanation(
        study=study,
        known=tuple(config for key, config in mine.items() if key in tried),
        new=tuple(config for key, config in mine.items() if key not in tried and key not in skipped),
        failed=tuple(
            (trial.config, f"{trial.status.value}: {_first_line(trial.message)}") for trial in failed.values()
        ),
        winner=choose_winner(own),
        near=tuple(near),
        seeds=tuple(seeded),
        lock=lock,
        aside=tuple(left),
    )


def near_lines(near: Sequence[Neighbour], limit: int = 4) -> list[str]:
    """The nearest studies, and of each every field that keeps its trials from counting here."""
    lines: list[str] = []
    for neighbour in near[:limit]:
        what = " and ".join(dict.fromkeys(one.what for one in neighbour.differences))
        best = "" if neighbour.winner is None else f", winner {neighbour.winner.config}"
        count = f" ({neighbour.configs} configs{best})" if neighbour.configs else ""
        lines.append(f"  not used: {neighbour.study}{count}: another {what}")
        width = max(len(one.field) for one in neighbour.differences)
        for one in neighbour.differences:
            lines.append(f"    {one.field:{width}}  here   {one.ours}")
            lines.append(f"    {'':{width}}  there  {one.theirs}")
    if len(near) > limit:
        lines.append(f"  and {len(near) - limit} more that are further")
    return lines


def _some(configs: Sequence[Config], limit: int = 4) -> str:
    rest = f" and {len(configs) - limit} more" if len(configs) > limit else ""
    return "; ".join(str(config) for config in configs[:limit]) + rest


def _first_line(message: str) -> str:
    return message.splitlines()[0] if message else "no message"
