"""``silo judge``: judge kernels by strangers with a task of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from silo.cli.console import ExitCode, print_json, say, say_lines
from silo.cli.options import Json, Quiet, targets_option
from silo.cli.parser import Argument, Option

__all__ = ["command"]


def command(
    task: Annotated[
        Path, Argument(metavar="TASK", help="A Python file with one function under @silo.task. It is run.")
    ],
    candidate: Annotated[
        list[Path], Argument(metavar="CANDIDATE...", help="Python files with one kernel each, run in sealed processes.")
    ],
    device: Annotated[
        str,
        Option(
            "--device",
            metavar="DEVICE",
            choices=("cpu", "none"),
            help="Where candidates that are right are timed against the baseline. Default: cpu.",
        ),
    ] = "cpu",
    target: Annotated[
        list[str] | None,
        targets_option("A GPU to compile for, whose resources are compared with the task's limits; repeatable."),
    ] = None,
    jobs: Annotated[
        int | None, Option("--jobs", metavar="N", help="Candidates judged at a time. Default: the CPUs.")
    ] = None,
    seconds: Annotated[
        float, Option("--seconds", metavar="S", help="The longest to time one candidate. Default: 10.")
    ] = 10.0,
    *,
    allow_weak: Annotated[
        bool,
        Option(
            "--allow-weak",
            help="Judge also if the system cannot keep candidates from files, processes or the network.",
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Judge kernels by strangers: compile, bounds, checked, right, device; exit code 1 if one is refused.

    The Python of a candidate runs in a sealed process, which sees shapes and no values. Its code is launched by another
    process over arrays that the task draws, and every array is compared.
    """
    if jobs is not None and jobs < 1:
        raise click.BadParameter("--jobs is 1 or more")
    if seconds <= 0:
        raise click.BadParameter("--seconds is a number of seconds above 0")
    from silo.commands.judge_candidates import judge_candidates  # noqa: PLC0415  # heavy: only if it runs
    from silo.judging.confinement import Confined  # noqa: PLC0415
    from silo.judging.task import read_task  # noqa: PLC0415

    rows: list[dict[str, object]] = []
    refused = weak = False
    found = judge_candidates(
        read_task(task),
        candidate,
        device=None if device == "none" else device,
        targets=target or (),
        jobs=jobs,
        seconds=seconds,
        allow_weak=allow_weak,
    )
    for verdict in found:
        rows.append(verdict.to_json())
        refused |= not verdict.accepted
        if not json and not quiet:
            say_lines(str(verdict))
        missing = Confined.from_json(verdict.confinement).missing if verdict.confinement else ()
        if missing and not weak and not json:
            weak = True
            say("not in force here: " + "; ".join(f"{name} ({why})" for name, why in missing), stderr=True)
    if json:
        print_json(rows)
    if refused:
        raise click.exceptions.Exit(ExitCode.FAILED)
