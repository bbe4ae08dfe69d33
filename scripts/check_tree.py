"""Checks of the checkout that no linter makes: the size of files, and what `import silo` loads and costs."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600  # a longer file is reported as a question
MAX_IMPORT_SECONDS = 0.050
HEAVY = ("torch", "triton", "jax", "numpy")


def long_files() -> list[str]:
    """Return a question about each Python or C file that is longer than MAX_LINES; these are no faults."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.c", "*.h"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    found: list[str] = []
    for name in listed:
        path = ROOT / name
        lines = len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0
        if lines > MAX_LINES:
            found.append(f"{name} has {lines} lines: is it one subject?")
    return found


def heavy_imports() -> list[str]:
    """Return a message for each heavy package that `import silo` loads."""
    code = f"import sys, silo; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    return [f"`import silo` loads {name}; import it where it is used" for name in loaded]


def import_time() -> list[str]:
    """Return a message if `import silo` takes more CPU time than `pass` plus the limit.

    The time is the median of interleaved processes, in the best of three rounds.
    """

    def seconds(code: str) -> float:
        # CPU time, because wall time would include other work of the machine.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    best = float("inf")
    for _ in range(3):
        pairs = [(seconds("pass"), seconds("import silo")) for _ in range(7)]
        best = min(best, statistics.median(loaded - bare for bare, loaded in pairs))
        if best <= MAX_IMPORT_SECONDS:
            return []
    return [f"`import silo` costs {best * 1e3:.0f} ms of CPU time; the limit is {MAX_IMPORT_SECONDS * 1e3:.0f} ms"]


def main() -> int:
    """Run every check; return 1 if one fails."""
    for question in long_files():
        print(f"question: {question}", file=sys.stderr)
    findings = heavy_imports() + import_time()
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
