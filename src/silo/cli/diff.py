"""``silo diff``: compare two bundles by code, results and times, and refuse the new one if it is worse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from silo.cli.console import ExitCode, print_json, print_table, say
from silo.cli.options import Arrays, Device, Download, Json, Kernels, Quiet, Toolchains
from silo.cli.parser import Argument, Option

__all__ = ["command"]

_SLOWER = 2.0  # percent by which a case may be slower by default; a difference of up to half of this counts as none


def _percent(value: str | None) -> str | None:
    if value is not None:
        try:
            number = float(value.removesuffix("%"))
        except ValueError:
            number = 0.0
        if not 0.1 <= number <= 100:
            raise click.BadParameter(f"{value!r} is no percentage from 0.1% to 100%, such as 2%")
    return value


def command(
    old: Annotated[Path, Argument(metavar="OLD", help="A bundle, or a Python file that is compiled first.")],
    new: Annotated[Path, Argument(metavar="NEW", help="The bundle or file that is compared with it.")],
    device: Device = None,
    kernel: Kernels = None,
    arrays: Arrays = None,
    fail_slower: Annotated[
        str | None,
        Option(
            "--fail-slower",
            metavar="PERCENT",
            check=_percent,
            help="Exit with 1 if a case is slower: beyond doubt, by more than half of this (2% finds 2%).",
        ),
    ] = None,
    fail_numbers: Annotated[
        str | None,
        Option(
            "--fail-numbers",
            metavar="HOW",
            choices=("tolerance", "bits"),
            help="Exit with 1 if a result is outside its case's tolerance, or (bits) differs at all.",
        ),
    ] = None,
    seconds: Annotated[
        float, Option("--seconds", metavar="S", help="The longest to time one case for. Default: 60.")
    ] = 60.0,
    toolchain: Toolchains = None,
    markdown: Annotated[Path | None, Option("--markdown", metavar="FILE", help="Write it for a pull request.")] = None,
    html: Annotated[Path | None, Option("--html", metavar="FILE", help="Write it as one HTML page.")] = None,
    *,
    trust: Annotated[bool, Option("--trust", help="Load the bundles' host code even if it is not trusted.")] = False,
    no_run: Annotated[bool, Option("--no-run", help="Compare the files alone; run nothing.")] = False,
    time_same: Annotated[bool, Option("--time-same", help="Time cases of equal code too.")] = False,
    download: Download = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compare two bundles: kernels, code and its resources, and for each case the results and the times.

    A case runs once with each bundle's code on the same arrays; then both launch in turns, until the ratio of their
    times is decided. A kernel that crashes ends its own process, and its case fails.

    With two --toolchain, the first compiles OLD and the second NEW, which may be the same file.
    """
    if seconds <= 0:
        raise click.BadParameter("--seconds is a number of seconds above 0")
    from silo.commands.compare_bundles import compare_bundles, failures  # noqa: PLC0415  # heavy: only if it runs

    percent = None if fail_slower is None else float(fail_slower.removesuffix("%"))
    comparison = compare_bundles(
        old,
        new,
        device=device,
        kernels=kernel or None,
        arrays=arrays,
        trust=trust,
        run=not no_run,
        time_same=time_same,
        margin=(percent or _SLOWER) / 200,
        limit_s=seconds,
        toolchains=toolchain or (),
        download=download,
        progress=lambda label: None if quiet or json else say(f"comparing {label}", stderr=True),
    )
    refused = failures(comparison, percent, fail_numbers)
    for path, text in ((markdown, comparison.markdown), (html, comparison.html)):
        if path is not None:
            path.write_text(text(), encoding="utf-8")
    if json:
        print_json({**comparison.to_json(), "refused": refused})
    elif not quiet:
        for line in comparison.lines():
            say(line)
        for table in comparison.tables():
            print_table(table)
    for reason in refused:
        say(f"refused: {reason}", stderr=True)
    if refused:
        raise click.exceptions.Exit(ExitCode.FAILED)
