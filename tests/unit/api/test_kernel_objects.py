"""Kernels as Python objects: copies, pickles, signatures."""
# pyright: reportMissingImports=false

import copy
import inspect
import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, SourceError


@silo.kernel
@triton.jit
def halved(x, out, n, BLOCK: tl.constexpr = 8):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) / 2, mask=i < n)


@triton.jit
def plain(x, out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))


fast = silo.kernel(plain)


class Holder:
    """Kernels in classes."""

    @staticmethod
    def _():
        """Nothing."""

    inner = silo.kernel(plain)


def test_a_signature_is_that_of_the_function():
    assert str(inspect.signature(halved)) == "(x, out, n, BLOCK: triton.language.core.constexpr = 8)"
    assert list(inspect.signature(fast).parameters) == ["x", "out", "n", "BLOCK"]


def test_copies_are_the_kernel_itself():
    settings = {"kernel": halved, "n": [1]}
    assert copy.copy(halved) is halved
    assert copy.deepcopy(halved) is halved
    copied = copy.deepcopy(settings)
    assert copied["kernel"] is halved
    assert copied["n"] is not settings["n"]


@pytest.mark.parametrize("kernel", [halved, fast], ids=["by its own name", "by its variable"])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_holds_the_name(kernel, protocol):
    data = pickle.dumps([kernel, kernel], protocol)
    assert len(data) < 200
    assert pickle.loads(data) == [kernel, kernel]
    assert pickle.loads(data)[0] is kernel


def test_a_kernel_without_a_name_in_a_module_is_refused_with_what_to_do():
    with pytest.raises(ArgumentError, match=r"plain is in no module's variable.*assign what silo\.kernel gives"):
        pickle.dumps(silo.kernel(plain))


PROGRAM = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
kernel = pickle.loads(bytes.fromhex(sys.argv[2]))
import numpy as np
x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
kernel[(1,)](x, out, 8)
assert (out == 0.5).all()
"""


def run(data, folder):
    command = [sys.executable, "-c", PROGRAM, str(folder), data.hex()]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))


MODULE = """
import silo
import triton
import triton.language as tl


@silo.kernel
@triton.jit
def halved(x, out, n, BLOCK: tl.constexpr = 8):
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)) / 2)


def local():
    @silo.kernel
    @triton.jit
    def inside(x):
        pass

    return inside
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "pickled_kernels.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pickled_kernels", raising=False)
    import pickled_kernels

    return pickled_kernels


def test_another_process_finds_it_by_its_module(module, tmp_path):
    data = pickle.dumps(module.halved)
    found = run(data, tmp_path)
    assert found.returncode == 0, found.stderr
    assert "cannot be imported here" in run(data, tmp_path / "elsewhere").stderr


def test_a_kernel_inside_a_function_is_refused_as_such_functions_are(module):
    with pytest.raises(ArgumentError, match=r"local\.<locals>\.inside is inside a function.*top of a module"):
        pickle.dumps(module.local())


def test_a_name_that_is_gone_is_said(module, monkeypatch):
    data = pickle.dumps(module.halved)
    monkeypatch.delattr(module, "halved")
    with pytest.raises(SourceError, match=r"this process has no halved in pickled_kernels"):
        pickle.loads(data)


def test_processes_of_multiprocessing_take_kernels(module):
    """A spawned process gets the kernel as an argument."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(inspect.signature, (module.halved,)) == inspect.signature(module.halved)


def test_cloudpickle_takes_the_name(module):
    cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed here")
    assert cloudpickle.loads(cloudpickle.dumps(module.halved)) is module.halved
    launch = cloudpickle.loads(cloudpickle.dumps(lambda x, out: module.halved[(1,)](x, out, 8)))
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    launch(x, out)
    assert (out == 0.5).all()
