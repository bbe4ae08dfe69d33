"""Progress of the commands: bars on standard error if it is a terminal, and lines of JSON for ``--events``."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from silo.cli.console import rich_console, say_lines, show_on_line
from silo.errors import SettingsError
from silo.sanitized_text import one_line, printable_json
from silo.tuner.refine import reason_of
from silo.tuner.session_values import Progress, event_to_json, note_of

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

__all__ = ["BuildProgress", "TuneProgress", "event_lines"]


@contextmanager
def event_lines(path: str | None) -> Generator[IO[str] | None]:
    """Yields the file for events, opened for appending; standard output for ``-``, and None for None.

    Raises:
        SettingsError: the file cannot be written.
    """
    if path is None:
        yield None
    elif path == "-":
        yield sys.stdout
    else:
        try:
            file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  # so that only errors of opening are caught
        except OSError as error:
            raise SettingsError(f"--events {path}: {error.strerror}; name a file that can be written") from error
        with file:
            yield file


class _Bar:
    """Shows progress on a terminal: bars drawn by rich if it is installed, else one line that is rewritten."""

    def __init__(self, *, enabled: bool) -> None:
        console = rich_console(stderr=True) if enabled else None
        self._console = console if console is not None and console.is_terminal else None
        self._has_line = enabled and console is None and sys.stderr.isatty()
        self._bar: Bar | None = None
        self._tasks: dict[str, TaskID] = {}
        self._shown = 0  # the width of the line on the terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._has_line:
            show_on_line("", self._shown)
        if isinstance(error, KeyboardInterrupt):
            # The error's text lists the kept trials of a tuning session. It is printed here, because click, which ends
            # the program, would not print it.
            say_lines(str(error) or "interrupted", stderr=True)

    def show(self, name: str, done: int, total: int, note: str) -> None:
        """Moves the bar called ``name``."""
        name, note = one_line(name), one_line(note)
        if self._has_line:
            self._shown = show_on_line(f"{name} {done}/{total} {note}".rstrip(), self._shown)
        if self._console is None:
            return
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415  # slow to import
            from rich.progress import Progress as RichProgress  # noqa: PLC0415

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
            )
            self._bar = RichProgress(*columns, console=self._console, transient=True)
            self._bar.start()
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total, note=note)
        self._bar.update(self._tasks[name], completed=done, total=total, note=note)


class TuneProgress(_Bar):
    """Shows the progress of tuning: finished trials, best so far, time left, failures by kind.

    ``lines`` gets events as JSON.
    """

    def __init__(self, *, enabled: bool, lines: IO[str] | None = None) -> None:
        super().__init__(enabled=enabled)
        self._lines = lines

    def update(self, name: str, progress: Progress) -> None:
        """Shows one event of the session called ``name``."""
        if self._lines is not None:
            line = json.dumps(event_to_json(name, progress), ensure_ascii=False)
            self._lines.write(printable_json(line) + "\n")
            self._lines.flush()  # so that readers get the event now
        parts = [note_of(progress)]
        if progress.last is not None and progress.phase == "search" and (reason := reason_of(progress.last)):
            parts.append(f"refined: {reason}")
        self.show(name, progress.done, progress.total, "; ".join(filter(None, parts)))


class BuildProgress(TuneProgress):
    """Shows the progress of a build: compiled variants, then sessions of tuning."""

    def stage(self, name: str, done: int, total: int) -> None:
        """Shows the state of one stage of the build."""
        self.show(name, done, total, "")
