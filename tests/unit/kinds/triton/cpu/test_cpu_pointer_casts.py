"""Casts of tiles of pointers: bools in memory, and bits of floats, are read and written by vectors."""

import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import MODES, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.analysis.pointer_casts import cast_bases  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402
from silo.kinds.triton.front.operations import tt  # noqa: E402

pytestmark = needs_compiler


@triton.jit
def choose(flags, x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.load(flags + i, mask=i < n, other=0)
    tl.store(out + i, tl.where(chosen, tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)), mask=i < n)


@triton.jit
def below(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    inside = (i < rows) & (j < columns)
    tl.store(out + i * columns + j, tl.load(x + i * columns + j, mask=inside) < 0, mask=inside)


@triton.jit
def bits_at(x, places, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pointers = (x + tl.load(places + i)).to(tl.pointer_type(tl.int32), bitcast=True)
    tl.store(out + i, tl.load(pointers, mask=i < n, other=7))


@pytest.mark.parametrize("mode", MODES)
def test_bools_are_loaded_and_stored(mode):
    random = np.random.default_rng(0)
    flags = random.random(1000) < 0.5
    x, y, out = random.standard_normal(1000, np.float32), random.standard_normal(1000, np.float32), np.zeros(1000, "f4")
    run(choose, (4,), mode, flags=flags, x=x, y=y, out=out, n=1000, BLOCK=256)
    np.testing.assert_array_equal(out, np.where(flags, x, y))
    found = np.zeros((25, 40), bool)
    run(below, (4,), mode, x=x, out=found, rows=25, columns=40, ROWS=8, COLUMNS=64)
    np.testing.assert_array_equal(found, x.reshape(25, 40) < 0)


@pytest.mark.parametrize("mode", MODES)
def test_bits_of_floats_anywhere(mode):
    x, places, out = (
        np.arange(100, dtype=np.float32),
        np.arange(64, dtype=np.int64)[::-1].copy() * 3 % 100,
        np.zeros(64, "i4"),
    )
    run(bits_at, (1,), mode, x=x, places=places, out=out, n=50, BLOCK=64)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 50, x[places].view(np.int32), 7))


def test_no_cast_of_a_tile_is_left():
    x, flags = np.zeros(1000, np.float32), np.zeros(1000, bool)
    given = {"flags": flags, "x": x, "y": x, "out": x, "n": 1000, "BLOCK": 256}
    module = module_of(choose, given)
    tiles = lambda: [  # noqa: E731
        one for one in module.walk() if one.name == tt.BITCAST and one.result.type.pointer and one.result.type.tensor
    ]
    assert tiles()
    cast_bases(module)
    assert not tiles()
    text = emit_c(module_of(choose, given), CpuOptions()).source.split("program_x")[-1]
    assert not re.search(r"= \*t\d+;", text), "an element is read alone"
