"""Tuple arguments and launch hooks of Triton's on a real NVIDIA GPU."""

from typing import Any, NamedTuple

import pytest

import silo
from gpu_kernels import tl, torch, triton

pytestmark = pytest.mark.usefixtures("store")


class Scaled(NamedTuple):
    array: Any
    factor: Any


class Block(NamedTuple):
    size: int
    fill: float


def test_values_of_tuples_reach_the_kernel():
    @triton.jit
    def scale(out, xs, rest, block: tl.constexpr):
        i = tl.arange(0, block.size)  # pyright: ignore[reportAttributeAccessIssue]
        tl.store(out + i, tl.load(xs.array + i) * xs.factor + rest[0] + block.fill)  # pyright: ignore[reportAttributeAccessIssue]

    kernel = silo.kernel(scale)
    x = torch.arange(64, device="cuda", dtype=torch.float32)
    for factor, rest in ((3, 1), (1, 2), (2.5, 16)):
        for block in (Block(64, 0.5), Block(32, 4.0)):
            out = torch.zeros(64, device="cuda")
            kernel[(1,)](out, Scaled(x, factor), (rest,), block)
            expected = x * factor + rest + block.fill
            assert torch.equal(out[: block.size], expected[: block.size])
            assert (out[block.size :] == 0).all()


def test_hooks_of_triton_see_launches():
    @triton.jit
    def one(out):
        tl.store(out, 1.0)

    seen: list[Any] = []
    kernel, out = silo.kernel(one), torch.zeros(1, device="cuda")
    kernel[(1,)](out)
    triton.knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        kernel[(1,)](out)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(seen.append)
    assert [one.data["name"] for one in seen] == ["one"]
    assert seen[0].data["stream"] == torch.cuda.current_stream().cuda_stream
