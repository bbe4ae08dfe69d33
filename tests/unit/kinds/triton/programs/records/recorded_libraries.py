"""A program that uses operators of Liger-Kernel and flash-linear-attention, and knows no Silo; prints what compiled."""

# pyright: reportMissingImports=false

import json
import sys

import torch
from triton.compiler import compiler

COMPILES = []
_own = compiler.make_backend


def make_backend(target):
    made = _own(target)
    stages = made.add_stages
    made.add_stages = lambda *args, **kwargs: (COMPILES.append(1), stages(*args, **kwargs))[1]
    return made


compiler.make_backend = make_backend

from fla.modules.l2norm import l2norm_fwd  # noqa: E402
from fla.ops.utils.softmax import softmax_fwd  # noqa: E402
from liger_kernel.ops.rms_norm import LigerRMSNormFunction  # noqa: E402
from liger_kernel.ops.swiglu import LigerSiLUMulFunction  # noqa: E402

torch.manual_seed(0)


def moved(rows, columns, offset):
    return torch.randn(rows * columns + offset)[offset:].reshape(rows, columns)


def liger(rows, columns, offset=0, *, gated=True):
    x, y, weight = moved(rows, columns, offset), moved(rows, columns, offset), moved(1, columns, offset)[0]
    expected = torch.nn.functional.rms_norm(x, (columns,), weight, 1e-6)
    assert torch.allclose(LigerRMSNormFunction.apply(x, weight, 1e-6), expected, atol=1e-4)
    if gated:  # the columns are a constexpr of this kernel, so another number of them is another program
        assert torch.allclose(LigerSiLUMulFunction.apply(x, y), torch.nn.functional.silu(x) * y, atol=1e-4)


def fla(rows, offset=0):
    x = moved(rows, 64, offset)
    assert torch.allclose(l2norm_fwd(x)[0], x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt(), atol=1e-4)
    assert torch.allclose(softmax_fwd(x), x.softmax(-1), atol=1e-5)


liger(8, 512)
fla(64)
if "other" in sys.argv:
    liger(8, 512, offset=1)  # pointers moved by one element
    liger(3, 509, gated=False)  # a size that no power of two divides; the block is the same
    fla(48, offset=1)
    fla(81)
print(json.dumps(len(COMPILES)))
