"""A program of Gluon kernels for a Hopper GPU: compares each with torch, and prints the largest errors as JSON."""
# pyright: reportAssignmentType=false, reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import json

import torch
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from gluon_kernels import add, gl, load_tile, move, staged, store_tile


@gluon.jit
def rows(x, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    row = gl.program_id(0)
    at = gl.arange(0, BLOCK, layout=layout)
    values = gl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    shifted = gl.exp(values - gl.max(values, axis=0))
    gl.store(out + row * n + at, shifted / gl.sum(shifted, axis=0), mask=at < n)


@gluon.jit
def flip(x, out, M: gl.constexpr, N: gl.constexpr):
    one: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    two: gl.constexpr = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    m = gl.arange(0, M, layout=gl.SliceLayout(1, one))
    n = gl.arange(0, N, layout=gl.SliceLayout(0, one))
    tile = gl.convert_layout(gl.load(x + m[:, None] * N + n[None, :]), two)
    m2 = gl.arange(0, M, layout=gl.SliceLayout(1, two))
    n2 = gl.arange(0, N, layout=gl.SliceLayout(0, two))
    gl.store(out + n2[None, :] * M + m2[:, None], tile)


@gluon.jit
def matmul(a, b, c, BM: gl.constexpr, BN: gl.constexpr, num_warps: gl.constexpr):
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    bk: gl.constexpr = a.block_type.shape[1]
    left = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BN, 16])
    total = gl.zeros((BM, BN), dtype=gl.float32, layout=layout)
    phase = 0
    for k in range(0, a.shape[1], bk):
        mbarrier.expect(barrier, a.block_type.nbytes + b.block_type.nbytes)
        load_tile(a, [m, k], barrier, left)
        load_tile(b, [k, n], barrier, right)
        mbarrier.wait(barrier, phase=phase)
        phase ^= 1
        total = warpgroup_mma(left, right, total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
    mbarrier.invalidate(barrier)
    room = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    room.store(total.to(c.dtype))
    fence_async_shared()
    store_tile(c, [m, n], room)
    tma.store_wait(0)


def _line(size=1):
    return gl.BlockedLayout([size], [32], [4], [0])


def _half(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def _descriptor(array, *block):
    return TensorDescriptor.from_tensor(
        array, list(block), gl.NVMMASharedLayout.get_default_for(list(block), gl.float16)
    )


def _add(kernel):
    x, y = (torch.randn(5000, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    kernel[(-(-5000 // 256),)](x, y, out, 5000, 256, _line(2))
    return out, x + y


def _staged(kernel):
    x = torch.randn(512, device="cuda")
    out = torch.empty_like(x)
    kernel[(1,)](x, out, 512)
    return out, x * 2


def _move(kernel):
    x = _half(256, 64)
    out = torch.zeros_like(x)
    kernel[(4,)](_descriptor(x, 64, 64), _descriptor(out, 64, 64))
    return out, x


def _rows(kernel):
    x = torch.randn(64, 1000, device="cuda")
    out = torch.empty_like(x)
    kernel[(64,)](x, out, 1000, 1024)
    return out, torch.softmax(x, 1)


def _flip(kernel):
    x = _half(64, 128)
    out = torch.empty(128, 64, device="cuda", dtype=torch.float16)
    kernel[(1,)](x, out, 64, 128)
    return out, x.T.contiguous()


def _matmul(kernel):
    a, b = _half(256, 512) / 8, _half(512, 256) / 8
    c = torch.empty(256, 256, device="cuda", dtype=torch.float16)
    kernel[(4, 2)](_descriptor(a, 64, 64), _descriptor(b, 64, 128), _descriptor(c, 64, 128), 64, 128, num_warps=4)
    return c, a @ b


RUNS = {
    "add": (add, _add),
    "staged": (staged, _staged),
    "move": (move, _move),
    "rows": (rows, _rows),
    "flip": (flip, _flip),
    "matmul": (matmul, _matmul),
}


def main():
    """Run each kernel ten times."""
    errors = {}
    for name, (kernel, run) in RUNS.items():
        for _ in range(10):
            got, wanted = run(kernel)
            errors[name] = max(errors.get(name, 0.0), (got.float() - wanted.float()).abs().max().item())
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
