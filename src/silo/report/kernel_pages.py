"""Pages of HTML: one page for each kernel, and the index of a report.

Each page contains everything that it shows, and works without scripts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from silo.core.config import Config
from silo.errors import PackageError
from silo.report.charts import RooflinePoint, effect_chart, progress_chart, roofline_chart
from silo.report.least_time import Ceilings, SpeedOfLight, dot_dtype, speed_of_light
from silo.report.ranking import ConfigComparison, compare, effects, failure_groups, front, parameter_names, value_text
from silo.sanitized_text import printable
from silo.text_tables import format_bytes, format_duration, format_time
from silo.tuner.generalization import Generalization
from silo.tuner.ledger import KeptStudy
from silo.tuner.objective import TIME, Objective
from silo.tuner.session_values import count_failures
from silo.tuner.statistics import estimate, median
from silo.tuner.trial import Stage, Status, Study, Trial
from silo.tuner.winner import Winner, choose_winner

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = [
    "ConfigCode",
    "OtherSizes",
    "StudyReport",
    "index_page",
    "kernel_page",
    "render_page",
    "roofline_point",
    "study_report",
]

# A kernel counts as faster than a measured ceiling only if its rate exceeds the ceiling by this factor: two
# measurements of one rate, at different moments, differ by less.
_ABOVE = 1.05
_LONGEST_CODE = 200_000  # a page shows at most this many characters of one text of a config's code


@dataclass(frozen=True)
class ConfigCode:
    """The code of one config. ``forms`` are pairs of a name (``ttir``, ``c``, ``ptx``, ``sass``) and a text."""

    config: Config
    forms: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class StudyReport:
    """The numbers of one study that a page shows."""

    kept: KeptStudy
    winner: Winner | None
    default: Config
    comparison: ConfigComparison | None
    light: SpeedOfLight | None
    code: tuple[ConfigCode, ...] = ()

    @property
    def label(self) -> str:
        """The name of the study on the page: its cases, or its bucket if it was not made from cases."""
        study = self.kept.study
        sizes = ", ".join(f"{name}={value}" for name, value in zip(study.bucket_names, study.bucket, strict=True))
        return "; ".join(self.kept.cases) or (f"calls with {sizes}" if sizes else "calls")

    @property
    def configs(self) -> int:
        """The number of configs that were tried."""
        return len({trial.config.order_key for trial in self.kept.trials})


@dataclass(frozen=True)
class OtherSizes:
    """A table of predictions for other sizes, made from the measured sizes of a kernel on a device.

    Each row has a measured size, the winner there, and the loss, at this size, of the config that would be chosen if
    the size had not been measured. The loss is "" if too few sizes were measured to leave one out.
    """

    label: str
    text: str
    rows: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(cls, study: Study, learnt: Generalization) -> OtherSizes:
        """Returns the table of the predictions in ``learnt``.

        They were learnt from several studies of one kernel on one device; ``study`` is any one of these studies.
        """
        held_out = [f"{item / 10_000:.1f} %" for item in learnt.fitted.held_out] or [""] * len(learnt.samples)
        rows = tuple(
            (
                ", ".join(f"{name}={value}" for name, value in zip(study.bucket_names, sample.bucket, strict=True)),
                str(sample.winner),
                loss,
            )
            for sample, loss in zip(learnt.samples, held_out, strict=True)
        )
        return cls(f"{study.device.name} \u00b7 {study.target}", learnt.text, rows)


def study_report(entry: KeptStudy, ceilings: Ceilings | None, objective: Objective = TIME) -> StudyReport:
    """Returns the numbers of one study.

    If the default config is unknown, the config that was tried first replaces it.
    """
    winner = choose_winner(entry.trials, objective)
    default = entry.default or entry.trials[0].config
    comparison = compare(entry.trials, winner, default, entry.study.key) if winner else None
    light = None
    if entry.work is not None and ceilings is not None:
        light = speed_of_light(entry.work, ceilings, dot_dtype(entry.study.signature))
    return StudyReport(entry, winner, default, comparison, light)


def kernel_page(kernel: str, origin: str, studies: Sequence[StudyReport], others: Sequence[OtherSizes] = ()) -> str:
    """Returns the page of one kernel.

    ``origin`` is the name of the file whose trials are shown; ``others`` are predictions.

    Raises:
        PackageError: Jinja2 is not installed.
    """
    sections = [_section(number, report) for number, report in enumerate(studies, start=1)]
    labels = [section["label"] for section in sections]
    for section, report in zip(sections, studies, strict=True):
        if labels.count(section["label"]) > 1:
            section["label"] += f" \u00b7 {report.kept.study.device.name} \u00b7 {report.kept.study.target}"
    return render_page("page.html", kernel=kernel, origin=origin, sections=sections, others=others)


def render_page(template: str, **values: Any) -> str:  # noqa: ANN401  # the values that the template needs
    """Renders a template to a page with the report's style and script; no other script runs, and nothing is fetched.

    Raises:
        PackageError: Jinja2 is not installed.
    """
    js = _resource("page.js")
    digest = b64encode(sha256(js.encode()).digest()).decode()
    return _template(template).render(css=_resource("page.css"), js=js, digest=digest, **values)


@cache
def _template(name: str) -> Template:
    try:
        import jinja2  # noqa: PLC0415  # Jinja2 is optional
    except ImportError:
        raise PackageError(
            "silo report needs Jinja2, which is not installed: pip install 'kernel-silo[report]'"
        ) from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    return environment.from_string(_resource(name))


def _shown(value: object) -> object:
    """Removes invisible characters, like marks of direction, from texts.

    Charts are unchanged: their texts are clean already.
    """
    return value if isinstance(value, int | float) or hasattr(value, "__html__") else printable(str(value))


def _resource(name: str) -> str:
    """Reads a text file of this package."""
    return (files("silo.report") / name).read_text(encoding="utf-8")


def _section(number: int, report: StudyReport) -> dict[str, Any]:
    kept_study, winner = report.kept, report.winner
    searched = [trial for trial in kept_study.trials if trial.stage is Stage.SEARCH]
    failures = count_failures(kept_study.trials)
    comparison = report.comparison
    least_ns = report.light.least_ns if report.light else None
    rows = _rows(report)
    return {
        "anchor": f"study-{number}",
        "label": report.label,
        "facts": _facts(kept_study),
        "configs": report.configs,
        "trials": len(kept_study.trials),
        "failed": ", ".join(f"{count} {kind}" for kind, count in failures.items()) or "none",
        "winner": None if winner is None else str(winner.config),
        "winner_time": "" if winner is None else format_time(winner.median_ns),
        "reason": "" if winner is None else winner.reason,
        "default": str(report.default),
        "default_known": kept_study.default is not None,
        "default_wins": winner is not None and winner.config.order_key == report.default.order_key,
        "default_time": format_time(comparison.default_ns) if comparison else _why(report),
        "ratio": comparison,
        "spent": _spent(kept_study.trials),
        "chart": progress_chart(searched, default_ns=_time_of(report.default, searched), least_ns=least_ns),
        "finals": len(searched) < len(kept_study.trials),
        "light": _light(report),
        "declares": kept_study.work is not None,
        "effects": [
            {"name": effect.name, "share": round(100 * effect.share), "chart": effect_chart(effect)}
            for effect in effects(searched)
        ],
        "failures": failure_groups(kept_study.trials),
        "fronts": _fronts(report),
        "aside": sorted(kept_study.aside, key=lambda one: one.spills),
        "roofline": _roofline(report),
        "code": [_code(item, report) for item in report.code],
        "names": parameter_names(kept_study.trials),
        "rows": rows,
        "has": {
            name: any(row[name] not in ("", 0) for row in rows) for name in ("registers", "spills", "shared", "error")
        },
    }


def roofline_point(report: StudyReport, label: str, href: str = "") -> RooflinePoint | None:
    """Returns the study's point in a roofline.

    Returns None for a study without a winner, or if its case does not declare bytes and operations.
    """
    work, winner = report.kept.work, report.winner
    if work is None or winner is None or not work.bytes or not work.flops:
        return None
    return RooflinePoint(label, work.flops / work.bytes, work.flops / max(winner.median_ns, 1) * 1e9, href)


def _roofline(report: StudyReport) -> str:
    point = roofline_point(report, report.label)
    if point is None or report.light is None:
        return ""
    ceilings = report.light.ceilings
    dots = [(report.light.dot, rate)] if (rate := report.light.dot_ceiling) else []
    return roofline_chart([point], [rate for _, rate in ceilings.copies], dots)


def _code(code: ConfigCode, report: StudyReport) -> dict[str, Any]:
    trials = [trial for trial in report.kept.trials if trial.config.order_key == code.config.order_key]
    wins = report.winner is not None and report.winner.config.order_key == code.config.order_key
    return {
        "config": str(code.config),
        "role": "the winner" if wins else "the default",
        "trials": [_row(number, trial, (), None, report) for number, trial in enumerate(trials, start=1)],
        "forms": [
            {"name": name, "text": text[:_LONGEST_CODE], "left": max(len(text) - _LONGEST_CODE, 0)}
            for name, text in code.forms
        ],
    }


_RESOURCES = {"registers": "registers of a thread", "memory": "bytes of shared and scratch memory of a program"}
_METRICS = {"energy": "nanojoules of a launch"}


def _fronts(report: StudyReport) -> list[dict[str, Any]]:
    """Returns a table for each metric besides time, unless one config is best both in the metric and in time.

    Each row is a config of the metric's front (:func:`silo.report.ranking.front`).
    """
    tables: list[dict[str, Any]] = []
    measured = sorted({name for trial in report.kept.trials for name, _ in trial.metrics} - {"gflops"})
    for metric, title in {**_RESOURCES, **{name: _METRICS.get(name, name) for name in measured}}.items():
        points = front(report.kept.trials, metric)
        if len(points) > 1:
            rows = [
                {
                    "config": str(point.config),
                    "time": format_time(point.time_ns),
                    "ratio": f"{point.time_ns / max(1, points[0].time_ns):.2f}",
                    "amount": f"{point.amount:.6g}",
                }
                for point in points
            ]
            tables.append({"title": title, "rows": rows})
    return tables


def _facts(stored: KeptStudy) -> list[tuple[str, str]]:
    study = stored.study
    device = study.device
    types = [
        f"{parameter.name}: {parameter.dtype}"
        for parameter in study.signature.parameters
        if parameter.dtype is not None
    ]
    sizes = [f"{name}={value}" for name, value in zip(study.bucket_names, study.bucket, strict=True)]
    constants = [f"{name}={value_text(value)}" for name, value in study.specialization.constants]
    memory = f"{device.memory_bytes / (1 << 30):.0f} GiB" if device.memory_bytes else ""
    rows = [
        ("device", ", ".join(filter(None, [str(device), memory]))),
        ("target", str(study.target)),
        ("bucket", ", ".join(sizes)),
        ("constants", ", ".join(constants)),
        ("made for", study.specialization.served),
        ("types", ", ".join(types)),
        ("compiler", study.compiler),
        ("measured by", study.policy),
    ]
    return [(name, text) for name, text in rows if text]


def _time_of(config: Config, trials: Sequence[Trial]) -> int | None:
    samples = [sample for trial in trials if trial.config.order_key == config.order_key for sample in trial.samples_ns]
    return median(samples) if samples else None


def _why(report: StudyReport) -> str:
    failed = [trial for trial in report.kept.trials if trial.config.order_key == report.default.order_key]
    return f"failed: {failed[0].status.value}" if failed else "not measured"


def _spent(trials: Sequence[Trial]) -> str:
    compiling = sum(trial.compile_ns for trial in trials) / 1e9
    sampling = sum(sum(trial.samples_ns) for trial in trials) / 1e9
    return f"{format_duration(compiling)} compiling, {format_duration(sampling)} of samples"


def _light(report: StudyReport) -> dict[str, Any] | None:
    light, winner = report.light, report.winner
    if light is None or winner is None:
        return None
    bars: list[dict[str, Any]] = []
    time = max(winner.median_ns, 1)
    work, dot = light.work, light.dot_ceiling
    copied = light.ceilings.copy_rate(work.bytes) if work.bytes else None
    if work.bytes and copied:
        size, rate = copied
        label = f"a copy that moves {format_bytes(size)}"
        bars.append(_bar("memory", work.bytes / time, rate / 1e9, "B/s", label, f"{work.bytes:,} bytes"))
    if work.flops and dot:
        label = f"products of {light.dot} matrices"
        bars.append(_bar("arithmetic", work.flops / time, dot / 1e9, "FLOP/s", label, f"{work.flops:,} operations"))
    return {
        "reached": f"{100 * light.reached(winner.median_ns):.0f}",
        "least": format_time(round(light.least_ns)),
        "bound": light.bound,
        "above": light.reached(winner.median_ns) > _ABOVE,
        "bars": bars,
    }


def _bar(name: str, rate: float, ceiling: float, unit: str, measured: str, work: str) -> dict[str, Any]:
    share = rate / ceiling
    return {
        "name": name,
        "rate": _rate(rate, unit),
        "ceiling": _rate(ceiling, unit),
        "measured": measured,
        "work": work,
        "percent": f"{100 * share:.0f}",
        "width": f"{min(100 * share, 100):.1f}",
    }


def _rate(giga: float, unit: str) -> str:
    """Formats a rate, given in 10^9 units per second.

    >>> _rate(1234.0, "B/s"), _rate(3.871, "B/s")
    ('1.234 TB/s', '3.871 GB/s')
    """
    return f"{giga / 1000:.4g} T{unit}" if giga >= 1000 else f"{giga:.4g} G{unit}"


def _rows(report: StudyReport) -> list[dict[str, Any]]:
    names = parameter_names(report.kept.trials)
    best = report.winner.median_ns if report.winner else None
    return [_row(number, trial, names, best, report) for number, trial in enumerate(report.kept.trials, start=1)]


def _row(number: int, trial: Trial, names: Sequence[str], best: int | None, report: StudyReport) -> dict[str, Any]:
    members, resources = trial.config.as_dict(), dict(trial.resources)
    time = median(trial.samples_ns) if trial.samples_ns else None
    interval = estimate(trial.samples_ns) if trial.samples_ns else None
    wins = report.winner is not None and trial.config.order_key == report.winner.config.order_key
    return {
        "number": number,
        "wins": wins,
        "ok": trial.status is Status.OK,
        "stage": trial.stage.value,
        "status": trial.status.value,
        "values": [
            (value_text(members[name]) if name in members else "", _sortable(members.get(name))) for name in names
        ],
        "time": "" if time is None else format_time(time),
        "time_ns": time,
        "interval": f"{format_time(interval.low_ns)} \u2013 {format_time(interval.high_ns)}" if interval else "",
        "spread": interval.noise_permille if interval else "",
        "samples": len(trial.samples_ns),
        "factor": f"{time / max(best, 1):.2f}" if time is not None and best else "",
        "light": f"{100 * report.light.reached(time):.0f} %" if report.light and time else "",
        "compile": format_duration(trial.compile_ns / 1e9) if trial.compile_ns else "",
        "compile_ns": trial.compile_ns,
        "registers": resources.get("registers", ""),
        "spills": resources.get("spills", ""),
        "shared": resources.get("shared_bytes", ""),
        "error": "" if trial.max_error is None else f"{trial.max_error:.3g}",
        "message": trial.message,
        "headline": trial.message.partition("\n")[0],
    }


def _sortable(value: object) -> object:
    """Returns the number that the page's script sorts a cell by, or None if the cell's text sorts correctly."""
    return value if isinstance(value, float) else None


def index_page(origin: str, pages: Mapping[str, tuple[str, Sequence[StudyReport]]]) -> str:
    """Returns the index: a page with links to the pages of kernels.

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
        rows=[_index_row(href, kernel, report) for href, kernel, report in studies],
    )


def _rooflines(studies: Sequence[tuple[str, str, StudyReport]]) -> list[dict[str, str]]:
    """Draws a roofline for each device with measured ceilings and a case that declares its bytes and operations."""
    by_device: dict[str, list[tuple[str, str, StudyReport]]] = {}
    for study in studies:
        by_device.setdefault(str(study[2].kept.study.device), []).append(study)
    charts: list[dict[str, str]] = []
    for device, ones in by_device.items():
        lights = [report.light for _, _, report in ones if report.light is not None]
        points = [roofline_point(report, f"{kernel} {report.label}", href) for href, kernel, report in ones]
        drawn = [point for point in points if point is not None]
        if lights and drawn:
            ceilings: Ceilings = lights[0].ceilings
            dots = list({light.dot: (light.dot, rate) for light in lights if (rate := light.dot_ceiling)}.values())
            chart = roofline_chart(drawn, [rate for _, rate in ceilings.copies], dots)
            charts.append({"device": device, "chart": chart})
    return charts


def _index_row(href: str, kernel: str, report: StudyReport) -> dict[str, Any]:
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
