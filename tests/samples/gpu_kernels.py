"""Kernels and arrays for tests on a GPU; importing this module skips the tests if there is no GPU."""
# pyright: reportOperatorIssue=false

import pytest

torch = pytest.importorskip("torch", reason="these tests compare with torch")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU here", allow_module_level=True)
triton = pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton.language as tl  # noqa: E402  # after the skip

N = 4096


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr = 256):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def count_programs(out):
    tl.atomic_add(out, 1)


@triton.jit
def spin_then_store(out, cycles, value):
    start = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    now = start
    while now - start < cycles:
        now = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(out, value)


def vectors():
    x = torch.arange(N, dtype=torch.float32, device="cuda")
    return x, x * 3, torch.zeros_like(x)
