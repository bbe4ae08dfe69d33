"""One process of the scaling benchmark: ``python -m bench.cpu.scaling.child ROUND``, where ROUND is a Round as JSON.

It prints a line of JSON for each row and number of threads. ``picks`` counts Silo's launches of several threads by
whose threads ran them (``silo.launch.cpu_pool.REASONS``). Each call is timed by itself. If several sides take turns,
they are called one after the other with nothing in between.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples"))

LEAST_CALLS, MOST_CALLS = 15, 3000
WARM_S, WARM_CALLS = 0.03, 4


@dataclass(frozen=True)
class Round:
    """The work of one process: the sides to call in turns (``silo``, ``torch``), with a pause ``gap_us`` before a call.

    During the pause the caller computes. ``silo too`` and ``torch too`` are the same calls over arrays of their own: a
    side in turns with them finds as few of its arrays in the caches as it does beside the other library.
    """

    sides: tuple[str, ...]
    threads: tuple[int, ...]
    rows: tuple[str, ...]
    seconds: float  # time to measure each row and number of threads
    gap_us: float = 0.0

    @classmethod
    def from_json(cls, text: str) -> Round:
        """Return the Round that :meth:`to_json` wrote."""
        read = json.loads(text)
        return cls(tuple(read["sides"]), tuple(read["threads"]), tuple(read["rows"]), read["seconds"], read["gap_us"])

    def to_json(self) -> str:
        """Return the Round as one line of JSON."""
        return json.dumps(asdict(self))


def timed(
    sides: Sequence[Callable[[], object]], seconds: float, gap_us: float, least: int = LEAST_CALLS
) -> list[list[float]]:
    """Call the sides in turns; return the microseconds of each call, by side.

    Each side is called at least ``least`` times.
    """
    clock = time.perf_counter_ns
    found: list[list[float]] = [[] for _ in sides]
    begun = clock()
    until, gap_ns = begun + int(1e9 * seconds), int(1e3 * gap_us)
    calls = 0
    while calls < least or (clock() < until and calls < MOST_CALLS):
        for side, samples in zip(sides, found, strict=True):
            if gap_ns:
                end = clock() + gap_ns
                while clock() < end:
                    pass
            begin = clock()
            side()
            samples.append((clock() - begin) / 1e3)
        calls += 1
    return found


def picked(state: Mapping[str, object]) -> Counter[str]:
    """Return the number of launches of several threads so far, by whose threads ran them.

    ``state`` is the native module's ``cpu_state()``.

    >>> picked({"picks": {"team_awake": 5}}) - picked({"picks": {"team_awake": 2}})
    Counter({'team_awake': 3})
    """
    picks = state["picks"]
    return Counter({str(name): int(count) for name, count in picks.items()}) if isinstance(picks, dict) else Counter()


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Return the median and the quartiles of the samples, in microseconds, and their number."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return {"us": round(middle, 3), "low": round(low, 3), "high": round(high, 3), "calls": len(samples)}


def main() -> None:
    """Measure the Round that the first argument gives as JSON."""
    asked = Round.from_json(sys.argv[1])
    import torch

    from bench.cpu.scaling.rows import ROWS
    from silo.launch.native import cpu_state, cpu_threads
    from silo.settings import override

    torch.manual_seed(0)
    with override(tune="off"):
        for name in asked.rows:
            row = ROWS[name]()
            calls = {"silo": row.silo, "torch": row.torch}
            if asked.sides[-1] not in calls:
                too = ROWS[name]()
                calls |= {"silo too": too.silo, "torch too": too.torch}
            for threads in asked.threads:
                torch.set_num_threads(threads)
                cpu_threads(threads)
                sides = [calls[side] for side in asked.sides]
                row.silo()
                row.torch()
                found, wanted = row.results()
                error = float((found.double() - wanted.double()).abs().max())
                timed(sides, WARM_S, asked.gap_us, WARM_CALLS)
                if "torch" not in asked.sides:  # wait until torch's threads, which the check above woke, sleep again
                    time.sleep(0.02)
                before = picked(cpu_state())
                samples = timed(sides, asked.seconds, asked.gap_us)
                picks = picked(cpu_state()) - before
                line: dict[str, Any] = {"row": name, "threads": threads, "error": error, "right": error < row.tolerance}
                line |= {side: summary(values) for side, values in zip(asked.sides, samples, strict=True)}
                line["picks"] = dict(picks)
                if len(samples) > 1:
                    line["ratio"] = statistics.median(a / b for a, b in zip(*samples, strict=True))
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
