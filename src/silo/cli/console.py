"""Prints the output of commands: lines, tables and JSON; defines the exit codes.

All output is sanitized here: file names and texts in bundles come from others, and must neither send escape sequences
to a terminal nor contain markup for rich, the library that draws tables. rich need not be installed.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from silo.sanitized_text import one_line, printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from silo.text_tables import Table

__all__ = [
    "ExitCode",
    "ask_secret",
    "is_asked_on_a_terminal",
    "log_to_stderr",
    "print_json",
    "print_listing",
    "print_table",
    "rich_console",
    "say",
    "say_error",
    "say_lines",
    "show_on_line",
]

_MESSAGE_COLUMNS = 100  # the width to which a message on a terminal is wrapped


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    ERROR = 3
    INTERRUPTED = 130


@cache
def rich_console(*, stderr: bool = False) -> Console | None:
    """Returns rich's console, which prints strings without interpreting markup; None if rich is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415  # slow to import, and only tables and bars use it
        from rich.text import Text  # noqa: PLC0415
    except ModuleNotFoundError:
        return None

    class Plain(Console):
        """A console of rich that prints every string, alone or in a table, as plain sanitized text."""

        def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401  # the library's signature
            styles = {name: how[name] for name in ("style", "justify", "overflow") if name in how}
            return Text(printable(text), **styles)

    return Plain(stderr=stderr, width=_width())


def _width() -> int:
    """Returns the width of output: COLUMNS, else the terminal's.

    Without COLUMNS and a terminal the width is large, so that logs are not wrapped.
    """
    import shutil  # noqa: PLC0415  # completion does without

    return shutil.get_terminal_size((200, 50)).columns


def say(line: str, *, stderr: bool = False) -> None:
    """Prints one line."""
    _write(one_line(line), stderr=stderr)


def say_lines(text: str, *, stderr: bool = False) -> None:
    """Prints a text of several lines."""
    _write(printable(text), stderr=stderr)


def say_error(message: str) -> None:
    """Prints why a command failed. On a terminal, long lines are wrapped between words."""
    text = printable(f"error: {message}")
    if sys.stderr.isatty():
        import textwrap  # noqa: PLC0415  # only for errors on a terminal

        width = min(_width(), _MESSAGE_COLUMNS)
        lines = [
            textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n")
        ]
        text = "\n".join("\n".join(wrapped) for wrapped in lines)
    _write(text, stderr=True)


def _write(text: str, *, stderr: bool) -> None:
    stream = sys.stderr if stderr else sys.stdout
    stream.write(text + "\n")
    stream.flush()


def show_on_line(text: str, shown: int) -> int:
    """Replaces the last line on standard error, which has ``shown`` columns; returns the columns of the new text."""
    text = text[: _width() - 1]
    sys.stderr.write("\r" + text.ljust(shown) + ("" if text else "\r"))
    sys.stderr.flush()
    return len(text)


def print_table(table: Table) -> None:
    """Prints a table on standard output: drawn by rich if it is installed, else as plain text."""
    console = rich_console()
    if console is None:
        _write(table.text(_width()), stderr=False)
        return
    from rich.table import Table as Drawn  # noqa: PLC0415

    drawn = Drawn(
        title=one_line(table.title), title_justify="left", title_style="bold", header_style="bold", pad_edge=False
    )
    for column in table.columns:
        drawn.add_column(column, justify="right" if column in table.right else "left", overflow="fold")
    for row in table.cells():
        drawn.add_row(*row)
    console.print(drawn)


def is_asked_on_a_terminal() -> bool:
    """Returns whether standard input is a terminal.

    A person at a terminal may mistype a new password, so it is prompted for twice there.
    """
    return sys.stdin.isatty()


def ask_secret(prompt: str) -> str | None:
    """Reads a line without echo from the terminal, or else from standard input. Returns None at the end of input."""
    if is_asked_on_a_terminal():
        import getpass  # noqa: PLC0415  # used by few commands

        try:
            return getpass.getpass(f"{one_line(prompt)}: ")
        except EOFError:
            return None
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else None


def print_listing(text: str) -> None:
    """Prints code, which may be long, on standard output."""
    sys.stdout.write(printable(text.rstrip("\n")) + "\n")


def print_json(data: object) -> None:
    """Prints indented JSON on standard output."""
    import json  # noqa: PLC0415  # completion does without

    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False)
    sys.stdout.write(printable_json(text) + "\n")


def log_to_stderr(level: int) -> None:
    """Prints log messages of at least ``level`` on standard error."""
    import logging  # noqa: PLC0415  # completion does without

    class Printable(logging.Formatter):
        """Formats a record as sanitized text."""

        def format(self, record: logging.LogRecord) -> str:
            return printable(super().format(record))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Printable("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
