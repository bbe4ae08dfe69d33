"""Conch's operators: norms, activations, attention over pages, quantisation, and what vision models do with points."""

import math

import torch
from census_kinds import agree, close, kind, normal
from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
from conch.ops.activation.silu_and_mul import silu_and_mul
from conch.ops.attention.paged_attention import paged_attention
from conch.ops.attention.varlen_attention import varlen_attention
from conch.ops.embedding.rotary_embedding import rotary_embedding
from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm
from conch.ops.quantization.bitsandbytes.functional import dequantize_blockwise, quantize_blockwise
from conch.ops.quantization.fp8 import scaled_fp8_quant
from conch.ops.quantization.gemm import scaled_gemm
from conch.ops.quantization.int8 import scaled_int8_quant
from conch.ops.vision.bev_pool import bev_pool, bev_pool_backward
from conch.ops.vision.nms import nms
from conch.ops.vision.voxelization import VoxelizationParameter, generate_voxels
from conch.ops.vllm.copy_blocks import copy_blocks
from conch.ops.vllm.reshape_and_cache import reshape_and_cache
from torch.nn import functional

EPS = 1e-6


def rms(x):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


def draws(low, high, shape, seed=0, dtype=torch.int32):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@kind("conch", "rms_norm")
def norms():
    agree(
        lambda x, w: rms_norm(x, w, EPS), lambda x, w: rms(x) * w, normal(7, 300), normal(300, seed=1), backward=False
    )


@kind("conch", "fused_add_rms_norm, in place")
def fused_norms():
    x, residual, weight = normal(7, 300), normal(7, 300, seed=1), normal(300, seed=2)
    total = x.double() + residual.double()
    ours, added = fused_add_rms_norm(x.clone(), residual.clone(), weight, EPS)
    close(added, total)
    close(ours, rms(total) * weight.double())


@kind("conch", "gemma_rms_norm")
def gemma():
    def ours(x, w):
        return gemma_rms_norm(x.clone(), w, EPS)

    agree(ours, lambda x, w: rms(x) * (1 + w), normal(7, 300), normal(300, seed=1), backward=False)


@kind("conch", "gated activations")
def gated():
    def halves(x):
        return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]

    def gelu(x):
        gate, value = halves(x)
        return functional.gelu(gate, approximate="tanh") * value

    def silu(x):
        gate, value = halves(x)
        return functional.silu(gate) * value

    agree(gelu_tanh_and_mul, gelu, normal(5, 2 * 300), backward=False)
    agree(silu_and_mul, silu, normal(5, 2 * 300), backward=False)


@kind("conch", "rotary_embedding")
def rotary():
    tokens, heads, size = 9, 3, 64
    angles = torch.arange(50)[:, None] * (10000.0 ** (-torch.arange(0, size, 2) / size))
    cache = torch.cat([angles.cos(), angles.sin()], dim=-1).float()
    positions = draws(0, 50, (tokens,), dtype=torch.int64)
    cos, sin = (part[positions][:, None].double() for part in cache.chunk(2, dim=-1))

    def oracle(x):
        first, second = x.double().view(tokens, heads, size).chunk(2, -1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        return turned.reshape(tokens, heads * size)

    query, key = normal(tokens, heads * size), normal(tokens, heads * size, seed=1)
    got = rotary_embedding(positions, query.clone(), key.clone(), size, cache, is_neox=True)
    close(got[0], oracle(query))
    close(got[1], oracle(key))


def pages(batch, length, heads, size, block):
    """Keys and values of ``batch`` sequences, whole, and spread over shuffled pages with their table."""
    each = math.ceil(length / block)
    keys, values = (normal(batch, each * block, heads, size, dtype=torch.float16, seed=s) for s in (1, 2))
    order = torch.randperm(batch * each, generator=torch.Generator().manual_seed(3))
    caches = []
    for whole in (keys, values):
        cache = torch.empty(batch * each, block, heads, size, dtype=torch.float16)
        cache[order] = whole.reshape(batch * each, block, heads, size)
        caches.append(cache)
    return keys, values, *caches, order.view(batch, each).int()


def attention(q, k, v, *, causal=False):
    """One sequence, in doubles: (queries, heads, size) with fewer heads of keys; the last query sees all keys."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], dim=1).transpose(0, 1) for x in (k, v))
    scores = q.double().transpose(0, 1) @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    if causal:
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(scores.shape[-1] - scores.shape[-2] + 1)
        scores = scores.masked_fill(unseen, -math.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1)


@kind("conch", "paged_attention, keys in splits")
def paged():
    batch, length, heads, size = 2, 100, 2, 64
    keys, values, key_cache, value_cache, table = pages(batch, length, heads, size, 32)
    lengths = torch.tensor([length, 37], dtype=torch.int32)
    query = normal(batch, 4, size, dtype=torch.float16)
    got = paged_attention(query, key_cache, value_cache, table, lengths)
    for n, many in enumerate(lengths.tolist()):
        close(got[n], attention(query[n : n + 1], keys[n, :many], values[n, :many])[0], rtol=2e-3, atol=2e-3)


@kind("conch", "varlen_attention, causal")
def ragged():
    heads, size = 2, 64
    keys, values, key_cache, value_cache, table = pages(2, 70, heads, size, 32)
    lengths = [70, 40]
    starts = torch.tensor([0, 70, 110], dtype=torch.int32)
    query = normal(110, 4, size, dtype=torch.float16)
    got = varlen_attention(
        query,
        key_cache,
        value_cache,
        starts,
        max(lengths),
        torch.tensor(lengths, dtype=torch.int32),
        max(lengths),
        table,
        causal=True,
    )
    for n, many in enumerate(lengths):
        part = slice(int(starts[n]), int(starts[n + 1]))
        expected = attention(query[part], keys[n, :many], values[n, :many], causal=True)
        close(got[part], expected, rtol=2e-3, atol=2e-3)


@kind("conch", "quantisation to int8 and fp8")
def quantised():
    x, scale = normal(5, 300), torch.tensor([0.031])
    whole, _ = scaled_int8_quant(x, scale)
    exact = (x.double() / scale.double()).clamp(-128, 127)
    assert ((whole.double() - exact).abs() < 1.001).all()
    assert whole.unique().numel() > 100
    small, _ = scaled_fp8_quant(x, scale)
    close(small.float(), (x / scale).clamp(-448, 448), rtol=0.0626, atol=0.01)


@kind("conch", "blocks of four bits and back: functions that return constants from branches")
def four_bits():
    x = normal(40 * 64)
    largest = x.abs().view(40, 64).amax(-1).repeat_interleave(64)
    for name, step in (("fp4", 1 / 6), ("nf4", 0.16)):  # half of the widest gap between two codes of each
        packed, state = quantize_blockwise(x, blocksize=64, quant_type=name)
        assert packed.numel() == x.numel() // 2
        back = dequantize_blockwise(packed, state, blocksize=64, quant_type=name)
        assert ((back - x).abs() <= step * largest + 1e-5).all()
        assert 8 <= back[:64].unique().numel() <= 16


@kind("conch", "scaled_gemm of int8 with scales and bias")
def gemm():
    a, b = draws(-32, 32, (40, 256), dtype=torch.int8), draws(-32, 32, (128, 256), seed=1, dtype=torch.int8).T
    rows, columns, bias = normal(40, 1).abs(), normal(128, 1, seed=1).abs(), normal(128, seed=2, dtype=torch.bfloat16)
    got = scaled_gemm(a, b, rows, columns, torch.bfloat16, bias)
    expected = a.double() @ b.double() * rows.double() * columns.double().T + bias.double()
    close(got, expected, rtol=1e-2, atol=1e-1)


@kind("conch", "bev_pool, forward and backward")
def pool():
    points, channels, cells = 100, 10, 6
    places = draws(0, cells, (points, 4))
    places[:, 3] %= 2
    rank = ((places[:, 0] * cells + places[:, 1]) * cells + places[:, 2]) * 2 + places[:, 3]
    order = rank.argsort()
    places, rank, features = places[order].contiguous(), rank[order], normal(points, channels)
    starts = torch.where(torch.cat([torch.tensor([True]), rank[1:] != rank[:-1]]))[0].int()
    lengths = torch.diff(starts, append=torch.tensor([points], dtype=torch.int32)).int()
    got = bev_pool(features, places, starts, lengths, 2, cells, cells, cells)
    x, y, z, batch = places.long().T
    expected = torch.zeros(2, cells, cells, cells, channels, dtype=torch.float64)
    expected.index_put_((batch, z, x, y), features.double(), accumulate=True)
    close(got, expected)
    grad = normal(*got.shape, seed=1)
    close(bev_pool_backward(grad, places, starts, lengths), grad[batch, z, x, y].double())


@kind("conch", "nms")
def suppressed():
    corner, size = normal(60, 2) * 4, normal(60, 2, seed=1).abs() * 3 + 0.5
    boxes, scores = torch.cat([corner, corner + size], dim=1), normal(60, seed=2)
    kept = []
    for one in scores.argsort(descending=True).tolist():
        width = (torch.minimum(boxes[one, 2:], boxes[kept, 2:]) - torch.maximum(boxes[one, :2], boxes[kept, :2])).clamp(
            0
        )
        shared = width.prod(-1)
        union = size[one].prod() + size[kept].prod(-1) - shared
        if not (shared / union > 0.4).any():
            kept.append(one)
    assert nms(boxes, scores, 0.4).tolist() == kept
    assert 5 < len(kept) < 60


@kind("conch", "voxels of points, by atomics")
def voxels():
    points = torch.rand(400, 4, generator=torch.Generator().manual_seed(0)) * 4
    made = VoxelizationParameter(
        min_range=(0.0, 0.0, 0.0), max_range=(4.0, 4.0, 4.0), voxel_dim=(1.0, 1.0, 2.0), max_num_points_per_voxel=100
    )
    filled, features, where, counts = generate_voxels(points, made)
    features, where, counts = (x[: int(filled)] for x in (features, where, counts))
    cell = (points[:, :3] / torch.tensor([1.0, 1.0, 2.0])).long()
    expected = torch.zeros(2, 4, 4, dtype=torch.int64)
    expected.index_put_((cell[:, 2], cell[:, 1], cell[:, 0]), torch.tensor(1), accumulate=True)
    assert int(counts.sum()) == 400
    found = {tuple(place[:3].tolist()): int(count) for place, count in zip(where, counts, strict=True)}
    assert found == {(x, y, z): int(expected[z, y, x]) for z, y, x in expected.nonzero().tolist()}
    total = sum(features[n, : int(count)].double().sum(0) for n, count in enumerate(counts))
    close(total, points.double().sum(0), rtol=1e-6)


@kind("conch", "copy_blocks and reshape_and_cache")
def caches():
    keys, values = ([normal(6, 8 * 2 * 16, seed=s + n) for n in range(2)] for s in (0, 10))
    before = [x.clone() for x in keys + values]
    copy_blocks(keys, values, torch.tensor([[0, 3], [1, 5]], dtype=torch.int64))
    for ours, old in zip(keys + values, before, strict=True):
        old[3], old[5] = old[0].clone(), old[1].clone()
        close(ours, old, rtol=0, atol=0)
    slots = torch.tensor([5, 17, 40, 0], dtype=torch.int64)
    new, held = normal(4, 2, 2, 16, seed=30), keys[0].view(6, 8, 2, 16)
    expected = held.clone()
    expected.view(-1, 2, 16)[slots] = new[:, 0]
    reshape_and_cache(new[:, 0], new[:, 1], held, values[0].view(6, 8, 2, 16), slots)
    close(held, expected, rtol=0, atol=0)
