"""Kernels from every origin and arrays of every maker, through ``silo.kernel``, unchanged."""

import linecache
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.settings import child_environment, override

N = 300


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield


@triton.jit
def plain_add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@pytest.fixture(scope="module")
def add(store):
    return silo.kernel(space={"BLOCK": [128]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(plain_add)


@pytest.fixture
def arrays():
    x = np.arange(N, dtype=np.float32)
    return x, x[::-1].copy(), np.full(N, -1, dtype=np.float32)


@pytest.mark.parametrize("n", [np.int64(N), np.int32(N), np.array(N), np.array(N, dtype=np.int16)])
def test_scalars_of_numpy_and_arrays_without_dimensions(add, arrays, n):
    x, y, out = arrays
    add(x, y, out, n)
    np.testing.assert_array_equal(out, x + y)


def test_a_tensor_without_dimensions_is_a_scalar(add, arrays):
    torch = pytest.importorskip("torch")
    x, y, out = arrays
    add(x, y, out, torch.tensor(N))
    np.testing.assert_array_equal(out, x + y)


def test_a_view_with_gaps_is_its_first_address(add):
    torch = pytest.importorskip("torch")
    wide = torch.arange(2 * N, dtype=torch.float32).reshape(N, 2)
    zeros, out = torch.zeros(N), torch.zeros(N)
    add(wide[:, 1], zeros, out, N)
    assert torch.equal(out, wide.flatten()[1 : N + 1])


def test_anything_that_speaks_dlpack(add, arrays):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x, y, out = arrays
    add(Foreign(x), Foreign(y), Foreign(out), N)
    np.testing.assert_array_equal(out, x + y)


def test_the_configs_of_autotune_are_the_space(arrays):
    configs = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 256}, num_warps=4)]
    kernel = silo.kernel(triton.autotune(configs=configs, key=["n"])(plain_add))
    known = kernel.kernel
    assert [(c.as_dict()["BLOCK"], c.as_dict()["num_warps"]) for c in known.space.configs()] == [(64, 2), (256, 4)]
    assert known.key == ("n",)
    x, y, out = arrays
    kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, out, N)
    np.testing.assert_array_equal(out, x + y)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    found = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        if EVEN:
            found += tl.load(x + i)
        else:
            found += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out, tl.sum(found, axis=0))


@pytest.mark.parametrize("n", [64, 192, 200, 256])
@pytest.mark.parametrize("block", [64, 128])
def test_a_heuristic_sees_the_config_of_the_call(n, block):
    decorated = triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})(total)
    kernel = silo.kernel(space={"BLOCK": [64, 128]}, grid=lambda a: (1,))(decorated)
    # Where EVEN were true and must not be, what lies beyond n would be in the sum.
    x, out = np.full(512, 1000.0, np.float32), np.zeros(1, np.float32)
    x[:n] = 1
    kernel(x, out, n, BLOCK=block)
    assert out[0] == n


def test_kernels_whose_text_is_in_linecache_only(arrays):
    text = (
        "import triton, triton.language as tl\n"
        "@triton.jit\n"
        "def made(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + i, tl.load(x + i, mask=i < n) * 7, mask=i < n)\n"
    )
    name = "<made for the test>"
    lines = [f"{line}\n" for line in text.splitlines()]
    linecache.cache[name] = (len(text), None, lines, name)
    namespace = {"__name__": "made_module"}
    exec(compile(text, name, "exec"), namespace)  # what the test is about
    x, _, out = arrays
    silo.kernel(namespace["made"])[(3,)](x, out, N, BLOCK=128)
    np.testing.assert_array_equal(out, x * 7)


INTERPRETED = """
import numpy as np, silo, triton, triton.language as tl

@silo.kernel(space={"BLOCK": [128]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

import torch
x, out = torch.arange(300, dtype=torch.float32), torch.zeros(300)
twice[(3,)](x, out, 300, BLOCK=128)
assert torch.equal(out, x * 2)
print(type(twice).__mro__)
"""


def test_the_interpreter_runs_the_same_kernel(tmp_path):
    pytest.importorskip("torch", reason="Triton's interpreter takes torch tensors")
    script = tmp_path / "interpreted.py"
    script.write_text(INTERPRETED)
    environment = child_environment(TRITON_INTERPRET="1", SILO_HOME=str(tmp_path / "store"), SILO_TUNE="off")
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "InterpretedFunction" in done.stdout
    assert not (tmp_path / "store" / "blobs").exists(), "nothing is compiled under the interpreter"
