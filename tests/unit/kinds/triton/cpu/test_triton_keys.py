"""Triton's cache of files tells kernels apart by the constants that they read as attributes, under Silo's CPU driver.

Stands for values that Triton's own key of a kernel lacks: ``helper.CONST``, in the kernel and in what it calls.
"""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="kernels are Triton's")

PROGRAM = """
import numpy as np
import triton, triton.language as tl
from triton.backends.amd.driver import HIPDriver
HIPDriver.is_active = staticmethod(lambda: False)  # it would import torch
import helper, other

@triton.jit
def k(o):
    tl.store(o, helper.CONST); tl.store(o + 1, helper.twice(1))

@triton.jit
def calls(o):
    tl.store(o, helper.g(1))

class Array:
    def __init__(self, values): self.values, self.dtype = values, values.dtype
    def data_ptr(self): return self.values.ctypes.data

o = np.zeros(2, np.int32)
k[(1,)](Array(o))
kept = calls.warmup(Array(np.zeros(1, np.int32)), grid=(1,))
print(o.tolist(), kept.hash)
"""


def test_a_plain_call_in_the_next_process_has_the_edited_constants(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home"), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    environment["SILO_TRITON"] = "cpu"
    kept = set()
    for const, factor in ((9, 2), (10, 2), (10, 3), (9, 2)):
        (tmp_path / "other.py").write_text(f"import triton.language as tl\nFACTOR = tl.constexpr({factor})\n")
        (tmp_path / "helper.py").write_text(
            "import triton, triton.language as tl\nimport other\n"
            f"CONST = tl.constexpr({const})\n"
            "@triton.jit\ndef twice(x): return x * other.FACTOR\n"
            "@triton.jit\ndef g(x): return x + 1\n"
        )
        done = subprocess.run(
            [sys.executable, "-B", "program.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        values, _, digest = done.stdout.strip().rpartition(" ")
        assert values == str([const, factor])
        kept.add(digest)
    assert len(kept) == 1  # a kernel that reads no attribute but functions keeps Triton's own key
