"""``silo judge``: judge kernels that strangers wrote, by a task that the user wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from silo.cli.agent_fleets import open_fleet, wait_seconds
from silo.cli.console import ExitCode, print_json, say, say_lines
from silo.cli.options import Json, Quiet, complete_devices, targets_option
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
        str | None,
        Option(
            "--device",
            metavar="DEVICE",
            help="Where candidates that are right are timed against the baseline: cpu, none, or a GPU here (cuda:1). "
            "Default: cpu. Inside an actor of --ray: its device.",
            complete=complete_devices,
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        targets_option("A GPU to compile for, whose resources are compared with the task's limits; repeatable."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        Option(
            "--agent",
            metavar="COMMAND",
            help="Launch and time on the GPU where this command starts an agent ('ssh gpu7 silo agent'); repeatable.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        Option(
            "--ray",
            metavar="ADDRESS",
            help="Launch and time in actors of a Ray cluster, a GPU each: HOST:PORT, auto, ray://HOST:PORT, or local.",
        ),
    ] = None,
    gpus: Annotated[
        int | None, Option("--gpus", metavar="N", help="The number of actors on Ray. Default: one for each GPU.")
    ] = None,
    agent_wait: Annotated[
        float,
        Option("--agent-wait", metavar="SECONDS", check=wait_seconds, help="How long agents may take to begin."),
    ] = 120.0,
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
    _check_agents(agent, ray, gpus, device)
    from silo.commands.judge_candidates import judge_candidates  # noqa: PLC0415  # heavy: only if it runs
    from silo.judging.confinement import Confined  # noqa: PLC0415
    from silo.judging.task import read_task  # noqa: PLC0415

    rows: list[dict[str, object]] = []
    refused = weak = False
    judged = read_task(task)
    with open_fleet(agent or [], ray, gpus, device, agent_wait) as fleet:
        verdicts = judge_candidates(
            judged,
            candidate,
            device=None if device == "none" else device or "cpu",
            targets=target or (),
            jobs=jobs,
            seconds=seconds,
            allow_weak=allow_weak,
            fleet=fleet,
        )
        for verdict in verdicts:
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


def _check_agents(agent: list[str] | None, ray: str | None, gpus: int | None, device: str | None) -> None:
    if agent and device is not None:
        raise click.BadParameter("agents have a device of their own: silo agent --device cuda:1")
    if agent and ray is not None:
        raise click.BadParameter("agents are started by commands or by Ray, not by both: --agent, or --ray")
    if gpus is not None and ray is None:
        raise click.BadParameter("--gpus counts actors on Ray: name the cluster with --ray")
    if gpus is not None and gpus < 1:
        raise click.BadParameter("--gpus is 1 or more")
