"""``silo tune``: files and bundles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from silo.api.bundle_tuning import tune_bundle
from silo.api.collect import collect_kernels
from silo.api.devices import device_named
from silo.api.studying import Limits, case_studies, tune_case
from silo.tune.outcome import Budget, TuneOutcome
from silo.tune.progress import Progress
from silo.tune.search.registry import DEFAULT_SEARCHER

__all__ = ["TuneRow", "tune_path"]

OnProgress = Callable[[str, Progress], None]


@dataclass(frozen=True, slots=True)
class TuneRow:
    """How tuning one case ended."""

    kernel: str
    case: str
    winner: str | None
    time_ns: int | None
    measured: int
    reused: int
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    reason: str = ""


def row_of(kernel: str, case: str, outcome: TuneOutcome) -> TuneRow:
    """An outcome as a row; why nothing won where nothing did."""
    winner = outcome.winner
    if winner is None:
        first = next((trial for trial in outcome.trials if trial.message), None)
        reason = "no config can be used" + (f"; {first.config}: {first.message.splitlines()[0]}" if first else "")
        return TuneRow(kernel, case, None, None, outcome.measured, outcome.reused, outcome.failures, reason)
    made = TuneRow(
        kernel, case, str(winner.config), winner.median_ns, outcome.measured, outcome.reused, outcome.failures
    )
    return replace(made, reason=winner.reason)


def _silent(_name: str, _event: Progress) -> None:
    pass


def tune_path(
    path: Path,
    *,
    device: str = "cpu",
    kernels: Sequence[str] | None = None,
    searcher: str = DEFAULT_SEARCHER,
    evaluations: int | None = None,
    budget_s: float | None = None,
    trust: bool = False,
    progress: OnProgress | None = None,
) -> list[TuneRow]:
    """Measure the configs of every case of a Python file, or the variants of a bundle, which is refined in place.

    Raises:
        CaseError: there is no case.
        TuneError: no searcher has this name; the budget is 0.
        TuneInterrupted: Ctrl-C; every finished trial is kept.
    """
    limits = Limits(searcher, Budget(evaluations, budget_s))
    found = device_named(device)
    report = progress or _silent
    rows: list[TuneRow] = []
    if path.suffix == ".py":
        for kernel in collect_kernels([path], kernels):
            for study in case_studies(kernel, found):
                name = f"{kernel.name} {study.case.label}"
                outcome, _ = tune_case(study, limits, lambda event, name=name: report(name, event))
                rows.append(row_of(kernel.name, study.case.label, outcome))
        return rows
    for kernel_name, label, outcome in tune_bundle(path, found, kernels, limits, trust=trust, progress=report):
        rows.append(row_of(kernel_name, label, outcome))
    return rows
