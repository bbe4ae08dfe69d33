"""A process whose code is stored launches it without importing what reads, schedules and emits kernels."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from silo.drivers.cpu.levels import gather_facts, highest_level

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or highest_level(gather_facts()) is None,
    reason="needs a C compiler and a known CPU level",
)

PROGRAM = """
import json, sys
import numpy as np
import triton
import triton.language as tl
import silo

@silo.kernel(space={"BLOCK": [256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

x, y = np.ones((2, 1000), np.float32)
out = np.empty_like(x)
add(x, y, out, 1000)
assert (out == 2).all()
print(json.dumps(sorted(name for name in sys.modules if name.startswith("silo."))))
"""
# The parts of the compiler that a compilation imports and a launch of stored code does not.
COMPILER = (
    "silo.kinds.triton.cpu.analysis",
    "silo.kinds.triton.cpu.cpu_jobs",
    "silo.kinds.triton.cpu.lower",
    "silo.kinds.triton.cpu.ops",
    "silo.kinds.triton.cpu.schedule",
    "silo.kinds.triton.front.operations",
    "silo.kinds.triton.front.ttir",
)


def imported(folder):
    file = folder / "program.py"
    file.write_text(PROGRAM)
    env = {**os.environ, "SILO_HOME": str(folder / "home"), "TRITON_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_warm_first_call_imports_no_compiler(tmp_path):
    assert {*COMPILER} <= imported(tmp_path)
    warm = imported(tmp_path)
    assert "silo.kinds.triton.cpu.cpu_compiler" in warm
    assert [name for name in sorted(warm) if name.startswith((*COMPILER, "silo.kinds.triton.cpu.checking"))] == []
