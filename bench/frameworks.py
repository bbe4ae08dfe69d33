"""The cost of calling a kernel as an operator of torch, beyond the kernel's own call: ``python -m bench.frameworks``.

``--jax`` measures a jitted function of jax that calls a kernel, beside one that does nothing and beside one in which
XLA calls C code that does nothing. The remaining difference is Silo's time, with the kernel's own work.

Each row takes turns with the direct call in short bursts. Its extra cost is the median of the differences between
neighbouring bursts, with an interval. The bar: an operator's call takes at most 1.5 us more than the kernel's.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import silo
from bench.machine import describe, save
from bench.paired import differences, median_interval

BAR_US = 1.5
JAX_BAR_US = 0.5
_CALLS = 200  # calls in a burst
_LIBRARY = torch.library.Library("bench", "FRAGMENT")


@silo.kernel(space={"BLOCK": [1024]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
@triton.jit
def axpy(x, y, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(y + i, mask=i < n) + alpha * tl.load(x + i, mask=i < n), mask=i < n)


@silo.kernel(space={"BLOCK": [1024]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def rows(size: int, device: str) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return pairs of functions by name: a call through torch, and the direct call of the same kernel."""
    real = torch.float32
    in_place = silo.torch_op(axpy, "bench::axpy", example=(real, real, size, 1.0))
    made = silo.torch_op(add, "bench::add", example=(real, real, real, size), out={"out": "x"})
    x, y = torch.randn(size, device=device), torch.randn(size, device=device)

    @torch.library.custom_op("bench::custom_axpy", mutates_args={"y"})
    def custom(x: torch.Tensor, y: torch.Tensor, n: int, alpha: float) -> None:
        axpy(x, y, n, alpha)

    _LIBRARY.define("plain_axpy(Tensor x, Tensor(a!) y, int n, float alpha) -> ()")
    _LIBRARY.impl("plain_axpy", axpy.kernel.launcher, "CompositeExplicitAutograd")
    plain = torch.ops.bench.plain_axpy.default

    def direct_add() -> torch.Tensor:
        out = torch.empty_like(x)
        add(x, y, out, size)
        return out

    def direct() -> None:
        axpy(x, y, size, 1e-3)

    return {
        "silo.torch_op, in place": (lambda: in_place(x, y, size, 1e-3), direct),
        "silo.torch_op with an output": (lambda: made(x, y, size), direct_add),
        "torch.ops of the first": (lambda: in_place.overload(x, y, size, 1e-3), direct),
        "torch.ops of the second": (lambda: made.overload(x, y, size), direct_add),
        "torch.library.Library, by hand": (lambda: plain(x, y, size, 1e-3), direct),
        "torch.library.custom_op": (lambda: custom(x, y, size, 1e-3), direct),
    }


def jax_rows(size: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return pairs of functions by name: a jitted call of a kernel, and a jitted function that does nothing."""
    import jax  # pyright: ignore[reportMissingImports]  # has an environment of its own

    x, y = jax.numpy.ones(size), jax.numpy.ones(size)
    empty = jax.jit(lambda x, y: x)  # noqa: ARG005  # both are taken
    added = jax.jit(lambda x, y: silo.jax_call(add, x, y, size, out={"out": "x"}))
    updated = jax.jit(lambda x, y: silo.jax_call(axpy, x, y, size, 1e-3, aliases=("y",)))
    own = jax.jit(lambda x, y: x + y)
    target = empty_target()

    def nothing() -> None:
        empty(x, y).block_until_ready()

    made = {
        "silo.jax_call": (lambda: added(x, y).block_until_ready(), nothing),
        "silo.jax_call, in place": (lambda: updated(x, y).block_until_ready(), nothing),
        "the same addition by XLA": (lambda: own(x, y).block_until_ready(), nothing),
    }
    if target:
        call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))
        update = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={1: 0})
        digest = "0" * 64  # as long as the digest of a kernel's call
        calls = jax.jit(lambda x, y: call(x, y, digest=digest))
        updates = jax.jit(lambda x, y: update(x, y, digest=digest))
        made["XLA's call of C that does nothing"] = (lambda: calls(x, y).block_until_ready(), nothing)
        made["the same, in place"] = (lambda: updates(x, y).block_until_ready(), nothing)
    return made


def empty_target() -> str | None:
    """Register a C handler that does nothing with XLA, and return its name; None without a C compiler."""
    import jax  # pyright: ignore[reportMissingImports]

    from silo.launch.jax_versions import load_jax

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    here = Path(__file__).parent
    library = Path(tempfile.mkdtemp(prefix="silo-bench-")) / "empty_handler.so"
    places = [f"-I{here.parent / 'native' / name}" for name in ("python", "core")]
    flags = ["-std=c11", "-O2", "-shared", "-fPIC", f"-DMINOR={load_jax()[1]}"]
    subprocess.run([compiler, *flags, *places, str(here / "empty_handler.c"), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).empty_handler
    for platform in ("cpu", "CUDA"):
        jax.ffi.register_ffi_target("silo_bench_empty", jax.ffi.pycapsule(function), platform=platform)
    return "silo_bench_empty"


def burst(call: Callable[[], Any]) -> float:
    """Return the microseconds of one call, averaged over a burst."""
    begin = time.perf_counter_ns()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter_ns() - begin) / _CALLS / 1e3


def measure(made: dict[str, tuple[Callable[[], Any], Callable[[], Any]]], rounds: int) -> dict[str, dict[str, Any]]:
    """Measure each row; return its figures: least times, extra cost with interval, ratio."""
    found: dict[str, dict[str, Any]] = {}
    for name, (call, direct) in made.items():
        burst(call)
        burst(direct)
        pairs = [(burst(direct), burst(call)) for _ in range(rounds)]
        floor, taken = [one for one, _ in pairs], [one for _, one in pairs]
        more = median_interval(differences(taken, floor), name)
        found[name] = {
            "direct_us": min(floor),
            "call_us": min(taken),
            "least_more_us": min(taken) - min(floor),
            "more_us": [more.median, more.low, more.high],
            "ratio": min(taken) / min(floor),
        }
    return found


def report(found: dict[str, dict[str, Any]]) -> str:
    """Return a table, and whether the bars are met, as text."""
    lines = [f"{'call':34} {'direct':>8} {'call':>8} {'more':>8} {'ratio':>7}   us, least of all bursts"]
    for name, row in found.items():
        lines.append(
            f"{name:34} {row['direct_us']:8.2f} {row['call_us']:8.2f} {row['least_more_us']:8.2f} {row['ratio']:7.2f}"
            f"   median of pairs {row['more_us'][0]:.2f} [{row['more_us'][1]:.2f}, {row['more_us'][2]:.2f}]"
        )
    for prefix, bar, what in (
        ("silo.torch_op", BAR_US, "an operator's call at most {} us over the kernel's"),
        ("silo.jax_call", JAX_BAR_US, "a call of a kernel at most {} us over a function of jax that does nothing"),
    ):
        more = [row["least_more_us"] for name, row in found.items() if name.startswith(prefix)]
        if more:
            verdict = "met" if max(more) <= bar else "missed"
            lines.append(f"bar: {what.format(bar)}: {max(more):.2f} us, {verdict}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the report, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16, help="elements of a tensor (16)")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    parser.add_argument("--rounds", type=int, default=200, help="pairs of bursts (200)")
    parser.add_argument("--jax", action="store_true", help="programs of jax and not operators of torch")
    parser.add_argument("--json", type=Path, help="keep the figures here")
    given = parser.parse_args(arguments)
    machine = describe()
    found = measure(jax_rows(given.size) if given.jax else rows(given.size, given.device), given.rounds)
    print(report(found))
    if given.json:
        save(given.json, machine, {"size": given.size, "device": given.device, "jax": given.jax, "rows": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
