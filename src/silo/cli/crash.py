"""``silo crash``: name the kernel, the line and the array of a crash."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from silo.cli.console import ExitCode, print_json, say, say_lines
from silo.cli.options import Json, complete_devices
from silo.cli.parser import Argument, Option

if TYPE_CHECKING:
    from silo.commands.crash_device import AloneOnDevice
    from silo.commands.sanitizer_log import JoinedFinding

__all__ = ["command"]


def command(
    path: Annotated[Path, Argument(metavar="CRASH.silo", help="A report that SILO_FLIGHT=1 left.")],
    most: Annotated[
        int | None, Option("--most", metavar="N", help="Check at most N suspects, the likeliest first.")
    ] = None,
    seconds: Annotated[
        float, Option("--seconds", metavar="S", help="The longest to check one launch. Default: 60.")
    ] = 60.0,
    device: Annotated[
        str | None,
        Option(
            "--device",
            metavar="DEVICE",
            help="Launch each suspect alone on this GPU, too, in a process of its own: cuda:0.",
            complete=complete_devices,
        ),
    ] = None,
    sanitizer: Annotated[
        Path | None,
        Option("--sanitizer", metavar="LOG", help="Join the findings in this output of compute-sanitizer."),
    ] = None,
    *,
    trust: Annotated[
        bool, Option("--trust", help="Compile the texts of kernels that this user's store has not seen.")
    ] = False,
    json: Json = False,
) -> None:
    """Launch the suspects of a crash again on the CPU, every access checked; exit code 1 if a fault is named.

    Arrays have the bytes that the report kept, and random ones otherwise. A launch whose addresses depend on values
    that were not kept is undecided, never named.
    """
    if seconds <= 0:
        raise click.BadParameter("--seconds is a number of seconds above 0")
    if most is not None and most <= 0:
        raise click.BadParameter("--most is a number of launches above 0")
    from silo.commands.examine_crash import examine_crash  # noqa: PLC0415  # heavy: only if it runs

    examination = examine_crash(path, trust=trust, most=most, seconds=seconds)
    alone: list[AloneOnDevice] = []
    if device is not None:
        from silo.commands.crash_device import launch_suspects  # noqa: PLC0415  # it starts an agent
        from silo.commands.crash_suspects import suspects_of  # noqa: PLC0415

        suspects = suspects_of(examination.report)[:most]
        alone += launch_suspects(examination.report, suspects, device, trust=trust, seconds=seconds)
    joined: list[JoinedFinding] = []
    if sanitizer is not None:
        from silo.commands.sanitizer_log import join_findings, read_sanitizer_log  # noqa: PLC0415

        joined += join_findings(read_sanitizer_log(sanitizer), examination.verdicts)
    if json:
        rows = {
            "cause": asdict(examination.report.cause),
            "verdicts": [asdict(verdict) for verdict in examination.verdicts],
        }
        more = {} if device is None else {"device": [asdict(result) for result in alone]}
        print_json(
            {**rows, **more, **({} if sanitizer is None else {"sanitizer": [asdict(result) for result in joined]})}
        )
    else:
        for result in (*alone, *joined):
            say_lines(str(result))
        for line in examination.lines():
            say_lines(line)
        if not examination.named:
            say(examination.advice())
    if examination.named or any(result.wrong for result in alone):
        raise click.exceptions.Exit(ExitCode.FAILED)
