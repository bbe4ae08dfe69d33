"""Rules of the choice in C, each beside the values or the Python that it agrees with."""

import ctypes
import itertools
import lzma
import random
from pathlib import Path

from core_choice import Maker, library
from silo.artifacts.runs_on import runs_on
from silo.core.device import CPU_LEVELS, Target
from silo.core.dispatch import bucket_of, distance
from silo.core.values import dtype
from silo.drivers.cpu.levels import gather_facts, highest_level

VERDICTS = Path(__file__).parents[1] / "data" / "golden" / "runs_on.txt.xz"
NUMBERS = (70, 75, 80, 86, 89, 90, 100, 103, 110, 120, 121, 130)
CUDA = [f"cuda:sm_{number}{suffix}" for number in NUMBERS for suffix in ("", "a", "f")]
PROCESSORS = (
    *(f"gfx{number}" for number in (900, 902, 904, 906, 908, 909, "90a", "90c", 940, 941, 942, 950)),
    *(f"gfx{number}" for number in (1010, 1011, 1012, 1013, 1030, 1031, 1032, 1033, 1034, 1035, 1036)),
    *(f"gfx{number}" for number in (1100, 1101, 1102, 1103, 1150, 1151, 1152, 1153, 1200, 1201, 1299)),
    *(f"gfx{number}-generic" for number in ("9", "9-4", "10-1", "10-3", "11", "12", "13")),
)
HIP = [f"hip:{name}" for name in PROCESSORS]
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


def pairs():
    """Code and devices: for what it is built, the device, the kind of blob."""
    for targets in (CUDA, HIP, [*CPU, *OTHER, "cuda:sm_90", "hip:gfx942"]):
        for built, device in itertools.product(targets, repeat=2):
            for kind in ("ptx", "cubin") if built.startswith("cuda") else ("so",):
                yield built, device, kind


def test_devices_run_the_code_that_they_always_ran_for_the_same_reason():
    """Verdicts that a first implementation in Python gave, word by word."""
    kept = lzma.decompress(VERDICTS.read_bytes()).decode().splitlines()
    asked = list(pairs())
    assert len(kept) == len(asked) > 4000
    for (built, device, kind), line in zip(asked, kept, strict=True):
        decision = runs_on(parsed(built), parsed(device), kind)
        assert f"{bool(decision):d} {decision.reason}" == line, (built, device, kind)
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
