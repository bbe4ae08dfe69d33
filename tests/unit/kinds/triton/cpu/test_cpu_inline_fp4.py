# ruff: noqa: E402  # Triton may be absent, which comes first
"""Inline assembly that converts to e2m1: the texts that kernels have, every rounding, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
from cpu_samples import MODES, run
from silo.errors import UnsupportedError

pytestmark = cpu_samples.needs_compiler

CVT = "cvt.rn.satfinite.e2m1x2.f32"
ONE = f"{{ .reg .b8 t; {CVT} t, $2, $1; cvt.u32.u8 $0, t; }}"
FOUR = f"""
{{
.reg .b8 byte0, byte1, byte2, byte3;
{CVT} byte0, $5, $1;
{CVT} byte1, $6, $2;  // the second element of each
{CVT} byte2, $7, $3;
{CVT} byte3, $8, $4;
mov.b32 $0, {{byte0, byte1, byte2, byte3}};
}}
"""
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@triton.jit
def pairs(x, y, out, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    i = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    both = tl.inline_asm_elementwise(
        TEXT, CONSTRAINTS, [tl.load(x + i), tl.load(y + i)], dtype=out.dtype.element_ty, is_pure=True, pack=PACK
    )
    tl.store(out + i, both)


@triton.jit
def eight(x, out, TEXT: tl.constexpr):
    i = tl.arange(0, 16)
    p = x + i * 8
    packed = tl.inline_asm_elementwise(
        TEXT,
        "=r,f,f,f,f,f,f,f,f",
        [
            tl.load(p),
            tl.load(p + 1),
            tl.load(p + 2),
            tl.load(p + 3),
            tl.load(p + 4),
            tl.load(p + 5),
            tl.load(p + 6),
            tl.load(p + 7),
        ],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(out + i, packed)


def e2m1(values):
    """The code of each value, by distances in fp64, in which they are exact."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = np.abs(values.astype(np.float64))
    apart = np.abs(np.minimum(np.nan_to_num(wide, nan=6.0, posinf=6.0), 6.0)[:, None] - MAGNITUDES)
    nearest = apart == apart.min(axis=1, keepdims=True)
    even = nearest & (np.arange(8) % 2 == 0)
    code = np.where((nearest.sum(axis=1) > 1), even.argmax(axis=1), nearest.argmax(axis=1))
    return (code | np.where(np.signbit(values) & ~np.isnan(values), 8, 0)).astype(np.uint8)


def every_class():
    """Each exponent with some fractions, each halfway point and magnitude with its neighbours, both signs, NaNs."""
    exponents = np.arange(256, dtype=np.uint32) << 23
    fractions = np.array([0, 1, 0x200000, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF], np.uint32)
    bits = (exponents[:, None] | fractions).ravel()
    exact = np.concatenate([MAGNITUDES, (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2, [5, 6, 6.5, 7, 8]]).astype(np.float32)
    near = exact.view(np.uint32)[:, None] + np.arange(-3, 4)
    found = np.concatenate([bits, (near & 0x7FFFFFFF).astype(np.uint32).ravel()])
    found = np.concatenate([found, found | np.uint32(1 << 31)])
    return np.resize(found, -(-len(found) // 1024) * 1024).view(np.float32)


def test_the_reference_is_what_the_format_says():
    given = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.1, np.inf, -0.0, -0.1, np.nan, -np.nan], np.float32)
    assert e2m1(given).tolist() == [0, 2, 2, 4, 4, 6, 6, 7, 7, 8, 8, 7, 7]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "constraints", "pack", "kind"),
    [(ONE, "=r,f,f", 1, np.int32), (ONE, "=r,r,r", 1, np.uint8), (FOUR, "=r," + ",".join("r" * 8), 4, np.uint8)],
)
def test_every_rounding(text, constraints, pack, kind, mode):
    x = every_class()
    y = np.roll(x, 12345)
    out = np.zeros(len(x), kind)
    run(pairs, (len(x) // 1024,), mode, x=x, y=y, out=out, TEXT=text, CONSTRAINTS=constraints, PACK=pack)
    np.testing.assert_array_equal(out, e2m1(y).astype(kind) << 4 | e2m1(x))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "last",
    ["mov.b32 $0, {a, b, c, d};", ".reg .b16 lo, hi; mov.b16 lo, {a, b}; mov.b16 hi, {c, d}; mov.b32 $0, {lo, hi};"],
)
def test_eight_values_in_one_integer(last, mode):
    text = f"{{ .reg .b8 a, b, c, d; {CVT} a, $2, $1; {CVT} b, $4, $3; {CVT} c, $6, $5; {CVT} d, $8, $7; {last} }}"
    x = np.random.default_rng(0).normal(0, 3, 128).astype(np.float32)
    out = np.zeros(16, np.int32)
    run(eight, (1,), mode, x=x, out=out, TEXT=text)
    halves = e2m1(x).reshape(16, 8).astype(np.uint32)
    np.testing.assert_array_equal(out.view(np.uint32), (halves << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=1))


REFUSED = {
    "another instruction": (ONE.replace("cvt.u32.u8", "vadd.u32"), "=r,f,f", 1, "vadd.u32 is not an instruction"),
    "nothing is written": (ONE.replace("cvt.u32.u8 $0, t;", ""), "=r,f,f", 1, "must write"),
    "a byte as a word": (ONE.replace("u32.u8", "u32.u16"), "=r,f,f", 1, "takes 16 bits where t has 8"),
    "an unknown register": (ONE.replace("$0, t", "$0, s"), "=r,f,f", 1, "reads s, which is no register"),
    "three bytes": (FOUR.replace(", byte3}", "}"), "=r," + ",".join("r" * 8), 4, "do not fit"),
    "elements out of order": (
        FOUR.replace("byte0, byte1, byte2", "byte1, byte0, byte2"), "=r," + ",".join("r" * 8), 4, "alike, in order"
    ),
    "two registers too few": (FOUR, "=r," + ",".join("r" * 6), 4, "takes 8 registers"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_text_that_means_something_else_is_refused(name):
    text, constraints, pack, reason = REFUSED[name]
    x, out = np.zeros(1024, np.float32), np.zeros(1024, np.uint8)
    with pytest.raises(UnsupportedError, match=reason.replace("$", r"\$")):
        run(pairs, (1,), "optimized", x=x, y=x, out=out, TEXT=text, CONSTRAINTS=constraints, PACK=pack)


@pytest.mark.parametrize(("upper", "lower"), [(2, 1), (1, 2), (1, 1)])
def test_the_upper_half_is_the_first_source(upper, lower):
    x, y = every_class()[:1024], every_class()[1024:2048]
    out = np.zeros(1024, np.uint8)
    text = ONE.replace("$2, $1", f"${upper}, ${lower}")
    run(pairs, (1,), "optimized", x=x, y=y, out=out, TEXT=text, CONSTRAINTS="=r,f,f", PACK=1)
    values = {1: x, 2: y}
    np.testing.assert_array_equal(out, e2m1(values[upper]) << 4 | e2m1(values[lower]))
