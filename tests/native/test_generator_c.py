import ctypes
import re

import pytest

from core_native import NATIVE, FillParams, library
from silo.core.generator import Fill, generate_bits
from silo.core.generator import FillParams as Params
from silo.core.values import DTYPES, DTypeKind, dtype

HEADER = (NATIVE / "generator.h").read_text()
COUNT = 3000
FLOATS = [element for element in DTYPES if element.kind is DTypeKind.FLOAT]
WHOLES = [element for element in DTYPES if element.kind is not DTypeKind.FLOAT]


def native(fill, element, seed, first, count, params):  # as the C function has them
    out = (ctypes.c_uint8 * max(count * element.itemsize, 1))()
    cells = FillParams(params.a, params.b, params.low, params.span)
    code = library().silo_generate(fill, element.code, element.bits, seed, first, count, ctypes.byref(cells), out)
    assert code == 0
    return bytes(out)[: count * element.itemsize]


def test_fills_agree_with_the_header():
    found = {name: int(value) for name, value in re.findall(r"SILO_FILL_([A-Z]+) = (\d+)", HEADER)}
    assert found == {
        fill.name: fill.value for fill in Fill if fill is not Fill.OWN
    }  # the author's data, made by nothing


CASES = [
    *[(Fill.NORMAL, element, params) for element in FLOATS for params in (Params(0.0, 1.0), Params(-3.0, 1e3))],
    *[(Fill.UNIFORM, element, params) for element in FLOATS for params in (Params(0.0, 1.0), Params(-1e-3, 7.5))],
    *[(Fill.ARANGE, element, Params(a=-3.25, b=0.1)) for element in FLOATS],
    *[
        (Fill.FULL, element, Params(a=value))
        for element in FLOATS
        for value in (0.1, -0.0, float("nan"), float("-inf"), 1e30)
    ],
    *[(fill, element, Params()) for element in DTYPES for fill in (Fill.ZEROS, Fill.EMPTY)],
    *[(Fill.INTEGERS, element, Params(low=0, span=2)) for element in DTYPES],
    *[(Fill.INTEGERS, element, Params(low=-(1 << 63), span=(1 << 64) - 1)) for element in FLOATS],
    *[(Fill.INTEGERS, dtype(name), Params(low=-(1 << 63), span=(1 << 64) - 1)) for name in ("int64", "uint64", "int8")],
    *[(Fill.ARANGE, element, Params(low=5, span=(1 << 64) - 3)) for element in WHOLES],
    *[(Fill.FULL, element, Params(low=-1)) for element in WHOLES],
]


@pytest.mark.parametrize(("fill", "element", "params"), CASES, ids=lambda value: getattr(value, "name", None))
def test_bits_agree(fill, element, params):
    for seed, first in ((0, 0), ((1 << 64) - 1, 12345), (42, (1 << 34) + 3)):
        expected = generate_bits(fill, element, seed, first, COUNT, params=params).tobytes()
        assert native(fill, element, seed, first, COUNT, params) == expected


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9000, 40001])
def test_elements_that_are_all_alike_are_as_many_as_asked_for(count):
    for element in (dtype("float64"), dtype("float16"), dtype("int32"), dtype("uint8")):
        one = native(Fill.FULL, element, 0, 0, 1, Params(a=0.3, low=77))
        assert native(Fill.FULL, element, 0, 0, count, Params(a=0.3, low=77)) == one * count


@pytest.mark.parametrize(
    ("fill", "name"), [(Fill.UNIFORM, "float32"), (Fill.UNIFORM, "float64"), (Fill.NORMAL, "float16")]
)
def test_any_part_can_be_made_by_itself(fill, name):
    element, params = dtype(name), Params(0.0, 1.0)
    whole = native(fill, element, 9, 0, 64, params)
    parts = b"".join(native(fill, element, 9, start, 1, params) for start in range(64))
    assert parts == whole


def test_narrow_floats_round_like_numpy():
    """Values near every boundary of each format, through FULL."""
    import random

    source = random.Random(3)
    for element in FLOATS:
        for _ in range(300):
            value = source.choice([-1, 1]) * source.uniform(1, 2) * 2.0 ** source.randrange(-160, 140)
            params = Params(a=value)
            assert (
                native(Fill.FULL, element, 0, 0, 1, params)
                == generate_bits(Fill.FULL, element, 0, 0, 1, params=params).tobytes()
            ), (element, value)


@pytest.mark.parametrize(
    ("fill", "code", "bits", "error"),
    [(7, 2, 32, 1), (-1, 2, 32, 1), (4, 0, 32, 1), (0, 2, 80, 2), (0, 7, 8, 2), (0, 0, 4, 2)],
)
def test_what_it_cannot_make_is_refused(fill, code, bits, error):
    out = (ctypes.c_uint8 * 16)()
    assert library().silo_generate(fill, code, bits, 0, 0, 1, ctypes.byref(FillParams()), out) == error
    assert bytes(out) == bytes(16)
