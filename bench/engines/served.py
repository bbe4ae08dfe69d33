"""One process of the benchmark: calls an engine's functions, and counts Triton's compiles and measurements.

    silo exec --on cpu ... -m bench.engines.served ENGINE CHECKOUTS OUT --phase warm|serve --requests N [WORD...]

Writes a line of JSON to OUT for each function, and a last line for the process.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.compiler import compiler
from triton.runtime.autotuner import Autotuner

from bench.engines import stubs
from bench.engines.draws import DEVICE, WARM_SIZES, Draws
from bench.engines.table import CALLS, Call
from silo.errors import SiloError
from silo.kinds.triton.programs.program_kernels import TABLE, ProgramKernel

SAMPLES = 64  # elements of each result tensor that are kept for a comparison with a tolerance


def labelled(kernel: ProgramKernel) -> str:
    """Return a kernel's name with its file, because an engine has several kernels of one name."""
    return f"{kernel.name} ({Path(kernel.location).name})"


class Counts:
    """Counts compiles (by Triton's listener, by its hook and by its stages) and measurements by Triton's tuners."""

    def __init__(self) -> None:
        self.listened = self.hooked = self.staged = self.measured = 0
        # For each kernel, the wall and CPU milliseconds from its first call until its code is loaded.
        self.first: dict[str, tuple[float, float]] = {}
        backend, bench, miss = compiler.make_backend, Autotuner._bench, ProgramKernel.on_miss

        def make_backend(target: Any) -> Any:
            made = backend(target)
            stages = made.add_stages

            def add_stages(*args: Any, **kwargs: Any) -> Any:
                self.staged += 1
                return stages(*args, **kwargs)

            made.add_stages = add_stages
            return made

        def measure(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            self.measured += 1
            return bench(tuner, *args, **kwargs)

        def on_miss(kernel: ProgramKernel, *args: Any) -> Any:
            begun, worked = time.perf_counter(), time.thread_time()
            served = miss(kernel, *args)  # raises if the request is refused, so that only launches are counted
            taken = (time.perf_counter() - begun, time.thread_time() - worked)
            self.first.setdefault(labelled(kernel), (taken[0] * 1e3, taken[1] * 1e3))
            return served

        def listen(**given: Any) -> None:
            self.listened += not given["cache_hit"]

        def hook(**_: Any) -> None:
            self.hooked += 1

        compiler.make_backend = make_backend
        setattr(Autotuner, "_bench", measure)  # noqa: B010  # of another signature, as far as types go
        setattr(ProgramKernel, "on_miss", on_miss)  # noqa: B010
        knobs: Any = importlib.import_module("triton.knobs")
        knobs.compilation.listener = listen
        knobs.runtime.jit_post_compile_hook = hook

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("listened", "hooked", "staged", "measured")}


def limit_configs(most: int) -> None:
    """From now on, give each new tuner only its first ``most`` configs."""
    make = Autotuner.__init__

    def limited(tuner: Any, function: Any, names: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        make(tuner, function, names, configs[:most], *args, **kwargs)

    setattr(Autotuner, "__init__", limited)  # noqa: B010  # of another signature, as far as types go


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor of a result or of arguments, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_of(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_of(one)


def described(tensors: list[torch.Tensor]) -> tuple[str, list[list[float]]]:
    """Return a SHA-256 of the bytes of all tensors, and about ``SAMPLES`` elements of each tensor as floats."""
    digest, samples = hashlib.sha256(), []
    for one in tensors:
        flat = one.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        taken = flat[:: max(1, flat.numel() // SAMPLES)]
        samples.append([float(number) for number in taken.to(torch.float64)])
    return digest.hexdigest(), samples


def arguments_of(call: Call, number: int, *, warm: bool) -> tuple[list[Any], dict[str, Any], Draws]:
    draws = Draws(call.name, number, warm=warm, most=call.most)
    made = call.make(draws)
    given, named = made if isinstance(made, tuple) else ([], made)
    return given, named, draws


def run(call: Call, options: argparse.Namespace, counts: Counts) -> dict[str, Any]:
    """Call one function with all its requests; return its times, refusals, results, counts and any error."""
    found: dict[str, Any] = {"name": call.name, "ms": [], "refused": [], "results": [], "error": None}
    before = counts.to_json()
    try:
        function = getattr(importlib.import_module(call.module), call.function)
        warm = options.phase == "warm"
        total = arguments_of(call, 0, warm=True)[2].combinations * len(WARM_SIZES) if warm else options.requests
        for number in range(total):
            given, named, _ = arguments_of(call, number, warm=warm)
            torch.manual_seed(number)
            begun = time.perf_counter()
            try:
                result = function(*given, **named)
            except SiloError as error:
                found["refused"].append(str(error))
                found["results"].append(None)
                continue
            found["ms"].append((time.perf_counter() - begun) * 1e3)
            if not warm:
                found["results"].append(described([*tensors_of(result), *tensors_of(given), *tensors_of(named)]))
    except Exception as error:  # noqa: BLE001  # an engine's function may fail in any way; it is a row of the table
        found["error"] = f"{type(error).__name__}: {error}"
        found["traceback"] = traceback.format_exc()
    after = counts.to_json()
    found["counts"] = {name: after[name] - before[name] for name in after}
    return found


def device_memory(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Allocate scratch memory for kernels that make tensor descriptors on the device; its alignment is torch's."""
    del alignment, stream
    return torch.empty(size, dtype=torch.int8, device=DEVICE)


def chosen_calls(options: argparse.Namespace) -> list[Call]:
    """Return the functions whose names contain one of the words and none of ``--skip``; ``--part`` keeps every N-th."""
    chosen = [
        call
        for call in CALLS
        if not options.words or any(word in call.name for word in options.words)
        if not any(word in call.name for word in options.skip)
    ]
    part, parts = options.part
    return chosen[part - 1 :: parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=("vllm", "sglang"))
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--phase", choices=("warm", "serve"), required=True)
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--configs", type=int)
    parser.add_argument("--part", type=int, nargs=2, default=(1, 1), metavar=("K", "N"))
    options = parser.parse_intermixed_args()
    if options.configs is not None:
        limit_configs(options.configs)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills uninitialized memory with NaN
    triton.set_allocator(device_memory)  # as engines do when they start
    stubs.install(options.engine, options.checkouts)
    importlib.import_module(f"bench.engines.{options.engine}_calls")
    TABLE.keep()
    counts = Counts()
    with options.out.open("w") as out:
        for call in chosen_calls(options):
            out.write(json.dumps(run(call, options, counts)) + "\n")
            out.flush()
        kernels = {labelled(one): one.launches for one in TABLE}
        out.write(
            json.dumps({"name": "", "counts": counts.to_json(), "kernels": kernels, "first": counts.first}) + "\n"
        )


if __name__ == "__main__":
    main()
