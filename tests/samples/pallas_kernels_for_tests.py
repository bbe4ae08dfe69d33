"""Pallas bodies that tests trace; importing this module imports jax."""
# pyright: reportMissingImports=false

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from silo import ArgSpec, Scratch


def rows(**said):
    return ArgSpec(block=(8, None), dims=(0,), **said)


def add_body(x, y, out):
    out[...] = x[...] + y[...]


def copy_body(x, out):
    out[...] = x[...]


def scaled_body(x, out, a, flag, n):
    out[...] = jnp.where(flag, x[...] * a, x[...]) + n.astype(x.dtype)


def bump_body(x, y):
    """y += x, over blocks to which several programs add in turn."""
    y[...] += x[...]


def bump_hbm_body(x, y, held, done):
    """y[8:16] += x[8:16], by the kernel's own copies; the other elements of y stay."""
    window = pl.ds(8, 8)
    copy = pltpu.make_async_copy(y.at[window], held, done)
    copy.start()
    copy.wait()
    held[...] += x[window, :]
    copy = pltpu.make_async_copy(held, y.at[window], done)
    copy.start()
    copy.wait()


def window_body(x, out):
    start = pl.multiple_of(pl.program_id(0) * 16, 8)
    out[...] = x[pl.ds(start, 16), :]


def kinds_body(x, out, *, DTYPE, function):
    out[...] = function(x[...]).astype(DTYPE)


def double(value):
    return value * 2


def wrong_body(x, out):
    out[...] = x[...] + jnp.ones((3, 5))


def jitted_helper_body(x, out):
    out[...] = _helper(x[...])


@jax.jit
def _helper(value):
    return value + 1


BUMP_HBM = {
    "args": [ArgSpec(), ArgSpec(space="hbm", role="inout")],
    "scratch": [Scratch("vmem", (8, 128)), Scratch("dma_semaphore")],
}


def gemm_body(x, y, out, *, BLOCK_K):
    """A tile of x @ y, with a loop over K inside the program."""

    def step(k, total):
        part = pl.ds(k * BLOCK_K, BLOCK_K)
        return total + jnp.dot(x[:, part], y[part, :], preferred_element_type=jnp.float32)

    total = jnp.zeros(out.shape, jnp.float32)
    out[...] = jax.lax.fori_loop(0, x.shape[1] // BLOCK_K, step, total).astype(out.dtype)


def chain_body(x, out):
    value = x[...]
    out[...] = jnp.exp(value) * value + 1


def softmax_body(x, out):
    power = jnp.exp(x[...].astype(jnp.float32))
    out[...] = (power / power.sum(-1, keepdims=True)).astype(out.dtype)


def product_body(x, y, out):
    out[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)


def pipeline_body(x, out):
    """A pipeline over blocks of 1024 rows, with two blocks of each array in memory at a time."""
    block = pl.BlockSpec((1024, x.shape[1]), lambda i: (i, 0))
    pltpu.emit_pipeline(copy_body, grid=(x.shape[0] // 1024,), in_specs=[block], out_specs=[block])(x, out)


def scoped_body(x, out):
    """Allocates memory in one scope after the other."""

    def move(held, done):
        window = pl.ds(0, held.shape[0])
        for copy in (
            pltpu.make_async_copy(x.at[window], held, done),
            pltpu.make_async_copy(held, out.at[window], done),
        ):
            copy.start()
            copy.wait()

    for rows in (512, 1536):
        pl.run_scoped(move, pltpu.VMEM((rows, 1024), x.dtype), pltpu.SemaphoreType.DMA(()))


def mosaic_add_body(x, y, out, a, *, BLOCK):
    """out = x + a y by a grid of programs, each over its own part of the arrays."""
    part = pl.ds(jax.lax.axis_index("x") * BLOCK, BLOCK)
    out[part] = x[part] + y[part] * a


def mosaic_copy_body(x, out, held, arrived):
    """out = x + 1, block by block through shared memory."""
    from jax.experimental.pallas import mosaic_gpu  # missing on some machines with jax

    rows = pl.ds(jax.lax.axis_index("x") * held.shape[0], held.shape[0])
    mosaic_gpu.copy_gmem_to_smem(x.at[rows], held, arrived)
    mosaic_gpu.barrier_wait(arrived)
    held[...] = held[...] + 1
    mosaic_gpu.commit_smem()
    mosaic_gpu.copy_smem_to_gmem(held, out.at[rows])
    mosaic_gpu.wait_smem_to_gmem(0)


MOSAIC_ADD = {"args": [ArgSpec(), ArgSpec(), ArgSpec(role="out", shape="x"), "fp32"], "scheme": "mosaic_gpu"}
MOSAIC_COPY = {
    "args": [ArgSpec(), ArgSpec(role="out", shape="x")],
    "scheme": "mosaic_gpu",
    "scratch": [Scratch("smem", (64, 128), "x"), Scratch("barrier")],
}


def bump_places_body(x, y):
    """Changes two elements of an array in SMEM, by scalar accesses."""
    y[0, 1] = y[0, 1] + x[0]
    y[1, 2] = y[1, 2] * 2


def five_axes_body(x, out):
    """out = x + 10000 a + 1000 b + 100 c + 10 d + e, for the program with the indices (a, b, c, d, e)."""
    said = jnp.int32(0)
    for axis in range(5):
        said = said * 10 + pl.program_id(axis)
    out[...] = x[...] + said


def nested_pipelines_body(x, out):
    """out = 2 x + the program's index, 16 rows for each program: a pipeline over rows, and in it one over lanes.

    The pipelines pass explicit indices to their bodies; then ``pl.program_id`` returns the grid's index, as in Helion's
    code.
    """

    def row(_, x_rows, out_rows):
        program = pl.program_id(0)

        def lanes(_, x_block, out_block):
            out_block[...] = x_block[...] * 2 + program

        pipelined(lanes, pl.BlockSpec((8, 128), lambda i: (0, i)))(x_rows, out_rows)

    def pipelined(body, block):
        return pltpu.emit_pipeline(body, grid=(2,), in_specs=[block], out_specs=[block], _explicit_indices=True)

    window = pl.ds(pl.multiple_of(pl.program_id(0) * 16, 16), 16)
    pipelined(row, pl.BlockSpec((8, 256), lambda i: (i, 0)))(x.at[window], out.at[window])
