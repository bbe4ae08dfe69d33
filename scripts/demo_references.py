"""Time the demo's cases in torch, or in numpy where torch is absent: ``demo_references.py K.silo OUT.json``."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))


def main() -> None:
    """Write, by kernel and case, the median time in nanoseconds and the library's name."""
    import references
    from machine_load import LoadMeter

    import silo
    from silo.launch.case_arrays import materialize
    from silo.settings import settings

    try:
        import torch

        torch.set_num_threads(settings().threads)
        library, table = "torch", references.torch_references()
    except ImportError:
        library, table = "numpy", references.numpy_references()
    kernels = silo.load(sys.argv[1])
    times: dict[str, int] = {}
    meter = LoadMeter()
    for name in kernels:
        for recipe in kernels[name].recipes():
            arguments = recipe.materialize(lambda one: materialize(one, library))
            run = table[name](arguments)
            times[f"{name} {recipe.label}"] = median_ns(run)
    measured = {"library": library, "times_ns": times, "load": str(meter.read())}
    Path(sys.argv[2]).write_text(json.dumps(measured), encoding="utf-8")


def median_ns(run: object, repeats: int = 15) -> int:
    """The median of some calls after a few that do not count, nanoseconds."""
    assert callable(run)
    samples: list[int] = []
    for turn in range(repeats + 3):
        begin = time.perf_counter_ns()
        run()
        if turn >= 3:
            samples.append(time.perf_counter_ns() - begin)
    return int(statistics.median(samples))


if __name__ == "__main__":
    main()
