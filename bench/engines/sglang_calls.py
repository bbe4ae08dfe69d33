"""Functions of SGLang that launch Triton kernels, with arguments like those of a server."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from bench.engines.draws import Draws
from bench.engines.shapes import Named, delta, gated_norm, lightning_decode, packed_decode, routed, sigmoid_gates
from bench.engines.table import call

OPS = "sglang.kernels.ops"
ATTENTION = f"{OPS}.attention"
FLA = f"{OPS}.attention.fla"


# -- attention ---------------------------------------------------------------------------------------------------------


def _slots(d: Draws, lengths: list[int], spare: int = 8) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return where sequences lie in a cache: starts of the sequences, slots of the tokens, number of slots."""
    total = sum(lengths)
    return d.starts(lengths), d.permutation(total + spare, total, dtype=torch.int64), total + spare


@call(f"{ATTENTION}.decode_attention", "decode_attention_fwd", 48)
def _(d: Draws) -> Named:
    b, s, splits = d.batch(), 64, 8
    heads, own = d.option((8, 8), (8, 2))
    dtype = d.dtype()
    starts, slots, size = _slots(d, d.lengths(b, 100))
    return {
        "q": d.normal(b, heads, s, dtype=dtype),
        "k_buffer": d.normal(size, own, s, dtype=dtype),
        "v_buffer": d.normal(size, own, s, dtype=dtype),
        "o": d.zeros(b, heads, s, dtype=dtype),
        "kv_indptr": starts,
        "kv_indices": slots,
        "attn_logits": d.zeros(b, heads, splits, s),
        "attn_lse": d.zeros(b, heads, splits),
        "num_kv_splits": d.integers(1, splits + 1, b),
        "max_kv_splits": splits,
        "sm_scale": s**-0.5,
        "k_scale": 1.0,
        "v_scale": 1.0,
        "logit_cap": d.option(0.0, 30.0),
    }


def _extended(d: Draws) -> tuple[list[int], list[int]]:
    b = d.batch(6)
    return d.lengths(b, 60), d.lengths(b, 80)


@call(f"{ATTENTION}.extend_attention", "extend_attention_fwd")
def _(d: Draws) -> Named:
    queries, prefixes = _extended(d)
    h, own, s, dtype = 4, 2, 64, d.dtype()
    starts, slots, size = _slots(d, prefixes)
    t = sum(queries)
    return {
        "q_extend": d.normal(t, h, s, dtype=dtype),
        "k_extend": d.normal(t, own, s, dtype=dtype),
        "v_extend": d.normal(t, own, s, dtype=dtype),
        "o_extend": d.zeros(t, h, s, dtype=dtype),
        "k_buffer": d.normal(size, own, s, dtype=dtype),
        "v_buffer": d.normal(size, own, s, dtype=dtype),
        "qo_indptr": d.starts(queries),
        "kv_indptr": starts,
        "kv_indices": slots,
        "custom_mask": None,
        "is_causal": True,
        "mask_indptr": None,
        "max_len_extend": max(queries),
        "k_scale": 1.0,
        "v_scale": 1.0,
        "sliding_window_size": d.option(-1, 32),
    }


@call(f"{ATTENTION}.extend_attention", "extend_attention_fwd_unified")
def _(d: Draws) -> Named:
    queries, prefixes = _extended(d)
    h, own, s, dtype = 4, 2, 64, d.dtype()
    starts, slots, size = _slots(d, [one + two for one, two in zip(queries, prefixes, strict=True)])
    t = sum(queries)
    return {
        "q": d.normal(t, h, s, dtype=dtype),
        "o": d.zeros(t, h, s, dtype=dtype),
        "k_buffer": d.normal(size, own, s, dtype=dtype),
        "v_buffer": d.normal(size, own, s, dtype=dtype),
        "k_scale": 1.0,
        "v_scale": 1.0,
        "qo_indptr": d.starts(queries),
        "kv_indptr": starts,
        "kv_indices": slots,
        "prefix_lens": d.tensor(prefixes),
        "max_len_extend": max(queries),
    }


@call(f"{ATTENTION}.extend_attention", "build_unified_kv_indices")
def _(d: Draws) -> Named:
    queries, prefixes = _extended(d)
    starts, slots, _ = _slots(d, prefixes)
    return {
        "prefix_kv_indptr": starts,
        "prefix_kv_indices": slots,
        "extend_start_loc": d.starts(queries)[:-1],
        "extend_seq_lens": d.tensor(queries),
        "extend_kv_indices": d.permutation(sum(queries) + 5, sum(queries), dtype=torch.int64),
        "bs": len(queries),
    }


@call(f"{ATTENTION}.prefill_attention", "context_attention_fwd")
def _(d: Draws) -> Named:
    lengths, s, dtype = d.lengths(d.batch(5), 90), 64, d.dtype()
    t = sum(lengths)
    return {
        "q": d.normal(t, 4, s, dtype=dtype),
        "k": d.normal(t, 2, s, dtype=dtype),
        "v": d.normal(t, 2, s, dtype=dtype),
        "o": d.zeros(t, 4, s, dtype=dtype),
        "b_start_loc": d.starts(lengths)[:-1],
        "b_seq_len": d.tensor(lengths),
        "max_input_len": max(lengths),
        "is_causal": d.option(True, False),
    }


@call(f"{ATTENTION}.merge_state", "merge_state_triton")
def _(d: Draws) -> Named:
    n, h, s, dtype = d.batch(), 8, 64, d.dtype()
    return {
        "prefix_output": d.normal(n, h, s, dtype=dtype),
        "prefix_lse": d.normal(n, h),
        "suffix_output": d.normal(n, h, s, dtype=dtype),
        "suffix_lse": d.normal(n, h),
    }


@call(f"{ATTENTION}.position", "compute_position_triton")
def _(d: Draws) -> Named:
    lengths = d.lengths(d.batch(64), 60)
    return {
        "extend_prefix_lens": d.integers(0, 300, len(lengths)),
        "extend_seq_lens": d.tensor(lengths),
        "extend_seq_lens_sum": sum(lengths),
    }


@call(f"{ATTENTION}.pad", "pad_draft_extend_query")
def _(d: Draws) -> Named:
    counts, h, s, dtype = [1 + d.random.randint(0, 4) for _ in range(d.batch(64))], 4, 64, d.dtype()
    return {
        "q": d.normal(sum(counts), h, s, dtype=dtype),
        "padded_q": d.zeros(len(counts), 5, h, s, dtype=dtype),
        "seq_lens_q": d.tensor(counts),
        "cu_seqlens_q": d.starts(counts),
    }


@call(f"{ATTENTION}.pad", "unpad_draft_extend_output")
def _(d: Draws) -> Named:
    counts, h, s = [1 + d.random.randint(0, 4) for _ in range(d.batch(64))], 4, 64
    return {
        "raw_out": d.normal(len(counts), 5, h, s, dtype=d.dtype()),
        "cu_seqlens_q": d.starts(counts),
        "seq_lens_q": d.tensor(counts),
        "sum_seq_lens_q": sum(counts),
    }


@call(f"{ATTENTION}.pad", "seqlens_expand_triton")
def _(d: Draws) -> Named:
    counts = [1 + d.random.randint(0, 7) for _ in range(d.batch(64))]
    return {
        "extend_seq_lens": d.tensor(counts),
        "seq_lens": d.integers(10, 400, len(counts)),
        "total_len": sum(counts),
        "max_q_len": 8,
    }


@call(f"{ATTENTION}.mla_qk_prep", "concat_and_cast_mha_k_triton")
def _(d: Draws) -> Named:
    n, h, dtype = d.batch(), d.option(8, 6), d.dtype()
    return {
        "k": d.zeros(n, h, 192, dtype=dtype),
        "k_nope": d.normal(n, h, 128, dtype=dtype),
        "k_rope": d.normal(n, 1, 64, dtype=dtype),
    }


@call(f"{ATTENTION}.fused_qk_rmsnorm_rope_gate", "fused_qk_gemma_rmsnorm_rope_gate")
def _(d: Draws) -> Named:
    n, h, own, s, dtype = d.batch(), 4, 2, 64, d.dtype()
    return {
        "q_gate": d.normal(n, h * 2 * s, dtype=dtype),
        "k": d.normal(n, own * s, dtype=dtype),
        "q_weight": d.normal(s, dtype=dtype),
        "k_weight": d.normal(s, dtype=dtype),
        "cos_sin_cache": d.uniform(512, 32),
        "positions": d.integers(0, 512, n, dtype=torch.int64),
        "eps": 1e-6,
        "num_q_heads": h,
        "num_kv_heads": own,
        "head_dim": s,
        "rotary_dim": 32,
    }


# -- linear attention, mamba -------------------------------------------------------------------------------------------


@call(f"{FLA}.chunk_fwd", "chunk_gated_delta_rule_fwd_intra")
def _(d: Draws) -> Named:
    made = delta(d, 5)
    made.pop("q")
    return {**made, "g": -d.uniform(*made["beta"].shape)}


@call(f"{FLA}.chunk_delta_h", "chunk_gated_delta_rule_fwd_h")
def _(d: Draws) -> Named:
    made = delta(d, 5)
    n = made["cu_seqlens"].numel() - 1
    return {
        "k": made["k"],
        "w": made["k"] * 0.1,
        "u": made["v"],
        "g": -d.uniform(*made["beta"].shape),
        "initial_state": d.normal(n, 2, 64, 64, scale=0.1),
        "initial_state_indices": d.permutation(n),
        "cu_seqlens": made["cu_seqlens"],
    }


@call(f"{FLA}.chunk_o", "chunk_fwd_o")
def _(d: Draws) -> Named:
    b, t, h, s, dtype = 1, d.length(300), 2, 64, d.dtype()
    return {
        "q": d.normal(b, t, h, s, dtype=dtype),
        "k": d.normal(b, t, h, s, dtype=dtype),
        "v": d.normal(b, t, h, s, dtype=dtype),
        "h": d.normal(b, -(-t // 64), h, s, s, dtype=dtype),
        "g": -d.uniform(b, t, h),
    }


@call(f"{FLA}.cumsum", "chunk_local_cumsum_scalar")
def _(d: Draws) -> Named:
    lengths = d.lengths(d.batch(5), 150)
    return {
        "g": d.normal(1, sum(lengths), 4, dtype=d.option(torch.float32, torch.bfloat16)),
        "chunk_size": 64,
        "cu_seqlens": d.starts(lengths),
    }


@call(f"{FLA}.kda", "chunk_kda")
def _(d: Draws) -> Named:
    made = delta(d, 5)
    n = made["cu_seqlens"].numel() - 1
    return {
        **made,
        "g": -d.uniform(*made["k"].shape, high=0.1),
        "initial_state": d.normal(n, 2, 64, 64, scale=0.1),
        "initial_state_indices": d.permutation(n),
    }


@call(f"{FLA}.l2norm", "l2norm_fwd")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.batch(), 2, d.option(128, 640), dtype=d.dtype())}


@call(f"{FLA}.fused_recurrent", "fused_recurrent_gated_delta_rule", 32)
def _(d: Draws) -> Named:
    b, t, h, s, dtype = d.batch(8), d.length(20), 2, 64, d.dtype()
    return {
        "q": d.normal(b, t, h, s, dtype=dtype),
        "k": d.normal(b, t, h, s, dtype=dtype),
        "v": d.normal(b, t, h, s, dtype=dtype),
        "g": -d.uniform(b, t, h),
        "beta": d.uniform(b, t, h, dtype=dtype),
        "initial_state": d.normal(b, h, s, s),
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }


@call(f"{FLA}.fused_recurrent", "fused_recurrent_gated_delta_rule_packed_decode", 64)
def _(d: Draws) -> Named:
    return packed_decode(d, 0)


@call(f"{FLA}.fused_recurrent", "fused_recurrent_gated_delta_rule_update", 64)
def _(d: Draws) -> Named:
    b, h, s, dtype = d.batch(), 2, 64, d.dtype()
    return {
        "q": d.normal(b, 1, h, s, dtype=dtype),
        "k": d.normal(b, 1, h, s, dtype=dtype),
        "v": d.normal(b, 1, h, s, dtype=dtype),
        "g": -d.uniform(b, 1, h),
        "beta": d.uniform(b, 1, h, dtype=dtype),
        "initial_state_source": d.normal(b + 2, h, s, s),
        "initial_state_indices": d.permutation(b + 2, b),
        "use_qk_l2norm_in_kernel": True,
    }


call(f"{FLA}.fused_norm_gate", "layer_norm_gated_fwd")(gated_norm)


@call(f"{FLA}.layernorm_gated", "_layer_norm_fwd")
def _(d: Draws) -> Named:
    t, n, dtype = d.batch(), 256, d.dtype()
    return {
        "x": d.normal(t, n, dtype=dtype),
        "weight": d.normal(n, dtype=dtype),
        "bias": None,
        "eps": 1e-6,
        "z": d.normal(t, n, dtype=dtype),
        "group_size": d.option(None, 64),
        "is_rms_norm": True,
    }


@call(f"{ATTENTION}.linear.fused_gdn_gating", "fused_gdn_gating")
def _(d: Draws) -> Named:
    b, h, dtype = d.batch(), 12, d.dtype()
    return {
        "A_log": d.normal(h),
        "a": d.normal(b, h, dtype=dtype),
        "b": d.normal(b, h, dtype=dtype),
        "dt_bias": d.normal(h),
    }


@call(f"{ATTENTION}.linear.fused_sigmoid_gating_recurrent", "fused_sigmoid_gating_delta_rule_update", 64)
def _(d: Draws) -> Named:
    made = sigmoid_gates(d)
    b, hv = made["a"].shape
    states = {"initial_state_source": d.normal(b + 2, hv, 64, 64), "initial_state_indices": d.permutation(b + 2, b)}
    return {**made, **states, "softplus_beta": 1.0, "softplus_threshold": 20.0}


call(f"{ATTENTION}.linear.lightning_attn", "linear_decode_forward_triton")(lightning_decode)


@call(f"{OPS}.mamba.causal_conv1d_triton", "causal_conv1d_fn")
def _(d: Draws) -> Named:
    lengths, n, width, dtype = d.lengths(d.batch(8), 100), 160, 4, d.dtype()
    lines = 300  # fixed, because the size of a server's state pool is a constexpr of the kernel
    return {
        "x": d.normal(sum(lengths), n, dtype=dtype).t(),
        "weight": d.normal(n, width, dtype=dtype),
        "bias": d.normal(n, dtype=dtype),
        "conv_states": d.normal(lines, width - 1, n, dtype=dtype).transpose(1, 2),
        "query_start_loc": d.starts(lengths),
        "seq_lens_cpu": lengths,
        "cache_indices": d.permutation(lines, len(lengths)),
        "has_initial_state": d.integers(0, 2, len(lengths), dtype=torch.bool),
    }


@call(f"{OPS}.mamba.causal_conv1d_triton", "causal_conv1d_update")
def _(d: Draws) -> Named:
    b, n, width, dtype = d.batch(), 320, 4, d.dtype()
    return {
        "x": d.normal(b, n, dtype=dtype),
        "conv_state": d.normal(300, width - 1, n, dtype=dtype).transpose(1, 2),
        "weight": d.normal(n, width, dtype=dtype),
        "bias": d.option(None, d.normal(n, dtype=dtype)),
        "activation": "silu",
        "conv_state_indices": d.permutation(300, b),
    }


@call(f"{OPS}.mamba.triton_ops.mamba_ssm", "selective_state_update", 64)
def _(d: Draws) -> Named:
    b, heads, dim, state, groups, dtype = d.batch(), 4, 64, 16, 2, d.dtype()
    return {
        "state": d.normal(b + 3, heads, dim, state),
        "x": d.normal(b, heads, dim, dtype=dtype),
        "dt": d.normal(b, heads, 1, dtype=dtype).expand(b, heads, dim),
        "A": -d.uniform(heads)[:, None, None].expand(heads, dim, state),
        "B": d.normal(b, groups, state, dtype=dtype),
        "C": d.normal(b, groups, state, dtype=dtype),
        "D": d.normal(heads)[:, None].expand(heads, dim),
        "dt_bias": d.normal(heads)[:, None].expand(heads, dim),
        "dt_softplus": True,
        "state_batch_indices": d.permutation(b + 3, b),
        "out": d.zeros(b, heads, dim, dtype=dtype),
    }


@call(f"{OPS}.mamba.triton_ops.ssd_bmm", "_bmm_chunk_fwd")
def _(d: Draws) -> Named:
    t, dtype = d.length(300), d.dtype()
    return {"a": d.normal(1, t, 2, 16, dtype=dtype), "b": d.normal(1, t, 2, 16, dtype=dtype), "chunk_size": 64}


@call(f"{OPS}.mamba.triton_ops.ssd_chunk_state", "_chunk_cumsum_fwd")
def _(d: Draws) -> Named:
    return {
        "dt": d.normal(1, d.length(300), 4, dtype=d.dtype()),
        "A": -d.uniform(4),
        "chunk_size": 64,
        "dt_bias": d.normal(4),
        "dt_softplus": True,
    }


@call(f"{OPS}.mamba.triton_ops.ssd_chunk_state", "_chunk_state_fwd")
def _(d: Draws) -> Named:
    t, h, dtype = d.length(300), 4, d.dtype()
    return {
        "B": d.normal(1, t, 2, 16, dtype=dtype),
        "x": d.normal(1, t, h, 32, dtype=dtype),
        "dt": d.uniform(1, h, -(-t // 64), 64),
        "dA_cumsum": -d.uniform(1, h, -(-t // 64), 64),
    }


# -- elementwise operations, norms, quantization -----------------------------------------------------------------------


@call(f"{OPS}.activation.gelu_and_mul_triton", "gelu_and_mul_triton")
def _(d: Draws) -> Named:
    return {"hidden_states": d.normal(d.batch(), d.option(512, 1280), dtype=d.dtype())}


@call(f"{OPS}.activation.minimax_m3_swiglu", "swiglu_oai_split")
def _(d: Draws) -> Named:
    return {
        "gate_up": d.normal(d.batch(), 600, dtype=d.dtype()),
        "alpha": 1.702,
        "beta": 1.0,
        "limit": d.option(None, 7.0),
    }


@call(f"{OPS}.activation.softcap", "_softcap_logits", 64)
def _(d: Draws) -> Named:
    return {"full_logits": d.normal(d.batch(), 3001, scale=20), "final_logit_softcapping": 30.0}


@call(f"{OPS}.elementwise.elementwise", "fused_sigmoid_mul")
def _(d: Draws) -> Named:
    n, dtype = d.batch(), d.dtype()
    return {
        "attn_output": d.normal(n, 512, dtype=dtype),
        "gate": d.normal(n, 512, dtype=dtype),
        "inplace": d.option(True, False),
    }


@call(f"{OPS}.elementwise.elementwise", "sigmoid_gate_mul_broadcast")
def _(d: Draws) -> Named:
    n, dtype = d.batch(), d.dtype()
    return {"x": d.normal(n, 600, dtype=dtype), "gate": d.normal(n, 1, dtype=dtype)}


@call(f"{OPS}.elementwise.row_scale", "apply_log_scaling_tau")
def _(d: Draws) -> Named:
    n = d.batch()
    return {"x": d.normal(n, 4, 64, dtype=torch.float16), "tau": d.uniform(n, 1, 1)}


@call(f"{OPS}.layernorm.fused_rmsnorm", "fused_rmsnorm")
def _(d: Draws) -> Named:
    n, dtype = d.option(512, 2880), d.dtype()
    return {"x": d.normal(d.batch(), n, dtype=dtype), "weight": d.normal(n, dtype=dtype), "eps": 1e-6}


@call(f"{OPS}.layernorm.fused_rmsnorm", "fused_dual_residual_rmsnorm")
def _(d: Draws) -> Named:
    m, n, dtype = d.batch(), 512, d.dtype()
    return {
        "x": d.normal(m, n, dtype=dtype),
        "residual": d.normal(m, n, dtype=dtype),
        "weight1": d.normal(n, dtype=dtype),
        "weight2": d.normal(n, dtype=dtype),
        "eps": 1e-6,
    }


@call(f"{OPS}.layernorm.gemma4_fused_ops", "gemma_qkv_rmsnorm")
def _(d: Draws) -> Named:
    m, h, own, s, dtype = d.batch(), 4, 2, 64, d.dtype()
    packed = d.normal(m, (h + 2 * own) * s, dtype=dtype)
    q, k, v = packed.split([h * s, own * s, own * s], dim=-1)
    return {
        "q": q,
        "k": k,
        "v": v,
        "q_weight": d.normal(s, dtype=dtype),
        "k_weight": d.normal(s, dtype=dtype),
        "num_q_heads": h,
        "num_kv_heads": own,
        "head_dim": s,
    }


@call(f"{OPS}.layernorm.gemma4_fused_ops", "gemma_rmsnorm_residual_scalar")
def _(d: Draws) -> Named:
    m, n, dtype = d.batch(), 640, d.dtype()
    return {
        "x": d.normal(m, n, dtype=dtype),
        "weight": d.normal(n, dtype=dtype),
        "residual": d.normal(m, n, dtype=dtype),
        "scalar": d.normal(1, dtype=dtype),
    }


@call(f"{OPS}.layernorm.gemma4_fused_ops", "gemma_dual_rmsnorm_residual_scalar")
def _(d: Draws) -> Named:
    m, n, dtype = d.batch(), 640, d.dtype()
    return {
        "x1": d.normal(m, n, dtype=dtype),
        "weight1": d.normal(n, dtype=dtype),
        "x2": d.normal(m, n, dtype=dtype),
        "weight2": d.normal(n, dtype=dtype),
        "weight3": d.normal(n, dtype=dtype),
        "residual": d.normal(m, n, dtype=dtype),
        "scalar": d.normal(1, dtype=dtype),
    }


@call(f"{OPS}.layernorm.minimax_m3_rmsnorm", "gemma_rmsnorm")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    return {"x": d.normal(d.batch(), 768, dtype=dtype), "weight": d.normal(768, dtype=dtype), "eps": 1e-6}


@call(f"{OPS}.layernorm.minimax_m3_rmsnorm", "gemma_fused_add_rmsnorm")
def _(d: Draws) -> Named:
    m, n, dtype = d.batch(), 768, d.dtype()
    return {
        "x": d.normal(m, n, dtype=dtype),
        "residual": d.normal(m, n, dtype=dtype),
        "weight": d.normal(n, dtype=dtype),
        "eps": 1e-6,
    }


@call(f"{OPS}.layernorm.rmsnorm_fp32", "rmsnorm_fp32")
def _(d: Draws) -> Named:
    dtype = d.option(torch.bfloat16, torch.float32)
    return {"x": d.normal(d.batch(), 512, dtype=dtype), "weight": d.normal(512), "eps": 1e-6}


@call(f"{OPS}.quantization.int8_kernel", "per_token_quant_int8")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.batch(), d.option(512, 1000), dtype=d.dtype())}


@call(f"{OPS}.quantization.int8_kernel", "per_token_group_quant_int8")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.batch(), 512, dtype=d.dtype()), "group_size": 128}


@call(f"{OPS}.quantization.fp8_kernel", "_per_token_group_quant_8bit_raw")
def _(d: Draws) -> Named:
    return {
        "x": d.normal(d.batch(), 512, dtype=d.dtype()),
        "group_size": 128,
        "dtype": torch.float8_e4m3fn,
        "column_major_scales": d.option(True, False),
    }


@call(f"{OPS}.quantization.act_quant_triton", "act_quant")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.batch(), 512, dtype=d.dtype()), "scale_fmt": d.option(None, "ue8m0")}


@call(f"{OPS}.quantization.fp8_quantize", "fp8_quantize")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.batch(), 512, dtype=d.dtype()), "scale_inv": 0.5}


@call(f"{OPS}.quantization.awq_triton", "awq_dequantize_triton", 32)
def _(d: Draws) -> Named:
    k, m = 128, 64
    return {
        "qweight": d.integers(-(2**31), 2**31 - 1, k, m // 8),
        "scales": d.uniform(k // 64, m, dtype=torch.float16),
        "zeros": d.integers(-(2**31), 2**31 - 1, k // 64, m // 8),
    }


# -- mixtures of experts -----------------------------------------------------------------------------------------------


@call(f"{OPS}.moe.router", "fused_moe_router_cudacore")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    return {
        "x": d.normal(d.batch(), 256, dtype=dtype),
        "router_weight": d.normal(8, 256, dtype=dtype, scale=0.1),
        "topk": 2,
        "moe_softcapping": d.option(0, 30),
    }


@call(f"{OPS}.moe.gemma4_routing", "gemma4_fused_routing")
def _(d: Draws) -> Named:
    return {
        "gating_output": d.normal(d.batch(), 48, dtype=d.dtype()),
        "per_expert_scale": d.uniform(48),
        "topk": 4,
    }


@call(f"{OPS}.moe.gemma4_routing", "gemma_routing_post_topk")
def _(d: Draws) -> Named:
    n = d.batch()
    return {
        "topk_logits": d.normal(n, 4, dtype=d.dtype()),
        "topk_ids": d.integers(0, 48, n, 4, dtype=torch.int64),
        "per_expert_scale": d.uniform(48),
    }


@call(f"{OPS}.moe.fill_padded_rows", "_fill_padded_rows")
def _(d: Draws) -> Named:
    n = d.batch()
    return {
        "x": d.integers(0, 64, n, 6),
        "num_token_non_padded": d.integers(0, n + 1, 1),
        "fill_value": -1,
    }


@call(f"{OPS}.moe.shuffle_weighted_sum", "_shuffle_weighted_sum_triton")
def _(d: Draws) -> Named:
    n, k, dtype = d.batch(), 3, d.dtype()
    return {
        "inputs": d.normal(n * k, 320, dtype=dtype),
        "output": d.zeros(n, 320, dtype=dtype),
        "permutation": d.permutation(n * k),
        "weights": d.uniform(n, k, dtype=dtype),
    }


@call(f"{OPS}.moe.moe_fused_mul_sum", "moe_fused_mul_sum")
def _(d: Draws) -> Named:
    n, k, dtype = d.batch(), 4, d.dtype()
    return {"inputs": d.normal(n, k, 320, dtype=dtype), "topk_weights": d.uniform(n, k)}


@call(f"{OPS}.moe.moe_align_small_numel", "moe_align_small_numel", 32)
def _(d: Draws) -> Named:
    n, k, experts, block = d.batch(), 2, 16, 16
    most = n * k + experts * (block - 1)
    return {
        "topk_ids": routed(d, n, experts, k, block).topk_ids,
        "num_experts": experts,
        "block_size": block,
        "sorted_token_ids": d.zeros(most, dtype=torch.int32),
        "expert_ids": d.zeros(-(-most // block), dtype=torch.int32),
        "num_tokens_post_pad": d.zeros(1, dtype=torch.int32),
    }


# -- sampling, speculation ---------------------------------------------------------------------------------------------

VOCABULARY = 5003


@call(f"{OPS}.sampling.temperature_softmax", "temperature_softmax")
def _(d: Draws) -> Named:
    n = d.batch(24)
    return {"logits": d.normal(n, 40009, scale=4), "temperatures": d.uniform(n, 1, low=0.2, high=2)}


@call(f"{OPS}.sampling.renorm_triton", "_renorm_from_pivots", 32)
def _(d: Draws) -> Named:
    n = d.batch()
    return {
        "probs_fp32": torch.softmax(d.normal(n, VOCABULARY, scale=3), dim=-1),
        "pivots": d.uniform(n, high=1e-4),
    }


@call(f"{OPS}.sampling.denoiser_statistics", "denoiser_statistics", 16)
def _(d: Draws) -> Named:
    b = d.batch(8)
    return {"logits": d.normal(b, 4, VOCABULARY, dtype=d.dtype()), "temperatures": d.uniform(b, low=0.3, high=2)}


@call(f"{OPS}.sampling.softcap_row_argmax", "softcap_row_argmax", 48)
def _(d: Draws) -> Named:
    return {
        "logits": d.normal(d.batch(), VOCABULARY, scale=20),
        "final_logit_softcapping": 30.0,
        "valid_width": VOCABULARY - 3,
        "col_offset": d.random.choice([0, 5003, 16 * 5003]),
    }


@call(f"{OPS}.speculative.row_argmax", "row_argmax")
def _(d: Draws) -> Named:
    return {"x": d.normal(d.option(d.batch(48), 65 + d.batch(48)), VOCABULARY)}


@call(f"{OPS}.speculative.topk1", "draft_topk1_postprocess", 48)
def _(d: Draws) -> Named:
    n = d.batch()
    return {
        "next_token_logits": d.normal(n, VOCABULARY, dtype=d.option(torch.float32, torch.bfloat16)),
        "positions": d.integers(0, 4000, n, dtype=torch.int64),
        "draft_tokens": d.option(None, d.zeros(n, 4, dtype=torch.int64)),
    }


# -- memory, caches ----------------------------------------------------------------------------------------------------


@call(f"{OPS}.memory.common", "get_last_loc_triton")
def _(d: Draws) -> Named:
    n = d.batch()
    return {
        "req_to_token": d.integers(0, 4000, 260, 512),
        "req_pool_indices_tensor": d.permutation(260, n, dtype=torch.int64),
        "prefix_lens_tensor": d.integers(0, 500, n, dtype=torch.int64),
    }


@call(f"{OPS}.memory.common", "get_last_loc_triton_safe")
def _(d: Draws) -> Named:
    n, dtype = d.batch(), d.option(torch.int64, torch.int32)
    return {
        "req_to_token": d.integers(0, 4000, 260, 512),
        "req_pool_indices_tensor": d.permutation(260, n, dtype=torch.int64),
        "prefix_lens_tensor": d.integers(0, 500, n, dtype=dtype),
    }


@call(f"{OPS}.kvcache.mla_buffer", "get_mla_kv_buffer_triton")
def _(d: Draws) -> Named:
    n, dtype = d.batch(), d.dtype()
    return {
        "kv_buffer": d.normal(400, 1, 320, dtype=dtype),
        "loc": d.permutation(400, n, dtype=torch.int64),
        "cache_k_nope": d.zeros(n, 1, 256, dtype=dtype),
        "cache_k_rope": d.option(None, d.zeros(n, 1, 64, dtype=dtype)),
    }


@call(f"{OPS}.gemm.router_gemv", "router_gemv")
def _(d: Draws) -> Named:
    return {
        "x": d.normal(d.batch(8), 512, dtype=torch.bfloat16),
        "w": d.normal(64, 512, dtype=torch.bfloat16),
    }


# -- LoRA --------------------------------------------------------------------------------------------------------------


def _batch_info(d: Draws, adapters: int) -> tuple[SimpleNamespace, int]:
    lengths = d.lengths(d.batch(12), 20)
    return SimpleNamespace(
        bs=len(lengths),
        num_segments=len(lengths),
        max_len=max(lengths),
        use_cuda_graph=False,
        seg_lens=d.tensor(lengths),
        seg_indptr=d.starts(lengths),
        weight_indices=d.integers(0, adapters, len(lengths)),
        lora_ranks=d.tensor([16] * adapters),
        scalings=d.uniform(adapters),
        permutation=None,
    ), sum(lengths)


@call(f"{OPS}.lora.dense.sgemm_lora_a", "sgemm_lora_a_fwd")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    info, n = _batch_info(d, 3)
    stack = d.option(1, 3)
    return {
        "x": d.normal(n, 128, dtype=dtype),
        "weights": d.normal(3, 16 * stack, 128, dtype=dtype),
        "batch_info": info,
        "stack_num": stack,
    }


@call(f"{OPS}.lora.dense.sgemm_lora_b", "sgemm_lora_b_fwd")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    info, n = _batch_info(d, 3)
    return {
        "x": d.normal(n, 16, dtype=dtype),
        "weights": d.normal(3, 96, 16, dtype=dtype),
        "batch_info": info,
        "base_output": d.option(None, d.normal(n, 96, dtype=dtype)),
    }


@call(f"{OPS}.lora.dense.qkv_lora_b", "qkv_lora_b_fwd")
def _(d: Draws) -> Named:
    dtype = d.dtype()
    info, n = _batch_info(d, 3)
    return {
        "x": d.normal(n, 48, dtype=dtype),
        "qkv_lora_b": d.normal(3, 192, 16, dtype=dtype),
        "batch_info": info,
        "output_offset": d.tensor([0, 96, 144, 192]),
        "max_qkv_out_dim": 96,
    }
