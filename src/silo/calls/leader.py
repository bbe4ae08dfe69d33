"""Leader mode: of all processes that need a decision, one measures and writes it into the lock file; the others wait.

Who holds the lease (a lock of the system on a file beside the lock file) measures. A process gives it back when it
ends, however that happens, and the next one goes on from the trials that were kept. Nobody waits in a collective.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from silo.core.config import Config
from silo.core.decisions import Decision, Rejected
from silo.core.notices import Notices
from silo.errors import FrozenError, LockError, SettingsError
from silo.frozen import frozen
from silo.measuring.lock_files import read_lock, update_lock
from silo.settings import settings
from silo.store.locks import holder_of, write_holder
from silo.store.privacy import open_own, output_place

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.measuring.study_key import StudyKey
    from silo.tuner.outcome import TuneOutcome

__all__ = ["led_config"]

_LOOK_S = 0.1
_SILENT_S = 10.0  # a wait that is shorter is no line of the log
_notices = Notices()


@frozen
class _Lease:
    """Whether this process is the leader; ``leader`` names the one that is."""

    held: bool
    leader: Callable[[], str]


def led_config(
    kernel: DeclaredKernel,
    problem: StudyKey,
    situation: CallContext,
    can_measure: Callable[[], Decision],
    tuned: Callable[[], TuneOutcome | None],
) -> Config:
    """The config that the lock file has for a call, or will have once the leader has measured.

    Raises:
        SettingsError: no lock file is named.
        LockError: it cannot be read or written, or lies where the system has no locks.
        FrozenError: this call cannot be measured, no config works, or nobody has decided in time.
    """
    named = settings().lock if kernel.lock is None else kernel.lock
    if named is None:
        raise SettingsError(
            f"{kernel.name}: tune='leader' needs a lock file that all processes share; name it with SILO_LOCK"
        )
    path = Path(named)
    study = problem.study(situation.specialization, situation.bucket)
    begin = time.monotonic()
    while True:
        if (config := _written(path, problem, situation)) is not None:
            return config
        with _lease(path) as lease:
            if lease.held:
                # Another process may have written it and gone meanwhile.
                if (config := _written(path, problem, situation)) is not None:
                    return config
                if isinstance(able := can_measure(), Rejected):
                    raise FrozenError(
                        f"{study}: leader mode has no decision in {path}, and this call cannot be measured "
                        f"({able.reason}); write one with silo tune --lock"
                    )
                update_lock(path, [])  # so that it is there
                outcome = tuned()
                rows = [] if outcome is None else update_lock(path, [outcome])
                decided = rows[0].config if rows else None
                if decided is None:
                    raise FrozenError(f"{study}: leader mode found no config that can be used")
                return decided
            waited_s = time.monotonic() - begin
            if waited_s > settings().leader_wait_s:
                raise FrozenError(
                    f"{study}: waited {waited_s:.0f} s for {lease.leader()}, which measures, and {path} has "
                    "no decision yet; end that process, raise SILO_LEADER_WAIT, or tune before with silo tune --lock"
                )
            if waited_s > _SILENT_S:
                _notices.once(
                    f"waits {path}",
                    f"{study}: waiting, for at most {settings().leader_wait_s:g} s (SILO_LEADER_WAIT), for "
                    f"{lease.leader()}, which measures",
                )
        time.sleep(_LOOK_S)


def _written(path: Path, problem: StudyKey, situation: CallContext) -> Config | None:
    """The decision on this very study in the lock file, if it is there."""
    if not path.exists():
        return None
    advice = read_lock(path).advise(problem.study(situation.specialization, situation.bucket), situation.reach)
    return advice.config if advice.exact else None


@contextlib.contextmanager
def _lease(path: Path) -> Generator[_Lease]:
    """The lease beside a lock file, held until the block ends where no other process has it."""
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
