"""Liger's rotary embeddings, attention variants and embedding."""

import torch
from census_kinds import agree, constant, kind, normal
from liger_kernel.ops.attn_res import LigerAttnResFunction
from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction
from liger_kernel.ops.fused_neighborhood_attention import LigerFusedNeighborhoodAttentionFunction
from liger_kernel.ops.llama4_rope import LigerLlama4RopeFunction
from liger_kernel.ops.multi_token_attention import LigerMultiTokenAttentionFunction
from liger_kernel.ops.qwen2vl_mrope import LigerQwen2VLMRopeFunction
from liger_kernel.ops.rope import LigerRopeFunction
from torch.nn import functional

BATCH, HEADS, KV_HEADS, LENGTH, DIM = 2, 4, 2, 9, 32


def queries():
    return normal(BATCH, HEADS, LENGTH, DIM), normal(BATCH, KV_HEADS, LENGTH, DIM, seed=1)


def angles(*shape):
    turned = torch.rand(*shape, DIM // 2, generator=torch.Generator().manual_seed(3)) * 6
    turned = torch.cat((turned, turned), -1)
    return constant(turned.cos()), constant(turned.sin())


def turn(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


@kind("liger", "rope")
def rope():
    agree(
        LigerRopeFunction.apply,
        lambda q, k, cos, sin: (turn(q, cos[:, None], sin[:, None]), turn(k, cos[:, None], sin[:, None])),
        *queries(),
        *angles(1, LENGTH),
    )


@kind("liger", "rope of a part of each head")
def rope_partial():
    def oracle(q, k, cos, sin):
        cos, sin = cos[:, None], sin[:, None]
        return tuple(torch.cat((turn(x[..., :16], cos, sin), x[..., 16:]), -1) for x in (q, k))

    half = torch.rand(1, LENGTH, 8, generator=torch.Generator().manual_seed(3))
    half = torch.cat((half, half), -1)
    agree(LigerRopeFunction.apply, oracle, *queries(), constant(half.cos()), constant(half.sin()))


@kind("liger", "llama4 rope")
def llama4_rope():
    def oracle(q, k, angle):
        turned = torch.polar(torch.ones_like(angle), angle)[None, :, None]

        def apply(x):
            pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turned).flatten(-2)

        return apply(q), apply(k)

    def ours(q, k, angle):
        return LigerLlama4RopeFunction.apply(q.clone(), k.clone(), torch.polar(torch.ones_like(angle), angle))

    q, k = (x.transpose(1, 2).contiguous() for x in queries())
    agree(ours, oracle, q, k, constant(6 * normal(LENGTH, DIM // 2, seed=3)))


@kind("liger", "qwen2vl mrope")
def qwen2vl_mrope():
    sections = [4, 6, 6]

    def oracle(q, k, cos, sin):
        def pick(table):
            parts = [table[axis % 3] for axis in range(6)]
            return torch.cat([part.split(2 * sections, -1)[i] for i, part in enumerate(parts)], -1)[:, None]

        return turn(q, pick(cos), pick(sin)), turn(k, pick(cos), pick(sin))

    agree(
        lambda q, k, cos, sin: LigerQwen2VLMRopeFunction.apply(q, k, cos, sin, sections),
        oracle,
        *queries(),
        *angles(3, BATCH, LENGTH),
    )


@kind("liger", "attention over residual blocks")
def attn_res():
    def oracle(v, query, norm):
        keys = v / torch.sqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6) * norm
        return (torch.softmax((keys * query).sum(-1), 0)[..., None] * v).sum(0)

    agree(
        lambda v, q, n: LigerAttnResFunction.apply(v, q, n, 1e-6),
        oracle,
        normal(5, 2, 3, 100),
        normal(100, seed=1) / 10,
        normal(100, seed=2),
        rtol=1e-3,
        atol=1e-4,
    )


@kind("liger", "neighbourhood attention")
def neighbourhood_attention():
    def oracle(q, k, v):
        place = torch.arange(40)
        apart = place[None] - place[:, None]
        seen = (apart.abs() <= 3 * 2) & (apart % 2 == 0)
        scores = (q @ k.transpose(-1, -2) / 32**0.5).masked_fill(~seen, float("-inf"))
        return torch.softmax(scores, -1) @ v

    agree(
        lambda q, k, v: LigerFusedNeighborhoodAttentionFunction.apply(q, k, v, 7, 2),
        oracle,
        *(normal(2, 2, 40, 32, seed=seed) for seed in range(3)),
        rtol=1e-3,
        atol=1e-4,
    )


def multi_token(sparse):
    def oracle(scores, weight, bias):
        later = torch.ones(20, 20, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -1e9)
        if sparse:
            ordered, _ = torch.sort(scores, dim=-1, descending=True)
            sums = ordered.cumsum(-1) - 1
            support = (ordered > sums / torch.arange(1, 21)).sum(-1, keepdim=True)
            shares = torch.clamp(scores - sums.gather(-1, support - 1) / support, min=0)
        else:
            shares = torch.softmax(scores, -1)
        return functional.conv2d(shares, weight, bias, padding=1).masked_fill(later, 0)

    agree(
        lambda s, w, b: LigerMultiTokenAttentionFunction.apply(s, w, b, 1, 1, 1, 1, sparse),
        oracle,
        normal(2, 3, 20, 20),
        normal(4, 3, 3, 3, seed=1),
        normal(4, seed=2),
    )


@kind("liger", "multi_token_attention")
def multi_token_attention():
    multi_token(sparse=False)


@kind("liger", "multi_token_attention, sparse")
def multi_token_attention_sparse():
    multi_token(sparse=True)


@kind("liger", "embedding")
def embedding():
    agree(
        LigerEmbeddingFunction.apply,
        lambda table, at: table[at],
        normal(50, 60),
        torch.randint(0, 50, (3, 7), generator=torch.Generator().manual_seed(1)),
    )
