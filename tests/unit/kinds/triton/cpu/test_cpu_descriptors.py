"""Tensor descriptors and block pointers on the CPU, made in the kernel and by the caller."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are lowered by Triton")

import triton
import triton.language as tl

import silo
from cpu_samples import MODES, needs_compiler, run
from silo.core.compound_arguments import TensorDescriptor
from silo.kinds.triton.front.adapter import triton_version

pytestmark = needs_compiler
PLACES = np.array([1, 5, 3, 19, 0, 7, 30, 2], np.int32)  # one row is outside


def normal():
    return np.random.default_rng(0).standard_normal((20, 32)).astype(np.float32)


@triton.jit
def moved(x, out, n, m):
    source = tl.make_tensor_descriptor(x, [n, m], [m, 1], [8, 16])
    target = tl.make_tensor_descriptor(out, [n, m], [m, 1], [8, 16])
    target.store([16, 16], source.load([4, 24]))
    target.atomic_add([2, 4], source.load([0, 0]))


@triton.jit
def shuffled(x, out, places, n, m):
    source = tl.make_tensor_descriptor(x, [n, m], [m, 1], [1, 16])
    target = tl.make_tensor_descriptor(out, [n, m], [m, 1], [1, 16])
    rows = tl.load(places + tl.arange(0, 8))
    target.scatter(source.gather(rows, 2), rows, 16)


@pytest.mark.parametrize("mode", MODES)
def test_descriptors_made_in_the_kernel(mode):
    x, out = normal(), np.zeros((20, 32), np.float32)
    run(moved, (1,), mode, x=x, out=out, n=20, m=32)
    wanted = np.zeros((20, 32), np.float32)
    wanted[16:, 16:24] = x[4:8, 24:]  # what is outside reads 0 and is written nowhere
    wanted[2:10, 4:20] += x[:8, :16]
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_gathered_and_scattered(mode):
    x, out = normal(), np.zeros((20, 32), np.float32)
    run(shuffled, (1,), mode, x=x, out=out, places=PLACES, n=20, m=32)
    wanted = np.zeros((20, 32), np.float32)
    inside = PLACES[PLACES < 20]
    wanted[inside, 16:] = x[inside, 2:18]
    np.testing.assert_array_equal(out, wanted)


@silo.kernel(grid=(1,))
@triton.jit
def doubled(x, out):
    out.store([8, 16], x.load([4, 24]) * 2)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_descriptors_of_the_caller(padding):
    x, out = normal(), np.zeros((20, 32), np.float32)
    blocks = [8, 16]
    doubled(TensorDescriptor(x, x.shape, (32, 1), blocks, padding), TensorDescriptor(out, out.shape, (32, 1), blocks))
    wanted = np.zeros((20, 32), np.float32)
    wanted[8:16, 16:24], wanted[8:16, 24:] = x[4:12, 24:] * 2, 0 if padding == "zero" else np.nan
    np.testing.assert_array_equal(out, wanted)


@triton.jit
def walked(x, out, n, m):
    source = tl.make_block_ptr(x, (n, m), (m, 1), (16, 0), (8, 16), (1, 0))
    target = tl.make_block_ptr(out, (n, m), (m, 1), (16, 0), (8, 16), (1, 0))
    for _ in range(2):
        tile = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tile + 1, boundary_check=(0, 1))
        source, target = tl.advance(source, (0, 16)), tl.advance(target, (0, 16))


@pytest.mark.skipif(not triton_version().startswith("3.6"), reason="this Triton has no block pointers")
@pytest.mark.parametrize("mode", MODES)
def test_block_pointers(mode):
    x, out = normal(), np.zeros((20, 32), np.float32)
    run(walked, (1,), mode, x=x, out=out, n=20, m=32)
    np.testing.assert_array_equal(out[16:], x[16:] + 1)
    assert not out[:16].any()
