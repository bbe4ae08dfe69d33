"""``python -m tests.fuzz.bundles COUNT [--first SEED] [--time SECONDS] [--json FILE]``: lies over trusted code.

Good bundles are built here, so this user's store vouches for their native code. Each seed lies about that code, about
how it is called, or about what else there is in the file, with every hash right. Worker processes with little memory
open, show, explain, bind and call what comes of it. Each time the outcome is an error of Silo's or the right result;
no process dies or hangs, and nothing is written but the arrays that a kernel writes, which lie between guard pages.
"""

from __future__ import annotations

import argparse
import json
import mmap
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from silo.api.commands.build import build_bundle
from silo.settings import child_environment, override

__all__ = ["Outcome", "main", "make_good", "run"]

_STUCK_S = 60  # with one bundle, which takes milliseconds: the machine may be busy
_CHUNK = 20_000  # bundles of one process
_KERNELS = Path(__file__).with_name("bundle_kernels.py")
_ROOT = Path(__file__).parent.parent.parent


@dataclass
class Outcome:
    """What came of many bundles: how often each thing happened, and the faults."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def fault(self, seed: int, wrong: str) -> None:
        """Note a fault; the first of each kind is printed."""
        kind = wrong.partition(" [")[0][:90]
        if all(one["kind"] != kind for one in self.faults):
            print(f"seed {seed}: {wrong}", flush=True)
        self.faults.append({"seed": seed, "kind": kind, "wrong": wrong})


def make_good(folder: Path) -> list[Path]:
    """Bundles whose code the store in ``folder`` built: all kernels in one, and each alone, so that lies meet it."""
    paths = [folder / "good-all.silo", *(folder / f"good-{name}.silo" for name in ("add", "order", "shift"))]
    with override(home=folder / "home", jobs=1):
        build_bundle([_KERNELS], paths[0], tune="off", configs="all")
        for path in paths[1:]:
            build_bundle([_KERNELS], path, kernels=[path.stem.removeprefix("good-")], tune="off", configs="all")
    return paths


def run(folder: Path, first: int, last: int, *, deadline: float = float("inf")) -> Outcome:
    """Attack the bundles of :func:`make_good` with some seeds, in one process after the other."""
    outcome, seed = Outcome(), first
    progress = folder / f"progress-{first}"
    while seed < last and time.monotonic() < deadline:
        end = min(seed + _CHUNK, last)
        seed = _attack(folder, progress, (seed, end), outcome, deadline)
    outcome.counts["seeds"] = seed - first
    return outcome


def _attack(folder: Path, progress: Path, seeds: tuple[int, int], outcome: Outcome, deadline: float) -> int:
    """One worker's share; the seed to go on with."""
    progress.write_bytes(struct.pack("<q", seeds[0]))
    with progress.open("rb") as file:
        place = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    said = folder / f"said-{seeds[0]}"
    with said.open("wb") as answers:
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.fuzz.bundle_worker", folder),
                *(folder / f"{progress.name}.silo", progress, *map(str, seeds)),
            ],
            cwd=_ROOT,
            env=child_environment(SILO_HOME=str(folder / "home"), SILO_THREADS="2"),
            stdout=answers,
            stderr=subprocess.STDOUT,
        )
        status = _watched(worker, place, deadline)
    ended = False
    for line in said.read_text(errors="replace").splitlines():
        answer = _parsed(line)
        if "wrong" in answer:
            outcome.fault(answer["seed"], answer["wrong"])
        elif "counts" in answer:
            outcome.counts.update(answer["counts"])
            ended = ended or "end" in answer
    (seed,) = struct.unpack("<q", place)
    if ended:
        return seeds[1]
    if status != "out of time":
        tail = said.read_text(errors="replace")[-600:]
        outcome.fault(seed, f"the process ended: {status} [{tail}]")
    return seed + 1


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _watched(worker: subprocess.Popen[bytes], place: mmap.mmap, deadline: float) -> str:
    """Wait for the worker; why it ended."""
    at, since = place[:], time.monotonic()
    while True:
        try:
            return f"status {worker.wait(0.2)}"
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if place[:] != at:
            at, since = place[:], now
        if now - since > _STUCK_S or now > deadline:
            worker.kill()
            worker.wait()
            return "it hung" if now <= deadline else "out of time"


def main(words: list[str]) -> int:
    """Run; 1 where there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.bundles", description=__doc__)
    parser.add_argument("count", type=int, help="how many bundles")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--time", type=float, default=1e9, help="end within so many seconds")
    parser.add_argument("--json", type=Path, help="write the summary and every fault here")
    options = parser.parse_args(words)
    started = time.monotonic()
    shared = Path("/dev/shm")  # each bundle is written and read once: no disk need know
    place = shared if shared.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="silo-lies-", dir=place) as name:
        folder = Path(name)
        make_good(folder)
        built = time.monotonic()
        outcome = run(folder, options.first, options.first + options.count, deadline=started + options.time)
    seconds = time.monotonic() - built
    summary = {"seconds": round(seconds, 1), **dict(sorted(outcome.counts.items())), "faults": len(outcome.faults)}
    print(json.dumps(summary, indent=1))
    if options.json:
        options.json.write_text(json.dumps({**summary, "found": outcome.faults}, indent=1))
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
