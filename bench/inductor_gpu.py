"""Models under ``torch.compile`` on a GPU, with Silo and without: tuning, first calls, steps, and fresh machines.

``python -m bench.inductor_gpu`` runs a 16-block MLP and a small decoder in ``max-autotune-no-cudagraphs``. Every row is
a process of its own. It counts the measurements of torch's tuner. Triton's compiles are counted by the files that
appear in Triton's cache, which include those of torch's compile workers. Rows, for torch alone and with Silo:

- ``cold``: every cache is empty,
- ``second``: the same machine again,
- ``fresh``: a machine without torch's and Triton's caches; with Silo, its store was carried along,
- ``served``: a machine without any cache, served frozen from the one file that ``cold`` recorded; with Silo only,
- ``ranks``: two processes at once with empty caches; it counts the kernels whose configs differ between the two graphs,
  or that only one graph has.

An *early* step comes right after the first call; the other steps come two seconds later. In the cold row with Silo a
recording is on.

Rows that do not fit into ``--minutes`` are left out, and named; rows with Silo come first. Each process compares its
result with eager torch's. It begins once torch's compile workers have started; otherwise the first calls of some rows
would have workers and those of others would not. A process before the first row brings torch's and Triton's files into
the page cache, and is not measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe, save

MODELS = ("mlp", "decoder")
ROWS = ("cold", "second", "fresh", "served", "ranks")
# The order of the rows of all models: the most important come first, in case the time runs out.
TURNS = (
    (("cold", "silo"), ("second", "silo"), ("served", "silo"), ("ranks", "silo")),
    (("cold", "torch"), ("second", "torch")),
    (("fresh", "silo"), ("fresh", "torch"), ("ranks", "torch")),
)
EARLY_STEPS, STEPS = 30, 200
PAUSE_S = 2.0  # pause between early and other steps, in which threads that compile or write files end


# ---- One process ----


def _model(name: str, torch: Any) -> tuple[Any, Any]:
    """Return a bfloat16 model on the GPU, and its input."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            return x + self.down(functional.gelu(self.up(self.norm(x))))

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.block = nn.LayerNorm(width), Block(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.qkv(self.norm(x)).view(batch, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            return self.block(x + self.out(attended.transpose(1, 2).reshape(batch, length, width)))

    torch.manual_seed(0)
    if name == "mlp":
        made, shape = nn.Sequential(*(Block(1024) for _ in range(16))), (512, 1024)
    else:
        made, shape = nn.Sequential(*(Layer(512) for _ in range(4)), nn.LayerNorm(512)), (4, 256, 512)
    return made.cuda().bfloat16().eval(), torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def _configs(heuristics: Any, codecache: Any) -> dict[str, str]:
    """Return the name and config of each kernel of a graph, by a hash of its body.

    Code that torch only tried out is left out.
    """
    found: dict[str, str] = {}
    for module in list(codecache.PyCodeCache.modules):
        if not hasattr(module, "call") or hasattr(module, "benchmark_all_configs"):
            continue
        for value in list(vars(module).values()):
            if isinstance(value, heuristics.CachingAutotuner) and len(value.launchers) == 1:
                body = value.fn.src.partition("(")[2]
                key = hashlib.sha256(f"{body} {value.size_hints}".encode()).hexdigest()[:16]
                config = value.launchers[0].config
                members = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
                found[key] = f"{value.fn.__name__} {sorted(members.items())}"
    return found


def _waited(compiling: Any) -> bool:
    """Wait up to two minutes for torch's compile workers; return whether they have started."""
    end = time.monotonic() + 120
    while not compiling.AsyncCompile.use_process_pool() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(compiling.AsyncCompile.use_process_pool())


def _times_s(utils: Any) -> dict[str, float]:
    """Return the seconds of torch's twelve longest compile phases by name; one phase may be part of another."""
    sums = {str(name): sum(times) for name, times in getattr(utils, "compilation_time_metrics", {}).items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1])[:12])


def _step_times(torch: Any, compiled: Any, x: Any, steps: int) -> tuple[list[float], list[float]]:
    """Run some steps. Return the seconds of each until the GPU has finished, and until the call has returned."""
    until_done: list[float] = []
    until_returned: list[float] = []
    torch.cuda.synchronize()
    for _ in range(steps):
        begin = time.perf_counter()
        compiled(x)
        until_returned.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        until_done.append(time.perf_counter() - begin)
    return until_done, until_returned


def child(model: str, way: str) -> dict[str, Any]:
    """Compile and run a model in this process; return its figures."""
    import torch  # imported here, because the parent process needs no torch

    enabled: Any = None
    if way == "silo":
        from silo.integrations import inductor
        from silo.kinds.triton.programs.records.capture_activation import record, replay

        if file := os.environ.get("BENCH_RECORD"):
            record(file)
        if file := os.environ.get("BENCH_BUNDLE"):
            replay(file, frozen=True)
        enabled = inductor.enable("cuda")
    from torch._dynamo import utils
    from torch._inductor import async_compile, codecache
    from torch._inductor.runtime import triton_heuristics as heuristics

    measured = {"kernels": 0, "choices": 0}
    bench = heuristics.CachingAutotuner.bench
    lookup = codecache.PersistentCache.lookup

    def counted_bench(*args: Any, **options: Any) -> Any:
        measured["kernels"] += 1
        return bench(*args, **options)

    def counted_lookup(
        self: Any, choices: Any, op: str, inputs: str, benchmark: Any, *rest: Any, **options: Any
    ) -> Any:
        def counted(given: Any) -> Any:
            measured["choices"] += len(given)
            return benchmark(given)

        return lookup(self, choices, op, inputs, None if benchmark is None else counted, *rest, **options)

    heuristics.CachingAutotuner.bench = counted_bench
    codecache.PersistentCache.lookup = counted_lookup
    with torch.no_grad():
        plain, x = _model(model, torch)
        expected = plain(x)
        torch.cuda.synchronize()
        workers = _waited(async_compile)
        compiled = torch.compile(plain, mode="max-autotune-no-cudagraphs", fullgraph=True)
        begin = time.perf_counter()
        found = compiled(x)
        torch.cuda.synchronize()
        first_s = time.perf_counter() - begin
        torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)
        for _ in range(5):
            compiled(x)
        torch.cuda.synchronize()
        early_steps, _ = _step_times(torch, compiled, x, EARLY_STEPS)
        time.sleep(PAUSE_S)
        compiled(x)
        steps, hosts = _step_times(torch, compiled, x, STEPS)
    configs = _configs(heuristics, codecache)
    launchers = [
        hasattr(one, "silo_kernel")
        for module in list(codecache.PyCodeCache.modules)
        for value in list(vars(module).values())
        if isinstance(value, heuristics.CachingAutotuner)
        for one in value.launchers
    ]
    return {
        "first_s": first_s,
        "phases_s": _times_s(utils),
        "workers": workers,
        "early_step_us": statistics.median(early_steps) * 1e6,
        "step_us": statistics.median(steps) * 1e6,
        "host_us": statistics.median(hosts) * 1e6,
        "measured": measured,
        "kernels": len(launchers),
        "by_silo": sum(launchers),
        "configs": configs,
        "result": hashlib.sha256(found.float().cpu().numpy().tobytes()).hexdigest()[:16],
        "parts": None if enabled is None else {name: part.reason for name, part in enabled.parts.items()},
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }


# ---- The processes of a row ----


def _environment(folder: Path, home: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "SILO_HOME": str(home),
        **more,
    }


def _binaries(folder: Path) -> int:
    return sum(1 for _ in folder.glob("triton/**/*.cubin"))


def _start(model: str, way: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.inductor_gpu", "--child", model, way]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _own_line(text: str) -> str:
    r"""The line of the last exception in a traceback, without the hints that torch adds.

    >>> _own_line("  File 'x'\ntorch.exc.InductorError: FrozenError: no code\n\nSet TORCH_LOGS=+dynamo")
    'torch.exc.InductorError: FrozenError: no code'
    """
    lines = [one.strip() for one in text.splitlines() if one.strip()]
    named = [one for one in lines if re.match(r"[\w.]+(Error|Exception|Interrupt|Exit)\b", one)]
    return (named or lines or ["it ended without a word"])[-1]


def _finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, error = process.communicate()
    line = next((one for one in out.splitlines() if one.startswith("{")), None)
    if process.returncode or line is None:
        return {"failed": _own_line(error or out), "log": (error or out)[-4000:]}
    return {**json.loads(line), "log": [one for one in error.splitlines() if "silo" in one.lower()][-8:]}


def run_row(model: str, way: str, row: str, places: Path) -> dict[str, Any]:
    """Return the figures of one row; ``places`` has the folders of earlier rows of the same model and way."""
    kept, home, bundle = places / "kept", places / "home", places / "recorded.silo"
    places.mkdir(parents=True, exist_ok=True)
    if row == "ranks":
        shared = places / "ranks"
        started = [
            _start(model, way, _environment(shared / str(rank), shared / "home", SILO_QUIET="1")) for rank in range(2)
        ]
        found = [_finish(one) for one in started]
        if any("failed" in one for one in found):
            return next(one for one in found if "failed" in one)
        one, other = (rank["configs"] for rank in found)
        differ = [[one.get(key), other.get(key)] for key in {**one, **other} if one.get(key) != other.get(key)]
        same = found[0]["result"] == found[1]["result"]
        return {**found[0], "ranks_differ": differ, "same_result": same, "other_first_s": found[1]["first_s"]}
    folder = kept if row in ("cold", "second") else places / row
    environment = _environment(folder, places / "empty" if row == "served" else home)
    if row == "cold" and way == "silo":
        environment["BENCH_RECORD"] = str(bundle)
    if row == "served":
        environment["BENCH_BUNDLE"] = str(bundle)
    before = _binaries(folder)
    found = _finish(_start(model, way, environment))
    return {**found, "compiled": _binaries(folder) - before}


def line(model: str, way: str, row: str, found: dict[str, Any]) -> str:
    """Return a line of the table."""
    if "failed" in found:
        return f"{model:8} {way:6} {row:7} failed: {found['failed']}"
    measured = found["measured"]
    more = ""
    if "ranks_differ" in found:
        same = "equal" if found["same_result"] else "differ"
        more = f"  {len(found['ranks_differ'])} kernels of {len(found['configs'])} differ, results {same}"
    if "as_cold" in found:
        more = f"  result {'equal to' if found['as_cold'] else 'unlike'} the cold row's, "
        more += f"{found['unlike_cold']} kernels of {len(found['configs'])} unlike"
    return (
        f"{model:8} {way:6} {row:7}{found['first_s']:9.1f}{found['early_step_us']:10.0f}{found['step_us']:10.0f}"
        f"{found['host_us']:10.0f}"
        f"{measured['kernels']:9}{measured['choices']:9}{found.get('compiled', 0):9}"
        f"{found['by_silo']:6}/{found['kernels']}{more}"
    )


def order(models: Sequence[str], rows: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (model, row, way) of each measurement, the most important first.

    >>> order(("mlp", "decoder"), ("cold", "ranks"))[:3]
    [('mlp', 'cold', 'silo'), ('mlp', 'ranks', 'silo'), ('decoder', 'cold', 'silo')]
    """
    return [(model, row, way) for turn in TURNS for model in models for row, way in turn if row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--minutes", type=float, default=4.0, help="leave rows out after this time (4)")
    parser.add_argument("--json", type=Path, help="keep the figures here")
    given = parser.parse_args(arguments)
    if given.child:
        print(json.dumps(child(*given.child)))
        return 0
    begin, rows, left = time.monotonic(), dict[str, Any](), list[str]()
    print(
        f"{'model':8} {'way':6} {'row':7}{'first s':>9}{'early us':>10}{'step us':>10}{'host us':>10}"
        f"{'measured':>9}{'choices':>9}{'compiled':>9}{'by Silo':>9}"
    )
    with tempfile.TemporaryDirectory(prefix="silo-inductor-gpu-") as place:
        longest = 0.0
        warm = "import torch, triton, torch._inductor.async_compile as a; torch.ones(8, 8, device='cuda').bfloat16() @ "
        warm += "torch.ones(8, 8, device='cuda').bfloat16(); a.AsyncCompile.use_process_pool()"
        subprocess.run([sys.executable, "-c", warm], check=False, timeout=300, capture_output=True)
        begin = time.monotonic()
        for model, row, way in order(given.models, given.rows):
            name = f"{model} {way} {row}"
            started = time.monotonic()
            if started - begin + longest / 2 > 60 * given.minutes:
                left.append(name)
                continue
            rows[name] = run_row(model, way, row, Path(place, model, way))
            cold = rows.get(f"{model} {way} cold", {})
            if row in ("second", "served") and "result" in rows[name] and "result" in cold:
                ours, before = rows[name]["configs"], cold["configs"]
                rows[name]["as_cold"] = rows[name]["result"] == cold["result"]
                rows[name]["unlike_cold"] = sum(ours.get(key) != before.get(key) for key in {**ours, **before})
            longest = max(longest, time.monotonic() - started)
            print(line(model, way, row, rows[name]), flush=True)
    if left:
        print(f"left out, as {given.minutes:g} minutes are over: {', '.join(left)}")
    if given.json:
        save(given.json, describe(), {"rows": rows, "left_out": left})
    return 1 if any("failed" in one for one in rows.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
