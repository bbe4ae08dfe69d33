"""Plans that Helion writes on a kernel: one matmul's become lines of a host function, others are refused by name."""

import ast

import pytest

from silo.errors import UnsupportedError
from silo.integrations.helion.cute_host_text import HostParameter, host_lines, host_text, read_plans
from silo.integrations.helion.launcher_call import LaunchMarks

OPERANDS = {
    "kind": "tcgen05_ab_tma",
    "bm": 128,
    "bn": 128,
    "bk": 64,
    "cluster_m": 1,
    "cluster_n": 1,
    "ab_stage_count": 2,
    "input_dtype": "cutlass.BFloat16",
    "acc_dtype": "cutlass.Float32",
    "m_size": 512,
    "n_size": 512,
    "k_total_size": 256,
    "kernel_args": ["atom_a", "tensor_a", "atom_b", "tensor_b"],
    "lhs_idx": 0,
    "rhs_idx": 1,
}
STORE = {
    "kind": "tcgen05_d_tma",
    "bm": 128,
    "bn": 128,
    "c_stage_count": 2,
    "output_dtype": "cutlass.BFloat16",
    "kernel_args": ["atom_d", "tensor_d"],
    "d_idx": 2,
}
ARRAYS = [HostParameter(name, "cute.Tensor", 2) for name in ("x", "y", "out")]


def text_of(*plans, **marks):
    return host_text("k", ARRAYS, LaunchMarks(plans=plans, **marks), (16, 1, 1), (32, 6, 1))


def test_the_plans_of_one_matmul_become_a_host_function():
    text = text_of(OPERANDS, STORE)
    ast.parse(text)
    assert text.startswith("@cute.jit\ndef k(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):\n")
    last = text.splitlines()[-1].strip()
    names = "x, y, out, atom_a, tensor_a, atom_b, tensor_b, atom_d, tensor_d"
    assert last == f"device_function({names}).launch(grid=(16, 1, 1), block=(32, 6, 1))"
    assert "OperandMajorMode.K, cute.nvgpu.OperandMajorMode.MN" in text
    assert "CtaGroup.ONE" in text


def test_without_a_store_threads_write_the_result():
    assert "CopyBulkTensorTileS2GOp" not in text_of(OPERANDS)


def test_two_blocks_work_on_one_tile_where_the_cluster_is_made_for_it():
    text = text_of({**OPERANDS, "bm": 256, "cluster_m": 2}, STORE)
    assert "CtaGroup.TWO" in text
    assert "cluster=(2, 1, 1)" in text
    assert "CtaGroup.TWO" in text_of({**OPERANDS, "cluster_m": 2, "use_2cta_instrs": True})
    assert "CtaGroup.ONE" in text_of({**OPERANDS, "bm": 256, "cluster_m": 2, "use_2cta_instrs": False})


def test_what_the_kernel_is_marked_with_reaches_the_launch():
    text = text_of({**OPERANDS, "use_pdl": True}, cluster=(1, 2, 1), min_blocks=1, carveout=25)
    for said in ("cluster=(1, 2, 1)", "use_pdl=True", "min_blocks_per_mp=1", "preferred_smem_carveout=25"):
        assert said in text
    assert "use_pdl" not in text_of(OPERANDS)
    assert "use_pdl=True" in host_text("k", ARRAYS, LaunchMarks(pdl=True), (1, 1, 1), (32, 1, 1))


def test_operands_that_lie_the_other_way():
    text = text_of({**OPERANDS, "a_k_major": False, "b_k_major": True})
    assert "OperandMajorMode.MN, cute.nvgpu.OperandMajorMode.K" in text
    assert "is_k_major=False" in text
    assert "is_k_major=True" in text


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("tcgen05_grouped_static_persistent", "grouped matmuls"),
        ("tcgen05_grouped_rna", "grouped matmuls"),
        ("tcgen05_grouped_tma_rn", "grouped matmuls"),
        ("chunk_prepare_tma", "chunked kernels"),
        ("chunk_recurrence_sm100", "chunked kernels"),
        ("helion_flash_bwd", "attention"),
        ("tcgen05_aux_tma", "a second input"),
        ("block_scaled_mma", "kernels that need it"),
        ("None", "kernels that need it"),
    ],
)
def test_plans_of_anything_else_are_refused_by_name(kind, why):
    with pytest.raises(UnsupportedError, match=f"k: Silo does not serve Helion's plan {kind}, which is for {why}"):
        read_plans("k", [OPERANDS, {"kind": kind}], 3)


@pytest.mark.parametrize(
    "extra",
    [
        {"orientation": "nm"},
        {"dynamic_ab_tensormaps": True},
        {"fixed_ab_tensormaps": True},
        {"shared_rhs": True},
        {"smem_swizzle_a": 64},
        {"lhs_tma_order": (1, 2, 0)},
        {"something_new": 0},
    ],
)
def test_what_a_plan_asks_for_beyond_one_matmul_is_refused_by_name(extra):
    (name,) = extra
    with pytest.raises(UnsupportedError, match=f"does not make what {name} of its plan tcgen05_ab_tma asks for"):
        read_plans("k", [{**OPERANDS, **extra}], 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bm": "128"}, "bm of its plan tcgen05_ab_tma is '128'"),
        ({"bm": True}, "bm of its plan"),
        ({"lhs_idx": -1}, "lhs_idx of its plan"),
        ({"rhs_idx": 3}, "name argument 3, and the call has 3"),
        ({"input_dtype": "cutlass.BFloat16); import os; ("}, "not a dtype of cutlass"),
        ({"kernel_args": ["a", "b", "c"]}, "not 4 names"),
        ({"kernel_args": ["a", "b", "c", "d = 1"]}, "not 4 names"),
        ({"kernel_args": None}, "not 4 names"),
    ],
)
def test_plans_that_make_no_sense_are_refused(change, message):
    with pytest.raises(UnsupportedError, match=message.replace("(", r"\(")):
        read_plans("k", [{**OPERANDS, **change}], 3)


def test_plans_of_several_matmuls_or_of_none_are_refused():
    with pytest.raises(UnsupportedError, match="several plans tcgen05_ab_tma: Silo serves kernels of one matmul"):
        read_plans("k", [OPERANDS, OPERANDS], 3)
    with pytest.raises(UnsupportedError, match="lack tcgen05_ab_tma"):
        read_plans("k", [STORE], 3)


def test_operands_have_two_axes():
    with pytest.raises(UnsupportedError, match="y of a matmul has 3 axes, not 2"):
        host_lines(read_plans("k", [OPERANDS], 3), ["x", "y", "out"], {0: (4, 4), 1: (2, 4, 4), 2: (4, 4)})
