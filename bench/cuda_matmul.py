"""A matrix product in CUDA C++ with 54 macro configs: the default search's winner beside the fastest of all configs.

    python -m bench.cuda_matmul [--device cuda|cpu] [--size 1024] [--seconds 90] [--configs N] [--json FILE]

It runs in one process with an empty store. The first call tunes, for at most a third of ``--seconds``. Then all configs
are measured in turns, and at last only the winner and the fastest config, in turns. The bar is the median of the paired
ratios of these two. ``--device cpu --size 64 --configs 6`` gives a quick look without a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine import describe, save
from bench.paired import median_interval, ratios

ROOT = Path(__file__).resolve().parents[1]
WINNER_BAR = 1.01  # limit of the winner's time over the fastest config's
NAMES = ("BLOCK_X", "BLOCK_Y", "TILE_X", "TILE_Y")


def example() -> Any:
    """Return the kernel ``matmul`` of examples/cuda_kernels.py."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import cuda_kernels
    finally:
        sys.path.remove(str(ROOT / "examples"))
    return cuda_kernels.matmul


def arrays(device: str, size: int) -> tuple[Any, Any, Any]:
    """Return two random matrices and an array for their product: torch's on a GPU, numpy's on the CPU."""
    random = np.random.default_rng(1)
    left, right = (random.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    if device == "cpu":
        return left, right, np.empty_like(left)
    import torch

    return torch.from_numpy(left).cuda(), torch.from_numpy(right).cuda(), torch.empty(size, size, device="cuda")


def check(a: Any, b: Any, c: Any) -> None:
    """Exit with an error if the product is wrong."""
    expected = a @ b
    error = float(abs(c - expected).max() / abs(expected).max())
    if not error < 1e-3:
        raise SystemExit(f"the product is wrong by {error:.3g} of its largest element")


def measured(device: str, size: int, seconds: float, configs: int) -> dict[str, Any]:
    """Tune, measure the configs, and return the winner, the fastest config, their paired ratio, and the times taken."""
    from silo.machine.device_plugins import device_named
    from silo.settings import override
    from silo.tuner.measure import Contender, MeasurePolicy, interleave
    from silo.tuner.statistics import median

    kernel, (a, b, c) = example(), arrays(device, size)
    call = (a, b, c, size, size, size)
    begin = time.perf_counter()
    with override(tune="auto", tune_budget_s=max(seconds / 3, 1.0)):
        kernel(*call)
    first_s = time.perf_counter() - begin
    check(a, b, c)
    bound = kernel.kernel.resolver.native.resolve(*call)
    winner = {name: value for name, value in bound.config.items() if name in NAMES}
    every: list[dict[str, Any]] = [
        dict(zip(NAMES, values, strict=True))
        for values in itertools.product([16, 32], [4, 8, 16], [1, 2, 4], [1, 2, 4])
    ]
    chosen = [one for one in every if one == winner] + [one for one in every if one != winner][: configs - 1]

    def contender(config: dict[str, Any]) -> Contender:
        def launch() -> None:
            kernel(*call, **config)

        c[...] = 0
        launch()
        check(a, b, c)
        return Contender(launch)

    begin = time.perf_counter()
    found = device_named(device)
    contenders = {json.dumps(one): contender(one) for one in chosen}
    compile_s = time.perf_counter() - begin
    policy, timer = MeasurePolicy.of(found.timing), found.timer()
    begin = time.perf_counter()
    with override(tune="off"):
        taken = interleave(contenders, timer, policy, rounds=20)
        medians = {name: median(samples) for name, samples in taken.items()}
        best = min(medians, key=medians.__getitem__)
        own = json.dumps(winner)
        pair = {"winner": contenders[own], "best": contenders[best]}
        turns = interleave(pair, timer, policy, rounds=100)
    ratio = median_interval(ratios(turns["winner"], turns["best"]))
    return {
        "device": device,
        "size": size,
        "configs": len(contenders),
        "winner": winner,
        "best": json.loads(best),
        "first_call_s": first_s,
        "compile_s": compile_s,
        "exhaustive_s": time.perf_counter() - begin,
        "ratio": [ratio.median, ratio.low, ratio.high],
        "spread": max(medians.values()) / medians[best],
    }


def show(results: dict[str, Any]) -> str:
    """Return the results as text."""
    middle, low, high = results["ratio"]
    word = "pass" if middle <= WINNER_BAR else "FAIL"
    return (
        f"{results['configs']} configs, size {results['size']}; the slowest takes {results['spread']:.2f} of the best\n"
        f"first call with tuning {results['first_call_s']:.1f} s, compiling the rest {results['compile_s']:.1f} s, "
        f"measuring all {results['exhaustive_s']:.1f} s\n"
        f"winner {results['winner']}\nbest   {results['best']}\n"
        f"  {word}  the winner, of the best in turns: {middle:.4f} ({low:.4f} to {high:.4f}; at most {WINNER_BAR})"
    )


def main() -> int:
    """Run the command; return 1 if the bar fails."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cuda_matmul", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--configs", type=int, default=54)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    from silo.settings import override

    with tempfile.TemporaryDirectory() as folder, override(home=Path(folder)):
        results = measured(given.device, given.size, given.seconds, given.configs)
    print(show(results))
    if given.json:
        save(given.json, describe(), results)
    return 0 if results["ratio"][0] <= WINNER_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
