"""Element types through whole kernels: 8-bit floats, bools, unsigned integers, pointers kept in memory."""
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.errors import UnsupportedError  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402

pytestmark = needs_compiler
FP8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz)


@triton.jit
def scale(x, out, row, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + i, (v * factor).to(out.dtype.element_ty), mask=mask)
    tl.store(row + tl.program_id(0), tl.sum(v, axis=0))


@triton.jit
def toward_zero(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def choose(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, tl.where(a < b, a, b))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FP8)
def test_eight_bit_floats_are_loaded_masked_converted_and_stored(mode, dtype):
    n = 1000
    x = np.random.default_rng(0).normal(size=n).astype(dtype)
    out, row = np.full(n + 1, 7, dtype), np.zeros(8, np.float32)
    run(scale, (8,), mode, x=x, out=out, row=row, factor=1.5, n=n, BLOCK=128)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(out[:n], (wide * np.float32(1.5)).astype(dtype))
    assert float(out[n]) == 7
    np.testing.assert_allclose(row, np.pad(wide, (0, 24)).reshape(8, 128).sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_conversions_saturate_and_round_toward_zero_where_the_kernel_says_so(mode):
    x = np.float32([1e6, -1e6, np.inf, np.nan, 1.99, -1.99, 0.3, 464.1] + [0.0] * 8)
    out = np.zeros(16, ml_dtypes.float8_e4m3fn)
    row = np.zeros(1, np.float32)
    run(scale, (1,), mode, x=x, out=out, row=row, factor=1.0, n=16, BLOCK=16)
    got = out.astype(np.float32)[:8]
    np.testing.assert_array_equal(got, np.float32([448, -448, 448, np.nan, 2, -2, 0.3125, 448]))
    narrow = np.zeros(16, ml_dtypes.float8_e5m2)
    run(toward_zero, (1,), mode, x=x, out=narrow, BLOCK=16)
    got = narrow.astype(np.float32)[:8]
    np.testing.assert_array_equal(got, np.float32([57344, -57344, np.inf, np.nan, 1.75, -1.75, 0.25, 448]))
    half = np.zeros(16, np.float16)
    run(toward_zero, (1,), mode, x=x, out=half, BLOCK=16)
    assert half[0] == np.float16(65504)
    assert half[4] == np.float16(1.9893)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [*FP8, np.uint8, np.int8, np.uint16, np.int64, np.uint64, np.bool_, np.float16])
def test_every_element_type_is_compared_by_its_own_order(mode, dtype):
    bits = np.random.default_rng(1).integers(0, 1 << 16, (2, 64), dtype=np.uint16)
    if dtype in FP8:
        bits = bits & 0x5F5F  # no NaN
        x, y = (row.astype(np.uint8).view(dtype) for row in bits)
        smaller = np.where(x.astype(np.float32) < y.astype(np.float32), x, y)
    else:
        x, y = (row.astype(dtype) * np.array(-1 if dtype is np.int64 else 1, np.int64).astype(dtype) for row in bits)
        smaller = np.where(x < y, x, y)
    out = np.zeros(64, dtype)
    run(choose, (1,), mode, x=x, y=y, out=out, BLOCK=64)
    np.testing.assert_array_equal(out.view(np.uint8), smaller.view(np.uint8))


@triton.jit
def through_fp8e4b15(x, byte, back, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    place = byte.to(tl.pointer_type(tl.float8e4b15)) + i
    tl.store(place, tl.load(x + i).to(tl.float8e4b15))
    tl.store(back + i, tl.load(place).to(back.dtype.element_ty))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_the_format_that_only_triton_has(mode, dtype):
    """fp8e4b15: four bits of exponent with bias 15, ties away from zero, 1.75 at most."""
    steps = np.array(
        [m * 2.0**-17 for m in range(8)] + [(8 + m) * 2.0 ** (e - 18) for e in range(1, 16) for m in range(8)]
    )
    steps = steps[steps <= 1.75]
    edges = np.array([0, -0.0, 1, -1, 1.75, 1.8, 100, -100, np.inf, -np.inf, np.nan, 2.0**-18, 3 * 2.0**-19, 1.0625])
    x = np.concatenate([edges, np.random.default_rng(4).normal(size=498) * 0.6]).astype(dtype)
    half = np.float16(x) if dtype is not np.float32 else truncated(x)
    size = np.minimum(np.abs(np.nan_to_num(half.astype(np.float64), nan=9.0)), 1.75)
    place = np.searchsorted(steps, size, side="right") - 1
    above = np.minimum(place + 1, steps.size - 1)
    place = np.where(size - steps[place] >= steps[above] - size, above, place)
    byte, back = np.zeros(512, np.uint8), np.zeros(512, np.float32)
    run(through_fp8e4b15, (1,), mode, x=x, byte=byte, back=back, BLOCK=512)
    np.testing.assert_array_equal(byte & 0x7F, place)
    np.testing.assert_array_equal(byte >> 7, np.signbit(x.astype(np.float32)))
    np.testing.assert_array_equal(np.abs(back), steps[place])


def truncated(x):
    """float32 to float16 toward zero."""
    with np.errstate(over="ignore"):
        near = x.astype(np.float16)
    return np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float16(0)), near)


@triton.jit
def gather_rows(table, out, BLOCK: tl.constexpr):
    address = tl.load(table + tl.program_id(0))
    row = address.to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + i, tl.load(row + i))


@triton.jit
def every_row_its_own(table, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    place = tl.load(table + i).to(tl.pointer_type(tl.float32))
    other = tl.load(table + BLOCK - 1 - i).to(tl.pointer_type(tl.float32))
    chosen = tl.where(i % 2 == 0, place, other)
    tl.store(out + i, tl.load(chosen) + (chosen.to(tl.int64) % 4).to(tl.float32))
    tl.store(chosen + 1, i.to(tl.float32))


@pytest.mark.parametrize("mode", MODES)
def test_addresses_kept_in_memory_become_pointers(mode):
    rows = [np.random.default_rng(k).normal(size=64).astype(np.float32) for k in range(4)]
    table = np.array([row.ctypes.data for row in rows], np.uint64)
    out = np.zeros((4, 64), np.float32)
    run(gather_rows, (4,), mode, table=table, out=out, BLOCK=64)
    np.testing.assert_array_equal(out, rows)
    firsts = [row[0] for row in rows]
    single = np.zeros(4, np.float32)
    run(every_row_its_own, (1,), mode, table=table, out=single, BLOCK=4)
    np.testing.assert_array_equal(single, [firsts[k] if k % 2 == 0 else firsts[3 - k] for k in range(4)])
    assert rows[0][1] in (0, 3)  # two elements chose each row
    assert rows[2][1] in (1, 2)


def test_inline_assembly_is_refused_with_its_line_and_the_reason():
    @triton.jit
    def timed(out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(
            out + i, tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [i], dtype=tl.int32, is_pure=True, pack=1)
        )

    with pytest.raises(UnsupportedError, match="inline assembly is for one kind of GPU"):
        emit_c(module_of(timed, {"out": np.zeros(16, np.int32), "BLOCK": 16}))


@triton.jit
def library(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    bits = libdevice.clz(libdevice.float_as_int(v))
    tl.store(out + i, libdevice.add_ru(libdevice.erfinv(v), libdevice.pow(v, 2.5)) + bits.to(tl.float32))


@pytest.mark.parametrize("mode", MODES)
def test_functions_of_libdevice_in_a_kernel(mode):
    x = np.linspace(0.01, 0.99, 64, dtype=np.float32)
    out = np.zeros(64, np.float32)
    run(library, (1,), mode, x=x, out=out, BLOCK=64)
    mpmath = pytest.importorskip("mpmath")

    expected = [float(mpmath.erfinv(float(v))) + float(v) ** 2.5 + 2 + (float(v) < 0.0078125) for v in x]
    np.testing.assert_allclose(out, expected, rtol=1e-6)
