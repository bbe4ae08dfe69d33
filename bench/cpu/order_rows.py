"""Rows of the CPU benchmark whose elements depend on each other: running sums, sorting, and histograms."""

from __future__ import annotations

import torch

from bench.cpu import kernels as more
from bench.cpu.work import Call, Scale, Workload, empty, normal

BINS = 256
WIDE_BINS = 1 << 16


def scan(scale: Scale, dtype: str) -> Workload:
    rows, columns = {"full": (4096, 4096), "quick": (512, 1024), "tiny": (2, 1024)}[scale]
    x, out, other = (
        normal(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
        empty(rows, columns, dtype=dtype),
    )

    def compiled(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(torch.cumsum(x, -1))

    return Workload(
        "scan",
        dtype,
        f"{rows}x{columns}",
        rows * columns,
        (Call(more.cumulative_sum, (x, out, columns, rows, columns), (rows,), {"BLOCK": columns}),),
        lambda: torch.cumsum(x, -1, out=other),
        (compiled, (x, other)),
        lambda: {"out": (out, torch.cumsum(x.double(), -1))},
    )


def sort(scale: Scale, dtype: str) -> Workload:
    rows, columns = {"full": (2048, 1024), "quick": (128, 1024), "tiny": (1, 256)}[scale]
    x, out = normal(rows, columns, dtype=dtype), empty(rows, columns, dtype=dtype)
    other, order = empty(rows, columns, dtype=dtype), torch.empty(rows, columns, dtype=torch.int64)

    def compiled(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(torch.sort(x, -1).values)

    return Workload(
        "sort",
        dtype,
        f"{rows}x{columns}",
        rows * columns,
        (Call(more.sort_rows, (x, out, rows), (rows,), {}, {"BLOCK": columns}),),
        lambda: torch.sort(x, -1, out=(other, order)),
        (compiled, (x, other)),
        lambda: {"out": (out, torch.sort(x.double(), -1).values)},
    )


def atomics(scale: Scale, dtype: str) -> Workload:
    """A histogram with few bins, so that many elements add to the same bin."""
    return _counted("atomics", scale, dtype, BINS)


def wide_atomics(scale: Scale, dtype: str) -> Workload:
    """A histogram with more bins than fit into a near cache."""
    return _counted("wide atomics", scale, dtype, WIDE_BINS)


def _counted(name: str, scale: Scale, dtype: str, bins: int) -> Workload:
    n = {"full": 1 << 22, "quick": 1 << 18, "tiny": 1 << 12}[scale]
    x, counts = torch.randint(0, bins, (n,), dtype=torch.int32), torch.zeros(bins, dtype=torch.int32)

    def compiled(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(bins, dtype=torch.int32).index_add_(0, x, torch.ones(n, dtype=torch.int32))

    return Workload(
        name,
        dtype,
        str(n),
        n,
        (Call(more.count_atomically, (x, counts, n), (n // 1024,), {"BLOCK": 1024}),),
        lambda: torch.bincount(x, minlength=bins),
        (compiled, (x,)),
        lambda: {"counts": (counts, torch.bincount(x, minlength=bins))},
        clear=counts.zero_,
    )


def histogram(scale: Scale, dtype: str) -> Workload:
    rows, columns = {"full": (1024, 4096), "quick": (64, 4096), "tiny": (2, 1024)}[scale]
    x = torch.randint(0, BINS, (rows, columns), dtype=torch.int32)
    counts = torch.empty(rows, BINS, dtype=torch.int32)
    places, ones = x.long(), torch.ones(rows, columns, dtype=torch.int32)

    def counted(places: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
        return torch.zeros(places.shape[0], BINS, dtype=torch.int32).scatter_add_(1, places, ones)

    return Workload(
        "histogram",
        dtype,
        f"{rows}x{columns}",
        rows * columns,
        (Call(more.count_rows, (x, counts, rows), (rows,), {}, {"BLOCK": columns, "BINS": BINS}),),
        lambda: counted(places, ones),
        (counted, (places, ones)),
        lambda: {"counts": (counts, counted(places, ones))},
    )
