"""Reads findings from the output of NVIDIA's compute-sanitizer, and joins them with verdicts about a crash report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.commands.crash_suspects import Verdict
from silo.errors import SourceError

__all__ = ["JoinedFinding", "SanitizerFinding", "join_findings", "read_sanitizer_log"]

_PREFIX = "========= "
_FIRST = re.compile(
    r"^(?:Error: |Warning: )?"
    r"(Invalid .+|Uninitialized .+|Misaligned .+|Race reported .+|Barrier error .+|Unspecified .+|Potential .+)$"
)
_AT = re.compile(r"\bat (?:0x[0-9a-f]+ in )?([A-Za-z_][\w$.]*)(?:\([^)]*\))?(?:\+0x[0-9a-f]+)?(?: in (\S+:\d+))?")
_BY = re.compile(r"^by thread (\([\d,]+\)) in block (\([\d,]+\))")
_MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class SanitizerFinding:
    """A distinct finding: its text, kernel and place ("" if unknown), its first thread, and how often it occurred."""

    text: str
    kernel: str
    place: str = ""
    thread: str = ""
    block: str = ""
    detail: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class JoinedFinding:
    """A finding, and the outcome of Silo's check of its kernel: "named", "clean", "undecided", or "" if unchecked."""

    finding: SanitizerFinding
    check: str

    def __str__(self) -> str:
        finding = self.finding
        at_place = f" at {finding.place}" if finding.place else ""
        thread = f", thread {finding.thread} of block {finding.block}" if finding.thread else ""
        times = f", {finding.count} times" if finding.count > 1 else ""
        detail = f"; {finding.detail}" if finding.detail else ""
        words = {"": "it is no suspect of the report", "named": "the check names this kernel, too"}
        check = words.get(self.check, f"the check: {self.check}")
        return f"compute-sanitizer: {finding.kernel or '?'}: {finding.text}{at_place}{thread}{times}{detail} ({check})"


def read_sanitizer_log(path: Path) -> tuple[SanitizerFinding, ...]:
    """Returns the findings in the output of ``compute-sanitizer``. Equal findings of several threads appear once.

    Raises:
        SourceError: the file cannot be read, or is not output of ``compute-sanitizer``.
    """
    try:
        data = path.read_bytes()[:_MOST_BYTES]
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    lines = [
        line[len(_PREFIX) :].strip()
        for line in data.decode("utf-8", "replace").splitlines()
        if line.startswith(_PREFIX)
    ]
    if not any("COMPUTE-SANITIZER" in line for line in lines):
        raise SourceError(
            f"{path} is no output of compute-sanitizer: write it with compute-sanitizer --log-file {path} python ..."
        )
    findings: dict[tuple[str, str, str], SanitizerFinding] = {}
    for number, line in enumerate(lines):
        if not (first := _FIRST.match(line)):
            continue
        finding = _finding(first[1], lines[number + 1 : number + 6])
        key = finding.text, finding.kernel, finding.place
        earlier = findings.get(key)
        findings[key] = finding if earlier is None else _counted_again(earlier)
    return tuple(findings.values())


def _finding(text: str, behind: Sequence[str]) -> SanitizerFinding:
    kernel = code_place = thread = block = detail = ""
    if at := _AT.search(text):  # the finding is a race, which takes one line
        kernel, code_place, text = at[1], at[2] or "", text[: at.start()].strip()
    for line in behind:
        if _FIRST.match(line) or line.startswith("Saved host backtrace"):
            break
        if not kernel and (at := _AT.match(line)):
            kernel, code_place = at[1], at[2] or ""
        elif by := _BY.match(line):
            thread, block = by[1], by[2]
        elif line.startswith(("Address ", "and is ")):
            detail = f"{detail} {line}".strip()
    return SanitizerFinding(text, kernel, code_place, thread, block, detail)


def _counted_again(finding: SanitizerFinding) -> SanitizerFinding:
    return SanitizerFinding(
        finding.text, finding.kernel, finding.place, finding.thread, finding.block, finding.detail, finding.count + 1
    )


def join_findings(findings: Sequence[SanitizerFinding], verdicts: Sequence[Verdict]) -> list[JoinedFinding]:
    """Returns each finding with the outcome of the check of its kernel; of several outcomes, "named" is preferred."""
    order = ("named", "undecided", "clean")
    joined: list[JoinedFinding] = []
    for finding in findings:
        outcomes = [verdict.outcome for verdict in verdicts if finding.kernel == verdict.kernel]
        joined.append(JoinedFinding(finding, min(outcomes, key=order.index, default="")))
    return joined
