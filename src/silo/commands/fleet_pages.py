"""``silo fleet report``: one page over the decisions in shared stores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from silo.errors import TuneError
from silo.machine.user_files import write_texts
from silo.report.fleet_page import FleetFailure, FleetStudy, fleet_page
from silo.tuning.store_query import DecisionRow, StoredDecision, decisions_in, seconds_of

__all__ = ["write_fleet_report"]


def write_fleet_report(
    stores: Sequence[str],
    output: Path,
    *,
    kernel: str | None = None,
    device: str | None = None,
    since: str | None = None,
) -> list[DecisionRow]:
    """Writes the page to ``output``; returns the rows of all decisions on it (:func:`silo.query`).

    Raises:
        TuneError: without trials, or ``since`` is not a date.
        StoreError: a store cannot be read, or the page cannot be written.
        PackageError: Jinja2 is not installed.
    """
    try:
        moment = None if since is None else seconds_of(since)
    except ValueError as error:
        raise TuneError(f"--since {error}") from None
    found = decisions_in(stores, kernel=kernel, device=device, since_s=moment)
    if not found:
        raise TuneError("no trials are there, so there is nothing to report: run silo tune with SILO_REMOTE set")
    names = list(dict.fromkeys(one.store for one in found))
    named = "" if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
    page = fleet_page(names, [_study(one) for one in found], named.removesuffix(" 00:00"))
    write_texts(output.parent, {output.name: page})
    return sorted((one.row for one in found), key=lambda row: (row.kernel, row.device, row.sizes, row.decided))


def _study(one: StoredDecision) -> FleetStudy:
    row, earlier = one.row, one.earlier_winner
    return FleetStudy(
        store=row.store,
        kernel=row.kernel,
        sizes=row.sizes,
        device=row.device,
        target=row.target,
        winner=row.winner,
        medians=one.medians,
        configs=row.configs,
        failures=tuple(
            FleetFailure(str(trial.config), trial.status.value, next(iter(trial.message.splitlines()), ""))
            for trial in one.failed
        ),
        compiler=row.compiler,
        driver=row.driver,
        host=row.host,
        decided=row.decided,
        decided_s=0 if one.origin is None else one.origin.time_s,
        silo=row.silo,
        has_changed=one.has_changed,
        before=None if earlier is None else str(earlier.config),
    )
