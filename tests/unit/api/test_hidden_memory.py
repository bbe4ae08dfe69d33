"""Kernels that reach memory through addresses in memory or in integers: no copy of their arguments is one of it."""

import logging

import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are Triton's")

import triton
import triton.language as tl

import silo
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import build_bundle
from silo.commands.bundle_description import describe_bundle
from silo.core.signature import Effect
from silo.errors import SourceError
from silo.integrations.call_effects import said_effects
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


BUNDLED = """
import silo
import triton
import triton.language as tl


@silo.kernel(grid=lambda a: (1,))
@triton.jit
def copy_behind(addresses, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(tl.load(addresses).to(tl.pointer_type(tl.float32)) + i))


@silo.kernel(grid=lambda a: (1,))
@triton.jit
def copy(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))


@copy_behind.cases(dtype=["int64"])
@copy.cases(dtype=["float32"])
def _(dtype, make):
    return silo.Case(args=(make.integers(16, low=0, high=1, dtype=dtype), make.empty(16)), kwargs={"BLOCK": 16})
"""


def test_a_bundle_tells_it_and_so_does_what_asks_for_effects(tmp_path):
    source, path = tmp_path / "kernels.py", tmp_path / "k.silo"
    source.write_text(BUNDLED)
    build_bundle([source], path, targets=["cpu"], tune="off")
    reason = "it makes addresses of integers"
    with open_bundle(path) as bundle:
        plain, hiding = ([one.artifact for one in bundle.kernel(name).variants] for name in ("copy", "copy_behind"))
    assert {one.hidden_memory for one in plain} == {""}
    assert {one.hidden_memory for one in hiding} == {reason}
    rows = describe_bundle(path).variants
    assert {row.hidden_memory for row in rows if row.kernel == "copy_behind"} == {reason}
    assert all((reason in row.resources) == (row.kernel == "copy_behind") for row in rows)
    # The store has the code by now, and tells it again.
    build_bundle([source], path, targets=["cpu"], tune="off")
    with open_bundle(path) as bundle:
        assert {one.artifact.hidden_memory for one in bundle.kernel("copy_behind").variants} == {reason}
    assert said_effects("copy", "k.silo", plain[0], None) == {"x": Effect.READ, "out": Effect.WRITE}
    with pytest.raises(
        SourceError, match=r"copy_behind \(k.silo\) may write to memory .* \(it makes addresses of"
    ) as found:
        said_effects("copy_behind", "k.silo", hiding[0], None)
    assert "mutates=(...), the names of the tensors that it writes to among addresses, out" in str(found.value)
    said = said_effects("copy_behind", "k.silo", hiding[0], ("out",))
    assert said == {"addresses": Effect.READ, "out": Effect.BOTH}
