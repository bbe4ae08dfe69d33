"""Leader mode: one of many processes measures and writes the lock file, and the others wait.

The leader is the process that holds the lease: an operating system lock on a file beside the lock file. The system
releases it when the process ends, for whatever reason, and the next process continues from the stored trials. No
process waits inside a collective operation.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from silo.core.config import Config
from silo.core.decisions import Decision, Rejected
from silo.errors import FrozenError, LockError, SettingsError
from silo.forks import Notices
from silo.frozen import frozen
from silo.measuring.lock_files import read_lock, update_lock
from silo.settings import settings
from silo.store.privacy import holder_of, open_own, output_place, write_holder

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.measuring.study_key import StudyKey
    from silo.tuner.session_values import TuneOutcome

__all__ = ["led", "led_config"]

T = TypeVar("T")

_LOOK_S = 0.1
_SILENT_S = 10.0  # seconds after which a wait is logged
_notices = Notices()


@frozen
class _Lease:
    """The result of trying to get the lease. ``leader`` returns the name of the process that holds it."""

    held: bool
    leader: Callable[[], str]


def led_config(
    kernel: DeclaredKernel,
    study_key: StudyKey,
    context: CallContext,
    can_measure: Callable[[], Decision],
    tuned: Callable[[], TuneOutcome | None],
) -> Config:
    """Returns the config that the lock file has for a call, or will have once the leader has measured.

    Raises:
        SettingsError: no lock file is named.
        LockError: the lock file cannot be read or written, or its file system does not support locks.
        FrozenError: this call cannot be measured, no config works, or the leader did not decide within
            ``SILO_LEADER_WAIT``.
    """
    lock_path = settings().lock if kernel.lock is None else kernel.lock
    if lock_path is None:
        raise SettingsError(
            f"{kernel.name}: tune='leader' needs a lock file that all processes share; name it with SILO_LOCK"
        )
    path = Path(lock_path)
    study = study_key.study(context.specialization, context.bucket)

    def decide() -> Config:
        if isinstance(able := can_measure(), Rejected):
            raise FrozenError(
                f"{study}: leader mode has no decision in {path}, and this call cannot be measured "
                f"({able.reason}); write one with silo tune --lock"
            )
        update_lock(path, [])  # creates the file, so that an unwritable path fails before measuring
        outcome = tuned()
        rows = [] if outcome is None else update_lock(path, [outcome])
        decided = rows[0].config if rows else None
        if decided is None:
            raise FrozenError(f"{study}: leader mode found no config that can be used")
        return decided

    return led(path, str(study), lambda: _written(path, study_key, context), decide)


def led(path: Path, subject: str, written: Callable[[], T | None], decide: Callable[[], T]) -> T:
    """Returns the decision that a lock file holds, or will hold once the leader has measured.

    Without a decision in the file, one process calls ``decide`` while the others wait for it.

    Args:
        path: the lock file; the lease is a file beside it.
        subject: the decision's subject, for messages.
        written: returns the lock file's decision, or None.
        decide: measures, writes the decision to the lock file, and returns it.

    Raises:
        LockError: the lock file cannot be read or written, or its file system does not support locks.
        FrozenError: the leader did not decide within ``SILO_LEADER_WAIT``.
    """
    begin = time.monotonic()
    while True:
        if (decision := written()) is not None:
            return decision
        with _lease(path) as lease:
            if lease.held:
                # The former leader may have written the decision after written() was called above and before it
                # released the lease.
                decision = written()
                return decide() if decision is None else decision
            waited_s = time.monotonic() - begin
            if waited_s > settings().leader_wait_s:
                raise FrozenError(
                    f"{subject}: waited {waited_s:.0f} s for {lease.leader()}, which measures, and {path} has "
                    "no decision yet; end that process, raise SILO_LEADER_WAIT, or tune before with silo tune --lock"
                )
            if waited_s > _SILENT_S:
                _notices.once(
                    f"waits {path}",
                    f"{subject}: waiting, for at most {settings().leader_wait_s:g} s (SILO_LEADER_WAIT), for "
                    f"{lease.leader()}, which measures",
                )
        time.sleep(_LOOK_S)


def _written(path: Path, study_key: StudyKey, context: CallContext) -> Config | None:
    """Returns the lock file's decision on exactly this study; None without one, even if a near study has one."""
    if not path.exists():
        return None
    advice = read_lock(path).advise(study_key.study(context.specialization, context.bucket), context.reach)
    return advice.config if advice.exact else None


@contextlib.contextmanager
def _lease(path: Path) -> Generator[_Lease]:
    """Tries to get the lease beside a lock file, and yields the result. The lease is held until the block ends."""
    try:
        target = output_place(path)
        descriptor = open_own(target.with_name(f"{target.name}.lease"), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise LockError(
            f"the lease beside {path} cannot be opened: {error.filename}: {error.strerror or error}; remove it, or "
            "name a lock file in a folder of your own"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise LockError(
                    f"leader mode needs file locks, and the file system of {path} has none: {error.strerror or error}"
                ) from error
            yield _Lease(held=False, leader=lambda: holder_of(descriptor))
            return
        write_holder(descriptor)
        yield _Lease(held=True, leader=lambda: "this process")
    finally:
        os.close(descriptor)
