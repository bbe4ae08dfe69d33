"""Losing configs: those whose trials no study of a store needs the compiled code of any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from silo.core.protocols import ListedRecords
from silo.tuner.catalog import every_study
from silo.tuner.ledger import read_trials
from silo.tuner.trial import Study, Trial
from silo.tuner.winner import choose_winner

__all__ = ["KEPT_RIVALS", "kept_artifacts", "losing_artifacts", "losing_of"]

# A new compiler's code is compared with that of the winner and so many others (`silo.measuring.earlier_studies`).
KEPT_RIVALS = 3


def losing_artifacts(records: ListedRecords) -> frozenset[str]:
    """The artifact keys of the configs that were tried, and that no study of the store needs."""
    return losing_of((study, read_trials(study, records)) for study in every_study(records))


def losing_of(studies: Iterable[tuple[Study, Sequence[Trial]]]) -> frozenset[str]:
    """The same for studies with their trials. A config that loses one study and leads another is not among them."""
    tried, kept = set[str](), set[str]()
    for _, trials in studies:
        tried.update(trial.artifact for trial in trials)
        kept.update(kept_artifacts(trials))
    return frozenset(tried - kept - {""})


def kept_artifacts(trials: Sequence[Trial]) -> frozenset[str]:
    """The artifact keys that a study needs: of its winner, the next three, and the configs it measures others by."""
    winner = choose_winner(trials)
    if winner is None:
        return frozenset()
    kept = {winner.artifact, *(one.artifact for one in winner.runners_up[:KEPT_RIVALS])}
    references = {trial.reference.config.order_key for trial in trials if trial.reference is not None}
    kept.update(trial.artifact for trial in trials if trial.config.order_key in references)
    return frozenset(kept)
