"""``silo report``: one page for each kernel, from the trials of a Python file's kernels or of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.core.file_names import file_name
from silo.errors import TuneError
from silo.machine.device_plugins import device_named
from silo.machine.user_files import write_texts
from silo.report.kernel_page import StudyReport, kernel_page, study_report
from silo.tuning.device_limits import known_ceilings, measure_ceilings
from silo.tuning.stored_studies import kept_studies

__all__ = ["ReportRow", "write_reports"]


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One study on a page.

    ``ratio`` is the default config's time over the winner's. ``reached`` is the fraction of the speed of light. Each is
    None if unknown.
    """

    page: str
    kernel: str
    case: str
    device: str
    configs: int
    winner: str | None
    time_ns: int | None
    ratio: float | None
    reached: float | None


def write_reports(
    path: Path,
    folder: Path,
    *,
    device: str | None = None,
    kernels: Sequence[str] | None = None,
    ceilings: bool = False,
) -> list[ReportRow]:
    """Writes ``KERNEL.html`` for every kernel that has trials (of ``device``, or of any); returns one row per study.

    :func:`~silo.core.file_names.file_name` makes file names from kernel names. ``ceilings`` first measures the limits
    of the device (the CPU if None), unless they are known.

    Raises:
        TuneError: without trials.
        ToolchainError: Jinja2 is not installed.
        StoreError: the folder cannot be written.
    """
    studies = kept_studies(path, device, kernels)
    if not studies:
        where = f" on {device}" if device else ""
        raise TuneError(f"{path}: nothing was measured{where} yet, so there is nothing to report; run silo tune {path}")
    if ceilings:
        found = device_named(device or "cpu")
        if known_ceilings(found.model) is None:
            measure_ceilings(found)
    by_kernel: dict[str, list[StudyReport]] = {}
    for kept in studies:
        by_kernel.setdefault(kept.study.kernel, []).append(study_report(kept, known_ceilings(kept.study.device)))
    pages = {f"{file_name(name)}.html": (name, reports) for name, reports in by_kernel.items()}
    write_texts(folder, {file: kernel_page(name, path.name, reports) for file, (name, reports) in pages.items()})
    return [_row(folder / file, name, report) for file, (name, reports) in pages.items() for report in reports]


def _row(file: Path, kernel: str, report: StudyReport) -> ReportRow:
    winner = report.winner
    return ReportRow(
        page=str(file),
        kernel=kernel,
        case=report.label,
        device=report.kept.study.device.name,
        configs=report.configs,
        winner=None if winner is None else str(winner.config),
        time_ns=None if winner is None else winner.median_ns,
        ratio=None if report.comparison is None else round(report.comparison.ratio, 4),
        reached=None if winner is None or report.light is None else round(report.light.reached(winner.median_ns), 4),
    )
