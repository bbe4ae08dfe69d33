"""What several functions take: sequences, chunks of them, pages of a cache, tokens sorted by experts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bench.engines.draws import Draws


@dataclass(frozen=True)
class Routing:
    """Tokens by the experts that they go to, each expert's padded to whole blocks, as ``moe_align_block_size`` does."""

    topk_ids: torch.Tensor
    topk_weights: torch.Tensor
    sorted_token_ids: torch.Tensor
    expert_ids: torch.Tensor
    num_tokens_post_padded: torch.Tensor


def routed(d: Draws, tokens: int, experts: int, top_k: int, block: int) -> Routing:
    """A random routing of tokens."""
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
    """Sequences whose keys and values lie in pages: ``table`` has the pages of each."""

    lengths: list[int]
    table: torch.Tensor
    pages: int


def paged(d: Draws, count: int, page: int, longest: int, lengths: list[int] | None = None) -> Paged:
    """Random lengths, and different pages for each sequence."""
    lengths = d.lengths(count, longest) if lengths is None else lengths
    width = -(-longest // page) + 1
    pages = count * width + 1
    return Paged(lengths, (1 + d.permutation(pages - 1, count * width)).view(count, width), pages)


def chunked(lengths: list[int], size: int) -> tuple[list[int], list[int], list[int]]:
    """Chunks of packed sequences: where each ends (from 0 on), each sequence's last one, each chunk's sequence."""
    ends, last, owners = [0], [], []
    for number, length in enumerate(lengths):
        for begin in range(0, length, size):
            ends.append(ends[-1] + min(size, length - begin))
            owners.append(number)
        last.append(len(ends) - 2)
    return ends, last, owners
