"""The command: a table of files, the reasons of refusals, and a line of counts for each project."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from .reading import chosen_kernels, compiled, read
from .samples import find, run_alone

__all__ = ["main"]


@dataclass(frozen=True)
class FileOutcome:
    """``kernels`` were found, ``refused`` of them cannot be launched; ``compiles`` and
    ``runs`` map tried kernels to the reason of a failure, which is empty if they compile, or give right results."""

    project: str
    file: str
    kernels: int
    refused: dict[str, str]
    reason: str
    compiles: dict[str, str]
    runs: dict[str, str]


def _outcome(project: str, roots: tuple[Path, ...], path: Path, most: int) -> FileOutcome:
    found = read(path, roots)
    name = path.relative_to(roots[0]).as_posix()
    if found.text is None:
        return FileOutcome(project, name, 0, {}, found.reason, {}, {})
    text = found.text
    tried = {one: compiled(found, one) for one in chosen_kernels(text, most)}
    runs = {one.kernel: run_alone(found, one) for one in find(project, path)}
    return FileOutcome(project, name, len(text.kernels), dict(text.refused), "", tried, runs)


def main(words: Sequence[str]) -> int:
    """Runs; 1 if a file is not read, or a kernel does not compile or gives a wrong result."""
    parser = argparse.ArgumentParser(prog="python -m tests.census.metal_files")
    parser.add_argument("checkouts", nargs="+", metavar="NAME=FOLDER[:INCLUDE...]")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=3, help="kernels to compile of a file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    work: list[tuple[str, tuple[Path, ...], Path]] = []
    for one in options.checkouts:
        name, _, folders = one.partition("=")
        roots = tuple(Path(folder).resolve() for folder in folders.split(":"))
        work += [(name, roots, path) for path in sorted(roots[0].rglob("*.metal")) if options.only in str(path)]
    outcomes: list[FileOutcome] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda job: _outcome(job[0], job[1], job[2], options.most), work):
            outcomes.append(outcome)
            print(_line(outcome), flush=True)
    for name in dict.fromkeys(one.project for one in outcomes):
        own = [one for one in outcomes if one.project == name]
        tried, ran = [one for one in own if one.compiles], [one for one in own if one.runs]
        print(
            f"{name}: {len(own)} files, {sum(not one.reason for one in own)} read with "
            f"{sum(one.kernels for one in own)} kernels, {sum(len(one.refused) for one in own)} kernels refused; "
            f"{sum(not any(one.compiles.values()) for one in tried)} of {len(tried)} compile; "
            f"{sum(not any(one.runs.values()) for one in ran)} of {len(ran)} are right"
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    return int(any(one.reason or any((*one.compiles.values(), *one.runs.values())) for one in outcomes))


def _line(one: FileOutcome) -> str:
    """Returns the counts of a file, and under them each reason of a failure, cut to eight lines."""
    counts = [
        f"{sum(not reason for reason in found.values())} of {len(found)} {what}"
        for found, what in ((one.compiles, "compile"), (one.runs, "right"))
    ]
    lines = [f"{one.project:8} {one.file:60} {one.kernels:5} kernels, {len(one.refused)} refused, {', '.join(counts)}"]
    failed = [*one.compiles.items(), *one.runs.items()]
    reasons = [one.reason, *list(one.refused.values())[:1], *[f"{name}: {reason}" for name, reason in failed if reason]]
    lines += [f"    {line}"[:300] for reason in reasons for line in reason.splitlines()[:8]]
    return "\n".join(lines)
