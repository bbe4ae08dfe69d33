"""Reports which Triton kernels a program launched, and which launches were left to Triton, with the reasons."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from silo.frozen import frozen
from silo.kinds.triton.front import adapter
from silo.kinds.triton.programs.program_kernels import TABLE
from silo.sanitized_text import printable
from silo.settings import settings

__all__ = ["KernelLine", "Report", "gather", "report_at_exit", "text_of", "write"]

_asked: list[str] = []
_written: set[int] = set()  # ids of the processes that have reported; each reports once, however it ends
# The parent's counts before the fork, by the kernel's id: launches, variants, and launches for each reason.
_inherited: dict[int, tuple[tuple[int, int, int], Mapping[str, int]]] = {}
_passed_before: dict[str, int] = {}


@frozen
class KernelLine:
    """One kernel: its launches by Silo and by Triton, its variants, and its refused kinds of calls.

    ``refusals`` maps a reason to the number of kinds of calls that Silo refused, ``reasons`` maps a reason to the
    number of launches by Triton. The first launch for each guard code is in ``own_launches`` only: Triton makes it to
    compile.
    """

    kernel: str
    place: str
    launches: int
    own_launches: int
    variants: int
    refusals: Mapping[str, int]
    reasons: Mapping[str, int]


@frozen
class Report:
    """The launches of one process.

    ``passed`` maps reasons that concern all kernels (such as a setting of Triton) to numbers of launches through
    Triton. These launches are in no kernel's line.
    """

    process: int
    program: str
    triton: str | None
    kernels: tuple[KernelLine, ...]
    passed: Mapping[str, int]


def gather(passed: Mapping[str, int]) -> Report:
    """The report of this process so far, without the launches of its parents.

    ``passed`` becomes the member ``passed`` of the report.
    """
    lines: list[KernelLine] = []
    for kernel in TABLE:
        before, reasons_before = _inherited.get(id(kernel), ((0, 0, 0), {}))
        launches, own_launches, variants = (
            now - then for now, then in zip((*kernel.launches, kernel.variant_count), before, strict=True)
        )
        if id(kernel) not in _inherited or launches or own_launches or variants:
            reasons = _since(kernel.reasons, reasons_before)
            lines.append(
                KernelLine(
                    kernel.name, kernel.location, launches, own_launches, variants, dict(kernel.refusals), reasons
                )
            )
    return Report(
        os.getpid(),
        " ".join(sys.argv),
        adapter.triton_version(),
        tuple(lines),
        _since(passed, _passed_before),
    )


def _since(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    differences = {reason: count - before.get(reason, 0) for reason, count in now.items()}
    return {reason: count for reason, count in differences.items() if count}


def text_of(report: Report) -> str:
    """The report as text: a line for each kernel, the busiest first, then launches left to Triton, with their share.

    A pure function.
    """
    kernels = sorted(report.kernels, key=lambda one: (-one.launches, -one.own_launches))
    entries = [(kernel.kernel, reason, count) for kernel in kernels for reason, count in kernel.reasons.items()]
    first = sum(kernel.own_launches for kernel in kernels) - sum(count for *_, count in entries)
    served = sum(kernel.launches for kernel in kernels)
    total = served + sum(kernel.own_launches for kernel in kernels) + sum(report.passed.values())
    width = max([len("kernel"), *(len(kernel.kernel) for kernel in kernels)])
    lines = [
        f"silo: Triton kernels of process {report.process} (Triton {report.triton})",
        f"  {'kernel':{width}}  {'by Silo':>10}  {'by Triton':>10}  {'variants':>8}",
    ]
    lines += [
        f"  {kernel.kernel:{width}}  {kernel.launches:>10}  {kernel.own_launches:>10}  {kernel.variants:>8}"
        for kernel in kernels
    ]
    lines.append(f"  {served} of {total} launches by Silo ({_share(served, total)})")
    if first:
        lines.append(f"  left to Triton: {_launches(first, total)}: the first of each kind, which Triton compiles")
    lines += [
        f"  left to Triton: {_launches(count, total)} of {kernel}: {reason}"
        for kernel, reason, count in sorted(entries, key=lambda one: -one[2])
    ]
    lines += [f"  left to Triton: {_launches(count, total)}: {reason}" for reason, count in report.passed.items()]
    return printable("\n".join(lines))


def _share(count: int, total: int) -> str:
    """A part of all launches, in percent.

    >>> _share(4, 4), _share(1, 8), _share(0, 0)
    ('100.0 %', '12.5 %', '0.0 %')
    """
    return f"{100 * count / total if total else 0:.1f} %"


def _launches(count: int, total: int) -> str:
    return f"{count} {'launch' if count == 1 else 'launches'} ({_share(count, total)})"


def write(where: str, passed: Callable[[], Mapping[str, int]]) -> None:
    """Writes the report to standard error (``-``), or appends it to a file as one line of JSON."""
    if os.getpid() in _written:
        return
    _written.add(os.getpid())
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
    """With ``SILO_ACCELERATE_REPORT``: writes the report at the end of this process, and keeps all kernels until then.

    Children made by fork report their own launches. Processes of ``multiprocessing`` end without running Python's exit
    functions, but run that package's, so the report is registered there too. A process that ends by ``os._exit``
    or a signal reports nothing.
    """
    where = settings().accelerate_report
    if where is None or _asked:
        return
    _asked.append(str(where))
    TABLE.keep()
    atexit.register(write, str(where), passed)
    from multiprocessing import parent_process, util  # noqa: PLC0415  # for a report alone

    def at_exit_of_child(_: object) -> None:
        util.Finalize(None, write, (str(where), passed), exitpriority=0)

    if parent_process() is not None:
        at_exit_of_child(None)
    util.register_after_fork(TABLE, at_exit_of_child)
    os.register_at_fork(after_in_child=lambda: _inherit(passed))


def _inherit(passed: Callable[[], Mapping[str, int]]) -> None:
    """Records all counts so far as the parent's; called in a forked child, whose report leaves these counts out."""
    _inherited.clear()
    _inherited.update({id(kernel): ((*kernel.launches, kernel.variant_count), kernel.reasons) for kernel in TABLE})
    _passed_before.clear()
    _passed_before.update(passed())
