"""A server's pattern on the CPU: kernels that were warmed up with other integers than the requests bring.

    python -m bench.existing_serving [--requests 40] [--json FILE]

Twelve kernels are warmed up with sizes that are multiples of 16. Each request launches all of them with its own sizes:
some are 1, some multiples of 16, some not, some of 64 bits. Triton compiles a variant for each of these classes while
it serves. A frozen bundle that was recorded over the warm-up alone serves all of them. The output has the times of
both, in processes that start with the same Triton cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

KERNELS = 12
HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = """

@triton.jit
def kernel_{number}(x, out, n, stride, offset, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride + offset % 2, mask=i < n) * {number} + offset, mask=i < n)
"""


def serve(folder: Path, requests: int) -> None:
    """Run one process: warm up, then serve the requests; print each request's milliseconds and the compiles."""
    import torch
    from triton.compiler import compiler

    compiles: list[int] = []
    own = compiler.make_backend

    def make_backend(target: Any) -> Any:
        made = own(target)
        stages = made.add_stages

        def add_stages(*args: Any, **kwargs: Any) -> Any:
            compiles.append(1)
            return stages(*args, **kwargs)

        made.add_stages = add_stages
        return made

    compiler.make_backend = make_backend
    sys.path.insert(0, str(folder))
    module: Any = __import__("served_kernels")
    kernels = [getattr(module, f"kernel_{number}") for number in range(KERNELS)]
    x, out = torch.ones(1 << 16), torch.empty(1 << 14)

    def request(n: int, stride: int, offset: int) -> float:
        begin = time.perf_counter()
        for kernel in kernels:
            kernel[(-(-n // 64),)](x, out, n, stride, offset, BLOCK=64)
        taken = time.perf_counter() - begin
        assert out[n - 1] == KERNELS - 1 + offset
        return taken * 1e3

    for n in (1024, 2048):
        request(n, 16, 16)
    warm = len(compiles)
    sizes = [(1024, 16, 16), (1000, 16, 32), (1, 1, 7), (640, 3, 0), (77, 1, 16), (512, 2, 1)]
    taken = [request(*sizes[number % len(sizes)]) for number in range(requests)]
    print(json.dumps({"ms": taken, "warm_compiles": warm, "serving_compiles": len(compiles) - warm}))


def run(folder: Path, name: str, requests: int, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "silo", "exec", *options] if options else [sys.executable]
    own = {"TRITON_CACHE_DIR": str(folder / name), "SILO_HOME": str(folder / "home"), "SILO_TRITON": "cpu"}
    words = ["-m", "bench.existing_serving", "--folder", str(folder), "--requests", str(requests)]
    done = subprocess.run([*command, *words], env={**os.environ, **own}, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    taken = sorted(found.pop("ms"))
    return {
        "way": name,
        **found,
        "median_ms": statistics.median(taken),
        "p99_ms": taken[min(len(taken) - 1, round(0.99 * (len(taken) - 1)))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.folder is not None:
        serve(options.folder, options.requests)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "served_kernels.py").write_text(HEAD + "".join(KERNEL.format(number=one) for one in range(KERNELS)))
        run(folder, "recording", 0, "--record", str(folder / "K.silo"))
        own = row("Triton", run(folder, "triton", options.requests))
        frozen = row(
            "bundle, frozen", run(folder, "frozen", options.requests, "--bundle", str(folder / "K.silo"), "--frozen")
        )
    print("| | compiles while warming | while serving | median ms | p99 ms |\n| --- | --- | --- | --- | --- |")
    for one in (own, frozen):
        print(
            f"| {one['way']} | {one['warm_compiles']} | {one['serving_compiles']} | {one['median_ms']:.2f} "
            f"| {one['p99_ms']:.2f} |"
        )
    if options.json is not None:
        from bench.machine import describe

        options.json.write_text(json.dumps({"rows": [own, frozen], "machine": describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
