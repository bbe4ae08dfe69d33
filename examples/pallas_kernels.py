"""Kernels written in Pallas, each with specs of its arrays, a grid and cases. They need ``kernel-silo[pallas]``.

``silo build examples/pallas_kernels.py -o pallas.silo --target tpu:v5e --target cpu`` packs them, on any machine and
without a TPU; ``silo run pallas.silo`` runs their cases wherever the file goes, without Pallas.
"""
# pyright: reportMissingImports=false

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import silo
from silo import ArgSpec, Scratch

ROWS = ArgSpec(block=("BLOCK", None), dims=(0,))
WRITTEN_ROWS = ArgSpec(block=("BLOCK", None), dims=(0,), role="out", shape="x")


def add_body(x, y, out):
    """out = x + y, one block of rows for each program; the last block may be partial."""
    out[...] = x[...] + y[...]


add = silo.pallas(
    add_body,
    args=[ROWS, ROWS, WRITTEN_ROWS],
    grid=lambda a: (silo.cdiv(a.x.shape[0], a.BLOCK),),
    space={"BLOCK": [512, 1024]},
    name="add",
)


@add.cases(rows=[1000, 4096])
def _(rows, make):
    x, y, out = make.normal(rows, 128), make.normal(rows, 128), make.empty(rows, 128)
    return silo.Case(args=(x, y, out), expected={"out": lambda: x.host + y.host})


def softmax_body(x, out, scale):
    """The softmax of each row of x, multiplied by a scalar that each call passes."""
    value = x[...].astype(jnp.float32) * scale
    power = jnp.exp(value - value.max(-1, keepdims=True))
    out[...] = (power / power.sum(-1, keepdims=True)).astype(out.dtype)


softmax = silo.pallas(
    softmax_body,
    args=[ROWS, WRITTEN_ROWS, "fp32"],
    grid=lambda a: (silo.cdiv(a.x.shape[0], a.BLOCK),),
    space={"BLOCK": [64, 128]},
    dimension_semantics=("parallel",),
    name="softmax",
)


@softmax.cases(rows=[256])
def _(rows, make):
    x, out = make.normal(rows, 512), make.empty(rows, 512)

    def expected():
        power = np.exp(x.host * 0.5 - (x.host * 0.5).max(-1, keepdims=True))
        return power / power.sum(-1, keepdims=True)

    return silo.Case(args=(x, out, 0.5), expected={"out": expected})


def matmul_body(a, b, out, total):
    """out = a @ b: the last axis of the grid runs over K, and the sum stays in scratch memory."""

    @pl.when(pl.program_id(2) == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.dot(a[...], b[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        out[...] = total[...].astype(out.dtype)


PRODUCT = (lambda a: a.a.shape[0], lambda a: a.b.shape[1])  # the shape of a @ b

matmul = silo.pallas(
    matmul_body,
    args=[
        ArgSpec(block=("BM", "BK"), dims=(0, 2)),
        ArgSpec(block=("BK", "BN"), dims=(2, 1)),
        ArgSpec(block=("BM", "BN"), dims=(0, 1), role="out", shape=PRODUCT, dtype="fp32"),
    ],
    scratch=[Scratch("vmem", ("BM", "BN"), "fp32")],
    grid=lambda a: (
        silo.cdiv(a.a.shape[0], a.BM),
        silo.cdiv(a.b.shape[1], a.BN),
        silo.cdiv(a.a.shape[1], a.BK),
    ),
    space={"BM": [128], "BN": [128], "BK": [128, 256]},
    dimension_semantics=("parallel", "parallel", "arbitrary"),
    name="matmul",
)


def matmul_pipeline_body(a, b, out, *, BM, BN, BK):
    """out = a @ b over arrays in HBM: a single program, whose pipeline runs over the blocks."""
    rows, columns, inner = a.shape[0] // BM, b.shape[1] // BN, a.shape[1] // BK

    def step(a_block, b_block, out_block):
        @pl.when(pl.program_id(2) == 0)
        def _():
            out_block[...] = jnp.zeros_like(out_block)

        out_block[...] += jnp.dot(a_block[...], b_block[...], preferred_element_type=jnp.float32)

    pltpu.emit_pipeline(
        step,
        grid=(rows, columns, inner),
        in_specs=[pl.BlockSpec((BM, BK), lambda i, _, k: (i, k)), pl.BlockSpec((BK, BN), lambda _, j, k: (k, j))],
        out_specs=[pl.BlockSpec((BM, BN), lambda i, j, _: (i, j))],
    )(a, b, out)


IN_HBM = [ArgSpec(), ArgSpec(), ArgSpec(role="out", shape=PRODUCT, dtype="fp32")]

matmul_pipeline = silo.pallas(
    matmul_pipeline_body,
    args=IN_HBM,
    scheme="pipeline",
    grid=(1,),
    space={"BM": [128], "BN": [128], "BK": [128]},
    name="matmul_pipeline",
)


def matmul_fori_body(a, b, out, a_block, b_block, total, arrived, left):
    """out = a @ b with the kernel's own copies: each program has a block of rows and columns, and loops over K."""
    rows, inner = a_block.shape
    columns = b_block.shape[1]
    i, j = pl.program_id(0), pl.program_id(1)
    total[...] = jnp.zeros_like(total)

    def step(k, carry):
        first = pltpu.make_async_copy(a.at[pl.ds(i * rows, rows), pl.ds(k * inner, inner)], a_block, arrived.at[0])
        second = pltpu.make_async_copy(
            b.at[pl.ds(k * inner, inner), pl.ds(j * columns, columns)], b_block, arrived.at[1]
        )
        first.start()
        second.start()
        first.wait()
        second.wait()
        total[...] += jnp.dot(a_block[...], b_block[...], preferred_element_type=jnp.float32)
        return carry

    jax.lax.fori_loop(0, a.shape[1] // inner, step, 0)
    done = pltpu.make_async_copy(total, out.at[pl.ds(i * rows, rows), pl.ds(j * columns, columns)], left)
    done.start()
    done.wait()


matmul_fori = silo.pallas(
    matmul_fori_body,
    args=IN_HBM,
    scheme="fori",
    scratch=[
        Scratch("vmem", ("BM", "BK"), "a"),
        Scratch("vmem", ("BK", "BN"), "b"),
        Scratch("vmem", ("BM", "BN"), "fp32"),
        Scratch("dma_semaphore", (2,)),
        Scratch("dma_semaphore"),
    ],
    grid=lambda a: (a.a.shape[0] // a.BM, a.b.shape[1] // a.BN),
    space={"BM": [128], "BN": [128], "BK": [128]},
    name="matmul_fori",
)


def product(make):
    """Return a case for the three products: arguments and the expected result."""
    a, b, out = make.normal(256, 512), make.normal(512, 128), make.empty(256, 128)
    return silo.Case(args=(a, b, out), expected={"out": lambda: a.host @ b.host}, rtol=1e-4, atol=1e-3)


for kernel in (matmul, matmul_pipeline, matmul_fori):

    @kernel.cases()
    def _(make):
        return product(make)


def ragged_body(x, count, out, *, BLOCK):
    """out = the sums of windows of ``BLOCK`` rows; the last window ends beyond the array, in its padding."""
    start = pl.program_id(0) * BLOCK
    window = x[pl.ds(pl.multiple_of(start, BLOCK), BLOCK), :]
    rows = start + jax.lax.broadcasted_iota(jnp.int32, window.shape, 0)
    out[...] = jnp.where(rows < count, window, 0.0).sum(0, keepdims=True).reshape(out.shape)


ragged = silo.pallas(
    ragged_body,
    args=[
        ArgSpec(pad=[(0, 64, 0)]),
        "i32",
        ArgSpec(block=(1, 1, None), dims=(0,), role="out"),
    ],
    grid=lambda a: (silo.cdiv(a.x.shape[0], 64),),
    space={"BLOCK": [64]},
    name="ragged",
)


@ragged.cases(rows=[200])
def _(rows, make):
    x, out = make.normal(rows, 128), make.empty(-(-rows // 64), 1, 128)
    count = rows - 7

    def expected():
        kept = np.zeros((len(out.host) * 64, 128), np.float32)
        kept[:count] = x.host[:count]
        return kept.reshape(-1, 64, 128).sum(1, keepdims=True)

    return silo.Case(args=(x, count, out), expected={"out": expected}, rtol=1e-4, atol=1e-4)


def gather_body(index, x, out):
    """out = blocks of x in the order of ``index``; the index map reads ``index`` before the blocks are copied."""
    out[...] = x[...] + index[pl.program_id(0)].astype(x.dtype)


gather = silo.pallas(
    gather_body,
    args=[
        ArgSpec(prefetch=True, dtype="i32"),
        ArgSpec(block=(8, None), index=lambda i, index: (index[i], 0)),
        ArgSpec(block=(8, None), dims=(0,), role="out"),
    ],
    grid=lambda a: (a.index.shape[0],),
    name="gather",
)


@gather.cases(blocks=[4])
def _(blocks, make):
    index, x = make.integers(blocks, low=0, high=8, dtype="int32"), make.normal(64, 128)
    out = make.empty(blocks * 8, 128)

    def expected():
        parts = x.host.reshape(8, 8, 128)[index.host] + index.host[:, None, None]
        return parts.reshape(-1, 128).astype(np.float32)

    return silo.Case(args=(index, x, out), expected={"out": expected})
