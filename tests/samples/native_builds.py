"""Builds of ``native/`` for tests: each is made once, and shared by all workers of a run and by later runs.

A build lies in ``build/tests``, in a folder named by the digest of everything that it is made of: the C files and
headers, the command lines and the compiler's version. A changed source gives another folder; a build that no run used
for two days is removed. A lock lets one worker make a build while others wait for it. The finished folder is published
by renaming it, so that a killed run leaves nothing that others take for a build.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = [
    "ADDRESS",
    "CORE",
    "PLAIN",
    "THREAD",
    "TRAPPING",
    "archive",
    "compile_with",
    "compiled",
    "shared_build",
    "whole",
]

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "native" / "core"
BUILDS = ROOT / "build" / "tests"
UNUSED_S = 2 * 86400

# The flags of all builds of libsilo.a; each build may become part of a shared library.
_ALL = ("-std=c11", "-D_GNU_SOURCE", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion", "-Werror")
PLAIN = (*_ALL, "-O1", "-fno-plt", "-fvisibility=hidden", "-DSILO_EXPORTS")
_CHECKED = (*_ALL, "-O1", "-g", "-Wno-maybe-uninitialized")  # gcc warns wrongly about code that it has instrumented
ADDRESS = (
    *_CHECKED,
    "-fvisibility=hidden",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
THREAD = (*_CHECKED, "-fsanitize=thread")
TRAPPING = (*_CHECKED, "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")


def archive(flags: Sequence[str] = PLAIN) -> Path:
    """Build ``libsilo.a``: every file of ``native/core`` compiled with these flags.

    Skip the test without a C compiler.
    """
    sources = sorted(CORE.glob("*.c"))

    def make(folder: Path) -> None:
        objects = compiled(folder / "objects", sources, flags)
        subprocess.run(["ar", "rcs", folder / "libsilo.a", *objects], check=True, env=_without_preload())
        shutil.rmtree(folder / "objects")

    return shared_build("core", flags, [*sources, *CORE.glob("*.h")], make) / "libsilo.a"


def whole(library: Path) -> tuple[str, ...]:
    """Return the linker flags that link all objects of an archive, not only those that are referenced."""
    return ("-Wl,--whole-archive", str(library), "-Wl,--no-whole-archive")


def compiled(folder: Path, sources: Iterable[Path], flags: Sequence[str]) -> list[Path]:
    """Compile each file by itself, two at a time; returns the objects, in the order of the sources."""
    folder.mkdir(parents=True)

    def one(source: Path) -> Path:
        output = folder / f"{source.stem}.o"
        compile_with(*flags, "-c", source, "-o", output)
        return output

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, sources))


def compile_with(*words: str | Path) -> None:
    """Run the C compiler with these words; the test fails with its message, and is skipped without a C compiler."""
    command = [_compiler(), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_without_preload())
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-3000:]}"


def shared_build(name: str, words: Sequence[str], inputs: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """Return the folder of a build; if no build of the same inputs exists, ``make`` fills it first.

    Args:
        name: begins the folder's name.
        words: command-line words, and everything else besides the compiler and the inputs that ``make`` depends on.
        inputs: the files that ``make`` reads, headers included.
        make: fills the folder that it is called with; an exception leaves no build.
    """
    folder = BUILDS / f"{name}-{_digest(tuple(words), tuple(sorted(inputs)))}"
    BUILDS.mkdir(parents=True, exist_ok=True)
    with _locked(BUILDS / f"{folder.name}.lock"):
        if not folder.is_dir():
            unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=BUILDS))
            try:
                make(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            _remove_unused(folder)
        os.utime(folder)
    return folder


@functools.cache
def _digest(words: tuple[str, ...], inputs: tuple[Path, ...]) -> str:
    made_of = hashlib.sha256(repr((words, _version())).encode())
    for path in inputs:
        made_of.update(f"\0{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return made_of.hexdigest()[:24]


@functools.cache
def _version() -> str:
    words = [_compiler(), "--version"]
    return subprocess.run(words, capture_output=True, text=True, check=True, env=_without_preload()).stdout


@functools.cache
def _compiler() -> str:
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None:
        import pytest  # programs that tests start import this module too, without pytest

        pytest.skip("needs a C compiler")
    return found


def _without_preload() -> dict[str, str]:
    """Return the environment without the preloaded sanitizer library, which would check the compiler."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by closing the file, and by the end of the process
        yield


def _remove_unused(made: Path) -> None:
    """Remove builds, and folders of killed runs, that no run used for two days; the empty lock files stay."""
    oldest = time.time() - UNUSED_S
    for path in BUILDS.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another worker may have removed it
            if path != made and path.is_dir() and path.stat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)
