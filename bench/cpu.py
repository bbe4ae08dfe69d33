"""The example kernels on the CPU against torch eager and the Triton interpreter.

    python bench/cpu.py [--quick] [--threads N] [--no-interpreter] [--output FILE]

Silo and torch are timed in turns within one process with equal thread counts; a row is the median of the paired ratios
(Silo's time over torch's: below 1 Silo is faster). The interpreter runs one launch in a process of its own, on a small
size, and is scaled up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from machine import describe

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))


@dataclass
class Workload:
    """One row: how Silo and torch do the same thing, and how to check that they do."""

    name: str
    silo: Callable[[], object]
    torch: Callable[[], object]
    check: Callable[[], float]


@dataclass
class Row:
    """One measured row; times in milliseconds."""

    name: str
    threads: int
    silo_ms: float
    torch_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    max_error: float
    interpreter_s: float | None = None


def workloads(*, quick: bool) -> list[Workload]:
    """The rows. Sizes are those for which the bars are stated; ``quick`` shrinks them."""
    import kernels
    import torch

    torch.manual_seed(0)
    rows: list[Workload] = []

    n = 1 << (20 if quick else 24)
    x, y, out, reference = torch.randn(n), torch.randn(n), torch.empty(n), torch.empty(n)
    rows.append(
        Workload(
            f"add fp32 {n}",
            lambda: kernels.add(x, y, out, n),
            lambda: torch.add(x, y, out=reference),
            lambda: float((out - reference).abs().max()),
        )
    )

    side = 1024 if quick else 4096
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    rows += [_softmax(kernels, torch, side, dtype) for dtype in dtypes]
    rows += [_layer_norm(kernels, torch, side, dtype) for dtype in dtypes]
    size = 512 if quick else 1024
    rows += [_matmul(kernels, torch, size, dtype) for dtype in (torch.float32, torch.bfloat16)]
    rows.append(_attention(kernels, torch, 512 if quick else 1024))
    rows.append(_dropout(kernels, torch, 1 << (20 if quick else 24)))
    return rows


def _name(dtype: object) -> str:
    return {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[str(dtype).removeprefix("torch.")]


def _softmax(kernels, torch, side, dtype) -> Workload:
    x, out = torch.randn(side, side).to(dtype), torch.empty(side, side, dtype=dtype)
    reference = torch.empty_like(out)
    return Workload(
        f"softmax {_name(dtype)} {side}x{side}",
        lambda: kernels.softmax(out, x, side, side, side, side),
        lambda: torch.softmax(x, dim=-1, out=reference),
        lambda: float((out.float() - torch.softmax(x.float(), dim=-1)).abs().max()),
    )


def _layer_norm(kernels, torch, side, dtype) -> Workload:
    x, out = torch.randn(side, side).to(dtype), torch.empty(side, side, dtype=dtype)
    weight, bias = torch.rand(side).to(dtype), torch.randn(side).to(dtype)
    mean, rstd = torch.empty(side), torch.empty(side)
    compute, reference = torch.ops.aten.native_layer_norm.out, torch.empty_like(out)
    statistic = torch.empty(2, side, 1, dtype=torch.float32 if dtype == torch.float32 else dtype)
    return Workload(
        f"layer norm {_name(dtype)} {side}x{side}",
        lambda: kernels.layer_norm(x, out, weight, bias, mean, rstd, side, side, side, 1e-5),
        lambda: compute(x, (side,), weight, bias, 1e-5, out0=reference, out1=statistic[0], out2=statistic[1]),
        lambda: float(
            (out.float() - torch.nn.functional.layer_norm(x.float(), (side,), weight.float(), bias.float(), 1e-5))
            .abs()
            .max()
        ),
    )


def _matmul(kernels, torch, size, dtype) -> Workload:
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    c, reference = torch.empty(size, size, dtype=dtype), torch.empty(size, size, dtype=dtype)
    return Workload(
        f"matmul {_name(dtype)} {size}^3",
        lambda: kernels.matmul(a, b, c, size, size, size, size, 1, size, 1, size, 1, ACTIVATION=""),
        lambda: torch.matmul(a, b, out=reference),
        lambda: float((c.float() - a.float() @ b.float()).abs().max()),
    )


def _attention(kernels, torch, length) -> Workload:
    heads, depth = 8, 64
    q, k, v = (torch.randn(heads, length, depth) for _ in range(3))
    out = torch.empty_like(q)
    scale = depth**-0.5

    def reference():
        return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, scale=scale)[
            0
        ]

    return Workload(
        f"attention fp32 {heads}x{length}x{depth}",
        lambda: kernels.attention(q, k, v, out, scale, heads, length, D=depth),
        reference,
        lambda: float((out - reference()).abs().max()),
    )


def _dropout(kernels, torch, n) -> Workload:
    x, out = torch.randn(n), torch.empty(n)

    def error() -> float:
        kept = out != 0
        return float((out[kept] - x[kept] / (1 - 0.25)).abs().max())

    return Workload(
        f"dropout fp32 {n}",
        lambda: kernels.dropout(x, out, n, 0.25, 1234),
        lambda: torch.nn.functional.dropout(x, 0.25),
        error,
    )


def measure(workload: Workload, threads: int, *, rounds: int, seconds: float) -> Row:
    """Time both sides in turns."""
    for _ in range(3):
        workload.silo()
        workload.torch()
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < rounds or (time.perf_counter() < end and len(pairs) < 10 * rounds):
        sides = [workload.silo, workload.torch] if len(pairs) % 2 == 0 else [workload.torch, workload.silo]
        taken = {}
        for side in sides:
            begin = time.perf_counter()
            side()
            taken[side] = time.perf_counter() - begin
        pairs.append((taken[workload.silo], taken[workload.torch]))
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    workload.silo()
    return Row(
        name=workload.name,
        threads=threads,
        silo_ms=1e3 * statistics.median(ours for ours, _ in pairs),
        torch_ms=1e3 * statistics.median(theirs for _, theirs in pairs),
        ratio=statistics.median(ratios),
        ratio_low=ratios[len(ratios) // 4],
        ratio_high=ratios[3 * len(ratios) // 4],
        max_error=workload.check(),
    )


INTERPRETER = """
import sys, time
sys.path.insert(0, {examples!r})
import kernels, torch
f = kernels
def seconds(run):
    begin = time.perf_counter(); run(); return time.perf_counter() - begin
n, side, length = 1 << 16, 1024, 128
x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
m, mo = torch.randn(8, side), torch.empty(8, side)
w, b, mean, rstd = torch.rand(side), torch.randn(side), torch.empty(8), torch.empty(8)
a, bb, c = torch.randn(128, 128), torch.randn(128, 128), torch.empty(128, 128)
q = torch.randn(1, length, 64); qo = torch.empty_like(q)
for name, work, run in [
    ("add", n, lambda: f.add[(n // 1024,)](x, y, out, n, BLOCK=1024)),
    ("softmax", 8 * side, lambda: f.softmax[(8,)](mo, m, side, side, 8, side, BLOCK=side)),
    ("layer norm", 8 * side, lambda: f.layer_norm[(8,)](m, mo, w, b, mean, rstd, side, 8, side, 1e-5, BLOCK=1024)),
    ("matmul", 128 ** 3, lambda: f.matmul[(4,)](a, bb, c, 128, 128, 128, 128, 1, 128, 1, 128, 1, "", 64, 64, 64, 8)),
    ("attention", length * length * 64, lambda: f.attention[(2, 1)](q, q, q, qo, 0.125, 1, length, 64, 64, 64)),
    ("dropout", n, lambda: f.dropout[(n // 1024,)](x, out, n, 0.25, 7, BLOCK=1024)),
]:
    run()
    print(name, work, min(seconds(run) for _ in range(2)), sep="\\t")
"""


def interpreter_seconds() -> dict[str, float]:
    """Seconds per unit of work (elements, or multiply-adds) in Triton's interpreter, by kernel."""
    from silo.settings import child_environment

    code = INTERPRETER.format(examples=str(ROOT / "examples"))
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=child_environment(TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        print(f"interpreter: {result.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    lines = [line.split("\t") for line in result.stdout.splitlines() if line.count("\t") == 2]
    return {name: float(seconds) / float(work) for name, work, seconds in lines}


def _work(name: str) -> float:
    """Units of work of a row, in the interpreter's terms."""
    size = name.rsplit(maxsplit=1)[-1]
    if "^" in size:
        return float(size.split("^")[0]) ** 3
    extents = [float(part) for part in size.split("x")]
    if name.startswith("attention"):
        heads, length, depth = extents
        return heads * length * length * depth
    product = 1.0
    for extent in extents:
        product *= extent
    return product


def main() -> None:
    """Measure, print the table, keep JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="thread counts")
    parser.add_argument("--no-interpreter", action="store_true")
    parser.add_argument("--output", type=Path, help="where to keep the JSON")
    options = parser.parse_args()

    import torch

    from silo.launch.threads import cpu_threads

    interpreter = {} if options.no_interpreter else interpreter_seconds()
    rows: list[Row] = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        cpu_threads(threads)
        for workload in workloads(quick=options.quick):
            row = measure(workload, threads, rounds=9, seconds=1.0 if options.quick else 3.0)
            # The interpreter was timed in fp32.
            unit = next((cost for name, cost in interpreter.items() if row.name.startswith(f"{name} fp32")), None)
            row.interpreter_s = None if unit is None else unit * _work(row.name)
            rows.append(row)
            slow = (
                ""
                if row.interpreter_s is None
                else f"  interpreter {row.interpreter_s * 1e3 / row.silo_ms:8.0f}x slower"
            )
            print(
                f"{row.name:28} {threads} thread(s)  silo {row.silo_ms:9.3f} ms  torch {row.torch_ms:9.3f} ms  "
                f"ratio {row.ratio:5.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]  error {row.max_error:.2g}{slow}",
                flush=True,
            )
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(
            json.dumps({"machine": describe(), "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
