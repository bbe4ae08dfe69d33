"""Liger's mixture of experts, hyper-connections, and projections with small weights or tensor descriptors."""
# pyright: reportAttributeAccessIssue=false

from unittest import mock

import torch
from census_kinds import agree, close, kind, normal
from liger_kernel.ops import fused_moe as moe_ops
from liger_kernel.ops import mlp as mlp_ops
from liger_kernel.ops.experimental import mm_int8int2
from liger_kernel.ops.mhc import LigerMHCCoeffsFunction, LigerMHCPostResFunction, LigerMHCPreFunction, mhc_sinkhorn_bwd
from torch.nn import functional

TOKENS, HIDDEN, INNER, EXPERTS, TOP = 10, 32, 64, 4, 2


def routed():
    shares = torch.softmax(normal(TOKENS, EXPERTS, seed=9), -1)
    return shares.topk(TOP, -1)


def experts(x, gate_up, down, chosen, shares):
    out = torch.zeros_like(x)
    for slot in range(TOP):
        for expert in range(EXPERTS):
            rows = (chosen[:, slot] == expert).nonzero()[:, 0]
            gate, up = (x[rows] @ gate_up[expert].T).chunk(2, -1)
            made = (functional.silu(gate) * up) @ down[expert].T
            out = out.index_add(0, rows, shares[rows, slot][:, None] * made)
    return out


@kind("liger", "fused mixture of experts")
def fused_moe():
    shares, chosen = routed()
    agree(
        lambda x, g, d, c, s: moe_ops.LigerFusedMoEFunction.apply(x, g, d, c.to(torch.int32), s),
        experts,
        normal(TOKENS, HIDDEN),
        normal(EXPERTS, 2 * INNER, HIDDEN, seed=1) / 6,
        normal(EXPERTS, HIDDEN, INNER, seed=2) / 8,
        chosen,
        shares,
        rtol=1e-3,
        atol=1e-4,
    )


@kind("liger", "routing of tokens to experts")
def routing():
    _, chosen = routed()
    counts, starts, gathered, *_ = moe_ops.compute_routing_metadata(chosen.to(torch.int32), EXPERTS)
    expected = torch.bincount(chosen.flatten(), minlength=EXPERTS)
    assert torch.equal(counts.long().flatten()[:EXPERTS], expected)
    assert torch.equal(starts.long()[: EXPERTS + 1], functional.pad(expected.cumsum(0), (1, 0)))
    for expert in range(EXPERTS):
        tokens = gathered[starts[expert] : starts[expert + 1]]
        assert torch.equal(tokens.long().sort().values, (chosen == expert).any(-1).nonzero()[:, 0])


STREAMS, CHANNELS, ROUNDS = 4, 24, 5


def balanced(logits):
    """Rows and columns are brought to a sum of one in turn."""
    matrix = torch.softmax(logits, -1) + 1e-6
    matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    for _ in range(ROUNDS - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + 1e-6)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    return matrix


@kind("liger", "hyper-connections: backward that computes the rounds again")
def mhc_backward_again():
    mixed, b, scale = normal(6, STREAMS * (STREAMS + 2)), normal(STREAMS * (STREAMS + 2), seed=1), normal(1, seed=2)[0]
    change = normal(6, STREAMS, STREAMS, seed=3)
    found = mhc_sinkhorn_bwd(mixed, b, scale, change, tmax=ROUNDS, sinkhorn_eps=1e-6, hist=None)
    logits = (mixed * scale + b)[:, 2 * STREAMS :].unflatten(-1, (STREAMS, STREAMS)).double().requires_grad_()
    balanced(logits).backward(change.double())
    close(found, logits.grad, rtol=1e-3, atol=1e-5)


@kind("liger", "hyper-connections: coefficients")
def mhc_coefficients():
    def oracle(x, phi, b, pre_scale, post_scale, res_scale):
        flat = x.flatten(-2)
        mixed = flat @ phi / torch.sqrt(flat.pow(2).mean(-1, keepdim=True) + 1e-6)
        parts = mixed.split((STREAMS, STREAMS, STREAMS**2), -1)
        biases = b.split((STREAMS, STREAMS, STREAMS**2))
        pre = torch.sigmoid(parts[0] * pre_scale + biases[0])
        post = 2 * torch.sigmoid(parts[1] * post_scale + biases[1])
        logits = (parts[2] * res_scale + biases[2]).unflatten(-1, (STREAMS, STREAMS))
        return pre, post, balanced(logits)

    agree(
        lambda *given: LigerMHCCoeffsFunction.apply(*given, True, ROUNDS, 1e-6, 0.0, 1e-6, 2.0),
        oracle,
        normal(2, 5, STREAMS, CHANNELS),
        normal(STREAMS * CHANNELS, STREAMS * (STREAMS + 2), seed=1) / 10,
        normal(STREAMS * (STREAMS + 2), seed=2),
        *(normal(1, seed=seed)[0] for seed in (3, 4, 5)),
        rtol=1e-3,
        atol=1e-4,
    )


@kind("liger", "hyper-connections: before a layer")
def mhc_pre():
    agree(
        LigerMHCPreFunction.apply,
        lambda x, h: (x * h[..., None]).sum(-2),
        normal(2, 5, STREAMS, CHANNELS),
        normal(2, 5, STREAMS, seed=1),
    )


@kind("liger", "hyper-connections: after a layer")
def mhc_post():
    agree(
        LigerMHCPostResFunction.apply,
        lambda x, f, post, res: res @ x + post[..., None] * f[..., None, :],
        normal(2, 5, STREAMS, CHANNELS),
        normal(2, 5, CHANNELS, seed=1),
        normal(2, 5, STREAMS, seed=2),
        normal(2, 5, STREAMS, STREAMS, seed=3),
    )


def first_config(tuner):
    """One of the tuner's configs: the smallest tiles."""
    return mock.patch.object(tuner, "configs", tuner.configs[:1])


@kind("liger", "projection with weights of two bits")
def int8_int2():
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(-128, 128, (40, 512), generator=generator, dtype=torch.int8)
    weights = torch.randint(-1, 2, (512, 48), generator=generator)
    packed = sum(((weights[i * 128 : (i + 1) * 128] + 1) << (2 * i)) for i in range(4)).to(torch.uint8)
    with mock.patch.object(mm_int8int2.matmul_kernel, "configs", mm_int8int2.matmul_kernel.configs[-1:]):
        found = mm_int8int2.matmul(a, packed)
    assert torch.equal(found.long(), a.long() @ weights)


@kind("liger", "gated projection through tensor descriptors")
def mlp():
    """Liger asks for CUDA tensors before it launches; its kernels are launched here as it would."""

    def gated(x, gate, up):
        return functional.silu(x @ gate.T) * (x @ up.T)

    batch, length, dim, inner = 2, 70, 64, 128
    x, gate, up, down = (
        normal(batch, length, dim),
        *(normal(inner, dim, seed=s) / 8 for s in (1, 2)),
        normal(dim, inner, seed=3),
    )
    with first_config(mlp_ops._swiglu_kernel_forward_inference):
        found, _ = mlp_ops.gemm_swiglu(x, gate, up, 1.0, store_preact=False)
    expected = gated(x.double(), gate.double(), up.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    with first_config(mlp_ops._swiglu_kernel_forward):
        kept, config = mlp_ops.gemm_swiglu(x, gate, up, 1.0)
    config = config or mlp_ops._swiglu_kernel_forward.configs[0]
    torch.testing.assert_close(kept[..., :inner].double(), expected, rtol=1e-4, atol=1e-5)
    # Backward: gradients of the two projections, and of the input.
    change = normal(batch, length, dim, seed=4)
    mlp_ops.swiglu_backward_dGU(change, down, kept, config, 1.0, 1.0)
    with first_config(mlp_ops._swiglu_kernel_backward_dI):
        found_x = mlp_ops.swiglu_backward_dI(gate, up, kept)
    leaf = x.double().requires_grad_()
    (gated(leaf, gate.double(), up.double()) @ down.double().T).backward(change.double())
    torch.testing.assert_close(found_x.double(), leaf.grad, rtol=1e-3, atol=1e-4)
