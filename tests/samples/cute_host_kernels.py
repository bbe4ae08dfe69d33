"""Kernels that the CuTe DSL's own host code launches, with cases; they are built, bundled and called. Needs the DSL."""
# pyright: reportMissingImports=false, reportCallIssue=false, reportAttributeAccessIssue=false

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute, utils
from cutlass.cute.nvgpu import cpasync

import silo


@cute.kernel
def scaled_add(
    a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, factor: cutlass.Float32, n: cutlass.Int32, BLOCK: cutlass.Constexpr
):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    i = bx * BLOCK + tx
    if i < n:
        c[i] = a[i] + b[i] * factor


add = silo.cute(
    scaled_add,
    signature="a: in *fp32, b: in *fp32, c: out *fp32, factor: fp32, n: i32, BLOCK: constexpr",
    space={"BLOCK": [128]},
    block="BLOCK",
    host="dsl",
    grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
    name="add",
)


@add.cases(n=[1000])
def _(n, make):
    a, b, c = make.normal(n), make.normal(n), make.empty(n)
    return silo.Case(args=(a, b, c, 2.0, n), expected={"c": lambda: a.host + 2 * b.host})


# copy_tiles has tensor maps as parameters, which the DSL's host code makes and Silo cannot make.
TILE = (64, 32)


@cute.kernel
def copy_tiles(
    load: cute.CopyAtom, source: cute.Tensor, store: cute.CopyAtom, target: cute.Tensor, layout: cute.Layout
):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    allocator = utils.SmemAllocator()
    barrier = allocator.allocate_array(cutlass.Int64, 1)
    shared = allocator.allocate_tensor(cutlass.Float32, layout, 128)
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    one = cute.make_layout(1)
    tile = cute.group_modes(shared, 0, 2)
    read = cute.group_modes(cute.local_tile(source, TILE, (block, 0)), 0, 2)
    into, out_of = cpasync.tma_partition(load, 0, one, tile, read)
    if thread == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, TILE[0] * TILE[1] * 4)
    if warp == 0:
        cute.copy(load, out_of, into, tma_bar_ptr=barrier)
    cute.arch.mbarrier_wait(barrier, 0)
    cute.arch.sync_threads()
    written = cute.group_modes(cute.local_tile(target, TILE, (block, 0)), 0, 2)
    out_of, into = cpasync.tma_partition(store, 0, one, tile, written)
    if warp == 0:
        cute.copy(store, out_of, into)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def copy_on_host(x: cute.Tensor, out: cute.Tensor, stream: cuda.CUstream):
    layout = cute.make_layout(TILE, stride=(TILE[1], 1))
    load, source = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, layout, TILE)
    store, target = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, layout, TILE)
    copy_tiles(load, source, store, target, layout).launch(
        grid=(cute.size(x, mode=[0]) // TILE[0], 1, 1), block=(128, 1, 1), stream=stream
    )


copy = silo.cute(
    copy_on_host,
    signature="x: in *fp32, out: out *fp32",
    host="dsl",
    grid=lambda a: (a.x.shape[0] // 64,),
    name="copy",
)


@copy.cases(rows=[256])
def _(rows, make):
    x, out = make.normal(rows, 32), make.empty(rows, 32)
    return silo.Case(args=(x, out), expected={"out": lambda: x.host})
