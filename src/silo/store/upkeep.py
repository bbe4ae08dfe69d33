"""Upkeep of a store: keeps its size below a limit, removes the code of losing configs, and counts look-ups of code."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from silo.core.protocols import ListedRecords
from silo.forks import Mutex, Notices
from silo.frozen import frozen
from silo.settings import settings
from silo.store.atomic_files import write_all
from silo.store.privacy import file_lock, open_private
from silo.tuner.ledger import every_study, read_trials
from silo.tuner.objective import TIME, Objective
from silo.tuner.trial import Study, Trial
from silo.tuner.winner import choose_winner

__all__ = [
    "COUNTS_FILE",
    "KEPT_RIVALS",
    "SIZE_FILE",
    "UPKEEP_FILE",
    "Counted",
    "Counts",
    "Upkeep",
    "counted",
    "kept_artifacts",
    "losing_artifacts",
    "losing_of",
]


# ---- Upkeep of a store ----


UPKEEP_FILE = "upkeep"
SIZE_FILE = "size"
COUNTS_FILE = "counts.log"

_DAY_S = 86400
_LOSERS_OLDER_S = _DAY_S
# Once a process has written limit / _SHARE bytes, it adds them to the recorded size of the store and checks that size.
# So the bytes that 16 processes have written but not yet recorded are at most a sixteenth of the limit.
_SHARE = 256
_SIZE_BYTES = 64  # the length of the line in the file ``size``
# the most seconds to wait for another process that prunes, and the seconds between two checks whether it has ended
_WAIT_S, _NAP_S = 60.0, 0.05
_RETRY_S = 60  # seconds until the next check after a pruning that could not remove enough, because all code is young
_MOST_COUNTS_BYTES = 1 << 20  # a longer file of counts is emptied


class Upkeep:
    """Keeps the store at ``root`` below ``SILO_STORE_BYTES`` on disk. Only one process prunes at a time.

    The size of the store is read from the disk when a session ends and when pruning. In between, each process adds the
    bytes that it writes to the last size, in the file ``size``, so that a large store is not listed again and again.
    """

    def __init__(self, root: Path, records: ListedRecords, notices: Notices) -> None:
        self._root = root
        self._records = records
        self._notices = notices
        self._lock = Mutex()
        self._written = 0
        self._is_pruning = False
        self._not_before_s = 0.0  # the time.monotonic before which the size is not checked

    def note(self, size: int) -> None:
        """Counts bytes on disk that this process has written; the next :meth:`wrote` adds them to the store's size."""
        self._written += size

    def wrote(self, size: int) -> None:
        """Counts the bytes on disk of a blob that this process has stored; checks the store's size from time to time.

        Waits while another process prunes the store, because many writers could fill it faster than one process prunes.
        """
        limit = settings().store_bytes
        self._written += size
        if limit and self._written * _SHARE >= limit and time.monotonic() >= self._not_before_s:
            added, self._written = self._written, 0
            if self._size_after(added) > limit // 8 * 7:
                self._in_turn(lambda: self._keep_below(limit), wait_s=_WAIT_S)

    def tidy(self) -> None:
        """Enforces the limit now. Once a day, also removes the code of losing configs that was not used for a day."""
        if limit := settings().store_bytes:
            self._written = 0
            self._in_turn(lambda: self._keep_below(limit))
        self._in_turn(self._drop_losers, at_most_every_s=_DAY_S)

    def _keep_below(self, limit: int) -> None:
        """If the store takes more than seven eighths of ``limit`` bytes, prunes it to three quarters."""
        from silo.store.usage import store_bytes  # noqa: PLC0415  # launches prune nothing

        begun = self._note_size(lambda known: known or 0)
        listed = store_bytes(self._root)
        if self._note_size(lambda known: listed + max((known or begun) - begun, 0)) > limit // 8 * 7:
            self._prune(limit // 4 * 3)

    def _size_after(self, added: int) -> int:
        """Adds bytes that this process wrote to the recorded size; returns the new size."""
        from silo.store.usage import store_bytes  # noqa: PLC0415

        return self._note_size(lambda known: store_bytes(self._root) if known is None else known + added)

    def _note_size(self, change: Callable[[int | None], int]) -> int:
        """Updates the recorded size by ``change``, which takes None if no size is recorded; returns the new size."""
        try:
            descriptor = open_private(self._root / SIZE_FILE, os.O_RDWR | os.O_CREAT)
        except OSError:  # this process cannot write to the store, so no size is recorded
            return change(None)
        try:
            with file_lock(descriptor, self._root / SIZE_FILE, exclusive=True):
                line = os.pread(descriptor, _SIZE_BYTES, 0).strip()
                size = change(int(line) if line.isdigit() else None)
                os.pwrite(descriptor, b"%-*d\n" % (_SIZE_BYTES - 1, size), 0)
                return size
        except OSError:
            return change(None)
        finally:
            os.close(descriptor)

    def _prune(self, max_bytes: int) -> None:
        from silo.store.usage import PruneRule, prune  # noqa: PLC0415

        begun = self._note_size(lambda known: known or 0)
        pruned = prune(self._root, PruneRule(max_bytes, losers=losing_artifacts(self._records), every_loser=True))
        self._note_size(lambda known: pruned.left_bytes + max((known or begun) - begun, 0))
        if pruned.left_bytes > max_bytes:
            self._not_before_s = time.monotonic() + _RETRY_S
            self._notices.once(
                "limit",
                f"the store {self._root} takes {pruned.left_bytes >> 20} MiB on disk. Its trials, which are always "
                f"kept, take {pruned.records_bytes >> 20} MiB, and the rest was used too recently to be removed; raise "
                "SILO_STORE_BYTES if this machine needs that much",
            )
        if pruned.blobs or pruned.entries:
            _log_info("the store was pruned: %d blobs, %d MiB, are gone", pruned.blobs, pruned.freed_bytes >> 20)

    def _drop_losers(self) -> None:
        from silo.store.usage import PruneRule, prune  # noqa: PLC0415

        losers = losing_artifacts(self._records)
        pruned = prune(self._root, PruneRule(older_s=_LOSERS_OLDER_S, losers=losers, losers_alone=True))
        if pruned.blobs:
            _log_info("losing configs lost their code: %d blobs, %d MiB", pruned.blobs, pruned.freed_bytes >> 20)

    def _in_turn(self, work: Callable[[], None], *, at_most_every_s: float = 0, wait_s: float = 0) -> None:
        """Runs ``work`` unless another process or thread is pruning.

        Does nothing either if ``work`` was run less than ``at_most_every_s`` seconds ago. If another process is
        pruning, waits for that process at most ``wait_s`` seconds, and then does nothing.
        """
        with self._lock:
            if self._is_pruning:
                return
            self._is_pruning = True
        try:
            with contextlib.ExitStack() as stack:
                descriptor = open_private(self._root / UPKEEP_FILE, os.O_RDWR | os.O_CREAT)
                stack.callback(os.close, descriptor)
                if not _locked(descriptor, wait_s):
                    return
                if at_most_every_s:
                    if time.time() - os.fstat(descriptor).st_mtime < at_most_every_s and os.fstat(descriptor).st_size:
                        return
                    os.pwrite(descriptor, b"losers\n", 0)
                work()
        except OSError as error:
            self._notices.once("upkeep", f"the store {self._root} cannot be pruned: {error.strerror or error}")
        finally:
            self._is_pruning = False


def _locked(descriptor: int, wait_s: float) -> bool:
    """Takes the lock of pruning processes, waiting up to ``wait_s`` seconds for another process that holds it.

    Returns True if the lock was free at once. Returns False otherwise, even if the lock was taken in the end: the other
    process has pruned, so this one need not.
    """
    until_s, has_waited = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            has_waited = True
            time.sleep(_NAP_S)
        else:
            return not has_waited


@frozen
class Counted:
    """Look-ups of compiled code since ``since_s`` (Unix time): hits, misses, and the number of processes."""

    hits: int = 0
    misses: int = 0
    processes: int = 0
    since_s: int = 0


def _log_info(message: str, *values: object) -> None:
    import logging  # noqa: PLC0415  # importing takes milliseconds, and launches log nothing

    logging.getLogger("silo.store").info(message, *values)


class Counts:
    """Counts look-ups of compiled code; adds a line to the store's file of counts when the process ends."""

    def __init__(self, root: Path) -> None:
        self._path = root / COUNTS_FILE
        self._hits_and_misses = [0, 0]
        self._process = 0

    def note(self, *, found: bool) -> None:
        """Counts a look-up of an artifact, as found or as not found."""
        if self._process != os.getpid():  # the first look-up of this process, which may be a forked child
            self._process, self._hits_and_misses = os.getpid(), [0, 0]
            atexit.register(self.write)
        self._hits_and_misses[not found] += 1

    def write(self) -> None:
        """Adds the counts of this process to the file.

        Does nothing if the store does not exist or cannot be written.
        """
        if self._process != os.getpid() or not any(self._hits_and_misses):
            return
        line = f"{int(time.time())} {self._hits_and_misses[0]} {self._hits_and_misses[1]}\n".encode()
        self._hits_and_misses = [0, 0]
        with contextlib.suppress(OSError):
            descriptor = open_private(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                if os.fstat(descriptor).st_size > _MOST_COUNTS_BYTES:
                    os.ftruncate(descriptor, 0)
                write_all(descriptor, line)
            finally:
                os.close(descriptor)


def counted(root: Path) -> Counted:
    """Returns the counts of the store at ``root``; incomplete lines are skipped."""
    total = Counted()
    try:
        descriptor = open_private(root / COUNTS_FILE, os.O_RDONLY)
    except OSError:
        return total
    with os.fdopen(descriptor, "rb") as file:
        rows = [line.split() for line in file.read(2 * _MOST_COUNTS_BYTES).splitlines()]
    rows = [[int(word) for word in row] for row in rows if len(row) == 3 and all(word.isdigit() for word in row)]
    if not rows:
        return total
    return Counted(sum(row[1] for row in rows), sum(row[2] for row in rows), len(rows), min(row[0] for row in rows))


# ---- Losing configs ----


# A new compiler's code is compared with the code of the winner and of this many other configs
# (`silo.measuring.earlier_studies`).
KEPT_RIVALS = 3


def losing_artifacts(records: ListedRecords) -> frozenset[str]:
    """Returns the artifact keys of the configs that were tried and that no study of the store needs."""
    return losing_of((study, read_trials(study, records)) for study in every_study(records))


def losing_of(studies: Iterable[tuple[Study, Sequence[Trial]]]) -> frozenset[str]:
    """Returns the artifact keys of the configs that were tried and that none of these studies needs.

    A config that loses one study and is among the best of another is needed.
    """
    tried, needed = set[str](), set[str]()
    for _, trials in studies:
        tried.update(trial.artifact for trial in trials)
        needed.update(kept_artifacts(trials))
    return frozenset(tried - needed - {""})


def kept_artifacts(trials: Sequence[Trial]) -> frozenset[str]:
    """Returns the artifact keys that a study needs: of its winner, the next three, and the reference configs.

    Winners are chosen by time, by every other metric that the trials hold, and by the objective of this process.
    """
    names = sorted({name for trial in trials for name, _ in trial.metrics})
    text = settings().objective
    objectives = {TIME, *map(Objective.of, names), *([] if text == "time" else [Objective.parse(text)])}
    needed = set[str]()
    for objective in objectives:
        winner = choose_winner(trials, objective)
        if winner is not None:
            needed |= {winner.artifact, *(runner_up.artifact for runner_up in winner.runners_up[:KEPT_RIVALS])}
    if not needed:
        return frozenset()
    references = {trial.reference.config.order_key for trial in trials if trial.reference is not None}
    needed.update(trial.artifact for trial in trials if trial.config.order_key in references)
    return frozenset(needed)
