"""Processes that run cases for ``silo run``: a kernel that ends its process costs one row and not the table.

One process runs all cases and writes a line of JSON to a pipe when a case begins and when it is over. If it dies, the
case in flight is run once more in a process of its own: code that wrote to wrong memory may crash later, in another
case. If the case does not crash alone, the cases before it are run alone, the latest first, until one does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from silo.cli.console import say_error
from silo.compile.worker_process import with_own_package
from silo.settings import program_environment

__all__ = ["Attempt", "Begun", "rows_of", "run_apart"]

# Exit codes of a process that has printed its error.
_SAID = frozenset((2, 3, 130))


@dataclass(frozen=True, slots=True)
class Begun:
    """A case that began: its number among all cases, and the kernel and case names of its row."""

    number: int
    kernel: str
    case: str


@dataclass(slots=True)
class Attempt:
    """The result of one process: its rows by the number of the case, the case in flight when it ended, and its exit."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    in_flight: Begun | None = None
    done: bool = False
    code: int = 0

    @property
    def crashed(self) -> bool:
        """Whether the process was ended by a crash."""
        return self.code < 0 or (not self.done and self.code not in _SAID)

    @property
    def how(self) -> str:
        """How the process ended, for the row of a case: the signal or the exit status."""
        if self.code >= 0:
            return f"exit status {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


def rows_of(attempt: Callable[[Sequence[int] | None, Sequence[int]], Attempt]) -> list[dict[str, Any]]:
    """Returns the rows of all cases in their order.

    ``attempt(only, but)`` runs cases in a process of its own: those numbered ``only`` (None: all), without those in
    ``but``.

    Raises:
        click.exceptions.Exit: a process ended with an error that it has printed, or before any case began.
    """
    rows: dict[int, dict[str, Any]] = {}
    while True:
        made = attempt(None, tuple(rows))
        rows |= made.rows
        if not made.crashed:
            if not made.done:
                raise click.exceptions.Exit(made.code)
            break
        if made.in_flight is None and not made.rows:
            say_error(f"the process that runs the cases ended before a case began: {made.how}")
            raise click.exceptions.Exit(3)
        rows |= _blamed(made, attempt)
        if made.done:
            break
    return [rows[number] for number in sorted(rows)]


def _blamed(
    made: Attempt, attempt: Callable[[Sequence[int] | None, Sequence[int]], Attempt]
) -> dict[int, dict[str, Any]]:
    """Returns the rows of the case in flight and of the case that is to blame, after a process crashed."""
    found: dict[int, dict[str, Any]] = {}
    last = made.in_flight
    if last is not None and not made.rows:
        return {last.number: _crashed(last, made.how)}
    suspects = [*([] if last is None else [last.number]), *sorted(made.rows, reverse=True)]
    for number in suspects:
        alone = attempt((number,), ())
        if alone.crashed:
            begun = alone.in_flight or _begun(number, alone.rows.get(number) or made.rows[number])
            return found | {number: _crashed(begun, alone.how)}
        if number in alone.rows and last is not None and number == last.number:
            found |= alone.rows  # another case is to blame, and its own row is kept
    if last is not None:
        found[last.number] = _crashed(last, f"{made.how}, after other cases and not alone")
    return found


def _begun(number: int, row: dict[str, Any]) -> Begun:
    return Begun(number, str(row["kernel"]), str(row["case"]))


def _crashed(begun: Begun, how: str) -> dict[str, Any]:
    return {
        "kernel": begun.kernel,
        "case": begun.case,
        "config": "",
        "ok": False,
        "time_ns": None,
        "max_error": None,
        "message": f"crashed: run with --check ({how})",
    }


def run_apart(arguments: Sequence[str], only: Sequence[int] | None, but: Sequence[int]) -> Attempt:
    """Run ``silo`` with ``arguments`` in a process that reports on its cases; see :func:`rows_of`.

    It prints to this process's standard output and error, and ends with this process.
    """
    reading, writing = os.pipe()
    chosen = json.dumps({"only": None if only is None else list(only), "but": list(but), "rows": writing})
    try:
        # -P: a user's own triton.py in the current folder must not be imported.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "silo.cli.case_worker", chosen, *arguments],
            env=program_environment(**with_own_package()),
            pass_fds=[writing],
        )
    finally:
        os.close(writing)
    attempt = Attempt()
    try:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                _take(attempt, line)
        attempt.code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return attempt


def _take(attempt: Attempt, line: str) -> None:
    """Record one line of a worker. A process whose memory is damaged may write anything: an unknown line is skipped."""
    try:
        message: Any = json.loads(line)
        match message:
            case {"begun": int(number), "kernel": str(kernel), "case": str(case)}:
                attempt.in_flight = Begun(number, kernel, case)
            case {"over": int(number), "row": {"kernel": str(), "case": str(), "ok": bool()} as row}:
                attempt.rows[number] = row
                attempt.in_flight = None
            case {"done": True}:
                attempt.done = True
            case _:
                pass
    except ValueError:
        pass
