# ruff: noqa: E402  # Triton may be absent, which comes first; its constexprs are written in capitals
"""Checking mode: control flow, descriptors, messages, and the ways to ask for a check."""

from __future__ import annotations

import threading

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from checked_kernels import N, clean, fault, floats
from silo.errors import ArgumentError, CheckError
from silo.settings import override

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(out + i, v * 2, mask=i < n)


@triton.jit
def scale_unmasked_load(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, v * 2, mask=i < n)


# ---- control flow, functions, descriptors, messages


@triton.jit(noinline=True)
def stored_apart(place, value, n):
    if n > 2:
        return
    tl.store(place, value)


@triton.jit
def branches(x, out, n, limit):
    if n > limit:
        return
    total = 0.0
    for k in range(n):
        v = tl.load(x + k)
        if v > 2:
            total += v
        else:
            total -= tl.load(x + k + 1)
    tl.store(out, total)
    stored_apart(out + n, total, n)


def test_branches_loops_and_functions():
    x, out = floats(4), np.zeros(3, np.float32)
    clean(branches, (1,), x, out, 2, 3)
    clean(branches, (1,), x, out, 4, 4)
    clean(branches, (1,), x, out, 99, 4)
    fault(branches, (1,), x, out, 5, 5, expected="out of bounds", at="v = tl.load")
    fault(branches, (1,), floats(2, 0), out, 2, 5, expected="out of bounds", at="total -= tl.load")
    error = fault(
        branches,
        (1,),
        x,
        np.zeros(2, np.float32),
        2,
        3,
        inside=stored_apart,
        expected="out of bounds",
        at="tl.store(place",
    )
    assert error.argument == "out"


@triton.jit
def described(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [M, N])
    at = tl.program_id(0) * M
    target.store([at, 0], source.load([at, 0]) * 2)


def test_descriptors_made_in_the_kernel():
    x, out = floats(6 * 8).reshape(6, 8), np.zeros((6, 8), np.float32)
    clean(described, (2,), x, out, 6, 8, M=4, N=8, options={"uninitialized": ("out",)})
    np.testing.assert_array_equal(out, 2 * x)
    error = fault(described, (2,), x, out, 7, 8, M=4, N=8, expected="out of bounds", at="target.store")
    assert error.argument == "x"


def test_descriptors_made_on_the_host():
    @triton.jit
    def doubles(source, target, M: tl.constexpr):
        at = tl.program_id(0) * M
        target.store([at, 0], source.load([at, 0]) * 2)

    x, out = floats(6 * 8).reshape(6, 8), np.zeros((6, 8), np.float32)
    make = silo.TensorDescriptor
    silo.check(doubles)[(2,)](make(x, [6, 8], [8, 1], [4, 8]), make(out, [6, 8], [8, 1], [4, 8]), M=4)
    np.testing.assert_array_equal(out, 2 * x)
    small = np.zeros((5, 8), np.float32)
    with pytest.raises(CheckError, match="out of bounds") as raised:
        silo.check(doubles)[(2,)](make(x, [6, 8], [8, 1], [4, 8]), make(small, [6, 8], [8, 1], [4, 8]), M=4)
    assert raised.value.argument == "target"


@triton.jit
def speaks(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.device_print("v", tl.program_id(0))
    tl.store(out + i, v, mask=i < n)


def test_a_kernel_speaks_once(capfd):
    clean(speaks, (1,), floats(), np.zeros(N, np.float32), N, BLOCK=128)
    assert capfd.readouterr().out == "pid (0, 0, 0) idx () v: 0\n"


# ---- ways to ask for a check


def test_kernels_that_are_always_checked():
    always = silo.kernel(check=True, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(scale_unmasked_load)
    x, out = floats(128), np.zeros(128, np.float32)
    always(x, out, 128, BLOCK=32)
    np.testing.assert_array_equal(out, 2 * x)
    with pytest.raises(CheckError, match="out of bounds"):
        always(x, out, 129, BLOCK=32)
    with pytest.raises(CheckError, match="out of bounds"):
        always[(5,)](x, out, 128, BLOCK=32)
    with pytest.raises(CheckError, match="out of bounds"):
        always.bind(x, out, 128, BLOCK=32)(x, out, 129, BLOCK=32)
    np.testing.assert_array_equal(out, 2 * x)


def test_the_setting_checks_every_kernel():
    x, out = floats(), np.zeros(N, np.float32)
    with override(check=True):
        by_setting = silo.kernel(scale_unmasked_load)
        with pytest.raises(CheckError, match="out of bounds"):
            by_setting[(4,)](x, out, N, BLOCK=32)
        unchecked = silo.kernel(check=False)(scale)
        unchecked[(4,)](x, out, N, BLOCK=32)
    np.testing.assert_array_equal(out, 2 * x)


def test_callable_grids_and_heuristics():
    @triton.heuristics({"BLOCK": lambda a: 32 if a["n"] > 10 else 16})
    @triton.jit
    def guessed(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n, other=0), mask=i < n)

    x, out = floats(), np.zeros(N, np.float32)
    silo.check(guessed)[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, N)
    np.testing.assert_array_equal(out, x)


def test_programs_on_three_axes_and_an_empty_grid():
    @triton.jit
    def place(out, limit):
        x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
        tl.store(out + at, at)

    out = np.zeros(24, np.int32)
    silo.check(place)[(2, 3, 4)](out, 24)
    np.testing.assert_array_equal(out, np.arange(24))
    with pytest.raises(CheckError) as raised:
        silo.check(place)[(2, 3, 4)](out[:23].copy(), 23)
    assert raised.value.program == (1, 2, 3)
    silo.check(place)[(0,)](out, 24)


def test_arrays_on_a_device_are_refused():
    class OnDevice:
        dtype = np.dtype("float32")
        shape = (4,)

        @property
        def __cuda_array_interface__(self):
            return {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with pytest.raises(ArgumentError, match="host memory"):
        silo.check(scale)[(1,)](OnDevice(), OnDevice(), 4, BLOCK=4)


def test_one_array_under_two_names():
    x = floats()
    clean(scale, (4,), x, x, N, BLOCK=32)
    np.testing.assert_array_equal(x, 2 * floats())
    base = floats(2 * N)
    error = fault(scale, (4,), base[:N], base[16 : 16 + N], N, BLOCK=32, expected="race", at="v = tl.load")
    assert "wrote there" in str(error)


def test_several_threads_check_at_once():
    checked = silo.check(scale)
    results = []

    def body(start):
        for turn in range(5):
            x, out = floats(start=start + turn), np.zeros(N, np.float32)
            checked[(4,)](x, out, N, BLOCK=32)
            results.append(bool((out == 2 * x).all()))

    started = [threading.Thread(target=body, args=(start,)) for start in (1, 1000)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert results == [True] * 10
