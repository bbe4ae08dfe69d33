"""Confinement of a process: namespaces, Landlock, seccomp and limits of resources, only by system calls of Linux.

A process is confined in two steps. :func:`confine` is for code that may start programs (a compiler) and write into one
folder. :func:`seal` is for unknown code: it starts no program and no process, opens no file for writing and no socket,
and sends no signal to another process. Both can only take rights away. Each returns the measures in force, and for each
other measure the reason why the system refused it.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import resource
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from silo.frozen import frozen

__all__ = ["Confined", "Limits", "confine", "is_sealed", "private_files", "seal"]

# ---- values ----


@frozen
class Limits:
    """The resources of one confined process: bytes of address space, seconds of CPU time, bytes of one file."""

    memory_bytes: int
    cpu_s: int
    file_bytes: int = 0


@frozen
class Confined:
    """The measures in force, and those that the system does not offer, each with the reason."""

    measures: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """Sentences about rights that unknown code keeps; empty if it keeps no right that matters.

        >>> Confined(("seccomp",)).weaknesses
        ()
        >>> len(Confined(("limits",), (("seccomp", "refused"),)).weaknesses)
        3
        """
        has = set(self.measures)
        reasons: list[str] = []
        if not has & {"seccomp", "network namespace"}:
            reasons.append("it can reach the network")
        if not has & {"seccomp", "landlock"}:
            reasons.append("it can write files")
        if "seccomp" not in has:
            reasons.append("it can start programs and send signals to this user's processes")
        return tuple(reasons)

    def to_json(self) -> dict[str, Any]:
        """Returns the measures, and the reasons for missing ones by name, as JSON."""
        return {"measures": list(self.measures), "missing": dict(self.missing)}

    @classmethod
    def from_json(cls, data: object) -> Confined:
        """Parses the result of :meth:`to_json`. Raises ValueError for anything else."""
        members: Mapping[str, object] = cast("Mapping[str, object]", data) if isinstance(data, dict) else {}
        measures, missing = members.get("measures"), members.get("missing")
        if not isinstance(measures, list) or not isinstance(missing, dict):
            raise ValueError("not the measures of a confinement")  # noqa: TRY004  # the JSON of another process has a wrong form
        pairs = cast("Mapping[object, object]", missing).items()
        return cls(tuple(map(str, cast("list[object]", measures))), tuple((str(name), str(why)) for name, why in pairs))


# ---- system calls, by their numbers on x86_64 and aarch64 ----

# By machine: the column of its call numbers in the tables below, and the machine's own number in seccomp.
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

# Calls that fail in sealed code. -1: the machine lacks the call.
_REFUSED: Final = {
    # calls that reach other machines, or other processes of this machine
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # calls that start programs and processes
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, -1),
    "vfork": (58, -1),
    # calls that change the system
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    # calls that change files
    "creat": (85, -1),
    "mkdir": (83, -1),
    "mkdirat": (258, 34),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "unlink": (87, -1),
    "unlinkat": (263, 35),
    "rmdir": (84, -1),
    "rename": (82, -1),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, -1),
    "linkat": (265, 37),
    "symlink": (88, -1),
    "symlinkat": (266, 36),
    "chmod": (90, -1),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, -1),
    "fchown": (93, 55),
    "lchown": (94, -1),
    "fchownat": (260, 54),
    "truncate": (76, 45),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "utime": (132, -1),
    "utimes": (235, -1),
    "utimensat": (280, 88),
    "memfd_create": (319, 279),
}
# Calls that fail as "not implemented" (ENOSYS) in sealed code, because their arguments lie in memory that a filter
# cannot read. Callers then use the older calls ``clone`` and ``openat``, whose flags the filter checks.
_UNKNOWN: Final = {"clone3": (435, 435), "openat2": (437, 437)}
# Call numbers by machine, and the index of the argument with the flags.
_OPENS: Final = {"open": ((2, -1), 1), "openat": ((257, 56), 2)}
_SIGNALS: Final = {"kill": (62, 129), "tgkill": (234, 131)}
_CLONE: Final = (56, 220)
_PRLIMIT: Final = (302, 261)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CLONE_THREAD = 0x00010000
_NEW_USER, _NEW_NET, _NEW_IPC, _NEW_UTS = 0x10000000, 0x40000000, 0x08000000, 0x04000000
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
_CAPSET: Final = (126, 91)
_CAPABILITIES = 0x20080522  # the version of the data that the call capset takes
_SET_SECUREBITS, _CAP_AMBIENT, _CAP_AMBIENT_RAISE = 28, 47, 2
_NO_ROOT = 0x3  # locked secure bits: user 0 gets no capabilities by starting a program
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _SET_DUMPABLE, _FILTER = 38, 22, 4, 2

_sealed: list[int] = []  # the id of the process that was sealed; a forked child has another id


def is_sealed() -> bool:
    """Returns whether this very process was sealed, by seccomp or by the weaker measures that the caller accepts."""
    return os.getpid() in _sealed


def _libc() -> Any:  # noqa: ANN401  # ctypes
    return ctypes.CDLL(None, use_errno=True)


def _failure() -> str:
    return os.strerror(ctypes.get_errno())


class _Tally:
    """Collects the measures in force, and the reasons for missing ones."""

    def __init__(self) -> None:
        self.measures: list[str] = []
        self.missing: dict[str, str] = {}

    def take(self, name: str, measure: Callable[[], str]) -> None:
        """Takes a measure: calls ``measure``, which returns the reason why it failed, or ""."""
        reason = measure() if sys.platform == "linux" else f"{sys.platform} has no such measure"
        if reason:
            self.missing[name] = reason
        else:
            self.measures.append(name)

    def confined(self) -> Confined:
        return Confined(tuple(self.measures), tuple(self.missing.items()))


def confine(
    limits: Limits, *, readable: Iterable[str | Path], writable: Sequence[str | Path] = (), descriptors: Sequence[int]
) -> Confined:
    """Removes this process's rights to the network, to most files and to large resources, and closes its descriptors.

    The process may read and run files below ``readable``, write below ``writable``, and keeps ``descriptors`` and the
    standard ones. It may start programs, which have the same rights. Returns the measures in force.
    """
    _close_others(descriptors)
    tally = _Tally()
    tally.take("limits", lambda: _limit(limits))
    tally.take("no new privileges", _no_new_privileges)
    private = private_files()
    tally.take("user namespace", lambda: private or _unshare(_NEW_USER))
    tally.take("network namespace", lambda: _unshare(_NEW_NET))
    tally.take("ipc namespace", lambda: _unshare(_NEW_IPC | _NEW_UTS))
    if private:
        tally.take("capabilities", _keep_reading_alone)
    tally.take("landlock", lambda: _landlock(readable, writable))
    return tally.confined()


def seal(confined: Confined, *, write_nothing: bool = True) -> Confined:
    """Removes further rights, which unknown code must not have, after :func:`confine`. Returns all measures in force.

    Threads remain possible, because libraries start some; every other way to a process, a program, a socket or a
    written file fails with ``EPERM``.
    """
    tally = _Tally()
    tally.measures, tally.missing = list(confined.measures), dict(confined.missing)
    if write_nothing:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    tally.take("seccomp", _filter_calls)
    _sealed[:] = [os.getpid()]
    return tally.confined()


# ---- the measures ----


@functools.cache
def private_files() -> str:
    """Returns the reason why root's process must keep the capabilities to read other users' files; "" without a reason.

    A user namespace would take these capabilities away. But a confined process still imports modules and reads headers;
    if other users own these files and nobody else may read them, only root with its capabilities can. A process that
    does not run as root gets "".
    """
    own = os.geteuid()
    if own != 0:
        return ""
    groups = {os.getegid(), *os.getgroups()}
    places: set[Path] = set()
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            places |= {Path(file), *Path(file).parents}
    for path in sorted(places):
        try:
            status = path.stat()
        except OSError:
            continue
        shift = 6 if status.st_uid == own else 3 if status.st_gid in groups else 0
        permissions = 5 if stat.S_ISDIR(status.st_mode) else 4
        if (status.st_mode >> shift) & permissions != permissions:
            return f"{path} is another user's, whose files only a root with its capabilities reads"
    return ""


def _keep_reading_alone() -> str:
    """Drops all capabilities of root except the two that read other users' files.

    Programs that this process starts get the same two. Returns the reason why that failed, or "".
    """
    libc = _libc()
    if libc.prctl(_SET_SECUREBITS, _NO_ROOT, 0, 0, 0) != 0:
        return _failure()
    capabilities = 1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH
    header = struct.pack("=Ii", _CAPABILITIES, 0)
    # effective, permitted and inheritable, for the low and the high half
    data = struct.pack("=6I", capabilities, capabilities, capabilities, 0, 0, 0)
    if libc.syscall(_CAPSET[_MACHINES.get(platform.machine(), (0,))[0]], header, data) != 0:
        return _failure()
    # so that the compiler that this process starts has these two capabilities, too
    for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
        if libc.prctl(_CAP_AMBIENT, _CAP_AMBIENT_RAISE, capability, 0, 0) != 0:
            return _failure()
    return ""


def _close_others(open_fds: Sequence[int]) -> None:
    low = 3
    for descriptor in sorted({*open_fds, 1 << 20}):
        os.closerange(low, descriptor)
        low = descriptor + 1


def _limit(limits: Limits) -> str:
    requested_limits = (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 256),
    )
    for resource_kind, requested in requested_limits:
        hard = resource.getrlimit(resource_kind)[1]
        soft_limit = requested if hard == resource.RLIM_INFINITY else min(requested, hard)
        try:
            resource.setrlimit(resource_kind, (soft_limit, soft_limit))
        except (OSError, ValueError) as error:
            return str(error)
    return ""


def _no_new_privileges() -> str:
    libc = _libc()
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # other processes of this user cannot read this process's memory now
    return "" if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 else _failure()


def _unshare(flags: int) -> str:
    return "" if _libc().unshare(flags) == 0 else _failure()


_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
# A mask of all rights to files, for each version of Landlock that added one; the key is the version.
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}


def _landlock(readable: Iterable[str | Path], writable: Sequence[str | Path]) -> str:
    libc = _libc()
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return f"this kernel offers none ({_failure()})"
    every = _RIGHTS[max(first for first in _RIGHTS if first <= version)]
    net = 3 if version >= 4 else 0
    scoped = 3 if version >= 6 else 0
    parts = [every, net, scoped][: 1 + (version >= 4) + (version >= 6)]
    attributes = struct.pack(f"{len(parts)}Q", *parts)
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        return _failure()
    try:
        everything = every & ~(1 << 15)  # all rights except controlling devices (ioctl)
        for paths, folder, file in (
            (readable, _EXECUTE | _READ | _LIST, _EXECUTE | _READ),
            (writable, everything, (_EXECUTE | _READ | _WRITE | _TRUNCATE) & every),
        ):
            for path in paths:
                if reason := _allow(libc, ruleset, Path(path), folder, file):
                    return reason
        if libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
            return _failure()
    finally:
        os.close(ruleset)
    return ""


def _allow(libc: Any, ruleset: int, path: Path, folder: int, file: int) -> str:  # noqa: ANN401  # ctypes
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return ""  # a path that does not exist needs no right
    try:
        allowed = folder if path.is_dir() else file
        rule = struct.pack("=Qi", allowed, descriptor)
        return "" if libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0) == 0 else f"{path}: {_failure()}"
    finally:
        os.close(descriptor)


# ---- seccomp ----

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_X32 = 0x40000000


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def _filter_calls() -> str:
    column = _MACHINES.get(platform.machine())
    if column is None or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return f"Silo has no numbers of system calls for {platform.machine()}"
    program = _program(*column, os.getpid())
    instructions = (_Instruction * len(program))(*program)
    filtered = _Program(len(program), instructions)
    libc = _libc()
    return "" if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(filtered), 0, 0) == 0 else _failure()


def _program(column: int, architecture: int, own_pid: int) -> list[tuple[int, int, int, int]]:
    refuse, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, refuse),
    ]

    def on(number: int, *steps: tuple[int, int, int, int]) -> None:
        if number >= 0:
            instructions.extend([(_EQUAL, 0, len(steps), number), *steps])

    def argument(index: int) -> tuple[int, int, int, int]:
        return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)

    for numbers in _REFUSED.values():
        on(numbers[column], (_RETURN, 0, 0, refuse))
    for numbers in _UNKNOWN.values():
        on(numbers[column], (_RETURN, 0, 0, unknown))
    for numbers, index in _OPENS.values():
        steps = (argument(index), (_ANY_BIT, 0, 1, _WRITING), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW))
        on(numbers[column], *steps)
    for numbers in _SIGNALS.values():
        on(numbers[column], argument(0), (_EQUAL, 1, 0, own_pid), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW))
    steps = (argument(0), (_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW))
    on(_CLONE[column], *steps)
    on(_PRLIMIT[column], argument(0), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW))
    instructions.append((_RETURN, 0, 0, _ALLOW))
    return instructions
