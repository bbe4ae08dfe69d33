"""``python -m tests.fuzz.bundles COUNT [--jobs J] [--seconds S] [--sanitized] [--first SEED] [--json FILE]``: lies.

Good bundles are built and tuned here, so this user's store vouches for their native code. Each seed lies about that
code, about how it is called, or about what else there is in the file, with every hash right. Worker processes with
little memory open, bind, check and call what comes of it, and put it through every command that takes a bundle
(:mod:`tests.fuzz.bundle_ways`; the costly ones on a sample). Each time the outcome is an error of Silo's or the right
result; no process dies or hangs, and nothing is written but the arrays that a kernel writes, which lie between guard
pages, and files where they were asked for.

With ``--sanitized`` the workers, and the processes that they start, have the native module built with
AddressSanitizer and UndefinedBehaviorSanitizer (gcc's).
"""

from __future__ import annotations

import argparse
import json
import mmap
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from silo.commands.build_bundle import build_bundle
from silo.commands.tune_cases import tune_path
from silo.settings import child_environment, override

from .bundle_ways import WAYS
from .sanitizers import NoSanitizersError, tree

__all__ = ["Outcome", "main", "make_good", "run"]

_STUCK_S = 120  # with one bundle, which takes milliseconds, or seconds to tune: the machine may be busy
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
    """Bundles whose code the store in ``folder`` built: all kernels in one, and each alone, so that lies meet it.

    They hold trials, as all configs were measured here.
    """
    paths = [folder / "good-all.silo", *(folder / f"good-{name}.silo" for name in ("add", "order", "shift"))]
    with override(home=folder / "home", jobs=1):
        build_bundle([_KERNELS], paths[0], tune="off", configs="all")
        for path in paths[1:]:
            build_bundle([_KERNELS], path, kernels=[path.stem.removeprefix("good-")], tune="off", configs="all")
        for path in paths:
            tune_path(path)
    return paths


def run(
    folder: Path,
    first: int,
    last: int,
    *,
    jobs: int = 1,
    deadline: float = float("inf"),
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Attack the bundles of :func:`make_good` with some seeds, in so many processes at a time."""
    outcome = Outcome()
    size = max(1, min(_CHUNK, -(-(last - first) // jobs)))
    shares = [(start, min(start + size, last)) for start in range(first, last, size)]

    def attack(share: tuple[int, int]) -> None:
        seed, end = share
        home = folder / f"home-{seed}"
        shutil.copytree(folder / "home", home)
        changes = {**(environment or {}), "SILO_HOME": str(home)}
        try:
            while seed < end and time.monotonic() < deadline:
                seed = _attack(folder, (seed, end), outcome, deadline, changes)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(attack, shares))
    return outcome


def _attack(
    folder: Path, seeds: tuple[int, int], outcome: Outcome, deadline: float, environment: Mapping[str, str]
) -> int:
    """One worker's share; the seed to go on with."""
    place_of = folder / f"at-{seeds[0]}"
    place_of.write_bytes(struct.pack("<q", seeds[0]))
    with place_of.open("rb") as file:
        place = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    said, path = folder / f"said-{seeds[0]}", folder / f"lie-{seeds[0]}.silo"
    with said.open("wb") as answers:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.bundle_worker", folder, path, place_of, *map(str, seeds)],
            cwd=_ROOT,
            env={**child_environment(SILO_THREADS="2", SILO_JOBS="1", SILO_CASE_BYTES="32M"), **environment},
            stdout=answers,
            stderr=subprocess.STDOUT,
        )
        status = _watched(worker, place, deadline)
    text = said.read_text(errors="replace")
    ended = False
    for line in text.splitlines():
        answer = _parsed(line)
        if "wrong" in answer:
            outcome.fault(answer["seed"], answer["wrong"])
        elif "counts" in answer:
            outcome.counts.update(answer["counts"])
            ended = ended or "end" in answer
    (seed,) = struct.unpack("<q", place)
    for one in (said, path, place_of):
        one.unlink(missing_ok=True)
    shutil.rmtree(path.with_suffix(".out"), ignore_errors=True)
    if ended:
        return seeds[1]
    if status != "out of time":
        outcome.fault(seed, f"the process ended: {status} [{text[-3000:]}]")
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


def summary_of(outcome: Outcome, seconds: float) -> dict[str, Any]:
    """What came of the bundles, in few numbers, and then of each thing that was done with them."""
    refused, done = Counter[str](), Counter[str]()
    for name, count in outcome.counts.items():
        what, found, kind = name.partition(": ")
        if found and kind == "done":
            done[what] += count
        elif found:
            refused[kind] += count
    bundles = outcome.counts["bundles"]
    return {
        "bundles judged": bundles,
        "seconds": round(seconds, 1),
        "bundles a second": round(bundles / seconds, 1),
        "faults": len(outcome.faults),
        "faults by kind": dict(Counter(one["kind"] for one in outcome.faults).most_common()),
        "refused, by error": dict(refused.most_common()),
        "calls accepted, each with the right result": outcome.counts["launched"],
        "done without an error": dict(sorted(done.items())),
        "each refusal": {
            name: n for name, n in sorted(outcome.counts.items()) if ": " in name and ": done" not in name
        },
        "the costly ones, one in so many bundles that open": {way.name: way.one_in for way in WAYS},
    }


def main(words: list[str]) -> int:
    """Run; 1 where there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.bundles", description=__doc__)
    parser.add_argument("count", type=int, help="how many bundles")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="attack for so many seconds at most")
    parser.add_argument("--sanitized", action="store_true", help="with the native module under gcc's sanitizers")
    parser.add_argument("--json", type=Path, help="write the summary and every fault here")
    options = parser.parse_args(words)
    shared = Path("/dev/shm")  # each bundle is written and read once: no disk need know
    place = shared if shared.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="silo-lies-", dir=place) as name:
        folder = Path(name)
        make_good(folder)
        try:
            environment = tree(folder / "tree") if options.sanitized else {}
        except NoSanitizersError as error:
            parser.error(str(error))
        built = time.monotonic()
        seeds = (options.first, options.first + options.count)
        deadline = built + options.seconds
        outcome = run(folder, *seeds, jobs=options.jobs, deadline=deadline, environment=environment)
    summary = {"sanitized": options.sanitized, **summary_of(outcome, time.monotonic() - built)}
    print(json.dumps(summary, indent=1))
    if options.json:
        options.json.write_text(json.dumps({**summary, "found": outcome.faults}, indent=1))
    return 1 if outcome.faults or not outcome.counts["bundles"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
