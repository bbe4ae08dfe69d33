"""Operators of flash-linear-attention with tuned kernels, forward and backward, against the library's own references.

The references are the library's ``naive`` modules: plain torch, step by step or over the whole matrix. They count in
fp32, as the kernels do.
"""
# pyright: reportCallIssue=false

import warnings
from unittest import mock

import census_kinds
import torch
from census_fla import few_configs
from census_kinds import agree, constant, kind, normal
from torch.nn import functional

with few_configs(), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the library says of itself, of GPU packages and of torch
    from fla.ops.abc import chunk_abc
    from fla.ops.abc.naive import naive_recurrent_abc
    from fla.ops.attn.naive import naive_parallel_attn
    from fla.ops.attn.parallel import parallel_attn
    from fla.ops.based import parallel_based
    from fla.ops.based.naive import naive_parallel_based
    from fla.ops.comba import chunk_comba
    from fla.ops.comba.naive import naive_chunk_comba
    from fla.ops.forgetting_attn import naive_forgetting_attn, parallel_forgetting_attn
    from fla.ops.gated_delta_product import chunk_gated_delta_product
    from fla.ops.gated_delta_product.naive import naive_recurrent_gated_delta_product
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, naive_recurrent_gated_delta_rule
    from fla.ops.gdn2 import chunk_gdn2, naive_recurrent_gdn2
    from fla.ops.gla import chunk_gla
    from fla.ops.gla.naive import naive_recurrent_gla
    from fla.ops.gsa import chunk_gsa, fused_recurrent_gsa
    from fla.ops.gsa.naive import naive_recurrent_gsa
    from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
    from fla.ops.hgrn.naive import naive_recurrent_hgrn
    from fla.ops.kda import chunk_kda, fused_recurrent_kda
    from fla.ops.kda.naive import naive_recurrent_kda
    from fla.ops.linear_attn import chunk_linear_attn, fused_chunk_linear_attn, fused_recurrent_linear_attn
    from fla.ops.linear_attn.naive import naive_recurrent_linear_attn
    from fla.ops.log_linear_attn import chunk_log_linear_attn
    from fla.ops.log_linear_attn.naive import naive_log_linear_attn
    from fla.ops.mesa_net import chunk_mesa_net, naive_mesa_net_exact
    from fla.ops.momentum_delta_rule import chunk_momentum_delta_rule, recurrent_momentum_delta_rule_ref
    from fla.ops.nsa import parallel_nsa
    from fla.ops.nsa.naive import naive_nsa_selection
    from fla.ops.parallax import naive_parallax, parallel_parallax
    from fla.ops.path_attn import naive_path_attn, parallel_path_attn
    from fla.ops.precond_gated_delta_rule import (
        chunk_precond_gated_delta_rule,
        naive_recurrent_precond_gated_delta_rule,
    )
    from fla.ops.precond_kda import chunk_precond_kda, naive_recurrent_precond_kda
    from fla.ops.rebased import parallel_rebased
    from fla.ops.rebased.naive import naive_parallel_rebased
    from fla.ops.retention import chunk_retention, parallel_retention
    from fla.ops.retention.naive import naive_retention
    from fla.ops.simple_gla import chunk_simple_gla, parallel_simple_gla
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla
    from fla.ops.stickbreaking_attn import naive_stickbreaking_attn, parallel_stickbreaking_attn
    from fla.ops.ttt import chunk_ttt_linear, fused_chunk_ttt_linear
    from fla.ops.ttt.naive import chunk_ttt_linear_ref
    from fla.ops.wall_attn import naive_wall_attn, parallel_wall_attn

BATCH, HEADS, SIZE = 1, 2, 32


def steps():
    """More than one chunk of 64 steps, the last one cut."""
    return 70 + census_kinds.LONGER[0]


def values(*shape, seed=0):
    return normal(BATCH, steps(), *shape, seed=seed)


def sequences(heads=HEADS):
    """Queries, keys of length 1, values."""
    query = values(heads, SIZE, seed=1)
    return query, functional.normalize(values(HEADS, SIZE, seed=2), dim=-1), values(HEADS, SIZE, seed=3)


def gates(*shape, seed=4):
    return functional.logsigmoid(values(*shape, seed=seed))


def strengths(seed=5):
    return values(HEADS, seed=seed).sigmoid()


def equal(ours, reference, *inputs, rtol=2e-3, atol=2e-3, backward=True):
    """``agree``, the reference in fp32; of several results the first counts."""

    def first(call):
        def called(*given):
            made = call(*given)
            return made[0] if isinstance(made, tuple) else made

        return called

    def single(*given):
        return first(reference)(*[one.float() if one.is_floating_point() else one for one in given])

    agree(first(ours), single, *inputs, rtol=rtol, atol=atol, backward=backward)


def halves(*given):
    """For operators that the library has in bf16 alone."""
    return [one.bfloat16() for one in given]


def by_heads(reference):
    """A reference that takes heads before steps."""

    def called(*given):
        made = reference(*[one.transpose(1, 2) for one in given])
        return (made[0] if isinstance(made, tuple) else made).transpose(1, 2)

    return called


def operator(name):
    return kind("fla", f"{name}, by the library's reference")


@operator("attention with bounded control")
def bounded_control():
    equal(chunk_abc, by_heads(naive_recurrent_abc), *sequences(), values(HEADS, SIZE))


@operator("attention with a window")
def windowed_attention():
    equal(
        lambda q, k, v: parallel_attn(q, k, v, window_size=20),
        lambda q, k, v: naive_parallel_attn(q, k, v, window_size=20),
        *sequences(2 * HEADS),
    )


@operator("based")
def based():
    q, k, v = sequences()
    equal(parallel_based, by_heads(naive_parallel_based), q[..., :16].contiguous(), k[..., :16].contiguous(), v)


@operator("comba")
def comba():
    q, k, v = sequences()
    equal(
        chunk_comba,
        naive_chunk_comba,
        q, k, v, (k * 0.7).contiguous(), gates(HEADS), strengths(),
    )  # fmt: skip


@operator("forgetting attention")
def forgetting():
    equal(parallel_forgetting_attn, naive_forgetting_attn, *sequences(2 * HEADS), gates(2 * HEADS))


@operator("gated delta product")
def delta_product():
    q, _, _ = sequences()
    keys = functional.normalize(normal(BATCH, 2 * steps(), HEADS, SIZE, seed=2), dim=-1)
    twice = normal(BATCH, 2 * steps(), HEADS, SIZE, seed=3), normal(BATCH, 2 * steps(), HEADS, seed=5).sigmoid()
    scale = SIZE**-0.5
    equal(
        lambda q, k, v, g, beta: chunk_gated_delta_product(q, k, v, g, beta, 2, scale),
        lambda q, k, v, g, beta: naive_recurrent_gated_delta_product(q, k, v, g, beta, scale, num_householder=2),
        *halves(q, keys, twice[0], gates(HEADS), twice[1]), rtol=4e-2, atol=0.12,
    )  # fmt: skip


@operator("gated delta rule")
def gated_delta():
    q, k, v = sequences()
    equal(
        chunk_gated_delta_rule,
        lambda q, k, v, g, beta: naive_recurrent_gated_delta_rule(q, k, v, beta, g),
        q, k, v, gates(HEADS), strengths(),
    )  # fmt: skip


@operator("gated delta rule with two gates")
def gated_delta_2():
    more = values(HEADS, SIZE, seed=6).sigmoid(), values(HEADS, SIZE, seed=7).sigmoid()
    equal(chunk_gdn2, naive_recurrent_gdn2, *sequences(), gates(HEADS, SIZE), *more)


@operator("gated linear attention")
def gated_linear():
    equal(chunk_gla, naive_recurrent_gla, *sequences(), gates(HEADS, SIZE))


@operator("gated slot attention")
def gated_slots():
    inputs = *sequences(), values(HEADS, SIZE, seed=6), gates(HEADS, SIZE)
    equal(chunk_gsa, naive_recurrent_gsa, *inputs)
    equal(fused_recurrent_gsa, naive_recurrent_gsa, *inputs)


@operator("hgrn")
def recurrent_gates():
    inputs = values(96), gates(96)
    equal(chunk_hgrn, naive_recurrent_hgrn, *inputs)
    equal(fused_recurrent_hgrn, naive_recurrent_hgrn, *inputs)


@operator("kimi delta attention")
def kimi_delta():
    inputs = *sequences(), gates(HEADS, SIZE), strengths()
    equal(chunk_kda, naive_recurrent_kda, *inputs)
    equal(fused_recurrent_kda, naive_recurrent_kda, *inputs, backward=False)


@operator("linear attention")
def linear():
    for ours in (chunk_linear_attn, fused_chunk_linear_attn, fused_recurrent_linear_attn):
        equal(lambda q, k, v, ours=ours: ours(q, k, v, normalize=False), naive_recurrent_linear_attn, *sequences())


@operator("log-linear attention")
def log_linear():
    levels = (steps() - 1).bit_length() + 1
    size = 64  # the kernel has no other
    q, k, v = values(1, size, seed=1), values(1, size, seed=2), values(HEADS, size, seed=3)
    equal(chunk_log_linear_attn, naive_log_linear_attn, q, k, v, gates(HEADS), values(HEADS, levels, seed=6))


@operator("mesa net")
def mesa():
    q, k, v = sequences()
    bound = normal(HEADS, SIZE, seed=8).sigmoid() * 0.75 + 0.25
    equal(
        chunk_mesa_net,
        lambda q, k, v, g, beta, lamb: naive_mesa_net_exact(q, k, v, g, lamb, beta),
        q / 10, k, v / 10, gates(HEADS), strengths(), bound, atol=2e-2,
    )  # fmt: skip


@operator("momentum delta rule")
def momentum():
    """The recurrence is PyTorch in this version of the library, and lengths are kernels."""

    def reference(q, k, v, a, m, p, beta, eta):
        q, k, p = (functional.normalize(one, dim=-1) for one in (q, k, p))
        return recurrent_momentum_delta_rule_ref(q, k, v, a, m, p, beta, eta)

    q, k, v = sequences()
    equal(
        lambda q, k, v, a, m, p, beta, eta: chunk_momentum_delta_rule(
            q, k, v, a, m, p=p, beta=beta, eta=eta, use_qk_l2norm_in_kernel=True, use_p_times_alpha=False
        ),
        reference,
        *halves(q, k, v, gates(HEADS), gates(HEADS, seed=6), k * 0.7, strengths(), strengths(seed=7)),
        rtol=4e-2, atol=0.12,
    )  # fmt: skip


@operator("native sparse attention")
def sparse():
    block, chosen = 32, 2
    last = (torch.arange(steps()) // block)[None, :, None, None].expand(BATCH, -1, 1, -1)
    indices = constant(torch.cat([torch.zeros_like(last), torch.where(last == 0, -1, last)], -1))
    q = values(16, SIZE, seed=1)
    k, v = values(1, SIZE, seed=2), values(1, SIZE, seed=3)
    equal(
        lambda q, k, v, at: parallel_nsa(q, k, v, block_indices=at, block_counts=chosen, block_size=block),
        lambda q, k, v, at: naive_nsa_selection(q, k, v, at, block_size=block),
        q, k, v, indices,
    )  # fmt: skip


@operator("parallax")
def parallax():
    q, k, v = sequences(2 * HEADS)
    inputs = halves(q, values(2 * HEADS, SIZE, seed=6), k, v)
    equal(parallel_parallax, naive_parallax, *inputs, rtol=4e-2, atol=0.12)


@operator("attention along a path of householders")
def path():
    w = functional.normalize(values(HEADS, SIZE, seed=6), dim=-1)
    scale = SIZE**-0.5
    equal(
        lambda q, k, v, w, beta, g: parallel_path_attn(q, k, v, w, beta, g, scale),
        lambda q, k, v, w, beta, g: naive_path_attn(q, k, v, w, beta, g, scale),
        *sequences(), w, 1 + strengths(), gates(HEADS) / 10,
    )  # fmt: skip


@operator("preconditioned gated delta rule")
def preconditioned_delta():
    equal(
        chunk_precond_gated_delta_rule,
        naive_recurrent_precond_gated_delta_rule,
        *sequences(), gates(HEADS), gates(HEADS, seed=6), strengths(), strengths(seed=7),
    )  # fmt: skip


@operator("preconditioned kimi delta attention")
def preconditioned_kimi():
    q, k, v = sequences()
    equal(
        chunk_precond_kda,
        lambda q, k, *rest: naive_recurrent_precond_kda(
            functional.normalize(q, dim=-1), functional.normalize(k, dim=-1), *rest
        ),
        q, k, v, gates(HEADS, SIZE), gates(HEADS, seed=6), strengths(), strengths(seed=7),
    )  # fmt: skip


@operator("rebased")
def rebased():
    q, k, v = sequences()
    equal(
        lambda q, k, v: parallel_rebased(q, k, v, use_normalize=False),
        by_heads(lambda q, k, v: naive_parallel_rebased(q, k, v, use_norm=False)),
        q[..., :16].contiguous(), k[..., :16].contiguous(), v,
    )  # fmt: skip


@operator("retention")
def retention():
    for ours in (chunk_retention, parallel_retention):
        equal(ours, by_heads(naive_retention), *sequences())


@operator("simple gated linear attention")
def simple_gated_linear():
    for ours in (chunk_simple_gla, parallel_simple_gla):
        equal(ours, naive_recurrent_simple_gla, *sequences(), gates(HEADS))


@operator("stick-breaking attention")
def stick_breaking():
    equal(parallel_stickbreaking_attn, naive_stickbreaking_attn, *sequences(2 * HEADS))


def time_inputs():
    return *sequences(), normal(HEADS, SIZE, seed=6), normal(HEADS, SIZE, seed=7), values(HEADS, 1, seed=8) * 5e-3


@operator("test-time training")
def test_time_training():
    # The backward of its layer norm takes the number of rows a program as a constexpr: code for each length.
    with mock.patch.object(census_kinds, "LONGER", [0]):
        inputs = time_inputs()
    for ours in (chunk_ttt_linear, fused_chunk_ttt_linear):
        equal(ours, chunk_ttt_linear_ref, *inputs)


@operator("attention with walls")
def walls():
    scale = SIZE**-0.5
    equal(
        lambda q, k, v, g: parallel_wall_attn(q, k, v, g, scale=scale),
        lambda q, k, v, g: naive_wall_attn(q, k, v, g, scale=scale),
        *sequences(), gates(HEADS, SIZE) / 10,
    )  # fmt: skip
