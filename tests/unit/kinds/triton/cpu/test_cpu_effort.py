# ruff: noqa: E402  # Triton may be absent, which comes first
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false
"""Less effort of the C compiler: for long kernels, and after a fault of its own; in the code and in the log."""

import stat

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
from silo.errors import CompileError
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
    ("characters", "flag"),
    [
        (200_000, "-O2"),
        (200_001, "-O1"),
        (400_000, "-O1"),
        (400_001, "-Og"),
        (1_000_000, "-Og"),
        (1_000_001, "-O0"),
    ],
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


def faulty(tmp_path, monkeypatch, condition):
    """A C compiler that fails as gcc does with a fault of its own, if a condition of the shell holds for its flags."""
    place = tmp_path / "faulty-cc"
    real = find_compiler(settings().cc).command
    place.write_text(
        "#!/bin/bash\n"
        f'flags=" $* "\nif [[ "$flags" == *" -x c "* ]] && {condition}; then cat > /dev/null\n'
        "echo '<stdin>:334:9: internal compiler error: in convert_mult_to_fma, at tree-ssa-math-opts.cc:3510' >&2\n"
        f'exit 1; fi\nexec {" ".join(real)} "$@"\n'
    )
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return find_compiler(str(place))


def compiled_long(toolchain):
    source = TritonSource.of(long)
    x = np.ones(16, np.float32)
    facts = {"x": ArgumentFacts.array("float32", x.ctypes.data), "n": ArgumentFacts(1000), "U": ArgumentFacts(2)}
    signature, found = source.specialize(facts)
    variant = Variant(source.name, source.fingerprint, signature, found, Config(), host_target())
    done = jobs.compile_ttir(CpuCompiler().lower(source, variant).job, toolchain)
    load(done).run((1,), {"x": x, "n": 1000})
    return done, x


@needs_compiler
@pytest.mark.parametrize(
    ("condition", "cost"),
    [
        ('[[ "$flags" == *" -fopenmp-simd "* ]]', "without vectors"),
        ('[[ "$flags" != *" -Og "* ]]', "with -Og, without vectors"),
    ],
)
def test_a_fault_of_the_c_compiler_is_passed_with_fewer_passes_and_the_log_says_so(
    condition, cost, tmp_path, monkeypatch
):
    done, x = compiled_long(faulty(tmp_path, monkeypatch, condition))
    np.testing.assert_array_equal(x, np.full(16, 1.75, np.float32))
    assert f"which is compiled {cost} and may run slower" in done.log
    assert "convert_mult_to_fma" in done.log


@needs_compiler
def test_a_fault_that_stays_is_the_error_of_the_first_attempt(tmp_path, monkeypatch):
    with pytest.raises(CompileError, match="internal compiler error: in convert_mult_to_fma") as caught:
        compiled_long(faulty(tmp_path, monkeypatch, "true"))
    assert type(caught.value) is CompileError
    assert "-fopenmp-simd" in str(caught.value)
