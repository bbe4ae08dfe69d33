"""``silo agent`` and ``silo fleet``: measure on a device for another machine; the decisions of many machines."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import click

from silo.cli.console import print_json, print_table, say
from silo.cli.options import Device, Json, Quiet
from silo.cli.parser import Argument, LazyCommand, Option, group_from
from silo.text_tables import Table, format_time

__all__ = ["app", "command"]


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
    from silo.commands.report_pages import write_fleet_report  # noqa: PLC0415  # heavy: only when the command runs

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


def command(device: Device = None) -> None:
    """Measure on a device of this machine for a ``silo tune --agent 'ssh HOST silo agent'`` on another one.

    Reads cases and code from standard input, and answers on standard output, until the input ends. Native code in the
    input is loaded without asking: starting an agent is consent to its input.
    """
    if sys.stdin.isatty():
        raise click.BadParameter(
            "an agent is started by silo tune --agent 'ssh HOST silo agent', which speaks to it; a terminal cannot"
        )
    from silo.machine.device_plugins import default_device, device_named  # noqa: PLC0415
    from silo.tuning.agents.agent_serving import serve_agent  # noqa: PLC0415
    from silo.tuning.agents.device_agent import Agent  # noqa: PLC0415  # heavy: only when the command runs

    raise click.exceptions.Exit(
        serve_agent(lambda: Agent(default_device() if device is None else device_named(device)))
    )
