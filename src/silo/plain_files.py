"""Opening files that somebody else may have made, without hanging and without reading more than is allowed.

A path that a user names, or a name beside it, may lead to a pipe (which keeps its opener waiting), a device (which
never ends) or a sparse file (which takes no disk, and its whole size of memory). These functions open plain files alone
and read at most a limit. They are for data. Files that Silo writes again, or whose contents it trusts, are opened by
:mod:`silo.store.privacy`.
"""

from __future__ import annotations

import errno
import os
import stat

from silo.settings import settings

__all__ = ["FileRefusedError", "open_plain", "read_open", "read_plain"]

_CHUNK = 1 << 20


class FileRefusedError(OSError):
    """A file that is not opened or not read, although the system would. ``strerror`` is the reason."""

    def __init__(self, reason: str, path: object, number: int = errno.EPERM) -> None:
        super().__init__(number, reason, str(path))


def open_plain(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a plain file and return its descriptor, which child processes do not inherit.

    Add ``os.O_NOFOLLOW`` to ``flags`` to refuse a symbolic link as the last part of ``path``.

    Args:
        path: the file's path.
        flags: as of ``os.open``.
        mode: the permissions of a file that ``os.O_CREAT`` makes.

    Raises:
        FileRefusedError: it is a pipe, a device, a folder or a socket, or a link that ``flags`` refuse.
        OSError: it cannot be opened.

    >>> open_plain("/dev/zero")
    Traceback (most recent call last):
    silo.plain_files.FileRefusedError: [Errno 1] it is not a plain file: '/dev/zero'
    """
    try:
        # O_NONBLOCK: opening a pipe without a writer would wait. O_NOCTTY: opening a terminal changes nothing.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise FileRefusedError("it is a symbolic link", os.fspath(path)) from None
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a pipe without a reader
            raise FileRefusedError("it is not a plain file", os.fspath(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefusedError("it is not a plain file", os.fspath(path))
    return descriptor


def read_plain(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return the bytes of a plain file of at most ``most`` bytes, ``SILO_FILE_BYTES`` if None.

    The size is compared before anything is read; a file that grows meanwhile is refused as well.

    Raises:
        FileRefusedError: it is not a plain file, or it is larger.
        OSError: it cannot be opened or read.
    """
    descriptor = open_plain(path)
    try:
        return read_open(descriptor, path, most)
    finally:
        os.close(descriptor)


def read_open(descriptor: int, path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Works like :func:`read_plain`, for a file that is open at its beginning; ``path`` is for messages."""
    allowed = settings().file_bytes if most is None else most
    raised = "; if you know where it comes from, raise SILO_FILE_BYTES" if most is None else ""
    size = os.fstat(descriptor).st_size
    parts: list[bytes] = []
    held = 0
    if size <= allowed:
        while part := os.read(descriptor, min(_CHUNK, allowed + 1 - held)):
            parts.append(part)
            held += len(part)
            if held > allowed:
                break
    if max(size, held) > allowed:
        raise FileRefusedError(
            f"it has {max(size, held)} bytes, and {allowed} may be read{raised}", os.fspath(path), errno.EFBIG
        )
    return b"".join(parts)
