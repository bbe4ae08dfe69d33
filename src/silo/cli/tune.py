"""``silo tune``: measure; resumable; refines a bundle in place."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from silo.cli.console import console, print_json, table
from silo.cli.options import Budget, Device, Json, Kernels, Quiet
from silo.cli.progress import TuneProgress
from silo.tune.progress import format_time

__all__ = ["command"]


# Written out: the registry is not imported for --help. A test compares them.
_SEARCHERS = (
    "auto, exhaustive, random, descent, descent-all-directions, neighbourhood, genetic or surrogate. "
    "auto measures small spaces whole and models the times of larger ones."
)
_EVALUATIONS = "At most so many configs for each case. Default: 256 for auto without --budget, else no limit."


def command(
    path: Annotated[
        Path, typer.Argument(metavar="FILE|K.silo", help="A Python file with kernels, or a bundle to refine in place.")
    ],
    device: Device = "cpu",
    kernel: Kernels = None,
    searcher: Annotated[str, typer.Option("--searcher", metavar="NAME", help=_SEARCHERS)] = "auto",
    evaluations: Annotated[
        int | None,
        typer.Option("--evaluations", metavar="N", help=_EVALUATIONS),
    ] = None,
    budget: Budget = None,
    *,
    trust: Annotated[
        bool, typer.Option("--trust", help="Load the bundle's host code although nobody vouched for it.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure the configs of every case of FILE or K.silo on a device and keep each trial.

    What was measured before is not measured again. Ctrl-C loses only the trial in flight; the next run goes on.
    A bundle is refined in place, in one piece.
    """
    from silo.api.tuning import tune_path  # noqa: PLC0415  # heavy: only when the command runs

    with TuneProgress(enabled=not (quiet or json)) as progress:
        rows = tune_path(
            path,
            device=device,
            kernels=kernel or None,
            searcher=searcher,
            evaluations=evaluations,
            budget_s=budget,
            trust=trust,
            progress=progress.update,
        )
    if json:
        print_json([asdict(row) for row in rows])
    elif not quiet:
        cells = [
            [
                row.kernel,
                row.case,
                row.winner or "none",
                format_time(row.time_ns) if row.time_ns is not None else "",
                str(row.measured),
                str(row.reused),
                ", ".join(f"{count} {kind}" for kind, count in row.failures.items()),
                row.reason,
            ]
            for row in rows
        ]
        columns = ["kernel", "case", "winner", "time", "measured", "reused", "failures", "why"]
        console().print(table(f"{path} on {device}", columns, cells, right=["time", "measured", "reused"]))
