"""Triton's own ways to launch, and those of Meta's fork if ``import triton`` imports the fork."""

from __future__ import annotations

import importlib.metadata

from bench.launch.cases import GRID, Call
from bench.launch.peers import AbsentError, Context, Row

FORK = "fbtriton"
FORK_SWITCHES = {"TRITON_ENABLE_C_CACHE": "1", "TRITON_USE_C_DISPATCHER": "1"}


def is_fork() -> bool:
    """Return whether this process's Triton is Meta's fork."""
    try:
        importlib.metadata.version(FORK)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def jit(context: Context) -> Call:
    return context.call("k[grid]({arguments})", k=context.jit, grid=GRID)


def compiled(context: Context) -> Call:
    # A compiled kernel takes every argument by position, constexprs too.
    arguments = ", ".join(context.arguments)
    return Call(f"c[grid]({arguments})", {**context.arguments, "c": context.compiled, "grid": GRID})


def c_launcher(context: Context) -> Call:
    kernel = context.compiled
    names = {
        **context.arguments,
        "run": kernel.run,
        "stream": context.stream,
        "function": kernel.function,
        "metadata": kernel.packed_metadata,
    }
    arguments = "".join(f", {name}" for name in context.arguments)
    return Call(f"run({GRID[0]}, 1, 1, stream, function, metadata, None, None, None{arguments})", names)


def fork(context: Context) -> Call:
    if not is_fork():
        raise AbsentError(f"no distribution {FORK} in this process; name its folder with --triton-fork")
    return jit(context)


ROWS = (
    Row("triton-jit", "Triton JIT: k[grid](...)", jit),
    Row("triton-compiled", "Triton CompiledKernel[grid](...)", compiled),
    Row("triton-run", "Triton CompiledKernel.run(...)", c_launcher),
)
FORK_ROW = Row("triton-fork", "Meta's Triton fork, C cache and dispatcher on: k[grid](...)", fork)
