"""``silo tune --schedule``: the run of a schedule, and the table of its tasks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from silo.cli.console import print_json, print_table, say, say_lines
from silo.cli.progress_bars import TuneProgress, event_lines
from silo.errors import TuneError
from silo.text_tables import Table, format_duration, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from silo.commands.tune_schedule import TaskRow
    from silo.tuning.agents.fleet import Fleet
    from silo.tuning.schedules import ScheduledDevice

__all__ = ["run"]


def run_schedule_command(
    path: Path,
    *,
    budget_s: float | None,
    open_fleet: Callable[[ScheduledDevice], AbstractContextManager[Fleet | None]],
    explain: bool,
    events: str | None,
    quiet: bool,
    json: bool,
) -> None:
    """Runs a schedule and prints its tasks; with ``explain`` only prints them.

    ``open_fleet`` starts the agents of a device.
    """
    from silo.commands.tune_schedule import run_schedule, schedule_rows  # noqa: PLC0415  # heavy

    if explain:
        rows = schedule_rows(path)
        if json:
            print_json([asdict(row) for row in rows])
        else:
            _print(path, rows, "")
        return
    quiet = quiet or events == "-"

    def opened(device: ScheduledDevice, stack: ExitStack) -> Fleet | None:
        return stack.enter_context(open_fleet(device))

    with event_lines(events) as lines, TuneProgress(enabled=not (quiet or json), lines=lines) as progress:
        result = run_schedule(path, opened, budget_s=budget_s, progress=progress.update)
    if json:
        print_json(asdict(result))
    elif not quiet:
        why = "its budget is spent" if result.stopped == "budget" else "no task promises a further gain"
        _print(path, result.rows, f"ended after {format_duration(result.seconds)}: {why}")
    if result.failures:
        raise TuneError("\n".join(result.failures))


def _print(path: Path, rows: Sequence[TaskRow], end: str) -> None:
    cells = [
        [
            row.kernel,
            row.case,
            row.device,
            row.state,
            f"{row.turns} ({row.turns_now} now)" if row.turns_now else str(row.turns),
            format_duration(row.seconds),
            "" if row.best_ns is None else format_time(row.best_ns),
            f"{row.gain:.1%}" if row.turns > 1 else "",
        ]
        for row in rows
    ]
    columns = ["kernel", "case", "device", "state", "turns", "spent", "best", "gained"]
    print_table(Table(str(path), columns, cells, right=columns[4:]))
    for row in rows:
        if row.message:
            say_lines(f"{row.kernel} {row.case} on {row.device}: {row.message}")
    over = sum(row.state in ("settled", "complete") for row in rows)
    say(f"{over} of {len(rows)} tasks are done" + (f"; {end}" if end else ""))
