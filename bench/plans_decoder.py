"""A decoder step of 60 kernels whose cache grows by one token: as a plan, as single launches, as torch's CUDA graphs.

Run with ``python -m bench.plans_decoder``, on a GPU if torch has one, else on the CPU (without Triton's own launches
and without graphs). ``examples/decoder_plan.py`` has the model. Every row makes the same tokens; the rows take turns of
some tokens. After each token the program waits for it, as a program that samples tokens has to. The host's time ends
when the step is enqueued, the whole time when it is done, in microseconds for each token. CUDA graphs hold grids and
arguments, so their row has a graph for each bucket of lengths; its inputs are copied, and its kernels read the true
length from memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import silo
from bench.machine import describe
from bench.paired import median_interval, ratios

ROOT = Path(__file__).resolve().parents[1]
FLOOR = "Silo, one by one"


def example() -> Any:
    """Import and return the module ``examples/decoder_plan.py``."""
    spec = importlib.util.spec_from_file_location("decoder_plan", ROOT / "examples" / "decoder_plan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["decoder_plan"] = module
    spec.loader.exec_module(module)
    return module


class Row(Protocol):
    """One way to make a token: takes ``hidden`` and the token's position, and returns the array with the result."""

    def __call__(self, hidden: Any, at: int, /) -> Any:
        """Enqueue the step of one token."""
        ...


def plan_row(model: Any, array: Callable[[np.ndarray], Any], longest: int) -> tuple[Row, Any]:
    """Return a row that replays a plan, and the plan; the token at position 0 records it."""
    decoder = model.Decoder(array, longest)
    plan = silo.plan(decoder.step, array(np.zeros(model.WIDTH, np.float32)), 0)

    def make(hidden: Any, at: int) -> Any:
        plan(hidden, at)
        return hidden

    return make, plan


def launched_row(model: Any, array: Callable[[np.ndarray], Any], longest: int, kernels: Any) -> Row:
    """Return a row of single launches, by Silo's kernels or by Triton."""
    decoder = model.Decoder(array, longest)

    def make(hidden: Any, at: int) -> Any:
        decoder.step(hidden, at, kernels)
        return hidden

    return make


def graphs_row(model: Any, array: Callable[[np.ndarray], Any], longest: int, bucket: int) -> tuple[Row, dict[str, Any]]:
    """Return a row that replays torch's CUDA graphs of Triton's launches, one graph for each bucket of lengths.

    Also returns the number of graphs, and the seconds and bytes that capturing them took.
    """
    import torch

    decoder = model.Decoder(array, longest)
    hidden = array(np.zeros(model.WIDTH, np.float32))
    place = torch.zeros(1, dtype=torch.int32, device="cuda")
    begin, before = time.perf_counter(), torch.cuda.mem_get_info()[0]
    graphs: list[Any] = []
    for size in range(bucket, longest + 1, bucket):
        parts = size // model.PART
        decoder.step(hidden, place, model.TRITON, parts, loaded=True)  # compiles the kernels before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=graphs[0].pool() if graphs else None):
            decoder.step(hidden, place, model.TRITON, parts, loaded=True)
        graphs.append(graph)
    torch.cuda.synchronize()
    facts = {
        "graphs": len(graphs),
        "seconds": time.perf_counter() - begin,
        "bytes": before - torch.cuda.mem_get_info()[0],
    }

    held = (graphs, decoder)  # kept, because graphs hold only the addresses of the decoder's arrays

    def make(given: Any, at: int) -> Any:
        hidden.copy_(given)
        place.fill_(at)
        held[0][at // bucket].replay()
        return hidden

    return make, facts


def measure(rows: dict[str, Row], model: Any, tokens: int, stretch: int, array: Any, back: Any, wait: Any) -> Any:
    """Measure every row; return its samples (host us, whole us) of each token, and compare the results of all rows.

    If the results of another library's row differ, the row is dropped with a message; if those of Silo differ, the run
    ends.
    """
    chance = np.random.default_rng(3)
    inputs = [chance.standard_normal(model.WIDTH).astype(np.float32) for _ in range(tokens)]
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    for first in range(0, tokens, stretch):
        results: dict[str, list[np.ndarray]] = {name: [] for name in rows}
        for name, make in rows.items():
            for at in range(first, min(first + stretch, tokens)):
                hidden = array(inputs[at].copy())
                wait()
                begin = time.perf_counter_ns()
                made = make(hidden, at)
                host = time.perf_counter_ns()
                wait()
                samples[name].append(((host - begin) / 1000, (time.perf_counter_ns() - begin) / 1000))
                results[name].append(back(made).copy())
        floor = np.stack(results[FLOOR])
        for name, found in results.items():
            if np.allclose(np.stack(found), floor, rtol=1e-4, atol=1e-4):
                continue
            difference = f"{name} computed other tokens than {FLOOR}, between {first} and {first + stretch}"
            if name in {"silo.plan", FLOOR}:
                raise SystemExit(difference)
            print(f"left out: {difference}")
            del rows[name], samples[name]
    return samples


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="bench.plans_decoder", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1024, help="a multiple of --bucket (default: %(default)s)")
    parser.add_argument("--stretch", type=int, default=64, help="tokens between turns (default: %(default)s)")
    parser.add_argument("--bucket", type=int, default=128, help="lengths of one CUDA graph (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="keep every sample")
    given = parser.parse_args(arguments)
    model = example()
    device, array, back = model.place()
    rows: dict[str, Row] = {}
    facts: dict[str, Any] = {}
    rows["silo.plan"], plan = plan_row(model, array, given.tokens)
    rows[FLOOR] = launched_row(model, array, given.tokens, model.SILO)
    wait: Callable[[], object] = lambda: None  # noqa: E731  # a launch on the CPU has ended when it returns
    if device == "cuda":
        import torch

        wait = torch.cuda.synchronize
        rows["Triton, one by one"] = launched_row(model, array, given.tokens, model.TRITON)
        graphs, facts = graphs_row(model, array, given.tokens, given.bucket)
        rows[f"torch.cuda.graph, buckets of {given.bucket}"] = graphs
    samples = measure(rows, model, given.tokens, given.stretch, array, back, wait)
    print(f"60 kernels a token on {device}, {given.tokens} tokens\n")
    print("| | host us | whole us | whole, of one by one |\n| --- | ---: | ---: | ---: |")
    kept: dict[str, Any] = {}
    for name, found in samples.items():
        steady = found[given.stretch :] or found  # without the first tokens, which compile and record
        host, whole = [one[0] for one in steady], [one[1] for one in steady]
        part = ratios(whole, [one[1] for one in (samples[FLOOR][given.stretch :] or samples[FLOOR])])
        medians = [median_interval(each, name).median for each in (host, whole, part)]
        print(f"| {name} | {medians[0]:.1f} | {medians[1]:.1f} | {medians[2]:.2f} |")
        kept[name] = {"host_us": host, "whole_us": whole, "part": part}
    print(f"\n{plan.report()}")
    if facts:
        print(f"{facts['graphs']} graphs captured in {facts['seconds']:.1f} s, {facts['bytes'] / 2**20:.0f} MiB")
    if given.json is not None:
        result = {"machine": describe(), "device": device, "tokens": given.tokens, "bucket": given.bucket}
        given.json.write_text(json.dumps({**result, "graphs": facts, "rows": kept, "report": str(plan.report())}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
