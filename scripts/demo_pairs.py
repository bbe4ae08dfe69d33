"""Times a bundle's cases beside torch, or beside numpy without torch: ``demo_pairs.py K.silo``.

Silo and the other library run the same case in turns in this process, on one thread each, so that both meet the same
load of the machine. The ratio is the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

ROUNDS = 60
LIMIT_S = 1.5  # time for one case


def main() -> None:
    """Print a line for each case."""
    import references
    from demo_table import case_name, print_table
    from machine_load import LoadMeter

    import silo
    from silo.launch.array_libraries.library_table import materialize
    from silo.settings import settings
    from silo.text_tables import format_time

    try:
        import torch

        torch.set_num_threads(settings().threads)
        library, table = "torch", references.torch_references()
    except ImportError:
        library, table = "numpy", references.numpy_references()
    kernels = silo.load(sys.argv[1])
    meter = LoadMeter()
    rows: list[list[str]] = []
    for name in kernels:
        for recipe in kernels[name].recipes():
            arguments = recipe.materialize(lambda one: materialize(one, library))
            kernel, given = kernels[name], arguments
            ours, theirs = in_turns(lambda kernel=kernel, given=given: kernel(**given), table[name](arguments))
            ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
            times = [format_time(int(statistics.median(samples))) for samples in (ours, theirs)]
            rows.append([name, case_name(recipe.label), *times, f"{ratio:.2f}"])
    print_table(["kernel", "case", "silo", library, f"silo/{library}"], rows, right=3)
    print(f"one thread each, medians of up to {ROUNDS} turns; below 1 Silo is faster")
    print(meter.read())


def in_turns(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[list[int], list[int]]:
    """Run both in turns; return the nanoseconds of each run, without the first three rounds."""
    samples: tuple[list[int], list[int]] = ([], [])
    until = time.perf_counter() + LIMIT_S
    for turn in range(ROUNDS + 3):
        for run, kept in zip((ours, theirs), samples, strict=True):
            begin = time.perf_counter_ns()
            run()
            if turn >= 3:
                kept.append(time.perf_counter_ns() - begin)
        if turn >= 8 and time.perf_counter() > until:
            break
    return samples


if __name__ == "__main__":
    main()
