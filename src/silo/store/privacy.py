"""Files that only this user may write: checks that a store is private, opening its files, and locks between processes.

Compiled code of the store runs in its user's processes, so anybody who may write there could run code as that user. Two
checks make sure that only this user may. Before a store is used, :func:`examine` walks from ``/`` to its root and over
its folders. Whenever one of its files is opened, :func:`open_private` checks the folder and the opened file. If
somebody replaces a file between these checks, no harm is done: a file that is read was written by this user, whatever
path led to it.

Files that Silo keeps beside other files, perhaps in a folder that somebody else made (journals, leases), are opened by
:func:`open_own`, which checks only the file. :func:`output_place` returns the place where a file of the user is
written.

Anybody who may read a file may lock it with ``flock``, even another user of the machine. So Silo locks only files that
nobody else can open: files of the store, journals and leases directly, and every other file (a bundle, a lock file)
through a file of its own in the user's private folder (:func:`lock_of_place`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

from silo.core.decisions import Accepted, Decision, Rejected
from silo.forks import Notices, in_child
from silo.frozen import frozen
from silo.plain_files import FileRefusedError, open_plain
from silo.settings import absolute_path, settings

__all__ = [
    "HeldLockError",
    "Node",
    "NotPrivateError",
    "check_folder",
    "examine",
    "file_lock",
    "holder_of",
    "is_file_at",
    "is_private",
    "is_safe_on_the_way",
    "lock_of_place",
    "make_directory",
    "open_own",
    "open_private",
    "output_place",
    "private_size",
    "read_private",
    "sync_directory",
    "write_holder",
]

_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES})

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # as many as Linux follows
_ROOT = 0


class NotPrivateError(FileRefusedError):
    """A file or folder that others may have written. ``strerror`` is the reason."""


@frozen
class Node:
    """One file, folder or link on the path to a store, or in the store, with its ``lstat`` result."""

    path: str
    mode: int
    owner: int
    group: int

    @property
    def rights(self) -> str:
        """The owner and the mode, for people."""
        return f"owner {_user_name(self.owner)}, mode {stat.S_IMODE(self.mode):o}"


def is_private(mode: int, owner: int, user: int) -> Decision:
    """Decides whether only the user can have written a file or folder, so that its contents may be trusted.

    >>> is_private(0o100644, 1000, 1000)
    Accepted(reason='')
    >>> is_private(0o100664, 1000, 1000).reason
    'others may write it (mode 664)'
    >>> is_private(0o120777, 1000, 1000).reason
    'it is a symbolic link'
    """
    if stat.S_ISLNK(mode):
        return Rejected("it is a symbolic link")
    if owner != user:
        return Rejected(f"it belongs to user {owner}, not {user}")
    if mode & _OTHERS_WRITE:
        return Rejected(f"others may write it (mode {stat.S_IMODE(mode):o})")
    return Accepted()


def is_safe_on_the_way(node: Node, user: int, *, own_group: int | None = None, unmapped: int | None = None) -> Decision:
    """Decides whether only the user and root can replace the entries of a folder on the path to a store.

    A link on the path must belong to the user or root too, because its owner could let it lead elsewhere. A folder that
    others may write is accepted if it has the sticky bit, like ``/tmp``: only the owner of an entry may replace it, and
    that owner is checked next.

    ``own_group``, a group whose only member is the user, may write too, because systems with such groups make folders
    writable for them. ``unmapped`` is the owner that this user namespace shows for every unmapped user, including root;
    None if root is mapped.

    >>> is_safe_on_the_way(Node("/tmp", 0o41777, 0, 0), 1000)
    Accepted(reason='')
    >>> is_safe_on_the_way(Node("/shared", 0o40777, 0, 0), 1000).reason
    'others may put something else in the place of what it holds'
    >>> is_safe_on_the_way(Node("/home/eve", 0o40755, 1001, 1001), 1000).reason
    'it belongs to user 1001, who may put something else in the place of what it holds'
    """
    if node.owner not in (user, _ROOT, unmapped):
        return Rejected(f"it belongs to user {node.owner}, who may put something else in the place of what it holds")
    writers = node.mode & _OTHERS_WRITE
    if stat.S_ISLNK(node.mode) or not writers or node.mode & stat.S_ISVTX:
        return Accepted()
    if writers == stat.S_IWGRP and own_group is not None and node.group == own_group:
        return Accepted()
    return Rejected("others may put something else in the place of what it holds")


def examine(root: Path, names: tuple[str, ...]) -> Decision:
    """Decides whether the store at ``root`` can hold only this user's files. A rejection gives path, reason and remedy.

    Checks the folders and links from ``/`` on, ``root`` itself and the ``names`` in it, as far as they exist. A name
    that cannot be examined cannot be read either, so it is accepted.
    """
    user = os.geteuid()
    way, real_path = _way_to(str(root))
    for node in way:
        safe = is_safe_on_the_way(node, user)
        # Looking up the group and the namespace takes long, and matters only for a folder that was just rejected.
        if not safe:
            safe = is_safe_on_the_way(node, user, own_group=_own_group(user), unmapped=_unmapped_owner())
        if isinstance(safe, Rejected):
            return Rejected(f"{node.path} ({node.rights}): {safe.reason}; {_mended_on_the_way(node, user)}")
    if real_path is None:
        return Accepted()
    for path in (real_path, *(f"{real_path}/{name}" for name in names)):
        node = _node_at(path)
        private = Accepted() if node is None else is_private(node.mode, node.owner, user)
        if node is not None and isinstance(private, Rejected):
            return Rejected(f"{path} ({node.rights}): {private.reason}; {_mended(node, user)}")
    return Accepted()


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Opens a file of the store after checking that only its user may have written it and its folder.

    Raises:
        NotPrivateError: the file or its folder belongs to another user, or others may write it; or the path is a link,
            or no plain file.
        OSError: the file cannot be opened.
    """
    check_folder(path.parent)
    descriptor, _ = _opened(path, flags)
    return descriptor


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Opens a file that Silo keeps beside another one, in any folder, after checking that only this user may write it.

    The path must not be a link, and the file must be a plain file of this user with only one name: a second name (a
    hard link) could present another file of the user as this one. A new file gets the mode 0600, and an older file gets
    it when it is opened for writing, because anybody who can read a file can lock it.

    Raises:
        NotPrivateError: the file is of another kind, or others may write it.
        OSError: the file cannot be opened.
    """
    descriptor, status = _opened(path, flags)
    if status.st_nlink > 1:  # 0 if the file was just removed
        os.close(descriptor)
        raise NotPrivateError(f"it is a file with {status.st_nlink} names (hard links), perhaps one of yours", path)
    if flags & (os.O_RDWR | os.O_WRONLY) and stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        os.fchmod(descriptor, 0o600)
    return descriptor


def _opened(path: Path, flags: int) -> tuple[int, os.stat_result]:
    try:
        descriptor = open_plain(path, flags | os.O_NOFOLLOW)
    except FileRefusedError as error:
        raise NotPrivateError(error.strerror or "", path) from None
    try:
        status = os.fstat(descriptor)
        _check(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def output_place(path: str | os.PathLike[str]) -> Path:
    """Returns the path to write a file of the user to, with all links resolved: writing there replaces no link.

    A link of another user is refused, because with it that user would choose which file of this user is overwritten.

    Raises:
        NotPrivateError: a link on the path belongs to neither this user nor root.
        SettingsError: the path is relative, and the working folder was deleted.
    """
    absolute = absolute_path(Path(path))
    for _ in range(_MOST_LINKS):
        # Owner and target of each link are read in one call: between two calls, another user could replace the link.
        if (link_target := _way_of_own_links(absolute)) is not None:
            return link_target
        if (folder := _way_of_own_links(absolute.parent)) is None:
            return absolute  # the folder is missing: writing the file will raise the error
        absolute = folder / absolute.name
        node = _node_at(str(absolute))
        if node is None or not stat.S_ISLNK(node.mode):
            return absolute
        _refuse_foreign_link(node)
        absolute = folder / (_target(str(absolute)) or absolute.name)
    raise NotPrivateError("links lead to links without end", path)


def _way_of_own_links(path: Path) -> Path | None:
    """Returns ``path`` with links resolved, None if it is missing. Raises NotPrivateError for another user's link."""
    way, real_path = _way_to(str(path))
    for node in way:
        if stat.S_ISLNK(node.mode):
            _refuse_foreign_link(node)
    return None if real_path is None else Path(real_path)


def _refuse_foreign_link(node: Node) -> None:
    if node.owner not in (os.geteuid(), _ROOT, _unmapped_owner()):
        reason = f"the way to it leads over a link of user {_user_name(node.owner)}; name the place it leads to"
        raise NotPrivateError(reason, node.path)


def read_private(path: Path) -> bytes:
    """Returns the bytes of a file that :func:`open_private` opens. Raises its errors."""
    with os.fdopen(open_private(path), "rb") as file:
        return file.read()


def private_size(path: Path) -> int | None:
    """Returns the size of a file that :func:`open_private` would open; None if it would refuse the file."""
    try:
        check_folder(path.parent)
        status = path.lstat()
        _check(path, status)
    except OSError:
        return None
    return status.st_size


def check_folder(path: Path) -> None:
    """Raises :class:`NotPrivateError` if others may write a folder of the store, ``OSError`` if it is missing."""
    status = path.lstat()
    private = is_private(status.st_mode, status.st_uid, os.geteuid())
    if isinstance(private, Rejected):
        raise NotPrivateError(private.reason, path)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable.

    Does nothing if the file system cannot do so, or if the directory can be written but not read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Creates a directory and its missing parents, durably and with mode 0700."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    sync_directory(path.parent)


def _check(path: Path, status: os.stat_result) -> None:
    private = is_private(status.st_mode, status.st_uid, os.geteuid())
    if private and not stat.S_ISREG(status.st_mode):
        private = Rejected("it is not a plain file")
    if isinstance(private, Rejected):
        raise NotPrivateError(private.reason, path)


def _way_to(root: str) -> tuple[list[Node], str | None]:
    """Returns the folders and links on the path to ``root``, and the path without links.

    Returns None in place of the path without links if ``root`` does not exist.
    """
    way: list[Node] = []
    parts_left, links = _parts(root), 0
    node = _node_at("/")
    while node is not None:
        at = node.path
        if stat.S_ISLNK(node.mode):
            links += 1
            target = _target(at)
            if target is None or links > _MOST_LINKS:
                break
            way.append(node)
            parts_left += _parts(target)
            at = "/" if target.startswith("/") else _parent(at)
        elif parts_left:
            way.append(node)
        if not parts_left:
            return way, at
        part = parts_left.pop()
        node = _node_at(_parent(at) if part == ".." else f"{at.rstrip('/')}/{part}")
    return way, None


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _node_at(path: str) -> Node | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return Node(path, status.st_mode, status.st_uid, status.st_gid)


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115  # paths are texts here
    except OSError:
        return None


def _own_group(user: int) -> int | None:
    """Returns the user's primary group if it has the user's name and lists no other member; else None."""
    import grp  # noqa: PLC0415  # seldom needed, and looking up a group may ask a server
    import pwd  # noqa: PLC0415

    try:
        entry = pwd.getpwuid(user)
        group = grp.getgrgid(entry.pw_gid)
    except KeyError:
        return None
    return group.gr_gid if group.gr_name == entry.pw_name and set(group.gr_mem) <= {entry.pw_name} else None


def _unmapped_owner() -> int | None:
    """Returns the owner of root's files in a user namespace without root (a sandbox); None in other namespaces."""
    try:
        text = Path("/proc/self/uid_map").read_text(encoding="utf-8")
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return None if any(line.split()[0] == "0" for line in text.splitlines()) else overflow


def _user_name(user: int) -> str:
    import pwd  # noqa: PLC0415  # seldom needed

    try:
        return f"{user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return str(user)


def _mended_on_the_way(node: Node, user: int) -> str:
    import shlex  # noqa: PLC0415  # only the message of a refusal needs it

    if node.owner == user:
        return f"mend it with: chmod go-w {shlex.quote(node.path)}"
    return "name a folder of your own with SILO_HOME"


def _mended(node: Node, user: int) -> str:
    import shlex  # noqa: PLC0415  # only the message of a refusal needs it

    path = shlex.quote(node.path)
    if stat.S_ISLNK(node.mode):
        return f"move what it leads to into its place, or start anew with: rm {path}"
    entry = "if you know who wrote what it holds, mend it with"
    if node.owner != user:
        sudo = "" if user == _ROOT else "sudo "
        return f"name a folder of your own with SILO_HOME or, {entry}: {sudo}chown -R {user} {path}"
    return f"{entry}: chmod -R go-w {path}"


_notices = Notices()
_swept: set[Path] = set()

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_HELD = frozenset({errno.EAGAIN, errno.EACCES})

_FIRST_NAP_S, _LAST_NAP_S = 0.0005, 0.01
_SILENT_S = 10.0  # shorter waits are not logged
_LEFT_S = 3600.0  # a lock file that is older and that no process holds was left by a killed process
_MOST_COMMAND = 120  # the most characters of a command line in a message
_MOST_HOLDER = 4096  # the most bytes of a lock file that name its holder


class HeldLockError(OSError):
    """Another process held a lock longer than ``SILO_LOCK_WAIT``. ``strerror`` names that process and the remedy."""

    def __init__(self, path: object, holder: str, limit_s: float) -> None:
        super().__init__(
            errno.ETIMEDOUT,
            f"its lock was waited for {limit_s:g} s, and is still held by {holder}; end that process, or wait longer "
            "with SILO_LOCK_WAIT",
            str(path),
        )


_locking: dict[int, int] = {}  # file descriptors that hold a lock or wait for one, each with its thread


def _let_go() -> None:
    # The descriptors now refer to /dev/null and stay open. If they were closed, files that the child opens could get
    # the same numbers; then a finalizer that closes the old descriptors would close these files.
    for descriptor, thread in list(_locking.items()):
        if thread != threading.get_ident():
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(nothing, descriptor, inheritable=False)
            os.close(nothing)
            del _locking[descriptor]


in_child(_let_go)


@contextlib.contextmanager
def file_lock(descriptor: int, path: str | os.PathLike[str], *, exclusive: bool) -> Generator[bool]:
    """Holds an advisory lock on an open file; yields False if the file system lacks locks. ``path`` is for messages.

    The lock belongs to the open file, so a killed process never leaves it behind. A child that is forked meanwhile
    shares the open file. The child closes it, because otherwise the lock would last as long as the child even if the
    holder is killed.

    Raises:
        HeldLockError: another process holds the lock for longer than ``SILO_LOCK_WAIT``.
    """
    maker = os.getpid()
    _locking[descriptor] = threading.get_ident()
    try:
        has_locks = _take(descriptor, path, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        try:
            yield has_locks
        finally:
            # a forked child that leaves the block would unlock its parent's file
            if has_locks and os.getpid() == maker:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        del _locking[descriptor]


def _take(descriptor: int, path: str | os.PathLike[str], kind: int) -> bool:
    """Locks the file, and waits for it if necessary. Returns False if its file system lacks locks."""
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
            import logging  # noqa: PLC0415  # importing takes milliseconds, and locks are usually free

            from silo.sanitized_text import one_line  # noqa: PLC0415  # locks are usually free

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
    """Holds the exclusive lock of a path, whether or not a file is there. Yields False if the file system lacks locks.

    ``path`` must not contain links. The lock is a file in a folder of this user's, named after the file's name and the
    inode of its folder, so it stays the same when the file is replaced. The lock file is removed at the end.

    Raises:
        HeldLockError: another process holds the lock for longer than ``SILO_LOCK_WAIT``.
        OSError: the folder of ``path`` is missing.
    """
    place_name = f"{path.parent.stat().st_ino}/{path.name}"
    folder = _lock_folder()
    if folder is None:
        yield False
        return
    lock = folder / f"{hashlib.sha256(os.fsencode(place_name)).hexdigest()[:40]}.lock"
    maker = os.getpid()
    _sweep(folder)
    while True:
        descriptor = open_own(lock, os.O_RDWR | os.O_CREAT)
        try:
            with file_lock(descriptor, path, exclusive=True) as has_locks:
                if not is_file_at(lock, descriptor):  # the last holder has removed the file: open a new one
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
    """Removes the lock files that killed processes left, once per process. A file that a process holds stays."""
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
    """Returns whether ``path`` is the name of the open file."""
    try:
        path_status = path.lstat()
    except FileNotFoundError:
        return False
    open_status = os.fstat(descriptor)
    return (open_status.st_dev, open_status.st_ino) == (path_status.st_dev, path_status.st_ino)


def _lock_folder() -> Path | None:
    """Returns the folder of locks, the same for every process of this user; None if no folder can be used."""
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
    import platformdirs  # noqa: PLC0415  # only processes that write need it

    return Path(platformdirs.user_cache_dir("silo-locks", appauthor=False))


def write_holder(descriptor: int) -> None:
    """Writes this process's id, machine and command into the lock file.

    Processes on other machines read them there, because their table of locks does not show the holder.
    """
    text = f"process {os.getpid()} on {os.uname().nodename} ({_shown(sys.argv)})".encode(errors="replace")
    with contextlib.suppress(OSError):  # the lock works without this note, for example on a full disk
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text[:_MOST_HOLDER], 0)


def holder_of(descriptor: int) -> str:
    """Returns the name of the process that holds the lock of an open file, as text that is safe to print."""
    from silo.sanitized_text import one_line  # noqa: PLC0415  # locks are usually free

    status = os.fstat(descriptor)
    if (process := _locking_process(status.st_dev, status.st_ino)) is not None:
        return _described(process)
    with contextlib.suppress(OSError):
        if (text := os.pread(descriptor, _MOST_HOLDER, 0)).startswith(b"process "):
            return one_line(text.decode(errors="replace"))
    return "a process that cannot be seen from here (on another machine, or in another container)"


def _locking_process(device: int, inode: int) -> int | None:
    """Returns the process that holds a ``flock`` of a file, by ``/proc/locks``; None if the system lacks this table."""
    try:
        rows = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    processes: dict[bool, int] = {}
    for row in rows:
        # a row: "1: FLOCK  ADVISORY  WRITE 1234 fe:01:131 0 EOF"; that of a waiting process has -> before FLOCK
        words = row.split()
        if len(words) < 6 or words[1] != "FLOCK" or not words[4].isdigit():
            continue
        major, minor, number = words[5].split(":")
        if int(number) == inode and int(words[4]) > 0:
            # some file systems show another device in /proc/locks than in stat()
            exact = (int(major, 16), int(minor, 16)) == (os.major(device), os.minor(device))
            processes.setdefault(exact, int(words[4]))
    return processes.get(True, processes.get(False))


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
    from silo.sanitized_text import one_line  # noqa: PLC0415  # locks are usually free

    text = one_line(" ".join(command))
    return text if len(text) <= _MOST_COMMAND else f"{text[:_MOST_COMMAND]}..."
