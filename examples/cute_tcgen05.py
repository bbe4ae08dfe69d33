"""A matrix product on Blackwell's tensor cores, in the CuTe DSL: ``kernel-silo[cute]``, and a B200 to run it.

``silo build examples/cute_tcgen05.py -o tcgen05.silo --target cuda:sm_100a`` packs it on any machine, without a GPU.
The tests compile and pack it; it was never run, because no such GPU was available. Its device function takes parameters
that only the DSL's host code can make, so the DSL's host code launches it.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import cute, memory, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, make_tiled_tma_atom_A, make_tiled_tma_atom_B, tcgen05
from cutlass.utils import blackwell_helpers as blackwell

import silo

WARP = 32


class Tcgen05Gemm:
    """``c = a @ b.T`` on Blackwell's tensor cores, one tile of 128 rows for each thread block.

    Sums are in tensor memory, in fp32. The first warp starts copies of tiles, ``STAGES`` steps ahead, and multiplies;
    all four warps store the result.
    """

    def __init__(self, BLOCK_N: int = 128, STAGES: int = 4):
        if BLOCK_N not in (32, 64, 128, 256):
            raise ValueError(f"BLOCK_N is {BLOCK_N}; tensor memory is given out in 32, 64, 128, 256 or 512 columns")
        self.tile = (128, BLOCK_N, 64)
        self.stages = STAGES
        self.threads = 4 * WARP

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: CUstream):
        """Launch the product; the tensor maps are made from a and b."""
        self.dtype = a.element_type
        major = OperandMajorMode.K
        mma = blackwell.make_trivial_tiled_mma(
            self.dtype, self.dtype, major, major, cutlass.Float32, tcgen05.CtaGroup.ONE, self.tile[:2]
        )
        a_shared = blackwell.make_smem_layout_a(mma, self.tile, self.dtype, self.stages)
        b_shared = blackwell.make_smem_layout_b(mma, self.tile, self.dtype, self.stages)
        load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
        one = (None, None, None, 0)
        a_map, a_all = make_tiled_tma_atom_A(load, a, cute.slice_(a_shared, one), self.tile, mma)
        b_map, b_all = make_tiled_tma_atom_B(load, b, cute.slice_(b_shared, one), self.tile, mma)
        self.body(mma, a_map, a_all, b_map, b_all, c, a_shared, b_shared).launch(
            grid=(cute.ceil_div(c.shape[0], self.tile[0]), cute.ceil_div(c.shape[1], self.tile[1]), 1),
            block=(self.threads, 1, 1),
            stream=stream,
        )

    @cute.kernel
    def body(
        self,
        mma: cute.TiledMma,
        a_map: cute.CopyAtom,
        a_all: cute.Tensor,
        b_map: cute.CopyAtom,
        b_all: cute.Tensor,
        c: cute.Tensor,
        a_shared: cute.ComposedLayout,
        b_shared: cute.ComposedLayout,
    ):
        """Compute one tile of c."""
        thread, _, _ = cute.arch.thread_idx()
        row, column, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        block_m, block_n, block_k = self.tile

        room = memory.SmemAllocator()
        full = room.allocate_array(cutlass.Int64, self.stages)
        free = room.allocate_array(cutlass.Int64, self.stages)
        done = room.allocate_array(cutlass.Int64, 1)
        a_tiles = room.allocate_tensor(self.dtype, a_shared.outer, byte_alignment=1024, swizzle=a_shared.inner)
        b_tiles = room.allocate_tensor(self.dtype, b_shared.outer, byte_alignment=1024, swizzle=b_shared.inner)
        tensor_memory = memory.TmemAllocator(
            room.allocate_array(cutlass.Int32, 1),
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=self.threads),
        )
        if warp == 0:
            with cute.arch.elect_one():
                for stage in cutlass.range_constexpr(self.stages):
                    cute.arch.mbarrier_init(full + stage, 1)
                    cute.arch.mbarrier_init(free + stage, 1)
                cute.arch.mbarrier_init(done, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.barrier()
        tensor_memory.allocate(block_n)
        tensor_memory.wait_for_alloc()
        at = tensor_memory.retrieve_ptr(cutlass.Float32)

        part = mma.get_slice(0)
        a_rows = part.partition_A(cute.local_tile(a_all, (block_m, block_k), (row, None)))
        b_rows = part.partition_B(cute.local_tile(b_all, (block_n, block_k), (column, None)))
        alone = cute.make_layout(1)
        a_to, a_from = cpasync.tma_partition(
            a_map, 0, alone, cute.group_modes(a_tiles, 0, 3), cute.group_modes(a_rows, 0, 3)
        )
        b_to, b_from = cpasync.tma_partition(
            b_map, 0, alone, cute.group_modes(b_tiles, 0, 3), cute.group_modes(b_rows, 0, 3)
        )
        a_part = mma.make_fragment_A(a_tiles)
        b_part = mma.make_fragment_B(b_tiles)
        total = cute.make_tensor(at, mma.make_fragment_C(mma.partition_shape_C((block_m, block_n))).layout)
        steps = cute.size(a_rows, mode=[3])
        arrived = (block_m + block_n) * block_k * self.dtype.width // 8

        if warp == 0:
            mma.set(tcgen05.Field.ACCUMULATE, value=False)
            for coming in cutlass.range(steps + self.stages, unroll=1):
                if coming >= self.stages:  # multiply the tiles whose copies were started that many steps ago
                    step = coming - self.stages
                    stage = step % self.stages
                    cute.arch.mbarrier_wait(full + stage, (step // self.stages) % 2)
                    for k in cutlass.range_constexpr(cute.size(a_part, mode=[2])):
                        cute.gemm(mma, total, a_part[None, None, k, stage], b_part[None, None, k, stage], total)
                        mma.set(tcgen05.Field.ACCUMULATE, value=True)
                    with cute.arch.elect_one():
                        tcgen05.commit(free + stage)
                if coming < steps:
                    stage = coming % self.stages
                    if coming >= self.stages:
                        cute.arch.mbarrier_wait(free + stage, (coming // self.stages - 1) % 2)
                    with cute.arch.elect_one():
                        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, arrived)
                    cute.copy(a_map, a_from[None, coming], a_to[None, stage], tma_bar_ptr=full + stage)
                    cute.copy(b_map, b_from[None, coming], b_to[None, stage], tma_bar_ptr=full + stage)
            with cute.arch.elect_one():
                tcgen05.commit(done)
        cute.arch.mbarrier_wait(done, 0)

        load = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), cutlass.Float32)
        flat = total[(None, None), 0, 0]
        copy = tcgen05.make_tmem_copy(load, flat)
        mine = copy.get_slice(thread)
        places = mine.partition_D(cute.make_identity_tensor((block_m, block_n)))
        sums = cute.make_rmem_tensor(places.shape, cutlass.Float32)
        cute.copy(copy, mine.partition_S(flat), sums)
        cute.arch.fence_view_async_tmem_load()
        for i in cutlass.range_constexpr(cute.size(sums)):
            place = (row * block_m + places[i][0], column * block_n + places[i][1])
            if cute.elem_less(place, c.shape):
                c[place] = sums[i].to(c.element_type)
        cute.arch.barrier()
        tensor_memory.relinquish_alloc_permit()
        tensor_memory.free(at)


tcgen05_gemm = silo.cute(
    Tcgen05Gemm,
    name="tcgen05_gemm",
    signature="a: in, b: in, c: out",
    space={"BLOCK_N": [64, 128], "STAGES": [3, 4]},
    grid=lambda a: (silo.cdiv(a.c.shape[0], 128), silo.cdiv(a.c.shape[1], a.BLOCK_N)),
    host="dsl",
)


@tcgen05_gemm.cases(size=[(512, 768, 1024), (300, 200, 136)])
def _(size, make):
    m, n, k = size
    a, b, c = make.normal((m, k), dtype="bf16"), make.normal((n, k), dtype="bf16"), make.empty((m, n), dtype="bf16")

    def expected():
        return a.host.astype("float32") @ b.host.astype("float32").T

    return silo.Case(args=(a, b, c), expected={"c": expected}, bytes=2 * (m * k + n * k + m * n), flops=2 * m * n * k)
