"""Output of the commands: lines, tables, JSON, exit codes.

All output is sanitized here: file names and texts in bundles come from others, and must neither send escape sequences
to a terminal nor contain markup for the library that draws tables.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from silo.sanitized_text import one_line, printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "ExitCode",
    "ask_secret",
    "console",
    "is_asked_on_a_terminal",
    "log_to_stderr",
    "print_json",
    "print_listing",
    "say",
    "say_error",
    "say_lines",
    "table",
]


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    ERROR = 3
    INTERRUPTED = 130


@cache
def console(*, stderr: bool = False) -> Console:
    """Returns the console of standard output or standard error. Strings are printed without interpreting markup."""
    from rich.console import Console  # noqa: PLC0415  # slow to import, and not needed for --json
    from rich.text import Text  # noqa: PLC0415

    class Plain(Console):
        """Prints every string, alone or in a table, as plain sanitized text."""

        def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401  # the library's signature
            kept = {name: how[name] for name in ("style", "justify", "overflow") if name in how}
            return Text(printable(text), **kept)

    # COLUMNS, then the terminal; without either, logs and pipes are not wrapped at 80 columns.
    return Plain(stderr=stderr, width=shutil.get_terminal_size((200, 50)).columns)


def say(line: str, *, stderr: bool = False) -> None:
    """Print one line."""
    console(stderr=stderr).print(one_line(line), soft_wrap=True)


def say_lines(text: str, *, stderr: bool = False) -> None:
    """Print a text of several lines."""
    console(stderr=stderr).print(text, soft_wrap=True)


def say_error(message: str) -> None:
    """Print the reason why a command failed."""
    console(stderr=True).print("error: ", style="bold red", end="")
    say_lines(message, stderr=True)


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> Table:
    """Returns a table; the columns named in ``right`` are aligned to the right.

    A cell is one line, so that its text cannot look like another row, except in the columns named in ``lines``.
    """
    from rich.table import Table  # noqa: PLC0415

    made = Table(title=one_line(title), title_justify="left", title_style="bold", header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if name in lines else one_line(cell) for name, cell in zip(columns, row, strict=True)))
    return made


def is_asked_on_a_terminal() -> bool:
    """Whether standard input is a terminal, at which a person may mistype."""
    return sys.stdin.isatty()


def ask_secret(prompt: str) -> str | None:
    """Returns a line that is not shown: from the terminal, else the next of standard input; None at its end."""
    if is_asked_on_a_terminal():
        import getpass  # noqa: PLC0415  # used by few commands

        try:
            return getpass.getpass(f"{one_line(prompt)}: ")
        except EOFError:
            return None
    line = sys.stdin.readline()
    return line.removesuffix("\n") if line else None


def print_listing(text: str) -> None:
    """Print code, which may be long, on standard output."""
    sys.stdout.write(printable(text.rstrip("\n")) + "\n")


def print_json(data: object) -> None:
    """Print indented JSON on standard output."""
    text = json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False)
    sys.stdout.write(printable_json(text) + "\n")


def log_to_stderr(level: int) -> None:
    """Show log messages from a level on, on standard error."""

    class Printable(logging.Formatter):
        """Formats a record as sanitized text."""

        def format(self, record: logging.LogRecord) -> str:
            return printable(super().format(record))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Printable("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
