"""Writes files so that after a crash either the old file or the new one is there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from silo.plain_files import open_plain
from silo.store.privacy import check_folder, make_directory, sync_directory

__all__ = [
    "TEMPORARY_PREFIX",
    "AtomicFile",
    "disk_bytes",
    "publish",
    "sweep_abandoned",
    "write_all",
]

# The prefix of unfinished files, which are never read. They are removed once they are old and their writer is gone.
TEMPORARY_PREFIX = ".silo-tmp-"

_BLOCK_BYTES = 4096


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Writes every byte, or raises ``OSError``.

    (A full disk first accepts only a part of a write; the next raises ENOSPC.)
    """
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


class AtomicFile:
    """A file that appears under its name complete and durable, or not at all.

    Used as a context manager; leaving the block without :meth:`commit` removes the new file. The temporary file is in
    the same directory, so that the final rename is atomic.
    """

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        self.path = path
        self._temporary = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        self._descriptor = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        # The lock shows other processes that the writer is alive, so that they do not remove the file.
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._position = 0
        self._committed = False

    @property
    def position(self) -> int:
        """The number of bytes written so far."""
        return self._position

    def write(self, data: bytes | memoryview) -> None:
        """Appends to the file."""
        write_all(self._descriptor, data)
        self._position += len(data)

    def patch(self, offset: int, data: bytes) -> None:
        """Overwrites bytes that were written before."""
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        write_all(self._descriptor, data)
        os.lseek(self._descriptor, self._position, os.SEEK_SET)

    def commit(self, *, permissions: int | None = None) -> None:
        """Makes the bytes durable and gives the file its name, replacing any earlier file."""
        if permissions is not None:
            os.fchmod(self._descriptor, permissions)
        os.fsync(self._descriptor)
        self._temporary.replace(self.path)
        self._committed = True
        sync_directory(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        if not self._committed:
            with contextlib.suppress(OSError):
                self._temporary.unlink()


def sweep_abandoned(directory: Path, *, older_than_s: float = 60) -> tuple[int, int]:
    """Removes the unfinished files of killed writers in one directory; returns their number and their bytes.

    A living writer holds a lock on its file. Files younger than ``older_than_s`` are spared, because a writer locks its
    file only after it has made it.
    """
    count = freed = 0
    now_s = time.time()
    for path in directory.glob(f"{TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                status = os.fstat(descriptor)
                if now_s - status.st_mtime >= older_than_s:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                    count, freed = count + 1, freed + status.st_size
            finally:
                os.close(descriptor)
    return count, freed


def disk_bytes(length: int) -> int:
    """Returns the bytes that a file of this length takes on most disks: whole blocks of 4 KiB."""
    return -(-length // _BLOCK_BYTES) * _BLOCK_BYTES


def publish(path: Path, data: bytes) -> None:
    """Writes a small file of the store atomically and durably; makes its directory if that is missing.

    Raises ``OSError`` if the disk refuses, or if others may write that directory.
    """
    make_directory(path.parent)
    check_folder(path.parent)
    with AtomicFile(path) as file:
        file.write(data)
        file.commit()
