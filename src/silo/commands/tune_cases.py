"""``silo tune``: files and bundles."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from silo.commands.results import TuneRow
from silo.core.host_arrays import require_numpy
from silo.core.protocols import Device
from silo.errors import DeviceError, LockError, SignatureError
from silo.kernels.collection import Place, collect_kernels
from silo.machine.device_plugins import devices_named
from silo.machine.process_session import session
from silo.machine.user_files import PlaceKind, kind_of
from silo.measuring.lock_files import LockRow, read_lock, update_lock
from silo.store.signatures import SecretKey
from silo.store.store import remote_link
from silo.tuner.failures import TunedCase, failure_of
from silo.tuner.outcome import Budget
from silo.tuner.progress import Progress
from silo.tuner.search.searchers import DEFAULT_SEARCHER
from silo.tuning.agents.fleet import Fleet
from silo.tuning.bundle_tuning import tune_bundle
from silo.tuning.case_tuning import CaseLimits, case_studies, device_of, tune_case

__all__ = ["TuneRow", "tune_path"]

OnProgress = Callable[[str, Progress], None]


def row_of(tuned: TunedCase) -> TuneRow:
    """The row of an outcome; its reason explains a missing winner."""
    kernel, case, outcome = tuned.kernel, tuned.case, tuned.outcome
    winner, remarks = outcome.winner, (*filter(None, [outcome.fault_remark]), *outcome.remarks, *outcome.notes)
    if winner is None:
        first = next((trial for trial in outcome.trials if trial.message), None)
        unmet = outcome.objective.refusal(outcome.trials)
        reason = unmet or "no config can be used" + (
            f"; {first.config}: {first.message.splitlines()[0]}" if first else ""
        )
        made = TuneRow(kernel, case, None, None, outcome.measured, outcome.reused, outcome.failures, reason)
        return replace(made, remarks=remarks)
    made = TuneRow(
        kernel, case, str(winner.config), winner.median_ns, outcome.measured, outcome.reused, outcome.failures
    )
    return replace(made, reason=winner.reason, remarks=remarks)


def _rows(tuned: Sequence[TunedCase]) -> list[TuneRow]:
    rows = [row_of(one) for one in tuned]
    for kernel in dict.fromkeys(row.kernel for row in rows if row.winner is None):
        first = next(number for number, row in enumerate(rows) if row.kernel == kernel and row.winner is None)
        rows[first] = replace(rows[first], failure=failure_of([one for one in tuned if one.kernel == kernel]))
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
    and the kernel's kind decides the device. A bundle is signed with ``key``; without one, a signature that does not
    match any more is removed. With ``lock`` the decisions for a Python file's studies are written there; the deployed
    config is tried first and stays unless another is faster beyond the noise. With ``remeasure`` the known trials of
    each study are superseded: everything is measured anew. The agents of a ``fleet`` measure instead of this machine;
    cases that they cannot run are measured here, with a remark.

    Raises:
        CaseError: without a case, or if one is wrong: nothing was compiled then.
        TuneError: no searcher has this name; the budget is 0.
        LockError: the lock file cannot be read or written, or the path is a bundle.
        SignatureError: a key was given and the path is not a bundle, or the bundle was replaced by another program.
        TuneInterrupted: Ctrl-C; every finished trial is stored, and the lock is as it was.
    """
    anew = set[str]() if remeasure else None
    limits = CaseLimits(searcher, Budget(evaluations, budget_s), lock, fleet=fleet, anew=anew)
    limits = replace(limits, devices=() if device is None else devices_named(device))
    found: Device | None = limits.devices[0] if limits.devices else None
    if fleet is not None:
        if device is not None:
            raise DeviceError(
                f"--device {device}: agents measure, each on its own device: silo agent --device {device}"
            )
        found = fleet.device
    require_numpy("tuning, which compares results,")
    session().reach_remote()
    with leased(progress or _silent) as report:
        return _tuned_rows(path, found, kernels, limits, trust=trust, lock=lock, key=key, report=report)


@contextmanager
def leased(report: OnProgress) -> Generator[OnProgress]:
    """``report`` for a block in which this process holds a lease of the remote store, if there is one."""
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
    found: Device | None,
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
        tuned, signature = tune_bundle(path, found, kernels, limits, trust=trust, key=key, progress=report)
        rows = _rows(tuned)
        if rows and signature:
            rows[-1] = replace(rows[-1], remarks=(*rows[-1].remarks, signature))
        return rows
    if key is not None:
        raise SignatureError(f"{path}: a key signs bundles; name one, or build one with silo build --key")
    if lock is not None and lock.exists():
        read_lock(lock)  # raises before anything is compiled
    found_kernels = collect_kernels([path], kernels)
    studies = [study for kernel in found_kernels for study in case_studies(kernel, device_of(kernel, found))]
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
        # Cases may share a study; its last outcome has the trials of all of them.
        last = {one.outcome.study.key: one.outcome for one in tuned}
        decided = {row.study.key: row for row in update_lock(lock, list(last.values()))}
        rows = [_locked(row, decided[one.outcome.study.key]) for row, one in zip(rows, tuned, strict=True)]
    return rows
