"""The table of array libraries: every library does the same to the same array."""
# pyright: reportAttributeAccessIssue=false

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from silo.core.device import HOST, Memory, Place, place_of
from silo.core.recipes import ArrayRecipe
from silo.errors import ArgumentError, CaseError
from silo.launch.array_libraries import library_table as table
from silo.launch.array_libraries.library_table import materialize

HERE = ["numpy", "torch", "buffer", "jax"]


def library(name):
    if name not in ("numpy", "buffer"):
        pytest.importorskip(name)
    return table.library_named(name)


def recipe(**told):
    return ArrayRecipe.of("normal", (3, 5), dtype="float32", **told)


@pytest.mark.parametrize("name", HERE)
def test_each_makes_the_same_numbers_and_reads_them(name):
    one = library(name)
    array = one.make(recipe(), HOST)
    assert table.library_of(array) is one
    wanted = materialize(recipe(), "numpy")
    np.testing.assert_array_equal(one.read(array), wanted)
    bits = one.bits(array)
    assert bits.dtype == np.uint32
    np.testing.assert_array_equal(bits, wanted.view(np.uint32))


@pytest.mark.parametrize("name", HERE)
def test_each_duplicates_writes_and_puts_back(name):
    one = library(name)
    array = one.make(recipe(), HOST)
    before = np.copy(one.bits(array))
    copy = one.duplicate(array)
    assert table.library_of(copy) is one
    np.testing.assert_array_equal(one.bits(copy), before)
    put_back = one.keep(copy)
    if name == "jax":
        with pytest.raises(ArgumentError, match="immutable"):
            one.write(copy, before)
    else:
        one.write(copy, before + 1)
        np.testing.assert_array_equal(one.bits(copy), before + 1)
    put_back()
    np.testing.assert_array_equal(one.bits(copy), before)
    np.testing.assert_array_equal(one.bits(array), before)


def test_layouts_that_a_library_does_not_have_are_refused():
    gaps = recipe(strides=(10, 2))
    for name in ("buffer", "jax"):
        with pytest.raises(CaseError, match="row-major"):
            library(name).make(gaps, HOST)


def test_jax_makes_no_other_numbers_than_asked_for():
    with pytest.raises(CaseError, match="JAX_ENABLE_X64"):
        library("jax").make(ArrayRecipe.of("normal", (3,), dtype="float64"), HOST)


def test_arrays_of_derived_classes_are_their_librarys():
    class Mine(np.ndarray):
        pass

    assert table.library_of(np.zeros(2).view(Mine)) is table.library_named("numpy")
    put_back = table.library_of(np.float32(3)).keep(np.float32(3))  # a scalar has a shape too
    put_back()


class Stranger:
    """An array of a library that nobody knows."""

    def __init__(self, kept):
        self.kept = kept
        self.shape = kept.shape
        self.__array_interface__ = kept.__array_interface__

    def __dlpack__(self, **_):
        return self.kept.__dlpack__()

    def __dlpack_device__(self):
        return self.kept.__dlpack_device__()


def test_a_strangers_array_on_the_host_is_copied_and_put_back():
    array = Stranger(np.arange(6.0))
    one = table.library_of(array)
    assert one not in [table.library_named(name) for name in table.NAMES]
    np.testing.assert_array_equal(one.duplicate(array), np.arange(6.0))
    put_back = one.keep(array)
    one.write(array, np.zeros(6, np.uint64))
    assert not array.kept.any()
    put_back()
    np.testing.assert_array_equal(array.kept, np.arange(6.0))


def test_a_strangers_array_on_a_device_is_read_at_most():
    class OnDevice(Stranger):
        def __dlpack_device__(self):
            return 2, 0

        def copy_to_host(self):
            return self.kept

    array = OnDevice(np.arange(6.0))
    one = table.library_of(array)
    np.testing.assert_array_equal(one.read(array), np.arange(6.0))
    for step in (one.duplicate, one.keep, lambda array: one.write(array, None)):
        with pytest.raises(ArgumentError, match="on a device cannot be"):
            step(array)


# ---- cupy, which this machine cannot have: numpy stands for it ----


@pytest.fixture
def cupy(monkeypatch):
    class ndarray(np.ndarray):  # noqa: N801  # cupy's name
        __module__ = "cupy"

        def get(self):
            return np.array(self)

        @property
        def data(self):
            return SimpleNamespace(ptr=self.ctypes.data)

    def as_strided(array, shape, strides):
        return np.lib.stride_tricks.as_strided(array, shape, strides, subok=True)

    module = ModuleType("cupy")
    module.__version__ = "0"
    module.asarray = lambda host: np.array(host).view(ndarray)
    module.cuda = SimpleNamespace(Device=lambda index: __import__("contextlib").nullcontext())
    module.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.mark.parametrize("strides", [None, (10, 2)])
def test_cupy(cupy, strides):
    one = table.library_named("cupy")
    array = one.make(recipe(strides=strides), Place("cuda:0", 2))
    assert table.library_of(array) is one
    assert array.strides == ((40, 8) if strides else (20, 4))
    wanted = materialize(recipe(), "numpy").view(np.uint32)
    np.testing.assert_array_equal(one.bits(array), wanted)
    put_back = one.keep(array)
    one.write(array, wanted + 1)
    np.testing.assert_array_equal(one.bits(array), wanted + 1)
    put_back()
    np.testing.assert_array_equal(one.bits(array), wanted)
    with pytest.raises(CaseError, match="cupy has arrays on GPUs alone, not on cpu"):
        one.make(recipe(), HOST)


# ---- places ----


def test_who_makes_arrays_where_nobody_says(monkeypatch):
    assert table.default_library(HOST) == "numpy"
    monkeypatch.setattr("silo.launch.array_libraries.numpy_arrays.has_numpy", lambda: False)
    assert table.default_library(HOST) == "buffer"
    with pytest.raises(CaseError, match=r"makes arrays on npu:0: name one with --arrays"):
        table.default_library(Place("npu:0", 12))
    for name in ("numpy", "buffer"):
        with pytest.raises(CaseError, match="npu:0"):
            library(name).make(recipe(), Place("npu:0", 12))


def test_torch_makes_arrays_where_the_device_says_what_torch_calls_it():
    one = library("torch")
    with pytest.raises(CaseError, match="torch has no name for npu:1"):
        one.make(recipe(), Place("npu:1", 12, 1))
    npu = SimpleNamespace(memory=Memory((12,), {"torch": "meta"}), target=SimpleNamespace(kind="npu"), index=0)
    assert one.make(recipe(), place_of(npu)).device.type == "meta"
    npu.memory = Memory((1, 12))
    assert place_of(npu) == HOST == place_of(None)


def test_the_table_imports_no_library():
    code = (
        "import sys; from silo.launch.array_libraries import library_table as table; from silo.core import device;"
        "print(table.default_library(device.HOST), [n for n in ('numpy', 'torch', 'jax', 'cupy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "numpy []"


def test_a_kind_of_device_that_a_library_knows_has_a_module():
    for package in set(table.DEVICE_PACKAGES.values()):
        assert callable(table.devices_through(package).describe)
