import numpy as np
import pytest

from silo.core.generator import Fill, FillParams, generate, generate_bits, philox, sample_indices
from silo.core.host_arrays import SMALL_FLOATS, numpy_dtype, round_to_bits
from silo.core.values import DTYPES, DTypeKind, dtype, dtype_named
from silo.errors import CaseError


# Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_known_answers(counter, key, words):
    def numbers(text):
        return tuple(int(word, 16) for word in text.split())

    assert philox(numbers(counter), numbers(key)) == numbers(words)


def test_uniform_is_the_words_of_the_blocks():
    seed = 0x1234567890ABCDEF
    made = generate(Fill.UNIFORM, dtype("float32"), seed, 4, 4, params=FillParams(0.0, 1.0))
    words = philox((1, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))
    assert made.tolist() == [(word >> 8) / 2**24 for word in words]


def test_integers_are_the_upper_half_of_a_product():
    made = generate(Fill.INTEGERS, dtype("int64"), 5, 0, 2, params=FillParams(low=-10, span=1 << 40))
    w = philox((0, 0, 0, 0), (5, 0))
    assert made.tolist() == [-10 + ((w[i] | w[i + 1] << 32) * (1 << 40) >> 64) for i in (0, 2)]


def test_normal_is_the_sum_of_eight_halves():
    made = generate(Fill.NORMAL, dtype("float64"), 5, 3, 1, params=FillParams(0.0, 1.0))
    total = sum((word & 0xFFFF) + (word >> 16) for word in philox((3, 0, 0, 0), (5, 0)))
    assert made[0] == pytest.approx((total - 4 * 65535) / (8 * (2**32 - 1) / 12) ** 0.5, rel=1e-15)


def test_normal_has_the_moments_it_says():
    made = generate(Fill.NORMAL, dtype("float64"), 1, 0, 200_000, params=FillParams(0.0, 1.0))
    assert abs(made.mean()) < 0.01
    assert abs(made.std() - 1) < 0.01
    assert abs((made**4).mean() - 2.85) < 0.1
    assert np.abs(made).max() < 4.9


def test_integers_reach_both_ends_and_no_further():
    made = generate(Fill.INTEGERS, dtype("int8"), 3, 0, 10_000, params=FillParams(low=-3, span=7))
    assert sorted(set(made.tolist())) == [-3, -2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize("element", DTYPES, ids=str)
def test_chunks_do_not_show(element):
    fill = Fill.UNIFORM if element.kind is DTypeKind.FLOAT else Fill.INTEGERS
    params = FillParams(0.0, 1.0, 0, 2)
    whole = generate_bits(fill, element, 11, 0, (1 << 16) + 100, params=params)
    part = generate_bits(fill, element, 11, (1 << 16) - 7, 50, params=params)
    assert (whole[(1 << 16) - 7 : (1 << 16) + 43] == part).all()


def test_seeds_make_different_numbers():
    params = FillParams(0.0, 1.0)
    first, second = (generate(Fill.NORMAL, dtype("float32"), seed, 0, 100, params=params) for seed in (1, 1 << 32))
    assert (first != second).all()


def test_empty_is_poisoned():
    assert np.isnan(generate(Fill.EMPTY, dtype("float32"), 0, 0, 3)).all()
    assert generate(Fill.EMPTY, dtype("int16"), 0, 0, 1).view(np.uint16)[0] == 0xA5A5
    assert generate(Fill.EMPTY, dtype("bool"), 0, 0, 2).tolist() == [True, True]


@pytest.mark.parametrize("name", [*SMALL_FLOATS, "float32", "float64"])
def test_rounding_agrees_with_the_library_of_the_dtype(name):
    pytest.importorskip("ml_dtypes")
    source = np.random.default_rng(0)
    values = np.concatenate(
        [
            source.standard_normal(20_000) * 10.0 ** source.integers(-45, 45, 20_000),
            [0.0, -0.0, np.inf, -np.inf, 464.0, -464.0, 448.0, 480.0, 240.0, 248.0, 30.0, 31.0, 57344.0, 61440.0],
            [5e-324, -5e-324, 1e300, -1e300, 65519.0, 65520.0, 2.0**-24, 2.0**-25, 3 * 2.0**-26],
        ]
    )
    element = dtype(name)
    with np.errstate(all="ignore"):
        reference = values.astype(numpy_dtype(element))
    assert (round_to_bits(values, element) == reference.view(f"uint{element.bits}")).all()


@pytest.mark.parametrize("name", [*SMALL_FLOATS, "float32", "float64"])
def test_nan_has_one_bit_pattern(name):
    element = dtype(name)
    bits = round_to_bits(np.array([np.nan, -np.nan]), element)
    assert bits[0] == bits[1]
    if name == "float8_e4m3fn":
        assert bits[0] == 0x7F
    assert np.isnan(bits.view(numpy_dtype(element)).astype(np.float64)).all()


def test_samples_are_few_distinct_ordered_and_hold_both_ends():
    chosen = sample_indices(3, 512, 1 << 40)
    assert chosen[0] == 0
    assert chosen[-1] == (1 << 40) - 1
    assert list(chosen) == sorted(set(chosen))
    assert 500 < len(chosen) <= 512
    assert sample_indices(3, 512, 1 << 40) == chosen
    assert sample_indices(4, 512, 1 << 40) != chosen
    assert sample_indices(0, 512, 100) == tuple(range(100))
    assert max(sample_indices(0, 4, 5)) == 4


def test_dtype_named_takes_every_library():
    assert dtype_named(np.dtype("float16")).name == "float16"
    assert dtype_named(np.float32).name == "float32"
    assert dtype_named("torch.bfloat16").name == "bfloat16"
    assert dtype_named("fp8e5").name == "float8_e5m2"
    with pytest.raises(CaseError, match="unknown dtype 'complex64'; known: bool"):
        dtype_named("complex64")


def test_a_missing_ml_dtypes_is_told(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(CaseError, match="pip install ml_dtypes"):
        numpy_dtype(dtype("bfloat16"))
