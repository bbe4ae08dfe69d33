"""The status line of first calls on standard error: progress while one takes long, one line at the end.

A program that configured logging gets records of the logger ``silo`` and nothing else: one about a task that takes
long, at most every ten seconds, and one at its end. In any other program, lines are shown if standard error is a
terminal or the output of a notebook's cell; ``SILO_LOG`` shows log messages anywhere, ``SILO_QUIET`` nothing but
errors.
Nothing is printed by importing Silo, and ``logging`` is imported only where there is something to say.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from silo.forks import Mutex, in_child
from silo.sanitized_text import one_line, printable

if TYPE_CHECKING:
    from logging import Handler

__all__ = ["SLOW_S", "Task", "announce", "configure", "report_progress", "working"]

# Longer work shows its progress, rewritten at this interval.
SLOW_S = 1.0
_PERIOD_S = 0.2
_LOGGED_S = 10.0  # between records about one task

# The settings: the least severe log message that is shown, None by default; whether all is hidden.
_level: str | None = None
_quiet = False


class Task:
    """Work that takes time: its name, and its progress."""

    __slots__ = ("logged", "note", "start", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.note = ""
        self.start = time.monotonic()
        self.logged = -math.inf  # time of the last log record about its progress

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return time.monotonic() - self.start

    def line(self) -> str:
        """The shown text."""
        note = f": {self.note}" if self.note else ""
        return one_line(f"silo: {self.text}{note}, {self.seconds:.0f} s")


def announce(message: str) -> None:
    """Say that something was done: a record of level info where these are taken, else a line on a terminal."""
    import logging  # noqa: PLC0415  # see the module's docstring

    log = logging.getLogger("silo")
    if log.isEnabledFor(logging.INFO):
        log.info("%s", message)
    elif _is_wanted():
        _line.say(f"silo: {message}")


@contextmanager
def working(text: str) -> Generator[Task]:
    """Show that the block is at work, from :data:`SLOW_S` on: on a terminal, in a notebook, or in the program's log.

    ``note`` of the task is its progress.
    """
    task = Task(text)
    try:
        if _is_wanted() or _is_logged():
            _line.add(task)
        yield task
    finally:
        _line.remove(task)


def report_progress(task: Task) -> None:
    """Log the progress of a task without a visible line: from :data:`SLOW_S` on, at most every ten seconds.

    For tasks that are long in programs without a terminal, whose log takes records of level info.
    """
    now = time.monotonic()
    if task.seconds < SLOW_S or now - task.logged < _LOGGED_S or _is_wanted() or not _is_logged():
        return
    task.logged = now
    sys.modules["logging"].getLogger("silo").info("%s", task.line().removeprefix("silo: "))


def configure(level: str | None, *, quiet: bool) -> None:
    """Show log messages from ``level`` on, in a program that does not say itself where its log goes; ``settings`` asks.

    A program's settings of the logger ``silo`` stay.
    """
    global _level, _quiet  # settings are one for the process
    import logging  # noqa: PLC0415  # see the module's docstring

    log = logging.getLogger("silo")
    known = logging.NOTSET if _level is None else logging.getLevelNamesMapping()[_level.upper()]
    if log.level == known:  # no other code set it
        log.setLevel(logging.NOTSET if level is None else level.upper())
    _level, _quiet = level, quiet
    handler = next((one for one in log.handlers if _is_own(one)), None)
    if level is None and not quiet:
        if handler is not None:
            log.removeHandler(handler)
        return
    if handler is None:
        handler = _own_handler()
        log.addHandler(handler)
    handler.setLevel(logging.ERROR if quiet else logging.NOTSET)


def _own_handler() -> Handler:
    import logging  # noqa: PLC0415  # see the module's docstring

    class Shown(logging.Handler):
        """Prints records while no other handler takes them: the program may configure its logging at any time."""

        silo_own = True

        def emit(self, record: logging.LogRecord) -> None:
            if not _is_configured():
                _line.say(f"silo: {self.format(record)}")

    return Shown()


def _is_own(handler: object) -> bool:
    return getattr(handler, "silo_own", False)


def _is_configured() -> bool:
    """Whether the program says where Silo's log messages go."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    log = logging.getLogger("silo")
    handlers = [*log.handlers, *(logging.getLogger().handlers if log.propagate else ())]
    return any(_is_foreign(one) for one in handlers)


def _is_foreign(handler: Handler) -> bool:
    """Whether a handler is the program's, and does something."""
    return not _is_own(handler) and not isinstance(handler, sys.modules["logging"].NullHandler)


def _is_wanted() -> bool:
    """Whether lines are shown that are not log messages."""
    return not _quiet and _level in (None, "info", "debug") and _is_terminal() and not _is_configured()


def _is_logged() -> bool:
    """Whether the program's log takes records of level info; a program without one has not imported ``logging``."""
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger("silo").isEnabledFor(logging.INFO)


def _is_terminal() -> bool:
    """Whether a person sees standard error as it is written: on a terminal, or below the cell of a notebook."""
    try:
        if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # pythonw
            return False
        return sys.stderr.isatty() or type(sys.stderr).__module__.partition(".")[0] == "ipykernel"
    except ValueError:  # it is closed
        return False


def _width() -> int:
    import shutil  # noqa: PLC0415  # see the module's docstring

    return shutil.get_terminal_size((80, 24)).columns - 1


class _Line:
    """The last line of the terminal: the oldest task's, rewritten by a thread that lives while there are tasks."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._tasks: list[Task] = []
        self._shown = 0  # columns
        self._thread: threading.Thread | None = None

    def add(self, task: Task) -> None:
        """Show a task if it takes long."""
        with self._lock:
            self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="silo status line", daemon=True)
                self._thread.start()

    def remove(self, task: Task) -> None:
        """The task is over."""
        with self._lock:
            if task in self._tasks:  # it was shown, and this is not a child that was forked meanwhile
                self._tasks.remove(task)
                self._write("")

    def say(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self._write("")
            self._put(printable(text) + "\n")

    def forget(self) -> None:
        """In a child made by fork: the parent shows its own work."""
        self._tasks.clear()
        self._thread = None
        self._shown = 0

    def _tick(self) -> None:
        while True:
            time.sleep(_PERIOD_S)
            with self._lock:
                if not self._tasks:
                    self._thread = None
                    return
                slow = [task for task in self._tasks if task.seconds >= SLOW_S]
                if slow and not _is_wanted():
                    for task in slow:
                        report_progress(task)
                elif slow:
                    more = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
                    self._write(slow[0].line() + more)

    def _write(self, text: str) -> None:
        """Replace the shown text by ``text``. Blanks, not control codes: notebooks show those."""
        if not text and not self._shown:
            return
        text = text[: _width()]
        self._put("\r" + text.ljust(self._shown) + ("" if text else "\r"))
        self._shown = len(text)

    @staticmethod
    def _put(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):  # it is gone or closed: nothing to write to
            return


_line = _Line()
in_child(_line.forget)
