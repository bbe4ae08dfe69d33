"""``silo tune --schedule``: tasks of a schedule, the most promising first, until its budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from silo.commands.tune_cases import leased
from silo.core.cases import label_of
from silo.core.host_arrays import require_numpy
from silo.core.protocols import Device
from silo.errors import SiloError, TuneError
from silo.kernels.collection import collect_kernels
from silo.kernels.kernel import Kernel
from silo.machine.device_plugins import devices_named
from silo.machine.process_session import session
from silo.tuner.outcome import Budget, TuneInterrupted
from silo.tuner.progress import Progress
from silo.tuning.agents.fleet import Fleet
from silo.tuning.case_tuning import CaseLimits, case_studies, device_of, tune_case
from silo.tuning.schedules import (
    History,
    Schedule,
    ScheduledDevice,
    ScheduleState,
    Task,
    Turn,
    read_schedule,
)

__all__ = ["OpenFleet", "ScheduleResult", "TaskRow", "run_schedule", "schedule_rows"]

_MOST_FAULTS = 3  # turns of one task in a run that the machine or its agents broke

OnProgress = Callable[[str, Progress], None]
OpenFleet = Callable[[ScheduledDevice, ExitStack], Fleet | None]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """The state of one task: its turns and seconds over all runs, and in this run.

    ``state`` is ``new``, ``open``, ``settled`` (no gains lately), ``complete``, ``failed`` or ``claimed`` (by another
    run). ``gain`` is the share by which the best time became shorter since the first turn.
    """

    kernel: str
    case: str
    device: str
    state: str
    turns: int
    turns_now: int
    seconds: float
    best_ns: int | None
    gain: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The tasks after a run, and why it ended: ``budget``, or ``done`` if no task is left that promises anything.

    ``failures`` are the tasks that failed in this run, with the reasons.
    """

    rows: tuple[TaskRow, ...]
    stopped: str
    seconds: float
    failures: tuple[str, ...] = ()


def schedule_rows(path: Path) -> list[TaskRow]:
    """The tasks of a schedule as they are now; measures nothing.

    Raises:
        TuneError: the schedule cannot be read, or no case of its files is in it.
    """
    schedule = read_schedule(path)
    tasks, _ = _tasks(schedule)
    return _rows(schedule, tasks, ScheduleState(schedule).histories(), {})


def run_schedule(
    path: Path,
    open_fleet: OpenFleet,
    *,
    budget_s: float | None = None,
    progress: OnProgress | None = None,
) -> ScheduleResult:
    """Tunes the tasks of a schedule, a turn at a time, until the budget is spent or nothing is left to gain.

    ``budget_s`` takes the place of the schedule's. ``open_fleet`` returns the agents of a device, which are kept until
    the end, or None for a device of this machine. A turn that ends early because its process is killed is repeated by
    the next run; its trials are kept. Several runs of one schedule share its tasks.

    Raises:
        TuneError: the schedule cannot be read, or no case is in it.
        TuneInterrupted: Ctrl-C.
    """
    schedule = read_schedule(path)
    schedule = schedule if budget_s is None else replace(schedule, budget_s=budget_s)
    require_numpy("tuning, which compares results,")
    session().reach_remote()
    tasks, kernels = _tasks(schedule)
    state, begun, now = ScheduleState(schedule), time.monotonic(), dict[str, int]()
    failed: dict[str, str] = {}
    faults: dict[str, int] = {}
    stopped = "done"
    with ExitStack() as stack, leased(progress or _silent) as report:
        fleets: dict[str, Fleet | None] = {}
        while True:
            left_s = None if schedule.budget_s is None else schedule.budget_s - (time.monotonic() - begun)
            if left_s is not None and left_s <= 0:
                stopped = "budget"
                break
            claimed = state.claim(tasks, schedule.patience, failed)
            if claimed is None:
                break
            task, claim = claimed
            seconds = schedule.turn_s if left_s is None else min(schedule.turn_s, left_s)
            watch = _named(report, task, state, tasks, schedule)
            turn_begun = time.monotonic()
            try:
                if task.device.name not in fleets:
                    fleets[task.device.name] = open_fleet(task.device, stack)
                turn_begun = time.monotonic()  # agents start once
                turn = _turn(task, kernels, fleets[task.device.name], seconds, watch)
            except TuneInterrupted:
                raise
            except SiloError as error:
                turn = Turn(0.0, 0, None, "failed", message=str(error))
            if turn.stopped == "failed":
                failed[task.key] = f"{task}: {turn.message}"
            elif turn.stopped == "faults":
                faults[task.key] = faults.get(task.key, 0) + 1
                if faults[task.key] == _MOST_FAULTS:
                    failed[task.key] = f"{task}: the machine or its agents failed {_MOST_FAULTS} times: {turn.message}"
            turn = replace(turn, seconds=time.monotonic() - turn_begun)
            now[task.key] = now.get(task.key, 0) + 1
            state.end(claim, task, turn)
        session().store.tidy()
    rows = _rows(schedule, tasks, state.histories(), now)
    return ScheduleResult(tuple(rows), stopped, time.monotonic() - begun, tuple(failed.values()))


def _silent(_name: str, _event: Progress) -> None:
    pass


def _named(
    report: OnProgress, task: Task, state: ScheduleState, tasks: Sequence[Task], schedule: Schedule
) -> Callable[[Progress], None]:
    """Progress of one turn, named by the task and by how many tasks are left open."""
    histories = state.histories()
    over = sum(histories.get(one.key, History()).state(schedule.patience) in ("settled", "complete") for one in tasks)
    name = f"[{over} of {len(tasks)} done] {task}"
    return lambda event: report(name, event)


def _tasks(schedule: Schedule) -> tuple[list[Task], dict[tuple[Path, str], Kernel]]:
    """The tasks in the order of the schedule, and the kernels by file and name."""
    kernels: dict[tuple[Path, str], Kernel] = {}
    found: dict[str, Task] = {}
    for entry in schedule.kernels:
        for kernel in collect_kernels([entry.file], entry.names or None):
            kernels[entry.file, kernel.name] = kernel
            labels = [label_of(values) for function in kernel.case_functions for values in function.combinations()]
            for device in schedule.devices:
                for label in filter(entry.takes, labels):
                    task = Task(entry.file, kernel.name, label, device, entry.weight)
                    found.setdefault(task.key, task)
    if not found:
        raise TuneError(f"{schedule.path}: no case of its kernels has a label that its patterns (cases) match")
    return list(found.values()), kernels


def _turn(
    task: Task,
    kernels: dict[tuple[Path, str], Kernel],
    fleet: Fleet | None,
    seconds: float,
    progress: Callable[[Progress], None],
) -> Turn:
    kernel = kernels[task.file, task.kernel]
    devices: tuple[Device, ...] = () if task.device.device is None else devices_named(task.device.device)
    found = fleet.device if fleet is not None else devices[0] if devices else None
    studies = case_studies(kernel, device_of(kernel, found))
    study = next((one for one in studies if one.case.label == task.case), None)
    if study is None:
        raise TuneError(f"{kernel.name} has no case {task.case!r} any more")
    study.case.verify()
    limits = CaseLimits(budget=Budget(None, seconds), devices=devices, fleet=fleet)
    outcome, _ = tune_case(study, limits, progress)
    winner = outcome.winner
    best_ns = None if winner is None else winner.median_ns
    if outcome.faults:  # nothing is stored of these configs: the next turn tries them
        return Turn(outcome.seconds, outcome.measured, best_ns, "faults", message=outcome.fault_remark)
    if winner is None:
        return Turn(outcome.seconds, outcome.measured, None, "failed", message="no config can be used")
    return Turn(outcome.seconds, outcome.measured, best_ns, outcome.stopped)


def _rows(
    schedule: Schedule, tasks: Sequence[Task], histories: dict[str, History], now: dict[str, int]
) -> list[TaskRow]:
    found: list[TaskRow] = []
    for task in tasks:
        history = histories.get(task.key, History())
        first = next((turn.best_ns for turn in history.turns if turn.best_ns is not None), None)
        best = history.best_ns
        found.append(
            TaskRow(
                task.kernel,
                task.case,
                task.device.name,
                history.state(schedule.patience),
                len(history.turns),
                now.get(task.key, 0),
                round(history.seconds, 1),
                best,
                0.0 if not first or best is None else round(1 - best / first, 4),
                history.turns[-1].message if history.turns else "",
            )
        )
    return found
