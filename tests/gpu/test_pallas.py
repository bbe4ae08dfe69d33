"""Pallas kernels on an NVIDIA GPU: right, in the memory of the caller's own tensors, on torch's streams.

jax takes most of a GPU's memory when it starts, unless XLA_PYTHON_CLIENT_PREALLOCATE=false is set before.
"""

import logging
import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax", reason="jax is not installed here")

from gpu_kernels import torch  # noqa: E402  # skips where torch sees no GPU

sys.path.insert(0, str(Path(__file__).parents[1] / "samples"))
import pallas_kernels_for_tests as bodies  # noqa: E402
import silo  # noqa: E402
from silo import ArgSpec  # noqa: E402
from silo.errors import ArgumentError, SiloError  # noqa: E402

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture(scope="module", autouse=True)
def jax_on_a_gpu():
    try:
        jax.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"jax has no GPU: {error}")


def block(*sizes, dims=(0,), **said):
    return ArgSpec(block=sizes, dims=dims, **said)


@pytest.fixture(scope="module")
def add():
    args = [block(1024), block(1024), block(1024, role="out", shape="x")]
    return silo.pallas(bodies.add_body, args=args, grid=lambda a: (-(-a.x.shape[0] // 1024),))


@pytest.fixture(scope="module")
def bump():
    args = [block(16, 128), block(16, 128, role="inout")]
    return silo.pallas(bodies.bump_body, args=args, grid=lambda a: (-(-a.x.shape[0] // 16),))


def gemm(m, n, k, warps=8, stages=4):
    return silo.pallas(
        bodies.gemm_body,
        args=[
            ArgSpec(block=("BLOCK_M", None), dims=(0, None)),
            ArgSpec(block=(None, "BLOCK_N"), dims=(None, 1)),
            ArgSpec(block=("BLOCK_M", "BLOCK_N"), dims=(0, 1), role="out"),
        ],
        space=[{"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages}],
        grid=lambda a: (-(-a.x.shape[0] // a.BLOCK_M), -(-a.y.shape[1] // a.BLOCK_N)),
    )


def copies(caplog):
    return [one.getMessage() for one in caplog.records if "copied" in one.getMessage()]


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int32"])
def test_add_in_the_caller_s_memory(add, name, caplog):
    dtype = getattr(torch, name)
    x, y = ((torch.randn(8192, device="cuda") * 9).to(dtype) for _ in range(2))
    out = torch.zeros_like(x)
    address = out.data_ptr()
    with caplog.at_level(logging.WARNING, "silo"):
        for grid in (8,):
            assert add[(grid,)](x, y, out) is None
    assert torch.equal(out, x + y)
    assert out.data_ptr() == address
    assert not copies(caplog)  # jax wrote where it was told to


@pytest.mark.skipif(torch.cuda.get_device_capability() != (9, 0), reason="Mosaic GPU is exported for sm_90")
def test_kernels_of_mosaic_gpu(caplog):
    add = silo.pallas(bodies.mosaic_add_body, grid=(8,), space={"BLOCK": [1024]}, **bodies.MOSAIC_ADD)
    x, y = torch.randn(8192, device="cuda"), torch.randn(8192, device="cuda")
    out = torch.zeros_like(x)
    for a in (2.0, 0.5):
        with caplog.at_level(logging.WARNING, "silo"):
            add(x, y, out, a)
        assert torch.equal(out, x + y * a)
    assert not copies(caplog)
    copy = silo.pallas(bodies.mosaic_copy_body, grid=(8,), **bodies.MOSAIC_COPY)
    square = torch.randn(512, 128, device="cuda")
    assert torch.equal(copy(square), square + 1)


def test_a_ragged_end_is_copied_and_right(add):
    x, y = torch.randn(5000, device="cuda"), torch.randn(5000, device="cuda")
    out = torch.zeros(6000, device="cuda")
    add[(5,)](x, y, out[:5000])
    assert torch.equal(out[:5000], x + y)
    assert not out[5000:].any()


def test_in_place_and_strided(bump):
    x, whole = torch.randn(64, 128, device="cuda"), torch.randn(64, 256, device="cuda")
    y = whole[:, :128].contiguous()
    before, address = y.clone(), y.data_ptr()
    bump[(4,)](x, y)
    assert torch.equal(y, before + x)
    assert y.data_ptr() == address
    before = whole.clone()
    bump[(4,)](x, whole[:, ::2])
    assert torch.equal(whole[:, ::2], before[:, ::2] + x)
    assert torch.equal(whole[:, 1::2], before[:, 1::2])


def test_a_strided_operand_is_read_after_its_copy(add):
    """The copy takes some hundred microseconds of the device, and is enqueued after the first operand was ready."""
    count = 1 << 25
    x, out = torch.randn(count, device="cuda"), torch.zeros(count, device="cuda")
    for _ in range(5):
        y = torch.randn(2 * count, device="cuda")
        add[(count // 1024,)](x, y[::2], out)
        assert torch.equal(out, x + y[::2])


def test_an_expanded_tensor_is_not_written(bump):
    x = torch.randn(64, 128, device="cuda")
    with pytest.raises(ArgumentError, match="several of its elements are one in memory"):
        bump[(4,)](x, torch.zeros(64, 1, device="cuda").expand(64, 128))


def test_arguments_of_one_memory(bump, add):
    x = torch.randn(64, 128, device="cuda")
    wanted = 2 * x
    bump[(4,)](x, x)
    assert torch.equal(x, wanted)
    flat = torch.randn(8192, device="cuda")
    wanted = 2 * flat
    add[(8,)](flat, flat, flat)
    assert torch.equal(flat, wanted)


def test_a_result_that_is_left_out(add):
    x = torch.randn(8192, device="cuda")
    found = add[(8,)](x, x)
    assert found.device == x.device
    assert torch.equal(found, 2 * x)
    array = jax.numpy.ones(8192)
    assert float(add[(8,)](array, array).sum()) == 2 * 8192


def test_the_stream_of_the_caller(add):
    side = torch.cuda.Stream()
    x, y, out = (torch.zeros(1 << 22, device="cuda") for _ in range(3))
    for turn in range(50):
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000)
            x.fill_(turn)
            add[(4096,)](x, y, out)
            seen = out.clone()
        side.synchronize()
        assert bool((seen == turn).all()), turn
    with torch.cuda.stream(side):
        x.fill_(99)
    add[(4096,)](x, y, out, stream=side)
    side.synchronize()
    assert bool((out == 99).all())


def test_a_product():
    made = gemm(128, 256, 64)
    x, y = (torch.randn(1024, 1024, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.zeros_like(x)
    made[(8, 4)](x, y, out)
    assert torch.allclose(out, x @ y, rtol=2e-2, atol=0.2)


def test_bad_calls(add):
    x = torch.randn(8192, device="cuda")
    with pytest.raises(SiloError):
        add[(8,)](x, x.cpu(), x)
    with pytest.raises(ArgumentError, match="64"):
        add[(8,)](x.double(), x.double(), x.double())
    with pytest.raises(ArgumentError, match="requires a gradient"):
        add[(8,)](x.clone().requires_grad_(), x, torch.empty_like(x))
