"""Launches of unchanged Triton programs, by Triton and by Silo in turns in one process, over the stub driver.

    python -m bench.existing [--json FILE] [--rounds 60]

To use another Triton, put its folder on PYTHONPATH. Needs torch and gcc, and no GPU. The figures are ratios of the
least times over all bursts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BURST = 300

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def plain(a, b, c, d, e, n, m, p, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(e + i, tl.load(a + i, mask=i < n) + tl.load(b + i) + tl.load(c + i) + tl.load(d + i) + m * p, mask=i < n)


@triton.jit
def described(a, b, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * 16
    value = a.load([at, 0]) + b.load([at, 0])
    tl.store(out + (at + tl.arange(0, 16))[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], value)


@triton.jit
def scratched(a, out, m, BLOCK: tl.constexpr):
    one = tl.make_tensor_descriptor(a, [m, BLOCK], [BLOCK, 1], [16, BLOCK])
    tl.store(out + tl.arange(0, 16)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :], one.load([0, 0]))


CONFIGS = [triton.Config({"BLOCK": 256}, num_warps=4), triton.Config({"BLOCK": 512}, num_warps=8)]
tuned = triton.autotune(CONFIGS, key=["n"])(plain)
guessed = triton.heuristics({"BLOCK": lambda given: 256})(plain)
"""


def cases(folder: Path) -> dict[str, Callable[[], object]]:
    """Return the launches to measure, by name."""
    import torch
    import triton
    from triton.tools.tensor_descriptor import TensorDescriptor

    import triton_on_stub  # pyright: ignore[reportMissingImports]
    from bench.launch import stub as launch_stub

    triton_on_stub.install()
    launch_stub._torch_as_gpu(folder)  # noqa: SLF001
    (folder / "kernels_of_the_bench.py").write_text(KERNELS)
    sys.path.insert(0, str(folder))
    kernels: Any = __import__("kernels_of_the_bench")
    tuner = kernels.tuned

    def bench(call: Callable[[], object], quantiles: object) -> list[float]:
        del quantiles
        call()
        return [1.0] * 3

    tuner.do_bench = tuner._do_bench = bench  # noqa: SLF001
    tensors = [torch.zeros(4096) for _ in range(5)]
    for one in tensors:
        triton_on_stub.stub().register(one.data_ptr(), 4 * 4096)
    a, b, c, d, e = tensors
    plain, guessed, grid = kernels.plain, kernels.guessed, (4,)
    options = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
    descriptors = [TensorDescriptor.from_tensor(one.view(64, 64), [16, 64]) for one in (a, b)]

    def scratch(size: int, alignment: int, stream: int | None) -> Any:
        del size, alignment, stream
        return d

    triton.set_allocator(scratch)
    warm = plain.warmup(a, b, c, d, e, 4096, 3, 5, BLOCK=256, grid=(1,))
    described, scratched = kernels.described, kernels.scratched
    return {
        "kernel[grid](2 descriptors + 1 pointer)": lambda: described[grid](*descriptors, e, BLOCK=64),
        "kernel[grid](...) with scratch memory": lambda: scratched[grid](a, e, 64, BLOCK=64),
        "compiled[grid](5 pointers + 3 ints)": lambda: warm[4, 1, 1](a, b, c, d, e, 4096, 3, 5, 256),
        "kernel[grid](5 pointers + 3 ints)": lambda: plain[grid](a, b, c, d, e, 4096, 3, 5, BLOCK=256),
        "run(...) as tuners call it": lambda: plain.run(
            a, b, c, d, e, 4096, 3, 5, grid=grid, warmup=False, BLOCK=256, **options
        ),
        "tuned[grid](...)": lambda: tuner[grid](a, b, c, d, e, 4096, 3, 5),
        "heuristics[grid](...)": lambda: guessed[grid](a, b, c, d, e, 4096, 3, 5),
        "tuned.run(...)": lambda: tuner.run(a, b, c, d, e, 4096, 3, 5, grid=grid, warmup=False),
        "heuristics.run(...)": lambda: guessed.run(a, b, c, d, e, 4096, 3, 5, grid=grid, warmup=False),
    }


@contextlib.contextmanager
def wrapped_tuners() -> Generator[None]:
    """Inside the block, replace the tuners' ``run`` by a function that calls the original, as programs do."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    kinds: list[Any] = [Autotuner, Heuristics]
    before = [kind.run for kind in kinds]

    def wrapper(run: Any) -> Any:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            return run(self, *args, **kwargs)

        return wrapped

    for kind in kinds:
        kind.run = wrapper(kind.run)
    try:
        yield
    finally:
        for kind, run in zip(kinds, before, strict=True):
            kind.run = run


@contextlib.contextmanager
def watched_tuners() -> Generator[None]:
    """Watch the tuners' decisions inside the block, as ``silo exec --record`` and ``--bundle`` do."""
    from silo.kinds.triton.front.adapter import watch_autotuners

    class Nothing:
        def decision_for(self, tuner: Any, key: Any, configs: Any) -> Any:
            del tuner, key, configs

        def decided(self, tuner: Any, key: Any, config: Any) -> Any:
            del tuner, key
            return config

    from silo.kinds.triton.programs.triton_patching import beneath_tuners

    undo = beneath_tuners(lambda: watch_autotuners(Nothing()))
    try:
        yield
    finally:
        beneath_tuners(undo)


@contextlib.contextmanager
def hooked_launches() -> Generator[None]:
    """Call a hook before and after each launch inside the block, as profilers do."""
    from triton import knobs

    runtime: Any = knobs.runtime
    chains = (runtime.launch_enter_hook, runtime.launch_exit_hook)
    for chain in chains:
        chain.add(_seen)
    try:
        yield
    finally:
        for chain in chains:
            chain.remove(_seen)


def _seen(metadata: object) -> None:
    del metadata


WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "": contextlib.nullcontext,
    ", in a program's wrapper": wrapped_tuners,
    ", recorded or served": watched_tuners,
    ", seen by hooks": hooked_launches,
}


def burst_us(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(BURST):
        call()
    return (time.perf_counter() - begin) / BURST * 1e6


def measure(rounds: int) -> dict[str, Any]:
    import triton

    import silo
    import triton_on_stub  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as name:
        found = cases(Path(name))
        best: dict[str, list[float]] = {}
        for call in found.values():
            call()
        triton_on_stub.stub().record(on=False)
        for _ in range(rounds):
            for way, around in WAYS.items():
                of = ("kernel[grid](5",) if around is hooked_launches else ("tuned", "heur")
                calls = {one: call for one, call in found.items() if not way or one.startswith(of)}
                with around():
                    for one, call in calls.items():
                        row = best.setdefault(one + way, [1e9, 1e9])
                        row[0] = min(row[0], burst_us(call))
                    with silo.accelerate():
                        for one, call in calls.items():
                            call()  # Triton itself makes the first launch
                            call()
                            best[one + way][1] = min(best[one + way][1], burst_us(call))
    rows = [{"case": one, "triton_us": own, "silo_us": ours, "ratio": ours / own} for one, (own, ours) in best.items()]
    return {"triton": triton.__version__, "rounds": rounds, "burst": BURST, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT / "tests" / "samples"), str(ROOT / "tests")]
    if "SILO_TEST_STUB" not in os.environ:
        import triton_on_stub  # pyright: ignore[reportMissingImports]

        environment = triton_on_stub.environment(devices=1, SILO_HIP_LIBRARY="/nonexistent")
        command = [sys.executable, "-m", "bench.existing", *sys.argv[1:]]
        sys.exit(subprocess.run(command, check=False, env=environment).returncode)
    result = measure(options.rounds)
    print(f"Triton {result['triton']}, stub driver, minima of {options.rounds} rounds of {BURST} launches, in turns")
    print("| | Triton us | Silo us | ratio |\n| --- | --- | --- | --- |")
    for row in result["rows"]:
        print(f"| {row['case']} | {row['triton_us']:.2f} | {row['silo_us']:.2f} | {row['ratio']:.3f} |")
    if options.json is not None:
        from bench.machine import describe

        options.json.write_text(json.dumps({**result, "machine": describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
