"""The clang that compiles Metal kernels for the CPU: which one it is, and the flags it is given."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache

from silo.compile.c_compiler import CCompiler, identify
from silo.core.target import Target
from silo.errors import CompilerMissingError, TargetError
from silo.kinds.metal.runtime import FOLDER
from silo.settings import settings

__all__ = ["BEST", "OLDEST", "choose_clang", "code_flags", "find_clang", "link_flags", "major_version", "stack_flags"]

OLDEST = 16  # before it _Float16 does not compute on x86-64
BEST = 19  # from 18 on __bf16 computes, too; of those, the one that tests run with
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
    "-std=gnu++20",  # objects as arguments of templates, as Metal's tensor operations have them
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
    "-ffloat16-excess-precision=none",  # every operation of halves is rounded
    "-Xclang",
    "-fconvergent-functions",  # threads that meet at a call have to find it in one place of the code
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
    """The command to run, from what was asked for and where each name was found (None: nowhere).

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
    """The first number of what ``--version`` says; 0 where it says none.

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
    """The clang of this machine. Raises CompilerMissingError: none, too old a one, or something else of that name."""
    found = _found(settings().clang)
    number = major_version(found.version)
    if number < OLDEST:
        raise CompilerMissingError(
            f"Metal kernels run on the CPU by clang {OLDEST} or later, and {found.command[0]} is {found.version}: "
            f"install clang-{BEST}, or name another in SILO_CLANG"
        )
    return found


def code_flags(target: Target) -> tuple[str, ...]:
    """What decides the code, also of a header that is compiled beforehand. ``TargetError`` for an unknown level."""
    march = _MARCH.get(target.arch)
    if target.kind != "cpu" or march is None:
        raise TargetError(f"{target} names no CPU level; write one of {', '.join(f'cpu:{name}' for name in _MARCH)}")
    return (march, *_CODE_FLAGS, "-isystem", str(FOLDER))


def stack_flags() -> tuple[str, ...]:
    """What makes clang say how much of the stack each function takes, as remarks."""
    return ("-Rpass-analysis=prologepilog",)


def link_flags() -> tuple[str, ...]:
    """What makes a small, reproducible shared object of it."""
    return _LINK_FLAGS
