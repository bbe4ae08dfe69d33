"""The index of a report: every kernel with its cases, and a roofline for each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from silo.report.charts import roofline_chart
from silo.report.kernel_page import StudyReport, render_page, roofline_point
from silo.report.least_time import Ceilings
from silo.text_tables import format_time
from silo.tuner.outcome import count_failures

__all__ = ["index_page"]


def index_page(origin: str, pages: Mapping[str, tuple[str, Sequence[StudyReport]]]) -> str:
    """The page that leads to the pages of kernels.

    Args:
        origin: the name of the file whose trials are shown.
        pages: by file name, the kernel and its studies.

    Raises:
        PackageError: Jinja2 is not installed.
    """
    studies = [
        (f"{quote(file)}#study-{number}", kernel, report)
        for file, (kernel, reports) in pages.items()
        for number, report in enumerate(reports, start=1)
    ]
    return render_page(
        "index.html",
        origin=origin,
        kernels=len(pages),
        rooflines=_rooflines(studies),
        rows=[_row(href, kernel, report) for href, kernel, report in studies],
    )


def _rooflines(studies: Sequence[tuple[str, str, StudyReport]]) -> list[dict[str, str]]:
    """A chart for each device whose rates are known and whose cases declare bytes and operations."""
    by_device: dict[str, list[tuple[str, str, StudyReport]]] = {}
    for one in studies:
        by_device.setdefault(str(one[2].kept.study.device), []).append(one)
    found: list[dict[str, str]] = []
    for device, ones in by_device.items():
        lights = [report.light for _, _, report in ones if report.light is not None]
        points = [roofline_point(report, f"{kernel} {report.label}", href) for href, kernel, report in ones]
        drawn = [point for point in points if point is not None]
        if lights and drawn:
            ceilings: Ceilings = lights[0].ceilings
            dots = list({light.dot: (light.dot, rate) for light in lights if (rate := light.dot_ceiling)}.values())
            chart = roofline_chart(drawn, [rate for _, rate in ceilings.copies], dots)
            found.append({"device": device, "chart": chart})
    return found


def _row(href: str, kernel: str, report: StudyReport) -> dict[str, Any]:
    winner, failures = report.winner, count_failures(report.kept.trials)
    return {
        "href": href,
        "kernel": kernel,
        "case": report.label,
        "device": report.kept.study.device.name,
        "winner": "none" if winner is None else str(winner.config),
        "time": "" if winner is None else format_time(winner.median_ns),
        "time_ns": "" if winner is None else winner.median_ns,
        "ratio": "" if report.comparison is None else f"{report.comparison.ratio:.2f}",
        "reached": ""
        if winner is None or report.light is None
        else f"{100 * report.light.reached(winner.median_ns):.0f} %",
        "configs": report.configs,
        "failed": ", ".join(f"{count} {kind}" for kind, count in failures.items()),
    }
