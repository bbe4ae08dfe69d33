"""Exchanged neighbours are read where they are, in flat loops."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are lowered by Triton")

import triton
import triton.language as tl

from cpu_samples import module_of, needs_compiler
from silo.kinds.triton.cpu.analysis.networks import find_mirrors
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.emit.kernel_text import lower
from silo.kinds.triton.cpu.loop_ir import For
from silo.kinds.triton.front.operations.further_dialects import MIRROR

pytestmark = needs_compiler


@triton.jit
def ordered(x, WIDTH: tl.constexpr):
    i = tl.arange(0, WIDTH)
    tl.store(x + i, tl.sort(tl.load(x + i)))


@triton.jit
def folded(x, WIDTH: tl.constexpr):
    i = tl.arange(0, 2)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    values = tl.load(x + i)
    rows = tl.xor_sum(values, 0)
    tl.store(x + i, values ^ rows[None, :])
    tl.store(x + 2 * WIDTH + tl.arange(0, WIDTH), rows)


def names(module):
    return [operation.name for operation in module.walk()]


def test_a_reduction_used_only_for_an_exchange_goes_away():
    module = module_of(ordered, {"x": np.zeros(64, np.float32), "WIDTH": 64})
    assert "tt.reduce" in names(module)
    find_mirrors(module)
    assert "tt.reduce" not in names(module)
    assert names(module).count(MIRROR) == 21  # steps of a network for 2^6


def test_a_reduction_used_otherwise_stays():
    module = module_of(folded, {"x": np.zeros(96, np.int32), "WIDTH": 32})
    find_mirrors(module)
    assert names(module).count(MIRROR) == 1
    assert names(module).count("tt.reduce") == 1


@triton.jit
def turned(x, WIDTH: tl.constexpr):
    i = tl.arange(0, WIDTH)
    tl.store(x + i, tl.flip(tl.load(x + i), 0))


def test_a_flip_is_one_flat_loop():
    program, _ = lower(module_of(turned, {"x": np.zeros(512, np.float32), "WIDTH": 512}), CpuOptions())
    loops = [statement for statement in program.body if isinstance(statement, For)]
    assert len(loops) <= 3  # in, exchanged, out
    assert not any(isinstance(inner, For) for loop in loops for inner in loop.body)
