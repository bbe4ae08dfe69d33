"""``silo doctor``: the parts that work here, and the reasons why others do not."""

from __future__ import annotations

from dataclasses import asdict

import click

from silo.cli.console import ExitCode, print_json, print_table
from silo.cli.options import Json
from silo.text_tables import Table

__all__ = ["command"]


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
