"""Triton programs on the stub driver: their common first lines, and kernels with tuners."""

import functools
import shutil
import tempfile
from pathlib import Path

import triton_on_stub

HEAD = """
from triton_on_stub import *
import random, sys, torch, triton, triton.language as tl
import silo
from silo.kinds.triton.programs.program_kernels import TABLE
install()
S = stub()

@triton.jit
def k(a, b, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n) + tl.load(b + i, mask=i < n) * scale, mask=i < n)

def kernel(function=k):
    return next(one for one in TABLE if one.function is function)

x, y, z = array(), array(), array()
"""


def program(code, **more):
    return triton_on_stub.run(HEAD + code, **more)


def store_after(code, home):
    """Copy the store that a program leaves to ``home``, and return the program's output.

    The program runs only once, for all tests that call this function.
    """
    said, kept = _left(code)
    shutil.copytree(Path(kept.name, "home"), home)
    return said


@functools.cache
def _left(code):
    kept = tempfile.TemporaryDirectory(prefix="silo-left-")
    return program(code, SILO_HOME=str(Path(kept.name, "home"))), kept


TUNED = """
@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 256}, num_warps=8)], key=["n"])
@triton.jit
def t(a, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n), mask=i < n)

@triton.heuristics({"EVEN": lambda given: given["n"] % 256 == 0})
@triton.jit
def h(a, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=(i < n) | EVEN), mask=i < n)

measured = []
def bench(call, quantiles):
    call()
    measured.append(1)
    return [len(measured) * 1.0] * 3
t.do_bench = bench
t._do_bench = bench
def seen(function):
    last = S.last(function.fn.__name__)
    return last.grid, last.block, last.parameters
"""
