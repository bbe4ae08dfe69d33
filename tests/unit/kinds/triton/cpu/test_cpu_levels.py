"""CPU levels from what the system says."""

from __future__ import annotations

import pytest

from silo.core.device import CPU_LEVELS, Target
from silo.drivers.cpu import levels
from silo.drivers.cpu.levels import LEVELS, CpuFacts, highest_level, level_of, parse_cpuinfo
from silo.errors import TargetError

V2, V3, V4 = (LEVELS[name].features for name in CPU_LEVELS["x86-64"])


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (CpuFacts("x86_64", features=V2 | V3 | V4 | {"amx_tile"}), "x86-64-v4"),
        (CpuFacts("x86_64", features=V2 | V3), "x86-64-v3"),
        (CpuFacts("x86_64", features=V2 | V3 | V4 - {"avx512dq"}), "x86-64-v3"),
        (CpuFacts("x86_64", features=V2 | V4), "x86-64-v2"),  # levels nest: a gap below ends the climb
        (CpuFacts("x86_64", features=V2 - {"popcnt"}), None),
        (CpuFacts("aarch64", features=LEVELS["aarch64-armv8.2"].features), "aarch64-armv8.2"),
        (CpuFacts("aarch64", features=frozenset({"fp", "asimd"})), None),
        (CpuFacts("riscv64", features=V2), None),
    ],
)
def test_highest_level(facts, level):
    assert highest_level(facts) == level


def test_every_level_of_targets_has_flags():
    assert set(LEVELS) == {name for names in CPU_LEVELS.values() for name in names}
    assert all("native" not in flag for level in LEVELS.values() for flag in level.flags)


def test_features_are_those_all_cores_share():
    text = "processor : 0\nmodel name : Example 9000\nflags : a b c\n\nprocessor : 1\nflags\t\t: b c d\n"
    assert parse_cpuinfo(text) == ("Example 9000", frozenset({"b", "c"}))
    assert parse_cpuinfo("Features : fp asimd\n") == ("", frozenset({"fp", "asimd"}))
    assert parse_cpuinfo("") == ("", frozenset())


def test_level_of_a_target():
    assert level_of(Target.parse("cpu:x86-64-v3")).vector_bits == 256
    for text in ("cpu", "cuda:sm_90"):
        with pytest.raises(TargetError, match="cpu:x86-64-v3"):
            level_of(Target.parse(text))


def test_host_target_names_the_cpu_where_there_is_no_level(monkeypatch):
    monkeypatch.setattr(levels, "gather_facts", lambda: CpuFacts("x86_64", "Old One", frozenset({"sse2"})))
    with pytest.raises(TargetError, match="Old One"):
        levels.host_target()
    monkeypatch.setattr(levels, "gather_facts", lambda: CpuFacts("x86_64", "New One", V2 | V3))
    assert levels.host_target() == Target("cpu", "x86-64-v3")


def test_facts_without_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(levels, "_CPUINFO", tmp_path / "absent")
    levels.gather_facts.cache_clear()
    try:
        assert levels.gather_facts().features == frozenset()
    finally:
        levels.gather_facts.cache_clear()
