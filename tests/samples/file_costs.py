"""The costs of reading files: each read runs in a process whose memory and time are limited to what a file may cost.

As a program (``python tests/samples/file_costs.py``) it reads jobs from standard input, ``[[how, path], ...]`` as JSON,
and prints an outcome for each.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.settings import child_environment

# The limit besides the file's own size, which docs/bundle-format.md promises.
MOST_BYTES = 64 << 20
# Far more than a second for each MiB of these files, because a busy machine slows a read; faulty reads take minutes.
MOST_CPU_S = 15


@dataclass(frozen=True)
class Outcome:
    """The kind and text of the error (or "" and the result as text), and the most memory that the read added."""

    kind: str
    text: str
    peak_bytes: int


def outcomes(jobs: Sequence[tuple[str, Path]], home: Path) -> list[Outcome]:
    """Run the jobs: read each file in the named way."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([[how, str(path)] for how, path in jobs]),
        env=child_environment(SILO_HOME=str(home), SILO_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]


def _memory(name: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split(f"{name}:")[1].split()[0]) << 10


def _run(action: Callable[[Path], object], path: Path) -> None:
    before = _memory("VmRSS")
    allowed = _memory("VmSize") + MOST_BYTES + path.stat().st_size
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    try:
        kind, text = "", str(action(path))
    except Exception as error:  # noqa: BLE001  # which one is what is asked
        kind, text = type(error).__name__, str(error)
        if isinstance(error, MemoryError):
            error.__traceback__ = None
    print(json.dumps({"kind": kind, "text": text[:2000], "peak_bytes": _memory("VmHWM") - before}), flush=True)


def _walk(path: Path) -> object:
    """Read everything of a bundle except its code; return the number of parts read."""
    from silo.bundle.documents import case_recipes, measured_trials
    from silo.bundle.reader import open_bundle

    with open_bundle(path) as bundle:
        found = 0
        for name in bundle.kernel_names:
            kernel = bundle.open_kernel(name)
            found += sum(len(group.numbers) for group in kernel.groups())
            found += sum(1 for number in range(len(kernel)) if kernel[number])
            found += len(bundle.kernel(name).variants)
            found += len(case_recipes(bundle, name))
            found += len(list(measured_trials(bundle, name)))
        for entry in bundle.blobs:
            bundle.verify(entry)
        return found


def _describe(path: Path) -> object:
    from silo.commands.bundle_description import describe_bundle

    return len(json.dumps(describe_bundle(path).to_json()))


def _verify(path: Path) -> object:
    from silo.commands.bundle_description import verify_bundle

    return verify_bundle(path)


def _import(path: Path) -> object:
    from silo.tuning.foreign_results import import_results

    return import_results(path, kernel="k")


def _space(path: Path) -> object:
    from silo.tuner.replay import RecordedSpace

    return len(RecordedSpace.load(path).configs)


def _lock(path: Path) -> object:
    from silo.measuring.lock_files import read_lock

    return len(read_lock(path).entries)


WAYS: dict[str, Callable[[Path], object]] = {
    "walk": _walk,
    "describe": _describe,
    "verify": _verify,
    "import": _import,
    "space": _space,
    "lock": _lock,
}


def main() -> None:
    """Read the jobs from standard input, and run each in a fork of this process, which has imported everything."""
    jobs = json.load(sys.stdin)

    for how, path in jobs:
        child = os.fork()
        if child == 0:
            _run(WAYS[how], Path(path))
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"kind": "killed", "text": f"status {status}", "peak_bytes": 0}), flush=True)


if __name__ == "__main__":
    main()
