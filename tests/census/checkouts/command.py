"""The command: the kernels of every checkout spread over threads, a table, each failure, a summary as JSON."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.fuzz.functions import build_functions

from .judge import FAILED, STATUSES, Limits, Outcome, close_servers, judge
from .modules import Checkout, Found

__all__ = ["VARIABLE", "main"]

Job = tuple[Checkout, Found, int]
VARIABLE = "SILO_TEST_CHECKOUTS"


def main(words: list[str]) -> int:
    """Run; 1 if a kernel failed, 2 if no checkout is named."""
    options = _options(words)
    places = [Path(one) for one in options.checkouts.split(":") if one]
    if not places or not all(one.is_dir() for one in places):
        print(f"name folders of checkouts in {VARIABLE}=/path/a:/path/b: {options.checkouts!r}")
        return 2
    started = time.monotonic()
    checkouts = [Checkout(one.resolve()) for one in places]
    work = _in_turn(
        [
            [(one, kernel, variant) for kernel in _chosen(one, options) for variant in range(options.variants)]
            for one in checkouts
        ]
    )
    outcomes = _earlier(options)
    known = {(one.checkout, one.kernel, one.variant) for one in outcomes}
    work = [job for job in work if (job[0].name, job[1].label, job[2]) not in known]
    total = len(outcomes) + len(work)
    stopped = threading.Event()
    limits = Limits(options.process_seconds, options.memory << 30, options.compile_seconds)
    with tempfile.TemporaryDirectory(prefix="silo-checkouts-") as folder:
        functions = Path(folder, "functions.so")
        build_functions(functions)

        def one(checkout: Checkout, kernel: Found, variant: int) -> Outcome | None:
            if stopped.is_set() or time.monotonic() - started > options.seconds:
                return None
            return judge(checkout, kernel, variant, functions, limits)

        with ThreadPoolExecutor(options.jobs) as pool:
            for future in as_completed([pool.submit(one, *job) for job in work]):
                outcome = future.result()
                if outcome is None:
                    continue
                outcomes.append(outcome)
                if outcome.status in FAILED or options.verbose:
                    print(_line(outcome), flush=True)
                if len(outcomes) % 50 == 0:
                    print(f"[{time.monotonic() - started:.0f} s] {len(outcomes)} of {total}", flush=True)
                    _keep(_summary(checkouts, outcomes, total, started), options.json)
    close_servers()
    summary = _summary(checkouts, outcomes, total, started)
    _keep(summary, options.json)
    print(_table(summary))
    return 1 if any(outcome.status in FAILED for outcome in outcomes) else 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.census.checkouts", description=__doc__)
    parser.add_argument("--checkouts", default=os.environ.get(VARIABLE, ""), help=f"folders, as in {VARIABLE}")
    parser.add_argument("--jobs", type=int, default=2, help="kernels at a time")
    parser.add_argument("--limit", type=int, default=0, help="so many kernels of each checkout, spread over its files")
    parser.add_argument("--only", action="append", default=[], help="kernels whose FILE::NAME holds this")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no kernel after so many seconds")
    parser.add_argument("--variants", type=int, default=2, choices=(1, 2), help="2: once more with switches reversed")
    parser.add_argument("--process-seconds", type=float, default=120.0, help="for each process of a kernel")
    parser.add_argument("--compile-seconds", type=float, default=10.0, help="processor time that compiling may take")
    parser.add_argument("--memory", type=int, default=12, help="GiB of addresses for each process")
    parser.add_argument("--json", help="write the summary and every outcome here")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes in the file of --json, run the others")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every kernel")
    options = parser.parse_args(words)
    if options.resume and not options.json:
        parser.error("--resume needs --json FILE")
    return options


def _earlier(options: argparse.Namespace) -> list[Outcome]:
    """The outcomes that an earlier run wrote, if this run is to resume it."""
    if not options.resume or not Path(options.json).exists():
        return []
    return [Outcome(**one) for one in json.loads(Path(options.json).read_text())["outcomes"]]


def _in_turn(work: list[list[Job]]) -> list[Job]:
    """Jobs of every list spread evenly over all, so that a run that ends early has seen something of each."""
    places = [((at + 0.5) / len(jobs), number, job) for number, jobs in enumerate(work) for at, job in enumerate(jobs)]
    return [job for _, _, job in sorted(places, key=lambda one: one[:2])]


def _chosen(checkout: Checkout, options: argparse.Namespace) -> list[Found]:
    found = [one for one in checkout.kernels() if not options.only or any(w in one.label for w in options.only)]
    if not options.limit or len(found) <= options.limit:
        return found
    return [found[place * len(found) // options.limit] for place in range(options.limit)]


def _line(outcome: Outcome) -> str:
    head = f"{outcome.status}: {outcome.checkout} {outcome.kernel} variant {outcome.variant}"
    return f"=== {head} ({outcome.compile_s:.1f} s): {outcome.reason[:600]}"


def _summary(checkouts: list[Checkout], outcomes: list[Outcome], total: int, started: float) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in [checkout.name for checkout in checkouts]:
        own = [one for one in outcomes if one.checkout == name]
        counts = Counter(one.status for one in own)
        taken = [one for one in own if one.guess is not None]
        table[name] = {
            "kernels": len({one.kernel for one in own}),
            "taken": len({one.kernel for one in taken}),
            "statuses": {status: counts[status] for status in STATUSES if counts[status]},
            "slowest_compile_s": max((one.compile_s for one in own), default=0.0),
        }
    slowest = sorted(outcomes, key=lambda one: -one.compile_s)
    reasons = Counter((one.status, one.reason[:160]) for one in outcomes if one.status not in {"same", *FAILED})
    return {
        "seconds": round(time.monotonic() - started, 1),
        "runs": len(outcomes),
        "left_out": total - len(outcomes),
        "helpers": {checkout.name: checkout.helpers() for checkout in checkouts},
        "unread": {checkout.name: checkout.unread for checkout in checkouts if checkout.unread},
        "checkouts": table,
        "slowest": [[one.compile_s, one.checkout, one.kernel] for one in slowest[:20]],
        "reasons": [[count, *reason] for reason, count in reasons.most_common(60)],
        "failures": [one.to_json() for one in outcomes if one.status in FAILED],
        "outcomes": [one.to_json() for one in outcomes],
    }


def _keep(summary: dict[str, Any], place: str | None) -> None:
    if place:
        whole = Path(f"{place}.part")
        whole.write_text(json.dumps(summary, indent=1) + "\n")
        whole.replace(place)


def _table(summary: dict[str, Any]) -> str:
    """A row for each checkout and one for all: kernels, kernels taken by the front end, runs by outcome."""
    rows = summary["checkouts"]
    statuses = [status for status in STATUSES if any(status in row["statuses"] for row in rows.values())]
    head = ["checkout", "kernels", "taken", *statuses, "slowest compile, s"]
    lines = [head, ["---"] * len(head)]
    for name, row in rows.items():
        counts = [str(row["statuses"].get(status, 0)) for status in statuses]
        lines.append([name, str(row["kernels"]), str(row["taken"]), *counts, f"{row['slowest_compile_s']:.1f}"])
    counts = [str(sum(row["statuses"].get(status, 0) for row in rows.values())) for status in statuses]
    slowest = max((row["slowest_compile_s"] for row in rows.values()), default=0.0)
    sums = [str(sum(row[key] for row in rows.values())) for key in ("kernels", "taken")]
    lines.append(["all", *sums, *counts, f"{slowest:.1f}"])
    shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    meanings = "\n".join(f"{status}: {STATUSES[status]}" for status in statuses)
    others = "\n".join(f"{count} {status}: {reason}" for count, status, reason in summary["reasons"][:20])
    slow = "\n".join(f"{seconds:.1f} s to compile: {name} {kernel}" for seconds, name, kernel in summary["slowest"][:5])
    return f"{shown}\n{meanings}\n{slow}\n{summary['left_out']} runs were left out for time.\n{others}"
