"""An unchanged Triton program in the manner of Triton's tutorials 02, 06, 08 and 09, on a GPU or on the CPU.

It has tuned kernels over host descriptors whose configs set block shapes, kernels that make descriptors in scratch
memory, a kernel launched by hand, and launch hooks. It compares every result with torch's, and prints what the hooks
saw as one line of JSON. ``descriptor_program.py TIMES``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
M, N, K = 256, 128, 64


def set_blocks(given):
    rows, columns, depth = given["ROWS"], given["COLUMNS"], given["DEPTH"]
    given["a"].block_shape, given["b"].block_shape = [rows, depth], [columns, depth]
    given["c"].block_shape = [rows, columns]


def about(grid, metadata, arguments):
    return {"name": f"{metadata.name} {arguments['m']}x{arguments['n']}", "flops16": 2 * M * N * K, "grid": len(grid)}


CONFIGS = [
    triton.Config({"ROWS": rows, "COLUMNS": 64, "DEPTH": 32}, num_warps=4, pre_hook=set_blocks) for rows in (64, 128)
]


@triton.autotune(CONFIGS, key=["m", "n", "k"])
@triton.jit(launch_metadata=about)
def by_host(a, b, c, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    at, to = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(0, k, DEPTH):
        total = tl.dot(a.load([at, step]), b.load([to, step]).T, total)
    c.store([at, to], total.to(tl.float16))


@triton.jit
def by_device(x, y, c, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [m, k], [k, 1], [ROWS, DEPTH])
    b = tl.make_tensor_descriptor(y, [n, k], [k, 1], [COLUMNS, DEPTH])
    d = tl.make_tensor_descriptor(c, [m, n], [n, 1], [ROWS, COLUMNS])
    at, to = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(0, k, DEPTH):
        total = tl.dot(a.load([at, step]), b.load([to, step]).T, total)
    d.store([at, to], total.to(tl.float16))


@triton.jit
def halve(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) / 2, mask=i < n)


def allocate(size, alignment, stream):
    asked.append((size > 0, alignment))
    return torch.empty(size, device=DEVICE, dtype=torch.int8)


asked = []


def enter(lazy):
    data = lazy.get()
    seen.append((data["name"], data.get("flops16"), data["stream"] is not None))


def leave(lazy):
    left.append(lazy.get()["name"])


seen, left = [], []


def close(out, expected):
    torch.testing.assert_close(out.float(), expected, atol=2e-2, rtol=1e-2)


def main():
    times = int(sys.argv[1])
    triton.set_allocator(allocate)
    torch.manual_seed(0)
    x, y = (torch.randn(size, K, device=DEVICE, dtype=torch.float16) / 4 for size in (M, N))
    out = torch.empty(M, N, device=DEVICE, dtype=torch.float16)
    expected = x.float() @ y.float().T
    a, b, c = (TensorDescriptor.from_tensor(one, [16, 16]) for one in (x, y, out))
    warm = halve.warmup(x, out, M * K, BLOCK=256, grid=(1,))
    for turn in range(times):
        out.zero_()
        by_host[lambda given: (M // given["ROWS"], N // given["COLUMNS"])](a, b, c, M, N, K)
        close(out, expected)
        out.zero_()
        by_device[(M // 64, N // 64)](x, y, out, M, N, K, 64, 64, 32)
        close(out, expected)
        out.zero_()
        warm[(M * K // 256, 1, 1)](x, out, M * K, 256)
        assert torch.equal(out.flatten()[: M * K], x.flatten() / 2), turn
    # the same descriptor objects, changed in place to another array and another size
    other = torch.randn(M, K, device=DEVICE, dtype=torch.float16) / 4
    a.base = other
    out.zero_()
    by_host[lambda given: (M // given["ROWS"], N // given["COLUMNS"])](a, b, c, M, N, K)
    close(out, other.float() @ y.float().T)
    a.shape = [M // 2, K]
    by_host[lambda given: (M // given["ROWS"], N // given["COLUMNS"])](a, b, c, M, N, K)
    close(out[: M // 2], other[: M // 2].float() @ y.float().T)
    assert not out[M // 2 :].any()  # rows outside the descriptor are read as 0
    a.shape, a.base = [M, K], x
    runtime: Any = knobs.runtime
    runtime.launch_enter_hook.add(enter)
    runtime.launch_exit_hook.add(leave)
    for _ in range(10):
        by_host[lambda given: (M // given["ROWS"], N // given["COLUMNS"])](a, b, c, M, N, K)
        by_device[(M // 64, N // 64)](x, y, out, M, N, K, 64, 64, 32)
        warm[(M * K // 256, 1, 1)](x, out, M * K, 256)
    runtime.launch_enter_hook.remove(enter)
    runtime.launch_exit_hook.remove(leave)
    print(json.dumps({"seen": seen, "left": left, "asked": len(asked), "bad": sum(not one[0] for one in asked)}))


if __name__ == "__main__":
    main()
