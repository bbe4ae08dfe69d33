"""Kernels that reach memory through addresses in memory or in integers: no copy of their arguments is one of it."""

import logging

import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are Triton's")

import triton
import triton.language as tl

import silo
from silo.settings import override

SPACE = {"BLOCK": [64, 128, 256]}


@triton.jit
def add_one_behind(addresses, n, BLOCK: tl.constexpr):
    x = tl.load(addresses).to(tl.pointer_type(tl.float32))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def add_one_at(address, n, BLOCK: tl.constexpr):
    x = address.to(tl.pointer_type(tl.float32))
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def count_up(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@pytest.fixture(autouse=True)
def store(tmp_path):
    with override(home=tmp_path, tune="auto", tune_budget_s=30.0):
        yield


def made(function):
    return silo.kernel(space=SPACE, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(function)


@pytest.mark.parametrize("function", [add_one_behind, add_one_at])
def test_a_first_call_leaves_such_memory_as_one_launch_does_and_says_once_why_it_is_not_tuned(function, caplog):
    x = np.zeros(1000, np.float32)
    address = np.array([x.ctypes.data], np.int64) if function is add_one_behind else x.ctypes.data
    kernel = made(function)
    with caplog.at_level(logging.INFO, logger="silo"):
        kernel(address, x.size)
        kernel(address, 10)
    assert (x[:10] == 2).all()
    assert (x[10:] == 1).all()
    told = [one for one in caplog.messages if "is not tuned on calls such as this one" in one]
    assert len(told) == 1
    assert "it makes addresses of integers, and what lies there cannot be copied" in told[0]
    assert not any("tuned " + function.__name__ in one for one in caplog.messages)


def test_integers_of_64_bits_that_are_no_addresses_are_tuned(caplog):
    x = np.zeros(1000, np.int64)
    with caplog.at_level(logging.INFO, logger="silo"):
        made(count_up)(x, x.size)
    assert (x == 1).all()
    assert any("3 configs" in one for one in caplog.messages)
