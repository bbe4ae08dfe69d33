# ruff: noqa: E402  # Triton may be absent, which comes first
"""Inline assembly of several instructions: conversions to narrow floats, arithmetic, bytes and bits, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
from cpu_samples import MODES, run
from silo.errors import UnsupportedError

pytestmark = [
    cpu_samples.needs_compiler,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

BLOCK = 1024
E4M3 = "{ .reg .b16 packed; cvt.rn.satfinite.e4m3x2.f32 packed, $1, $1; cvt.u32.u16 $0, packed; }"
E4M3_TWO = (
    "{ .reg .b16 packed; cvt.rn.satfinite.e4m3x2.f32 packed, $3, $2; cvt.u32.u16 $0, packed; shr.b32 $1, $0, 8; }"
)
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@triton.jit
def one(x, like, out, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    dtype = like.dtype.element_ty
    y = tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [tl.load(x + i)], dtype=dtype, is_pure=True, pack=PACK)
    tl.store(out + i, y.to(out.dtype.element_ty))


@triton.jit
def two(x, y, out, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr):
    i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    operands = [tl.load(x + i), tl.load(y + i)]
    z = tl.inline_asm_elementwise(TEXT, CONSTRAINTS, operands, dtype=out.dtype.element_ty, is_pure=True, pack=1)
    tl.store(out + i, z)


@triton.jit
def three(x, y, z, out, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr):
    i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    operands = [tl.load(x + i), tl.load(y + i), tl.load(z + i)]
    w = tl.inline_asm_elementwise(TEXT, CONSTRAINTS, operands, dtype=out.dtype.element_ty, is_pure=True, pack=1)
    tl.store(out + i, w)


def apply(text, constraints, x, out, dtype, pack=1, mode="optimized"):
    """``text`` over blocks of ``x``; ``dtype`` is the type of the result, which is then stored as ``out``."""
    padded = np.resize(x, -(-len(x) // BLOCK) * BLOCK)
    found = np.zeros(len(padded), out)
    options = {"TEXT": text, "CONSTRAINTS": constraints, "PACK": pack}
    run(one, (len(padded) // BLOCK,), mode, x=padded, like=np.zeros(1, dtype), out=found, **options)
    return found[: len(x)]


def every_exponent():
    """fp32 of every exponent with some fractions, of both signs: subnormals, infinities and NaNs too."""
    fractions = np.array([0, 1, 0x1FFFFF, 0x200000, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF], np.uint32)
    bits = ((np.arange(256, dtype=np.uint32) << 23)[:, None] | fractions).ravel()
    return np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)


def around(type_):
    """Every number of a format of 8 bits and every halfway point, with their neighbours in fp32, and large ones."""
    numbers = np.arange(256, dtype=np.uint8).view(type_).astype(np.float32)
    finite = np.unique(numbers[np.isfinite(numbers)])
    exact = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, finite[[0, -1]] * 1.0625]).astype(np.float32)
    near = (exact.view(np.uint32)[:, None] + np.arange(-2, 3)).astype(np.uint32).ravel().view(np.float32)
    return np.concatenate([near, every_exponent()])


def saturated(values, kind):
    """The codes by ml_dtypes: the largest number in place of what is larger, 0x7f in place of NaN."""
    with np.errstate(invalid="ignore"):
        codes = np.clip(values, -LARGEST[kind], LARGEST[kind]).astype(TYPES[kind]).view(np.uint8)
    return np.where(np.isnan(values), np.uint8(0x7F), codes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", TYPES)
def test_float8_rounds_and_saturates_as_ptx_says(kind, mode):
    x = around(TYPES[kind])
    text = E4M3.replace("e4m3", kind)
    found = apply(text, "=r,f", x, np.int32, np.int32, mode=mode)
    codes = saturated(x, kind).astype(np.int32)
    np.testing.assert_array_equal(found, codes << 8 | codes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", TYPES)
def test_two_elements_at_a_time_whose_upper_bytes_are_dropped(kind, mode):
    x = around(TYPES[kind])
    found = apply(E4M3_TWO.replace("e4m3", kind), "=r,=r,f,f", x, np.uint8, np.int32, pack=2, mode=mode)
    np.testing.assert_array_equal(found, saturated(x, kind))


@pytest.mark.parametrize("kind", TYPES)
def test_pairs_of_float16_and_of_float8(kind):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found = apply(f"cvt.rn.satfinite.{kind}x2.f16x2 $0, $1;", "=h,r", halves, np.uint8, np.uint8, pack=2)
    np.testing.assert_array_equal(found, saturated(halves.astype(np.float32), kind))
    codes = np.arange(256, dtype=np.uint8)
    back = apply(f"cvt.rn.f16x2.{kind}x2 $0, $1;", "=r,h", codes, np.float16, np.float16, pack=2)
    np.testing.assert_array_equal(back, codes.view(TYPES[kind]).astype(np.float16))


def power(values, rounding, saturates):
    """The exponent of the power of two by frexp in fp64, in which every fp32 is exact."""
    magnitude = np.abs(values.astype(np.float64))
    fraction, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 1.0))
    code = exponent - 1 + ((fraction > 0.5) if rounding == "rp" else 0) + 127
    code = np.where(magnitude == 0, 0, np.clip(code, 0, 255))
    code = np.where(np.isinf(magnitude), 255, code)
    code = np.minimum(code, 254) if saturates else code
    return np.where(np.isnan(magnitude), 255, code).astype(np.int32)


@pytest.mark.parametrize("rounding", ["rz", "rp"])
@pytest.mark.parametrize("saturates", [False, True])
def test_powers_of_two(rounding, saturates):
    words = f"{rounding}.satfinite" if saturates else rounding
    x = every_exponent()
    expected = power(x, rounding, saturates)
    for mode in MODES:
        found = apply(f"cvt.{words}.ue8m0x2.f32 $0, 0.0, $1;", "=h,r", x, np.uint16, np.uint16, mode=mode)
        np.testing.assert_array_equal(found, expected)
    upper = apply(f"cvt.{words}.ue8m0x2.f32 $0, $1, 0f40000000;", "=h,f", x, np.uint16, np.uint16)
    np.testing.assert_array_equal(upper, expected << 8 | 128)
    halves = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    found = apply(f"cvt.{words}.ue8m0x2.bf16x2 $0, $1;", "=h,r", halves, np.uint8, np.uint8, pack=2)
    np.testing.assert_array_equal(found, power(halves.astype(np.float32), rounding, saturates))


def test_the_reference_of_powers():
    given = np.array([1, 1.5, 2, -3, 2.0**-127, 2.0**-127 + 2.0**-149, 2.0**-149, 0, np.inf, np.nan, 3e38], np.float32)
    assert power(given, "rp", saturates=False).tolist() == [127, 128, 128, 129, 0, 1, 0, 0, 255, 255, 255]
    assert power(given, "rz", saturates=True).tolist() == [127, 127, 128, 128, 0, 0, 0, 0, 254, 255, 254]


def test_powers_of_two_as_bfloat16():
    codes = np.arange(256, dtype=np.uint8)
    found = apply("cvt.rn.bf16x2.ue8m0x2 $0, $1;", "=r,h", codes, ml_dtypes.bfloat16, ml_dtypes.bfloat16, pack=2)
    np.testing.assert_array_equal(found[:255].astype(np.float64), 2.0 ** (np.arange(255) - 127.0))
    assert np.isnan(found[255].astype(np.float32))


RECIPROCAL = """{
    .reg .f32 r0, e, e2;
    rcp.approx.f32 r0, $1;
    fma.rn.f32 e, $1, r0, 0fBF800000;
    sub.ftz.f32 e2, 0f80000000, e;
    fma.rn.f32 $0, r0, e2, r0;
}"""


@pytest.mark.parametrize("mode", MODES)
def test_a_reciprocal_that_is_refined(mode):
    x = np.concatenate([np.arange(1, 1000), np.random.default_rng(0).uniform(1e-3, 1e3, 1000)]).astype(np.float32)
    first = np.float32(1) / x
    error = (x.astype(np.float64) * first - 1).astype(np.float32)  # the product is exact
    expected = (first.astype(np.float64) * -error.astype(np.float64) + first).astype(np.float32)
    np.testing.assert_array_equal(apply(RECIPROCAL, "=f,f", x, np.float32, np.float32, mode=mode), expected)


@pytest.mark.parametrize("mode", MODES)
def test_the_result_is_read_again(mode):
    x = np.linspace(-30, 30, BLOCK).astype(np.float32)
    text = "{ mul.ftz.f32 $0, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 $0, $0; }"
    found = apply(text, "=f,f", x, np.float32, np.float32, mode=mode)
    np.testing.assert_allclose(found, np.exp(-x.astype(np.float64)), rtol=3e-6)
    found = apply("add.f32 $0, $1, $1; mul.f32 $0, $0, $0;", "=f,f", x, np.float32, np.float32, mode=mode)
    np.testing.assert_array_equal(found, (x + x) * (x + x))


def test_products_and_sums_of_a_text_are_not_fused():
    x, y, z = (np.random.default_rng(n).standard_normal(BLOCK).astype(np.float32) for n in range(3))
    out = np.zeros_like(x)
    text = "{ .reg .f32 t; mul.f32 t, $1, $2; add.f32 $0, t, $3; }"
    run(three, (1,), "optimized", x=x, y=y, z=z, out=out, TEXT=text, CONSTRAINTS="=f,f,f,f")
    np.testing.assert_array_equal(out, x * y + z)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("rounding", ["rn", "rz"])
def test_pairs_of_halves_in_one_register(kind, rounding):
    type_ = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    x, y = (np.random.default_rng(n).normal(0, 3, BLOCK).astype(np.float32) for n in range(2))
    out = np.zeros(BLOCK, np.int32)
    text = f"{{ .reg .b32 t; cvt.{rounding}.{kind}x2.f32 t, $2, $1; add.rn.{kind}x2 $0, t, t; }}"
    run(two, (1,), "optimized", x=x, y=y, out=out, TEXT=text, CONSTRAINTS="=r,f,f")

    def narrow(values):
        near = values.astype(type_)
        away = np.abs(near.astype(np.float32)) > np.abs(values)
        return (near.view(np.uint16) - (away & (rounding == "rz"))).astype(np.uint16).view(type_)

    halves = out.view(np.uint32)
    np.testing.assert_array_equal((halves & 0xFFFF).astype(np.uint16).view(type_), narrow(x) + narrow(x))
    np.testing.assert_array_equal((halves >> 16).astype(np.uint16).view(type_), narrow(y) + narrow(y))


U = np.uint32


def permuted(low, high, selector):
    """Bytes of two words by the nibbles of a third; the upper bit of a nibble takes the sign of the byte."""
    both = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    result = np.zeros_like(low)
    for place in range(4):
        choice = selector >> U(4 * place) & U(15)
        byte = (both >> (choice & U(7)).astype(np.uint64) * np.uint64(8)).astype(np.uint32) & U(0xFF)
        byte = np.where(choice & U(8), np.where(byte & U(0x80), U(0xFF), U(0)), byte)
        result |= byte << U(8 * place)
    return result


def sign(values):
    """0xffff for negative numbers, else 0."""
    return np.where(values >> U(31), U(0xFFFF), U(0))


INTEGERS = {
    "add.u32 $0, $1, $2;": lambda a, b, c: a + b,
    "sub.s32 $0, $1, $2;": lambda a, b, c: a - b,
    "mul.lo.u32 $0, $1, $2;": lambda a, b, c: a * b,
    "mad.lo.s32 $0, $1, $2, $3;": lambda a, b, c: a * b + c,
    "min.s32 $0, $1, $2;": lambda a, b, c: np.minimum(a.view(np.int32), b.view(np.int32)).view(U),
    "max.u32 $0, $1, $2;": lambda a, b, c: np.maximum(a, b),
    "and.b32 $0, $1, $2; not.b32 $0, $0;": lambda a, b, c: ~(a & b),
    "xor.b32 $0, $1, $2; or.b32 $0, $0, $3;": lambda a, b, c: a ^ b | c,
    "and.b32 $0, $1, 0xff00ff00; shr.u32 $0, $0, 8;": lambda a, b, c: (a & U(0xFF00FF00)) >> U(8),
    "shl.b32 $0, $1, 5;": lambda a, b, c: a << U(5),
    "shr.s32 $0, $1, 9;": lambda a, b, c: (a.view(np.int32) >> 9).view(U),
    "shr.b32 $0, $1, 40;": lambda a, b, c: a * U(0),
    "and.b32 $0, $2, 31; shr.u32 $0, $1, $0;": lambda a, b, c: a >> (b & U(31)),
    "lop3.b32 $0, $1, $2, $3, 0xe8;": lambda a, b, c: (a & b) | (a & c) | (b & c),
    "lop3.b32 $0, $1, $2, $3, 0x96;": lambda a, b, c: a ^ b ^ c,
    "lop3.b32 $0, $1, $2, $3, 0xca;": lambda a, b, c: (a & b) | (~a & c),
    "prmt.b32 $0, $1, $2, 0x0123;": lambda a, b, c: a.byteswap(),
    "prmt.b32 $0, $1, $2, 0x5410;": lambda a, b, c: (a & U(0xFFFF)) | b << U(16),
    "prmt.b32 $0, $1, $2, 0xbb40;": lambda a, b, c: sign(a) << U(16) | (b & U(0xFF)) << U(8) | a & U(0xFF),
    "prmt.b32 $0, $1, $2, $3;": permuted,
    "shf.r.wrap.b32 $0, $1, $2, 3;": lambda a, b, c: a >> U(3) | b << U(29),
    "shf.l.wrap.b32 $0, $1, $2, 9;": lambda a, b, c: a >> U(23) | b << U(9),
    "and.b32 $0, $1, 0x0f0f0f0f; shl.b32 $0, $0, 2;": lambda a, b, c: (a & U(0x0F0F0F0F)) << U(2),
    "lop3.b32 $0, $1, $2, 0x80808080, 0xe4;": lambda a, b, c: (a & U(0x80808080)) | (b & U(0x7F7F7F7F)),
    "{ .reg .b16 h<2>; mov.b32 {h0, h1}, $1; mov.b32 $0, {h1, h0}; }": lambda a, b, c: a << U(16) | a >> U(16),
    "{ .reg .u8 %b; cvt.u8.u32 %b, $1; cvt.s32.s8 $0, %b; }": lambda a, b, c: a.astype(np.int8).astype(U),
    "cvt.u32.u16 $0, $1; add.s32 $0, $0, -1;": lambda a, b, c: (a & U(0xFFFF)) - U(1),
}  # fmt: skip


@pytest.mark.parametrize("text", INTEGERS)
def test_integers(text):
    a, b, c = (np.random.default_rng(n).integers(0, 1 << 32, BLOCK, np.uint32) for n in range(3))
    for mode in MODES:
        out = np.zeros(BLOCK, np.int32)
        arrays = {name: array.view(np.int32) for name, array in (("x", a), ("y", b), ("z", c))}
        run(three, (1,), mode, **arrays, out=out, TEXT=text, CONSTRAINTS="=r,r,r,r")
        np.testing.assert_array_equal(out.view(np.uint32), INTEGERS[text](a, b, c))


FP8_TO_HALVES = """{
    .reg .b32 rot, high;
    shf.r.wrap.b32 rot, $2, $2, 1;
    lop3.b32 high, $2, rot, 0x80808080, 0xE4;
    prmt.b32 $0, rot, high, 0x5043;
    prmt.b32 $1, rot, high, 0x7261;
    and.b32 $0, $0, 0xBF80BF80;
    and.b32 $1, $1, 0xBF80BF80;
}"""


def test_four_elements_whose_bits_cross_bytes_on_the_way():
    """Codes of e4m3 with their sign and their other seven bits apart, so that they are halves 2^8 times as small."""
    codes = np.arange(256, dtype=np.uint8)
    found = apply(FP8_TO_HALVES, "=r,=r,r", codes, np.float16, np.float16, pack=4)
    expected = (codes.astype(np.uint16) & 0x80) << 8 | (codes.astype(np.uint16) & 0x7F) << 7
    np.testing.assert_array_equal(found.view(np.uint16), expected)


DEQUANTIZE = """{
    .reg .b8 b0, b1, b2, b3;
    .reg .b32 p0, p1;
    mov.b32 {b0, b1, b2, b3}, $4;
    cvt.rn.KINDx2.e2m1x2 p0, b0;
    cvt.rn.KINDx2.e2m1x2 p1, b2;
    mul.rn.KINDx2 p0, p0, $5;
    mul.rn.KINDx2 p1, p1, $5;
    mov.b32 {$0, $1}, p0;
    mov.b32 {$2, $3}, p1;
}"""


@triton.jit
def four_results(words, scales, out, TEXT: tl.constexpr):
    i = tl.arange(0, 1024)
    dtype = out.dtype.element_ty
    operands = [tl.load(words + i), tl.load(scales + i)]
    a, b, c, d = tl.inline_asm_elementwise(
        TEXT, "=h,=h,=h,=h,r,r", operands, dtype=(dtype, dtype, dtype, dtype), is_pure=True, pack=1
    )
    tl.store(out + i * 4, a)
    tl.store(out + i * 4 + 1, b)
    tl.store(out + i * 4 + 2, c)
    tl.store(out + i * 4 + 3, d)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_text_of_several_results(kind, mode):
    type_ = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    words = np.random.default_rng(0).integers(0, 1 << 32, BLOCK, np.uint32)
    words[:256] = np.arange(256) * 0x10001
    scale = np.random.default_rng(1).choice([0.5, 1.0, 1.25, 3.0], BLOCK).astype(type_)
    bits = scale.view(np.uint16).astype(np.uint32)
    out = np.zeros(4 * BLOCK, type_)
    arrays = {"words": words.view(np.int32), "scales": (bits | bits << U(16)).view(np.int32), "out": out}
    run(four_results, (1,), mode, **arrays, TEXT=DEQUANTIZE.replace("KIND", kind))
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = (words[:, None] >> np.array([0, 4, 16, 20], np.uint32)) & U(15)
    numbers = np.where(codes & U(8), -1.0, 1.0) * magnitudes[codes & U(7)]
    expected = (numbers.astype(np.float32) * scale.astype(np.float32)[:, None]).astype(type_)
    np.testing.assert_array_equal(out.view(np.uint16), expected.ravel().view(np.uint16))


def test_a_result_of_several_that_is_not_written_is_refused():
    arrays = {name: np.zeros(BLOCK, np.int32) for name in ("words", "scales")}
    text = "mov.b32 {$0, $1}, $4; mov.b32 {$2, _}, $5;"
    with pytest.raises(UnsupportedError, match=r"writes no register"):
        run(four_results, (1,), "optimized", **arrays, out=np.zeros(4 * BLOCK, np.float16), TEXT=text)
    text = "mov.b32 {$0, $1}, $4; cvt.u16.u32 $2, $5;"
    with pytest.raises(UnsupportedError, match=r"must write \$3, all 16 bits"):
        run(four_results, (1,), "optimized", **arrays, out=np.zeros(4 * BLOCK, np.float16), TEXT=text)


@pytest.mark.parametrize(("how", "exact"), [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)])
def test_floats_as_integers_and_back(how, exact):
    x = np.concatenate([np.linspace(-40, 40, 1018), [np.nan, np.inf, -np.inf, 3e9, -3e9, 1e20]]).astype(np.float32)
    found = apply(f"cvt.{how}.s32.f32 $0, $1;", "=r,f", x, np.int32, np.int32)
    clipped = np.clip(np.nan_to_num(exact(x.astype(np.float64)), posinf=1e30, neginf=-1e30), -(2.0**31), 2.0**31 - 1)
    np.testing.assert_array_equal(found, clipped.astype(np.int64))
    back = apply("cvt.rn.f32.s32 $0, $1;", "=f,r", found, np.float32, np.float32)
    np.testing.assert_array_equal(back, found.astype(np.float32))


REFUSED = {
    "bits of the neighbour": (E4M3_TWO, "=r,=r,f,f", 2, np.int32, "computed alike, in order"),
    "too many registers": (E4M3, "=r,=r,f", 1, np.int32, "takes 1 registers .* and gives 1"),
    "a predicate": ("@%p0 bra end;", "=r,f", 1, np.int32, "'@%p0 bra end' is not an instruction over registers"),
    "an unknown instruction": (
        "{ .reg .b16 t; cvt.rs.f16x2.f32 t, $1, $1; }", "=r,f", 1, np.int32, "cvt.rs.f16x2.f32 is not an instruction"
    ),
    "its own register": ("{ .reg .b32 t; add.u32 $0, t, 1; }", "=r,f", 1, np.int32, "t, which nothing has written"),
    "a register of another width": (
        "{ .reg .b32 t; cvt.rn.satfinite.e4m3x2.f32 t, $1, $1; }", "=r,f", 1, np.int32, "gives 16 bits where t has 32"
    ),
    "half a result": (
        "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $1;", "=r,f", 1, np.int32, r"must write \$0, all 32 bits"
    ),
    "a number of another width": ("add.f32 $0, $1, 0d3ff0000000000000;", "=f,f", 1, np.float32, "none of 32 bits"),
    "a number of thousands of digits": (f"add.u32 $0, $1, {'9' * 5000};", "=r,f", 1, np.int32, "neither a register"),
    "thousands of registers": ("{ .reg .b32 r<5000>; mov.b32 $0, $1; }", "=r,f", 1, np.int32, "more registers than"),
    "an integer as a float": ("add.f32 $0, $1, 0f3f;", "=f,f", 1, np.float32, "'0f3f', which is neither"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_text_without_a_meaning_here_is_refused(name):
    text, constraints, pack, kind, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=f"(?s)test_cpu_inline_texts.*{reason}"):
        apply(text, constraints, np.zeros(BLOCK, np.float32), kind, kind, pack=pack)
