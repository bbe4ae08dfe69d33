"""Triton kernels of vLLM and SGLang: recorded over a warm-up, then served frozen, on the CPU or a GPU.

    python -m bench.engines CHECKOUTS [ENGINE] [WORD...] [--requests 20] [--json FILE] [--folder DIR]

CHECKOUTS has a checkout of each repository under its name (``vllm``, ``sglang``). ENGINE is one of them; without it
both are run. Those functions of ``vllm_calls.py`` and ``sglang_calls.py`` are called whose names contain a WORD and
none of ``--skip``. Each engine runs in four processes, of which the first three start with an empty Triton cache:

1. ``silo exec --record`` over a warm-up: a few batch sizes, all dtypes and switches of a deployment, aligned arrays; 2.
``silo exec --bundle --frozen``: ``--requests`` requests of each function with other batches, lengths and alignments; 3.
plain Triton with the same requests, whose results are compared; 4. plain Triton once more with the cache of the third
process, for its times.

``--only-frozen`` leaves out the last two: nothing is compared, but compiles, measurements and refusals are counted. A
request that needs code which was not recorded is refused by name in the frozen process, and counted. ``--cover`` is
passed to ``silo exec --record``; without it, the values of :data:`COVERS` are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ENGINES = ("vllm", "sglang")
# Constexprs that an engine computes from a batch, each with the values that a batch may give it.
COVERS = {
    "vllm": ["_count_expert_num_tokens.BLOCK_SIZE=1..1024:pow2"],
    "sglang": [
        "fused_recurrent_gated_delta_rule_fwd_kernel.B=1..8",
        "fused_sigmoid_gating_delta_rule_update_kernel.NP2_T=1..64:pow2",
        "_moe_align_small_numel_kernel.NP=2..64:pow2",
        "_moe_align_small_numel_kernel.NB=4..32:pow2",
        "_denoiser_partial_statistics.ROWS=4..32:4",
        "_denoiser_merge_statistics.ROWS=4..32:4",
        "_denoiser_write_probabilities.ROWS=4..32:4",
    ],
}
TOLERANCE = {"rtol": 2e-2, "atol": 2e-2}  # half precision: sums may be taken in another order
REMOVED = "have been removed"  # part of the error that Triton 3.9 and later raise for block pointers


def run(
    folder: Path, way: str, phase: str, engine: str, options: argparse.Namespace, *silo: str, cache: str = ""
) -> tuple[list[dict[str, Any]], float]:
    """Run one process of an engine; return its results (one for each function, one for the process) and its seconds."""
    out = folder / f"{engine}-{way}.json"
    command = [sys.executable, *(["-m", "silo", "exec", *silo] if silo else [])]
    words = ["-m", "bench.engines.served", engine, str(options.checkouts.resolve()), str(out), "--phase", phase]
    own = {"TRITON_CACHE_DIR": str(folder / f"cache-{engine}-{cache or way}"), "SILO_HOME": str(folder / "home")}
    if options.on == "cpu":
        own |= {"SILO_ON": "cpu", "SILO_TRITON": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    begun = time.monotonic()
    done = subprocess.run(
        [
            *command,
            *words,
            "--requests",
            str(options.requests),
            *options.words,
            *(f"--skip={one}" for one in options.skip),
            *(() if options.configs is None else (f"--configs={options.configs}",)),
            *("--part", *(str(number) for number in options.part)),
        ],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{way} of {engine} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in out.read_text().splitlines()], time.monotonic() - begun


def same(left: tuple[str, list[list[float]]], right: tuple[str, list[list[float]]]) -> str:
    """Return ``equal`` if two results have the same bytes, ``close`` within the tolerance, else ``other``."""
    if left[0] == right[0]:
        return "equal"
    if [len(one) for one in left[1]] != [len(one) for one in right[1]]:
        return "other"
    for ours, theirs in zip(left[1], right[1], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            near = math.isclose(a, b, rel_tol=TOLERANCE["rtol"], abs_tol=TOLERANCE["atol"])
            if not near and not (math.isnan(a) and math.isnan(b)):
                return "other"
    return "close"


def quantile(values: list[float], part: float) -> float:
    """Return the quantile ``part`` (0 to 1) of the values; NaN for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)] if ordered else math.nan


def firsts(values: list[float]) -> dict[str, float]:
    """Return median and maximum of the first ten values, and of the later ones; values are in launch order."""
    return {
        "first_ten_median": quantile(values[:10], 0.5),
        "first_ten_worst": max(values[:10], default=math.nan),
        "later_median": quantile(values[10:], 0.5),
        "later_worst": max(values[10:], default=math.nan),
    }


def judged(engine: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run all processes of an engine and compare them; return the figures and a row for each function."""
    bundle = folder / f"{engine}.silo"
    on = ("--on", "cpu") if options.on == "cpu" else ()
    covers = [word for one in options.cover or COVERS[engine] for word in ("--cover", one)]
    warm, warm_s = run(folder, "record", "warm", engine, options, *on, "--record", str(bundle), *covers)
    frozen, frozen_s = run(folder, "frozen", "serve", engine, options, *on, "--bundle", str(bundle), "--frozen")
    plain, plain_s, again, again_s = frozen, 0.0, frozen, 0.0
    if not options.only_frozen:
        plain, plain_s = run(folder, "plain", "serve", engine, options)
        again, again_s = run(folder, "again", "serve", engine, options, cache="plain")
    rows: list[dict[str, Any]] = []
    for recorded, served, own, timed in zip(warm[:-1], frozen[:-1], plain[:-1], again[:-1], strict=True):
        row: dict[str, Any] = {"name": served["name"], "status": "served"}
        failed = next((one for one in (recorded, own, served) if one["error"]), None)
        if failed is not None:
            row |= {"status": "not this Triton" if REMOVED in failed["error"] else "failed", "why": failed["error"]}
        elif recorded["counts"]["staged"] == 0:
            row["status"] = "launches nothing"
        results = [
            same(one, two)
            for one, two in zip(served["results"], own["results"], strict=False)
            if one is not None and two is not None and not options.only_frozen
        ]
        row |= {one: results.count(one) for one in ("equal", "close", "other")}
        row |= {"requests": len(served["results"]), "refused": len(served["refused"])}
        row["refusals"] = sorted({text.split("; record")[0].splitlines()[0] for text in served["refused"]})[:3]
        row |= {"warm_compiles": recorded["counts"]["staged"], "plain_compiles": own["counts"]["staged"]}
        row |= {one: served["counts"][one] for one in ("staged", "listened", "hooked", "measured")}
        row |= {"ms": served["ms"], "plain_ms": timed["ms"]}
        rows.append(row)
    counted = [one for one in rows if one["status"] in ("served", "failed")]
    served_kernels = {name for name, (ours, _) in frozen[-1]["kernels"].items() if ours}
    first = [*frozen[-1]["first"].values()]
    ours, theirs = ([ms for one in counted for ms in one[name]] for name in ("ms", "plain_ms"))
    found = {
        "engine": engine,
        "functions": len([one for one in rows if one["status"] == "served"]),
        "kernels": len(served_kernels),
        "requests": sum(one["requests"] for one in counted),
        **{one: sum(row[one] for row in counted) for one in ("refused", "equal", "close", "other")},
        **{one: frozen[-1]["counts"][one] for one in ("staged", "listened", "hooked", "measured")},
        "compiles_warm": warm[-1]["counts"]["staged"],
        "compiles_plain": plain[-1]["counts"]["staged"],
        "measured_warm": warm[-1]["counts"]["measured"],
        "bundle_bytes": bundle.stat().st_size,
        "first_ms": firsts([clock for clock, _ in first]),
        "first_processor_ms": firsts([worked for _, worked in first]),
        "request_ms": {name: quantile(ours, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("worst", 1.0))},
        "triton_ms": {name: quantile(theirs, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("worst", 1.0))},
        "seconds": {"record": warm_s, "frozen": frozen_s, "plain": plain_s, "again": again_s},
    }
    if options.only_frozen:  # plain Triton did not run, so these figures do not exist
        for name in ("compiles_plain", "triton_ms"):
            del found[name]
    for row in rows:
        row["p50_ms"], row["plain_p50_ms"] = quantile(row.pop("ms"), 0.5), quantile(row.pop("plain_ms"), 0.5)
        if options.only_frozen:
            del row["plain_p50_ms"], row["plain_compiles"]
    return {**found, "rows": rows}


def report(found: dict[str, Any]) -> None:
    """Print the results of an engine as a table."""
    print(f"\n{found['engine']}")
    for row in found["rows"]:
        told = row.get("why", "; ".join(row["refusals"]))[:180]
        print(
            f"  {row['status']:16} {row['name']:96} requests {row['requests']:4} refused {row['refused']:3} "
            f"equal {row['equal']:4} close {row['close']:3} other {row['other']:2} compiles {row['staged']} {told}"
        )
    print("| | |\n| --- | --- |")
    for name, value in found.items():
        if name not in ("rows", "engine"):
            shown = ", ".join(f"{one} {two:.2f}" for one, two in value.items()) if isinstance(value, dict) else value
            print(f"| {name.replace('_', ' ')} | {shown} |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.engines", description="Triton kernels of engines, served frozen.")
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--requests", type=int, default=20, help="of each function")
    parser.add_argument(
        "--skip", action="append", default=[], metavar="WORD", help="leave functions of such a name out"
    )
    parser.add_argument("--configs", type=int, help="leave this many configs to each tuner; all by default")
    parser.add_argument(
        "--part", type=int, nargs=2, default=(1, 1), metavar=("K", "N"), help="every N-th function, from the K-th on"
    )
    parser.add_argument("--only-frozen", action="store_true", help="compare nothing with plain Triton")
    parser.add_argument("--cover", action="append")
    parser.add_argument("--on", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="keep bundles, caches and results there")
    options = parser.parse_intermixed_args()
    engines = [one for one in ENGINES if one in options.words] or list(ENGINES)
    options.words = [one for one in options.words if one not in ENGINES]
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = [judged(engine, folder.resolve(), options) for engine in engines]
    for one in found:
        report(one)
    if options.json is not None:
        from bench.machine import describe

        options.json.write_text(json.dumps({"engines": found, "machine": describe()}, indent=1) + "\n")
    bad = [
        one["engine"]
        for one in found
        if one["other"] or one["staged"] or one["hooked"] or one["measured"] or one["refused"] > 0.05 * one["requests"]
        if one["functions"]
    ] + [one["engine"] for one in found if any(row["status"] == "failed" for row in one["rows"])]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
