"""Functions of vLLM that launch Triton kernels, with arguments as a server brings them."""

from __future__ import annotations

from typing import Any

import torch

from bench.engines.draws import Draws
from bench.engines.table import call

Named = dict[str, Any]
OPS = "vllm.v1.attention.ops"
MAMBA = "vllm.model_executor.layers.mamba.ops"
QUANT = "vllm.model_executor.layers.quantization.utils"
FLA = "vllm.third_party.flash_linear_attention.ops"
MOE = "vllm.model_executor.layers.fused_moe"
STEADY = "vllm.model_executor.determinism.batch_invariant"
GPU = "vllm.v1.worker.gpu"


@call(f"{OPS}.triton_merge_attn_states", "merge_attn_states")
def _(d: Draws) -> Named:
    n, h, s, dtype = d.batch(), 8, d.option(64, 128), d.dtype()
    return {
        "output": d.zeros(n, h, s, dtype=dtype),
        "prefix_output": d.normal(n, h, s, dtype=dtype),
        "prefix_lse": d.normal(h, n),
        "suffix_output": d.normal(n, h, s, dtype=dtype),
        "suffix_lse": d.normal(h, n),
        "output_lse": d.option(None, d.zeros(h, n)),
    }


@call(f"{OPS}.triton_decode_attention", "decode_attention_fwd", 64)
def _(d: Draws) -> Named:
    b, page, splits, s = d.batch(), 16, 4, 64
    heads, own = d.option((8, 8), (8, 2))
    dtype = d.dtype()
    lengths = d.lengths(b, 100)
    pages = 8 * b
    return {
        "q": d.normal(b, heads, s, dtype=dtype),
        "k_buffer": d.normal(pages * page, own, s, dtype=dtype),
        "v_buffer": d.normal(pages * page, own, s, dtype=dtype),
        "o": d.zeros(b, heads, s, dtype=dtype),
        "lse": d.zeros(b, heads),
        "req_to_token": d.permutation(pages).view(b, 8),
        "b_seq_len": d.tensor(lengths),
        "attn_logits": d.zeros(b, heads, splits, s + 1),
        "num_kv_splits": splits,
        "sm_scale": s**-0.5,
        "page_size": page,
    }


@call(STEADY, "rms_norm_batch_invariant")
def _(d: Draws) -> Named:
    n, h, dtype = d.batch(), d.option(256, 2880), d.dtype()
    return {"input": d.normal(n, h, dtype=dtype), "weight": d.normal(h, dtype=dtype), "eps": 1e-6}


@call(f"{FLA}.l2norm", "l2norm_fwd")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.batch(), 4, d.option(64, 128), dtype=d.dtype())}


@call(f"{MAMBA}.mamba_ssm", "selective_state_update", 64)
def _(d: Draws) -> Named:
    b, heads, dim, state, groups, dtype = d.batch(), 4, 64, 16, 2, d.dtype()
    lines = b + 3
    return {
        "state": d.normal(lines, heads, dim, state),
        "x": d.normal(b, heads, dim, dtype=dtype),
        "dt": d.normal(b, heads, 1, dtype=dtype).expand(b, heads, dim),
        "A": -d.uniform(heads)[:, None, None].expand(heads, dim, state),
        "B": d.normal(b, groups, state, dtype=dtype),
        "C": d.normal(b, groups, state, dtype=dtype),
        "D": d.normal(heads)[:, None].expand(heads, dim),
        "dt_bias": d.normal(heads)[:, None].expand(heads, dim),
        "z": d.option(None, d.normal(b, heads, dim, dtype=dtype)),
        "dt_softplus": True,
        "state_batch_indices": 1 + d.permutation(lines - 1, b),
        "out": d.zeros(b, heads, dim, dtype=dtype),
    }
