"""Plans on the CPU beside the same launches from Python: ratios of paired turns, with their bars.

Run with ``python -m bench.plans``; ``--json FILE`` keeps the samples with a description of the machine. A turn measures
both sides one after the other, each as the best of some bursts; a ratio is the median over turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import triton
import triton.language as tl

import silo
from bench.paired import Estimate, median_interval
from silo.launch.native import threads

COUNT = 50


@silo.kernel
@triton.jit
def nothing(x, y, z, out, n, m, k, BLOCK: tl.constexpr):
    pass


@silo.kernel
@triton.jit
def busy(x, turns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    for _ in range(turns):
        value = value * 0.999 + 0.5
    tl.store(x + at, value)


def chain_of_nothing(x: Any, y: Any, z: Any, out: Any, n: Any, m: Any, k: Any) -> None:
    for _ in range(COUNT):
        nothing[(1,)](x, y, z, out, n, m, k, BLOCK=16)


def chain(x: Any, turns: Any) -> None:
    for _ in range(COUNT):
        busy[(1,)](x, turns, BLOCK=16)


def two_chains(x: Any, y: Any, turns: Any) -> None:
    for _ in range(COUNT // 2):
        busy[(1,)](x, turns, BLOCK=16)
        busy[(1,)](y, turns, BLOCK=16)


@dataclass(frozen=True)
class Row:
    """One ratio: its name, its bar, and the ratio of each turn."""

    name: str
    bar: float
    samples: list[float] = field(default_factory=list)

    @property
    def estimate(self) -> Estimate:
        """The median ratio."""
        return median_interval(self.samples, self.name)


def best_us(call: Callable[[], object], bursts: int, number: int) -> float:
    """Return the microseconds of a call in the best of some bursts."""
    best = float("inf")
    for _ in range(bursts):
        begin = time.perf_counter_ns()
        for _ in range(number):
            call()
        best = min(best, (time.perf_counter_ns() - begin) / number / 1000)
    return best


def turns_of_one_us() -> int:
    """Return the number of turns of the busy kernel's loop that take a microsecond, from two long launches."""
    x = np.ones(16, np.float32)
    few, many = 100_000, 300_000
    times = [best_us(lambda turns=turns: busy[(1,)](x, turns, BLOCK=16), 5, 3) for turns in (few, many)]
    return max(1, round((many - few) / (times[1] - times[0])))


def arrays(count: int) -> list[Any]:
    return [np.ones(1024, np.float32) for _ in range(count)]


def measure(turns: int, bursts: int) -> list[Row]:
    """Measure and return all rows."""
    loop = turns_of_one_us()
    four = arrays(4)
    x, y, z, out = four
    empty = silo.plan(chain_of_nothing, x, y, z, out, 1, 2, 3)
    one = silo.plan(chain, *arrays(1), loop)
    both = silo.plan(two_chains, *arrays(2), 20 * loop)
    rows = [
        Row("50 empty dependent kernels over 50 calls from Python", 0.3),
        Row("50 dependent kernels of 1 us over the sum of their own times", 1.1),
        Row("two independent chains of 25 kernels of 20 us over one after the other", 0.7),
    ]
    for _ in range(200):  # the plan tries both orders of its launches, and afterwards knows the faster one
        both(x, y, 20 * loop)
    own_us = best_us(lambda: busy[(1,)](x, COUNT * loop, BLOCK=16), 20, 20)
    with threads(1):
        alone = silo.plan(two_chains, *arrays(2), 20 * loop)
    for _ in range(turns):
        launched = best_us(lambda: chain_of_nothing(x, y, z, out, 1, 2, 3), bursts, 20)
        rows[0].samples.append(best_us(lambda: empty(x, y, z, out, 1, 2, 3), bursts, 200) / launched)
        own_us = best_us(lambda: busy[(1,)](x, COUNT * loop, BLOCK=16), bursts, 20)
        rows[1].samples.append(best_us(lambda: one(x, loop), bursts, 20) / own_us)
        with threads(1):
            in_order = best_us(lambda: alone(x, y, 20 * loop), bursts, 4)
        rows[2].samples.append(best_us(lambda: both(x, y, 20 * loop), bursts, 4) / in_order)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=30, help="paired turns")
    parser.add_argument("--bursts", type=int, default=5, help="bursts of a measurement, of which the best counts")
    parser.add_argument("--json", type=Path, help="where to write the samples")
    options = parser.parse_args()
    rows = measure(options.turns, options.bursts)
    print(f"{'ratio':76}{'median':>8}{'95 %':>16}{'bar':>6}")
    for row in rows:
        found = row.estimate
        print(f"{row.name:76}{found.median:8.2f}{f'{found.low:.2f}-{found.high:.2f}':>16}{row.bar:6.1f}")
    if options.json:
        machine = {"machine": platform.machine(), "python": platform.python_version(), "cpus": os.cpu_count()}
        kept = {"machine": machine, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row.estimate.median <= row.bar for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
