"""``silo fleet``: the decisions of many machines, from the stores that they share."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from silo.cli.console import print_json, print_table, say
from silo.cli.options import Json, Quiet
from silo.cli.parser import Argument, LazyCommand, Option, group_from
from silo.text_tables import Table, format_time

__all__ = ["app"]


def group() -> None:
    """Show the decisions in shared stores."""


def report(
    stores: Annotated[
        list[str] | None,
        Argument(metavar="[URL...]", help="Remote stores, or folders of stores. Default: this user's store."),
    ] = None,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="The page.")] = Path("fleet.html"),
    since: Annotated[
        str | None,
        Option("--since", metavar="DATE", help="List the winners that changed after this date (UTC)."),
    ] = None,
    kernel: Annotated[str | None, Option("--kernel", "-k", metavar="NAME", help="Only this kernel.")] = None,
    device: Annotated[
        str | None, Option("--device", metavar="TEXT", help="Only device models with this in their name.")
    ] = None,
    *,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write one page over shared stores: kernels by device model, who measured what and when, gaps, failures, changes.

    Nothing is measured, and nothing in the stores is changed. The rows are also what `silo.query` returns.
    """
    from silo.commands.fleet_pages import write_fleet_report  # noqa: PLC0415  # heavy: only when the command runs

    rows = write_fleet_report(stores or [], output, kernel=kernel, device=device, since=since)
    if json:
        print_json([asdict(row) for row in rows])
        return
    if not quiet:
        cells = [
            [
                row.kernel,
                row.sizes,
                row.device,
                row.winner or "none",
                "" if row.time_ns is None else format_time(row.time_ns),
                f"{row.configs - row.failed} of {row.configs}",
                row.decided[:16].replace("T", " "),
                row.host,
            ]
            for row in rows
        ]
        columns = ["kernel", "sizes", "device", "winner", "time", "usable configs", "decided (UTC)", "by host"]
        print_table(Table("decisions", columns, cells, right=["time", "usable configs"]))
    say(str(output))


app = group_from(
    group,
    "fleet",
    lazy={"report": LazyCommand("silo.cli.fleet:report", "Write one page over shared stores.", "Commands")},
)
