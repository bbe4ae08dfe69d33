"""``silo run``: run the cases of a Python file or a bundle on a device and check them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from silo.cli.console import ExitCode, console, print_json, table
from silo.cli.options import PLACES, Device, Json, Kernels, Quiet, TuneMode, one_of
from silo.tune.progress import format_time

__all__ = ["command"]

# Written out: what makes them is not imported for --help. A test compares them.
_LIBRARIES = ("numpy", "torch", "buffer", "cupy", "jax")


def command(
    path: Annotated[Path, typer.Argument(metavar="FILE|MODULE|K.silo", help=PLACES)],
    device: Device = None,
    kernel: Kernels = None,
    arrays: Annotated[
        str | None,
        typer.Option(
            "--arrays",
            metavar="LIBRARY",
            callback=one_of(_LIBRARIES),
            help="numpy, torch, buffer, cupy or jax. Default: numpy on the CPU.",
        ),
    ] = None,
    tune: TuneMode = "cached",
    *,
    trust: Annotated[
        bool, typer.Option("--trust", help="Load the bundle's host code although nobody vouched for it.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run in checking mode: out of bounds, races, masked-off values and more.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run every case of FILE, MODULE or K.silo and compare with the expected values; exit code 1 if one is wrong."""
    from silo.api.commands.run import run_cases  # noqa: PLC0415  # heavy: only when the command runs

    outcomes = run_cases(
        path, device=device, kernels=kernel or None, arrays=arrays, trust=trust, tune=tune, check=check
    )
    if json:
        print_json([asdict(outcome) for outcome in outcomes])
    elif not quiet:
        rows = [
            [
                outcome.kernel,
                outcome.case,
                outcome.config,
                format_time(outcome.time_ns) if outcome.time_ns is not None else "",
                f"{outcome.max_error:.3g}" if outcome.max_error is not None else "",
                "ok" if outcome.ok else outcome.message,
            ]
            for outcome in outcomes
        ]
        console().print(
            table(
                f"{path} on {device}" if device else str(path),
                ["kernel", "case", "config", "time", "max error", "result"],
                rows,
                right=["time", "max error"],
                lines=["result"],
            )
        )
    if not all(outcome.ok for outcome in outcomes):
        raise typer.Exit(ExitCode.FAILED)
