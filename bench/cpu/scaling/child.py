"""One process of the scaling benchmark: ``python -m bench.cpu.scaling.child ROUND``, ROUND as JSON.

A line of JSON for each row and number of threads goes to standard output; ``picks`` counts Silo's launches of several
threads by whose threads ran them (``silo.launch.cpu_pool.REASONS``). Each call is timed by itself; the sides of a
round that takes turns are called one after the other, nothing in between.
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
    """What one process measures: sides ``silo``, ``torch`` or both in turns; ``gap_us`` the caller works in between.

    ``silo too`` and ``torch too`` are the same over arrays of their own: what takes turns with them finds as little of
    its arrays in the caches as beside the other library.
    """

    sides: tuple[str, ...]
    threads: tuple[int, ...]
    rows: tuple[str, ...]
    seconds: float  # for each row and number of threads
    gap_us: float = 0.0

    @classmethod
    def from_json(cls, text: str) -> Round:
        """What :meth:`to_json` wrote."""
        read = json.loads(text)
        return cls(tuple(read["sides"]), tuple(read["threads"]), tuple(read["rows"]), read["seconds"], read["gap_us"])

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


def timed(
    sides: Sequence[Callable[[], object]], seconds: float, gap_us: float, least: int = LEAST_CALLS
) -> list[list[float]]:
    """Microseconds of each call of each side, in turns: at least ``least`` calls of each."""
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
    """Launches of several threads until now by whose threads ran them; ``state`` is the native module's.

    >>> picked({"picks": {"team_awake": 5}}) - picked({"picks": {"team_awake": 2}})
    Counter({'team_awake': 3})
    """
    picks = state["picks"]
    return Counter({str(name): int(count) for name, count in picks.items()}) if isinstance(picks, dict) else Counter()


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Median and quartiles, microseconds."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return {"us": round(middle, 3), "low": round(low, 3), "high": round(high, 3), "calls": len(samples)}


def main() -> None:
    """Measure the round that the first argument says."""
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
                if "torch" not in asked.sides:  # torch's threads, which the check above woke, are asleep again
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
