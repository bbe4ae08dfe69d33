"""A kernel of the CuTe DSL that copies a matrix in tiles with TMA, and hosts that make tensor maps. Needs the DSL."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import cutlass
from cutlass import cute, memory
from cutlass.cute.nvgpu import cpasync, warpgroup

ROWS, COLUMNS = 64, 64


@cute.kernel
def copy_tiles(
    load: cute.CopyAtom, source: cute.Tensor, store: cute.CopyAtom, target: cute.Tensor, layout: cute.ComposedLayout
):
    tx, _, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    shared = memory.SmemAllocator()
    arrived = shared.allocate_array(cutlass.Int64, 1)
    tile = shared.allocate_tensor(cutlass.BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
    pieces = cute.group_modes(tile, 0, 2)
    alone = cute.make_layout(1)
    from_here = cute.group_modes(cute.local_tile(source, (ROWS, COLUMNS), (bx, by)), 0, 2)
    to_there = cute.group_modes(cute.local_tile(target, (ROWS, COLUMNS), (bx, by)), 0, 2)
    into, read = cpasync.tma_partition(load, 0, alone, pieces, from_here)
    out, written = cpasync.tma_partition(store, 0, alone, pieces, to_there)
    if tx == 0:
        cute.arch.mbarrier_init(arrived, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if tx == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(arrived, ROWS * COLUMNS * 2)
    if warp == 0:  # all threads of the warp, because the copy elects one of them
        cute.copy(load, read, into, tma_bar_ptr=arrived)
    cute.arch.mbarrier_wait(arrived, 0)
    cute.arch.sync_threads()
    if warp == 0:
        cute.copy(store, out, written)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def copy_host(source: cute.Tensor, target: cute.Tensor):
    """Copy a bfloat16 matrix whose extents are multiples of 64."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, cutlass.BFloat16)
    layout = cute.tile_to_shape(atom, (ROWS, COLUMNS), order=(0, 1))
    load, read = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), source, layout, (ROWS, COLUMNS))
    store, written = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), target, layout, (ROWS, COLUMNS))
    rows, columns = source.shape
    copy_tiles(load, read, store, written, layout).launch(grid=(rows // ROWS, columns // COLUMNS, 1), block=(128, 1, 1))


@cute.kernel
def no_work(load: cute.CopyAtom, source: cute.Tensor):
    cpasync.prefetch_descriptor(load)


def host(layout, kind, tile, *, store=False, blocks=1, element=cutlass.BFloat16, inner=None, offset=0, line=False):
    """Return a host function that makes one tensor map; ``layout()`` makes the array's layout while it is traced."""

    @cute.jit
    def made(pointer: cute.Pointer):
        array = cute.make_tensor(pointer + offset if cutlass.const_expr(offset != 0) else pointer, layout())
        if cutlass.const_expr(line):
            shared = cute.make_layout(tile)
        else:
            shared = cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, element), tile, order=(0, 1))
        if cutlass.const_expr(store):
            way = cpasync.CopyBulkTensorTileS2GOp()
        elif cutlass.const_expr(blocks > 1):
            way = cpasync.CopyBulkTensorTileG2SMulticastOp()
        else:
            way = cpasync.CopyBulkTensorTileG2SOp()
        atom, tensor = cpasync.make_tiled_tma_atom(way, array, shared, tile, num_multicast=blocks, internal_type=inner)
        no_work(atom, tensor).launch(grid=(1, 1, 1), block=(32, 1, 1))

    return made
