"""Products whose right operand lies transposed, as the weights of a linear layer do, and whose sizes are no tile's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import compiled, module_of, needs_compiler  # noqa: E402
from silo.core.device import Target  # noqa: E402
from silo.drivers.cpu.levels import LEVELS, host_target, level_of  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler


@triton.jit(do_not_specialize=["M", "N", "K", "am", "ak", "bk", "bn"])
def linear(a, b, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    p = tl.program_id(0)
    columns = tl.cdiv(N, BN)
    i, j, k = (p // columns) * BM + tl.arange(0, BM), (p % columns) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32 if a.dtype.element_ty != tl.int8 else tl.int32)
    for s in range(tl.cdiv(K, BK)):
        d = s * BK + k
        x = tl.load(a + i[:, None] * am + d[None, :] * ak, mask=(i[:, None] < M) & (d[None, :] < K), other=0)
        y = tl.load(b + d[:, None] * bk + j[None, :] * bn, mask=(d[:, None] < K) & (j[None, :] < N), other=0)
        total = tl.dot(x, y, total)
    tl.store(c + i[:, None] * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))


# No multiple of a vector, of a word of two or four elements, or of four; of one element; longer than a pass.
_SHAPES = [(50, 92, 94), (33, 44, 77), (16, 17, 700), (5, 1, 3), (70, 130, 63), (64, 64, 64)]
# A product, or its last tile, of at most four rows or columns.
_SHAPES += [(1, 131, 200), (2, 70, 64), (35, 67, 333), (68, 68, 130), (90, 1, 300)]


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("turned", ["right", "left", "both", "neither"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "int8"])
def test_sizes_that_are_no_multiple(name, turned, level):
    if LEVELS[level].vector_bits > level_of(host_target()).vector_bits:
        pytest.skip(f"this CPU does not reach {level}")
    dtype, random = np.dtype(getattr(ml_dtypes, name, name)), np.random.default_rng(3)
    for m, n, k in _SHAPES:
        a, b = (random.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
        expected = a.astype(np.float64) @ b.astype(np.float64)
        if turned in ("left", "both"):
            a = np.asfortranarray(a)
        if turned in ("right", "both"):
            b = np.asfortranarray(b)
        c = np.full((m, n), 99, np.int32 if name == "int8" else np.float32)
        words = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}
        strides = [step // dtype.itemsize for step in (*a.strides, *b.strides)]
        words |= dict(zip(("am", "ak", "bk", "bn"), strides, strict=True))
        loaded = compiled(linear, "optimized", target=Target("cpu", level), **words, BM=32, BN=64, BK=32)
        if name == "bfloat16":
            words |= {"a": a.view(np.uint16), "b": b.view(np.uint16)}
        loaded.run((-(-m // 32) * -(-n // 64),), {slot.name: words[slot.name] for slot in loaded.launch.layout})
        np.testing.assert_array_equal(c, expected)


def test_parts_of_rows_are_added_in_the_order_of_all():
    """A part may be of few rows where the program is not, and its sums would be added in another order."""
    x = np.zeros((64, 64), np.float32)
    given = {"a": x, "b": x, "c": x, "M": 64, "N": 64, "K": 64, "am": 64, "ak": 1, "bk": 1, "bn": 64}
    module = lambda: module_of(linear, {**given, "BM": 32, "BN": 64, "BK": 32})  # noqa: E731
    assert "dot_thin" in emit_c(module(), CpuOptions()).source
    assert "dot_thin" not in emit_c(module(), CpuOptions(row_parts=True)).source


@pytest.mark.parametrize("units", [0, 1])
@pytest.mark.parametrize("name", ["bfloat16", "int8"])
def test_what_a_cpu_may_not_have(name, units):
    dtype, random = np.dtype(getattr(ml_dtypes, name, name)), np.random.default_rng(5)
    for m, n, k in _SHAPES:
        a, b = (random.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (n, k)))
        c = np.full((m, n), 99, np.int32 if name == "int8" else np.float32)
        words = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k, "am": k, "ak": 1, "bk": 1, "bn": k}
        loaded = compiled(linear, "optimized", options={"cpu_dot_units": units}, **words, BM=32, BN=64, BK=32)
        if name == "bfloat16":
            words |= {"a": a.view(np.uint16), "b": b.view(np.uint16)}
        loaded.run((-(-m // 32) * -(-n // 64),), {slot.name: words[slot.name] for slot in loaded.launch.layout})
        np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64).T)
