"""Trials of an earlier compiler: they count for configs whose code is the same today, and else show what to measure.

A compiler's identity changes with every release; the code of most kernels does not. A study of another identity that
equals today's study in everything else is an *earlier study*. Its trials of a config are *carried over* if the config's
code is the same as today's, byte for byte. If it is not, the earlier winner and its nearest rivals are the
*contenders*: they are measured before all other configs, side by side.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from silo.artifacts.elf import same_code
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.protocols import RecordStore
from silo.errors import CompilerMissingError, SiloError
from silo.status_line import working
from silo.tuner.ledger import Ledger, catch_up, read_trials, studies_of
from silo.tuner.policy import note_effort, read_effort
from silo.tuner.refine import ReachableConfigs
from silo.tuner.trial import Study, Trial
from silo.tuner.winner import Winner, choose_winner

if TYPE_CHECKING:
    from silo.measuring.evaluators import CandidateArtifacts
    from silo.store.store import StoreBase
    from silo.tuner.session_values import Budget

__all__ = [
    "EarlierStudy",
    "carried_before",
    "carried_trials",
    "carry_decision",
    "carry_trials",
    "contenders_of",
    "differing_in_compiler",
    "earlier_studies",
]

_MOST_STUDIES = 3  # only the latest studies, because the contenders of each must be compiled
_RIVALS = 3  # the number of configs beside the winner that a session compares at its end


@dataclass(frozen=True)
class EarlierStudy:
    """A study of another compiler identity, with its trials of the configs that are reachable in today's space."""

    study: Study
    trials: tuple[Trial, ...]

    @cached_property
    def winner(self) -> Winner | None:
        """The winner among the trials."""
        return choose_winner(self.trials)

    @cached_property
    def ranking(self) -> tuple[Config, ...]:
        """All configs with trials: the winner, the other configs that may be used, best first, and then the rest."""
        winner = self.winner
        best = () if winner is None else (winner.config, *(runner_up.config for runner_up in winner.runners_up))
        ordered = (*best, *(trial.config for trial in self.trials))
        return tuple({config.order_key: config for config in ordered}.values())

    @property
    def contenders(self) -> tuple[Config, ...]:
        """The winner and its nearest rivals; empty without a winner."""
        if self.winner is None:
            return ()
        return (self.winner.config, *(runner_up.config for runner_up in self.winner.runners_up[:_RIVALS]))

    @property
    def decisive(self) -> tuple[Config, ...]:
        """The contenders and their references: if the code of all is the same today, the winner is known.

        The winner of today's study is then the earlier study's winner.
        """
        return self.with_references(self.contenders)

    def with_references(self, configs: Iterable[Config]) -> tuple[Config, ...]:
        """Returns the configs and the references that their trials were measured beside, each once."""
        by_key = {config.order_key: config for config in configs}
        config_keys = frozenset(by_key)
        for trial in self.trials:
            if trial.reference is not None and trial.config.order_key in config_keys:
                by_key.setdefault(trial.reference.config.order_key, trial.reference.config)
        return tuple(by_key.values())

    def artifacts_of(self, config: Config) -> tuple[str, ...]:
        """Returns the keys of the artifacts that trials of a config were made with, each once."""
        key = config.order_key
        return tuple(
            dict.fromkeys(trial.artifact for trial in self.trials if trial.config.order_key == key and trial.artifact)
        )


def differing_in_compiler(study: Study, studies: Iterable[Study]) -> tuple[Study, ...]:
    """Returns the studies that differ from ``study`` only in the compiler's identity, in their order. Pure."""
    return tuple(
        earlier_study
        for earlier_study in studies
        if earlier_study.compiler != study.compiler and replace(earlier_study, compiler=study.compiler).key == study.key
    )


def earlier_studies(study: Study, records: RecordStore, reach: ReachableConfigs) -> tuple[EarlierStudy, ...]:
    """Returns the earlier studies of ``study`` with a winner among the configs of ``reach``, the latest begun first."""
    studies: list[EarlierStudy] = []
    for other in reversed(differing_in_compiler(study, studies_of(study.kernel, records))):
        trials = read_trials(other, records)
        if not trials and catch_up(other, records):
            trials = read_trials(other, records)
        earlier = EarlierStudy(other, tuple(trial for trial in trials if trial.config in reach))
        if earlier.winner is not None:
            studies.append(earlier)
        if len(studies) == _MOST_STUDIES:
            break
    return tuple(studies)


def carried_before(trials: Iterable[Trial], earlier_trials: Iterable[Trial]) -> dict[str, str]:
    """Finds the artifacts of an earlier study whose trials were already copied to today's study. Pure.

    Args:
        trials: the trials of the earlier study.
        earlier_trials: the trials of today's study, which include the trials that were copied.

    Returns:
        The key of each of these artifacts, with the key of today's artifact that has the same code.
    """
    today: dict[bytes, list[Trial]] = {}
    for trial in earlier_trials:
        today.setdefault(trial.config.order_key, []).append(trial)
    return {
        trial.artifact: earlier_trial.artifact
        for trial in trials
        for earlier_trial in today.get(trial.config.order_key, ())
        if trial.artifact and replace(trial, artifact=earlier_trial.artifact).identity == earlier_trial.identity
    }


def carried_trials(trials: Iterable[Trial], same: Mapping[str, str]) -> tuple[Trial, ...]:
    """Returns the trials that count under today's compiler, with today's artifacts. Pure.

    A trial counts if today's compiler makes the same code for its config and for the reference that was measured beside
    it. A returned trial keeps the name of the compiler that it was made with.

    Args:
        trials: the trials of an earlier study.
        same: the keys of earlier artifacts that have the same code today, each with the key of today's artifact.
    """
    known_trials = tuple(trials)
    configs = {trial.config.order_key for trial in known_trials if trial.artifact in same}
    return tuple(
        replace(trial, artifact=same[trial.artifact])
        for trial in known_trials
        if trial.artifact in same and (trial.reference is None or trial.reference.config.order_key in configs)
    )


_log = logging.getLogger("silo")

_AT_A_TIME = 32  # configs that are handed to the compile workers before the time is checked again
_GONE = "the store has its artifact no longer"
_TIME_SHARE = 0.5  # the fraction of a session's time budget that comparing code may use; the rest is for measuring


def carry_decision(
    study: Study, reach: ReachableConfigs, artifacts: CandidateArtifacts, store: StoreBase
) -> tuple[Config, ...]:
    """Decides a study without measuring, if an earlier study's contenders still compile to the same code.

    All contenders and their references must do so. Their trials are then copied to ``study``, which so gets the earlier
    winner. The contenders and references are compiled for the comparison. The progress of first calls with the earlier
    study is copied too.

    Returns:
        The contenders of the latest earlier study if no earlier study decides. Empty if one decides, or if there are
        no earlier studies.
    """
    contenders: tuple[Config, ...] = ()
    for earlier in earlier_studies(study, store.records, reach):
        decisive = earlier.decisive
        with working(f"comparing the code of {len(decisive)} configs of {study} with an earlier compiler's"):
            same = _same(earlier, decisive, artifacts, store)
        if all(set(earlier.artifacts_of(config)) & same.keys() for config in decisive):
            _keep(study, earlier, same, store.records)
            effort = read_effort(earlier.study, store.records)
            if effort.is_cut_off and (trouble := note_effort(study, store.records, effort.last, effort.seconds)):
                _log.warning("%s", trouble)
            return ()
        contenders = contenders or earlier.contenders
    return contenders


def carry_trials(
    study: Study, reach: ReachableConfigs, artifacts: CandidateArtifacts, store: StoreBase, budget: Budget
) -> int:
    """Copies to ``study`` the earlier trials of each config that compiles to the same code today.

    Returns the number of these trials.

    The configs of earlier studies that have no trial in ``study`` are compiled, the best first: at most as many as the
    budget lets a session evaluate, and during at most half of the budget's time.
    """
    begin, carried = time.monotonic(), 0
    remaining = budget.evaluations
    for earlier in earlier_studies(study, store.records, reach):
        ledger = Ledger(study, store.records)
        wanted_configs = [item for item in earlier.ranking if earlier.artifacts_of(item) and not ledger.of(item)][
            :remaining
        ]
        same = carried_before(earlier.trials, ledger.trials)
        for start in range(0, len(wanted_configs), _AT_A_TIME):
            if budget.seconds is not None and time.monotonic() - begin > budget.seconds * _TIME_SHARE:
                break
            together = earlier.with_references(wanted_configs[start : start + _AT_A_TIME])
            others = [item for item in together if not {*earlier.artifacts_of(item)} <= same.keys()]
            same |= _same(earlier, others, artifacts, store)
        carried += _keep(study, earlier, same, store.records)
        remaining = None if remaining is None else remaining - len(wanted_configs)
    return carried


def contenders_of(study: Study, records: RecordStore, reach: ReachableConfigs) -> tuple[Config, ...]:
    """Returns the contenders of the latest earlier study; () if there are fewer than two, or its tuning was cut off."""
    for earlier in earlier_studies(study, records, reach):
        if len(earlier.contenders) > 1 and not read_effort(earlier.study, records).is_cut_off:
            return earlier.contenders
        break
    return ()


def _same(
    earlier: EarlierStudy, configs: Sequence[Config], artifacts: CandidateArtifacts, store: StoreBase
) -> dict[str, str]:
    """Maps the key of each earlier artifact to the key of today's, for configs that compile to the same code today."""
    artifacts.expect(configs)
    artifacts.prepare(configs)
    same: dict[str, str] = {}
    other: dict[Config, str] = {}
    for config in configs:
        try:
            today = artifacts.get(config)
        except CompilerMissingError:
            raise
        except SiloError as error:  # an error of the config itself; measuring the config would record it
            other[config] = str(error)
            continue
        for key in earlier.artifacts_of(config):
            described = store.artifacts.described(key)
            decision = Rejected(_GONE) if described is None else same_code(described, today.artifact, store.blobs.get)
            if decision:
                same[key] = today.key
            else:
                other[config] = decision.reason
    if other:
        config, reason = next(iter(other.items()))
        count = f"{len(other)} of {len(configs)} configs have"
        _log.info(
            "%s: %s other code than they were measured with, such as %s: %s", earlier.study, count, config, reason
        )
    return same


def _keep(study: Study, earlier: EarlierStudy, same: dict[str, str], records: RecordStore) -> int:
    """Stores in ``study`` the earlier trials that count for it, and returns their number."""
    count = Ledger(study, records).take_over(carried_trials(earlier.trials, same))
    if count:
        _log.info("%s: %d trials count although the compiler changed: the code is the same", study, count)
    return count
