"""Carrying trials of an earlier compiler over to today's, if the code of their configs is the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from silo.artifacts.same_code import same_code
from silo.core.config import Config
from silo.core.decisions import Rejected
from silo.core.protocols import RecordStore
from silo.errors import CompilerMissingError, SiloError
from silo.status_line import working
from silo.tuner.carried_trials import EarlierStudy, carried_before, carried_trials, earlier_studies
from silo.tuner.ledger import Ledger
from silo.tuner.refine import ReachableConfigs
from silo.tuner.time_spent import note_effort, read_effort
from silo.tuner.trial import Study

if TYPE_CHECKING:
    from silo.measuring.evaluators import CandidateArtifacts
    from silo.store.store import StoreBase
    from silo.tuner.outcome import Budget

__all__ = ["carry_decision", "carry_trials", "contenders_of"]

_log = logging.getLogger("silo")

_AT_A_TIME = 32  # configs that are handed to the compile workers between two looks at the clock
_GONE = "the store has its artifact no longer"
_TIME_SHARE = 0.5  # part of a session's budget; the rest is for measuring


def carry_decision(
    study: Study, reach: ReachableConfigs, artifacts: CandidateArtifacts, store: StoreBase
) -> tuple[Config, ...]:
    """Decides a study by an earlier study whose decisive configs all compile to the same code today.

    Their trials are carried over, so that the study has the earlier winner without measuring. The decisive configs are
    compiled. The progress of first calls with the earlier study is carried over too.

    Returns:
        The contenders of the latest earlier study if none decides; empty if one decided, or without earlier studies.
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
    """Carries over the trials of every config that compiles to the same code today, and returns their number.

    The configs of earlier studies without a trial in ``study`` are compiled, the best first: at most as many as the
    budget lets a session evaluate, and for half of its time.
    """
    begin, carried = time.monotonic(), 0
    left = budget.evaluations
    for earlier in earlier_studies(study, store.records, reach):
        ledger = Ledger(study, store.records)
        wanted = [one for one in earlier.ranking if earlier.artifacts_of(one) and not ledger.of(one)][:left]
        same = carried_before(earlier.trials, ledger.trials)
        for start in range(0, len(wanted), _AT_A_TIME):
            if budget.seconds is not None and time.monotonic() - begin > budget.seconds * _TIME_SHARE:
                break
            together = earlier.with_references(wanted[start : start + _AT_A_TIME])
            others = [one for one in together if not {*earlier.artifacts_of(one)} <= same.keys()]
            same |= _same(earlier, others, artifacts, store)
        carried += _keep(study, earlier, same, store.records)
        left = None if left is None else left - len(wanted)
    return carried


def contenders_of(study: Study, records: RecordStore, reach: ReachableConfigs) -> tuple[Config, ...]:
    """The contenders of the latest earlier study, if there are several and its tuning was not cut off; else ()."""
    for earlier in earlier_studies(study, records, reach):
        if len(earlier.contenders) > 1 and not read_effort(earlier.study, records).is_cut_off:
            return earlier.contenders
        break
    return ()


def _same(
    earlier: EarlierStudy, configs: Sequence[Config], artifacts: CandidateArtifacts, store: StoreBase
) -> dict[str, str]:
    """For configs that compile to the same code today: the key of each earlier artifact, with the key of today's."""
    artifacts.expect(configs)
    artifacts.prepare(configs)
    same: dict[str, str] = {}
    other: dict[Config, str] = {}
    for config in configs:
        try:
            today = artifacts.get(config)
        except CompilerMissingError:
            raise
        except SiloError as error:  # the config's own error, which measuring it would record
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
    """Stores the trials that count in ``study``, and returns their number."""
    count = Ledger(study, records).take_over(carried_trials(earlier.trials, same))
    if count:
        _log.info("%s: %d trials count although the compiler changed: the code is the same", study, count)
    return count
