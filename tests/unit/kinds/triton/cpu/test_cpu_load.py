"""Running an object over numpy arrays."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from silo.compile.c_compiler import find_compiler
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.variant import Compiled, CompiledBlob
from silo.drivers.cpu.levels import LEVELS, gather_facts, highest_level
from silo.errors import ArgumentError, LaunchError
from silo.kinds.triton.cpu.object_build import build, compile_flags
from silo.launch.cpu_objects import load, run

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or highest_level(gather_facts()) is None,
    reason="needs a C compiler and a known CPU level",
)

SOURCE = """
#include <stdint.h>
int32_t scale(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, void *scratch, void *context) {
    float *x = *(float *const *)params[0];
    float by = *(const float *)params[1];
    int32_t n = *(const int32_t *)params[2];
    if ((uintptr_t)scratch % 64 != 0 || !context || *(uint32_t *)context < 1024) return 7;
    *(double *)((char *)scratch + 56) = 0.5;
    if (n < 0) return 3;
    for (uint64_t p = begin; p < end; p++)
        if (p < (uint64_t)n) x[p] = x[p] * by + (float)(p % grid[0]);
    return 0;
}
"""
LAYOUT = (LayoutSlot("x", AbiType.POINTER), LayoutSlot("by", AbiType.FP32), LayoutSlot("n", AbiType.I32))


@pytest.fixture(scope="module")
def compiled():
    level = LEVELS[highest_level(gather_facts())]
    data = build(SOURCE, compile_flags(level), find_compiler(None)).data
    return Compiled(LaunchInfo("scale", LAYOUT, scratch_bytes=64), CompiledBlob("so", data))


def test_every_program_runs_once(compiled):
    x = np.ones(12, np.float32)
    run(compiled, (4, 3), (x, 2.0, 12))
    np.testing.assert_array_equal(x, 2 + np.arange(12) % 4)


def test_arguments_by_name(compiled):
    x = np.ones(2, np.float32)
    run(compiled, (2,), {"n": 1, "by": 3.0, "x": x, "BLOCK": 4})
    np.testing.assert_array_equal(x, [3, 1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.ones(1, np.float32),), "x, by, n: 3, not 1"),
        ({"x": None}, "by, n"),
        ((1.5, 1.0, 1), "numpy array"),
        ((np.ones(1, np.float32), "a", 1), "by"),
    ],
)
def test_wrong_arguments(compiled, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        run(compiled, (1,), arguments)


def test_an_error_code_is_an_error(compiled):
    with pytest.raises(LaunchError, match=r"scale: the kernel reported an error \(code 3\)"):
        run(compiled, (1,), (np.ones(1, np.float32), 1.0, -1))


def test_what_cannot_be_loaded(compiled):
    with pytest.raises(LaunchError, match="scale"):
        load(Compiled(compiled.launch, CompiledBlob("so", b"not an object")))
    with pytest.raises(LaunchError, match="absent"):
        load(Compiled(LaunchInfo("absent", LAYOUT), compiled.blob))
    with pytest.raises(LaunchError, match="cubin"):
        load(Compiled(compiled.launch, CompiledBlob("cubin", b"")))
