import pytest

from silo.core.device import CPU_LEVELS, Target, target_kinds
from silo.errors import TargetError


@pytest.mark.parametrize(
    "text",
    [
        "cuda:sm_80",
        "cuda:sm_90a",
        "cuda:sm_120f",
        "cuda:sm_100a",
        "hip:gfx942",
        "hip:gfx90a",
        "hip:gfx9-generic",
        "tpu:v5e",
        "metal:3.1",
        "fake:one",
        "xpu:pvc",
        "cuda",
        "cpu",
        *(f"cpu:{one}" for levels in CPU_LEVELS.values() for one in levels),
    ],
)
def test_parse_and_print_are_inverse(text):
    assert str(Target.parse(text)) == text
    assert Target.parse(f" {text}\n") == Target.parse(text)
    assert Target.parse(text).is_concrete == (":" in text)


@pytest.mark.parametrize("kind", target_kinds())
def test_a_kind_alone_is_not_concrete(kind):
    assert not Target.parse(kind).is_concrete


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown target ''"),
        ("gpu", "the kind 'gpu' is none of cpu, cuda"),
        ("CUDA:sm_90", "the kind 'CUDA'"),
        ("cuda:90", "'90' is not an arch of cuda; write for example cuda:sm_90a"),
        ("cuda:sm_9", "not an arch of cuda"),
        ("cuda:sm_90b", "not an arch of cuda"),
        ("cuda:", "'' is not an arch of cuda"),
        ("cuda:sm_90:x", "not an arch of cuda"),
        ("hip:gfx", "write for example hip:gfx942"),
        ("cpu:x86-64", "write for example cpu:x86-64-v3"),
        ("cpu:x86-64-v5", "not an arch of cpu"),
        ("fake:", "not an arch of fake"),
        ("tpu:V 5", "not an arch of tpu"),
    ],
)
def test_what_does_not_parse_says_why(text, message):
    with pytest.raises(TargetError, match=message):
        Target.parse(text)


def test_targets_order_and_hash():
    targets = {Target.parse("cuda:sm_90"), Target("cuda", "sm_90"), Target.parse("cpu")}
    assert sorted(targets) == [Target("cpu"), Target("cuda", "sm_90")]
