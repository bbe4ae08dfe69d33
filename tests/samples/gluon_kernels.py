"""Kernels in Gluon: layouts as constexprs, shared memory, asynchronous copies, tensor descriptors and mbarriers."""
# pyright: reportAssignmentType=false, reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

# Triton has renamed it after version 3.6.
async_load = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def add(x, y, out, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    inside = at < n
    gl.store(out + at, gl.load(x + at, mask=inside) + gl.load(y + at, mask=inside), mask=inside)


@gluon.jit
def staged(x, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    at = gl.arange(0, BLOCK, layout=layout)
    room = gl.allocate_shared_memory(gl.float32, [BLOCK], shared)
    async_load(room, x + at)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + at, room.load(layout) * 2)


@gluon.jit
def move(source, target):
    room = gl.allocate_shared_memory(source.dtype, source.block_type.shape, source.layout)
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    mbarrier.expect(barrier, source.block_type.nbytes)
    load_tile(source, [gl.program_id(0) * source.block_type.shape[0], 0], barrier, room)
    mbarrier.wait(barrier, phase=0)
    mbarrier.invalidate(barrier)
    fence_async_shared()
    store_tile(target, [gl.program_id(0) * source.block_type.shape[0], 0], room)
    tma.store_wait(0)


@gluon.jit
def warps(out, num_warps: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])
    at = gl.arange(0, 32 * num_warps, layout=layout)
    gl.store(out + at, at.to(gl.float32))
