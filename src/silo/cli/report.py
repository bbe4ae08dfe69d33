"""``silo report``: write a page of HTML about the trials of each kernel."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from silo.cli.console import print_json, print_table
from silo.cli.options import PLACES, Json, Kernels, OfDevice, Quiet
from silo.cli.parser import Argument, Option
from silo.text_tables import Table, format_time

__all__ = ["command"]


def command(
    path: Annotated[Path, Argument(metavar="FILE|MODULE|K.silo", help=PLACES)],
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="The folder of the pages.")] = Path("report"),
    device: OfDevice = None,
    kernel: Kernels = None,
    *,
    ceilings: Annotated[
        bool,
        Option(
            "--ceilings",
            help="Measure the peak rates of the device (default: the CPU) if unknown: takes some seconds.",
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write one self-contained page for each kernel of FILE, MODULE or K.silo from the kept trials.

    For FILE these are the trials in the store for its kernels in their present form, for K.silo the trials in the
    bundle. Nothing is measured, except with --ceilings.
    """
    from silo.commands.report_pages import write_reports  # noqa: PLC0415  # heavy: only when the command runs

    rows = write_reports(path, output, device=device, kernels=kernel or None, ceilings=ceilings)
    if json:
        print_json([asdict(row) for row in rows])
    elif not quiet:
        cells = [
            [
                row.page,
                row.case,
                str(row.configs),
                row.winner or "none",
                format_time(row.time_ns) if row.time_ns is not None else "",
                f"{row.ratio:.2f}" if row.ratio is not None else "",
                f"{row.reached:.0%}" if row.reached is not None else "",
            ]
            for row in rows
        ]
        columns = ["page", "case", "configs", "winner", "time", "default / winner", "of light"]
        print_table(Table(f"trials of {path}", columns, cells, right=["configs", *columns[4:]]))
