"""Writing files so that a crash leaves the old file or the new one."""

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

# Names of unfinished files: never read, swept away when they are old and their writer is gone.
TEMPORARY_PREFIX = ".silo-tmp-"

_BLOCK_BYTES = 4096


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte, or raise ``OSError`` (a full disk shows as a short write first, as ENOSPC next)."""
    view = memoryview(data)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


class AtomicFile:
    """A file that appears under its name complete and durable, or not at all.

    Used as a context manager; leaving without :meth:`commit` removes the new file. The temporary file is in the same
    directory, so that the final rename is atomic.
    """

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        self.path = path
        self._temporary = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        self._descriptor = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        # Tells sweepers that the writer lives.
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._position = 0
        self._committed = False

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: bytes | memoryview) -> None:
        """Append to the file."""
        write_all(self._descriptor, data)
        self._position += len(data)

    def patch(self, offset: int, data: bytes) -> None:
        """Overwrite bytes that were written before."""
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        write_all(self._descriptor, data)
        os.lseek(self._descriptor, self._position, os.SEEK_SET)

    def commit(self, *, permissions: int | None = None) -> None:
        """Make the bytes durable and give the file its name, replacing any former file."""
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
    """Remove the unfinished files of killed writers in one directory; returns their number and their bytes.

    A living writer holds the lock of its file; the age covers the moment between making a file and locking it.
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
    """The bytes that a file of this length takes on most disks: whole blocks of 4 KiB."""
    return -(-length // _BLOCK_BYTES) * _BLOCK_BYTES


def publish(path: Path, data: bytes) -> None:
    """Write a small file of the store atomically and durably; its directory is made when it is missing.

    ``OSError`` if the disk refuses, or if others may write that directory.
    """
    make_directory(path.parent)
    check_folder(path.parent)
    with AtomicFile(path) as file:
        file.write(data)
        file.commit()
