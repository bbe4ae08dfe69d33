"""Arguments that several functions share: sequences, chunks, pages of a cache, tokens by experts, linear attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from bench.engines.draws import Draws

Named = dict[str, Any]


@dataclass(frozen=True)
class Routing:
    """Tokens grouped by expert, each group padded to whole blocks, as ``moe_align_block_size`` does."""

    topk_ids: torch.Tensor
    topk_weights: torch.Tensor
    sorted_token_ids: torch.Tensor
    expert_ids: torch.Tensor
    num_tokens_post_padded: torch.Tensor


def routed(d: Draws, tokens: int, experts: int, top_k: int, block: int) -> Routing:
    """Return a random assignment of tokens to experts."""
    ids = d.uniform(tokens, experts).topk(top_k).indices.to(torch.int32)
    flat = ids.reshape(-1)
    placed: list[int] = []
    blocks: list[int] = []
    for expert in range(experts):
        mine = (flat == expert).nonzero().reshape(-1).tolist()
        padded = -(-len(mine) // block) * block
        placed += mine + [flat.numel()] * (padded - len(mine))
        blocks += [expert] * (padded // block)
    return Routing(ids, d.uniform(tokens, top_k), d.tensor(placed), d.tensor(blocks), d.tensor([len(placed)]))


@dataclass(frozen=True)
class Paged:
    """Sequences whose keys and values lie in pages of a cache: ``table`` lists the pages of each sequence."""

    lengths: list[int]
    table: torch.Tensor
    pages: int


def paged(d: Draws, count: int, page: int, longest: int, lengths: list[int] | None = None) -> Paged:
    """Return sequences of random lengths (or ``lengths``), each with pages of its own."""
    lengths = d.lengths(count, longest) if lengths is None else lengths
    width = -(-longest // page) + 1
    pages = count * width + 1
    return Paged(lengths, (1 + d.permutation(pages - 1, count * width)).view(count, width), pages)


def chunked(lengths: list[int], size: int) -> tuple[list[int], list[int], list[int]]:
    """Cut packed sequences into chunks of ``size`` tokens.

    Returns the ends of the chunks (after a first 0), the number of each sequence's last chunk, and each chunk's
    sequence.
    """
    ends, last, owners = [0], [], []
    for number, length in enumerate(lengths):
        for begin in range(0, length, size):
            ends.append(ends[-1] + min(size, length - begin))
            owners.append(number)
        last.append(len(ends) - 2)
    return ends, last, owners


# ---- Linear attention: both engines have the functions of flash-linear-attention ----


def delta(d: Draws, most: int) -> Named:
    """Return arguments of a delta rule: at most ``most`` packed sequences, two heads of size 64."""
    lengths, h, k, v, dtype = d.lengths(d.batch(most), 150), 2, 64, 64, d.dtype()
    t = sum(lengths)
    unit = torch.nn.functional.normalize
    return {
        "q": unit(d.normal(1, t, h, k), dim=-1).to(dtype),
        "k": unit(d.normal(1, t, h, k), dim=-1).to(dtype),
        "v": d.normal(1, t, h, v, dtype=dtype),
        "beta": d.uniform(1, t, h, dtype=dtype),
        "cu_seqlens": d.starts(lengths),
    }


def packed_decode(d: Draws, spare: int) -> Named:
    """Return one token of each sequence, with q, k and v in one row; the first ``spare`` states are unused."""
    b, h, hv, k, v, dtype = d.batch(), 2, 4, 64, 64, d.dtype()
    return {
        "mixed_qkv": d.normal(b, 2 * h * k + hv * v, dtype=dtype),
        "a": d.normal(b, hv, dtype=dtype),
        "b": d.normal(b, hv, dtype=dtype),
        "A_log": d.normal(hv),
        "dt_bias": d.normal(hv),
        "scale": k**-0.5,
        "initial_state": d.normal(b + 2, hv, v, k),
        "out": d.zeros(b, 1, hv, v, dtype=dtype),
        "ssm_state_indices": spare + d.permutation(b + 2 - spare, b),
        "use_qk_l2norm_in_kernel": True,
    }


def sigmoid_gates(d: Draws) -> Named:
    """Return one token of each sequence, and the gates of a delta rule."""
    b, h, hv, k, v, dtype = d.batch(), 2, 4, 64, 64, d.dtype()
    return {
        "A_log": d.normal(hv),
        "a": d.normal(b, hv, dtype=dtype),
        "b": d.normal(b, hv, dtype=dtype),
        "dt_bias": d.normal(hv),
        "q": d.normal(1, b, h, k, dtype=dtype),
        "k": d.normal(1, b, h, k, dtype=dtype),
        "v": d.normal(1, b, hv, v, dtype=dtype),
        "cu_seqlens": d.starts([1] * b),
        "use_qk_l2norm_in_kernel": True,
    }


def gated_norm(d: Draws) -> Named:
    """Return rows, and a gate for each of them."""
    t, n, dtype = d.batch(), d.option(128, 1024), d.dtype()
    return {
        "x": d.normal(t, n, dtype=dtype),
        "g": d.normal(t, n, dtype=dtype),
        "weight": d.normal(n, dtype=dtype),
        "bias": None,
        "is_rms_norm": True,
    }


def lightning_decode(d: Draws) -> Named:
    """Return one token of each sequence, and a state for each sequence."""
    b, h, s, dtype = d.batch(64), 4, 64, d.dtype()
    return {
        "q": d.normal(b, h, 1, s, dtype=dtype),
        "k": d.normal(b, h, 1, s, dtype=dtype),
        "v": d.normal(b, h, 1, s, dtype=dtype),
        "kv_caches": d.normal(b + 2, h, s, s),
        "slope_rate": d.uniform(h),
        "slot_idx": d.permutation(b + 2, b),
    }
