"""``silo tune``: measure configs, refine a bundle in place, or run a schedule of tasks. A later run resumes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from silo.cli.agent_fleets import open_fleet, wait_seconds
from silo.cli.console import print_json, print_table, say, say_lines
from silo.cli.options import PLACES, Budget, Deterministic, Device, Json, Kernels, Quiet
from silo.cli.parser import Argument, Option
from silo.cli.progress_bars import TuneProgress, event_lines
from silo.cli.trust import SigningKey, read_key
from silo.errors import TuneError
from silo.settings import override
from silo.text_tables import Table, format_duration, format_time
from silo.tuner.objective import Objective
from silo.tuner.search.searchers import SEARCHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from silo.commands.tune_cases import TaskRow
    from silo.tuning.agents.fleet import Fleet
    from silo.tuning.schedules import ScheduledDevice

__all__ = ["command", "run_schedule_command"]

_NAMES = tuple(SEARCHERS)
_SEARCHERS = (
    f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}. auto measures small spaces whole, models the times of larger ones, and "
    "goes through a combo's sub-kernels one group after the other."
)
_OBJECTIVE = (
    "What decides: time (nanoseconds, the default), energy (nanojoules, if the device counts it), gflops, memory, "
    "registers, shared_bytes, scratch_bytes, spills, threads, or a metric of the cases."
)
_EVALUATIONS = "At most this many configs for each case. Default: 256 for auto without --budget, else no limit."


def _some(value: int | None) -> int | None:
    if value is not None and value < 1:
        raise click.BadParameter(f"{value} measure nothing; give 1 or more, or leave it out for no limit")
    return value


def command(
    path: Annotated[
        Path | None, Argument(metavar="[FILE|MODULE|K.silo]", help=f"{PLACES} A bundle is refined in place.")
    ] = None,
    device: Device = None,
    kernel: Kernels = None,
    searcher: Annotated[str, Option("--searcher", metavar="NAME", choices=(_NAMES), help=_SEARCHERS)] = "auto",
    evaluations: Annotated[
        int | None,
        Option("--evaluations", metavar="N", check=_some, help=_EVALUATIONS),
    ] = None,
    budget: Budget = None,
    lock: Annotated[
        Path | None,
        Option(
            "--lock",
            metavar="FILE",
            help="Write the decisions there (silo.lock.json); old ones stay unless beaten beyond the noise.",
        ),
    ] = None,
    key: SigningKey = None,
    agent: Annotated[
        list[str] | None,
        Option(
            "--agent",
            metavar="COMMAND",
            help="Measure where this command starts an agent ('ssh gpu7 silo agent'); repeatable, one for each device.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        Option(
            "--ray",
            metavar="ADDRESS",
            help="Measure in actors of a Ray cluster, a GPU each: HOST:PORT, auto, ray://HOST:PORT, or local.",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        Option("--gpus", metavar="N", check=_some, help="The number of actors on Ray. Default: one for each GPU."),
    ] = None,
    agent_wait: Annotated[
        float,
        Option("--agent-wait", metavar="SECONDS", check=wait_seconds, help="How long agents may take to begin."),
    ] = 120.0,
    schedule: Annotated[
        Path | None,
        Option(
            "--schedule",
            metavar="FILE.toml",
            help="Tune the kernels, sizes and devices of a schedule, the most promising first; the next run goes on.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        Option("--objective", metavar="METRIC", help=_OBJECTIVE),
    ] = None,
    constraint: Annotated[
        list[str] | None,
        Option(
            "--constraint",
            metavar="LIMIT",
            help="Only configs that meet this can win: 'registers<=40', 'energy<=1e6'; repeatable.",
        ),
    ] = None,
    *,
    deterministic: Deterministic = False,
    explain: Annotated[
        bool,
        Option("--explain", help="Measure nothing: print known results, and field by field why others do not count."),
    ] = False,
    suggest: Annotated[
        bool,
        Option("--suggest", help="Measure nothing: name the sizes worth tuning next, with their predicted loss."),
    ] = False,
    remeasure: Annotated[
        bool,
        Option("--remeasure", help="Measure everything again: all trials known now are superseded, on every machine."),
    ] = False,
    trust: Annotated[bool, Option("--trust", help="Load the bundle's host code even if it is not trusted.")] = False,
    events: Annotated[
        str | None,
        Option(
            "--events",
            metavar="PATH",
            help="Append each step to a file as a line of JSON, as it happens; -: print them.",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure the configs of every case of FILE, MODULE or K.silo on a device and keep each trial.

    Configs with a kept trial are not measured again without ``--remeasure``. Ctrl-C loses only the trial in flight; the
    next run goes on.
    A bundle is refined in place, in one piece; with ``--key`` it is signed again, else its old signature is removed.
    ``--objective`` and ``--constraint`` choose the winner by another metric; SILO_OBJECTIVE does so in every process.
    ``--explain`` prints why kept results do not count, and measures nothing. Neither does ``--suggest``, which learns
    from the kept trials which sizes lose most.
    """
    changes: dict[str, Any] = {"deterministic": True} if deterministic else {}
    if objective is not None or constraint:
        changes["objective"] = str(Objective.of(objective or "time", constraint or ()))
    if events == "-" and json:
        raise click.BadParameter("--events - and --json both print on standard output; write the events to a file")
    if suggest and (explain or remeasure or schedule is not None or agent or ray is not None or lock is not None):
        raise click.BadParameter("--suggest only reads trials: give it FILE, --device and --kernel alone")
    if schedule is not None:
        if path is not None or agent or ray is not None or device is not None:
            raise click.BadParameter(
                "a schedule names its kernels and devices: leave FILE, --device, --agent, --ray out"
            )

        with override(**changes):
            run_schedule_command(
                schedule,
                budget_s=budget,
                open_fleet=lambda one: open_fleet([*one.agents], one.ray, one.gpus, None, agent_wait),
                explain=explain,
                events=events,
                quiet=quiet,
                json=json,
            )
        return
    if path is None:
        raise click.BadParameter("name a FILE, a MODULE or a bundle, or a schedule with --schedule")
    _check_fleet(agent, ray, gpus, device, explain=explain)
    if explain and remeasure:
        raise click.BadParameter("--explain measures nothing, so it supersedes nothing: leave --remeasure out")
    if suggest:
        with override(**changes):
            _suggest(path, device, kernel, quiet=quiet, json=json)
        return
    if explain:
        with override(**changes):
            _explain(path, device, kernel, lock, quiet=quiet, json=json)
        return
    from silo.commands.results import TuneResults  # noqa: PLC0415
    from silo.commands.tune_cases import tune_path  # noqa: PLC0415

    # reads the key first, so that an error in it is found before anything is measured
    signing = None if key is None else read_key(key)
    quiet = quiet or events == "-"
    with (
        override(**changes),
        event_lines(events) as lines,
        open_fleet(agent or [], ray, gpus, device, agent_wait) as fleet,
        TuneProgress(enabled=not (quiet or json), lines=lines) as progress,
    ):
        rows = tune_path(
            path,
            device=None if ray is not None else device,  # on Ray, each actor finds its own device
            kernels=kernel or None,
            searcher=searcher,
            evaluations=evaluations,
            budget_s=budget,
            trust=trust,
            lock=lock,
            key=signing,
            fleet=fleet,
            remeasure=remeasure,
            progress=progress.update,
        )
    if json:
        print_json([asdict(row) for row in rows])
    elif not quiet:
        results = TuneResults(f"{path} on {device}" if device else str(path), rows, str(lock or ""))
        print_table(results.table())
        for line in results.lines():
            say_lines(line)
    if failures := [row.failure for row in rows if row.failure]:
        raise TuneError("\n".join(failures))


def _check_fleet(
    agent: list[str] | None, ray: str | None, gpus: int | None, device: str | None, *, explain: bool
) -> None:
    if agent and device is not None:
        raise click.BadParameter(f"agents say themselves which device they have: silo agent --device {device}")
    if agent and ray is not None:
        raise click.BadParameter("agents are started by commands or by Ray, not by both: --agent, or --ray")
    if gpus is not None and ray is None:
        raise click.BadParameter("--gpus counts actors on Ray: name the cluster with --ray")
    if explain and (agent or ray is not None):
        raise click.BadParameter("--explain measures nothing, so it needs no agent")


def _explain(
    path: Path, device: str | None, kernels: list[str] | None, lock: Path | None, *, quiet: bool, json: bool
) -> None:
    from silo.tuning.explanation import explain_tuning  # noqa: PLC0415

    explanations = explain_tuning(path, device=device, kernels=kernels or None, lock=lock)
    if json:
        print_json([explained.to_json() | {"case": case} for case, explained in explanations])
    elif not quiet:
        for case, explained in explanations:
            say_lines(f"{case}: {explained.text}")


def _suggest(path: Path, device: str | None, kernels: list[str] | None, *, quiet: bool, json: bool) -> None:
    from silo.tuning.explanation import suggest_sizes  # noqa: PLC0415  # heavy: only when asked for

    suggestions = suggest_sizes(path, device=device, kernels=kernels or None)
    if json:
        print_json([suggestion.to_json() for suggestion in suggestions])
    elif not quiet:
        for suggestion in suggestions:
            say_lines(suggestion.text)


def run_schedule_command(
    path: Path,
    *,
    budget_s: float | None,
    open_fleet: Callable[[ScheduledDevice], AbstractContextManager[Fleet | None]],
    explain: bool,
    events: str | None,
    quiet: bool,
    json: bool,
) -> None:
    """Runs a schedule and prints its tasks. With ``explain`` it only prints them.

    ``open_fleet`` starts the agents of a device.
    """
    from silo.commands.tune_cases import run_schedule, schedule_rows  # noqa: PLC0415  # heavy

    if explain:
        rows = schedule_rows(path)
        if json:
            print_json([asdict(row) for row in rows])
        else:
            _print(path, rows, "")
        return
    quiet = quiet or events == "-"

    def opened(device: ScheduledDevice, stack: ExitStack) -> Fleet | None:
        return stack.enter_context(open_fleet(device))

    with event_lines(events) as lines, TuneProgress(enabled=not (quiet or json), lines=lines) as progress:
        result = run_schedule(path, opened, budget_s=budget_s, progress=progress.update)
    if json:
        print_json(asdict(result))
    elif not quiet:
        why = "its budget is spent" if result.stopped == "budget" else "no task promises a further gain"
        _print(path, result.rows, f"ended after {format_duration(result.seconds)}: {why}")
    if result.failures:
        raise TuneError("\n".join(result.failures))


def _print(path: Path, rows: Sequence[TaskRow], end: str) -> None:
    cells = [
        [
            row.kernel,
            row.case,
            row.device,
            row.state,
            f"{row.turns} ({row.turns_now} now)" if row.turns_now else str(row.turns),
            format_duration(row.seconds),
            "" if row.best_ns is None else format_time(row.best_ns),
            f"{row.gain:.1%}" if row.turns > 1 else "",
        ]
        for row in rows
    ]
    columns = ["kernel", "case", "device", "state", "turns", "spent", "best", "gained"]
    print_table(Table(str(path), columns, cells, right=columns[4:]))
    for row in rows:
        if row.message:
            say_lines(f"{row.kernel} {row.case} on {row.device}: {row.message}")
    over = sum(row.state in ("settled", "complete") for row in rows)
    say(f"{over} of {len(rows)} tasks are done" + (f"; {end}" if end else ""))
