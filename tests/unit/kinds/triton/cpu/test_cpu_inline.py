# ruff: noqa: E402  # Triton may be absent, which comes first
"""Inline assembly: the functions of single PTX instructions, and texts that are refused with their words."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from cpu_samples import both, run
from silo.errors import UnsupportedError

pytestmark = [
    cpu_samples.needs_compiler,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@triton.jit
def applies(x, out, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    i = tl.arange(0, 64)
    y = tl.inline_asm_elementwise(
        TEXT, CONSTRAINTS, [tl.load(x + i)], dtype=out.dtype.element_ty, is_pure=True, pack=PACK
    )
    tl.store(out + i, y)


X = np.concatenate([np.linspace(-30, 30, 56), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, 0.5]]).astype(
    np.float32
)
# Each with the error that PTX allows it: relative, and absolute.
APPROXIMATIONS = {
    "tanh.approx.f32": (np.tanh, 2**-11, 0),
    "ex2.approx.f32": (np.exp2, 2**-22, 0),
    "ex2.approx.ftz.f32": (np.exp2, 2**-22, 2**-126),
    "lg2.approx.f32": (np.log2, 2**-22, 2**-22),
    "lg2.approx.ftz.f32": (np.log2, 2**-22, 2**-22),
    "sin.approx.f32": (np.sin, 0, 2**-20),
    "cos.approx.ftz.f32": (np.cos, 0, 2**-20),
    "rcp.approx.ftz.f32": (lambda x: 1 / x, 2**-23, 2**-126),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 2**-22, 0),
    "sqrt.approx.ftz.f32": (np.sqrt, 2**-22, 2**-63),
    "neg.ftz.f32": (np.negative, 0, 0),
    "abs.f32": (np.abs, 0, 0),
    "mov.b32": (np.copy, 0, 0),
}


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_functions_are_at_least_as_exact_as_ptx_promises(name):
    exact, relative, absolute = APPROXIMATIONS[name]
    expected = exact(X.astype(np.float64))
    for found in both(applies, (1,), x=X, out=X * 0, TEXT=f"{name} $0, $1;", CONSTRAINTS="=f,f", PACK=1):
        np.testing.assert_allclose(found["out"], expected.astype(np.float32), rtol=relative + 2**-24, atol=absolute)


FORMS = [
    "tanh.approx.f32 $0, $1;",
    " tanh.approx.f32\t$0,$1 ",
    "{ tanh.approx.f32 $0, $1; }",
    "\n// fast\ntanh.approx.f32 $0, $1;\n",
]


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("constraints", ["=f,f", "=r,r", "=f, f"])
def test_spelling_does_not_matter(text, constraints):
    out = np.zeros_like(X)
    run(applies, (1,), "optimized", x=X, out=out, TEXT=text, CONSTRAINTS=constraints, PACK=1)
    np.testing.assert_allclose(out, np.tanh(X), rtol=1e-6)


@pytest.mark.parametrize(("kind", "type_"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("pack", [1, 2])
def test_halves_alone_and_in_pairs(kind, type_, pack):
    x = np.linspace(-4, 4, 64).astype(type_)
    pair = "x2" if pack == 2 else ""
    for name, exact in (("tanh.approx", np.tanh), ("ex2.approx.ftz", np.exp2)):
        out = np.zeros_like(x)
        constraints = "=r,r" if pack == 2 else "=h,h"
        text = f"{name}.{kind}{pair} $0, $1;"
        run(applies, (1,), "optimized", x=x, out=out, TEXT=text, CONSTRAINTS=constraints, PACK=pack)
        np.testing.assert_array_equal(
            out.astype(np.float32), exact(x.astype(np.float32)).astype(type_).astype(np.float32)
        )


@triton.jit
def combines(x, y, z, out, TEXT: tl.constexpr):
    i = tl.arange(0, 64)
    operands = [tl.load(x + i), tl.load(y + i), tl.load(z + i)]
    total = tl.inline_asm_elementwise(TEXT, "=f,f,f,f", operands, dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + i, total)


@triton.jit
def sums(x, y, z, out, TEXT: tl.constexpr):
    """A product and a sum that must each round."""
    i = tl.arange(0, 64)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    p = tl.inline_asm_elementwise("mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + i, tl.inline_asm_elementwise(TEXT, "=f,f,f", [p, c], dtype=tl.float32, is_pure=True, pack=1))


def three():
    random = np.random.default_rng(3)
    return [random.standard_normal(64).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("order", ["$1, $2, $3", "$3, $1, $2"])
def test_operands_are_taken_in_the_order_of_the_text(order):
    x, y, z = three()
    a, b, c = (dict(zip(("$1", "$2", "$3"), (x, y, z), strict=True))[name] for name in order.split(", "))
    exact = (a.astype(np.float64) * b + c).astype(np.float32)
    for found in both(combines, (1,), x=x, y=y, z=z, out=x * 0, TEXT=f"fma.rn.f32 $0, {order};"):
        np.testing.assert_array_equal(found["out"], exact)


def test_sums_that_name_their_rounding_are_never_fused():
    x, y, z = three()
    for found in both(sums, (1,), x=x, y=y, z=z, out=x * 0, TEXT="sub.rn.f32 $0, $1, $2;"):
        np.testing.assert_array_equal(found["out"], x * y - z)
    for found in both(sums, (1,), x=x, y=y, z=z, out=x * 0, TEXT="div.full.f32 $0, $2, $1;"):
        np.testing.assert_array_equal(found["out"], z / (x * y))


def test_tf32_and_halves_by_conversion():
    bits = np.arange(64, dtype=np.uint32) * 0x633 + 0x3F80_0000
    x = bits.view(np.float32).copy()
    x[:3] = np.inf, np.nan, -1.0
    out = np.zeros_like(x)
    run(
        applies,
        (1,),
        "optimized",
        x=x,
        out=out,
        TEXT="cvt.rna.tf32.f32 $0, $1;",
        CONSTRAINTS="=r,r",
        PACK=1,
    )
    expected = ((x.view(np.uint32) + 0x1000) & 0xFFFF_E000).view(np.float32)
    expected[:3] = x[:3]
    np.testing.assert_array_equal(out, expected)
    as_bits = np.zeros(64, np.int32)
    run(
        applies,
        (1,),
        "optimized",
        x=x,
        out=as_bits,
        TEXT="cvt.rna.tf32.f32 $0, $1;",
        CONSTRAINTS="=r,r",
        PACK=1,
    )
    np.testing.assert_array_equal(as_bits, expected.view(np.int32))
    half = np.zeros(64, np.float16)
    run(
        applies,
        (1,),
        "optimized",
        x=x,
        out=half,
        TEXT="cvt.rn.f16.f32 $0, $1;",
        CONSTRAINTS="=h,f",
        PACK=1,
    )
    np.testing.assert_array_equal(half, x.astype(np.float16))


@pytest.mark.parametrize(("how", "ties"), [("rna", (1, 2, 2)), ("rn", (0, 2, 2))])
def test_ties_between_two_numbers_of_tf32(how, ties):
    """In halves of the last place: 0.5, 1.5, and what is just above 1.5."""
    bits = np.full(64, 0x3F80_0000, np.uint32)
    bits[:3] += np.array([0x1000, 0x3000, 0x3001], np.uint32)
    bits[3:6] = bits[:3] | 0x8000_0000
    text = f"cvt.{how}.tf32.f32 $0, $1;"
    x = bits.view(np.float32).copy()
    for found in both(applies, (1,), x=x, out=np.zeros_like(x), TEXT=text, CONSTRAINTS="=r,f", PACK=1):
        steps = (found["out"].view(np.uint32) & 0x7FFF_FFFF) - 0x3F80_0000 >> 13
        assert [*map(int, steps[:6])] == [*ties, *ties]


REFUSED = {
    "mov.u32 $0, %smid;": "mov.u32 reads %smid, which is no register of the text",
    "tanh.approx.f32 $0, $1; vote.ballot.f32 $0, $0;": "vote.ballot.f32 is not an .* here \\(instruction 2 of 2\\)",
    "vote.ballot.f32 $0, $1;": "vote.ballot.f32 is not an instruction that is known here",
    "add.f32 $0, $1;": "add.f32 takes 2 operands, not 1",
    "neg.f32 $1, $0;": "neg.f32 reads \\$0, which nothing has written",
    "neg.f32 $1, $1;": "writes no register",
    "ex2.approx.f64 $0, $1;": "ex2.approx.f64 is not an instruction",
    "tanh.approx.f16 $0, $1;": "tanh.approx.f16 takes 16 bits where \\$1 has 32",
    "@p tanh.approx.f32 $0, $1;": "is not an instruction over registers",
    "ld.global.f32 $0, [$1];": "'\\[\\$1\\]', which is neither a register nor a number",
}


@pytest.mark.parametrize("text", REFUSED)
def test_any_other_text_is_refused_in_its_words(text):
    arguments = {"x": X, "out": X * 0, "CONSTRAINTS": "=f,f", "PACK": 1}
    with pytest.raises(
        UnsupportedError, match=f"(?s)elementwise_inline_asm.*test_cpu_inline.*{REFUSED[text]}"
    ) as caught:
        run(applies, (1,), "optimized", TEXT=text, **arguments)
    assert repr(text) in str(caught.value)


def test_checking_mode_runs_it():
    out = np.zeros_like(X)
    silo.check(applies)[(1,)](X, out, "tanh.approx.f32 $0, $1;", "=f,f", 1)
    np.testing.assert_allclose(out, np.tanh(X), rtol=1e-6)
