"""Liger's activations: gated units, softmax, sparsemax."""

from unittest import mock

import torch
from census_kinds import agree, close, kind, normal
from liger_kernel.ops import softmax as softmax_ops
from liger_kernel.ops import swiglu as swiglu_ops
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.sparsemax import LigerSparsemaxFunction
from torch.nn import functional


@kind("liger", "swiglu")
def swiglu():
    agree(
        swiglu_ops.LigerSiLUMulFunction.apply,
        lambda a, b: functional.silu(a) * b,
        normal(3, 4, 500),
        normal(3, 4, 500, seed=1),
    )


@kind("liger", "swiglu by tiles of columns")
def swiglu_tiled():
    """Liger's choice for wide rows on one kind of GPU."""
    with mock.patch.object(swiglu_ops, "_should_tile", return_value=True):
        swiglu()


@kind("liger", "swiglu of one fused projection")
def swiglu_fused():
    def oracle(y):
        gate, up = y.chunk(2, dim=-1)
        return functional.silu(gate) * up

    agree(swiglu_ops.LigerFusedGateUpSiLUMulFunction.apply, oracle, normal(6, 600))


@kind("liger", "geglu")
def geglu():
    agree(
        LigerGELUMulFunction.apply,
        lambda a, b: functional.gelu(a, approximate="tanh") * b,
        normal(3, 4, 500),
        normal(3, 4, 500, seed=1),
    )


@kind("liger", "relu squared")
def relu_squared():
    agree(LigerReLUSquaredFunction.apply, lambda x: functional.relu(x) ** 2, normal(4, 500))


@kind("liger", "softmax")
def softmax():
    agree(LigerSoftmaxFunction.apply, lambda x: torch.softmax(x, -1), normal(7, 300))


@kind("liger", "softmax of rows longer than a block")
def softmax_long():
    agree(LigerSoftmaxFunction.apply, lambda x: torch.softmax(x, -1), normal(2, 70_000), rtol=1e-3, atol=1e-8)


@kind("liger", "softmax backward by blocks, the kernel")
def softmax_backward_blocks():
    """What Liger would launch for rows longer than a block, were they not refused before."""
    change, y = normal(3, 1000, seed=1), torch.softmax(normal(3, 1000), -1)
    found = softmax_ops._softmax_backward(change, y, 256, 4, True)
    x, dx = y.double(), change.double()
    close(found, x * (dx - (x * dx).sum(-1, keepdim=True)))


@kind("liger", "sparsemax")
def sparsemax():
    def oracle(x):
        ordered, _ = torch.sort(x, dim=-1, descending=True)
        sums = ordered.cumsum(-1) - 1
        count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        support = (ordered > sums / count).sum(-1, keepdim=True)
        threshold = sums.gather(-1, support - 1) / support
        return torch.clamp(x - threshold, min=0)

    agree(lambda x: LigerSparsemaxFunction.apply(x, -1), oracle, normal(6, 200))
