"""A progress bar for sessions. Loads rich: import it only where a bar may be drawn."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from silo.tune.progress import Progress, ProgressCallback, status_text

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(title: str, *, quiet: bool = False, console: Console | None = None) -> Generator[ProgressCallback]:
    """A callback for :func:`silo.tune.session.tune` that draws a bar while the ``with`` block lasts.

    ``quiet`` draws nothing. Without a ``console`` it writes to standard error, and a bar only where that is a terminal.
    """
    if quiet:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[status]}"))
    with Bar(*columns, console=console or Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(title), total=None, status="")

        def show(progress: Progress) -> None:
            bar.update(
                task, completed=progress.done, total=progress.total, status=escape(status_text(progress)), refresh=True
            )

        yield show
