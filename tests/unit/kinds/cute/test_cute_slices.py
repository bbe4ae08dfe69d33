"""Bundles of CuTe kernels, cut by target and joined again, are the same bytes."""

import pytest

from example_slices import check_round_trip

pytest.importorskip("cutlass", reason="compiles with the CuTe DSL")


@pytest.mark.parametrize("kernels", [["add", "row_sum"], ["dynamic_add"]])
def test_a_cute_example_is_cut_and_joined_to_the_same_bytes(tmp_path, kernels):
    check_round_trip(tmp_path, "cute_kernels.py", ["cuda:sm_80", "cuda:sm_90a"], kernels)
