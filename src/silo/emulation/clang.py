"""The clang that compiles kernels whose threads run on the CPU: choosing it, its flags, and precompiled headers."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from silo.compile.c_compiler import CCompiler, identify
from silo.compile.compiler_process import run_compiler
from silo.core.device import Target
from silo.core.values import digest
from silo.emulation.runtime import FOLDER
from silo.errors import CompilerMissingError, TargetError
from silo.forks import Mutex, Notices
from silo.settings import child_environment, settings
from silo.store.atomic_files import publish
from silo.store.privacy import private_size
from silo.temporary import own_folder

__all__ = [
    "BEST",
    "OLDEST",
    "STACK",
    "choose_clang",
    "common_flags",
    "find_clang",
    "include_flag",
    "link_flags",
    "major_version",
    "precompiled_header",
    "scratch_bytes",
    "stack_flags",
    "stack_needed",
]

# The bytes between two stacks (_GAP), and the most bytes of a group's state (_RUNNER), as in silo_threads/fibers.h.
_GAP = 5 * 64
_RUNNER = 1 << 18

STACK = 16384
"""The bytes of a thread's stack, unless a function needs more."""

_REMARK = " stack bytes in function"
_CALLS = 8192  # stack bytes reserved for calls of C library functions

# ---- The choice of clang, and its flags ----

OLDEST = 16  # the first version in which _Float16 computes on x86-64
BEST = 19  # __bf16 computes from version 18 on; tests run with version 19
_NEWEST = 24

# Versions in order of preference.
_NUMBERS = (BEST, *range(BEST + 1, _NEWEST + 1), *range(BEST - 1, OLDEST - 1, -1))
NAMES = (*(f"clang++-{number}" for number in _NUMBERS), "clang++")

_MARCH = {
    "x86-64-v2": "-march=x86-64-v2",
    "x86-64-v3": "-march=x86-64-v3",
    "x86-64-v4": "-march=x86-64-v4",
    "aarch64-armv8.2": "-march=armv8.2-a",
}

_COMMON_FLAGS = (
    "-O2",
    "-fPIC",
    "-nostdinc",
    "-nostdinc++",
    "-w",
    "-fdeclspec",
    "-fsigned-char",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-threadsafe-statics",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-ident",
    "-fvisibility=hidden",
    "-g0",
    "-fconstexpr-steps=10000000",
    "-Xclang",
    "-ffloat16-excess-precision=none",  # round the result of every operation on halves
    "-Xclang",
    # lanes that reach the same call exchange values there, so clang must neither copy nor move calls
    "-fconvergent-functions",
)
_LINK_FLAGS = (
    "-shared",
    "-nostartfiles",
    "-nostdlib++",
    "-Wl,-s",
    "-Wl,--build-id=none",
    "-Wl,--hash-style=gnu",
    "-Wl,-z,noseparate-code",
    "-Wl,-z,defs",
    "-lm",
)


def choose_clang(requested: str | None, paths: Mapping[str, str | None]) -> str:
    """Returns the compiler command, from the requested name and the path of each name in ``paths`` (None: not found).

    >>> choose_clang(None, {"clang++-16": "/usr/bin/clang++-16", "clang++-19": "/usr/bin/clang++-19"})
    '/usr/bin/clang++-19'
    """
    if requested is not None:
        path = paths.get(requested)
        if path is None:
            raise CompilerMissingError(
                f"the clang {requested!r} was not found: correct SILO_CLANG, or unset it to use the best of "
                f"clang++-{OLDEST} to clang++-{_NEWEST} and clang++"
            )
        return path
    for name in NAMES:
        if (path := paths.get(name)) is not None:
            return path
    raise CompilerMissingError(
        f"this kind of kernel runs on the CPU by clang {OLDEST} or later ({BEST} best), and none of "
        f"clang++-{BEST}, ..., clang++ is on PATH: install one (Debian, Ubuntu: apt-get install clang-{BEST}; Fedora: "
        "dnf install clang) or name one in SILO_CLANG"
    )


def major_version(version: str) -> int:
    """Returns the first number of the version in ``--version``'s output; 0 without a version.

    >>> major_version("Debian clang version 19.1.7 (3+b1), Target: x86_64-pc-linux-gnu")
    19
    """
    _, _, after = version.partition("clang version ")
    digits = after.partition(".")[0]
    return int(digits) if digits.isdigit() else 0


@cache
def _found_compiler(requested: str | None) -> CCompiler:
    names = NAMES if requested is None else (requested,)
    return identify((choose_clang(requested, {name: shutil.which(name) for name in names}),))


def find_clang() -> CCompiler:
    """Returns this machine's clang. Raises CompilerMissingError if it is missing, too old, or not clang."""
    clang = _found_compiler(settings().clang)
    number = major_version(clang.version)
    if number < OLDEST:
        raise CompilerMissingError(
            f"this kind of kernel runs on the CPU by clang {OLDEST} or later, and {clang.command[0]} is "
            f"{clang.version}: install clang-{BEST}, or name another in SILO_CLANG"
        )
    return clang


def common_flags(target: Target) -> tuple[str, ...]:
    """Returns the flags for every kind of kernel and for precompiled headers.

    Raises TargetError for an unknown level.
    """
    march = _MARCH.get(target.arch)
    if target.kind != "cpu" or march is None:
        raise TargetError(f"{target} names no CPU level; write one of {', '.join(f'cpu:{name}' for name in _MARCH)}")
    return (march, *_COMMON_FLAGS)


def include_flag(*folders: Path) -> tuple[str, ...]:
    """Returns the include flags for ``folders`` and, last, for the headers that all kinds of kernels share."""
    return tuple(word for folder in (*folders, FOLDER) for word in ("-isystem", str(folder)))


def stack_flags() -> tuple[str, ...]:
    """Returns the flags with which clang reports the stack size of each function, as remarks."""
    return ("-Rpass-analysis=prologepilog",)


def link_flags() -> tuple[str, ...]:
    """Returns the flags that link a small, reproducible shared object."""
    return _LINK_FLAGS


def scratch_bytes(threads: int, memory: int, stack: int = STACK) -> int:
    """Returns the bytes of scratch memory of a group: ``threads`` stacks, and ``memory`` bytes that they share."""
    return _RUNNER + -(-memory // 64) * 64 + threads * (stack + _GAP)


def stack_needed(log: str) -> int:
    """Returns the stack bytes of a thread: the sum over all functions, none of which is recursive, and a reserve.

    ``log`` has clang's remark on each function. The result is at least :data:`STACK`.

    >>> stack_needed("<stdin>:2:1: remark: 36008 stack bytes in function 'f'") - 36008 >= 8192
    True
    """
    stack_bytes = sum(int(line.split(_REMARK)[0].split()[-1]) for line in log.splitlines() if _REMARK in line)
    return STACK if stack_bytes + _CALLS <= STACK else -(-(stack_bytes + _CALLS) // 4096) * 4096


# ---- Precompiled headers of a kind's library, kept in the store ----

# Clang recognises a header that it has already read by size and time. Copies of one header in several installations
# have different times; without times, "#pragma once" also holds for the copies (clang's HeaderFileInfoTrait).
_NO_TIMES = ("-Xclang", "-fno-pch-timestamp")

_lock = Mutex()
_notices = Notices()


@cache
def _content(folder: Path) -> str:
    state = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".py"):
            state.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return state.hexdigest()


def _log_fallback(folder: Path, reason: str) -> None:
    message = (
        f"headers of kernels cannot be kept compiled in {folder} ({reason}): every kernel takes a second longer to "
        "compile for the CPU"
    )
    _notices.once(message, message)


def precompiled_header(
    clang: CCompiler, flags: tuple[str, ...], header: Path, folders: tuple[Path, ...] = ()
) -> Path | None:
    """Returns the path of ``header`` precompiled with these flags; compiles it if it is not stored yet.

    Returns None if the precompiled header cannot be stored, which is logged once. The kernel's text includes the header
    itself too, so the text still compiles.

    Args:
        clang: the compiler.
        flags: the same flags as for the kernel's text.
        header: the header, in the folder of its kind.
        folders: other folders of headers. Their files' contents are part of the key, like those in the header's folder.
    """
    parts = [
        clang.version,
        [*flags],
        [[str(search_folder), _content(search_folder)] for search_folder in (header.parent, *folders, FOLDER)],
    ]
    folder = settings().store_folder / "headers"
    path = folder / f"{digest('kernel-header/1', [header.name, *parts])}.pch"
    with _lock:
        if private_size(path) is not None:
            return path
        with own_folder("silo-pch-") as temporary:
            output = Path(temporary, "header.pch")
            command = [*clang.command, *flags, *_NO_TIMES, "-x", "c++-header", str(header)]
            command += ["-o", str(output)]
            done = run_compiler(command, env=child_environment(LC_ALL="C", TMPDIR=temporary))
            if done.returncode != 0:
                _log_fallback(folder, done.stderr.decode(errors="replace").strip()[:300])
                return None
            try:
                publish(path, output.read_bytes())
            except OSError as error:
                _log_fallback(folder, str(error))
                return None
    if private_size(path) is None:
        _log_fallback(folder, "others may write it")
        return None
    return path
