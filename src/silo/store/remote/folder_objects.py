"""Objects in a folder of a file share (``file:/mnt/share/silo``)."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from silo.errors import RemoteError
from silo.store.atomic_files import TEMPORARY_PREFIX, write_all
from silo.store.remote.object_protocol import PARTS

__all__ = ["FolderObjects"]

_PAGE = 1000
_ABSENT = (FileNotFoundError, NotADirectoryError)
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


class FolderObjects:
    """Files below ``root``, which must exist: a share that is not mounted is an error, not an empty store.

    Other users may write below ``root`` too, so nothing is used before it is verified. New files get the permissions
    that the umask and the share allow.
    """

    parts = PARTS

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, name: str, most: int, deadline: float) -> bytes | None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        del deadline  # the caller limits the wait
        path = self._root / name
        try:
            # O_NONBLOCK, because opening a pipe would wait for its other end.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except _ABSENT:
            self._check_root()
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RemoteError(f"{path} is a link", kind="lie") from error
            raise _fault(error, path) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise RemoteError(f"{path} is no plain file", kind="lie")
            if status.st_size > most:
                raise RemoteError(f"{name} has {status.st_size} bytes, more than the {most} it may have", kind="lie")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(most)
        except OSError as error:
            raise _fault(error, path) from error
        finally:
            os.close(descriptor)

    def put(self, name: str, data: bytes, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        del deadline
        path = self._root / name
        try:
            if path.exists():
                return
            self._check_root()
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
            # 0666 without the umask's bits, because others who share the folder must be able to read the file.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                try:
                    write_all(descriptor, data)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                _name(temporary, path)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()
        except OSError as error:
            raise _fault(error, path) from error

    def remove(self, name: str, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        del deadline
        path = self._root / name
        try:
            path.unlink()
        except _ABSENT:
            self._check_root()
        except OSError as error:
            raise _fault(error, path) from error

    def list(self, folder: str, deadline: float) -> Iterator[list[str]]:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        del deadline
        waiting = [self._root / folder]
        skipped = len(str(waiting[0])) + 1
        while waiting:
            path = waiting.pop()
            try:
                with os.scandir(path) as entries:
                    page: list[str] = []
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(path / entry.name)
                        elif not entry.name.startswith("."):
                            page.append(entry.path[skipped:])
                        if len(page) == _PAGE:
                            yield page
                            page = []
                    yield page
            except _ABSENT:
                self._check_root()
            except OSError as error:
                raise _fault(error, path) from error

    def _check_root(self) -> None:
        if not self._root.is_dir():
            raise RemoteError(f"there is no folder {self._root}: mount the share, or make the folder", kind="fault")


def _name(temporary: Path, path: Path) -> None:
    """Gives a written file its name, unless a file with this name exists."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        temporary.replace(path)  # replacing is harmless: files of one name have equal bytes


def _fault(error: OSError, path: Path) -> RemoteError:
    kind = "refused" if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else "fault"
    return RemoteError(f"{path}: {error.strerror or error}", kind=kind)
