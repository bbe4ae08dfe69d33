"""Reports: which Triton kernels a program launched, and what was left to Triton, with the reasons."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from silo.integrations.triton_programs.kernels import TABLE
from silo.printable import printable
from silo.settings import settings
from silo.sources.triton import adapter

__all__ = ["KernelLine", "Report", "gather", "report_at_exit", "text_of", "write"]

_asked: list[str] = []


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel: launches by Silo and by Triton, variants, and how many kinds of calls Silo refused, by reason."""

    kernel: str
    place: str
    launches: int
    own_launches: int
    variants: int
    refusals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Report:
    """One process. ``passed`` counts launches that went Triton's way whatever their kernel, by reason."""

    process: int
    program: str
    triton: str | None
    kernels: tuple[KernelLine, ...]
    passed: Mapping[str, int]


def gather(passed: Mapping[str, int]) -> Report:
    """What there is to say of this process now. ``passed`` is the report's."""
    return Report(
        os.getpid(),
        " ".join(sys.argv),
        adapter.triton_version(),
        tuple(
            KernelLine(one.name, one.location, *one.launches, len(one.variants), dict(one.refusals)) for one in TABLE
        ),
        dict(passed),
    )


def text_of(report: Report) -> str:
    """For people: a line a kernel, the busiest first. Pure."""
    kernels = sorted(report.kernels, key=lambda one: -one.launches)
    width = max([len("kernel"), *(len(one.kernel) for one in kernels)])
    lines = [
        f"silo: Triton kernels of process {report.process} (Triton {report.triton})",
        f"  {'kernel':{width}}  {'by Silo':>10}  {'by Triton':>10}  {'variants':>8}",
    ]
    lines += [
        f"  {one.kernel:{width}}  {one.launches:>10}  {one.own_launches:>10}  {one.variants:>8}" for one in kernels
    ]
    lines += [
        f"  left to Triton: {one.kernel}: {reason} ({count} kinds of calls)"
        for one in kernels
        for reason, count in one.refusals.items()
    ]
    lines += [f"  left to Triton: {count} launches: {reason}" for reason, count in report.passed.items()]
    return printable("\n".join(lines))


def write(where: str, passed: Callable[[], Mapping[str, int]]) -> None:
    """To standard error (``-``), or appended to a file as one line of JSON."""
    report = gather(passed())
    if not report.kernels and not report.passed:
        return
    if where == "-":
        sys.stderr.write(text_of(report) + "\n")
        return
    try:
        with Path(where).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(report)) + "\n")
    except OSError as error:
        sys.stderr.write(f"silo: the report cannot be written to {where}: {error.strerror}\n")


def report_at_exit(passed: Callable[[], Mapping[str, int]]) -> None:
    """Where ``SILO_ACCELERATE_REPORT`` asks for it: write at the end of this process, and keep kernels till then."""
    where = settings().accelerate_report
    if where is None or _asked:
        return
    _asked.append(str(where))
    TABLE.keep()
    atexit.register(write, str(where), passed)
