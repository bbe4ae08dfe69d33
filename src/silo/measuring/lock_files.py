"""Reads and updates lock files, the files of decisions that every launching process reads."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from silo.core.config import Config
from silo.errors import LockError
from silo.forks import Mutex
from silo.plain_files import read_plain
from silo.settings import settings
from silo.store.atomic_files import AtomicFile, sweep_abandoned
from silo.store.privacy import lock_of_place, output_place
from silo.tuner.foreign_decision import ForeignWinner
from silo.tuner.lock import Lock, LockEntry, choose
from silo.tuner.objective import named
from silo.tuner.session_values import TuneOutcome
from silo.tuner.trial import Study

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel

__all__ = ["LockRow", "add_decisions", "deployed_config", "lock_of", "read_lock", "update_lock"]


@dataclass(frozen=True, slots=True)
class LockRow:
    """The decision about one study in an update of a lock file.

    ``config`` is None, and nothing is written, if no config can be used.
    """

    study: Study
    config: Config | None
    before: Config | None
    reason: str


_lock = Mutex()
_read: dict[str, tuple[tuple[int, ...], Lock]] = {}


def lock_of(kernel: DeclaredKernel) -> tuple[Path, Lock] | None:
    """Returns the path and the lock of a kernel's calls: the file of ``lock=``, or else of ``SILO_LOCK``.

    Returns None if no lock file is named, or if the leader that is to write it has not decided yet.

    Raises:
        LockError: a lock file is named and cannot be read.
    """
    lock_setting = settings().lock if kernel.lock is None else kernel.lock
    if lock_setting is None:
        return None
    path = Path(lock_setting)
    if (kernel.tune or settings().tune) == "leader" and not path.exists():
        return None  # the leader has not decided yet
    return path, read_lock(path)


def read_lock(path: Path) -> Lock:
    """Returns the lock in a file. A version of the file is parsed only once.

    Raises:
        LockError: the file is missing, cannot be read, or is not a lock; names the faulty entry.
    """
    try:
        status = path.stat()
        version = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        with _lock:
            cached_lock = _read.get(str(path))
            if cached_lock is not None and cached_lock[0] == version:
                return cached_lock[1]
        lock = Lock.decode(read_plain(path))
    except FileNotFoundError:
        raise LockError(f"no lock file {path}: write one with silo tune FILE --lock {path}") from None
    except OSError as error:
        raise LockError(f"the lock file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise LockError(
            f"{path} is not a lock file that can be used: {error}; mend it, or remove it and write it again with silo "
            "tune --lock"
        ) from error
    with _lock:
        _read[str(path)] = (version, lock)
    return lock


def deployed_config(path: Path | None, study: Study) -> Config | None:
    """Returns the config that the lock file has for a study's slot; None without a file or an entry.

    The slot is everything about the study except its source, compiler, driver and measurement policy.
    """
    return read_lock(path).deployed(study) if path is not None and path.exists() else None


def update_lock(path: Path, outcomes: Sequence[TuneOutcome]) -> list[LockRow]:
    """Decides the config to deploy for the study of each outcome, and replaces the file atomically.

    A config that the file deploys stays unless another is faster beyond the noise; see :func:`silo.tuner.lock.choose`.
    Entries of other studies stay. Several processes may update one file: each starts from the content that the previous
    one wrote.

    Raises:
        LockError: the file exists and is not a lock, or cannot be written; it is unchanged then.
    """
    rows: list[LockRow] = []

    def with_outcomes(before: Lock) -> Lock:
        entries: list[LockEntry] = []
        for outcome in outcomes:
            study, deployed = outcome.study, before.deployed(outcome.study)
            choice = choose(outcome.trials, deployed, outcome.comparison, outcome.objective)
            if choice is None:
                reason = outcome.objective.refusal(outcome.trials) or "no config can be used"
                rows.append(LockRow(study, None, deployed, reason))
                continue
            rows.append(LockRow(study, choice.config, deployed, choice.reason))
            entries.append(LockEntry(study, choice.config, choice.time, choice.reason, named(outcome.objective)))
        return before.updated(entries)

    _rewrite(path, with_outcomes)
    return rows


def add_decisions(path: Path, winners: Sequence[ForeignWinner]) -> tuple[int, int]:
    """Adds decisions of other programs' tuners to the lock file; returns the numbers added and already present.

    A missing file is created. An existing decision stays, because it may be deployed.

    Raises:
        LockError: the file exists and is not a lock, or cannot be written; it is unchanged then.
    """
    before, after = _rewrite(path, lambda before: before.decided(winners))
    added = len(after.decisions) - len(before.decisions)
    return added, len(winners) - added


def _rewrite(path: Path, change: Callable[[Lock], Lock]) -> tuple[Lock, Lock]:
    """Replaces the lock in a lock file by ``change(lock)``; returns the old and the new lock.

    Other writers of the file wait meanwhile.

    Raises LockError if the file is not a lock, or cannot be written.
    """
    try:
        target = output_place(path)
        sweep_abandoned(target.parent)
        # On a file system without file locks, the file is still replaced as a whole.
        with lock_of_place(target):
            before = read_lock(target) if target.exists() else Lock()
            after = change(before)
            if after != before or not target.exists():
                _write(target, after.encode())
    except OSError as error:
        raise LockError(
            f"the lock file {path} cannot be written: {error.strerror or error}; what was there before is untouched"
        ) from error
    return before, after


def _write(path: Path, data: bytes) -> None:
    permissions = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    with AtomicFile(path, mode=0o666) as file:
        file.write(data)
        file.commit(permissions=permissions)
