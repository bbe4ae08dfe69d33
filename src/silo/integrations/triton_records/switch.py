"""Switching on: a program's compiles and decisions are recorded, or served from a bundle, until it is undone."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Callable, Generator
from pathlib import Path

from silo.errors import BundleError
from silo.integrations.triton_records.folding import fold, open_folded
from silo.integrations.triton_records.recorder import Recorder
from silo.integrations.triton_records.recording import Recording
from silo.integrations.triton_records.replayer import Replayer
from silo.sources.triton.adapter import intercept_compiles, watch_autotuners

__all__ = ["record", "recording", "replay", "replaying"]

_log = logging.getLogger("silo")


def record(path: str | os.PathLike[str]) -> Callable[[], None]:
    """Record what Triton compiles for this process from now on, and what its tuners decide; what ends it.

    At the end of the process everything is folded into the bundle at ``path``, which is made or added to.

    Raises:
        BundleError: it cannot be written there, or what is there is no bundle.
    """
    kept = Recording(path)
    recorder = Recorder(kept)
    undo = _both(recorder)
    done = False

    def end() -> None:
        nonlocal done
        if done:
            return
        done = True
        undo()
        atexit.unregister(end)
        _fold(kept.path)

    atexit.register(end)
    return end


def replay(path: str | os.PathLike[str], *, frozen: bool = False, trust: bool = False) -> Callable[[], None]:
    """Serve what Triton would compile or measure from the bundle at ``path``, from now on; what ends it.

    Raises:
        BundleError: it cannot be read.
    """
    return _both(Replayer(open_folded(Path(path)), frozen=frozen, trust=trust))


def _both(asked: Recorder | Replayer) -> Callable[[], None]:
    compiles, tuners = intercept_compiles(asked.compile), watch_autotuners(asked)

    def undo() -> None:
        tuners()
        compiles()

    return undo


def _fold(path: Path) -> None:
    try:
        written = fold(path)
    except BundleError as error:
        _log.error("what was recorded stays in the journal beside %s: %s", path, error)
        return
    if written is not None:
        _log.info("recorded into %s: %d bytes", path, written.size_bytes)


@contextlib.contextmanager
def recording(path: str | os.PathLike[str]) -> Generator[None]:
    """:func:`record` for a block."""
    end = record(path)
    try:
        yield
    finally:
        end()


@contextlib.contextmanager
def replaying(path: str | os.PathLike[str], *, frozen: bool = False, trust: bool = False) -> Generator[None]:
    """:func:`replay` for a block."""
    end = replay(path, frozen=frozen, trust=trust)
    try:
        yield
    finally:
        end()
