"""Rules of the choice in C, each beside the Python it follows."""

import ctypes
import itertools
import random

import pytest

from core_choice import Maker, library
from silo.artifacts.runs_on import CUDA_FAMILIES, HIP_GENERIC, runs_on
from silo.backends.cpu.levels import gather_facts, highest_level
from silo.core.dispatch import bucket_of, distance
from silo.core.dtypes import dtype
from silo.core.target import CPU_LEVELS, Target

NUMBERS = sorted({number for family in CUDA_FAMILIES for number in family} | {70, 75, 80, 86, 89, 90, 100, 130})
CUDA = [f"cuda:sm_{number}{suffix}" for number in NUMBERS for suffix in ("", "a", "f")]
PROCESSORS = {one for covered in HIP_GENERIC.values() for one in covered} | {"gfx908", "gfx90a", "gfx1299"}
HIP = [f"hip:{name}" for name in (*sorted(PROCESSORS), *HIP_GENERIC, "gfx13-generic")]
CPU = [f"cpu:{level}" for levels in CPU_LEVELS.values() for level in levels]
OTHER = ["metal:3.1", "metal:3.2", "tpu:v5e", "cuda:sm_00", "cuda", "cpu", "fake:x", "hip:"]


def in_c(built: str, device: str, kind: str) -> tuple[bool, str]:
    reason = ctypes.create_string_buffer(512)
    runs = library().silo_runs_on(built.encode(), device.encode(), kind.encode(), reason, len(reason))
    assert runs == library().silo_runs_on(built.encode(), device.encode(), kind.encode(), None, 0)
    return runs, reason.value.decode()


def parsed(text: str) -> Target:
    kind, _, arch = text.partition(":")
    return Target(kind, arch)


@pytest.mark.parametrize(
    "targets", [CUDA, HIP, [*CPU, *OTHER, "cuda:sm_90", "hip:gfx942"]], ids=["cuda", "hip", "other"]
)
def test_the_same_devices_run_the_same_code_for_the_same_reason(targets):
    for built, device in itertools.product(targets, repeat=2):
        for kind in ("ptx", "cubin") if built.startswith("cuda") else ("so",):
            decision = runs_on(parsed(built), parsed(device), kind)
            built_text, device_text = built.removesuffix(":"), device.removesuffix(":")
            assert in_c(built_text, device_text, kind) == (bool(decision), decision.reason)


def test_a_reason_is_cut_to_its_room():
    reason = ctypes.create_string_buffer(b"#" * 16, 16)
    assert not library().silo_runs_on(b"cuda:sm_90a", b"cuda:sm_80", b"cubin", reason, 8)
    assert reason.raw == b"sm_90a \0" + b"#" * 8


def test_cpuid_and_the_system_agree_on_this_cpu():
    found = library().silo_cpu_level()
    assert (None if found is None else found.decode()) == highest_level(gather_facts())


def random_value(source: random.Random):
    kinds = [
        lambda: source.randrange(-20, 40),
        lambda: source.choice([1, -1]) * source.randrange(1 << source.randrange(1, 64)),
        lambda: source.choice([1, -1]) * source.getrandbits(source.randrange(64, 400)),
        lambda: source.choice([True, False, None, "relu", "", 1.0, 0.5, -0.0, 0.0]),
        lambda: dtype(source.choice(["float32", "int8"])),
        lambda: (source.randrange(2), source.choice([True, 1, "a"])),
    ]
    return source.choice(kinds)()


def test_buckets_are_as_far_apart_as_python_has_them():
    source = random.Random(5)
    compared = 0
    for _ in range(20_000):
        left, right = random_value(source), random_value(source)
        left = bucket_of((left,))[0]
        expected = distance((left,), (right,))
        maker = Maker()
        one, other = maker.value(left), maker.value(right)
        found = library().silo_bucket_distance(ctypes.byref(one), ctypes.byref(other))
        assert found == (-1 if expected is None else expected), (left, right)
        compared += expected is not None
    assert compared > 2000
