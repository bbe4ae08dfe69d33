"""Programs that read adjacent columns run together: equal results for any range of programs, and for which kernels."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, both, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def turned(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    """The vector times a matrix, with a tile of totals."""
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN, BK), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        inside = (j[:, None] < N) & (k[None, :] < K)
        weights = tl.load(w + j[:, None] + k[None, :] * N, mask=inside, other=0.0)
        total += weights * tl.load(x + k, mask=k < K, other=0.0)[None, :]
    tl.store(o + j, tl.sum(total, 1), mask=j < N)


@triton.jit
def in_sum(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    """The same, with a carried pointer, a number that depends on the program, and its own columns of ``x`` added."""
    first = tl.program_id(0) * BN
    j, k = first + tl.arange(0, BN), tl.arange(0, BK)
    factors = x + k
    total = tl.zeros((BN,), tl.float32)
    for s in range(0, K, BK):
        inside = (j[None, :] < N) & (s + k[:, None] < K)
        weights = tl.load(w + (s + k[:, None]) * N + j[None, :], mask=inside, other=1.0)
        total += tl.sum(weights * tl.load(factors, mask=s + k < K, other=2.0)[:, None], 0)
        factors += BK
    tl.store(o + j, total + first + tl.load(x + j, mask=j < K, other=0.0), mask=j < N)


@triton.jit
def long_factors(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    """The factors have no mask: rows that are masked off are zeros times what follows the factors."""
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        inside = (j[None, :] < N) & (k[:, None] < K)
        weights = tl.load(w + k[:, None] * N + j[None, :], mask=inside, other=0.0)
        total += tl.sum(weights * tl.load(x + k)[:, None], 0)
    tl.store(o + j, total, mask=j < N)


@triton.jit
def batched(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    """Along the second axis of the grid, other factors and other columns of the output."""
    b, j = tl.program_id(1), tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for s in range(0, K - b, BK):
        k = s + tl.arange(0, BK)
        inside = (j[None, :] < N) & (k[:, None] < K - b)
        weights = tl.load(w + k[:, None] * N + j[None, :], mask=inside, other=0.0)
        total += tl.sum(weights * tl.load(x + b + k, mask=k < K - b, other=0.0)[:, None], 0)
    tl.store(o + b * N + j, total, mask=j < N)


@triton.jit
def rows_of_own(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    """Programs that read other rows."""
    total = tl.zeros((BN,), tl.float32)
    j = tl.arange(0, BN)
    for s in range(0, K, BK):
        k = tl.program_id(0) * K + s + tl.arange(0, BK)
        total += tl.sum(tl.load(w + k[:, None] * N + j[None, :]), 0)
    tl.store(o + tl.program_id(0) * BN + j, total)


@triton.jit
def of_own_length(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    """Programs that read other numbers of rows."""
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for s in range(0, tl.program_id(0) * BK, BK):
        k = s + tl.arange(0, BK)
        total += tl.sum(
            tl.load(w + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0), 0
        )
    tl.store(o + j, total, mask=j < N)


@triton.jit
def with_atomics(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        total += tl.sum(
            tl.load(w + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0), 0
        )
    tl.atomic_add(o + j, total, mask=j < N)


@triton.jit
def storing_totals(w, x, o, K, N, BN: tl.constexpr, BK: tl.constexpr):
    """Each iteration stores."""
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        total += tl.sum(
            tl.load(w + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0), 0
        )
        tl.store(o + j, total, mask=j < N)


def arguments(rows, columns, tile=(32, 64), *, whole=True):
    """Small whole numbers, whose sums are exact in any order, or normal ones."""
    rng = np.random.default_rng(0)
    w, x = (rng.integers(-8, 9, shape) if whole else rng.standard_normal(shape) for shape in ((rows, columns), rows))
    o = np.full(columns, np.nan, np.float32)
    return {
        "w": w.astype(np.float32),
        "x": x.astype(np.float32),
        "o": o,
        "K": rows,
        "N": columns,
        "BN": tile[0],
        "BK": tile[1],
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [turned, in_sum])
@pytest.mark.parametrize("shape", [(200, 300), (5, 33), (131, 4160), (64, 160), (65, 172)])
def test_products(kernel, shape, mode):
    given = arguments(*shape)
    run(kernel, (-(-shape[1] // 32),), mode, **given)
    expected = given["x"] @ given["w"]
    if kernel is in_sum:
        own = np.zeros(shape[1], np.float32)
        own[: shape[0]] = given["x"][: shape[1]]
        expected += np.arange(shape[1]) // 32 * 32 + own
        masked = -shape[0] % 64  # rows that read as 1.0 * 2.0
        expected += 2.0 * masked
    np.testing.assert_array_equal(given["o"], expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(200, 300), (131, 45)])
def test_rows_after_the_last_are_zeros_times_infinity(shape, mode):
    given = arguments(*shape)
    given["x"] = np.append(given["x"], np.full(-shape[0] % 64, np.inf, np.float32))
    with np.errstate(invalid="ignore"):
        run(long_factors, (-(-shape[1] // 32),), mode, **given)
    assert np.isnan(given["o"]).all()


@pytest.mark.parametrize("kernel", [turned, in_sum])
def test_each_program_alone_has_the_same_bits(kernel):
    columns = 300
    together = arguments(200, columns, whole=False)
    run(kernel, (10,), "optimized", **together)
    alone = arguments(200, columns, whole=False)
    run(kernel, (1,), "optimized", **alone)  # the first program alone
    np.testing.assert_array_equal(alone["o"][:32], together["o"][:32])
    assert np.isnan(alone["o"][32:]).all()


@pytest.mark.parametrize("columns", [300, 70])
def test_rows_of_a_grid(columns):
    """Programs of several rows of the grid are in one call: those of one row alone run together."""
    given = arguments(100, columns)
    given["o"] = np.full((5, columns), np.nan, np.float32)
    run(batched, (-(-columns // 32), 5), "optimized", **given)
    x, w = given["x"], given["w"]
    np.testing.assert_array_equal(given["o"], np.stack([x[b:] @ w[: 100 - b] for b in range(5)]))


@pytest.mark.parametrize("tile", [(16, 8), (128, 16)])
@pytest.mark.parametrize("kernel", [turned, of_own_length, storing_totals])
def test_modes_agree(kernel, tile):
    reference, optimized = both(kernel, (-(-700 // tile[0]),), **arguments(77, 700, tile))
    np.testing.assert_array_equal(reference["o"], optimized["o"])


def test_infinite_factors_of_masked_rows():
    """Rows behind the last have factors of their own: zero times infinity counts."""
    given = arguments(70, 300)
    given["x"][:] = np.inf
    given["w"][:] = 1.0
    run(turned, (10,), "optimized", **given)
    np.testing.assert_array_equal(given["o"], np.full(300, np.inf, np.float32))


def text(kernel, rows=200, columns=300):
    return emit_c(module_of(kernel, arguments(rows, columns)), CpuOptions(vector_bits=512)).source


def test_which_kernels_run_together():
    for kernel in (turned, in_sum, batched):
        assert "first_program" in text(kernel)
    for kernel in (rows_of_own, of_own_length, with_atomics, storing_totals):
        assert "first_program" not in text(kernel)


def test_masked_rows_point_to_memory_of_the_process():
    """A load without an active lane is slow if its address is unmapped."""
    source = text(turned)
    assert source.count("(float *)(void *)b") > 0
