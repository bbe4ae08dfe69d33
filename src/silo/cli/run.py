"""``silo run``: runs the cases of a Python file or a bundle on a device and checks them, in separate processes.

One process runs all cases and writes a line of JSON to a pipe when a case begins and when it is over. If the process
crashes, the case that was running is run again in a process of its own. That case may be innocent: code that wrote to
wrong memory may crash later, during another case. If the case does not crash alone, the cases before it are run alone,
the latest first, until one crashes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from silo.cli.console import ExitCode, print_json, print_table, say_error, say_lines
from silo.cli.options import LIBRARIES, PLACES, Arrays, Device, Json, Kernels, Quiet, TuneMode
from silo.cli.parser import Argument, Option
from silo.compile.worker_process import with_own_package
from silo.settings import program_environment

if TYPE_CHECKING:
    from silo.commands.run_cases import CaseWatch

__all__ = ["Attempt", "Begun", "check_command", "command", "rows_of", "run_apart", "watch"]

# Set in a process that runs cases for another process: selects the cases, and reports each.
watch: CaseWatch | None = None


def command(
    path: Annotated[Path, Argument(metavar="FILE|MODULE|K.silo", help=PLACES)],
    device: Device = None,
    kernel: Kernels = None,
    arrays: Annotated[
        str | None,
        Option(
            "--arrays",
            metavar="LIBRARY",
            choices=LIBRARIES,
            help="numpy, torch, buffer, cupy or jax. Default: numpy on the CPU.",
        ),
    ] = None,
    tune: TuneMode = "cached",
    *,
    trust: Annotated[bool, Option("--trust", help="Load the bundle's host code even if it is not trusted.")] = False,
    check: Annotated[
        bool, Option("--check", help="Run in checking mode: out of bounds, races, masked-off values and more.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run every case of FILE, MODULE or K.silo and compare with the expected values; exit code 1 if one is wrong.

    A kernel that crashes its process, as a kernel without a mask may, fails only its own row: ``crashed: run with
    --check``.
    """
    if watch is None and not check:
        words = _words(path, device, kernel, arrays, tune, trust=trust)
        rows = rows_of(partial(run_apart, words))
    else:
        from silo.commands.run_cases import run_cases  # noqa: PLC0415  # heavy: only when the command runs

        outcomes = run_cases(
            path, device=device, kernels=kernel or None, arrays=arrays, trust=trust, tune=tune, check=check, watch=watch
        )
        if watch is not None:
            return
        rows = [asdict(outcome) for outcome in outcomes]
    if json:
        print_json(rows)
    elif not quiet:
        from silo.commands.results import CaseOutcome, CaseResults  # noqa: PLC0415  # heavy: only if rows are shown

        title = f"{path} on {device}" if device else str(path)
        results = CaseResults(title, [CaseOutcome(**row) for row in rows])
        print_table(results.table())
        for line in results.lines():
            say_lines(line)
    if not all(row["ok"] for row in rows):
        raise click.exceptions.Exit(ExitCode.FAILED)


def check_command(
    path: Annotated[Path, Argument(metavar="FILE|MODULE|K.silo", help=PLACES)],
    device: Device = None,
    kernel: Kernels = None,
    arrays: Arrays = None,
    *,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run every case with every access checked, as silo run --check does: bounds, races, masked-off values and more."""
    command(path, device, kernel, arrays, check=True, quiet=quiet, json=json)


def _words(
    path: Path, device: str | None, kernels: list[str] | None, arrays: str | None, tune: str | None, *, trust: bool
) -> list[str]:
    """Returns the arguments of ``silo`` in the process that runs the cases."""
    words = ["--debug"] if "--debug" in sys.argv[1:] else []
    words += ["run", *(["--trust"] if trust else [])]
    words += [] if tune is None else ["--tune", tune]
    words += [] if device is None else ["--device", device]
    words += [] if arrays is None else ["--arrays", arrays]
    words += [word for name in kernels or () for word in ("--kernel", name)]
    return [*words, "--", str(path)]


# Exit codes of a process that has printed its error itself.
_SAID = frozenset((2, 3, 130))


@dataclass(frozen=True, slots=True)
class Begun:
    """A case that began: its number among all cases, and the kernel and case names of its row."""

    number: int
    kernel: str
    case: str


@dataclass(slots=True)
class Attempt:
    """The result of one process: its rows by case number, the case that was running at its end, and how it ended."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    in_flight: Begun | None = None
    done: bool = False
    code: int = 0

    @property
    def crashed(self) -> bool:
        """Whether a crash ended the process."""
        return self.code < 0 or (not self.done and self.code not in _SAID)

    @property
    def how(self) -> str:
        """How the process ended, for a case's row: the signal or the exit status."""
        if self.code >= 0:
            return f"exit status {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


def rows_of(attempt: Callable[[Sequence[int] | None, Sequence[int]], Attempt]) -> list[dict[str, Any]]:
    """Runs cases until each has a row, and returns the rows in order.

    ``attempt(only, but)`` runs cases in a new process: those numbered ``only`` (None: all), except those numbered
    ``but``.

    Raises:
        click.exceptions.Exit: a process ended with an error that it has printed, or before any case began.
    """
    rows: dict[int, dict[str, Any]] = {}
    while True:
        result = attempt(None, tuple(rows))
        rows |= result.rows
        if not result.crashed:
            if not result.done:
                raise click.exceptions.Exit(result.code)
            break
        if result.in_flight is None and not result.rows:
            say_error(f"the process that runs the cases ended before a case began: {result.how}")
            raise click.exceptions.Exit(3)
        rows |= _blamed(result, attempt)
        if result.done:
            break
    return [rows[number] for number in sorted(rows)]


def _blamed(
    crashed: Attempt, attempt: Callable[[Sequence[int] | None, Sequence[int]], Attempt]
) -> dict[int, dict[str, Any]]:
    """Runs cases alone after a process crashed, to find which one crashes.

    Returns the row of the case that crashes, and the row of the case that was running when the process crashed.
    """
    rows: dict[int, dict[str, Any]] = {}
    last = crashed.in_flight
    if last is not None and not crashed.rows:
        return {last.number: _crashed(last, crashed.how)}
    suspects = [*([] if last is None else [last.number]), *sorted(crashed.rows, reverse=True)]
    for number in suspects:
        alone = attempt((number,), ())
        if alone.crashed:
            begun = alone.in_flight or _begun(number, alone.rows.get(number) or crashed.rows[number])
            return rows | {number: _crashed(begun, alone.how)}
        if number in alone.rows and last is not None and number == last.number:
            # the running case does not crash alone, so another case caused the crash, and this row has the right result
            rows |= alone.rows
    if last is not None:
        rows[last.number] = _crashed(last, f"{crashed.how}, after other cases and not alone")
    return rows


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
    """Runs ``silo`` with ``arguments`` in a new process that reports on its cases; see :func:`rows_of`.

    The process has this process's standard output and error, and ends with this process.
    """
    reading, writing = os.pipe()
    chosen = json.dumps({"only": None if only is None else list(only), "but": list(but), "rows": writing})
    try:
        # -P keeps the current folder off the module path: a user's own triton.py must not be imported.
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
    """Records a worker's line. Unknown lines are skipped, because a process with damaged memory may write anything."""
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
