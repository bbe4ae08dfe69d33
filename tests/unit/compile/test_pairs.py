import pytest

from silo.compile.build_list import LeftOut, pair_kernels
from silo.core.decisions import Accepted, Rejected
from silo.core.device import Target
from silo.errors import TargetError

CPU, GPU, TPU = (Target.parse(text) for text in ("cpu:x86-64-v3", "cuda:sm_90", "tpu:v5e"))


def only(*targets):
    return lambda target: Accepted() if target in targets else Rejected(f"nothing makes it for {target}")


def test_each_kernel_is_paired_with_the_targets_that_its_kind_has():
    pairs = pair_kernels({"add": only(CPU, GPU), "poem": only(TPU)}, [CPU, GPU, TPU])
    assert pairs.targets == {"add": (CPU, GPU), "poem": (TPU,)}
    assert pairs.left_out == (
        LeftOut("add", "tpu:v5e", "nothing makes it for tpu:v5e"),
        LeftOut("poem", "cpu:x86-64-v3", "nothing makes it for cpu:x86-64-v3"),
        LeftOut("poem", "cuda:sm_90", "nothing makes it for cuda:sm_90"),
    )
    assert str(pairs.left_out[0]) == "add is left out for tpu:v5e: nothing makes it for tpu:v5e"


def test_a_kernel_without_a_target_is_an_error():
    with pytest.raises(TargetError, match=r"(?s)poem is for none of the targets; .*\nnothing makes it for cuda:sm_90"):
        pair_kernels({"add": only(CPU, GPU), "poem": only(TPU)}, [CPU, GPU])


def test_a_target_without_a_kernel_is_an_error():
    with pytest.raises(TargetError, match=r"(?s)no kernel is for tpu:v5e; .*\nnothing makes it for tpu:v5e$"):
        pair_kernels({"add": only(CPU), "mul": only(CPU)}, [CPU, TPU])


def test_nothing_to_pair():
    assert pair_kernels({}, [CPU]).targets == {}
    assert pair_kernels({"add": only()}, []).targets == {"add": ()}
