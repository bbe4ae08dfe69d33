"""Temporary folders. The process that made a folder removes it; if it was killed, a later process removes the folder.

A process holds a lock (``flock``) on its folder until the process ends, however it ends: a folder whose lock is free
belongs to a process that has ended. A process id in the folder's name would not show this, because containers that
share ``/tmp`` have process ids of their own.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["keep_text", "own_folder"]

_PREFIXES = ("silo-caches-", "silo-cc-", "silo-cuda-", "silo-cute-", "silo-folded-", "silo-pch-")
_KEPT = "silo-failed-"
_MOST_LOOKED_AT = 5000  # at most this many names are read in the temporary folder
_MOST_REMOVED = 64  # at most this many folders are removed in one run
_YOUNG_S = 60.0  # a folder younger than this stays: its maker may not have locked it yet
_KEPT_S = 24 * 3600.0
_MOST_KEPT = 16

_swept = False


@contextmanager
def own_folder(prefix: str) -> Generator[str]:
    """Makes a temporary folder that only this process removes. The first call removes leftovers of killed processes.

    A signal handler may fork while a compiler writes to the folder, and the child may leave this block before the
    parent does. ``tempfile.TemporaryDirectory`` would then remove the folder in the child, at the latest when the child
    ends.
    """
    import shutil  # noqa: PLC0415  # a launch makes no folder
    import tempfile  # noqa: PLC0415

    assert prefix in _PREFIXES, "a folder that nobody would sweep"
    _sweep(Path(tempfile.gettempdir()))
    maker, folder = os.getpid(), tempfile.mkdtemp(prefix=prefix)
    lock = _lock(folder)
    try:
        yield folder
    finally:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def keep_text(text: str, suffix: str) -> str:
    """Writes text that a compiler rejected into a file that the user can read; returns the file's path.

    The newest 16 files of this user are kept, each for a day; older files are removed.

    Raises:
        OSError: the file cannot be written.
    """
    import tempfile  # noqa: PLC0415

    handle, name = tempfile.mkstemp(prefix=_KEPT, suffix=suffix)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    own = sorted(_own_entries(Path(name).parent, (_KEPT,), folders=False), key=lambda pair: -pair[1])
    newest = Path(name).stat().st_mtime
    for place, (path, changed_s) in enumerate(own):
        if path != name and (place >= _MOST_KEPT or newest - changed_s > _KEPT_S):
            _unlink(path)
    return name


def _sweep(parent: Path) -> None:
    """Removes the folders of processes that have ended. Does so once in a process."""
    import shutil  # noqa: PLC0415
    import time  # noqa: PLC0415

    global _swept  # noqa: PLW0603
    if _swept:
        return
    _swept = True
    before_s = time.time() - _YOUNG_S
    for count, (path, changed_s) in enumerate(_own_entries(parent, _PREFIXES, folders=True)):
        if count >= _MOST_REMOVED:
            return
        if changed_s < before_s and (lock := _lock(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _own_entries(parent: Path, prefixes: tuple[str, ...], *, folders: bool) -> Iterator[tuple[str, float]]:
    """Yields path and time of change of this user's files or folders with one of these prefixes.

    At most ``_MOST_LOOKED_AT`` names are read.
    """
    try:
        with os.scandir(parent) as entries:
            for count, entry in enumerate(entries):
                if count >= _MOST_LOOKED_AT:
                    return
                if not entry.name.startswith(prefixes):
                    continue
                try:
                    is_kind = entry.is_dir(follow_symlinks=False) if folders else entry.is_file(follow_symlinks=False)
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # another process has removed it
                    continue
                if is_kind and status.st_uid == os.geteuid():
                    yield entry.path, status.st_mtime
    except OSError:
        return  # a folder that cannot be read is never swept


def _lock(folder: str) -> int | None:
    """Returns a descriptor that holds the lock on a folder; None if another process holds it or locking fails."""
    import fcntl  # noqa: PLC0415

    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _unlink(path: str) -> None:
    from contextlib import suppress  # noqa: PLC0415

    with suppress(OSError):  # another process has removed it
        Path(path).unlink()
