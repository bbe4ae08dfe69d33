"""The command: a table of files, the reasons of refusals, and a line of counts for each project."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from .reading import chosen_kernels, compiled, read

__all__ = ["main"]


@dataclass(frozen=True)
class FileOutcome:
    """``kernels`` were found, ``refused`` of them cannot be launched; ``compiles`` maps tried kernels to a reason."""

    project: str
    file: str
    kernels: int
    refused: dict[str, str]
    reason: str
    compiles: dict[str, str]


def _outcome(project: str, root: Path, path: Path, most: int) -> FileOutcome:
    found = read(path, (root,))
    name = path.relative_to(root).as_posix()
    if found.text is None:
        return FileOutcome(project, name, 0, {}, found.reason, {})
    text = found.text
    tried = {one: compiled(found, one) for one in chosen_kernels(text, most)}
    return FileOutcome(project, name, len(text.kernels), dict(text.refused), "", tried)


def main(words: Sequence[str]) -> int:
    """Runs; 0 if every file was tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.census.metal_files")
    parser.add_argument("checkouts", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=3, help="kernels to compile of a file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    work: list[tuple[str, Path, Path]] = []
    for one in options.checkouts:
        name, _, folder = one.partition("=")
        root = Path(folder).resolve()
        work += [(name, root, path) for path in sorted(root.rglob("*.metal")) if options.only in str(path)]
    outcomes: list[FileOutcome] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda job: _outcome(*job, options.most), work):
            outcomes.append(outcome)
            good = sum(not reason for reason in outcome.compiles.values())
            print(
                f"{outcome.project:10} {outcome.file:60} {outcome.kernels:5} kernels {len(outcome.refused):4} refused "
                f"{good} of {len(outcome.compiles)} compile",
                flush=True,
            )
            for reason in (outcome.reason, *list(outcome.refused.values())[:1], *outcome.compiles.values()):
                if reason:
                    print("    " + "\n    ".join(reason.splitlines()[:8])[:900])
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    return 0
