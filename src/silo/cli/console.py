"""What the commands print with: consoles, tables, JSON, exit codes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["ExitCode", "console", "print_json", "table"]


class ExitCode(IntEnum):
    """What the exit codes mean."""

    OK = 0
    FAILED = 1
    USAGE = 2
    ERROR = 3
    INTERRUPTED = 130


@cache
def console(*, stderr: bool = False) -> Console:
    """The console of standard output or standard error."""
    from rich.console import Console  # noqa: PLC0415  # slow to import, and --json needs none

    # COLUMNS, then the terminal; without either, logs and pipes are not wrapped at 80 columns.
    return Console(stderr=stderr, width=shutil.get_terminal_size((200, 50)).columns)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> Table:
    """A table; the columns named in ``right`` are aligned to the right."""
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return made


def print_json(data: object) -> None:
    """Indented JSON on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
