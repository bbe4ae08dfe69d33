"""flash-linear-attention's operators: recurrences step by step and in chunks, and the modules beside them."""
# pyright: reportCallIssue=false

import math
import warnings
from unittest import mock

import census_kinds
import torch
from census_kinds import agree, close, kind, normal
from torch.nn import functional
from triton.runtime.autotuner import Autotuner

_made = Autotuner.__init__


def with_few_configs(tuner, kernel, names, configs, *rest, **named):
    if census_kinds.CONFIGS > 1:
        named["do_bench"] = census_kinds.measure
    _made(tuner, kernel, names, configs[: census_kinds.CONFIGS], *rest, **named)


def few_configs():
    """While the library is imported, its tuners get their first configs: each of dozens would have to be compiled."""
    return mock.patch.object(Autotuner, "__init__", with_few_configs)


with few_configs(), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the library says of itself, of GPU packages and of torch
    from fla.modules.fused_cross_entropy import cross_entropy_loss
    from fla.modules.norm import FusedRMSNormGated, LayerNorm, RMSNorm
    from fla.modules.norm.l2norm import l2norm
    from fla.modules.rotary import rotary_embedding
    from fla.modules.token_shift import token_shift
    from fla.ops.attn import parallel_attn
    from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
    from fla.ops.gla import chunk_gla, fused_recurrent_gla
    from fla.ops.hgrn import chunk_hgrn, fused_recurrent_hgrn
    from fla.ops.retention import chunk_retention
    from fla.ops.simple_gla import chunk_simple_gla

BATCH, LENGTH, HEADS, SIZE = 2, 70, 2, 32  # more than one chunk of 64 steps, the last one cut


def sequences(count, seed=0):
    return [normal(BATCH, LENGTH, HEADS, SIZE, seed=seed + n) for n in range(count)]


def gates(*shape, seed=9):
    return functional.logsigmoid(normal(*shape, seed=seed))


def linear(q, k, v, decay):
    """``S = decay_t * S + k_t v_t``, read by ``q_t``; ``decay`` has the shape of ``k``, or one column."""
    state, outputs = 0.0, []
    for t in range(q.shape[1]):
        state = decay[:, t].exp()[..., None] * state + k[:, t, ..., None] * v[:, t, :, None]
        outputs.append((q[:, t, ..., None] * state).sum(-2) / math.sqrt(q.shape[-1]))
    return torch.stack(outputs, 1)


def delta(q, k, v, beta, decay):
    """What a key already brings is taken off before its value is added: ``S += beta k (v - k S)``."""
    state, outputs = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1], dtype=q.dtype), []
    for t in range(q.shape[1]):
        state = decay[:, t, :, None, None].exp() * state
        new = beta[:, t, :, None] * (v[:, t] - (k[:, t, ..., None] * state).sum(-2))
        state = state + k[:, t, ..., None] * new[..., None, :]
        outputs.append((q[:, t, ..., None] * state).sum(-2) / math.sqrt(q.shape[-1]))
    return torch.stack(outputs, 1)


@kind("fla", "gated linear attention, step by step")
def recurrent_gla():
    agree(
        lambda *x: fused_recurrent_gla(*x)[0],
        linear,
        *sequences(3),
        gates(BATCH, LENGTH, HEADS, SIZE),
        rtol=1e-3,
        atol=1e-3,
    )


@kind("fla", "gated linear attention in chunks")
def chunked_gla():
    agree(lambda *x: chunk_gla(*x)[0], linear, *sequences(3), gates(BATCH, LENGTH, HEADS, SIZE), rtol=1e-3, atol=1e-3)


@kind("fla", "linear attention with one gate a head, in chunks")
def chunked_simple_gla():
    def oracle(q, k, v, g):
        return linear(q, k, v, g[..., None])

    agree(lambda *x: chunk_simple_gla(*x)[0], oracle, *sequences(3), gates(BATCH, LENGTH, HEADS), rtol=1e-3, atol=1e-3)


@kind("fla", "retention in chunks")
def chunked_retention():
    def oracle(q, k, v):
        decay = torch.log(1 - 2.0 ** (-5.0 - torch.arange(HEADS, dtype=q.dtype)))
        return linear(q, k, v, decay.expand(BATCH, LENGTH, HEADS)[..., None])

    agree(lambda *x: chunk_retention(*x)[0], oracle, *sequences(3), rtol=1e-3, atol=1e-3)


def delta_inputs():
    q, k, v = sequences(3)
    return q, functional.normalize(k, dim=-1), v, normal(BATCH, LENGTH, HEADS, seed=5).sigmoid()


@kind("fla", "delta rule, step by step and in chunks")
def delta_rule():
    def oracle(q, k, v, beta):
        return delta(q, k, v, beta, torch.zeros_like(beta))

    inputs = delta_inputs()
    agree(lambda *x: fused_recurrent_delta_rule(*x)[0], oracle, *inputs, rtol=1e-3, atol=1e-3)
    halves = [x.bfloat16() for x in inputs]  # the library has no other chunks
    agree(lambda *x: chunk_delta_rule(*x)[0], oracle, *halves, rtol=4e-2, atol=0.12)


@kind("fla", "gated delta rule, step by step and in chunks")
def gated_delta_rule():
    def oracle(q, k, v, g, beta):
        return delta(q, k, v, beta, g)

    q, k, v, beta = delta_inputs()
    g = gates(BATCH, LENGTH, HEADS)
    agree(
        lambda q, k, v, g, beta: fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta)[0],
        oracle, q, k, v, g, beta, rtol=1e-3, atol=1e-3, backward=False,
    )  # fmt: skip
    agree(lambda *x: chunk_gated_delta_rule(*x)[0], oracle, q, k, v, g, beta, rtol=1e-3, atol=1e-3)


@kind("fla", "hgrn, step by step and in chunks")
def hgrn():
    def oracle(x, g):
        state, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = g[:, t].exp() * state + x[:, t]
            outputs.append(state)
        return torch.stack(outputs, 1)

    for ours in (fused_recurrent_hgrn, chunk_hgrn):
        x = normal(BATCH, LENGTH, 96)
        agree(lambda x, g, ours=ours: ours(x, g)[0], oracle, x, gates(BATCH, LENGTH, 96), rtol=1e-3, atol=1e-4)


@kind("fla", "causal attention, grouped queries")
def softmax_attention():
    def oracle(q, k, v):
        k, v = (x.repeat_interleave(2, dim=2) for x in (k, v))
        heads = (x.transpose(1, 2) for x in (q, k, v))
        return functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)

    query = normal(BATCH, LENGTH, 2 * HEADS, SIZE, seed=7)
    agree(parallel_attn, oracle, query, *sequences(2), rtol=1e-3, atol=1e-3)


@kind("fla", "layer norm, rms norm, rms norm with a gate")
def norms():
    x, gate = normal(6, 96), normal(6, 96, seed=1)
    for ours, theirs in (
        (LayerNorm(96, bias=True), torch.nn.LayerNorm(96)),
        (RMSNorm(96), torch.nn.RMSNorm(96, eps=1e-5)),
    ):
        agree(ours, theirs.double(), x)
    gated = torch.nn.RMSNorm(96, eps=1e-5).double()
    agree(FusedRMSNormGated(96), lambda x, g: gated(x) * functional.silu(g), x, gate)


@kind("fla", "l2norm")
def l2():
    agree(l2norm, lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6), normal(6, 96))


@kind("fla", "cross entropy with smoothing")
def losses():
    labels = torch.randint(0, 300, (12,), generator=torch.Generator().manual_seed(1))
    labels[3] = -100
    agree(
        lambda x: cross_entropy_loss(x, labels, label_smoothing=0.1)[0],
        lambda x: functional.cross_entropy(x, labels, label_smoothing=0.1, reduction="none"),
        normal(12, 300),
    )


@kind("fla", "rotary embedding")
def rotary():
    angles = torch.arange(LENGTH)[:, None] * (10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE))
    cos, sin = angles.cos().float(), angles.sin().float()

    def oracle(x):
        first, second = x.chunk(2, -1)
        c, s = cos.double()[:, None], sin.double()[:, None]
        return torch.cat([first * c - second * s, second * c + first * s], -1)

    agree(lambda x: rotary_embedding(x, cos, sin), oracle, *sequences(1))


@kind("fla", "token shift of packed sequences")
def shifted():
    starts = torch.tensor([0, 20, LENGTH])
    x = normal(1, LENGTH, 96)
    expected = -x.double()
    expected[:, 1:] += x.double()[:, :-1]
    expected[:, 20] = -x.double()[:, 20]
    close(token_shift(x, starts), expected)
