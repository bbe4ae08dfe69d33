"""A matrix product on Hopper's tensor cores, in the CuTe DSL: ``kernel-silo[cute]``, and an H100 or H200 to run it.

``silo build examples/cute_gemms.py -o gemms.silo --target cuda:sm_90a`` packs it on any machine, without a GPU.
"""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import cutlass
from cutlass import cute, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers as hopper

import silo

WARP = 32


class WgmmaGemm:
    """``c = a @ b.T`` on Hopper's tensor cores; a is (M, K), b (N, K), c (M, N), rows contiguous, sums in fp32.

    A thread block of ``BLOCK_M / 64`` warp groups computes one tile of c. Its first warp starts the copies of the tiles
    of a and b, ``STAGES - 1`` steps ahead. Elements beyond the edges of a and b are read as zeros, and are not stored
    to c.
    """

    def __init__(self, BLOCK_M: int = 128, BLOCK_N: int = 128, BLOCK_K: int = 64, STAGES: int = 4):
        self.tile = (BLOCK_M, BLOCK_N, BLOCK_K)
        self.stages = STAGES
        self.groups = BLOCK_M // 64
        self.threads = 4 * WARP * self.groups

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        """Launch the product; the tensor maps are made from a and b."""
        self.product(a, b, c)

    def product(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, **launch: object):
        """Launch the product, like ``__call__``, with further options of the launch."""
        block_m, block_n, block_k = self.tile
        self.dtype = a.element_type
        a_shared = hopper.make_smem_layout_a(LayoutEnum.ROW_MAJOR, self.tile, self.dtype, self.stages)
        b_shared = hopper.make_smem_layout_b(LayoutEnum.ROW_MAJOR, self.tile, self.dtype, self.stages)
        load = cpasync.CopyBulkTensorTileG2SOp()
        a_map, a_all = cpasync.make_tiled_tma_atom(load, a, cute.slice_(a_shared, (None, None, 0)), (block_m, block_k))
        b_map, b_all = cpasync.make_tiled_tma_atom(load, b, cute.slice_(b_shared, (None, None, 0)), (block_n, block_k))
        self.body(a_map, a_all, b_map, b_all, c, a_shared, b_shared).launch(
            grid=(cute.ceil_div(c.shape[0], block_m), cute.ceil_div(c.shape[1], block_n), 1),
            block=(self.threads, 1, 1),
            **launch,
        )

    @cute.kernel
    def body(
        self,
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
        # Made here and not on the host, because it exists only at compile time and the launcher passes nothing but
        # arrays.
        mma = hopper.make_trivial_tiled_mma(
            self.dtype,
            self.dtype,
            OperandMajorMode.K,
            OperandMajorMode.K,
            cutlass.Float32,
            (self.groups, 1, 1),
            (64, block_n),
        )

        memory = SmemAllocator()
        a_tiles = memory.allocate_tensor(self.dtype, a_shared.outer, byte_alignment=1024, swizzle=a_shared.inner)
        b_tiles = memory.allocate_tensor(self.dtype, b_shared.outer, byte_alignment=1024, swizzle=b_shared.inner)
        producer, consumer = pipeline.PipelineTmaAsync.create(
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.threads // WARP),
            tx_count=(block_m + block_n) * block_k * self.dtype.width // 8,
            barrier_storage=memory.allocate_array(cutlass.Int64, 2 * self.stages),
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        ).make_participants()

        alone = cute.make_layout(1)
        a_rows = cute.local_tile(a_all, (block_m, block_k), (row, None))
        b_rows = cute.local_tile(b_all, (block_n, block_k), (column, None))
        a_to, a_from = cpasync.tma_partition(
            a_map, 0, alone, cute.group_modes(a_tiles, 0, 2), cute.group_modes(a_rows, 0, 2)
        )
        b_to, b_from = cpasync.tma_partition(
            b_map, 0, alone, cute.group_modes(b_tiles, 0, 2), cute.group_modes(b_rows, 0, 2)
        )
        steps = cute.size(a_rows, mode=[2])

        part = mma.get_slice(thread)
        a_part = mma.make_fragment_A(part.partition_A(a_tiles))
        b_part = mma.make_fragment_B(part.partition_B(b_tiles))
        total = cute.make_rmem_tensor(mma.partition_shape_C((block_m, block_n)), cutlass.Float32)
        total.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, value=True)

        ahead = cutlass.min(self.stages - 1, steps)
        if warp == 0:
            for _ in cutlass.range(ahead, unroll=1):
                place = producer.acquire_and_advance()
                cute.copy(a_map, a_from[None, place.count], a_to[None, place.index], tma_bar_ptr=place.barrier)
                cute.copy(b_map, b_from[None, place.count], b_to[None, place.index], tma_bar_ptr=place.barrier)
        for step in cutlass.range(steps, unroll=1):
            if warp == 0 and step + ahead < steps:
                place = producer.acquire_and_advance()
                cute.copy(a_map, a_from[None, place.count], a_to[None, place.index], tma_bar_ptr=place.barrier)
                cute.copy(b_map, b_from[None, place.count], b_to[None, place.index], tma_bar_ptr=place.barrier)
            ready = consumer.wait_and_advance()
            warpgroup.fence()
            for k in cutlass.range_constexpr(cute.size(a_part, mode=[2])):
                cute.gemm(mma, total, a_part[None, None, k, ready.index], b_part[None, None, k, ready.index], total)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            ready.release()

        to = part.partition_C(cute.local_tile(c, (block_m, block_n), (row, column)))
        at = part.partition_C(cute.local_tile(cute.make_identity_tensor(c.shape), (block_m, block_n), (row, column)))
        for i in cutlass.range_constexpr(cute.size(total)):
            if cute.elem_less(at[i], c.shape):
                to[i] = total[i].to(c.element_type)


wgmma_gemm = silo.cute(
    WgmmaGemm,
    name="wgmma_gemm",
    signature="a: in, b: in, c: out",
    space={"BLOCK_M": [64, 128], "BLOCK_N": [64, 128, 256], "BLOCK_K": [64], "STAGES": [3, 4]},
    grid=lambda a: (silo.cdiv(a.c.shape[0], a.BLOCK_M), silo.cdiv(a.c.shape[1], a.BLOCK_N)),
)


@wgmma_gemm.cases(size=[(512, 768, 1024), (300, 200, 136)])
def _(size, make):
    m, n, k = size
    a, b, c = make.normal((m, k), dtype="bf16"), make.normal((n, k), dtype="bf16"), make.empty((m, n), dtype="bf16")

    def expected():
        return a.host.astype("float32") @ b.host.astype("float32").T

    return silo.Case(args=(a, b, c), expected={"c": expected}, bytes=2 * (m * k + n * k + m * n), flops=2 * m * n * k)
