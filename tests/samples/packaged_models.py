"""Models with user kernels, for packages of AOTInductor: torch finds the kernels by the name of their module."""

import torch
import triton
import triton.language as tl

import silo


@triton.jit
def scaled(x, y, out, n, alpha, TWICE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = alpha * tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, value * 2 if TWICE else value, mask=i < n)


@triton.jit
def running(x, out, n, BLOCK: tl.constexpr):
    """Compute the running sums of each row; on a CPU the code keeps values in memory of its own."""
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(out + row + i, tl.cumsum(tl.load(x + row + i, mask=i < n, other=0.0), axis=0), mask=i < n)


twin = silo.kernel(scaled, tune="off")


@torch.library.triton_op("packaged_samples::packed", mutates_args={})
def packed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(twin)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 3.0, TWICE=False, BLOCK=64)
    return out


class Model(torch.nn.Module):
    """A model with two Triton kernels, and a Silo kernel in a ``triton_op``."""

    def forward(self, x, y):
        out, sums = torch.empty_like(x), torch.empty_like(x)
        n = x.numel()
        scaled[(triton.cdiv(n, 64),)](x, y, out, n, 0.5, TWICE=True, BLOCK=64)
        running[(x.shape[0],)](out, sums, x.shape[1], BLOCK=64)
        return packed(sums, y).relu()


class WithGrid(torch.nn.Module):
    """A model with a Silo kernel that is called with a grid."""

    def forward(self, x, y):
        out = torch.empty_like(x)
        twin[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), 0.25, TWICE=True, BLOCK=128)
        return out + y


def wanted(model, x, y):
    if isinstance(model, WithGrid):
        return 2 * (0.25 * x + y) + y
    return (3.0 * (2 * (0.5 * x + y)).cumsum(1) + y).relu()


@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.autotune(
    configs=[triton.Config({"X": 4, "Y": 8, "Z": 2}), triton.Config({"X": 16, "Y": 2, "Z": 1})], key=["a", "b", "c"]
)
@triton.jit
def tuned_cube(x, out, a, b, c, X: tl.constexpr, Y: tl.constexpr, Z: tl.constexpr):
    """Double x, over three axes, each with a size and a block of its own."""
    i = tl.program_id(2) * Z + tl.arange(0, Z)[:, None, None]
    j = tl.program_id(1) * Y + tl.arange(0, Y)[None, :, None]
    k = tl.program_id(0) * X + tl.arange(0, X)[None, None, :]
    at = (i * b + j) * c + k
    inside = (i < a) & (j < b) & (k < c)
    tl.store(out + at, 2 * tl.load(x + at, mask=inside), mask=inside)


class Tuned(torch.nn.Module):
    """A model with autotuned kernels, whose grids depend on the chosen config and on the sizes of the call."""

    def forward(self, x, cube):
        out, doubled = torch.zeros_like(x), torch.zeros_like(cube)
        n = x.numel()
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        a, b, c = cube.shape
        tuned_cube[lambda meta: (triton.cdiv(c, meta["X"]), triton.cdiv(b, meta["Y"]), triton.cdiv(a, meta["Z"]))](
            cube, doubled, a, b, c
        )
        return out, doubled


class Plain(torch.nn.Module):
    """A model without user kernels: Inductor generates all of its kernels."""

    def forward(self, x):
        return torch.sin(x) + 1
