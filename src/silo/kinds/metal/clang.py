"""The clang that compiles Metal kernels for the CPU: its choice, flags, precompiled headers and torch's headers."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from silo.compile.c_compiler import CCompiler, identify
from silo.compile.compiler_process import run_compiler
from silo.core.notices import Notices
from silo.core.target import Target
from silo.core.values import digest
from silo.errors import CompilerMissingError, TargetError, ToolchainError
from silo.forks import Mutex
from silo.kinds.metal.front.parser import TokenKind, tokens_of
from silo.kinds.metal.runtime import FOLDER
from silo.settings import child_environment, settings
from silo.store.atomic_files import publish
from silo.store.privacy import private_size
from silo.temporary import own_folder

__all__ = [
    "BEST",
    "OLDEST",
    "choose_clang",
    "code_flags",
    "digest_of_headers",
    "find_clang",
    "headers_folder",
    "includes_headers",
    "link_flags",
    "major_version",
    "precompiled_header",
    "stack_flags",
]

# ---- The headers for Metal kernels of an installed torch: ``<c10/metal/...>`` ----

_PREFIX = "<c10/metal/"


def includes_headers(text: str) -> bool:
    """Whether a text includes any of these headers.

    >>> includes_headers("#include <c10/metal/utils.h>"), includes_headers("#include <metal_stdlib>")
    (True, False)
    """
    lines = (one.text[1:].split() for one in tokens_of(text) if one.kind is TokenKind.DIRECTIVE)
    return any(words[:1] == ["include"] and "".join(words[1:]).startswith(_PREFIX) for words in lines)


@cache
def headers_folder() -> Path:
    """Returns their folder; does not import torch. Raises ToolchainError if torch, or the headers, are missing."""
    found = find_spec("torch")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "include"
    if folder is None or not (folder / "c10" / "metal").is_dir():
        raise ToolchainError(
            "the kernel includes <c10/metal/...>, which comes with torch, and "
            + ("torch is not installed" if folder is None else f"the torch that is installed has none in {folder}")
        )
    return folder


@cache
def digest_of_headers() -> str:
    """Returns a digest of the names and contents of all of them."""
    state = hashlib.sha256()
    for path in sorted((headers_folder() / "c10" / "metal").glob("*.h")):
        state.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return state.hexdigest()[:32]


# ---- The clang that compiles Metal kernels for the CPU: its choice, and its flags ----

OLDEST = 16  # the first in which _Float16 computes on x86-64
BEST = 19  # from 18 on __bf16 computes, too; tests run with this version
_NEWEST = 24

# In the order of preference.
_NUMBERS = (BEST, *range(BEST + 1, _NEWEST + 1), *range(BEST - 1, OLDEST - 1, -1))
NAMES = (*(f"clang++-{number}" for number in _NUMBERS), "clang++")

_MARCH = {
    "x86-64-v2": "-march=x86-64-v2",
    "x86-64-v3": "-march=x86-64-v3",
    "x86-64-v4": "-march=x86-64-v4",
    "aarch64-armv8.2": "-march=armv8.2-a",
}

_CODE_FLAGS = (
    "-std=gnu++20",  # objects as template arguments, as Metal's tensor operations have them
    "-O2",
    "-fPIC",
    "-nostdinc",
    "-nostdinc++",
    "-w",
    "-Wno-reserved-user-defined-literal",  # 1.0h
    "-fdeclspec",  # swizzles are properties
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
    "-cl-single-precision-constant",  # 1.0 is a float
    "-Xclang",
    "-ffloat16-excess-precision=none",  # every operation on halves is rounded
    "-Xclang",
    "-fconvergent-functions",  # threads that meet at a call must find it at one place of the code
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


def choose_clang(requested: str | None, found: Mapping[str, str | None]) -> str:
    """Returns the command to run, from the requested name and the path of each name (None: not found).

    >>> choose_clang(None, {"clang++-16": "/usr/bin/clang++-16", "clang++-19": "/usr/bin/clang++-19"})
    '/usr/bin/clang++-19'
    """
    if requested is not None:
        place = found.get(requested)
        if place is None:
            raise CompilerMissingError(
                f"the clang {requested!r} was not found: correct SILO_CLANG, or unset it to use the best of "
                f"clang++-{OLDEST} to clang++-{_NEWEST} and clang++"
            )
        return place
    for name in NAMES:
        if (place := found.get(name)) is not None:
            return place
    raise CompilerMissingError(
        f"Metal kernels run on the CPU by clang {OLDEST} or later ({BEST} best), and none of clang++-{BEST}, ..., "
        f"clang++ is on PATH: install one (Debian, Ubuntu: apt-get install clang-{BEST}; Fedora: dnf install clang) or "
        "name one in SILO_CLANG"
    )


def major_version(version: str) -> int:
    """Returns the first number of the version in ``--version``'s output; 0 without a version.

    >>> major_version("Debian clang version 19.1.7 (3+b1), Target: x86_64-pc-linux-gnu")
    19
    """
    _, _, rest = version.partition("clang version ")
    digits = rest.partition(".")[0]
    return int(digits) if digits.isdigit() else 0


@cache
def _found(requested: str | None) -> CCompiler:
    names = NAMES if requested is None else (requested,)
    return identify((choose_clang(requested, {name: shutil.which(name) for name in names}),))


def find_clang() -> CCompiler:
    """Returns this machine's clang. Raises CompilerMissingError: none, too old, or another program of that name."""
    found = _found(settings().clang)
    number = major_version(found.version)
    if number < OLDEST:
        raise CompilerMissingError(
            f"Metal kernels run on the CPU by clang {OLDEST} or later, and {found.command[0]} is {found.version}: "
            f"install clang-{BEST}, or name another in SILO_CLANG"
        )
    return found


def code_flags(target: Target) -> tuple[str, ...]:
    """Returns the flags that affect the code, also of a precompiled header. Raises TargetError: unknown level."""
    march = _MARCH.get(target.arch)
    if target.kind != "cpu" or march is None:
        raise TargetError(f"{target} names no CPU level; write one of {', '.join(f'cpu:{name}' for name in _MARCH)}")
    return (march, *_CODE_FLAGS, "-isystem", str(FOLDER))


def stack_flags() -> tuple[str, ...]:
    """Returns the flags with which clang reports the stack size of each function, as remarks."""
    return ("-Rpass-analysis=prologepilog",)


def link_flags() -> tuple[str, ...]:
    """Returns the flags that link a small, reproducible shared object."""
    return _LINK_FLAGS


# ---- Metal's library in clang's fastest form: precompiled headers, kept in the store ----

# Clang recognises a header that it has read by its size and its time, but copies of one text in several installations
# have other times. Without times, "#pragma once" holds for the copies too (clang's HeaderFileInfoTrait).
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


def _tell(folder: Path, reason: str) -> None:
    told = (
        f"Metal's headers cannot be kept compiled in {folder} ({reason}): every Metal kernel takes a second longer to "
        "compile for the CPU"
    )
    _notices.once(told, told)


def precompiled_header(clang: CCompiler, flags: tuple[str, ...], folders: tuple[Path, ...] = (FOLDER,)) -> Path | None:
    """Returns ``<metal_stdlib>`` compiled with these flags; compiles it if it is missing.

    None if it cannot be stored, which is logged once: the text itself includes the header, so it compiles anyway.

    Args:
        clang: the compiler.
        flags: the same flags as for the kernel's text.
        folders: folders of headers, whose contents are part of the key.
    """
    parts = [clang.version, [*flags], [[str(one), _content(one)] for one in folders]]
    folder = settings().store_folder / "headers"
    path = folder / f"{digest('metal-header/2', parts)}.pch"
    with _lock:
        if private_size(path) is not None:
            return path
        with own_folder("silo-pch-") as made:
            output = Path(made, "header.pch")
            command = [*clang.command, *flags, *_NO_TIMES, "-x", "c++-header", str(FOLDER / "metal_stdlib")]
            command += ["-o", str(output)]
            done = run_compiler(command, env=child_environment(LC_ALL="C", TMPDIR=made))
            if done.returncode != 0:
                _tell(folder, done.stderr.decode(errors="replace").strip()[:300])
                return None
            try:
                publish(path, output.read_bytes())
            except OSError as error:
                _tell(folder, str(error))
                return None
    if private_size(path) is None:
        _tell(folder, "others may write it")
        return None
    return path
