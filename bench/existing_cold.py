"""Cold starts of unchanged programs that tune, on a GPU: plain Triton, and the same program under ``silo exec``.

    python -m bench.existing_cold [--only PROGRAM...] [--runs 1] [--json FILE] [--seconds 460]

Needs a GPU, torch and Triton; mamba-ssm for the last program, fla-core for all others. If a program is not installed or
fails without Silo, its line has the reason. Each process starts with an empty Triton cache and, except the second
process, with an empty store. A program calls one operator forward and backward for the first time, and once more. Rows:
seconds of the first call with Triton's measurements and with short ones, and their ratios to plain Triton's; and for a
second process, which has an empty Triton cache and the store of the first process, its first call and the number of
configs that it measured. The norms of the results are compared.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

MOST_OF_PLAIN = 0.30  # limit of the first call's time over plain Triton's
MOST_SHORT = 0.18  # limit of the same ratio with short measurements
MOST_SECOND_S = 1.0  # limit of the first call of a second process


def retention() -> Callable[[], Any]:
    """Return a call of flash-linear-attention's retention with heads of 64."""
    from fla.ops.retention import chunk_retention

    q, k, v = (array(2, 2048, 8, 64, seed=seed) for seed in range(3))
    operator: Any = chunk_retention
    return lambda: operator(q, k, v)[0]


def gla() -> Callable[[], Any]:
    """Return a call of gated linear attention."""
    import torch
    from fla.ops.gla import chunk_gla

    q, k, v = (array(2, 2048, 8, 64, seed=seed) for seed in range(3))
    gate = torch.nn.functional.logsigmoid(array(2, 2048, 8, 64, seed=3).detach()).requires_grad_()
    operator: Any = chunk_gla
    return lambda: operator(q, k, v, gate)[0]


def gated_delta() -> Callable[[], Any]:
    """Return a call of the gated delta rule."""
    import torch
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k, v = (array(2, 2048, 8, 64, seed=seed) for seed in range(3))
    beta = torch.sigmoid(array(2, 2048, 8, seed=3).detach()).requires_grad_()
    gate = torch.nn.functional.logsigmoid(array(2, 2048, 8, seed=4).detach()).requires_grad_()
    operator: Any = chunk_gated_delta_rule
    return lambda: operator(q, k, v, gate, beta, use_qk_l2norm_in_kernel=True)[0]


def mamba() -> Callable[[], Any]:
    """Return a call of Mamba 2's chunked scan."""
    import torch
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined  # pyright: ignore[reportMissingImports]

    x = array(2, 2048, 8, 64, seed=0)
    dt = torch.nn.functional.softplus(array(2, 2048, 8, seed=1).detach()).requires_grad_()
    decay = -torch.exp(array(8, seed=2).detach().float())
    b, c = (array(2, 2048, 1, 64, seed=seed) for seed in (3, 4))
    return lambda: mamba_chunk_scan_combined(x, dt, decay, b, c, chunk_size=256)


PROGRAMS: dict[str, Callable[[], Callable[[], Any]]] = {
    "retention": retention,
    "gla": gla,
    "gated-delta": gated_delta,
    # without the gradient, which fla refuses with some versions of Triton on Hopper
    "gated-delta-forward": gated_delta,
    "mamba": mamba,
}


def array(*shape: int, seed: int) -> Any:
    import torch

    made = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*shape, generator=made, device="cuda", dtype=torch.bfloat16).requires_grad_()


def _watched() -> list[int]:
    """Return a list that gets one item for each measurement that a tuner makes from now on."""
    from triton.testing import do_bench

    seen: list[int] = []
    import triton.testing

    def counted(*words: Any, **named: Any) -> Any:
        seen.append(1)
        return do_bench(*words, **named)

    triton.testing.do_bench = counted
    return seen


def child(name: str) -> None:
    import torch

    measured = _watched()  # called before a tuner reads the driver's benchmark
    call = PROGRAMS[name]()
    torch.empty(8, device="cuda").add_(1).sum().item()
    torch.cuda.synchronize()
    taken: list[float] = []
    for _ in range(2):
        begin = time.perf_counter()
        out = call()
        if not name.endswith("-forward"):
            out.float().square().mean().backward()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begin)
    result = {"first_s": taken[0], "again_s": taken[1], "measured": len(measured), "norm": out.float().norm().item()}
    print(json.dumps(result))


def run(name: str, cache: Path, way: str, home: Path, limit_s: float) -> dict[str, Any]:
    """Run one process with ``cache`` as Triton's cache; return its figures, or ``{"failed": reason}``."""
    exec_words = [] if way == "plain" else ["-m", "silo", "exec"]
    words = [*exec_words, "-m", "bench.existing_cold", "--child", name]
    short = "1" if way == "short" else "0"
    return child_result(words, limit_s, TRITON_CACHE_DIR=str(cache), SILO_HOME=str(home), SILO_SHORT_MEASUREMENTS=short)


def child_result(words: Sequence[str], limit_s: float, **variables: str) -> dict[str, Any]:
    """Return the JSON on a Python process's last line, or ``{"failed": reason}`` if it fails or takes too long."""
    own = {"FLA_CACHE_MODE": "disabled", **variables}
    own["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, **own},
            check=False,
            capture_output=True,
            text=True,
            timeout=limit_s,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"it took more than {limit_s:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, runs: int, end: float) -> dict[str, Any]:
    """Return the row of one program."""
    found: dict[str, list[dict[str, Any]]] = {"plain": [], "silo exec": [], "second process": [], "short": []}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for number in range(runs):
            home = folder / f"home-{number}"
            for way in ("silo exec", "second process", "short", "plain"):
                left = end - time.monotonic()
                if left < 1:
                    return {"program": name, "failed": "no time is left (--seconds)"}
                cache = Path(tempfile.mkdtemp(dir=folder))
                store = folder / f"short-{number}" if way == "short" else home
                made = run(name, cache, way, store, left)
                if "failed" in made:
                    return {"program": name, "failed": f"{way}: {made['failed']}"}
                found[way].append(made)
    firsts = {way: [one["first_s"] for one in made] for way, made in found.items()}
    first = {way: statistics.median(seconds) for way, seconds in firsts.items()}
    measured = {way: made[-1]["measured"] for way, made in found.items()}
    norms = [one["norm"] for made in found.values() for one in made]
    ratio, short_ratio = first["silo exec"] / first["plain"], first["short"] / first["plain"]
    same = max(norms) - min(norms) <= 0.01 * max(norms)
    bars = {
        "ratio": ratio <= MOST_OF_PLAIN,
        "short ratio": short_ratio <= MOST_SHORT,
        "second process": first["second process"] < MOST_SECOND_S and measured["second process"] == 0,
        "results": same,
    }
    again = {way: statistics.median(one["again_s"] for one in made) for way, made in found.items()}
    return {
        "program": name,
        "first_s": first,
        "all_first_s": firsts,
        "again_s": again,
        "ratio": ratio,
        "short_ratio": short_ratio,
        "measured": measured,
        "norms": norms,
        "bars": bars,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=460.0, help="the longest that all may take")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=list(PROGRAMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    end = time.monotonic() + options.seconds
    rows: list[dict[str, Any]] = []
    print("| program | plain, s | silo exec, s | ratio | short, s | ratio | second, s | measured by each | bars |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.only:
        row = measure(name, options.runs, end)
        rows.append(row)
        if "failed" in row:
            print(f"| {name} | {row['failed']} | | | | | | | |", flush=True)
            continue
        first, counted = row["first_s"], row["measured"]
        missed = [bar for bar, kept in row["bars"].items() if not kept]
        print(
            f"| {name} | {first['plain']:.1f} | {first['silo exec']:.1f} | {row['ratio']:.2f} | "
            f"{first['short']:.1f} | {row['short_ratio']:.2f} | {first['second process']:.2f} | "
            f"{', '.join(str(counted[way]) for way in ('plain', 'silo exec', 'short', 'second process'))} "
            f"| {'missed: ' + ', '.join(missed) if missed else 'kept'} |",
            flush=True,
        )
    if options.json is not None:
        from bench.machine import describe

        bars = {"ratio": MOST_OF_PLAIN, "short_ratio": MOST_SHORT, "second_s": MOST_SECOND_S}
        document = {"bars": bars, "rows": rows, "machine": describe()}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if all("failed" in row for row in rows):
        sys.exit(2)  # no program was measured
    if any("failed" not in row and not all(row["bars"].values()) for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
