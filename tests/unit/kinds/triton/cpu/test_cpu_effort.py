# ruff: noqa: E402  # Triton may be absent, which comes first
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false
"""Long kernels are compiled with less effort: the decision, and that it reaches the C compiler and the log."""

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

from cpu_samples import needs_compiler
from silo.compile.c_compiler import find_compiler
from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.variant import Variant
from silo.drivers.cpu.levels import host_target, level_of
from silo.kinds.triton.cpu import cpu_jobs as jobs
from silo.kinds.triton.cpu.compile_effort import USUAL, CompileEffort, effort_of
from silo.kinds.triton.cpu.cpu_compiler import CpuCompiler
from silo.kinds.triton.cpu.object_build import compile_flags
from silo.kinds.triton.front.triton_source import TritonSource
from silo.launch.cpu_objects import load
from silo.settings import settings


@triton.jit
def long(x, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    for u in tl.static_range(U):
        if n > u:
            a = a * 0.5 + 1.0
    tl.store(x + i, a)


@pytest.mark.parametrize(
    ("characters", "flag"), [(0, "-O2"), (200_000, "-O2"), (200_001, "-O1"), (600_000, "-O1"), (600_001, "-Og")]
)
def test_the_length_of_the_text_decides(characters, flag):
    effort = effort_of(characters)
    assert effort.flag == flag
    assert (flag in effort.reason and f"{characters // 1000} kB" in effort.reason) or effort == CompileEffort(USUAL)


def test_the_flag_takes_the_place_of_the_usual_one():
    level = level_of(host_target())
    usual, less = compile_flags(level), compile_flags(level, effort="-O1")
    assert [one for one in zip(usual, less, strict=True) if one[0] != one[1]] == [("-O2", "-O1")]


@needs_compiler
@pytest.mark.parametrize(("links", "flag"), [(4, "-O2"), (400, "-O1")])
def test_the_c_compiler_gets_it_and_the_log_says_so(links, flag, monkeypatch):
    given = []

    def built(text, flags, toolchain):
        given.extend(one for one in flags if one.startswith("-O"))
        return build(text, flags, toolchain)

    build = jobs.build_kernel
    monkeypatch.setattr(jobs, "build_kernel", built)
    source = TritonSource.of(long)
    x = np.ones(16, np.float32)
    facts = {
        "x": ArgumentFacts.array("float32", x.ctypes.data), "n": ArgumentFacts(1000), "U": ArgumentFacts(links)
    }  # fmt: skip
    signature, found = source.specialize(facts)
    variant = Variant(source.name, source.fingerprint, signature, found, Config(), host_target())
    done = jobs.compile_ttir(CpuCompiler().lower(source, variant).job, find_compiler(settings().cc))
    assert given == [flag]
    assert (f"compiled with {flag}" in done.log) == (flag != USUAL)
    load(done).run((1,), {"x": x, "n": 1000})
    expected = np.float32(1)
    for _ in range(links):
        expected = expected * np.float32(0.5) + np.float32(1)
    np.testing.assert_array_equal(x, expected)
