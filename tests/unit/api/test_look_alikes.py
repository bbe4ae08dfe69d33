"""Kernels compiled for 1, True and 1.0 (0.0, -0.0), in any order: in a process, the next, a bundle, a recording.

Stands for all constexprs with different canonical texts that Python calls equal; the values that are looked up are in
``tests/property/test_equal_constexprs.py``.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="kernels are Triton's")

PROGRAM = '''
import json, sys
import numpy as np
import triton, triton.language as tl
from triton.backends.amd.driver import HIPDriver
HIPDriver.is_active = staticmethod(lambda: False)  # it would import torch
import silo

@triton.jit
def kind(o, V: tl.constexpr):
    if V is True: tl.store(o, 100.0)
    elif V is False: tl.store(o, 101.0)
    elif isinstance(V, int): tl.store(o, V + 50.0)
    elif isinstance(V, float): tl.store(o, 1000.0 / tl.full([], V, tl.float64))
    else: tl.store(o, 7.0)

RIGHT = {"1": 51.0, "True": 100.0, "1.0": 1000.0, "0": 50.0, "False": 101.0, "0.0": float("inf"), "-0.0": -float("inf")}
built = silo.kernel(grid=(1,))(kind)

class Array:
    """As Triton takes it."""
    def __init__(self, values): self.values, self.dtype = values, values.dtype
    def data_ptr(self): return self.values.ctypes.data

@built.cases(v=[1, True, 1.0, 0.0, -0.0])
def _(v, make):
    o = make.empty(1, dtype="float64")
    return silo.Case(args=(o, v), expected={"o": lambda: np.array([RIGHT[repr(v)]])})

if __name__ == "__main__":
    mode, values = sys.argv[1], sys.argv[2].split()
    launch = silo.load(sys.argv[3]).kind if mode == "bundle" else built
    for text in values + values:
        o = np.zeros(1)
        value = {"True": True, "False": False}.get(text, json.loads(text) if text[0] in "-01" else None)
        if mode == "program":
            kind[(1,)](Array(o), V=value)
        elif mode == "accelerated":
            with silo.accelerate(): kind[(1,)](Array(o), V=value)
        else:
            launch(o, value)
        assert o[0] == RIGHT[text], (mode, text, o[0])
    print("right")
'''
ORDERS = ["1 True 1.0 0.0 -0.0", "-0.0 0.0 1.0 True 1"]


@pytest.fixture
def run(tmp_path):
    (tmp_path / "kinds.py").write_text(PROGRAM)
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home"), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    environment["TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"] = "1"

    def started(*words, **more):
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            env={**environment, **more},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    return started


@pytest.mark.parametrize("mode", ["kernel", "accelerated"])
def test_the_order_of_calls_never_matters_in_a_process_and_the_next(run, mode):
    for order in ORDERS:
        assert run("kinds.py", mode, order) == "right\n"


def test_the_order_of_cases_and_of_calls_never_matters_in_a_bundle(run):
    run("-m", "silo", "build", "kinds.py", "-o", "K.silo", "-t", "cpu", "--tune", "off")
    for order in ORDERS:
        assert run("kinds.py", "bundle", order, "K.silo") == "right\n"
    said = json.loads(run("-m", "silo", "inspect", "K.silo", "--json"))
    assert said["doubts"] == []


def test_what_silo_exec_recorded_serves_each_value_with_its_own_code(run):
    """A program that is recorded in one order is served in the other."""
    run("-m", "silo", "exec", "--record", "R.silo", "kinds.py", "program", ORDERS[0])
    for order in ORDERS:
        assert run("-m", "silo", "exec", "--bundle", "R.silo", "kinds.py", "program", order) == "right\n"
