"""Functions of vLLM that launch Triton kernels, with arguments like those of a server."""

from __future__ import annotations

import torch
import triton.language as tl

from bench.engines.draws import Draws
from bench.engines.shapes import (
    Named,
    chunked,
    delta,
    gated_norm,
    lightning_decode,
    packed_decode,
    paged,
    routed,
    sigmoid_gates,
)
from bench.engines.table import call

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


# -- batch-invariant operations ----------------------------------------------------------------------------------------


@call(STEADY, "matmul_persistent")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    return {
        "a": d.normal(d.batch(), 96, dtype=dtype),
        "b": d.normal(96, 160, dtype=dtype),
        "bias": d.option(None, d.normal(160, dtype=dtype)),
    }


@call(STEADY, "bmm_batch_invariant", 32)
def _(d: Draws) -> Named:
    b, m, dtype = d.batch(8), d.length(64), d.dtype()
    return {"a": d.normal(b, m, 64, dtype=dtype), "b": d.normal(b, 64, 48, dtype=dtype)}


@call(STEADY, "log_softmax", 64)
def _(d: Draws) -> Named:
    return {"input": d.normal(d.batch(), 5003, dtype=d.option(torch.float32, torch.bfloat16))}


@call(STEADY, "mean_dim")
def _(d: Draws) -> Named:
    return {"input": d.normal(d.batch(), d.length(), 8), "dim": 1, "keepdim": d.option(True, False)}


# -- linear attention --------------------------------------------------------------------------------------------------


def _with_states(d: Draws) -> Named:
    made = delta(d, 6)
    return {**made, "initial_state": d.normal(made["cu_seqlens"].numel() - 1, 2, 64, 64, scale=0.1)}


@call(f"{FLA}.chunk", "chunk_gated_delta_rule")
def _(d: Draws) -> Named:
    made = _with_states(d)
    return {
        **made,
        "g": -d.uniform(*made["beta"].shape),
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": d.option(True, False),
    }


@call(f"{FLA}.kda", "chunk_kda")
def _(d: Draws) -> Named:
    made = _with_states(d)
    return {**made, "g": -d.uniform(*made["k"].shape, high=0.1), "output_final_state": True}


@call(f"{FLA}.kda", "fused_kda_gate")
def _(d: Draws) -> Named:
    h, k = 4, 64
    return {
        "g": d.normal(d.batch(), h * k, dtype=d.dtype()),
        "A": d.normal(h),
        "head_k_dim": k,
        "g_bias": d.option(None, d.normal(h * k)),
    }


@call(f"{FLA}.fused_recurrent", "fused_recurrent_gated_delta_rule", 64)
def _(d: Draws) -> Named:
    b, h, hv, k, v, dtype = d.batch(), 2, 4, 64, 64, d.dtype()
    return {
        "q": d.normal(1, b, h, k, dtype=dtype),
        "k": d.normal(1, b, h, k, dtype=dtype),
        "v": d.normal(1, b, hv, v, dtype=dtype),
        "g": -d.uniform(1, b, hv),
        "beta": d.uniform(1, b, hv, dtype=dtype),
        "initial_state": d.normal(b + 2, hv, v, k),
        "cu_seqlens": d.starts([1] * b),
        "ssm_state_indices": 1 + d.permutation(b + 1, b),
        "use_qk_l2norm_in_kernel": True,
    }


@call(f"{FLA}.fused_recurrent", "fused_recurrent_gated_delta_rule_packed_decode", 64)
def _(d: Draws) -> Named:
    return packed_decode(d, 1)


@call(f"{FLA}.fused_sigmoid_gating", "fused_sigmoid_gating_delta_rule_update", 64)
def _(d: Draws) -> Named:
    made = sigmoid_gates(d)
    b, hv = made["a"].shape
    states = {"initial_state": d.normal(b + 2, hv, 64, 64), "ssm_state_indices": 1 + d.permutation(b + 1, b)}
    return {**made, **states}


call(f"{FLA}.fused_norm_gate", "layer_norm_gated_fwd")(gated_norm)


@call(f"{FLA}.fused_gdn_prefill_post_conv", "fused_post_conv_prep")
def _(d: Draws) -> Named:
    t, h, hv, k, v, dtype = d.length(), 2, 4, 64, 64, d.dtype()
    return {
        "conv_output": d.normal(t, 2 * h * k + hv * v, dtype=dtype),
        "a": d.normal(t, hv, dtype=dtype),
        "b": d.normal(t, hv, dtype=dtype),
        "A_log": d.normal(hv),
        "dt_bias": d.normal(hv),
        "num_k_heads": h,
        "head_k_dim": k,
        "head_v_dim": v,
    }


# -- mamba -------------------------------------------------------------------------------------------------------------


@call(f"{MAMBA}.causal_conv1d", "causal_conv1d_fn")
def _(d: Draws) -> Named:
    lengths, n, width, dtype = d.lengths(d.batch(8), 100), 160, 4, d.dtype()
    lines = len(lengths) + 3
    return {
        "x": d.normal(sum(lengths), n, dtype=dtype).t(),
        "weight": d.normal(n, width, dtype=dtype),
        "bias": d.normal(n, dtype=dtype),
        "conv_states": d.normal(lines, width - 1, n, dtype=dtype).transpose(1, 2),
        "query_start_loc": d.starts(lengths),
        "cache_indices": 1 + d.permutation(lines - 1, len(lengths)),
        "has_initial_state": d.integers(0, 2, len(lengths), dtype=torch.bool),
    }


@call(f"{MAMBA}.causal_conv1d", "causal_conv1d_update")
def _(d: Draws) -> Named:
    b, n, width, dtype = d.batch(), 320, 4, d.dtype()
    return {
        "x": d.normal(b, n, dtype=dtype),
        "conv_state": d.normal(b + 3, width - 1, n, dtype=dtype).transpose(1, 2),
        "weight": d.normal(n, width, dtype=dtype),
        "bias": d.option(None, d.normal(n, dtype=dtype)),
        "activation": "silu",
        "conv_state_indices": 1 + d.permutation(b + 2, b),
    }


@call(f"{MAMBA}.layernorm_gated", "rms_norm_gated")
def _(d: Draws) -> Named:
    t, n, dtype = d.batch(), 256, d.dtype()
    return {
        "x": d.normal(t, n, dtype=dtype),
        "weight": d.normal(n, dtype=dtype),
        "bias": None,
        "z": d.option(None, d.normal(t, n, dtype=dtype)),
        "group_size": d.option(None, 64),
        "norm_before_gate": False,
    }


@call(f"{MAMBA}.gather_initial_states", "gather_initial_states", 64)
def _(d: Draws) -> Named:
    b = d.batch()
    return {
        "state": d.normal(b + 3, 4, 32, 16, dtype=d.dtype()),
        "indices": 1 + d.permutation(b + 2, b),
        "has_initial_state": d.integers(0, 2, b, dtype=torch.bool),
    }


@call(f"{MAMBA}.ssd_combined", "mamba_chunk_scan_combined_varlen")
def _(d: Draws) -> Named:
    lengths, h, p, g, n, size, dtype = d.lengths(d.batch(5), 120), 4, 32, 2, 16, 64, d.dtype()
    t = sum(lengths)
    ends, last, owners = chunked(lengths, size)
    return {
        "x": d.normal(t, h, p, dtype=dtype),
        "dt": d.normal(t, h, dtype=dtype),
        "A": -d.uniform(h),
        "B": d.normal(t, g, n, dtype=dtype),
        "C": d.normal(t, g, n, dtype=dtype),
        "chunk_size": size,
        "cu_seqlens": d.starts(lengths),
        "cu_chunk_seqlens": d.tensor(ends),
        "last_chunk_indices": d.tensor(last),
        "seq_idx": d.tensor(owners),
        "out": d.zeros(t, h, p, dtype=dtype),
        "D": d.normal(h),
        "dt_bias": d.normal(h),
        "dt_softplus": True,
        "initial_states": d.option(None, d.normal(len(lengths), h, p, n)),
        "state_dtype": torch.float32,
    }


# -- quantization ------------------------------------------------------------------------------------------------------


@call(f"{QUANT}.fp8_utils", "per_token_group_quant_fp8")
def _(d: Draws) -> Named:
    return {
        "x": d.normal(1 + d.batch(), 768, dtype=d.dtype())[:, :512],
        "group_size": 128,
        "column_major_scales": d.option(True, False),
        "use_ue8m0": False,
    }


@call(f"{QUANT}.fp8_utils", "silu_mul_per_token_group_quant_fp8_colmajor")
def _(d: Draws) -> Named:
    return {"input": d.normal(128 * -(-d.batch() // 64), 512, dtype=d.dtype()), "use_ue8m0": False}


@call(f"{QUANT}.fp8_utils", "w8a8_triton_block_scaled_mm", 64)
def _(d: Draws) -> Named:
    m, n, k = d.batch(), 192, 256
    f8 = torch.float8_e4m3fn
    return {
        "A": d.normal(m, k).to(f8),
        "B": d.normal(n, k).to(f8),
        "As": d.uniform(m, k // 128),
        "Bs": d.uniform(-(-n // 128), k // 128),
        "block_size": [128, 128],
        "output_dtype": d.dtype(),
    }


@call(f"{QUANT}.int8_utils", "per_token_quant_int8")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.batch(), d.option(512, 1000), dtype=d.dtype())}


@call("vllm.model_executor.layers.quantization.awq_triton", "awq_dequantize_triton", 32)
def _(d: Draws) -> Named:
    k, m = 128, 64
    return {
        "qweight": d.integers(-(2**31), 2**31 - 1, k, m // 8),
        "scales": d.uniform(k // 64, m, dtype=torch.float16),
        "zeros": d.integers(-(2**31), 2**31 - 1, k // 64, m // 8),
    }


@call("vllm.model_executor.layers.quantization.awq_triton", "awq_gemm_triton", 64)
def _(d: Draws) -> Named:
    k, n = 128, 64
    return {
        "input": d.normal(d.batch(), k, dtype=torch.float16),
        "qweight": d.integers(-(2**31), 2**31 - 1, k, n // 8),
        "scales": d.uniform(k // 64, n, dtype=torch.float16),
        "qzeros": d.integers(-(2**31), 2**31 - 1, k // 64, n // 8),
        "split_k_iters": d.option(1, 4),
    }


# -- mixtures of experts -----------------------------------------------------------------------------------------------


@call(f"{MOE}.fused_moe", "invoke_fused_moe_triton_kernel", 64)
def _(d: Draws) -> Named:
    m, k, n, experts, top_k, dtype = d.batch(), 64, 96, 8, 2, d.dtype()
    block = 16
    routing = routed(d, m, experts, top_k, block)
    return {
        "A": d.normal(m, k, dtype=dtype),
        "B": d.normal(experts, n, k, dtype=dtype),
        "C": d.zeros(m, top_k, n, dtype=dtype),
        "A_scale": None,
        "B_scale": None,
        "topk_weights": routing.topk_weights,
        "sorted_token_ids": routing.sorted_token_ids,
        "expert_ids": routing.expert_ids,
        "num_tokens_post_padded": routing.num_tokens_post_padded,
        "mul_routed_weight": d.option(True, False),
        "top_k": top_k,
        "config": {"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1},
        "compute_type": {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[dtype],
        "use_fp8_w8a8": False,
        "use_int8_w8a8": False,
        "use_int8_w8a16": False,
        "use_int4_w4a16": False,
        "per_channel_quant": False,
    }


@call(f"{MOE}.utils", "count_expert_num_tokens")
def _(d: Draws) -> Named:
    return {
        "topk_ids": d.integers(-1, 16, d.batch(), 4, dtype=d.option(torch.int32, torch.int64)),
        "num_local_experts": 16,
        "expert_map": d.option(None, d.permutation(16)),
    }


@call(f"{MOE}.utils", "remap_topk_to_local")
def _(d: Draws) -> Named:
    return {
        "topk_ids": d.integers(0, 16, d.batch(), 4),
        "expert_map": d.integers(-1, 8, 16),
        "out_dtype": d.option(torch.int32, torch.int64),
    }


@call(f"{MOE}.utils", "_swiglu_limit_pad_aware")
def _(d: Draws) -> Named:
    n, dtype = d.batch(), d.dtype()
    return {
        "output": d.zeros(n, 256, dtype=dtype),
        "input": d.normal(n, 512, dtype=dtype),
        "topk_ids": d.integers(-1, 8, n, 1),
        "swiglu_limit": d.option(0.0, 7.0),
    }


@call(f"{MOE}.moe_fused_mul_sum", "moe_fused_mul_sum")
def _(d: Draws) -> Named:
    n, k, dtype = d.batch(), 4, d.dtype()
    return {"inputs": d.normal(n, k, 320, dtype=dtype), "topk_weights": d.uniform(n, k)}


@call(f"{MOE}.router.dsv4_topk", "dsv4_topk")
def _(d: Draws) -> Named:
    return {
        "gating_output": d.normal(d.batch(), 64),
        "correction_bias": d.normal(64),
        "indices_dtype": d.option(torch.int32, torch.int64),
        "routed_scaling_factor": 2.5,
    }


@call(f"{MOE}.deep_gemm_utils", "ep_gather")
def _(d: Draws) -> Named:
    n, k, rows, dtype = d.batch(), 2, 640, torch.bfloat16
    return {
        "input_tensor": d.normal(rows, 256, dtype=dtype),
        "recv_topk_ids": d.integers(-1, 8, n, k),
        "recv_topk_weight": d.uniform(n, k),
        "input_index": d.integers(0, rows, n, k),
        "expert_map": d.option(None, d.permutation(8)),
        "output_tensor": d.zeros(n, 256, dtype=dtype),
    }


@call(f"{MOE}.fused_moe", "zero_experts_compute_triton")
def _(d: Draws) -> Named:
    n, k = d.batch(), 3
    return {
        "expert_indices": d.integers(0, 12, n, k, dtype=torch.int64),
        "expert_scales": d.uniform(n, k),
        "num_experts": 8,
        "zero_expert_type": "identity",
        "hidden_states": d.normal(n, 512, dtype=d.dtype()),
    }


# -- caches and attention ----------------------------------------------------------------------------------------------


@call(f"{OPS}.triton_reshape_and_cache_flash", "triton_reshape_and_cache_flash")
def _(d: Draws) -> Named:
    n, h, s, page, dtype = d.batch(), 2, 64, 16, d.dtype()
    return {
        "key": d.normal(n, h, s, dtype=dtype),
        "value": d.normal(n, h, s, dtype=dtype),
        "key_cache": d.zeros(32, page, h, s, dtype=dtype),
        "value_cache": d.zeros(32, page, h, s, dtype=dtype),
        "slot_mapping": d.permutation(32 * page, n, dtype=torch.int64),
        "kv_cache_dtype": "auto",
        "k_scale": d.tensor([1.0], torch.float32),
        "v_scale": d.tensor([1.0], torch.float32),
    }


@call(f"{OPS}.triton_reshape_and_cache_flash", "triton_reshape_and_cache_flash_diffkv")
def _(d: Draws) -> Named:
    n, h, k, v, page, dtype = d.batch(), 2, 96, 64, 16, d.dtype()
    return {
        "key": d.normal(n, h, k, dtype=dtype),
        "value": d.normal(n, h, v, dtype=dtype),
        "kv_cache": d.zeros(32, page, h, k + v, dtype=dtype),
        "slot_mapping": d.permutation(32 * page, n, dtype=torch.int64),
        "kv_cache_dtype": "auto",
        "k_scale": d.tensor([1.0], torch.float32),
        "v_scale": d.tensor([1.0], torch.float32),
    }


@call(f"{OPS}.triton_prefill_attention", "context_attention_fwd")
def _(d: Draws) -> Named:
    lengths, s, dtype = d.lengths(d.batch(5), 90), 64, d.dtype()
    t = sum(lengths)
    starts = d.starts(lengths)
    return {
        "q": d.normal(t, 4, s, dtype=dtype),
        "k": d.normal(t, 2, s, dtype=dtype),
        "v": d.normal(t, 2, s, dtype=dtype),
        "o": d.zeros(t, 4, s, dtype=dtype),
        "b_start_loc": starts[:-1],
        "b_seq_len": d.tensor(lengths),
        "max_input_len": max(lengths),
        "is_causal": d.option(True, False),
    }


@call(f"{OPS}.triton_unified_attention", "unified_attention", 32)
def _(d: Draws) -> Named:
    b, h, own, s, page, dtype = d.batch(12), 8, 2, 64, 16, d.dtype()
    decode = d.option(True, False)
    queries = [1] * b if decode else [d.length(40) for _ in range(b)]
    cache = paged(d, b, page, 160, [one + d.length(100) for one in queries])
    t, segments = sum(queries), 4
    return {
        "q": d.normal(t, h, s, dtype=dtype),
        "k": d.normal(cache.pages, page, own, s, dtype=dtype),
        "v": d.normal(cache.pages, page, own, s, dtype=dtype),
        "out": d.zeros(t, h, s, dtype=dtype),
        "cu_seqlens_q": d.starts(queries),
        "max_seqlen_q": max(queries),
        "seqused_k": d.tensor(cache.lengths),
        "max_seqlen_k": max(cache.lengths),
        "softmax_scale": s**-0.5,
        "causal": True,
        "window_size": d.option((-1, -1), (63, 0)),
        "block_table": cache.table,
        "softcap": 0.0,
        "q_descale": None,
        "k_descale": None,
        "v_descale": None,
        "seq_threshold_3D": 16,
        "num_par_softmax_segments": segments,
        "softmax_segm_output": d.zeros(t, h, segments, s),
        "softmax_segm_max": d.zeros(t, h, segments),
        "softmax_segm_expsum": d.zeros(t, h, segments),
    }


@call(f"{OPS}.prefix_prefill", "context_attention_fwd", 16)
def _(d: Draws) -> Named:
    b, h, own, s, page, dtype = d.batch(6), 4, 2, 64, 16, d.dtype()
    queries = d.lengths(b, 40)
    cache = paged(d, b, page, 160, [one + d.length(100) for one in queries])
    t = sum(queries)
    return {
        "q": d.normal(t, h, s, dtype=dtype),
        "k": d.normal(t, own, s, dtype=dtype),
        "v": d.normal(t, own, s, dtype=dtype),
        "o": d.zeros(t, h, s, dtype=dtype),
        "kv_cache_dtype": "auto",
        "k_cache": d.normal(cache.pages, own, s // 8, page, 8, dtype=dtype),
        "v_cache": d.normal(cache.pages, own, s, page, dtype=dtype),
        "b_loc": cache.table,
        "b_start_loc": d.starts(queries),
        "b_seq_len": d.tensor(cache.lengths),
        "max_seq_len": max(cache.lengths),
        "max_input_len": max(queries),
        "k_scale": d.tensor([1.0], torch.float32),
        "v_scale": d.tensor([1.0], torch.float32),
    }


call("vllm.model_executor.layers.lightning_attn", "linear_decode_forward_triton")(lightning_decode)


# -- rotary embeddings, LoRA -------------------------------------------------------------------------------------------


@call("vllm.model_executor.layers.rotary_embedding.mrope", "triton_mrope")
def _(d: Draws) -> Named:
    n, s, dtype = d.batch(), 64, d.dtype()
    return {
        "q": d.normal(n, 4 * s, dtype=dtype),
        "k": d.normal(n, 2 * s, dtype=dtype),
        "cos": d.uniform(3, n, s // 2, dtype=dtype),
        "sin": d.uniform(3, n, s // 2, dtype=dtype),
        "mrope_section": [8, 12, 12],
        "head_size": s,
        "rotary_dim": s,
        "mrope_interleaved": d.option(True, False),
        "is_neox_style": True,
    }


@call("vllm.model_executor.layers.fused_qk_norm_rope", "fused_qk_rmsnorm_rope_gate")
def _(d: Draws) -> Named:
    n, h, own, s, dtype = d.batch(), 4, 2, 64, d.dtype()
    return {
        "q_gate": d.normal(n, h * 2 * s, dtype=dtype),
        "k": d.normal(n, own * s, dtype=dtype),
        "q_weight": d.normal(s, dtype=dtype),
        "k_weight": d.normal(s, dtype=dtype),
        "cos_sin_cache": d.uniform(512, 32, dtype=dtype),
        "positions": d.integers(0, 512, n, dtype=torch.int64),
        "eps": 1e-6,
        "num_q_heads": h,
        "num_kv_heads": own,
        "head_dim": s,
        "rotary_dim": 32,
    }


def _lora(d: Draws) -> tuple[Named, int]:
    n, loras = d.batch(96), 3
    owners = d.integers(0, loras, n)
    order = owners.argsort(stable=True).to(torch.int32)
    counts = [int((owners == one).sum()) for one in range(loras)]
    return {
        "token_lora_mapping": owners,
        "token_indices_sorted_by_lora_ids": order,
        "num_tokens_per_lora": d.tensor([*counts, 0]),
        "lora_token_start_loc": d.starts([*counts, 0]),
        "lora_ids": d.tensor([*range(loras), -1]),
        "no_lora_flag_cpu": torch.tensor([False]),
        "num_active_loras": torch.tensor([loras + 1]),
    }, n


@call("vllm.lora.ops.triton_ops.lora_shrink_op", "_lora_shrink")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    meta, n = _lora(d)
    slices = d.option(1, 2)
    return {
        "inputs": d.normal(n, 128, dtype=dtype),
        "lora_a_weights": [d.normal(3, 16, 128, dtype=dtype) for _ in range(slices)],
        "output_tensor": d.zeros(slices, n, 16),
        **meta,
        "scaling": 0.5,
    }


@call("vllm.lora.ops.triton_ops.lora_expand_op", "_lora_expand")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    meta, n = _lora(d)
    slices = d.option(1, 2)
    return {
        "inputs": d.normal(slices, n, 16),
        "lora_b_weights": [d.normal(3, 96, 16, dtype=dtype) for _ in range(slices)],
        "output_tensor": d.normal(n, 96 * slices, dtype=dtype),
        **meta,
        "add_inputs": True,
    }


# -- the model runner's inputs -----------------------------------------------------------------------------------------

REQUESTS = 256
LONGEST = 512


def _runner(d: Draws) -> tuple[Named, list[int]]:
    lengths = d.lengths(d.batch(64), 30)
    return {
        "idx_mapping": d.permutation(REQUESTS, len(lengths)),
        "query_start_loc": d.starts(lengths),
        "num_computed_tokens": d.integers(0, 200, REQUESTS),
    }, lengths


@call(f"{GPU}.input_batch", "prepare_prefill_inputs")
def _(d: Draws) -> Named:
    made, _ = _runner(d)
    return {
        **made,
        "input_ids": d.zeros(4096, dtype=torch.int32),
        "next_prefill_tokens": d.zeros(1, REQUESTS, dtype=torch.int32),
        "all_token_ids": d.integers(0, 32000, REQUESTS, LONGEST),
        "prefill_len": d.integers(1, LONGEST, REQUESTS),
    }


@call(f"{GPU}.input_batch", "prepare_pos_seq_lens")
def _(d: Draws) -> Named:
    made, _ = _runner(d)
    return {
        **made,
        "pos": d.zeros(4096, dtype=torch.int64),
        "seq_lens": d.zeros(REQUESTS, dtype=torch.int32),
    }


@call(f"{GPU}.input_batch", "post_update_num_computed_tokens")
def _(d: Draws) -> Named:
    return _runner(d)[0]


def _drafts(d: Draws) -> tuple[list[int], torch.Tensor]:
    counts = [1 + d.random.randint(0, 4) for _ in range(d.batch(64))]
    return counts, d.starts(counts)


@call(f"{GPU}.input_batch", "combine_sampled_and_draft_tokens")
def _(d: Draws) -> Named:
    counts, starts = _drafts(d)
    return {
        "input_ids": d.zeros(4096, dtype=torch.int32),
        "idx_mapping": d.permutation(REQUESTS, len(counts)),
        "last_sampled_tokens": d.integers(0, 32000, REQUESTS, dtype=torch.int64),
        "query_start_loc": starts,
        "seq_lens": d.integers(100, 400, REQUESTS),
        "prefill_len": d.integers(1, 90, REQUESTS),
        "draft_tokens": d.integers(0, 32000, REQUESTS, 4, dtype=torch.int64),
        "cu_num_logits": starts,
        "num_logits": sum(counts),
    }


@call(f"{GPU}.input_batch", "get_num_sampled_and_rejected")
def _(d: Draws) -> Named:
    counts, starts = _drafts(d)
    n = len(counts)
    return {
        "num_sampled": d.integers(0, 5, n),
        "seq_lens": d.integers(1, 400, REQUESTS),
        "cu_num_logits": starts,
        "idx_mapping": d.permutation(REQUESTS, n),
        "prefill_len": d.integers(1, 300, REQUESTS),
    }


@call(f"{GPU}.input_batch", "post_update")
def _(d: Draws) -> Named:
    counts, starts = _drafts(d)
    n = len(counts)
    return {
        "idx_mapping": d.permutation(REQUESTS, n),
        "num_computed_tokens": d.integers(0, 200, REQUESTS),
        "last_sampled_tokens": d.zeros(REQUESTS, 1, dtype=torch.int64),
        "output_bin_counts": d.option(None, d.zeros(REQUESTS, 1000, dtype=torch.int32)),
        "sampled_tokens": d.integers(0, 1000, n, 5, dtype=torch.int64),
        "num_sampled": d.integers(0, 5, n),
        "num_rejected": d.integers(0, 2, n),
        "query_start_loc": starts,
        "all_token_ids": d.zeros(REQUESTS, LONGEST, dtype=torch.int32),
        "total_len": d.integers(0, 400, REQUESTS),
    }


@call(f"{GPU}.input_batch", "expand_idx_mapping")
def _(d: Draws) -> Named:
    counts, starts = _drafts(d)
    return {
        "idx_mapping": d.permutation(REQUESTS, len(counts)),
        "total_num_logits": sum(counts),
        "cu_num_logits": starts,
        "max_expand_len": 5,
    }


@call(f"{GPU}.cp_utils", "prepare_dcp_local_seq_lens")
def _(d: Draws) -> Named:
    return {
        "dcp_local_seq_lens": d.zeros(REQUESTS, dtype=torch.int32),
        "seq_lens": d.integers(1, 4000, REQUESTS),
        "num_reqs": d.batch(),
        "dcp_size": 4,
        "dcp_rank": d.random.randrange(4),
        "cp_interleave": 1,
    }


# -- sampling ----------------------------------------------------------------------------------------------------------

VOCABULARY = 5003


def _logits(d: Draws) -> tuple[Named, int]:
    n = d.batch(48)
    return {"logits": d.normal(n, VOCABULARY, scale=4), "expanded_idx_mapping": d.permutation(REQUESTS, n)}, n


@call(f"{GPU}.metrics.logits", "get_num_nans", 48)
def _(d: Draws) -> Named:
    made = d.normal(d.batch(), VOCABULARY, dtype=d.option(torch.float32, torch.bfloat16))
    return {"logits": torch.where(made > 3, torch.nan, made)}


@call(f"{GPU}.sample.gumbel", "apply_temperature")
def _(d: Draws) -> Named:
    return {**_logits(d)[0], "temperature": d.uniform(REQUESTS, low=0.1, high=2)}


@call(f"{GPU}.sample.gumbel", "gumbel_sample")
def _(d: Draws) -> Named:
    made, n = _logits(d)
    return {
        **made,
        "temperature": d.uniform(REQUESTS),
        "seed": d.integers(0, 2**31, REQUESTS, dtype=torch.int64),
        "pos": d.integers(0, 4000, n, dtype=torch.int64),
        "apply_temperature": d.option(True, False),
        "is_drafting": False,
    }


@call(f"{GPU}.sample.min_p", "apply_min_p")
def _(d: Draws) -> Named:
    return {**_logits(d)[0], "min_p": d.uniform(REQUESTS, high=0.3)}


@call(f"{GPU}.sample.penalties", "apply_penalties")
def _(d: Draws) -> Named:
    made, n = _logits(d)
    return {
        **made,
        "token_ids": d.integers(0, VOCABULARY, n),
        "expanded_local_pos": d.zeros(n, dtype=torch.int32),
        "repetition_penalty": d.uniform(REQUESTS, low=1, high=2),
        "frequency_penalty": d.uniform(REQUESTS),
        "presence_penalty": d.uniform(REQUESTS),
        "prompt_bin_mask": d.integers(-(2**31), 2**31 - 1, REQUESTS, -(-VOCABULARY // 32)),
        "output_bin_counts": d.integers(0, 3, REQUESTS, VOCABULARY),
    }


@call(f"{GPU}.sample.penalties", "bincount")
def _(d: Draws) -> Named:
    n = d.batch(32)
    prefill = d.integers(1, LONGEST, REQUESTS)
    return {
        "expanded_idx_mapping": d.permutation(REQUESTS, n),
        "all_token_ids": d.integers(0, VOCABULARY, REQUESTS, LONGEST),
        "prompt_len": prefill // 2,
        "prefill_len": prefill,
        "prompt_bin_mask": d.zeros(REQUESTS, -(-VOCABULARY // 32), dtype=torch.int32),
        "output_bin_counts": d.zeros(REQUESTS, VOCABULARY, dtype=torch.int32),
        "max_prefill_len": int(prefill.max()),
    }


@call(f"{GPU}.sample.logprob", "compute_topk_scores")
def _(d: Draws) -> Named:
    n = d.batch(48)
    return {
        "logits": d.normal(n, VOCABULARY),
        "num_logprobs": d.option(0, 5, 20),
        "sampled_token_ids": d.integers(0, VOCABULARY, n, dtype=torch.int64),
    }


@call(f"{GPU}.sample.prompt_logprob", "get_prompt_logprobs_token_ids")
def _(d: Draws) -> Named:
    made, lengths = _runner(d)
    return {**made, "num_tokens": sum(lengths), "all_token_ids": d.integers(0, 32000, REQUESTS, LONGEST)}


@call(f"{GPU}.spec_decode.rejection_sampler", "gather_draft_sampled")
def _(d: Draws) -> Named:
    n = d.batch()
    return {
        "input_ids": d.integers(0, 32000, 4096),
        "positions": d.integers(0, 500, 4096, dtype=torch.int64),
        "logits_indices": d.permutation(4000, n, dtype=torch.int64),
        "expanded_idx_mapping": d.integers(0, REQUESTS, n),
        "expanded_local_pos": d.integers(0, 4, n),
        "prefill_len": d.integers(1, 400, REQUESTS),
    }


@call(f"{GPU}.spec_decode.rejection_sampler_utils", "rejection_sample")
def _(d: Draws) -> Named:
    steps = 3
    counts = [1 + d.random.randint(0, steps) for _ in range(d.batch(10))]
    n = sum(counts)
    mapping = d.permutation(REQUESTS, len(counts))
    return {
        "target_logits": d.normal(n, VOCABULARY, scale=3),
        "draft_logits": d.option(None, d.normal(REQUESTS, steps, VOCABULARY, scale=3)),
        "draft_sampled": d.integers(0, VOCABULARY, n, dtype=torch.int64),
        "cu_num_logits": d.starts(counts),
        "pos": d.integers(0, 4000, n, dtype=torch.int64),
        "idx_mapping": mapping,
        "expanded_idx_mapping": mapping.repeat_interleave(torch.tensor(counts, device=mapping.device)),
        "expanded_local_pos": d.tensor([place for one in counts for place in range(one)]),
        "temperature": d.uniform(REQUESTS),
        "seed": d.integers(0, 2**31, REQUESTS, dtype=torch.int64),
        "num_speculative_steps": steps,
    }


@call("vllm.v1.sample.ops.topk_topp_triton", "apply_top_k_top_p_triton", 32)
def _(d: Draws) -> Named:
    n = d.batch()
    k, p = d.option((1, 0), (0, 1), (1, 1))
    return {
        "logits": d.normal(n, VOCABULARY, scale=3),
        "k": d.integers(1, 50, n) if k else None,
        "p": d.uniform(n, low=0.5, high=1) if p else None,
    }
