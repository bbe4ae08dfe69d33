"""One fresh process of the benchmark: ``python -m bench.tune.child ROLE DEVICE SIZE``. Prints one JSON line.

The roles ``silo`` and ``triton`` measure the first call of a kernel with sixteen configs, from existing arrays to a
right result. ``compare`` measures every config and torch's own product side by side.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from bench.machine import describe
from bench.tune import kernels


def inputs(device: str, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return two random matrices and an array for their product."""
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(size, size, generator=generator).to(device, torch.float16) for _ in range(2))
    return left, right, torch.empty_like(left)


def wait(device: str) -> None:
    """Wait until the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def check(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """Exit with an error if the product is wrong."""
    expected = left.float() @ right.float()
    error = (out.float() - expected).abs().max().item() / expected.abs().max().item()
    if not error < 1e-2:
        raise SystemExit(f"the product is wrong by {error:.3g} of its largest element")


def configs_for(device: str) -> tuple[tuple[int, ...], ...]:
    """Return the configs: blocks for a GPU, or small ones for a look on the CPU."""
    return kernels.LISTED if device == "cuda" else kernels.SMALL


def first_call(role: str, device: str, size: int) -> dict[str, object]:
    """Make the first call; return its seconds and the config that it chose."""
    left, right, out = inputs(device, size)
    wait(device)
    configs = configs_for(device)
    begin = time.perf_counter()
    kernel: Any  # of either library
    if role == "silo":
        kernel = kernels.tuned_by_silo(configs)
        kernel(left, right, out, size, size, size)
    else:
        kernel = kernels.tuned_by_triton(configs)
        kernel[kernels.grid](left, right, out, size, size, size)
    wait(device)
    seconds = time.perf_counter() - begin
    check(left, right, out)
    if role == "silo":
        bound = kernel.kernel.resolver.native.resolve(left, right, out, size, size, size)
        names = kernels.members(configs[0])
        chosen = {name: value for name, value in bound.config.items() if name in names}
    else:
        best = kernel.best_config
        chosen = {**best.kwargs, "num_stages": best.num_stages, "num_warps": best.num_warps}
    return {"seconds": seconds, "winner": chosen}


def compare(device: str, size: int) -> dict[str, object]:
    """Measure every config and torch's product in turns; return the medians in nanoseconds."""
    from silo.machine.device_plugins import device_named
    from silo.tuner.measure import Contender, MeasurePolicy, interleave
    from silo.tuner.statistics import median

    left, right, out = inputs(device, size)
    found = device_named(device)
    kernel = kernels.tuned_by_silo(configs_for(device))
    contenders: dict[str, Contender] = {"torch": Contender(lambda: torch.matmul(left, right, out=out))}
    for config in configs_for(device):
        named = kernels.members(config)

        def launch(named: dict[str, int] = named) -> None:
            kernel(left, right, out, size, size, size, **named)

        launch()
        check(left, right, out)
        contenders[json.dumps(named, sort_keys=True)] = Contender(launch)
    taken = interleave(contenders, found.timer(), MeasurePolicy.of(found.timing), rounds=60)
    return {"medians_ns": {name: median(samples) for name, samples in taken.items()}, "machine": describe()}


def main(role: str, device: str, size: str) -> None:
    """Run the process's role and print its result as JSON."""
    made = compare(device, int(size)) if role == "compare" else first_call(role, device, int(size))
    print(json.dumps(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
