"""``silo report`` and ``silo fleet report``: pages about trials of kernels, and about decisions in shared stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from silo.commands.show_code import forms_of_bundle, forms_of_kernel
from silo.core.config import Config
from silo.errors import SiloError, TuneError
from silo.kernels.collection import collect_kernels
from silo.kernels.kernel import Kernel
from silo.machine.device_plugins import device_named
from silo.machine.user_files import PlaceKind, kind_of, write_texts
from silo.measuring.metric_plan import wanted_objective
from silo.report.fleet_page import FleetFailure, FleetStudy, fleet_page
from silo.report.kernel_pages import ConfigCode, OtherSizes, StudyReport, index_page, kernel_page, study_report
from silo.sanitized_text import file_name
from silo.tuner.ledger import KeptStudy
from silo.tuning.device_limits import known_ceilings, measure_ceilings
from silo.tuning.explanation import generalizations
from silo.tuning.store_query import DecisionRow, StoredDecision, decisions_in, seconds_of
from silo.tuning.stored_studies import kept_studies, studies_of_kernels

__all__ = ["ReportRow", "write_fleet_report", "write_reports"]


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A study on a page.

    ``ratio`` is the default config's time divided by the winner's. ``reached`` is the speed as a fraction of the
    hardware's limit. ``ratio`` and ``reached`` are None if unknown.
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
    """Writes ``KERNEL.html`` for every kernel that has trials (of ``device``, or of any), and ``index.html``.

    Returns one row per study. A page shows the code of the winner and of the default config, if the code is stored or
    can be compiled here.

    :func:`~silo.sanitized_text.file_name` makes file names from kernel names. ``ceilings`` first measures the limits of
    the device (the CPU if None), unless they are known.

    Raises:
        TuneError: no trials exist.
        ToolchainError: Jinja2 is not installed.
        StoreError: the folder cannot be written.
    """
    kernels_by_name = (
        {kernel.name: kernel for kernel in collect_kernels([path], kernels)}
        if kind_of(path) is not PlaceKind.BUNDLE
        else {}
    )
    studies = (
        studies_of_kernels(list(kernels_by_name.values()), device)
        if kernels_by_name
        else kept_studies(path, device, kernels)
    )
    if not studies:
        where = f" on {device}" if device else ""
        raise TuneError(f"{path}: nothing was measured{where} yet, so there is nothing to report; run silo tune {path}")
    if ceilings:
        measured = device_named(device or "cpu")
        if known_ceilings(measured.model) is None:
            measure_ceilings(measured)
    by_kernel: dict[str, list[StudyReport]] = {}
    for stored in studies:
        report = study_report(stored, known_ceilings(stored.study.device), wanted_objective())
        code = _code(path, kernels_by_name.get(stored.study.kernel), stored, report)
        by_kernel.setdefault(stored.study.kernel, []).append(replace(report, code=code))
    others: dict[str, list[OtherSizes]] = {}
    for study, learnt in generalizations(studies):
        if len(learnt.samples) > 1:
            others.setdefault(study.kernel, []).append(OtherSizes.of(study, learnt))
    pages = {f"{file_name(name)}.html": (name, reports) for name, reports in by_kernel.items()}
    texts = {
        file: kernel_page(name, path.name, reports, others.get(name, ())) for file, (name, reports) in pages.items()
    }
    # If a kernel is called "index", index.html is its page, and the index page is index~.html. No kernel has a page of
    # that name, because file_name() percent-encodes "~".
    write_texts(
        folder, {**texts, "index~.html" if "index.html" in pages else "index.html": index_page(path.name, pages)}
    )
    return [_row(folder / file, name, report) for file, (name, reports) in pages.items() for report in reports]


def _code(path: Path, kernel: Kernel | None, stored: KeptStudy, report: StudyReport) -> tuple[ConfigCode, ...]:
    """Returns the code of the winner and of the default config, if it is stored or can be compiled here."""
    winner = None if report.winner is None else report.winner.config
    configs = {
        known_config.order_key: known_config for known_config in (winner, report.default) if known_config is not None
    }
    return tuple(
        ConfigCode(config, forms) for config in configs.values() if (forms := _forms(path, kernel, stored, config))
    )


def _forms(path: Path, kernel: Kernel | None, stored: KeptStudy, config: Config) -> tuple[tuple[str, str], ...]:
    study = stored.study
    try:
        if kernel is None:
            return forms_of_bundle(path, study.kernel, study.target, config)
        return forms_of_kernel(kernel, stored.cases[0], study.target, config) if stored.cases else ()
    except SiloError:  # leave the code out: the config does not compile, or no compiler for the target is here
        return ()


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


def write_fleet_report(
    stores: Sequence[str],
    output: Path,
    *,
    kernel: str | None = None,
    device: str | None = None,
    since: str | None = None,
) -> list[DecisionRow]:
    """Writes the page to ``output``; returns the rows of all decisions on it (see :func:`silo.query`).

    Raises:
        TuneError: no trials exist, or ``since`` is not a date.
        StoreError: a store cannot be read, or the page cannot be written.
        PackageError: Jinja2 is not installed.
    """
    try:
        moment = None if since is None else seconds_of(since)
    except ValueError as error:
        raise TuneError(f"--since {error}") from None
    decisions = decisions_in(stores, kernel=kernel, device=device, since_s=moment)
    if not decisions:
        raise TuneError("no trials are there, so there is nothing to report: run silo tune with SILO_REMOTE set")
    names = list(dict.fromkeys(decision.store for decision in decisions))
    time_text = "" if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
    page = fleet_page(names, [_study(decision) for decision in decisions], time_text.removesuffix(" 00:00"))
    write_texts(output.parent, {output.name: page})
    return sorted(
        (decision.row for decision in decisions), key=lambda row: (row.kernel, row.device, row.sizes, row.decided)
    )


def _study(decision: StoredDecision) -> FleetStudy:
    row, earlier = decision.row, decision.earlier_winner
    return FleetStudy(
        store=row.store,
        kernel=row.kernel,
        sizes=row.sizes,
        device=row.device,
        target=row.target,
        winner=row.winner,
        medians=decision.medians,
        configs=row.configs,
        failures=tuple(
            FleetFailure(str(trial.config), trial.status.value, next(iter(trial.message.splitlines()), ""))
            for trial in decision.failed
        ),
        compiler=row.compiler,
        driver=row.driver,
        host=row.host,
        decided=row.decided,
        decided_s=0 if decision.origin is None else decision.origin.time_s,
        silo=row.silo,
        has_changed=decision.has_changed,
        before=None if earlier is None else str(earlier.config),
    )
