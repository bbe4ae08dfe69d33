"""Trials of an earlier compiler: which count under today's compiler, and the configs that the others predict.

A compiler's identity changes with every release; the code of most kernels does not. A study of another identity that
equals today's study in everything else is an *earlier study*. Its trials are *carried over* if a config's code is the
same as today's, byte for byte. Otherwise the earlier winner and its nearest rivals are the *contenders*: they are
measured before anything else, side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from silo.core.config import Config
from silo.core.protocols import RecordStore
from silo.tuner.catalog import catch_up, studies_of
from silo.tuner.ledger import read_trials
from silo.tuner.refine import ReachableConfigs
from silo.tuner.trial import Study, Trial
from silo.tuner.winner import Winner, choose_winner

__all__ = ["EarlierStudy", "carried_before", "carried_trials", "differing_in_compiler", "earlier_studies"]

_MOST_STUDIES = 3  # the latest ones: each costs compiling its contenders
_RIVALS = 3  # as many as are compared with a winner when a search ends


@dataclass(frozen=True)
class EarlierStudy:
    """A study of another compiler identity, and its trials of configs that count for a space."""

    study: Study
    trials: tuple[Trial, ...]

    @cached_property
    def winner(self) -> Winner | None:
        """The winner among the trials."""
        return choose_winner(self.trials)

    @cached_property
    def ranking(self) -> tuple[Config, ...]:
        """The configs that worked, the winner first, then the configs with other trials."""
        winner = self.winner
        best = () if winner is None else (winner.config, *(one.config for one in winner.runners_up))
        ordered = (*best, *(trial.config for trial in self.trials))
        return tuple({config.order_key: config for config in ordered}.values())

    @property
    def contenders(self) -> tuple[Config, ...]:
        """The winner and its nearest rivals; empty without a winner."""
        if self.winner is None:
            return ()
        return (self.winner.config, *(one.config for one in self.winner.runners_up[:_RIVALS]))

    @property
    def decisive(self) -> tuple[Config, ...]:
        """The contenders and their references: if all of these have the same code today, the winner is known."""
        return self.with_references(self.contenders)

    def with_references(self, configs: Iterable[Config]) -> tuple[Config, ...]:
        """Configs, and the references that their trials were measured beside, each once."""
        found = {config.order_key: config for config in configs}
        wanted = frozenset(found)
        for trial in self.trials:
            if trial.reference is not None and trial.config.order_key in wanted:
                found.setdefault(trial.reference.config.order_key, trial.reference.config)
        return tuple(found.values())

    def artifacts_of(self, config: Config) -> tuple[str, ...]:
        """The keys of the artifacts that trials of a config were made with, each once."""
        key = config.order_key
        return tuple(dict.fromkeys(one.artifact for one in self.trials if one.config.order_key == key and one.artifact))


def differing_in_compiler(study: Study, studies: Iterable[Study]) -> tuple[Study, ...]:
    """The studies that differ from ``study`` in the compiler's identity and in nothing else, in their order. Pure."""
    return tuple(
        one
        for one in studies
        if one.compiler != study.compiler and replace(one, compiler=study.compiler).key == study.key
    )


def earlier_studies(study: Study, records: RecordStore, reach: ReachableConfigs) -> tuple[EarlierStudy, ...]:
    """The earlier studies of ``study`` that have a winner within ``reach``, the latest begun first."""
    found: list[EarlierStudy] = []
    for other in reversed(differing_in_compiler(study, studies_of(study.kernel, records))):
        trials = read_trials(other, records)
        if not trials and catch_up(other, records):
            trials = read_trials(other, records)
        earlier = EarlierStudy(other, tuple(trial for trial in trials if trial.config in reach))
        if earlier.winner is not None:
            found.append(earlier)
        if len(found) == _MOST_STUDIES:
            break
    return tuple(found)


def carried_before(trials: Iterable[Trial], known: Iterable[Trial]) -> dict[str, str]:
    """The keys of those artifacts of ``trials`` that ``known`` holds carried over, each with today's key. Pure."""
    today: dict[bytes, list[Trial]] = {}
    for trial in known:
        today.setdefault(trial.config.order_key, []).append(trial)
    return {
        trial.artifact: one.artifact
        for trial in trials
        for one in today.get(trial.config.order_key, ())
        if trial.artifact and replace(trial, artifact=one.artifact).identity == one.identity
    }


def carried_trials(trials: Iterable[Trial], same: Mapping[str, str]) -> tuple[Trial, ...]:
    """The trials that count under today's compiler, with today's artifacts. Pure.

    A trial counts if its code is the same, and the code of the reference that it was measured beside is the same too.
    It keeps the name of the compiler that it was made with.

    Args:
        trials: the trials of an earlier study.
        same: the keys of earlier artifacts that have the same code today, each with the key of today's artifact.
    """
    known = tuple(trials)
    configs = {trial.config.order_key for trial in known if trial.artifact in same}
    return tuple(
        replace(trial, artifact=same[trial.artifact])
        for trial in known
        if trial.artifact in same and (trial.reference is None or trial.reference.config.order_key in configs)
    )
