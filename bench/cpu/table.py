"""The rows of the CPU benchmark, by name, with their dtypes."""

from __future__ import annotations

from collections.abc import Callable

from bench.cpu import dot_rows as dots
from bench.cpu import order_rows as order
from bench.cpu import rows
from bench.cpu.work import Scale, Workload

Build = Callable[[Scale, str], Workload]

FLOATS = ("fp32", "fp16", "bf16")
INTEGERS = ("int32",)

ROWS: dict[str, tuple[Build, tuple[str, ...]]] = {
    "add": (rows.add, FLOATS),
    "softmax": (rows.softmax, FLOATS),
    "short softmax": (rows.short_softmax, FLOATS),
    "layer norm": (rows.layer_norm, FLOATS),
    "rms norm": (rows.rms_norm, FLOATS),
    "swiglu": (rows.swiglu, FLOATS),
    "bias gelu": (rows.bias_gelu, FLOATS),
    "transpose": (rows.transpose, FLOATS),
    "cross entropy": (rows.cross_entropy, FLOATS),
    "rope": (rows.rope, FLOATS),
    "dropout": (rows.dropout, ("fp32",)),
    "matmul": (dots.matmul, FLOATS),
    "edge matmul": (dots.edge_matmul, FLOATS),
    "grouped matmul": (dots.grouped_matmul, FLOATS),
    "attention": (dots.attention, FLOATS),
    "flash": (dots.flash, FLOATS),
    "causal flash": (dots.causal_flash, FLOATS),
    "flash backward": (dots.flash_backward, ("fp32",)),
    "scan": (order.scan, FLOATS),
    "sort": (order.sort, FLOATS),
    "atomics": (order.atomics, INTEGERS),
    "wide atomics": (order.wide_atomics, INTEGERS),
    "histogram": (order.histogram, INTEGERS),
}


def chosen(names: list[str] | None, dtypes: list[str] | None) -> list[tuple[str, str]]:
    """Return the chosen (row, dtype) pairs; None chooses all. SystemExit for a name that is not a row."""
    unknown = sorted(set(names or ()) - set(ROWS))
    if unknown:
        raise SystemExit(f"no row called {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    return [
        (name, dtype)
        for name, (_, known) in ROWS.items()
        if not names or name in names
        for dtype in known
        if not dtypes or dtype in dtypes
    ]
