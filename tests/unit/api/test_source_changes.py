"""What a kernel is made of changes while the process runs: the next call has code for the new values.

Stands for every place that a Triton kernel's code is read from besides its own text: globals, cells of closures,
attributes of modules and objects, functions that it calls, texts that are replaced, and what these read in their turn.
"""

import gc
import types
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are Triton's")

import triton
import triton.language as tl

import silo
from silo.settings import override

G = tl.constexpr(1)
PAIR = (tl.constexpr(1), tl.constexpr(2))
TABLE = [3, 4]
DEEP = tl.constexpr(1)
helper: Any = types.ModuleType("a_helper")
helper.CONST = tl.constexpr(9)


class Options:
    WIDTH = tl.constexpr(5)


options: Any = Options()
options.height = tl.constexpr(6)


@triton.jit
def plus_one(x):
    return x + 1


@triton.jit
def plus_many(x):
    return x + 1000


@triton.jit
def times_deep(x):
    return x * DEEP


inner = plus_one
helper.g = plus_one


@triton.jit
def reads_global(o):
    tl.store(o, G)


@triton.jit
def reads_pair(o):
    tl.store(o, PAIR[0] * 10 + PAIR[1])


@triton.jit
def reads_table(o):
    tl.store(o, TABLE[0])


@triton.jit
def reads_module(o):
    tl.store(o, helper.CONST)


@triton.jit
def calls_of_module(o):
    tl.store(o, helper.g(0))


@triton.jit
def reads_class(o):
    tl.store(o, Options.WIDTH)


@triton.jit
def reads_object(o):
    tl.store(o, options.height)


@triton.jit
def calls_global(o):
    tl.store(o, inner(0))


@triton.jit
def reads_deep(o):
    tl.store(o, times_deep(7))


@triton.jit
def reads_nothing(o):
    tl.store(o, 4)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "1")  # for lists, classes and objects
    with override(home=tmp_path, tune="off"):
        yield


def launch(kernel):
    o = np.zeros(1, np.int32)
    kernel[(1,)](o)
    return int(o[0])


def here(name, value):
    return lambda patch: patch.setitem(globals(), name, value)


CHANGES = {
    "a global": (reads_global, 1, here("G", tl.constexpr(2)), 2),
    "a global of another type": (reads_global, 1, here("G", tl.constexpr(value=False)), 0),
    "a global's content": (reads_global, 1, lambda patch: patch.setattr(G, "value", 8), 8),
    "a tuple": (reads_pair, 12, here("PAIR", (tl.constexpr(4), tl.constexpr(2))), 42),
    "a module's attribute": (reads_module, 9, lambda patch: patch.setattr(helper, "CONST", tl.constexpr(10)), 10),
    "a module's function": (calls_of_module, 1, lambda patch: patch.setattr(helper, "g", plus_many), 1000),
    "the module": (reads_module, 9, here("helper", types.SimpleNamespace(CONST=tl.constexpr(11))), 11),
    "a class's attribute": (reads_class, 5, lambda patch: patch.setattr(Options, "WIDTH", tl.constexpr(50)), 50),
    "an object's attribute": (reads_object, 6, lambda patch: patch.setattr(options, "height", tl.constexpr(60)), 60),
    "a function": (calls_global, 1, here("inner", plus_many), 1000),
    "what a function reads": (reads_deep, 7, here("DEEP", tl.constexpr(3)), 21),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_next_call_has_code_for_what_changed_and_again_for_what_it_was(what, monkeypatch):
    function, before, change, after = CHANGES[what]
    kernel = silo.kernel(function)
    assert [launch(kernel), launch(kernel)] == [before, before]
    misses = kernel.kernel.resolver.native.misses
    with monkeypatch.context() as patch:
        change(patch)
        assert [launch(kernel), launch(kernel)] == [after, after]
        # Another kind of argument is compiled from what there is now, under its own fingerprint.
        wide = np.zeros(1, np.int64)
        kernel[(1,)](wide)
        assert wide[0] == after
    assert [launch(kernel), launch(kernel)] == [before, before]
    assert kernel.kernel.resolver.native.misses == misses + 3


def test_the_content_of_a_list():
    kernel = silo.kernel(reads_table)
    assert launch(kernel) == 3
    TABLE[0] = 5
    try:
        assert launch(kernel) == 5
    finally:
        TABLE[0] = 3
    assert launch(kernel) == 3


def factory(c, fn):
    @triton.jit
    def k(o):
        tl.store(o, fn(c))

    def change(value, function):
        nonlocal c, fn
        c, fn = value, function

    return k, change


def test_the_cells_of_a_closure():
    function, change = factory(tl.constexpr(1), plus_one)
    kernel = silo.kernel(function)
    assert launch(kernel) == 2
    change(tl.constexpr(5), plus_one)
    assert launch(kernel) == 6
    change(tl.constexpr(5), plus_many)
    assert launch(kernel) == 1005


@pytest.mark.parametrize("of", ["function", "kernel", "callee"])
def test_a_text_that_is_replaced_in_place(of):
    @triton.jit
    def callee(x):
        return x + 1

    @triton.jit
    def k(o):
        tl.store(o, callee(1))

    if not hasattr(k, "_unsafe_update_src"):
        pytest.skip("this Triton replaces no texts")
    kernel = silo.kernel(k)
    assert launch(kernel) == 2
    replaced = {"function": k, "kernel": kernel, "callee": callee}[of]
    old, new = ("x + 1", "x + 100") if of == "callee" else ("callee(1)", "callee(100)")
    replaced._unsafe_update_src(replaced.src.replace(old, new))
    assert launch(kernel) == 101


def test_every_other_way_to_the_code_sees_the_change(monkeypatch):
    kernel = silo.kernel(reads_global)
    o = np.zeros(1, np.int32)
    before = kernel.kernel.source.fingerprint
    assert launch(kernel) == 1
    monkeypatch.setitem(globals(), "G", tl.constexpr(2))
    assert "not compiled yet" in kernel.explain(o, grid=(1,))
    assert kernel.kernel.source.fingerprint != before
    bound = kernel.bind(o, grid=(1,))
    bound(o)
    assert o[0] == 2
    # A global that was changed before the first call, and after its kernel was read.
    early = silo.kernel(reads_global)
    assert early.kernel.source.fingerprint != before
    monkeypatch.setitem(globals(), "G", tl.constexpr(3))
    assert launch(early) == 3


def test_a_kernel_that_reads_no_such_place_watches_nothing():
    kernel = silo.kernel(reads_nothing)
    assert launch(kernel) == 4
    source: Any = kernel.kernel.source
    assert source.places == ()


def test_a_kernel_that_watches_is_freed():
    function, _ = factory(tl.constexpr(1), plus_one)
    kernel = silo.kernel(function)
    assert launch(kernel) == 2
    gone = weakref.ref(kernel.kernel)
    del kernel, function
    gc.collect()
    assert gone() is None
