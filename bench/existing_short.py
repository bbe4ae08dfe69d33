"""Short measurements beside Triton's full ones, for tuners of public programs on a GPU: winners, time and launches.

    python -m bench.existing_short [--only retention gla ...] [--json FILE] [--seconds 460]

Needs a GPU, torch and Triton; fla-core, mamba-ssm or flag_gems for their programs. If a program is not installed or
fails, its line has the reason. First ``silo exec`` compiles a program's configs in parallel into an empty Triton cache.
Then, in a plain process with this cache, every search of a tuner that measures by Triton's benchmark is made twice: by
:class:`ShortSearch` and as Triton does. The order alternates from search to search, and each config is called once
before. If the winners differ, they are measured in full, in turns. Rows: the numbers of searches and configs; the
seconds of both ways; the number of searches with the same winner; and the largest loss of a short winner beside
Triton's, by the measurements in turns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import existing_cold
from silo.kinds.triton.front.adapter import default_benchmark
from silo.kinds.triton.programs.searches.short_measurements import LEAST_CONFIGS, ShortSearch

MOST_LOSS = 0.01  # limit of a short winner's loss
MOST_TIME = 0.5  # limit of the short searches' time over Triton's
TURNS = 5


def _gems(name: str, *shapes: tuple[int, ...]) -> Callable[[], Callable[[], Any]]:
    def make() -> Callable[[], Any]:
        import flag_gems  # pyright: ignore[reportMissingImports]
        import torch

        arrays = [torch.randn(*shape, device="cuda", dtype=torch.float16) for shape in shapes]
        operator: Any = getattr(flag_gems.ops, name)
        more = (-1,) if name in ("softmax", "log_softmax", "cumsum") else ()
        return lambda: operator(*arrays, *more)

    return make


def _fla(module: str, name: str, *more: str, width: int = 64) -> Callable[[], Callable[[], Any]]:
    """An operator of flash-linear-attention on q, k, v of (1, 2048, 8, ``width``) in bfloat16.

    ``more`` are further arguments: "gate" of each head, "decay" of each element, "beta", "vector" of heads, "unit"
    vectors of length one, or an integer.
    """

    def make() -> Callable[[], Any]:
        import torch
        from torch.nn import functional

        def array(kind: str, seed: int) -> Any:
            if kind.isdigit():
                return int(kind)
            shape = {"gate": (1, 2048, 8), "beta": (1, 2048, 8), "vector": (8, width)}.get(kind, (1, 2048, 8, width))
            drawn = existing_cold.array(*shape, seed=seed).detach()
            changed: dict[str, Callable[[Any], Any]] = {
                "gate": functional.logsigmoid,
                "decay": functional.logsigmoid,
                "beta": torch.sigmoid,
                "unit": lambda one: functional.normalize(one.float(), dim=-1).to(one.dtype),
            }
            return changed.get(kind, lambda one: one)(drawn).requires_grad_()

        given = [array(kind, seed) for seed, kind in enumerate(("q", "k", "v", *more))]
        operator: Any = getattr(importlib.import_module(f"fla.ops.{module}"), name)

        def call() -> Any:
            found = operator(*given)
            return found[0] if isinstance(found, tuple) else found

        return call

    return make


PROGRAMS: dict[str, Callable[[], Callable[[], Any]]] = {
    **existing_cold.PROGRAMS,
    "delta-rule": _fla("delta_rule", "chunk_delta_rule", "beta"),
    "linear-attention": _fla("linear_attn", "chunk_linear_attn"),
    "lightning": _fla("lightning_attn", "chunk_lightning_attn", "2", "12"),
    "rwkv6": _fla("rwkv6", "chunk_rwkv6", "decay", "vector"),
    "gated-slots": _fla("gsa", "chunk_gsa", "v", "decay"),
    "forgetting": _fla("forgetting_attn", "parallel_forgetting_attn", "gate"),
    "attention": _fla("attn", "parallel_attn"),
    "gems-mm": _gems("mm", (2048, 1024), (1024, 4096)),
    "gems-bmm": _gems("bmm", (16, 512, 256), (16, 256, 512)),
    "gems-addmm": _gems("addmm", (4096,), (2048, 1024), (1024, 4096)),
    "gems-mv": _gems("mv", (4096, 4096), (4096,)),
    "gems-softmax": _gems("softmax", (4096, 3000)),
    "gems-cumsum": _gems("cumsum", (256, 4096)),
}


def compare(
    tuner: Any, configs: Sequence[Any], run: Callable[[Any], Any], *, short_first: bool
) -> tuple[dict[str, Any], list[Any]]:
    """Search both ways; return the row of the search, and the times that Triton's own measurements found.

    ``run`` is the tuner's ``_bench``.
    """
    benchmark = default_benchmark(tuner)
    assert benchmark is not None
    for config in configs:
        run(config)  # compiles the config, and brings the GPU's clocks up
    short = ShortSearch(tuner, benchmark, lambda place: run(configs[place]))
    seconds: dict[str, float] = {}
    found: dict[str, list[Any]] = {}
    ways = {
        "short": lambda: short.times(range(len(configs))),
        "full": lambda: [run(config) for config in configs],
    }
    for way in sorted(ways, reverse=short_first):
        begin = time.perf_counter()
        found[way] = ways[way]()
        seconds[way] = time.perf_counter() - begin
    winners = {way: min(range(len(configs)), key=times.__getitem__) for way, times in found.items()}
    loss = 0.0
    if winners["short"] != winners["full"]:
        turns = [[run(configs[winners[way]])[0] for way in ("short", "full")] for _ in range(TURNS)]
        loss = statistics.median(one / other for one, other in turns) - 1
    row = {
        "kernel": tuner.base_fn.__name__,
        "configs": len(configs),
        "seconds": seconds,
        "measured": [short.shorts, short.fulls, short.turns],
        "winners": [str(configs[winners[way]]) for way in ("short", "full")],
        "loss": loss,
        "ms": {way: [_first(times) for times in found[way]] for way in ways},
    }
    return row, found["full"]


def _first(times: Any) -> float | None:
    median = float(times[0] if isinstance(times, Sequence) else times)
    return median if math.isfinite(median) else None


def watched() -> list[dict[str, Any]]:
    """From now on, make each search of Triton's tuners twice; return the list that gets a row for each search."""
    from triton.runtime.autotuner import Autotuner

    rows: list[dict[str, Any]] = []
    kind: Any = Autotuner
    bench, prune = kind._bench, kind.prune_configs  # noqa: SLF001
    coming: dict[int, list[Any]] = {}
    times: dict[int, tuple[list[Any], list[Any]]] = {}

    def pruned(self: Any, kwargs: Any) -> Any:
        found = prune(self, kwargs)
        coming[id(self)] = list(found)
        return found

    def measured(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        configs = coming.pop(id(self), None)
        if configs is not None and len(configs) >= LEAST_CONFIGS and default_benchmark(self) is not None:
            row, full = compare(
                self, configs, lambda one: bench(self, *args, config=one, **meta), short_first=len(rows) % 2 == 0
            )
            rows.append(row)
            times[id(self)] = (configs, full)
        known, full = times.get(id(self), ([], []))
        for place, one in enumerate(known):
            if one is config:
                return full[place]
        return bench(self, *args, config=config, **meta)

    kind._bench, kind.prune_configs = measured, pruned  # noqa: SLF001
    return rows


def child(name: str, *, ahead: bool) -> None:
    import torch

    rows = [] if ahead else watched()
    call = PROGRAMS[name]()
    out = call()
    if out.requires_grad and not name.endswith("-forward"):
        out.float().square().mean().backward()
    torch.cuda.synchronize()
    print(json.dumps({"device": torch.cuda.get_device_name(), "searches": rows}))


def run(name: str, limit_s: float) -> dict[str, Any]:
    """Return the searches of one program, or ``{"failed": reason}``."""
    words = ["-m", "bench.existing_short", "--child", name]
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as home:
        begun = time.monotonic()
        ahead = ["-m", "silo", "exec", "--short-measurements", *words, "--ahead"]
        compiled = existing_cold.child_result(ahead, limit_s, TRITON_CACHE_DIR=cache, SILO_HOME=home)
        if "failed" in compiled:
            return compiled
        for decided in Path(cache).rglob("*.autotune.json"):
            decided.unlink()  # removed, because with Triton's record of a decision nothing would be measured again
        left = max(1.0, limit_s - (time.monotonic() - begun))
        found = existing_cold.child_result(words, left, TRITON_CACHE_DIR=cache, SILO_ACCELERATE="0")
    none = {"failed": "none of its tuners measures by Triton's benchmark"}
    return found if "failed" in found or found["searches"] else none


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--seconds", type=float, default=460.0, help="the longest that all may take")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=list(PROGRAMS), help=argparse.SUPPRESS)
    parser.add_argument("--ahead", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, ahead=options.ahead)
        return
    end = time.monotonic() + options.seconds
    programs: dict[str, dict[str, Any]] = {}
    print("| program | searches | configs | full, s | short, s | ratio | same winners | worst loss |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    everything: list[dict[str, Any]] = []
    for name in options.only:
        left = end - time.monotonic()
        found = programs[name] = run(name, left) if left > 1 else {"failed": "no time is left (--seconds)"}
        if "failed" in found:
            print(f"| {name} | {found['failed']} | | | | | | |", flush=True)
            continue
        everything += found["searches"]
        print(_row(name, found["searches"]), flush=True)
    if everything:
        print(_row("all", everything))
    if options.json is not None:
        options.json.write_text(json.dumps(programs, indent=1) + "\n")


def _row(name: str, searches: Sequence[dict[str, Any]]) -> str:
    full, short = (sum(one["seconds"][way] for one in searches) for way in ("full", "short"))
    same = sum(one["winners"][0] == one["winners"][1] for one in searches)
    loss = max(one["loss"] for one in searches)
    missed = " (missed)" if loss > MOST_LOSS else ""
    return (
        f"| {name} | {len(searches)} | {sum(one['configs'] for one in searches)} | {full:.1f} | {short:.1f} | "
        f"{short / full:.2f}{'' if short <= MOST_TIME * full else ' (missed)'} | {same} | {loss:.1%}{missed} |"
    )


if __name__ == "__main__":
    main()
