"""Keeps compiled objects of C texts for later compiles of the same text, so that each kernel is compiled once.

A test's subject is rarely the C compiler, which takes most of the time of tests of kernels for the CPU. An object lies
in ``build/tests/objects`` under the digest of everything that it was made of: the text, the flags, the compiler's
command and version. Only compiles without a message, of texts that include no file, are kept. Objects that no run used
for two days are removed. The compile workers of these processes also use and keep objects
(``worker_start/sitecustomize.py``).

Kept objects are not used in ``scripts/test --all``, in processes that tests start anew, and in tests with the fixture
``compiles_anew``: those about the compiler, and about bytes that two compiles have in common.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from silo.compile import native_build, worker_process
from silo.compile.native_build import BuiltObject

__all__ = ["ANEW", "install", "remove_unused"]

ANEW = "SILO_TEST_COMPILES_ANEW"
"""The environment variable that makes every text be compiled."""
_FOLDER = Path(__file__).resolve().parents[2] / "build" / "tests" / "objects"
_UNUSED_S = 2 * 86400
_WORKER_START = Path(__file__).with_name("worker_start")
_own_build, _own_build_beside = native_build.build, native_build.build_beside
_own_environment = worker_process._environment


def install() -> None:
    """Let this process and its compile workers use kept objects, and keep those that they compile.

    Call this before anything imports the functions ``build`` and ``build_beside`` of native_build.
    """
    native_build.build, native_build.build_beside = _build, _build_beside
    worker_process._environment = _with_worker_start


def _with_worker_start(wanted: Mapping[str, str]) -> dict[str, str]:
    environment = _own_environment(wanted)
    return {**environment, "PYTHONPATH": os.pathsep.join([environment["PYTHONPATH"], str(_WORKER_START)])}


def remove_unused() -> None:
    """Remove the objects that no run used for two days."""
    oldest = time.time() - _UNUSED_S
    for path in _FOLDER.glob("*/*"):
        with contextlib.suppress(FileNotFoundError):  # another run may have removed it
            if path.stat().st_mtime < oldest:
                path.unlink()


def _build(source: str, flags: tuple[str, ...], toolchain: Any, language: str = "c", other_files: Any = ()) -> Any:
    def own() -> list[bytes] | None:
        nonlocal built
        built = _own_build(source, flags, toolchain, language, other_files)
        return None if built.log else [built.data]

    built: BuiltObject | None = None
    kept = _kept(own, (source,), flags, toolchain, language, tuple(other_files))
    return built or BuiltObject(kept[0], "")


def _build_beside(
    source: str, shared: Any, flags: tuple[str, ...], compile_flags: tuple[str, ...], toolchain: Any
) -> tuple[Any, tuple[bytes, ...]]:
    def own() -> list[bytes] | None:
        nonlocal made
        made = _own_build_beside(source, shared, flags, compile_flags, toolchain)
        return None if made[0].log else [made[0].data, *made[1]]

    made: tuple[BuiltObject, tuple[bytes, ...]] | None = None
    texts = (source, *(one for one in shared if isinstance(one, str)))
    kept = _kept(own, texts, (*flags, "then", *compile_flags), toolchain, tuple(shared))
    return made or (BuiltObject(kept[0], ""), tuple(kept[1:]))


def _kept(
    own: Callable[[], list[bytes] | None], texts: tuple[str, ...], flags: tuple[str, ...], toolchain: Any, *more: Any
) -> list[bytes]:
    """Return the kept parts, or the parts that ``own`` makes, which are then kept.

    If ``own`` returns None, nothing is kept.
    """
    includes = any("#include" in text or "__has_include" in text for text in texts)
    if includes or ANEW in os.environ or "SILO_TEST_ALL" in os.environ or any(one.startswith("-I") for one in flags):
        return own() or []
    made_of = (texts, flags, toolchain.command, toolchain.version, *more)
    name = hashlib.sha256(repr(made_of).encode()).hexdigest()
    path = _FOLDER / name[:2] / name
    with contextlib.suppress(FileNotFoundError):
        data = path.read_bytes()
        os.utime(path)
        return _parts(data)
    parts = own()
    if parts is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"".join(len(part).to_bytes(8, "little") + part for part in parts))
        Path(unfinished).rename(path)
    return parts or []


def _parts(data: bytes) -> list[bytes]:
    found = list[bytes]()
    while data:
        size = int.from_bytes(data[:8], "little")
        found.append(data[8 : 8 + size])
        data = data[8 + size :]
    return found
