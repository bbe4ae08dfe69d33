"""Bundles of the examples, cut by target and joined again, are the same bytes. Other compilers have their own tests."""

import pytest

from example_slices import check_round_trip

EXAMPLES = {
    "kernels.py": (["cpu:x86-64-v3", "cuda:sm_90", "hip:gfx942"], ["add", "softmax"]),
    "combo.py": (["cpu:x86-64-v3", "cuda:sm_80"], None),
    "metal_kernels.py": (["metal:3.1", "metal:3.2"], None),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_cut_and_joined_to_the_same_bytes(tmp_path, example):
    targets, kernels = EXAMPLES[example]
    if "cpu:x86-64-v3" in targets:
        pytest.importorskip("triton", reason="the example has Triton kernels")
    check_round_trip(tmp_path, example, targets, kernels)
