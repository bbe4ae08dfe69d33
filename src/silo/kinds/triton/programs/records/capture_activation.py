"""Starts and ends the recording of a program's compiles and decisions, and the serving of both from a bundle."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Generator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from silo.errors import BundleError, LockError, SiloError
from silo.kinds.triton.front.adapter import TunerDecisions, adapter_is_ready, intercept_compiles, watch_autotuners
from silo.kinds.triton.programs.compiled_code import PROVIDERS
from silo.kinds.triton.programs.records.archive import Archive
from silo.kinds.triton.programs.records.capture import Capture, Cover, read_covers
from silo.kinds.triton.programs.records.decision_sources import LockedDecisions, stored_decisions
from silo.kinds.triton.programs.records.journal_folding import fold, open_folded
from silo.kinds.triton.programs.records.replayer import Replayer, Serving
from silo.kinds.triton.programs.triton_patching import beneath_tuners
from silo.sanitized_text import one_line
from silo.settings import settings

__all__ = ["begin_by_settings", "call_when_begun", "present_records", "record", "recording", "replay", "replaying"]

_log = logging.getLogger("silo")


def record(
    path: str | os.PathLike[str],
    *,
    lock: str | os.PathLike[str] | None = None,
    others: TunerDecisions | None = None,
    covers: Sequence[Cover] = (),
) -> Callable[[], None]:
    """Records Triton's compiled code and tuners' decisions in this process from now on.

    Returns a function that ends the recording.

    At the end of the process, everything is folded into the bundle at ``path``, which is created if necessary. Configs
    that the lock file or ``others`` (a further source of decisions) have decided are not measured. Kernels are also
    compiled for the parameter values that ``covers`` lists.

    Raises:
        LockError: the file ``lock`` is not a lock.
        BundleError: ``path`` cannot be written, or an existing file there is not a bundle.
    """
    archive = Archive(path)
    recorder = Capture(archive, others, covers)
    undo = _both(recorder, lock)
    done = False

    def end() -> None:
        nonlocal done
        if done:
            return
        done = True
        undo()
        atexit.unregister(end)
        _fold(archive.path)
        for name in recorder.uncovered():
            _log.warning("--cover %s: no kernel was launched that has such a constexpr", name)

    atexit.register(end)
    return end


def replay(
    path: str | os.PathLike[str],
    *,
    frozen: bool = False,
    trust: bool = False,
    lock: str | os.PathLike[str] | None = None,
    others: TunerDecisions | None = None,
) -> Callable[[], None]:
    """Serves Triton's compiles and measurements from the bundle at ``path`` from now on.

    Returns a function that ends the replay.

    ``others`` is a further source of decisions, for those that the bundle lacks.

    Raises:
        BundleError: the bundle cannot be read.
        LockError: the file ``lock`` is not a lock.
    """
    replayer = Replayer(open_folded(Path(path)), frozen=frozen, trust=trust, others=others)
    undo, serving = _both(replayer, lock), Serving(replayer.code)
    PROVIDERS.append(serving)

    def end() -> None:
        PROVIDERS.remove(serving)
        undo()

    return end


def begin_by_settings() -> None:
    """Acts on ``SILO_RECORD``, ``SILO_BUNDLE`` and ``SILO_LOCK``: at once, or when Triton's import has finished."""
    if adapter_is_ready():
        _begin()
    else:
        sys.meta_path.insert(0, _Finder())  # pyright: ignore[reportArgumentType]


def _begin() -> None:
    """Begins recording or serving, only once. A failure is logged; a frozen program ends instead, with exit code 3.

    Raises:
        SystemExit: the program is frozen, and its bundle or lock file cannot be read. Importing Triton again raises
            SystemExit again, so that a program that catches the exception compiles nothing either.
    """
    global _begun  # noqa: PLW0603  # Triton's plug-in may be imported anew
    if _begun:
        return
    _begun = True
    current = settings()
    others = stored_decisions() if current.accelerate else None
    try:
        if current.bundle is not None:
            replay(current.bundle, frozen=current.frozen, lock=current.lock, others=others)
        elif current.record is not None:
            record(current.record, lock=current.lock, others=others, covers=read_covers(current.cover or ()))
        elif current.lock is not None:
            _watch(LockedDecisions(Path(current.lock), others))
    except SiloError as error:
        if current.frozen or current.tune == "frozen":
            _begun = False
            print(f"silo: error: {one_line(str(error))}", file=sys.stderr)
            raise SystemExit(_EXIT_ERROR) from error
        if isinstance(error, LockError):
            _log.warning("tuners decide themselves, and nothing is recorded or served: %s", error)
            return
        consequence = "nothing is recorded" if current.bundle is None else "Triton compiles and tunes itself"
        _log.warning("%s: %s", consequence, error)
    if current.bundle is not None and current.record is not None:
        _log.warning("SILO_RECORD=%s is not heeded: SILO_BUNDLE=%s serves this program", current.record, current.bundle)


_begun = False
_EXIT_ERROR = 3  # the exit code of Silo's commands for an error, also that of `silo exec` before the program runs


class _Finder:
    """An import finder that waits in ``sys.meta_path`` until Triton's classes are complete; it never finds a module."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called at every import; begins the recording or the replay once Triton's classes are complete."""
        del path, target
        if name.startswith("triton.") and adapter_is_ready():
            sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
            try:
                _begin()
            except SystemExit:
                sys.meta_path.insert(0, self)  # pyright: ignore[reportArgumentType]
                raise
        return None


_present: list[Capture | Replayer] = []
_listeners: list[Callable[[], None]] = []


def present_records() -> Capture | Replayer | None:
    """The recorder or replayer that is active in this process, the newest if there are several; None without one."""
    return _present[-1] if _present else None


def call_when_begun(function: Callable[[], None]) -> Callable[[], None]:
    """Calls ``function`` each time a recording or a replay begins. Returns a function that stops these calls."""
    _listeners.append(function)
    return lambda: _listeners.remove(function)


def _both(record: Capture | Replayer, lock: str | os.PathLike[str] | None) -> Callable[[], None]:
    decisions = record if lock is None else LockedDecisions(Path(lock), record)
    compiles, tuners = intercept_compiles(record.compile), _watch(decisions)
    _present.append(record)
    for listener in tuple(_listeners):
        listener()

    def undo() -> None:
        _present.remove(record)
        tuners()
        compiles()

    return undo


def _watch(decisions: TunerDecisions) -> Callable[[], None]:
    """Lets ``decisions`` decide for every tuner; Silo's methods that launch decided configs directly stay on top."""
    undo = beneath_tuners(lambda: watch_autotuners(decisions))
    return lambda: beneath_tuners(undo)


def _fold(path: Path) -> None:
    try:
        written = fold(path)
    except BundleError as error:
        _log.error("what was recorded stays in the journal beside %s: %s", path, error)
        return
    if written is not None:
        _log.info("recorded into %s: %d bytes", path, written.size_bytes)


@contextlib.contextmanager
def recording(path: str | os.PathLike[str], *, covers: Sequence[Cover] = ()) -> Generator[None]:
    """A context manager that calls :func:`record`, and ends the recording."""
    end = record(path, covers=covers)
    try:
        yield
    finally:
        end()


@contextlib.contextmanager
def replaying(path: str | os.PathLike[str], *, frozen: bool = False, trust: bool = False) -> Generator[None]:
    """A context manager that calls :func:`replay`, and ends the replay."""
    end = replay(path, frozen=frozen, trust=trust)
    try:
        yield
    finally:
        end()
