"""Opens files that other users may have made, without waiting for ever and without reading more than a limit.

A path that a user names, or the path of a file beside it, may lead to a pipe (whose opener waits), a device (which
never ends) or a sparse file (which takes no disk space, but as much memory as its stated size). These functions open
only plain (regular) files and refuse files that are larger than a limit. Use them for data. Files that Silo writes
again, or whose contents it trusts, are opened by :mod:`silo.store.privacy`.
"""

from __future__ import annotations

import errno
import os
import stat

from silo.settings import settings

__all__ = ["FileRefusedError", "open_plain", "read_open", "read_plain"]

_CHUNK = 1 << 20


class FileRefusedError(OSError):
    """A file that Silo refuses to open or to read, although the system would allow it. ``strerror`` is the reason."""

    def __init__(self, reason: str, path: object, number: int = errno.EPERM) -> None:
        super().__init__(number, reason, str(path))


def open_plain(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Opens a plain file and returns its descriptor, which child processes do not inherit.

    Add ``os.O_NOFOLLOW`` to ``flags`` to refuse a symbolic link as the last part of ``path``.

    Args:
        path: the file's path.
        flags: the flags of ``os.open``.
        mode: the permissions of a file that ``os.O_CREAT`` makes.

    Raises:
        FileRefusedError: the path leads to a pipe, a device, a folder or a socket, or is a link that ``flags`` refuse.
        OSError: the file cannot be opened.

    >>> open_plain("/dev/zero")
    Traceback (most recent call last):
    silo.plain_files.FileRefusedError: [Errno 1] it is not a plain file: '/dev/zero'
    """
    try:
        # Without O_NONBLOCK, opening a pipe that has no writer would wait. O_NOCTTY: an opened terminal does not become
        # the process's controlling terminal.
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
    """Returns the bytes of a plain file of at most ``most`` bytes (``SILO_FILE_BYTES`` if None).

    The size is compared before anything is read; a file that grows meanwhile is refused as well.

    Raises:
        FileRefusedError: the path does not lead to a plain file, or the file is larger than the limit.
        OSError: the file cannot be opened or read.
    """
    descriptor = open_plain(path)
    try:
        return read_open(descriptor, path, most)
    finally:
        os.close(descriptor)


def read_open(descriptor: int, path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Reads a plain file like :func:`read_plain`, from a descriptor at the file's beginning; messages name ``path``."""
    allowed = settings().file_bytes if most is None else most
    raised = "; if you know where it comes from, raise SILO_FILE_BYTES" if most is None else ""
    size = os.fstat(descriptor).st_size
    parts: list[bytes] = []
    bytes_read = 0
    if size <= allowed:
        while part := os.read(descriptor, min(_CHUNK, allowed + 1 - bytes_read)):
            parts.append(part)
            bytes_read += len(part)
            if bytes_read > allowed:
                break
    if max(size, bytes_read) > allowed:
        raise FileRefusedError(
            f"it has {max(size, bytes_read)} bytes, and {allowed} may be read{raised}", os.fspath(path), errno.EFBIG
        )
    return b"".join(parts)
