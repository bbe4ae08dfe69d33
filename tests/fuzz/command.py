"""The command: seeds spread over worker processes, failures printed as kernels to run, a summary as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .functions import build_functions
from .profiles import PROFILES

__all__ = ["main"]

_BATCH = 16  # kernels compiled together
_STUCK_S = 300  # for one batch
_SHOWN_S = 20  # between two summaries on the way
_SHRUNK_S = 120  # for making one failure small
_JUDGED = 0.98  # the least share of kernels that must have been compared


def main(words: list[str]) -> int:
    """Run; 1 where a kernel failed or too many could not be judged."""
    options = _options(words)
    work = [(seed, profile) for seed in range(options.first, options.last) for profile in [_profile(options, seed)]]
    batches = [work[start : start + _BATCH] for start in range(0, len(work), _BATCH)]
    started = time.monotonic()
    tally = _Tally(options, len(work), started)
    with tempfile.TemporaryDirectory(prefix="silo-fuzz-") as folder:
        library = Path(folder, "functions.so")
        build_functions(library)
        queue = _Queue(batches, started + options.time)
        threads = [threading.Thread(target=_drive, args=(queue, library, options, tally)) for _ in range(options.jobs)]
        for thread in threads:
            thread.start()
        done = threading.Event()
        showing = threading.Thread(target=_show, args=(done, tally, options))
        showing.start()
        for thread in threads:
            thread.join()
        done.set()
        showing.join()
    summary = tally.keep(options.json)
    print(json.dumps({key: value for key, value in summary.items() if key != "failures"}, indent=2))
    judged = summary["statuses"].get("same", 0) + len(summary["failures"])
    return 1 if summary["failures"] or judged < _JUDGED * summary["kernels"] else 0


def _show(done: threading.Event, tally: _Tally, options: argparse.Namespace) -> None:
    """Say every now and then how far it is, and keep the summary, so that it survives whatever ends the process."""
    while not done.wait(_SHOWN_S):
        summary = tally.keep(options.json)
        statuses = ", ".join(f"{count} {status}" for status, count in summary["statuses"].items())
        print(f"[{summary['seconds']:.0f} s] {summary['kernels']} kernels: {statuses}", flush=True)


def _profile(options: argparse.Namespace, seed: int) -> str:
    names = options.profile or list(PROFILES)
    return names[seed % len(names)]


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("first", type=int, help="first seed")
    parser.add_argument("last", type=int, help="one past the last seed")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes; each has an interpreter beside it")
    parser.add_argument("--time", type=float, default=1e9, help="end within so many seconds, with what was judged")
    parser.add_argument("--profile", action="append", choices=sorted(PROFILES), help="only these (may be repeated)")
    parser.add_argument("--json", help="write the summary and every failure here")
    parser.add_argument("--shrink", type=int, default=8, help="make this many failures of different kinds small")
    parser.add_argument("--no-interpreter", action="store_true", help="compare the two modes only")
    return parser.parse_args(words)


class _Queue:
    """Batches still to do until ``deadline``."""

    def __init__(self, batches: list[list[tuple[int, str]]], deadline: float) -> None:
        self._batches = batches[::-1]
        self._deadline = deadline
        self._longest = 0.0
        self._lock = threading.Lock()

    @property
    def left_s(self) -> float:
        """Seconds to the deadline."""
        return self._deadline - time.monotonic()

    def take(self) -> list[tuple[int, str]] | None:
        """The next batch; None where there is none or the time left is too short for one."""
        with self._lock:
            if not self._batches or self.left_s < 1.2 * self._longest:
                return None
            return self._batches.pop()

    def took(self, seconds: float) -> None:
        """Note how long a batch took."""
        with self._lock:
            self._longest = max(self._longest, seconds)

    def put_back(self, batch: list[tuple[int, str]]) -> None:
        """Work that a process left behind."""
        with self._lock:
            self._batches.append(batch)


class _Tally:
    """What came of every kernel."""

    def __init__(self, options: argparse.Namespace, total: int, started: float) -> None:
        self._options, self._total, self._started = options, total, started
        self._counts: Counter[tuple[str, str]] = Counter()
        self._features: Counter[str] = Counter()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._failures: list[dict[str, Any]] = []
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, found: dict[str, Any]) -> None:
        """Note one verdict."""
        with self._lock:
            self._counts[found["profile"], found["status"]] += 1
            self._features.update(found["features"])
            if found["status"] not in {"same", "differs", "broken", "crashed"}:
                self._reasons[found["status"], found["symptom"]] += 1
            if found["status"] in {"differs", "broken", "crashed"}:
                self._failures.append(found)
                print(_report(found), flush=True)

    def wants_shrinking(self, symptom: str) -> bool:
        """Whether a failure of this kind is still to be made small."""
        with self._lock:
            self._seen[symptom] += 1
            return self._seen[symptom] == 1 and len(self._seen) <= self._options.shrink

    def keep(self, place: str | None) -> dict[str, Any]:
        """The summary, written to the file ``place`` where one is named."""
        with self._lock:
            summary = self._summary(time.monotonic() - self._started)
        if place:
            whole = Path(f"{place}.part")
            whole.write_text(json.dumps(summary, indent=2) + "\n")
            whole.replace(place)
        return summary

    def _summary(self, seconds: float) -> dict[str, Any]:
        """Everything, as JSON."""
        done = sum(self._counts.values())
        statuses: Counter[str] = Counter()
        profiles: dict[str, dict[str, int]] = {}
        for (profile, status), count in sorted(self._counts.items()):
            statuses[status] += count
            profiles.setdefault(profile, {})[status] = count
        return {
            "seeds": [self._options.first, self._options.last],
            "kernels": done,
            "left_out": self._total - done,
            "seconds": round(seconds, 1),
            "statuses": dict(statuses),
            "profiles": profiles,
            "features": dict(self._features.most_common()),
            "not_judged": [[count, *reason] for reason, count in self._reasons.most_common(30)],
            "failures": list(self._failures),
        }


def _report(found: dict[str, Any]) -> str:
    head = f"=== {found['status']}: seed {found['seed']}, profile {found['profile']}: {found['reason']}"
    return f"{head}\n{found.get('arguments', '')}\n{found['source']}" if found.get("source") else head


def _drive(queue: _Queue, library: Path, options: argparse.Namespace, tally: _Tally) -> None:
    """Keep one worker process busy; replace it where it ends before its time."""
    worker = None
    while (batch := queue.take()) is not None:
        worker = worker or _Worker(library, options)
        left = worker.run(batch, tally, queue)
        if not left:
            continue
        status = worker.stop()
        worker = None
        if queue.left_s <= 0:
            return
        if len(batch) > 1:  # one by one from here, so that nobody is blamed for another
            for work in left:
                queue.put_back([work])
        else:
            tally.add(_crash(*left[0], status))
    if worker is not None:
        worker.stop()


def _crash(seed: int, profile: str, status: int) -> dict[str, Any]:
    from .profiles import generate

    return {
        "seed": seed,
        "profile": profile,
        "status": "crashed",
        "symptom": "crashed",
        "reason": f"the process ended with {status}" + ("" if status < 0 else ": the fuzzer itself failed, see above"),
        "features": [],
        "source": generate(seed, profile).text(),
    }


class _Worker:
    """One worker process."""

    def __init__(self, library: Path, options: argparse.Namespace) -> None:
        words = [sys.executable, "-m", f"{__package__}.worker", str(library)]
        if options.no_interpreter:
            words.append("--no-interpreter")
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, batch: list[tuple[int, str]], tally: _Tally, queue: _Queue) -> list[tuple[int, str]]:
        """Judge a batch; what is left of it where the process ended, hung or had no more time."""
        assert self._process.stdout is not None
        started = time.monotonic()
        timer = self._timer(queue)
        left = list(batch)
        try:
            self._send({"batch": batch})
            for line in self._process.stdout:
                found = json.loads(line)
                if found.get("end"):
                    queue.took(time.monotonic() - started)
                    return []
                left.remove((found["seed"], found["profile"]))
                seconds = min(_SHRUNK_S, queue.left_s / 3)
                failed = found["status"] in {"differs", "broken"}
                if failed and seconds > _SHOWN_S and tally.wants_shrinking(found["symptom"]):
                    timer.cancel()
                    started += seconds
                    found = self._shrunk(found, seconds)
                    timer = self._timer(queue)
                tally.add(found)
                self._send({"next": True})
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        return left

    def _timer(self, queue: _Queue) -> threading.Timer:
        """What ends the process when it is stuck or out of time."""
        timer = threading.Timer(max(min(_STUCK_S, queue.left_s), 0), self._process.kill)
        timer.start()
        return timer

    def _shrunk(self, found: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The same with the smallest kernel that shows it; unchanged where the process does not survive the search."""
        self._send({"shrink": seconds})
        assert self._process.stdout is not None
        timer = threading.Timer(3 * seconds, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        return {**found, **json.loads(line)} if line else found

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def stop(self) -> int:
        """End the process; its exit status."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            return self._process.wait(30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            return self._process.wait(30)
