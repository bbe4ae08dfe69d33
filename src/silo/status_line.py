"""The status line on standard error: progress during a long first call, and one line at its end.

In a program that configured logging, only the logger ``silo`` is used: it gets one record about a long task at most
every ten seconds, and one at the task's end. In any other program, lines are shown if standard error is a terminal or
the output of a notebook's cell. ``SILO_LOG`` shows log messages in either case; ``SILO_QUIET`` hides everything but
errors. Importing Silo prints nothing, and ``logging`` is imported only when there is a message.
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

# Seconds after which the progress of a task is shown, and the interval at which its line is rewritten.
SLOW_S = 1.0
_PERIOD_S = 0.2
_LOGGED_S = 10.0  # seconds between two log records about one task

# The settings: _level is the least severe log level that is shown (None: the default); _quiet hides everything but
# errors.
_level: str | None = None
_quiet = False


class Task:
    """A task that may take long: its name, its start and its progress."""

    __slots__ = ("logged", "note", "start", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.note = ""
        self.start = time.monotonic()
        self.logged = -math.inf  # time of the last log record about the task's progress

    @property
    def seconds(self) -> float:
        """Seconds since the task started."""
        return time.monotonic() - self.start

    def line(self) -> str:
        """Returns the text of the status line: name, progress and seconds."""
        note = f": {self.note}" if self.note else ""
        return one_line(f"silo: {self.text}{note}, {self.seconds:.0f} s")


def announce(message: str) -> None:
    """Reports a finished event: a log record if the logger takes level info, else a line on a terminal."""
    import logging  # noqa: PLC0415  # see the module's docstring

    log = logging.getLogger("silo")
    if log.isEnabledFor(logging.INFO):
        log.info("%s", message)
    elif _is_wanted():
        _line.say(f"silo: {message}")


@contextmanager
def working(text: str) -> Generator[Task]:
    """Shows the block as a task once it has run for :data:`SLOW_S`: on a terminal, in a notebook, or in the log.

    The block sets ``note`` of the yielded task to its progress.
    """
    task = Task(text)
    try:
        if _is_wanted() or _is_logged():
            _line.add(task)
        yield task
    finally:
        _line.remove(task)


def report_progress(task: Task) -> None:
    """Logs the progress of a task if no status line is visible: after :data:`SLOW_S`, at most every ten seconds.

    This is for programs without a terminal whose logger takes records of level info.
    """
    now = time.monotonic()
    if task.seconds < SLOW_S or now - task.logged < _LOGGED_S or _is_wanted() or not _is_logged():
        return
    task.logged = now
    sys.modules["logging"].getLogger("silo").info("%s", task.line().removeprefix("silo: "))


def configure(level: str | None, *, quiet: bool) -> None:
    """Shows log messages from ``level`` on, unless the program configured a log handler. Called by ``silo.settings``.

    A level that the program set on the logger ``silo`` stays.
    """
    global _level, _quiet  # the settings are global to the process
    import logging  # noqa: PLC0415  # see the module's docstring

    log = logging.getLogger("silo")
    known = logging.NOTSET if _level is None else logging.getLevelNamesMapping()[_level.upper()]
    if log.level == known:  # the level is still the one that Silo set
        log.setLevel(logging.NOTSET if level is None else level.upper())
    _level, _quiet = level, quiet
    handler = next((handler for handler in log.handlers if _is_own(handler)), None)
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
        """A log handler that prints a record only if the program has no handler for it.

        This is tested for each record, because the program may configure logging at any time.
        """

        silo_own = True

        def emit(self, record: logging.LogRecord) -> None:
            if not _is_configured():
                _line.say(f"silo: {self.format(record)}")

    return Shown()


def _is_own(handler: object) -> bool:
    return getattr(handler, "silo_own", False)


def _is_configured() -> bool:
    """Whether the program has a handler for Silo's log messages."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    log = logging.getLogger("silo")
    handlers = [*log.handlers, *(logging.getLogger().handlers if log.propagate else ())]
    return any(_is_foreign(handler) for handler in handlers)


def _is_foreign(handler: Handler) -> bool:
    """Whether a log handler belongs to the program and is not a ``NullHandler``."""
    return not _is_own(handler) and not isinstance(handler, sys.modules["logging"].NullHandler)


def _is_wanted() -> bool:
    """Whether status lines are shown: lines on a terminal or in a notebook, which are not log messages."""
    return not _quiet and _level in (None, "info", "debug") and _is_terminal() and not _is_configured()


def _is_logged() -> bool:
    """Whether the logger ``silo`` takes records of level info.

    Returns False if ``logging`` was not imported, because then nobody configured it.
    """
    logging = sys.modules.get("logging")
    return logging is not None and logging.getLogger("silo").isEnabledFor(logging.INFO)


def _is_terminal() -> bool:
    """Whether standard error is a terminal or the output of a notebook's cell."""
    try:
        if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # pythonw
            return False
        return sys.stderr.isatty() or type(sys.stderr).__module__.partition(".")[0] == "ipykernel"
    except ValueError:  # standard error is closed
        return False


def _width() -> int:
    import shutil  # noqa: PLC0415  # see the module's docstring

    return shutil.get_terminal_size((80, 24)).columns - 1


class _Line:
    """The status line at the bottom of the terminal.

    It shows the oldest slow task. A thread rewrites the line, and ends when all tasks have ended.
    """

    def __init__(self) -> None:
        self._lock = Mutex()
        self._tasks: list[Task] = []
        self._shown = 0  # columns of the text that is on the terminal now
        self._thread: threading.Thread | None = None

    def add(self, task: Task) -> None:
        """Adds a task, which is shown once it is slow."""
        with self._lock:
            self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="silo status line", daemon=True)
                self._thread.start()

    def remove(self, task: Task) -> None:
        """Removes a finished task and erases its line."""
        with self._lock:
            if task in self._tasks:  # false in a child that was forked during the task
                self._tasks.remove(task)
                self._write("")

    def say(self, text: str) -> None:
        """Prints a line that stays on the terminal, in place of the status line."""
        with self._lock:
            self._write("")
            self._print_plain(printable(text) + "\n")

    def forget(self) -> None:
        """Removes all tasks in a child made by fork, because only the parent runs them."""
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
        """Replaces the text on the terminal's line.

        Blanks overwrite the rest of the earlier text. A control code would be shorter, but notebooks display it as
        text.
        """
        if not text and not self._shown:
            return
        text = text[: _width()]
        self._print_plain("\r" + text.ljust(self._shown) + ("" if text else "\r"))
        self._shown = len(text)

    @staticmethod
    def _print_plain(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):  # standard error is missing or closed
            return


_line = _Line()
in_child(_line.forget)
