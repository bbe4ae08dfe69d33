# pyright: reportAttributeAccessIssue=false

import gc
import sys

import numpy as np
import pytest

from silo.core.recipes import ArrayRecipe
from silo.core.values import DTYPES
from silo.errors import ArgumentError, CaseError
from silo.launch import native
from silo.launch.array_libraries.array_contents import fill
from silo.launch.array_libraries.library_table import materialize
from silo.launch.buffers import Buffer

FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]


def test_shape_strides_and_zeros():
    buffer = Buffer((2, 3, 4), "int16")
    assert (buffer.shape, buffer.strides, buffer.dtype, buffer.nbytes) == ((2, 3, 4), (12, 4, 1), "int16", 48)
    assert bytes(buffer.raw) == bytes(48)
    assert len(buffer) == 2
    assert repr(buffer) == "Buffer([2, 3, 4], int16)"
    assert Buffer(5).shape == (5,)
    assert Buffer((), "float64").nbytes == 8
    with pytest.raises(TypeError):
        len(Buffer(()))


def test_data_in_and_out():
    buffer = Buffer.of(np.arange(6, dtype=np.int32).tobytes(), "int32", (2, 3))
    np.testing.assert_array_equal(buffer.numpy(), [[0, 1, 2], [3, 4, 5]])
    buffer.numpy()[1, 2] = 9
    assert np.asarray(buffer)[1, 2] == memoryview(buffer)[1, 2] == 9
    with pytest.raises(ArgumentError, match="has 24 bytes, not 20"):
        Buffer.of(bytes(20), "int32", (2, 3))


@pytest.mark.parametrize("shape", [(-1,), (2**40, 2**40), (2**62,), (1,) * 33])
def test_impossible_shapes(shape):
    with pytest.raises((ArgumentError, MemoryError)):
        Buffer(shape)


def test_an_unknown_dtype():
    with pytest.raises((ArgumentError, CaseError), match="float31"):
        Buffer(3, "float31")
    with pytest.raises(ArgumentError, match="float31"):
        native.HostBuffer((3,), "float31")


@pytest.mark.parametrize("one", DTYPES, ids=str)
def test_the_buffer_protocol_where_it_has_a_format(one):
    pytest.importorskip("ml_dtypes")
    buffer = Buffer((2, 2), one)
    assert str(buffer.numpy().dtype) == one.name
    if one.name == "bfloat16" or one.name.startswith("float8"):
        with pytest.raises(BufferError, match="no format"):
            memoryview(buffer)
    else:
        assert np.asarray(memoryview(buffer)).dtype == buffer.numpy().dtype


def test_views_keep_the_memory():
    raw, array = Buffer.of(b"abcd", "uint8").raw, Buffer.of(b"efgh", "uint8").numpy()
    gc.collect()
    assert bytes(raw) == b"abcd"
    assert array.tobytes() == b"efgh"


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 0)])
def test_dlpack(version):
    buffer = Buffer.of(np.arange(4, dtype=np.float32).tobytes(), "float32")
    before = sys.getrefcount(buffer)
    del_me = buffer.__dlpack__(max_version=version)
    assert sys.getrefcount(buffer) == before + 1
    del del_me  # a capsule nobody took gives its reference back
    assert sys.getrefcount(buffer) == before
    array = np.from_dlpack(buffer)
    assert array.ctypes.data == buffer.data_ptr()
    np.testing.assert_array_equal(array, [0, 1, 2, 3])
    del array
    gc.collect()
    assert sys.getrefcount(buffer) == before
    assert buffer.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="host memory"):
        buffer.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="without a copy"):
        buffer.__dlpack__(copy=True)


def test_torch_reads_every_dtype_it_has():
    torch = pytest.importorskip("torch")
    for name in ("bool", "int8", "uint8", "int64", *FLOATS[:4]):
        tensor = torch.from_dlpack(Buffer((2, 3), name))
        assert tensor.dtype is getattr(torch, name)
        assert tensor.shape == (2, 3)


# ---- arrays of cases ----


@pytest.mark.parametrize("name", [one.name for one in DTYPES])
def test_every_library_gets_the_same_bits(name):
    pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    kind, params = ("normal", {}) if "float" in name else ("integers", {"high": 2})
    recipe = ArrayRecipe.of(kind, (5, 7), name, seed=11, **params)
    expected = recipe.host().tobytes()
    assert fill(recipe).tobytes() == expected
    assert materialize(recipe).tobytes() == expected
    assert bytes(materialize(recipe, "buffer").raw) == expected
    if hasattr(torch, name):
        tensor = materialize(recipe, "torch")
        assert tensor.shape == (5, 7)
        assert tensor.contiguous().view(torch.uint8).numpy().tobytes() == expected
    else:
        with pytest.raises(CaseError, match="has no dtype"):
            materialize(recipe, "torch")


def test_strides_are_kept():
    torch = pytest.importorskip("torch")
    recipe = ArrayRecipe.of("normal", (3, 4), "float32", seed=1, strides=(8, 2))
    host, tensor = materialize(recipe), materialize(recipe, "torch")
    assert host.strides == (32, 8)
    assert tensor.stride() == (8, 2)
    assert np.array_equal(tensor.numpy(), host)
    assert torch.equal(tensor, torch.from_numpy(np.ascontiguousarray(host)))
    with pytest.raises(CaseError, match="row-major"):
        materialize(recipe, "buffer")


def test_arrays_without_elements():
    for library in ("numpy", "torch", "buffer"):
        assert tuple(materialize(ArrayRecipe.of("normal", (0, 3)), library).shape) == (0, 3)


def test_an_unknown_library():
    with pytest.raises(CaseError, match="numpy, torch, buffer, cupy, jax, not of 'mxnet'"):
        materialize(ArrayRecipe.of("zeros", (1,)), "mxnet")


@pytest.mark.parametrize(
    "arguments",
    [
        (5, 2, 32, 0, 0, 100, 0.0, 1.0, 0, 0, bytearray(16)),
        (5, 2, 0, 0, 0, 1, 0.0, 1.0, 0, 0, bytearray(16)),
        (99, 2, 32, 0, 0, 4, 0.0, 1.0, 0, 0, bytearray(16)),
        (5, 77, 32, 0, 0, 4, 0.0, 1.0, 0, 0, bytearray(16)),
    ],
)
def test_generating_what_does_not_fit(arguments):
    with pytest.raises(ValueError, match=r"fit|fill"):
        native.generate(*arguments)
