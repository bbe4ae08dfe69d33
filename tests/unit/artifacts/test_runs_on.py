import itertools

import pytest

from silo.artifacts.runs_on import runs_on
from silo.core.device import CPU_LEVELS, Target


def decide(built: str, device: str, kind: str = ""):
    return runs_on(Target.parse(built), Target.parse(device), kind)


CUDA = [
    # plain forms: same major, same or higher minor
    ("sm_80", "sm_80", True),
    ("sm_80", "sm_86", True),
    ("sm_80", "sm_87", True),
    ("sm_80", "sm_89", True),
    ("sm_86", "sm_80", False),
    ("sm_86", "sm_89", True),
    ("sm_89", "sm_86", False),
    ("sm_80", "sm_90", False),
    ("sm_80", "sm_75", False),
    ("sm_90", "sm_90", True),
    ("sm_90", "sm_90a", True),
    ("sm_90", "sm_100", False),
    ("sm_100", "sm_103", True),
    ("sm_103", "sm_100", False),
    ("sm_100", "sm_110", False),
    ("sm_100", "sm_120", False),
    ("sm_120", "sm_121", True),
    # architecture-specific: exactly that one
    ("sm_90a", "sm_90", True),
    ("sm_90a", "sm_90a", True),
    ("sm_90a", "sm_100", False),
    ("sm_90a", "sm_89", False),
    ("sm_100a", "sm_100", True),
    ("sm_100a", "sm_103", False),
    ("sm_103a", "sm_103", True),
    ("sm_103a", "sm_100", False),
    ("sm_120a", "sm_120", True),
    ("sm_120a", "sm_121", False),
    # family-specific
    ("sm_100f", "sm_100", True),
    ("sm_100f", "sm_103", True),
    ("sm_100f", "sm_103a", True),
    ("sm_103f", "sm_100", False),
    ("sm_100f", "sm_110", False),
    ("sm_100f", "sm_120", False),
    ("sm_120f", "sm_121", True),
    ("sm_121f", "sm_120", False),
    ("sm_110f", "sm_110", True),
    ("sm_90f", "sm_90", False),
]


@pytest.mark.parametrize(("built", "device", "expected"), CUDA)
def test_cubin(built, device, expected):
    decision = decide(f"cuda:{built}", f"cuda:{device}", "cubin")
    assert bool(decision) is expected
    assert built in decision.reason


@pytest.mark.parametrize(
    ("built", "device", "expected"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),
        ("sm_80", "sm_90", True),
        ("sm_80", "sm_121", True),
        ("sm_89", "sm_90", True),
        ("sm_90", "sm_89", False),
        ("sm_100", "sm_90", False),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_100f", "sm_103", True),
        ("sm_100f", "sm_120", False),
    ],
)
def test_ptx_is_a_forward_fallback_except_for_suffixed_forms(built, device, expected):
    assert bool(decide(f"cuda:{built}", f"cuda:{device}", "ptx")) is expected


def test_machine_code_never_goes_to_another_major_version():
    numbers = (75, 80, 86, 89, 90, 100, 103, 110, 120, 121)
    for built, device in itertools.product(numbers, numbers):
        if built // 10 != device // 10:
            for suffix in ("", "a", "f"):
                assert not decide(f"cuda:sm_{built}{suffix}", f"cuda:sm_{device}", "cubin")


@pytest.mark.parametrize(
    ("built", "device", "expected"),
    [
        ("gfx942", "gfx942", True),
        ("gfx942", "gfx90a", False),
        ("gfx90a", "gfx942", False),
        ("gfx1100", "gfx1101", False),
        ("gfx9-4-generic", "gfx942", True),
        ("gfx9-4-generic", "gfx950", True),
        ("gfx9-4-generic", "gfx90a", False),
        ("gfx9-generic", "gfx90a", False),
        ("gfx9-generic", "gfx906", True),
        ("gfx10-3-generic", "gfx1030", True),
        ("gfx10-3-generic", "gfx1010", False),
        ("gfx11-generic", "gfx1100", True),
        ("gfx11-generic", "gfx1200", False),
        ("gfx12-generic", "gfx1201", True),
        ("gfx7-generic", "gfx700", False),
    ],
)
def test_hsaco(built, device, expected):
    assert bool(runs_on(Target("hip", built), Target("hip", device), "hsaco")) is expected


def test_generic_processors_share_no_member():
    generic = [f"gfx{number}-generic" for number in ("9", "9-4", "10-1", "10-3", "11", "12")]
    for number in (*range(900, 960), *range(1000, 1300), "90a", "90c"):
        covering = [one for one in generic if runs_on(Target("hip", one), Target("hip", f"gfx{number}"), "hsaco")]
        assert len(covering) <= 1, covering


@pytest.mark.parametrize("machine", CPU_LEVELS)
def test_cpu_levels_nest(machine):
    levels = CPU_LEVELS[machine]
    for (low, built), (high, device) in itertools.product(enumerate(levels), enumerate(levels)):
        assert bool(decide(f"cpu:{built}", f"cpu:{device}", "so")) is (low <= high)


def test_a_different_machine_never_runs_the_code():
    decision = decide("cpu:aarch64-armv8.2", "cpu:x86-64-v4", "so")
    assert not decision
    assert "aarch64" in decision.reason
    assert "x86-64-v4" in decision.reason
    assert not decide("cpu:x86-64-v2", "cpu:aarch64-armv8.2", "so")


@pytest.mark.parametrize(
    ("built", "device"), list(itertools.permutations(["cuda:sm_80", "hip:gfx942", "cpu:x86-64-v3"], 2))
)
def test_kinds_never_mix(built, device):
    decision = decide(built, device)
    assert not decision
    assert built.partition(":")[0] in decision.reason
    assert device.partition(":")[0] in decision.reason


def test_other_kinds_compare_exactly():
    assert decide("fake:one", "fake:one", "fake")
    assert not decide("fake:one", "fake:two", "fake")
    assert not decide("tpu:v5e", "tpu:v6e")


@pytest.mark.parametrize(
    ("built", "device", "named"), [("cuda", "cuda:sm_80", "artifact"), ("cuda:sm_80", "cuda", "device")]
)
def test_a_target_without_arch_is_refused(built, device, named):
    decision = decide(built, device)
    assert not decision
    assert named in decision.reason


def test_unknown_forms_are_refused_not_raised():
    assert not runs_on(Target("cuda", "ninety"), Target("cuda", "sm_90"))
    assert not runs_on(Target("cuda", "sm_90"), Target("cuda", "ninety"))
    assert not runs_on(Target("cpu", "z80"), Target("cpu", "x86-64-v4"))
