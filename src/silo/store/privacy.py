"""The check that a store is private to its user.

Compiled code of the store runs in its user's processes, so anybody who may write there could run code as that user. Two
checks make sure that only this user may. Before a store is used, :func:`examine` walks from ``/`` to its root and over
its folders. Whenever a file of it is opened, :func:`open_private` checks the folder and the opened file itself. An
exchange between these checks does no harm: a file that is read was written by this user, whatever path led to it.

Files that Silo keeps beside others, perhaps in a folder that somebody else made (journals, leases), are opened by
:func:`open_own`, which checks the file alone; :func:`output_place` returns the place where a file of the user is
written.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from silo.core.decisions import Accepted, Decision, Rejected
from silo.frozen import frozen
from silo.plain_files import FileRefusedError, open_plain
from silo.settings import absolute_path

__all__ = [
    "Node",
    "NotPrivateError",
    "check_folder",
    "examine",
    "is_private",
    "is_safe_on_the_way",
    "open_own",
    "open_private",
    "output_place",
    "private_size",
    "read_private",
]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # as many as Linux follows
_ROOT = 0


class NotPrivateError(FileRefusedError):
    """A file or folder that others may have written. ``strerror`` is the reason."""


@frozen
class Node:
    """One name on the way to a store, or in it, with its ``lstat`` result."""

    path: str
    mode: int
    owner: int
    group: int

    @property
    def rights(self) -> str:
        """Owner and mode, for people."""
        return f"owner {_user_name(self.owner)}, mode {stat.S_IMODE(self.mode):o}"


def is_private(mode: int, owner: int, user: int) -> Decision:
    """Whether the contents of a file or folder can only be the user's own, so that its word may be taken.

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
    """Whether only the user and root could replace the entries of a folder.

    The owner of a link decides where the path continues. A folder that others may write passes with the sticky bit, as
    ``/tmp`` has it: only the owner of an entry may replace it, and that owner is checked next.

    ``own_group``, a group whose only member is the user, may write too: systems with such groups make folders writable
    for them. ``unmapped`` is the owner that this user namespace shows for every unmapped user, including root; None if
    root is mapped.

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
    """Whether the store at ``root`` can only hold this user's files.

    A rejection names the path, the reason and the cure.

    Checks the folders and links from ``/`` on, ``root`` itself and the ``names`` in it, as far as they exist. A name
    that cannot be examined cannot be read either, and passes.
    """
    user = os.geteuid()
    way, found = _way_to(str(root))
    for node in way:
        safe = is_safe_on_the_way(node, user)
        if not safe:  # usually it is, and neither of these is read
            safe = is_safe_on_the_way(node, user, own_group=_own_group(user), unmapped=_unmapped_owner())
        if isinstance(safe, Rejected):
            return Rejected(f"{node.path} ({node.rights}): {safe.reason}; {_mended_on_the_way(node, user)}")
    if found is None:
        return Accepted()
    for path in (found, *(f"{found}/{name}" for name in names)):
        node = _look(path)
        private = Accepted() if node is None else is_private(node.mode, node.owner, user)
        if node is not None and isinstance(private, Rejected):
            return Rejected(f"{path} ({node.rights}): {private.reason}; {_mended(node, user)}")
    return Accepted()


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file of the store that only its user may have written, in a folder of which that is true too.

    Raises:
        NotPrivateError: one of them is another user's, others may write it, or it is a link or no plain file.
        OSError: it cannot be opened.
    """
    check_folder(path.parent)
    descriptor, _ = _opened(path, flags)
    return descriptor


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that Silo keeps beside another one, in any folder; its contents are this user's own.

    No link leads to it. It is a plain file of this user, which others may not write, under this one name: a second name
    (a hard link) could present another file of the user as this one. A new one has the mode 0600, and an older one gets
    it when it is opened to be written, because anybody who can read a file can lock it.

    Raises:
        NotPrivateError: it is something else.
        OSError: it cannot be opened.
    """
    descriptor, found = _opened(path, flags)
    if found.st_nlink > 1:  # none: it was removed a moment ago
        os.close(descriptor)
        raise NotPrivateError(f"it is a file with {found.st_nlink} names (hard links), perhaps one of yours", path)
    if flags & (os.O_RDWR | os.O_WRONLY) and stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        os.fchmod(descriptor, 0o600)
    return descriptor


def _opened(path: Path, flags: int) -> tuple[int, os.stat_result]:
    try:
        descriptor = open_plain(path, flags | os.O_NOFOLLOW)
    except FileRefusedError as error:
        raise NotPrivateError(error.strerror or "", path) from None
    try:
        found = os.fstat(descriptor)
        _check(path, found)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def output_place(path: str | os.PathLike[str]) -> Path:
    """Return the place without links of a file that is to be written or replaced: a link that the user made is kept.

    A link of another user would lead the write to a file of this user which that one chose, so it is refused.

    Raises:
        NotPrivateError: a link on the way belongs to neither this user nor root.
        SettingsError: the path is relative, and the working folder was deleted.
    """
    wanted = absolute_path(Path(path))
    for _ in range(_MOST_LINKS):
        # All facts about a name are read in one call: a link may be put in its place meanwhile.
        if (found := _way_of_own_links(wanted)) is not None:
            return found
        if (folder := _way_of_own_links(wanted.parent)) is None:
            return wanted  # its folder is missing: the write itself raises the error
        wanted = folder / wanted.name
        node = _look(str(wanted))
        if node is None or not stat.S_ISLNK(node.mode):
            return wanted
        _refuse_foreign_link(node)
        wanted = folder / (_target(str(wanted)) or wanted.name)
    raise NotPrivateError("links lead to links without end", path)


def _way_of_own_links(path: Path) -> Path | None:
    """The target of a path; None if it does not exist. Raises NotPrivateError for links of other users."""
    way, found = _way_to(str(path))
    for node in way:
        if stat.S_ISLNK(node.mode):
            _refuse_foreign_link(node)
    return None if found is None else Path(found)


def _refuse_foreign_link(node: Node) -> None:
    if node.owner not in (os.geteuid(), _ROOT, _unmapped_owner()):
        reason = f"the way to it leads over a link of user {_user_name(node.owner)}; name the place it leads to"
        raise NotPrivateError(reason, node.path)


def read_private(path: Path) -> bytes:
    """The bytes of a file that :func:`open_private` opens, with its errors."""
    with os.fdopen(open_private(path), "rb") as file:
        return file.read()


def private_size(path: Path) -> int | None:
    """The size of a file that :func:`open_private` would open; None if it would not."""
    try:
        check_folder(path.parent)
        found = path.lstat()
        _check(path, found)
    except OSError:
        return None
    return found.st_size


def check_folder(path: Path) -> None:
    """Raise :class:`NotPrivateError` unless a folder of the store is its user's alone; ``OSError`` if it is missing."""
    found = path.lstat()
    private = is_private(found.st_mode, found.st_uid, os.geteuid())
    if isinstance(private, Rejected):
        raise NotPrivateError(private.reason, path)


def _check(path: Path, found: os.stat_result) -> None:
    private = is_private(found.st_mode, found.st_uid, os.geteuid())
    if private and not stat.S_ISREG(found.st_mode):
        private = Rejected("it is not a plain file")
    if isinstance(private, Rejected):
        raise NotPrivateError(private.reason, path)


def _way_to(root: str) -> tuple[list[Node], str | None]:
    """The folders and links that lead to ``root``, and its path without links; None while it does not exist."""
    way: list[Node] = []
    rest, links = _parts(root), 0
    node = _look("/")
    while node is not None:
        at = node.path
        if stat.S_ISLNK(node.mode):
            links += 1
            target = _target(at)
            if target is None or links > _MOST_LINKS:
                break
            way.append(node)
            rest += _parts(target)
            at = "/" if target.startswith("/") else _parent(at)
        elif rest:
            way.append(node)
        if not rest:
            return way, at
        part = rest.pop()
        node = _look(_parent(at) if part == ".." else f"{at.rstrip('/')}/{part}")
    return way, None


def _parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _look(path: str) -> Node | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return Node(path, found.st_mode, found.st_uid, found.st_gid)


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115  # needs no pathlib
    except OSError:
        return None


def _own_group(user: int) -> int | None:
    """The group that is this user's alone: the primary one, if it bears the user's name and lists no other member."""
    import grp  # noqa: PLC0415  # both may ask a server, and are seldom needed
    import pwd  # noqa: PLC0415

    try:
        entry = pwd.getpwuid(user)
        group = grp.getgrgid(entry.pw_gid)
    except KeyError:
        return None
    return group.gr_gid if group.gr_name == entry.pw_name and set(group.gr_mem) <= {entry.pw_name} else None


def _unmapped_owner() -> int | None:
    """The owner of root's files in a user namespace without root (a sandbox); None in any other."""
    try:
        text = Path("/proc/self/uid_map").read_text(encoding="utf-8")
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return None if any(line.split()[0] == "0" for line in text.splitlines()) else overflow


def _user_name(user: int) -> str:
    import pwd  # noqa: PLC0415  # see _own_group

    try:
        return f"{user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return str(user)


def _mended_on_the_way(node: Node, user: int) -> str:
    import shlex  # noqa: PLC0415  # only where something is wrong

    if node.owner == user:
        return f"mend it with: chmod go-w {shlex.quote(node.path)}"
    return "name a folder of your own with SILO_HOME"


def _mended(node: Node, user: int) -> str:
    import shlex  # noqa: PLC0415  # see _mended_on_the_way

    path = shlex.quote(node.path)
    if stat.S_ISLNK(node.mode):
        return f"move what it leads to into its place, or start anew with: rm {path}"
    entry = "if you know who wrote what it holds, mend it with"
    if node.owner != user:
        sudo = "" if user == _ROOT else "sudo "
        return f"name a folder of your own with SILO_HOME or, {entry}: {sudo}chown -R {user} {path}"
    return f"{entry}: chmod -R go-w {path}"
