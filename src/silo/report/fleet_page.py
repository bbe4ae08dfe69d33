"""A page of HTML about several shared stores: winners, coverage and spread over device models, failures, changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from silo.report.kernel_pages import render_page
from silo.text_tables import format_time

__all__ = ["FleetFailure", "FleetStudy", "coverage", "fleet_page", "spread"]

_MOST_CONFIGS = 8  # the page names at most this many configs of a group of failures
_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{8,}\b")  # the page shows only the first eight digits of a digest


@dataclass(frozen=True)
class FleetFailure:
    """A failed config: its name, the kind of the failure, and the first line of the message."""

    config: str
    kind: str
    message: str


@dataclass(frozen=True)
class FleetStudy:
    """The numbers of one study on the page.

    ``medians`` are the times in nanoseconds of the usable configs, by config name. ``decided_s`` is the Unix time at
    which the winner was decided, 0 if unknown. ``before`` is the winner at the date after which changes are shown, None
    for a study that did not exist then.
    """

    store: str
    kernel: str
    sizes: str
    device: str
    target: str
    winner: str | None
    medians: Mapping[str, int] = field(default_factory=dict[str, int])
    configs: int = 0
    failures: tuple[FleetFailure, ...] = ()
    compiler: str = ""
    driver: str = ""
    host: str = ""
    decided: str = ""
    decided_s: int = 0
    silo: str = ""
    has_changed: bool = False
    before: str | None = None

    @property
    def time_ns(self) -> int | None:
        """The time of the winner in nanoseconds."""
        return None if self.winner is None else self.medians[self.winner]


def newest(studies: Iterable[FleetStudy]) -> dict[tuple[str, str, str], FleetStudy]:
    """Returns the latest study of each kernel, sizes and device. Studies with a winner take precedence."""
    newest_studies: dict[tuple[str, str, str], FleetStudy] = {}
    for study in sorted(studies, key=lambda one: (one.winner is not None, one.decided_s)):
        newest_studies[study.kernel, study.sizes, study.device] = study
    return newest_studies


@dataclass(frozen=True)
class Coverage:
    """A table of one kernel's studies: a row for each case's sizes, a column for each device model.

    A cell is None if there is no study for the sizes and the device model.
    """

    kernel: str
    devices: tuple[str, ...]
    rows: tuple[tuple[str, tuple[FleetStudy | None, ...]], ...]

    @property
    def covered(self) -> tuple[int, int]:
        """The number of the table's cells that have a winner, and the number of all cells."""
        cells = [cell for _, row in self.rows for cell in row]
        return sum(cell is not None and cell.winner is not None for cell in cells), len(cells)


def coverage(studies: Sequence[FleetStudy]) -> list[Coverage]:
    """Returns the table of each kernel; all tables have the same columns, the device models of all studies.

    A pure function.
    """
    cells = newest(studies)
    devices = tuple(sorted({study.device for study in studies}))
    tables: list[Coverage] = []
    for kernel in sorted({study.kernel for study in studies}):
        sizes = sorted({size for name, size, _ in cells if name == kernel}, key=lambda text: (len(text), text))
        rows = tuple((size, tuple(cells.get((kernel, size, device)) for device in devices)) for size in sizes)
        tables.append(Coverage(kernel, devices, rows))
    return tables


@dataclass(frozen=True)
class Spread:
    """The winners of one kernel and sizes on several device models.

    ``together`` is the config that loses least on its worst device, among the configs measured on all of the devices.
    ``regret`` is that config's time on its worst device, divided by the winner's time on the same device. Both are None
    if no config was measured on all devices.
    """

    kernel: str
    sizes: str
    winners: tuple[tuple[str, str], ...]
    together: str | None
    regret: float | None

    @property
    def distinct(self) -> int:
        """The number of different winners."""
        return len({config for _, config in self.winners})


def spread(studies: Sequence[FleetStudy]) -> list[Spread]:
    """Returns how the winners differ over device models. Sizes measured on one model only are left out.

    The entries with the most different winners come first. A pure function.
    """
    groups: dict[tuple[str, str], list[FleetStudy]] = {}
    for (kernel, sizes, _), study in newest(studies).items():
        if study.winner is not None:
            groups.setdefault((kernel, sizes), []).append(study)
    spreads: list[Spread] = []
    for (kernel, sizes), group in groups.items():
        if len(group) < 2:
            continue
        common = [config for config in group[0].medians if all(config in study.medians for study in group)]
        regrets = {
            config: max(study.medians[config] / max(1, study.medians[study.winner or config]) for study in group)
            for config in common
        }
        best = min(regrets, key=lambda config: (regrets[config], config), default=None)
        winners = tuple((study.device, study.winner or "") for study in sorted(group, key=lambda one: one.device))
        spreads.append(Spread(kernel, sizes, winners, best, None if best is None else regrets[best]))
    return sorted(spreads, key=lambda one: (-one.distinct, -(one.regret or 0), one.kernel, one.sizes))


def fleet_page(stores: Sequence[str], studies: Sequence[FleetStudy], since: str = "") -> str:
    """Returns the page. ``since`` is the date after which changes are listed; "" lists no changes.

    Raises:
        PackageError: Jinja2 is not installed.
    """
    ordered = sorted(studies, key=lambda one: (one.kernel, one.sizes, one.device, -one.decided_s))
    shown = newest(studies)
    covers = coverage(studies)
    return render_page(
        "fleet.html",
        stores=stores,
        since=since,
        kernels=len({study.kernel for study in studies}),
        devices=len({study.device for study in studies}),
        studies=len(studies),
        hosts=sorted({study.host for study in studies if study.host}),
        versions=sorted({study.silo for study in studies if study.silo}),
        failed=sum(len(study.failures) for study in studies),
        covered=[sum(cover.covered[number] for cover in covers) for number in (0, 1)],
        changes=[_decision(decision) | {"before": decision.before} for decision in ordered if decision.has_changed],
        coverage=[_cover(cover) for cover in covers],
        decisions=[
            _decision(decision) | {"old": shown[decision.kernel, decision.sizes, decision.device] is not decision}
            for decision in ordered
        ],
        spread=[_spread(decision) for decision in spread(studies)],
        failures=_failures(ordered),
    )


def _decision(study: FleetStudy) -> dict[str, Any]:
    return {
        "kernel": study.kernel,
        "sizes": study.sizes or "any",
        "device": study.device,
        "target": study.target,
        "winner": study.winner or "none",
        "time": "" if study.time_ns is None else format_time(study.time_ns),
        "configs": study.configs,
        "failed": len(study.failures),
        "decided": study.decided[:16].replace("T", " ") or "not noted",
        "host": study.host or "not noted",
        "silo": study.silo,
        "compiler": _DIGEST.sub(r"\1", study.compiler),
        "compiler_whole": study.compiler,
        "driver": study.driver,
    }


def _cover(cover: Coverage) -> dict[str, Any]:
    rows = [
        {"sizes": sizes or "any", "cells": [None if cell is None else _decision(cell) for cell in cells]}
        for sizes, cells in cover.rows
    ]
    return {"kernel": cover.kernel, "devices": cover.devices, "rows": rows, "covered": cover.covered}


def _spread(spread: Spread) -> dict[str, Any]:
    return {
        "kernel": spread.kernel,
        "sizes": spread.sizes or "any",
        "distinct": spread.distinct,
        "winners": spread.winners,
        "together": spread.together,
        "regret": "" if spread.regret is None else f"{spread.regret:.2f}",
    }


def _failures(studies: Sequence[FleetStudy]) -> list[dict[str, Any]]:
    """Groups the failed configs by kernel, device, kind of failure and message; the largest groups come first."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for study in studies:
        for failure in study.failures:
            configs = groups.setdefault((study.kernel, study.device, failure.kind, failure.message), [])
            if failure.config not in configs:
                configs.append(failure.config)
    rows = [
        {
            "kernel": kernel,
            "device": device,
            "kind": kind,
            "message": message or "no message",
            "count": len(configs),
            "configs": configs[:_MOST_CONFIGS],
            "more": max(0, len(configs) - _MOST_CONFIGS),
        }
        for (kernel, device, kind, message), configs in groups.items()
    ]
    return sorted(rows, key=lambda one: (-one["count"], one["kernel"], one["device"]))
