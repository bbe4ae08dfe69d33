"""Liger's operators in the precision that models are trained in; the oracle sees the same rounded inputs."""

import torch
from census_kinds import agree, kind, normal
from census_liger_losses import labels
from census_liger_mixtures import EXPERTS, HIDDEN, INNER, TOKENS, experts, routed
from census_liger_norms import EPS, rms
from census_liger_positions import LENGTH, angles, queries, turn
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
from liger_kernel.ops.fused_moe import LigerFusedMoEFunction
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from torch.nn import functional

LOOSE = {"rtol": 0.05, "atol": 0.05}


def halves(*shape, seed=0):
    return normal(*shape, dtype=torch.bfloat16, seed=seed)


@kind("liger", "rms_norm in bfloat16")
def rms_norm():
    agree(
        lambda x, w: LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False),
        lambda x, w: rms(x) * w,
        halves(7, 256),
        halves(256, seed=1),
        **LOOSE,
    )


@kind("liger", "layer_norm in bfloat16")
def layer_norm():
    agree(
        lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, EPS),
        lambda x, w, b: functional.layer_norm(x, (300,), w, b, EPS),
        halves(7, 300),
        halves(300, seed=1),
        halves(300, seed=2),
        **LOOSE,
    )


@kind("liger", "gated units in bfloat16")
def gated():
    for function, gate in (
        (LigerSiLUMulFunction, functional.silu),
        (LigerGELUMulFunction, lambda a: functional.gelu(a, approximate="tanh")),
    ):
        agree(function.apply, lambda a, b, gate=gate: gate(a) * b, halves(4, 500), halves(4, 500, seed=1), **LOOSE)


@kind("liger", "softmax in bfloat16")
def softmax():
    agree(LigerSoftmaxFunction.apply, lambda x: torch.softmax(x, -1), halves(7, 300), rtol=0.05, atol=1e-3)


@kind("liger", "rope in bfloat16")
def rope():
    q, k = (x.to(torch.bfloat16) for x in queries())
    agree(
        lambda q, k, cos, sin: LigerRopeFunction.apply(q, k, cos.bfloat16(), sin.bfloat16()),
        lambda q, k, cos, sin: (turn(q, cos[:, None], sin[:, None]), turn(k, cos[:, None], sin[:, None])),
        q,
        k,
        *angles(1, LENGTH),
        **LOOSE,
    )


@kind("liger", "cross_entropy in bfloat16")
def cross_entropy():
    agree(
        lambda x, y: LigerCrossEntropyFunction.apply(x, y, None)[0],
        functional.cross_entropy,
        halves(7, 700),
        labels(7, 700),
        rtol=0.02,
        atol=1e-3,
    )


@kind("liger", "fused_linear_cross_entropy in bfloat16")
def fused_linear_cross_entropy():
    agree(
        lambda x, w, y: LigerFusedLinearCrossEntropyFunction.apply(x, w, y)[0],
        lambda x, w, y: functional.cross_entropy(x @ w.T, y),
        halves(9, 64),
        halves(300, 64, seed=1) / 8,
        labels(9, 300),
        **LOOSE,
    )


@kind("liger", "fused mixture of experts in bfloat16")
def fused_moe():
    shares, chosen = routed()
    agree(
        lambda x, g, d, c, s: LigerFusedMoEFunction.apply(x, g, d, c.to(torch.int32), s),
        experts,
        halves(TOKENS, HIDDEN),
        halves(EXPERTS, 2 * INNER, HIDDEN, seed=1) / 6,
        halves(EXPERTS, HIDDEN, INNER, seed=2) / 8,
        chosen,
        shares.bfloat16(),
        rtol=0.1,
        atol=0.1,
    )
