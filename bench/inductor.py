"""Models under ``torch.compile`` on the CPU: Triton through Silo, beside Inductor's C++ and eager torch.

``python -m bench.inductor``: every model's results are compared with eager torch's first; then the three take turns in
short bursts on one thread, and a ratio is the median of the ratios of bursts that follow each other, with its interval.
The bars: a geometric mean of at most 1.0 times the time of Inductor's C++, and no model above 2.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("SILO_THREADS", "1")

import torch
from torch import nn
from torch.nn import functional

from bench.machine import describe, save
from bench.paired import median_interval
from silo.integrations import inductor

BAR, WORST = 1.0, 2.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_BURST_S = 0.01
Model = tuple[Callable[..., Any], tuple[Any, ...]]


def models() -> dict[str, Callable[[], Model]]:
    """By name: what makes a model and its inputs."""
    randn = torch.randn

    def rms_norm(x: Any, weight: Any) -> Any:
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * weight

    def training() -> Model:
        net = nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.ReLU(), nn.Linear(512, 10))
        labels = torch.randint(0, 10, (128,))

        def step(x: Any) -> Any:
            net.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(net(x), labels)
            loss.backward()
            return loss

        return step, (randn(128, 256),)

    def conv_block() -> Model:
        layers = [
            layer for width in (16, 32) for layer in (nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        ]
        return nn.Sequential(*layers).eval(), (randn(4, 16, 56, 56),)

    def cross_entropy() -> Model:
        return functional.cross_entropy, (randn(512, 4000), torch.randint(0, 4000, (512,)))

    def embedding() -> Model:
        return lambda i, w: functional.embedding(i, w) * 2.0, (torch.randint(0, 5000, (64, 128)), randn(5000, 128))

    def index_add() -> Model:
        given = torch.zeros(1000, 64), torch.randint(0, 1000, (4096,)), randn(4096, 64)
        return lambda x, i, s: x.index_add(0, i, s), given

    def layer_norm() -> Model:
        return lambda x, w, b: functional.layer_norm(x, (1024,), w, b), (randn(1024, 1024), randn(1024), randn(1024))

    def transformer() -> Model:
        return nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True), (randn(4, 128, 256),)

    square = (1024, 1024)
    return {
        "pointwise": lambda: (
            lambda x, y: torch.sigmoid(x) * y + torch.tanh(x) * 0.5,
            (randn(512, 1024), randn(512, 1024)),
        ),
        "gelu and bias": lambda: (lambda x, b: functional.gelu(x + b), (randn(square), randn(1024))),
        "softmax": lambda: (lambda x: torch.softmax(x, -1), (randn(1024, 1000),)),
        "layer norm": layer_norm,
        "rms norm, bf16": lambda: (rms_norm, (randn(square).bfloat16(), randn(1024).bfloat16())),
        "sum over rows": lambda: (lambda x: x.sum(0), (randn(2048, 1024),)),
        "argmax": lambda: (lambda x: x.argmax(-1), (randn(1024, 1000),)),
        "cumsum": lambda: (lambda x: x.cumsum(-1), (randn(512, 1000),)),
        "transpose and add": lambda: (lambda x, y: x.t() + y, (randn(square), randn(square))),
        "cross entropy": cross_entropy,
        "dropout": lambda: (lambda x: functional.dropout(x, 0.1, training=True) * 2, (randn(square),)),
        "embedding": embedding,
        "index_add": index_add,
        "mlp": lambda: (
            nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).eval(),
            (randn(128, 512),),
        ),
        "transformer layer": transformer,
        "conv block": conv_block,
        "training step": training,
    }


def measure(
    name: str, make: Callable[[], Model], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """One model's times by ``clock``, and what they say."""
    torch.manual_seed(0)
    plain, given = make()
    torch._dynamo.reset()  # noqa: SLF001  # the public name warns
    with torch.set_grad_enabled(name == "training step"):
        options = {"fallback_random": True, "compile_threads": 1}
        ways = {
            way: torch.compile(plain, options={**options, "cpu_backend": backend})
            for way, backend in (("silo", "triton"), ("cpp", "cpp"))
        }
        torch.manual_seed(1)
        expected = plain(*given)
        loose = 2e-2 if expected.dtype is torch.bfloat16 else 1e-4
        first: dict[str, float] = {}
        for way, call in ways.items():
            torch.manual_seed(1)
            begin = time.perf_counter()
            made = call(*given)
            first[way] = time.perf_counter() - begin
            torch.testing.assert_close(made, expected, rtol=loose, atol=loose)
        calls = {**ways, "eager": plain}
        repeats = max(1, int(_BURST_S / max(_burst(ways["cpp"], given, 1, clock), 1e-6)))
        samples: dict[str, list[float]] = {way: [] for way in calls}
        for _ in range(rounds):
            for way, call in calls.items():
                samples[way].append(_burst(call, given, repeats, clock))
    found: dict[str, Any] = {way: {"least_us": min(taken) * 1e6, "samples_s": taken} for way, taken in samples.items()}
    for other in ("cpp", "eager"):
        ratios = [ours / theirs for ours, theirs in zip(samples["silo"], samples[other], strict=True)]
        interval = median_interval(ratios, name)
        found[f"over_{other}"] = [interval.median, interval.low, interval.high]
    found["first_s"] = first
    return found


def _burst(call: Callable[..., Any], given: tuple[Any, ...], repeats: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(repeats):
        call(*given)
    return (clock() - begin) / repeats


def keep_freed_memory() -> bool:
    """Let freed memory stay in the process, where the C library is glibc; whether it does.

    Else each result of some megabytes may be given back to the system and be new pages in the next call, which costs
    more than many a kernel, and it is a matter of what was allocated before whose calls pay for it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 << 20)) and bool(mallopt(_M_TRIM_THRESHOLD, 1 << 30))


def line(name: str, row: dict[str, Any]) -> str:
    """A line of the table."""
    times = "".join(f"{row[way]['least_us']:10.1f}" for way in ("silo", "cpp", "eager"))
    low, high = row["over_cpp"][1:]
    return f"{name:18}{times}{row['over_cpp'][0]:8.2f} [{low:.2f}, {high:.2f}]{row['over_eager'][0]:8.2f}"


def verdict(found: dict[str, dict[str, Any]]) -> str:
    """Whether the bars are met."""
    ratios = {name: row["over_cpp"][0] for name, row in found.items()}
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    above = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items() if ratio > WORST) or "none"
    word = "met" if mean <= BAR and above == "none" else "missed"
    return f"geometric mean {mean:.2f} (bar {BAR}), above {WORST}: {above}; {word}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names have this text in them")
    parser.add_argument("--rounds", type=int, default=31, help="bursts of each (31)")
    parser.add_argument(
        "--cpu-time", action="store_true", help="time that this thread was on a CPU: where other programs run, too"
    )
    parser.add_argument(
        "--force", action="store_true", help="with a version of torch that Silo is not tested with, too"
    )
    parser.add_argument("--json", type=Path, help="keep the figures here")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if not keep_freed_memory():
        print("freed memory may go back to the system: results of some megabytes may take longer by chance")
    machine, found = describe(), {}
    clock = time.thread_time if given.cpu_time else time.perf_counter
    with inductor.enable(force=given.force) as enabled:
        if not enabled:
            parser.error(enabled.decision.reason)
        print(f"{'microseconds':18}{'Silo':>10}{'C++':>10}{'eager':>10}{'over C++':>9}{'':14}{'over eager':>11}")
        for name, make in models().items():
            if given.only in name:
                found[name] = measure(name, make, given.rounds, clock)
                print(line(name, found[name]), flush=True)
    print(verdict(found))
    if given.json:
        save(given.json, machine, {"rows": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
