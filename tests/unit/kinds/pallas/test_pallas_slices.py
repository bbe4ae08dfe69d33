"""Bundles of Pallas kernels, cut by target and joined again, are the same bytes."""

import pytest

from example_slices import check_round_trip

pytest.importorskip("jax", reason="compiles with jax")


@pytest.mark.parametrize("kernels", [["add", "softmax"], ["matmul"]])
def test_a_pallas_example_is_cut_and_joined_to_the_same_bytes(tmp_path, kernels):
    check_round_trip(tmp_path, "pallas_kernels.py", ["tpu:v5e", "tpu:v6e"], kernels)
