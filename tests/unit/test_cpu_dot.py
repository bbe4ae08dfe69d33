"""Register-blocked dot kernels against numpy, for every vector width this machine runs."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from silo.backends.cpu import runtime
from silo.backends.cpu.build import build, compile_flags, find_toolchain
from silo.backends.cpu.levels import LEVELS, gather_facts, highest_level

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

# Operand and sum types.
KINDS = {
    "f32": ("float", np.float32, "float", np.float32),
    "f64": ("double", np.float64, "double", np.float64),
    "i8": ("int8_t", np.int8, "int32_t", np.int32),
}
# Whole blocks, remainders of every kind in each dimension, depth above one packed panel, tiles below one vector.
SHAPES = [
    (16, 16, 16),
    (64, 64, 64),
    (32, 32, 300),
    (1, 1, 1),
    (7, 5, 3),
    (13, 35, 17),
    (31, 50, 9),
    (64, 4, 8),
    (3, 128, 2),
]


def here():
    top = highest_level(gather_facts())
    names = [name for name in LEVELS if top and name.split("-")[0] == top.split("-")[0] and name <= top]
    return [pytest.param(LEVELS[name], id=name) for name in names]


@pytest.mark.parametrize("level", here())
@pytest.mark.parametrize("kind", KINDS)
def test_tiles_of_every_shape(level, kind):
    ctype, dtype, sum_ctype, sum_dtype = KINDS[kind]
    text = runtime.text({f"dot_{kind}"}, level.vector_bits)
    for index, (m, n, k) in enumerate(SHAPES):
        text += (
            f"void tile{index}(const {ctype} *a, int64_t lda, const {ctype} *b, int64_t ldb,"
            f" {sum_ctype} *c, int64_t ldc) {{\n"
            f"  silo_dot_{kind}({m}, {n}, {k}, a, lda, b, ldb, c, ldc);\n}}\n"
        )
    built = build(text, compile_flags(level), find_toolchain(None))
    assert built.log == ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dot.so")
        path.write_bytes(built.data)
        library = ctypes.CDLL(str(path))
    generator = np.random.default_rng(0)
    for index, (m, n, k) in enumerate(SHAPES):
        # Whole numbers: sums are exact in any order. Rows are longer than the tile: what is beside it must stay.
        a, b = (generator.integers(-9, 9, shape).astype(dtype) for shape in ((m, k + 3), (k, n + 5)))
        c = generator.integers(-9, 9, (m, n + 2)).astype(sum_dtype)
        expected = c.copy()
        expected[:, :n] += a[:, :k].astype(sum_dtype) @ b[:, :n].astype(sum_dtype)
        pointers = [(ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(x.shape[1])) for x in (a, b, c)]
        getattr(library, f"tile{index}")(*[item for pair in pointers for item in pair])
        np.testing.assert_array_equal(c, expected, err_msg=f"{kind} {m}x{n}x{k}")
