"""``silo run``: run the cases of a Python file or a bundle on a device and check them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from silo.cli.console import ExitCode, print_json, print_table, say_lines
from silo.cli.options import LIBRARIES, PLACES, Arrays, Device, Json, Kernels, Quiet, TuneMode
from silo.cli.parser import Argument, Option

if TYPE_CHECKING:
    from silo.commands.run_cases import CaseWatch

__all__ = ["check_command", "command", "watch"]

# Set in a process that runs cases for another one: chooses the cases, and reports each.
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
        from silo.cli.case_runs import rows_of, run_apart  # noqa: PLC0415  # completion does without

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
    """Returns the command line of the process that runs the cases."""
    words = ["--debug"] if "--debug" in sys.argv[1:] else []
    words += ["run", *(["--trust"] if trust else [])]
    words += [] if tune is None else ["--tune", tune]
    words += [] if device is None else ["--device", device]
    words += [] if arrays is None else ["--arrays", arrays]
    words += [word for name in kernels or () for word in ("--kernel", name)]
    return [*words, "--", str(path)]
