"""``silo tune``: tunes files and bundles, or the tasks of a schedule, the most promising first."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from silo.commands.results import TuneRow
from silo.core.cases import label_of
from silo.core.host_arrays import require_numpy
from silo.core.protocols import Device
from silo.errors import DeviceError, LockError, SignatureError, SiloError, TuneError
from silo.kernels.collection import Place, collect_kernels
from silo.kernels.kernel import Kernel
from silo.machine.device_plugins import devices_named
from silo.machine.process_session import session
from silo.machine.user_files import PlaceKind, kind_of
from silo.measuring.lock_files import LockRow, read_lock, update_lock
from silo.store.signatures import SecretKey
from silo.store.store import remote_link
from silo.tuner.failures import TunedCase, failure_of
from silo.tuner.search.searchers import DEFAULT_SEARCHER
from silo.tuner.session_values import Budget, Progress, TuneInterrupted
from silo.tuning.agents.fleet import Fleet
from silo.tuning.bundle_tuning import tune_bundle
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

__all__ = ["OpenFleet", "ScheduleResult", "TaskRow", "TuneRow", "run_schedule", "schedule_rows", "tune_path"]

OnProgress = Callable[[str, Progress], None]


def row_of(tuned: TunedCase) -> TuneRow:
    """Returns the row for an outcome. If it lacks a winner, the row has the reason."""
    kernel, case, outcome = tuned.kernel, tuned.case, tuned.outcome
    winner, remarks = outcome.winner, (*filter(None, [outcome.fault_remark]), *outcome.remarks, *outcome.notes)
    if winner is None:
        first = next((trial for trial in outcome.trials if trial.message), None)
        unmet = outcome.objective.refusal(outcome.trials)
        reason = unmet or "no config can be used" + (
            f"; {first.config}: {first.message.splitlines()[0]}" if first else ""
        )
        row = TuneRow(kernel, case, None, None, outcome.measured, outcome.reused, outcome.failures, reason)
        return replace(row, remarks=remarks)
    row = TuneRow(
        kernel, case, str(winner.config), winner.median_ns, outcome.measured, outcome.reused, outcome.failures
    )
    return replace(row, reason=winner.reason, remarks=remarks)


def _rows(tuned: Sequence[TunedCase]) -> list[TuneRow]:
    rows = [row_of(tuned_case) for tuned_case in tuned]
    for kernel in dict.fromkeys(row.kernel for row in rows if row.winner is None):
        first = next(number for number, row in enumerate(rows) if row.kernel == kernel and row.winner is None)
        rows[first] = replace(
            rows[first], failure=failure_of([tuned_case for tuned_case in tuned if tuned_case.kernel == kernel])
        )
    return rows


def _locked(row: TuneRow, decided: LockRow) -> TuneRow:
    return replace(row, locked=None if decided.config is None else str(decided.config), locked_reason=decided.reason)


def _silent(_name: str, _event: Progress) -> None:
    pass


def tune_path(
    path: Place,
    *,
    device: str | None = None,
    kernels: Sequence[str] | None = None,
    searcher: str = DEFAULT_SEARCHER,
    evaluations: int | None = None,
    budget_s: float | None = None,
    trust: bool = False,
    lock: Path | None = None,
    key: SecretKey | None = None,
    fleet: Fleet | None = None,
    remeasure: bool = False,
    progress: OnProgress | None = None,
) -> list[TuneRow]:
    """Measures the configs of every case of a Python file, or the variants of a bundle, which is refined in place.

    A ``device`` without a number, like ``cuda``, means all GPUs of the first one's model: configs are measured on all
    of them at the same time, and finalists are compared on the first. Without a device the arrays are in host memory,
    and the kernel's kind decides the device. A bundle is signed with ``key``; without a key, its signature is removed
    if it no longer matches. With ``lock`` the decisions for a Python file's studies are written to that file; the
    config that it already holds is tried first and stays unless another is faster beyond the noise. With ``remeasure``
    the known trials of each study are superseded: everything is measured anew. The agents of a ``fleet`` measure
    instead of this machine; cases that they cannot run are measured here, with a remark.

    Raises:
        CaseError: no case exists, or a case is wrong: nothing was compiled then.
        TuneError: no searcher has this name; the budget is 0.
        LockError: the lock file cannot be read or written, or the path is a bundle.
        SignatureError: a key was given and the path is not a bundle, or the bundle was replaced by another program.
        TuneInterrupted: Ctrl-C; every finished trial is stored, and the lock is as it was.
    """
    anew = set[str]() if remeasure else None
    limits = CaseLimits(searcher, Budget(evaluations, budget_s), lock, fleet=fleet, anew=anew)
    limits = replace(limits, devices=() if device is None else devices_named(device))
    chosen_device: Device | None = limits.devices[0] if limits.devices else None
    if fleet is not None:
        if device is not None:
            raise DeviceError(
                f"--device {device}: agents measure, each on its own device: silo agent --device {device}"
            )
        chosen_device = fleet.device
    require_numpy("tuning, which compares results,")
    session().reach_remote()
    with leased(progress or _silent) as report:
        return _tuned_rows(path, chosen_device, kernels, limits, trust=trust, lock=lock, key=key, report=report)


@contextmanager
def leased(report: OnProgress) -> Generator[OnProgress]:
    """Holds a lease of the remote store, if there is one, until the block ends.

    Yields a function that calls ``report`` and renews the lease.
    """
    link = remote_link(session().settings)
    if link is None:
        yield report
        return
    from silo.store.remote.remote_pruning import holding_lease  # noqa: PLC0415  # few users have a remote store

    with holding_lease(link, "tune") as lease:

        def keeping(name: str, event: Progress) -> None:
            if lease is not None:
                lease.keep()
            report(name, event)

        yield keeping


def _tuned_rows(
    path: Place,
    device: Device | None,
    kernels: Sequence[str] | None,
    limits: CaseLimits,
    *,
    trust: bool,
    lock: Path | None,
    key: SecretKey | None,
    report: OnProgress,
) -> list[TuneRow]:
    if isinstance(path, Path) and kind_of(path) is PlaceKind.BUNDLE:
        if lock is not None:
            raise LockError(
                f"{path}: a lock is about the kernels of a Python file; a bundle holds its own decisions. Tune the "
                f"file with --lock {lock}, then build the bundle with SILO_LOCK={lock}"
            )
        tuned, signature = tune_bundle(path, device, kernels, limits, trust=trust, key=key, progress=report)
        rows = _rows(tuned)
        if rows and signature:
            rows[-1] = replace(rows[-1], remarks=(*rows[-1].remarks, signature))
        return rows
    if key is not None:
        raise SignatureError(f"{path}: a key signs bundles; name one, or build one with silo build --key")
    if lock is not None and lock.exists():
        read_lock(lock)  # raises before anything is compiled
    found_kernels = collect_kernels([path], kernels)
    studies = [study for kernel in found_kernels for study in case_studies(kernel, device_of(kernel, device))]
    for study in studies:
        study.case.verify()
    tuned: list[TunedCase] = []
    for study in studies:
        name = f"{study.kernel.name} {study.case.label}"
        outcome, _ = tune_case(study, limits, lambda event, name=name: report(name, event))
        tuned.append(TunedCase(study.kernel.name, study.case.label, study.case.elements, outcome))
    session().store.tidy()
    rows = _rows(tuned)
    if lock is not None:
        # If cases share a study, the last outcome has the trials of all of them.
        last = {entry.outcome.study.key: entry.outcome for entry in tuned}
        decided = {row.study.key: row for row in update_lock(lock, list(last.values()))}
        rows = [_locked(row, decided[entry.outcome.study.key]) for row, entry in zip(rows, tuned, strict=True)]
    return rows


_MOST_FAULTS = 3  # A task that failed because of the machine or its agents in this many turns of a run is given up.

OpenFleet = Callable[[ScheduledDevice, ExitStack], Fleet | None]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """The state of a task: its turns and seconds over all runs, and in this run.

    ``state`` is ``new``, ``open``, ``settled`` (no gains lately), ``complete``, ``failed`` or ``claimed`` (by another
    run). ``gain`` is the fraction by which the best time became shorter since the first turn.
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
    """The tasks after a run, and why the run ended: ``budget`` (it is spent) or ``done`` (no task promises a gain).

    ``failures`` are the tasks that failed in this run, with the reasons.
    """

    rows: tuple[TaskRow, ...]
    stopped: str
    seconds: float
    failures: tuple[str, ...] = ()


def schedule_rows(path: Path) -> list[TaskRow]:
    """Returns the current tasks of a schedule; measures nothing.

    Raises:
        TuneError: the schedule cannot be read, or no case of its files is in it.
    """
    schedule = read_schedule(path)
    tasks, _ = _tasks(schedule)
    return _task_rows(schedule, tasks, ScheduleState(schedule).histories(), {})


def run_schedule(
    path: Path,
    open_fleet: OpenFleet,
    *,
    budget_s: float | None = None,
    progress: OnProgress | None = None,
) -> ScheduleResult:
    """Tunes the tasks of a schedule, a turn at a time, until the budget is spent or no task promises a gain.

    ``budget_s`` replaces the schedule's budget. ``open_fleet`` returns the agents of a device, which are kept until the
    end, or None for a device of this machine. If the process is killed during a turn, the next run repeats the turn;
    its trials are kept. Several runs of one schedule share its tasks.

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
                turn_begun = time.monotonic()  # starting the agents took time that is not the turn's
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
    rows = _task_rows(schedule, tasks, state.histories(), now)
    return ScheduleResult(tuple(rows), stopped, time.monotonic() - begun, tuple(failed.values()))


def _named(
    report: OnProgress, task: Task, state: ScheduleState, tasks: Sequence[Task], schedule: Schedule
) -> Callable[[Progress], None]:
    """Returns a function that reports a turn's progress with the task's name and the number of finished tasks."""
    histories = state.histories()
    over = sum(histories.get(task.key, History()).state(schedule.patience) in ("settled", "complete") for task in tasks)
    name = f"[{over} of {len(tasks)} done] {task}"
    return lambda event: report(name, event)


def _tasks(schedule: Schedule) -> tuple[list[Task], dict[tuple[Path, str], Kernel]]:
    """Returns the tasks in the order of the schedule, and the kernels by file and name."""
    kernels: dict[tuple[Path, str], Kernel] = {}
    tasks: dict[str, Task] = {}
    for entry in schedule.kernels:
        for kernel in collect_kernels([entry.file], entry.names or None):
            kernels[entry.file, kernel.name] = kernel
            labels = [label_of(values) for function in kernel.case_functions for values in function.combinations()]
            for device in schedule.devices:
                for label in filter(entry.takes, labels):
                    task = Task(entry.file, kernel.name, label, device, entry.weight)
                    tasks.setdefault(task.key, task)
    if not tasks:
        raise TuneError(f"{schedule.path}: no case of its kernels has a label that its patterns (cases) match")
    return list(tasks.values()), kernels


def _turn(
    task: Task,
    kernels: dict[tuple[Path, str], Kernel],
    fleet: Fleet | None,
    seconds: float,
    progress: Callable[[Progress], None],
) -> Turn:
    kernel = kernels[task.file, task.kernel]
    devices: tuple[Device, ...] = () if task.device.device is None else devices_named(task.device.device)
    device = fleet.device if fleet is not None else devices[0] if devices else None
    studies = case_studies(kernel, device_of(kernel, device))
    study = next((study for study in studies if study.case.label == task.case), None)
    if study is None:
        raise TuneError(f"{kernel.name} has no case {task.case!r} any more")
    study.case.verify()
    limits = CaseLimits(budget=Budget(None, seconds), devices=devices, fleet=fleet)
    outcome, _ = tune_case(study, limits, progress)
    winner = outcome.winner
    best_ns = None if winner is None else winner.median_ns
    if outcome.faults:  # results of configs with faults are not stored, so the next turn tries these configs again
        return Turn(outcome.seconds, outcome.measured, best_ns, "faults", message=outcome.fault_remark)
    if winner is None:
        return Turn(outcome.seconds, outcome.measured, None, "failed", message="no config can be used")
    return Turn(outcome.seconds, outcome.measured, best_ns, outcome.stopped)


def _task_rows(
    schedule: Schedule, tasks: Sequence[Task], histories: dict[str, History], now: dict[str, int]
) -> list[TaskRow]:
    rows: list[TaskRow] = []
    for task in tasks:
        history = histories.get(task.key, History())
        first = next((turn.best_ns for turn in history.turns if turn.best_ns is not None), None)
        best = history.best_ns
        rows.append(
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
    return rows
