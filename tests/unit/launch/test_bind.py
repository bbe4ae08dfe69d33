"""`bind`: calls without a guard, what is still checked, and the debug setting that checks the promise."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError
from silo.launch.native import Launcher
from silo.settings import override

N = 1024


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr = 256):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@pytest.fixture(scope="module")
def kernel(store):
    return silo.kernel(space={"BLOCK": [128]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(scale)


@pytest.fixture
def arrays():
    memory = np.arange(N + 16, dtype=np.float32)
    x = memory[(-memory.ctypes.data // 4) % 16 :][:N]
    return x, np.zeros(N + 16, dtype=np.float32)[:N]


def test_a_bound_launcher_is_the_native_one_and_asks_nobody(kernel, arrays):
    x, out = arrays
    launch = kernel.bind(x, out, N, 2.0)
    assert isinstance(launch, Launcher)
    assert launch(x, out, N, 2.0) is None
    np.testing.assert_array_equal(out, 2 * x)
    launch(x, out, n=512, factor=3.0)
    np.testing.assert_array_equal(out[:512], 3 * x[:512])
    np.testing.assert_array_equal(out[512:], 2 * x[512:])
    assert launch.misses == 0


def test_grids_of_a_bound_launcher(kernel, arrays):
    x, out = arrays
    launch = kernel.bind(x, out, N, 2.0)
    launch[(1,)](x, out, N, 2.0)
    assert np.count_nonzero(out) == 128 - (x[0] == 0)
    given = kernel.bind(x, out, N, 2.0, grid=(2,))
    out[:] = 0
    given(x, out, N, 2.0)
    assert np.count_nonzero(out) == 256 - (x[0] == 0)
    by_config = kernel.bind(x, out, N, 2.0, grid=lambda meta: (meta["n"] // meta["BLOCK"],))
    by_config(x, out, N, 2.0)
    np.testing.assert_array_equal(out, 2 * x)


def test_constexprs_of_the_example_stay(kernel, arrays):
    x, out = arrays
    launch = kernel.bind(x, out, N, 2.0, BLOCK=512)
    launch[(1,)](x, out, N, 2.0)
    assert np.count_nonzero(out) == 512 - (x[0] == 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, out: (x.astype(np.float64), out, N, 2.0), "argument 'x' needs a float32 array"),
        (lambda x, out: (x, out, 2**40, 2.0), r"argument 'n' needs int32 in \[-2147483648, 2147483647\]"),
        (lambda x, out: (x, out, "5", 2.0), "argument 'n' needs int32"),
        (lambda x, out: (x, out, N, None), "argument 'factor' needs a number"),
        (lambda x, out: (x, out), "called without n, factor"),
    ],
)
def test_kinds_dtypes_and_ranges_are_still_checked(kernel, arrays, wrong, message):
    x, out = arrays
    launch = kernel.bind(x, out, N, 2.0)
    with pytest.raises(ArgumentError, match=message):
        launch(*wrong(x, out))


def test_options_are_not_taken(kernel, arrays):
    x, out = arrays
    launch = kernel.bind(x, out, N, 2.0)
    with pytest.raises(ArgumentError, match="has no parameter 'num_warps'"):
        launch(x, out, N, 2.0, num_warps=8)


def test_the_debug_setting_checks_the_promise(kernel, arrays):
    x, out = arrays
    with override(debug=True):
        launch = kernel.bind(x, out, N, 2.0)
        launch(x, out, N, 2.0)
        launch[(8,)](x, out, N, 2.0)
        with pytest.raises(ArgumentError, match="n is not a multiple of 16, and it assumes that"):
            launch(x, out, N - 1, 2.0)
        with pytest.raises(ArgumentError, match="x is not at a multiple of 16 bytes"):
            launch[(8,)](x[1:], out, N, 2.0)
    np.testing.assert_array_equal(out, 2 * x)


def test_binding_keeps_the_kernel_loaded(arrays):
    x, out = arrays
    launch = silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),))(scale).bind(x, out, N, 2.0)
    launch(x, out, N, 2.0)
    np.testing.assert_array_equal(out, 2 * x)


def test_the_gil_may_be_kept(arrays):
    x, out = arrays
    held = silo.kernel(grid=lambda a: (silo.cdiv(a.n, 256),), release_gil=False)(scale)
    held(x, out, N, 4.0)
    np.testing.assert_array_equal(out, 4 * x)
    held.bind(x, out, N, 2.0)(x, out, N, 2.0)
    np.testing.assert_array_equal(out, 2 * x)
