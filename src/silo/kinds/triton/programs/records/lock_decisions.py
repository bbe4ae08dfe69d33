"""A lock file's decisions for a program's tuners; they precede recorded decisions and measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from silo.errors import FrozenError, LockError, SiloError
from silo.forks import Notices
from silo.kinds.triton.front.adapter import TunerDecisions, TunerKey, kernel_of_tuner
from silo.kinds.triton.programs.records.archive import read_winners
from silo.kinds.triton.programs.records.capture import Sources
from silo.kinds.triton.programs.records.journal_folding import open_folded
from silo.kinds.triton.programs.records.tuner_decisions import (
    described_key,
    find_decision,
    refused,
    winner_of,
    words_of_nearest,
)
from silo.measuring.lock_files import add_decisions, read_lock
from silo.settings import settings
from silo.tuner.foreign_decision import ForeignWinner

__all__ = ["LockedDecisions", "write_lock"]


class LockedDecisions:
    """Answers tuners from one lock file in its present state; ``others`` supply the decisions that it lacks.

    With ``SILO_TUNE=frozen`` nothing is measured: a key that neither decides is an error.

    Raises:
        LockError: the file does not exist, or is not a lock.
    """

    def __init__(self, path: Path, others: TunerDecisions | None) -> None:
        self.path = path
        self._others = others
        self._sources = Sources()
        self._notices = Notices()
        self._winners: dict[str, list[ForeignWinner]] = {}
        for winner in read_lock(path).decisions:
            self._winners.setdefault(winner.source, []).append(winner)

    def known(self, tuner: Any, key: TunerKey, configs: Callable[[], Sequence[Any]]) -> Any:  # noqa: ANN401
        """The lock's config, else the others' decision.

        Raises:
            FrozenError: ``SILO_TUNE=frozen``, and no decision fits the tuner.
        """
        function = kernel_of_tuner(tuner)
        name = str(function.__name__)
        try:
            source = self._sources.of(function)
            wanted = winner_of(source, tuner, key, None)
        except SiloError as error:
            self._tell(f"{name} is not decided by {self.path}", str(error))
            return None if self._others is None else self._others.known(tuner, key, configs)
        found = find_decision(tuner, self._winners.get(source.fingerprint, ()), wanted, configs)
        if found.near is not None:
            self._tell(f"{name} uses", f"{words_of_nearest(found.near, wanted)} ({self.path})")
        if found.config is not None:
            return found.config
        other = None if self._others is None else self._others.known(tuner, key, configs)
        if other is None and settings().tune == "frozen":
            if len(found.allowed) == 1:
                return found.allowed[0]
            raise refused(
                FrozenError(
                    f"{name}: tuning is frozen (SILO_TUNE=frozen), and {self.path} says nothing of "
                    f"{described_key(wanted)} on {wanted.target} that its {len(found.allowed)} configs allow; record "
                    "this call (silo exec --record) and add what was decided (silo cache to-lock)"
                )
            )
        return other

    def decided(self, tuner: Any, key: TunerKey, config: Any) -> Any:  # noqa: ANN401
        """The others keep a new decision; the lock is only read."""
        return config if self._others is None else self._others.decided(tuner, key, config)

    def _tell(self, what: str, why: str) -> None:
        self._notices.once(what, f"{what}: {why}")


def write_lock(path: Path, lock: Path) -> tuple[int, int]:
    """Add a recording's decisions to a lock file. Returns the numbers of added and of existing decisions.

    Raises:
        BundleError: the recording cannot be read.
        LockError: the file is not a lock, or cannot be written; or the recording holds no decision.
    """
    with open_folded(path) as bundle:
        winners = read_winners(bundle)
    if not winners:
        raise LockError(
            f"{path} holds no decision of a tuner, so there is nothing to lock; record a program that tunes"
        )
    return add_decisions(lock, winners)
