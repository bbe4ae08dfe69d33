"""Locks of files between processes: each wait has a limit, and the message names the process that holds the lock.

Anybody who may read a file may lock it with ``flock``, another user of the machine too. So Silo locks files that only
their user can open: files of the store, journals and leases directly, everything else (a bundle, a lock file) through a
file of its own in the user's private folder (:func:`lock_of_place`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

from silo.forks import Notices, in_child
from silo.settings import settings
from silo.store.atomic_files import make_directory
from silo.store.privacy import check_folder, open_own

__all__ = ["HeldLockError", "file_lock", "holder_of", "is_file_at", "lock_of_place", "write_holder"]

_notices = Notices()
_swept: set[Path] = set()

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_HELD = frozenset({errno.EAGAIN, errno.EACCES})

_FIRST_NAP_S, _LAST_NAP_S = 0.0005, 0.01
_SILENT_S = 10.0  # shorter waits are not logged
_LEFT_S = 3600.0  # a lock file that is older and not held was left by a killed process
_MOST_COMMAND = 120  # characters of a command line that a message shows
_MOST_HOLDER = 4096  # bytes of a lock file that name its holder


class HeldLockError(OSError):
    """Another process held a lock for longer than ``SILO_LOCK_WAIT``. ``strerror`` names it and the cure."""

    def __init__(self, path: object, holder: str, limit_s: float) -> None:
        super().__init__(
            errno.ETIMEDOUT,
            f"its lock was waited for {limit_s:g} s, and is still held by {holder}; end that process, or wait longer "
            "with SILO_LOCK_WAIT",
            str(path),
        )


_locking: dict[int, int] = {}  # descriptors that hold a lock or wait for it, with the thread


def _let_go() -> None:
    # Closing them would leave their numbers to files that the child opens, which a finalizer could then close.
    for descriptor, thread in list(_locking.items()):
        if thread != threading.get_ident():
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(nothing, descriptor, inheritable=False)
            os.close(nothing)
            del _locking[descriptor]


in_child(_let_go)


@contextlib.contextmanager
def file_lock(descriptor: int, path: str | os.PathLike[str], *, exclusive: bool) -> Generator[bool]:
    """Hold an advisory lock on an open file; yields False if the file system lacks locks. ``path`` is for messages.

    The lock belongs to the open file, so a killed process never leaves it behind. A child made by fork meanwhile shares
    the open file, so it closes it: otherwise the lock of a killed holder would last as long as the child.

    Raises:
        HeldLockError: another process holds it for longer than ``SILO_LOCK_WAIT``.
    """
    maker = os.getpid()
    _locking[descriptor] = threading.get_ident()
    try:
        has_locks = _take(descriptor, path, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        try:
            yield has_locks
        finally:
            if has_locks and os.getpid() == maker:  # a child that leaves the block would unlock its parent's file
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        del _locking[descriptor]


def _take(descriptor: int, path: str | os.PathLike[str], kind: int) -> bool:
    """Lock the file, after a wait if need be; False if its file system lacks locks."""
    begun_s, nap_s, reported = time.monotonic(), _FIRST_NAP_S, False
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            if error.errno not in _HELD:
                raise
        else:
            return True
        waited_s, limit_s = time.monotonic() - begun_s, settings().lock_wait_s
        if waited_s >= limit_s:
            raise HeldLockError(path, holder_of(descriptor), limit_s)
        if waited_s >= _SILENT_S and not reported:
            reported = True
            import logging  # noqa: PLC0415  # takes milliseconds, and nobody waits as a rule

            from silo.sanitized_text import one_line  # noqa: PLC0415  # few locks are waited for

            logging.getLogger("silo").warning(
                "%s: waiting, for at most %g s (SILO_LOCK_WAIT), for %s, which holds its lock",
                one_line(os.fspath(path)),
                limit_s,
                holder_of(descriptor),
            )
        time.sleep(min(nap_s, limit_s - waited_s))
        nap_s = min(2 * nap_s, _LAST_NAP_S)


@contextlib.contextmanager
def lock_of_place(path: Path) -> Generator[bool]:
    """Hold the exclusive lock of a file's place, whether or not a file is there; yields False without locks.

    ``path`` is without links. The lock is a file in a folder of this user's, named after the file's name and the inode
    of its folder, so it does not change when the file is replaced. It is removed again.

    Raises:
        HeldLockError: another process holds it for longer than ``SILO_LOCK_WAIT``.
        OSError: the folder of ``path`` is missing.
    """
    place = f"{path.parent.stat().st_ino}/{path.name}"
    folder = _lock_folder()
    if folder is None:
        yield False
        return
    lock = folder / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:40]}.lock"
    maker = os.getpid()
    _sweep(folder)
    while True:
        descriptor = open_own(lock, os.O_RDWR | os.O_CREAT)
        try:
            with file_lock(descriptor, path, exclusive=True) as has_locks:
                if not is_file_at(lock, descriptor):  # its last holder has removed it
                    continue
                write_holder(descriptor)
                try:
                    yield has_locks
                finally:
                    if os.getpid() == maker:
                        lock.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


def _sweep(folder: Path) -> None:
    """Remove the lock files that killed processes left, once a process; a file that is held stays."""
    if folder in _swept:
        return
    _swept.add(folder)
    now_s = time.time()
    for path in folder.glob("*.lock"):
        with contextlib.suppress(OSError):
            if now_s - path.lstat().st_mtime < _LEFT_S:
                continue
            with os.fdopen(open_own(path, os.O_RDWR), "rb") as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def is_file_at(path: Path, descriptor: int) -> bool:
    """Whether ``path`` is the name of the file that is open."""
    try:
        named = path.lstat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)


def _lock_folder() -> Path | None:
    """The folder of locks, the same for every process of this user, whatever its store; None if there can be none."""
    reasons: list[str] = []
    for folder in (_cache_folder(), Path("/tmp", f"silo-locks-{os.geteuid()}")):  # noqa: S108  # checked to be private
        try:
            make_directory(folder)
            check_folder(folder)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror or error}")
            continue
        return folder
    _notices.once(
        "no folder of locks", f"processes that write one file do not wait for each other: {'; '.join(reasons)}"
    )
    return None


def _cache_folder() -> Path:
    import platformdirs  # noqa: PLC0415  # only what writes asks

    return Path(platformdirs.user_cache_dir("silo-locks", appauthor=False))


def write_holder(descriptor: int) -> None:
    """Write the holder into the lock file, for processes that cannot see it in the system's table (other machines)."""
    text = f"process {os.getpid()} on {os.uname().nodename} ({_shown(sys.argv)})".encode(errors="replace")
    with contextlib.suppress(OSError):  # a full disk costs this note, and no lock
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text[:_MOST_HOLDER], 0)


def holder_of(descriptor: int) -> str:
    """Return the name of the process that holds the lock of an open file, as text that is fit for a terminal."""
    from silo.sanitized_text import one_line  # noqa: PLC0415  # few locks are waited for

    status = os.fstat(descriptor)
    if (process := _locking_process(status.st_dev, status.st_ino)) is not None:
        return _described(process)
    with contextlib.suppress(OSError):
        if (text := os.pread(descriptor, _MOST_HOLDER, 0)).startswith(b"process "):
            return one_line(text.decode(errors="replace"))
    return "a process that cannot be seen from here (on another machine, or in another container)"


def _locking_process(device: int, inode: int) -> int | None:
    """The process in ``/proc/locks`` that holds a ``flock`` of a file; None if the system lacks the table."""
    try:
        rows = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found: dict[bool, int] = {}
    for row in rows:
        # 1: FLOCK  ADVISORY  WRITE 1234 fe:01:131 0 EOF; a waiting process has -> before FLOCK
        words = row.split()
        if len(words) < 6 or words[1] != "FLOCK" or not words[4].isdigit():
            continue
        major, minor, number = words[5].split(":")
        if int(number) == inode and int(words[4]) > 0:
            # Some file systems show another device there than to stat.
            exact = (int(major, 16), int(minor, 16)) == (os.major(device), os.minor(device))
            found.setdefault(exact, int(words[4]))
    return found.get(True, found.get(False))


def _described(process: int) -> str:
    folder = Path("/proc", str(process))
    try:
        owner = folder.stat().st_uid
        command = (folder / "cmdline").read_bytes()
    except OSError:
        return f"process {process}"
    whose = "" if owner == os.geteuid() else f" of user {owner}"
    shown = _shown([part.decode(errors="replace") for part in command.rstrip(b"\0").split(b"\0")])
    return f"process {process}{whose} ({shown})"


def _shown(command: list[str]) -> str:
    from silo.sanitized_text import one_line  # noqa: PLC0415  # few locks are waited for

    text = one_line(" ".join(command))
    return text if len(text) <= _MOST_COMMAND else f"{text[:_MOST_COMMAND]}..."
