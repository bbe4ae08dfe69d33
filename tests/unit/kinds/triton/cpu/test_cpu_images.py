"""Tests kernels of image models: short rows of a known length, strided reads, padding, and maxima that keep a NaN."""
# pyright: reportCallIssue=false

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler

RNG = np.random.default_rng(5)


@triton.jit
def greater(a, b):
    return tl.where((a > b) | (a != a), a, b)  # noqa: PLR0124  # a NaN is not itself


@triton.jit
def halved(x, o, rows, W: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr):
    """Stores the maximum of each square of two by two elements."""
    y, i = (tl.program_id(0) * BY + tl.arange(0, BY))[:, None], tl.arange(0, BX)[None, :]
    inside = (y < rows) & (i < W)
    at = x + y * 4 * W + 2 * i
    first = greater(tl.load(at, mask=inside), tl.load(at + 1, mask=inside))
    second = greater(first, tl.load(at + 2 * W, mask=inside))
    tl.store(o + y * W + i, greater(second, tl.load(at + 2 * W + 1, mask=inside)), mask=inside)


@triton.jit
def halved_and_summed(x, o, rows, W: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    """Stores, for each picture, the sum of the maxima of its squares of two by two elements: N rows of W maxima."""
    picture, i = tl.program_id(0), tl.arange(0, BLOCK)
    inside = (i < W * N) & (picture < rows)
    at = x + picture * 4 * W * N + i // W * 4 * W + 2 * (i % W)
    first = greater(tl.load(at, mask=inside, other=0.0), tl.load(at + 1, mask=inside, other=0.0))
    second = greater(first, tl.load(at + 2 * W, mask=inside, other=0.0))
    third = greater(second, tl.load(at + 2 * W + 1, mask=inside, other=0.0))
    tl.store(o + picture, tl.sum(tl.where(inside, third, 0.0)))


@triton.jit
def framed(x, o, pictures, H: tl.constexpr, W: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr):
    """Stores doubled pictures in a frame of zeros, one element wide; masks compare 64-bit integers, as in Inductor."""
    z = tl.program_id(0)
    y, i = tl.arange(0, BY)[:, None], tl.arange(0, BX)[None, :]
    inside = (y < H + 2) & (i < W + 2) & (z < pictures)
    up, left = (y - 1).to(tl.int64), (i - 1).to(tl.int64)
    within = (up >= 0) & (up < H) & (left >= 0) & (left < W)
    values = tl.load(x + z * H * W + (y - 1) * W + i - 1, mask=within & inside, other=0.0)
    tl.store(o + z * (H + 2) * (W + 2) + y * (W + 2) + i, values * 2, mask=inside)


@triton.jit
def row_means(x, o, rows, N: tl.constexpr, BX: tl.constexpr, BLOCK: tl.constexpr):
    row, i = (tl.program_id(0) * BX + tl.arange(0, BX))[:, None], tl.arange(0, BLOCK)[None, :]
    values = tl.load(x + row * N + i, mask=(i < N) & (row < rows), other=0.0)
    tl.store(o + row, tl.sum(tl.maximum(values, 0.0), 1)[:, None] / N, mask=row < rows)


@triton.jit
def middle_sums(x, o, total, N: tl.constexpr, R, BLOCK: tl.constexpr):
    """Sums an array over the middle one of its three axes; some elements of the last program are beyond ``total``."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for r in range(R):
        inside = i < total
        sums = tl.where(inside, sums + tl.load(x + i % N + N * r + i // N * N * R, mask=inside, other=0.0), sums)
    tl.store(o + i, sums, mask=i < total)


@triton.jit
def enlarged(x, o, rows, W: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr):
    y, i = (tl.program_id(0) * BY + tl.arange(0, BY))[:, None], tl.arange(0, BX)[None, :]
    inside = (y < 2 * rows) & (i < 2 * W)
    up, left = (y.to(tl.float32) * 0.5).to(tl.int32), (i.to(tl.float32) * 0.5).to(tl.int32)
    values = tl.load(x + up * W + left, mask=inside)
    tl.store(o + y * 2 * W + i, 1.0 / (1.0 + tl.exp(-values)), mask=inside)


def pictures(*shape, kinds=()):
    values = RNG.standard_normal(shape).astype(np.float32)
    for kind in kinds:
        values[RNG.random(shape) < 0.1] = kind
    return values


def maxima(values):
    """Returns maxima of four elements as ``greater`` computes them: a NaN stays, and of two equal zeros the second."""
    result = values[..., 0]
    for k in (1, 2, 3):
        other = values[..., k]
        result = np.where((result > other) | np.isnan(result), result, other)
    return result


def squares(values):
    height, width = values.shape[-2] // 2, values.shape[-1] // 2
    parts = values.reshape(*values.shape[:-2], height, 2, width, 2)
    return np.moveaxis(parts, -3, -2).reshape(*values.shape[:-2], height, width, 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [1, 3, 7, 14, 16, 28, 31])
def test_maxima_of_squares_keep_what_is_no_number(mode, width):
    x = pictures(2 * 9, 2 * width, kinds=(np.nan, np.inf, -0.0, 0.0))
    out = np.full((11, width), 7.0, np.float32)
    run(halved, (3,), mode, x=x, o=out, rows=9, W=width, BY=4, BX=triton.next_power_of_2(width))
    np.testing.assert_array_equal(out[:9].view(np.int32), maxima(squares(x)).view(np.int32))
    np.testing.assert_array_equal(out[9:], 7.0)


def test_maxima_of_squares_are_written_as_two_choices():
    """The C text has two conditional expressions instead of one with ``|``, which gcc would compile to branches."""
    arguments = {"x": pictures(8, 28), "o": pictures(4, 14), "rows": 4, "W": 14, "BY": 4, "BX": 16}
    text = emit_c(module_of(halved, arguments), CpuOptions(vector_bits=512)).source
    assert " == 14) {" in text
    assert ") | (" not in text[text.index("kernel_halved") :].replace("(void)", "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("width", "height"), [(7, 7), (14, 14), (5, 3), (13, 2), (4, 9)])
def test_sums_of_maxima(mode, width, height):
    x = pictures(6, 2 * height, 2 * width)
    out = np.full(8, 7.0, np.float32)
    block = triton.next_power_of_2(width * height)
    run(halved_and_summed, (8,), mode, x=np.concatenate([x, x[:2]]), o=out, rows=6, W=width, N=height, BLOCK=block)
    np.testing.assert_allclose(out[:6], maxima(squares(x)).sum((1, 2)), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(out[6:], 0.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("height", "width"), [(28, 28), (3, 14), (5, 30), (1, 1), (9, 17)])
def test_a_frame(mode, height, width):
    x = pictures(3, height, width)
    out = np.full((4, height + 2, width + 2), 7.0, np.float32)
    blocks = {"BY": triton.next_power_of_2(height + 2), "BX": triton.next_power_of_2(width + 2)}
    run(framed, (4,), mode, x=x, o=out, pictures=3, H=height, W=width, **blocks)
    np.testing.assert_array_equal(out[:3], np.pad(x * 2, ((0, 0), (1, 1), (1, 1))))
    np.testing.assert_array_equal(out[3], 7.0)


def test_conditions_of_a_frame_are_of_narrow_integers():
    arguments = {"x": pictures(1, 9, 9), "o": pictures(1, 11, 11), "pictures": 1, "H": 9, "W": 9, "BY": 16, "BX": 16}
    text = emit_c(module_of(framed, arguments), CpuOptions(vector_bits=512)).source
    body = text[text.index("kernel_framed") :]
    assert ">= (((int64_t)0))" not in body
    assert "(-2147483647 - 1)" in body


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [3, 17, 33, 49, 60, 64])
def test_means_of_rows_whose_length_the_compiler_knows(mode, length):
    x = pictures(37, length)
    out = np.full(48, 7.0, np.float32)
    run(row_means, (6,), mode, x=x, o=out, rows=37, N=length, BX=8, BLOCK=triton.next_power_of_2(length))
    np.testing.assert_allclose(out[:37], np.maximum(x, 0).mean(1), rtol=1e-5)
    np.testing.assert_array_equal(out[37:], 7.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [7, 14, 49, 100])
def test_sums_of_a_middle_axis(mode, length):
    x = pictures(5, 11, length)
    out = np.full(5 * length + 300, 7.0, np.float32)
    run(middle_sums, (-(-5 * length // 256),), mode, x=x, o=out, total=5 * length, N=length, R=11, BLOCK=256)
    np.testing.assert_allclose(out[: 5 * length], x.sum(1).ravel(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(out[5 * length :], 7.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [7, 24, 33])
def test_enlarged_pictures(mode, width):
    x = pictures(6, width)
    out = np.full((14, 2 * width), 7.0, np.float32)
    run(enlarged, (4,), mode, x=x, o=out, rows=6, W=width, BY=4, BX=triton.next_power_of_2(2 * width))
    expected = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(out[:12], expected.repeat(2, 0).repeat(2, 1), rtol=1e-5)
    np.testing.assert_array_equal(out[12:], 7.0)
