"""``silo doctor`` and ``silo selftest``: the parts that work here, and whether kernels run correctly."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import click

from silo.cli.console import ExitCode, print_json, print_table, say
from silo.cli.options import Json
from silo.cli.parser import Argument
from silo.text_tables import Table

__all__ = ["command", "selftest_command"]


def command(*, json: Json = False) -> None:
    """Check the native module, compilers, devices, libraries, the store and settings.

    Exit code 1 if a needed part is missing.
    """
    from silo.commands.examine_machine import examine  # noqa: PLC0415

    findings = examine()
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        marks = {"ok": "ok", "missing": "missing", "optional": "not here"}
        rows = [[finding.part, marks[finding.state], finding.detail, finding.advice] for finding in findings]
        columns = ["part", "state", "detail", "what to do"]
        print_table(Table("silo doctor", columns, rows, lines=columns[2:]))
    if any(finding.state == "missing" for finding in findings):
        raise click.exceptions.Exit(ExitCode.FAILED)


def selftest_command(
    kind: Annotated[str, Argument(metavar="KIND", help="Which kernels: metal.")],
    *,
    json: Json = False,
) -> None:
    """Run small kernels of a kind and compare their results with the expected ones: a report to paste into an issue.

    Metal kernels run on a Mac's GPU, through the installed torch and MLX; on other machines on the emulator. Exit code
    1 if a result is wrong.
    """
    from silo.sources.kinds import selftest_of  # noqa: PLC0415

    report = selftest_of(kind)()
    if json:
        results = [asdict(result) for result in report.results]
        print_json({"facts": dict(report.facts), "on_hardware": report.on_hardware, "results": results})
    else:
        where = "on hardware" if report.on_hardware else "not on hardware"
        say(f"{report.kind} kernels, {where}")
        for name, value in report.facts:
            say(f"- {name}: {value}")
        say("")
        say("| probe | asks for | through | largest error | |")
        say("| --- | --- | --- | --- | --- |")
        for result in report.results:
            say(
                f"| {result.probe} | {result.asks} | {result.through} | {result.largest_error:.2g} "
                f"| {result.wrong or 'ok'} |"
            )
    if not report.ok:
        raise click.exceptions.Exit(ExitCode.FAILED)
