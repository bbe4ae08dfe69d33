"""Intercepts work that Triton repeats in every process before its first launch, so that results can be reused.

Triton hashes its own installation (``triton_key``); the hash is part of the key of every compile. Triton's drivers
build C modules for the host (``cuda_utils``; in 3.6 also launchers) unless Triton's cache has them.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from silo.core.values import digest
from silo.kinds.triton.front.adapter.triton_toolchain import TESTED_VERSIONS, installed_files, module, triton_version
from silo.settings import child_environment

__all__ = ["FirstCompile", "HostModule", "KeyFiles", "hashed_files", "watch_first_compile"]

# The folders whose modules Triton hashes, and two further files that it hashes (``_HASHED_FILES``).
_HASHED_FOLDERS = ("compiler", "backends", "language")
_HASHED_FILES = ("runtime/cache.py", "_C/libtriton.{}")
# the variables that a C compiler reads, or that name the compiler
_COMPILER_VARIABLES = ("CC", "CXX", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH")
# the modules that have a ``triton_key``
_HOLDERS = ("triton.runtime.cache", "triton.runtime.autotuner", "triton.compiler.compiler")


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The current state of the files that Triton's hash of its installation reads.

    ``place`` identifies the installation. ``state`` is a hex digest of each file's path, size, times and inode.
    ``changed_ns`` is the latest time at which one of them changed. Every file that Python could import from the folders
    that Triton hashes is included, so adding, removing or replacing a file changes ``state``.
    """

    place: str
    state: str
    changed_ns: int

    @classmethod
    def of(cls, package: Path) -> KeyFiles:
        """Reads the files of the Triton package in the folder ``package``. Raises OSError."""
        rows: list[list[Any]] = []
        for path in sorted(hashed_files(package)):
            status = path.stat()
            rows.append([str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, str(status.st_ino)])
        key = digest("installation-key/1", [str(package), sys.version, triton_version() or ""])
        return cls(key, digest("triton-key-files/1", rows), max(max(row[2], row[3]) for row in rows))


def hashed_files(package: Path) -> list[Path]:
    """Returns all files that Triton's hash of its installation reads, and possibly more. Raises OSError."""
    endings = tuple(importlib.machinery.all_suffixes())
    paths = [package / name.format(_suffix().rpartition(".")[2]) for name in _HASHED_FILES]
    for folder in _HASHED_FOLDERS:
        paths += _importable(package / folder, endings)
    return paths


def _suffix() -> str:
    """The ending of the names of Python's extension modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def _importable(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    for base, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [folder for folder in folders if folder.isidentifier() and folder != "__pycache__"]
        yield from (Path(base, name) for name in names if name.endswith(endings))


def _raise(error: OSError) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class HostModule:
    """A C module that Triton builds for the host: its name, and a key of everything that its build reads."""

    name: str
    key: str


class FirstCompile(Protocol):
    """Methods that replace two tasks which Triton repeats in each process: hashing its files and building C modules.

    Calling ``original`` does the task as Triton does.
    """

    def installation(self, original: Callable[[], str], files: Callable[[], KeyFiles]) -> str:
        """Returns Triton's hash of its installation.

        ``files`` reads the state of the hashed files, and raises OSError.
        """
        ...

    def build(self, built: HostModule, original: Callable[[], bytes]) -> bytes:
        """Returns the bytes of a shared object; raises the exceptions of ``original``."""
        ...


def watch_first_compile(watch: FirstCompile) -> Callable[[], None]:
    """Calls ``watch`` instead of Triton's own functions; returns a function that restores Triton's functions.

    Functions that a program or one of Triton's knobs has replaced stay as they are, and so do all functions of an
    untested version of Triton.
    """
    if (triton_version() or "").rpartition(".")[0] not in TESTED_VERSIONS:
        return _nothing
    replaced: list[tuple[Any, str, Any, Any]] = []
    cache = module("triton.runtime.cache")
    own_key: Any = getattr(cache, "triton_key", None)
    if _is_of(own_key, cache) and hasattr(own_key, "cache_info"):
        key = _watched_key(own_key, Path(cache.__file__).parents[1], watch)
        holders = [loaded_module for name in _HOLDERS if (loaded_module := sys.modules.get(name)) is not None]
        replaced += [
            (holder, "triton_key", own_key, key) for holder in holders if vars(holder).get("triton_key") is own_key
        ]
    building = module("triton.runtime.build")
    own_build: Any = getattr(building, "_build", None)
    if _is_of(own_build, building):
        replaced.append((building, "_build", own_build, _watched_build(own_build, building, watch)))
    for holder, name, _, ours in replaced:
        setattr(holder, name, ours)

    def undo() -> None:
        for holder, name, own, ours in replaced:
            if getattr(holder, name) is ours:
                setattr(holder, name, own)
        replaced.clear()

    return undo


def _nothing() -> None:
    """Does nothing: in an untested Triton, no functions were replaced."""


def _is_of(function: Any, holder: Any) -> bool:  # noqa: ANN401
    """Whether ``function`` is defined in the module ``holder``, rather than replaced by a program."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return code is not None and code.co_filename == holder.__file__


def _watched_key(original: Any, package: Path, watch: FirstCompile) -> Any:  # noqa: ANN401
    hashes: list[str] = []

    @functools.wraps(original)
    def triton_key() -> str:
        if original.cache_info().currsize:
            return str(original())  # Triton has already hashed its files in this process
        if not hashes:
            hashes.append(watch.installation(original, lambda: KeyFiles.of(package)))
        return hashes[0]

    return triton_key


def _watched_build(original: Any, building: Any, watch: FirstCompile) -> Any:  # noqa: ANN401
    package = Path(building.__file__).parents[1]

    @functools.wraps(original)
    def build(name: str, src: str, srcdir: str, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
        key = None if module("triton.knobs").build.impl else _build_key(package, name, src, rest, more)
        if key is None:
            return original(name, src, srcdir, *rest, **more)
        path: list[Any] = []

        def run() -> bytes:
            path.append(original(name, src, srcdir, *rest, **more))
            return Path(path[0]).read_bytes()

        data = watch.build(HostModule(name, key), run)
        if path:
            return path[0]
        source_copy = Path(srcdir, f"{name}{_suffix()}")
        source_copy.write_bytes(data)
        return str(source_copy)

    return build


def _within(folder: Path, package: Path) -> bool:
    return folder.resolve().is_relative_to(package.resolve())


def _build_key(package: Path, name: str, src: str, positional: Sequence[Any], more: dict[str, Any]) -> str | None:
    """The key of a build.

    None if the build may read headers beside the source that are not part of Triton's installation.
    """
    folders = list(positional[1] if len(positional) > 1 else more.get("include_dirs", ()))
    folders += sorted(module("triton.knobs").build.backend_dirs)
    beside = Path(src).parent
    if not _within(beside, package) and list(beside.iterdir()) != [Path(src)]:
        return None
    if not all(_within(Path(folder), package) for folder in folders):
        return None
    source_parts = [name, Path(src).read_text(encoding="utf-8"), Path(src).suffix, [str(folder) for folder in folders]]
    arguments = [[list(item) for item in positional], {key: str(value) for key, value in more.items()}]
    environment = child_environment()
    variables = [environment.get(item) for item in _COMPILER_VARIABLES]
    installed = [str(package), installed_files(), sys.version, os.uname().machine, _suffix()]
    return digest("triton-host-module/1", [*source_parts, *arguments, variables, *installed])
