"""Measures how often ``silo diff``'s comparison of times is wrong: equal times told apart, planted slow-downs missed.

    python -m bench.diff [--runs 100] [--slower 2.0] [--limit 230] [--seconds 60] [--record FILE] [--json FILE]
    python -m bench.diff --replay FILE [--runs 1000]

A kernel on the CPU that computes in a loop is compared alternately with itself and with a copy that makes ``--slower``
percent more rounds of the loop (the planted slow-down). Each comparison has the margin of ``silo diff --fail-slower``.
The machine should be idle, with a load of at most one. The output has the verdicts, the seconds that a comparison took,
and whether the bars hold: at most one of 100 equal comparisons is told apart, 95 of 100 slow-downs are found, and no
comparison takes longer than a minute.

``--record`` keeps the samples of the equal comparisons in a file. ``--replay`` decides comparisons of such samples,
each from a random place in the file, once unchanged and once with one side made slower. It has the noise of a real
machine, and runs no kernel.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.machine import describe, save
from silo.tuner.measure import Ratio, sample_until_decided

PPM = 1_000_000
FALSE_BAR, FOUND_BAR, SECONDS_BAR = 0.01, 0.95, 60.0
ROUNDS = 2000  # rounds of the kernel's loop
_ROUND_S = 0.001  # seconds that each replayed round of samples counts as


@dataclass(frozen=True)
class Compared:
    """The result of one comparison: whether a slow-down was planted, the verdict, median ratio, rounds and seconds."""

    planted: bool
    verdict: str
    ratio: float
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """The numbers of comparisons by verdict, and the values that the bars limit."""

    equal: dict[str, int]
    planted: dict[str, int]
    false_part: float
    found_part: float
    longest_s: float
    holds: bool


def report_of(rows: Sequence[Compared]) -> Report:
    """Count the comparisons by verdict, and check the bars. Pure."""
    equal = Counter(row.verdict for row in rows if not row.planted)
    planted = Counter(row.verdict for row in rows if row.planted)
    false_part = (equal["slower"] + equal["faster"]) / max(sum(equal.values()), 1)
    found_part = planted["slower"] / max(sum(planted.values()), 1)
    longest_s = max((row.seconds for row in rows), default=0.0)
    holds = bool(rows) and false_part <= FALSE_BAR and found_part >= FOUND_BAR and longest_s <= SECONDS_BAR
    return Report(dict(sorted(equal.items())), dict(sorted(planted.items())), false_part, found_part, longest_s, holds)


class Replay:
    """A source of samples that replays recorded pairs from a place on, the new side slower by ``slower_ppm``."""

    def __init__(self, series: Sequence[tuple[int, int]], start: int, new: int, slower_ppm: int) -> None:
        self._series, self._at = series, start
        self._new = new  # index of the new side in a pair
        self._factor = PPM + slower_ppm
        self.now = 0.0

    def __call__(self, rounds: int) -> tuple[list[int], list[int]]:
        """Return the next samples of the new side and of the old side, and advance the clock ``now``."""
        pairs = [self._series[(self._at + step) % len(self._series)] for step in range(rounds)]
        self._at += rounds
        self.now += rounds * _ROUND_S
        return [pair[self._new] * self._factor // PPM for pair in pairs], [pair[1 - self._new] for pair in pairs]


def replayed(
    series: Sequence[tuple[int, int]], runs: int, slower_ppm: int, limit_s: float, seed: int
) -> list[Compared]:
    """Compare recorded pairs of samples from random places on; each place twice, once with a slow-down."""
    draw = random.Random(seed)
    rows: list[Compared] = []
    for _ in range(runs):
        start, new = draw.randrange(len(series)), draw.randrange(2)
        for planted in (False, True):
            take = Replay(series, start, new, slower_ppm if planted else 0)
            ratio = sample_until_decided(take, slower_ppm // 2, limit_s, clock=lambda take=take: take.now)
            rows.append(_row(ratio, take.now, planted=planted))
    return rows


def _row(ratio: Ratio, seconds: float, *, planted: bool) -> Compared:
    return Compared(planted, ratio.speed.value, ratio.median_ppm / PPM, ratio.rounds, seconds)


def measured(runs: int, slower_ppm: int, limit_s: float, total_s: float, kept: list[tuple[int, int]]) -> list[Compared]:
    """Compare a kernel alternately with itself and with more work, until ``total_s`` seconds are over.

    The samples of the equal comparisons are appended to ``kept``.
    """
    import numpy as np  # imported here, because a replay needs no kernel
    import triton
    import triton.language as tl

    import silo
    from silo.machine.device_plugins import device_named
    from silo.tuner.measure import Contender, MeasurePolicy, interleave

    @silo.kernel(grid=lambda _: (1,))
    @triton.jit
    def loop(x, out, rounds):
        i = tl.arange(0, 256)
        value = tl.load(x + i)
        for _ in range(rounds):
            value = value * 0.999 + 0.5
        tl.store(out + i, value)

    device = device_named("cpu")
    policy, timer = MeasurePolicy.of(device.timing), device.timer()
    x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
    more = ROUNDS * (PPM + slower_ppm) // PPM
    base = Contender(lambda: loop(x, out, ROUNDS))
    others = {False: Contender(lambda: loop(x, out, ROUNDS)), True: Contender(lambda: loop(x, out, more))}
    base.launch()  # compiles the kernel
    rows: list[Compared] = []
    begun = time.monotonic()
    for number in range(2 * runs):
        planted = number % 2 == 1

        def take(rounds: int, planted: object = planted) -> tuple[Sequence[int], Sequence[int]]:
            found = interleave({"old": base, "new": others[bool(planted)]}, timer, policy, rounds=rounds)
            if not planted:
                kept.extend(zip(found["new"], found["old"], strict=True))
            return found["new"], found["old"]

        start = time.monotonic()
        ratio = sample_until_decided(take, slower_ppm // 2, limit_s)
        rows.append(_row(ratio, time.monotonic() - start, planted=planted))
        if planted and time.monotonic() - begun > total_s:
            break
    return rows


def main() -> int:
    """Run the command; return 1 if a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="comparisons of each sort")
    parser.add_argument("--slower", type=float, default=2.0, help="percent by which the planted kernel is slower")
    parser.add_argument("--limit", type=float, default=230.0, help="seconds after which no comparison begins")
    parser.add_argument("--seconds", type=float, default=60.0, help="the longest for one comparison")
    parser.add_argument("--record", type=Path, help="keep the samples of equal comparisons here")
    parser.add_argument("--replay", type=Path, help="decide comparisons of recorded samples; nothing runs")
    parser.add_argument("--json", type=Path, help="keep all rows here, with the machine")
    asked = parser.parse_args()
    slower_ppm = round(asked.slower * PPM / 100)
    machine = describe()
    kept: list[tuple[int, int]] = []
    if asked.replay:
        recorded = json.loads(asked.replay.read_text(encoding="utf-8"))
        machine = recorded["machine"]
        series = [(int(new), int(old)) for new, old in recorded["pairs"]]
        rows = replayed(series, asked.runs, slower_ppm, asked.seconds, seed=1)
    else:
        rows = measured(asked.runs, slower_ppm, asked.seconds, asked.limit, kept)
    if asked.record:
        asked.record.write_text(json.dumps({"machine": machine, "pairs": kept}), encoding="utf-8")
    found = report_of(rows)
    print(f"equal times, {sum(found.equal.values())} comparisons: {found.equal}; told apart {found.false_part:.1%}")
    print(f"{asked.slower:g} % slower, {sum(found.planted.values())}: {found.planted}; found {found.found_part:.1%}")
    seconds = sorted(row.seconds for row in rows)
    print(f"seconds of one comparison: median {seconds[len(seconds) // 2]:.2f}, longest {found.longest_s:.2f}")
    print(f"load of the machine at the start: {machine['load_average']}, {machine['cores']} cores")
    print("the bars hold" if found.holds else "a bar does not hold")
    if asked.json:
        save(asked.json, machine, {"report": asdict(found), "rows": [asdict(row) for row in rows]})
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(main())
