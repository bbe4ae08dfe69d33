# ruff: noqa: E402  # Triton may be absent, which comes first; its constexprs are written in capitals
"""The CPU compiler plug-in: jobs, identity, what it refuses, and a kernel from source to result."""
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import CompileJob, Variant
from silo.drivers.cpu.levels import gather_facts, highest_level, host_target
from silo.errors import CompileError, CompilerMissingError, SourceError, TargetError, UnsupportedError
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.cpu_compiler import CpuCompiler
from silo.kinds.triton.cpu.cpu_jobs import entry_name
from silo.kinds.triton.front.triton_source import TritonSource
from silo.launch.cpu_objects import load, run
from silo.settings import override

pytestmark = [
    pytest.mark.skipif(
        shutil.which("cc") is None or highest_level(gather_facts()) is None,
        reason="needs a C compiler and a known CPU level",
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@triton.jit
def scale(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.exp(tl.load(x + i, mask=i < n)) * by + 1.0, mask=i < n)


@triton.jit
def waits(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.inline_asm_elementwise("nop;", "=r,r", [i], dtype=tl.int32, is_pure=False, pack=1)
    tl.inline_asm_elementwise("nop;", "=r,r", [i], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(x + i, i)


def pointer(name, element="float32"):
    return Parameter(name, ParameterKind.POINTER, dtype(element))


N = Parameter("n", ParameterKind.INTEGER, dtype("int32"))
BY = Parameter("by", ParameterKind.FLOAT, dtype("float32"))
BLOCK = Parameter("BLOCK", ParameterKind.CONSTEXPR)
SCALE = Signature((pointer("x"), pointer("out"), N, BY, BLOCK))


def variant(signature=SCALE, facts=(), config=None, target=None):
    specialization = Specialization(facts, (("BLOCK", 256),))
    return Variant("scale", "0" * 64, signature, specialization, config or Config(), target or host_target())


@pytest.fixture(scope="module")
def source():
    return TritonSource.of(scale)


@pytest.fixture(scope="module")
def job(source):
    return CpuCompiler().lower(source, variant()).job


@pytest.fixture(scope="module")
def compiled(job):
    return CpuCompiler().compile(job)


def check(compiled):
    x = np.linspace(-3, 3, 1000).astype(np.float32)
    out = np.full(1100, 7, np.float32)
    run(compiled, (5,), {"x": x, "out": out, "n": 1000, "by": 2.0})
    np.testing.assert_allclose(out[:1000], np.exp(x.astype(np.float64)) * 2 + 1, rtol=3e-7)
    np.testing.assert_array_equal(out[1000:], 7)


def test_a_kernel_from_source_to_result(compiled):
    check(compiled)
    kinds = [slot.type for slot in compiled.launch.layout]
    assert kinds == [AbiType.POINTER, AbiType.POINTER, AbiType.I32, AbiType.FP32]
    assert compiled.launch.threads == 1
    assert compiled.log == ""


def test_the_reference_mode_gives_the_same(source):
    compiler = CpuCompiler(reference=True)
    check(compiler.compile(compiler.lower(source, variant()).job))


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_level_of_this_machine(source, level):
    if not host_target().arch.startswith("x86-64") or level > host_target().arch:
        pytest.skip("this machine does not run the level")
    compiler = CpuCompiler()
    check(compiler.compile(compiler.lower(source, variant(target=Target("cpu", level))).job))


def test_options_of_gpus_do_not_change_the_job(source, job):
    config = Config.of(num_warps=8, num_stages=5, num_ctas=2)
    assert CpuCompiler().lower(source, variant(config=config)).job == job
    unfused = CpuCompiler().lower(source, variant(config=Config.of(enable_fp_fusion=False))).job
    assert unfused != job
    assert unfused.text == job.text


def test_options_of_cpus_reach_the_code_and_the_launch(source, job):
    config = Config.of(cpu_dot_rows=4, cpu_chunk=3, cpu_threads=2, cpu_work=77)
    chosen = CpuCompiler().lower(source, variant(config=config)).job
    assert chosen != job
    assert chosen.text == job.text
    launch = CpuCompiler().compile(chosen).launch
    assert launch.options == (("cpu_chunk", 3), ("cpu_threads", 2), ("cpu_work", 77))
    assert LaunchInfo.from_json(launch.to_json()) == launch


@pytest.mark.parametrize("option", [{"cpu_dot_rows": 17}, {"cpu_chunk": -1}, {"cpu_dot_units": "all"}])
def test_an_option_of_cpus_that_cannot_be(source, option):
    with pytest.raises(CompileError, match=f"{next(iter(option))}=.*means nothing"):
        CpuCompiler().lower(source, variant(config=Config.of(option)))


def test_a_job_travels_as_json(job, compiled):
    again = CompileJob.from_json(json.loads(json.dumps(job.to_json())))
    assert again == job
    assert CpuCompiler().compile(again) == compiled  # the same bytes, too


def test_nothing_names_a_place(job, compiled):
    texts = [job.text.encode(), compiled.blob.data, *(sidecar.data for sidecar in compiled.sidecars)]
    assert not [text for text in texts if b"/home" in text or b"/tmp" in text or b"test_cpu_compiler" in text]


def test_sidecars_are_the_c_source_and_the_ttir(job, compiled):
    kinds = {sidecar.kind: sidecar.data.decode() for sidecar in compiled.sidecars}
    assert kinds["ttir"] == job.text
    assert f"int32_t {compiled.launch.entry}(void *const *params" in kinds["c"]
    assert "#include" not in kinds["c"]


def test_the_entry_names_kernel_and_job(compiled):
    assert compiled.launch.entry.startswith("silo_scale_")
    assert entry_name("größe", "ab" * 32) == "silo_gr__e_abababababab"


def test_constants_leave_the_layout(source):
    facts = (("n", Fact.EQUAL_1), ("x", Fact.ALIGNED_16))
    compiler = CpuCompiler()
    made = compiler.compile(compiler.lower(source, variant(facts=facts)).job)
    assert [slot.name for slot in made.launch.layout] == ["x", "out", "by"]
    out = np.zeros(4, np.float32)
    load(made).run((1,), (np.zeros(4, np.float32), out, 4.0))
    np.testing.assert_array_equal(out, [5, 0, 0, 0])


def test_the_identity_is_stable_and_free_of_paths():
    identity = CpuCompiler().identity(host_target())
    assert "/" not in identity
    assert CpuCompiler().identity(host_target()) == identity


def test_what_it_accepts():
    compiler = CpuCompiler()
    assert compiler.accepts("triton", host_target())
    assert "compiles triton kernels only" in compiler.accepts("cute", host_target()).reason
    assert "cuda:sm_90" in compiler.accepts("triton", Target.parse("cuda:sm_90")).reason
    assert "cpu:x86-64-v3" in compiler.accepts("triton", Target.parse("cpu")).reason
    with override(cc="no-such-compiler"):
        refused = compiler.accepts("triton", host_target())
        assert not refused
        assert "no-such-compiler" in refused.reason


def test_unsupported_operations_are_listed_with_their_places():
    signature = Signature((pointer("x", "int32"), N, BLOCK))
    with pytest.raises(UnsupportedError, match=r"test_cpu_compiler\.py:\d+") as caught:
        CpuCompiler().lower(TritonSource.of(waits), replace(variant(signature), kernel="waits"))
    message = str(caught.value)
    assert message.count("inline_asm") >= 2
    assert "2 operations" in message


def test_other_sources_are_refused():
    class Binary:
        kind, name, fingerprint, signature = "binary", "blob", "", SCALE

    with pytest.raises(SourceError, match="binary"):
        CpuCompiler().lower(Binary(), variant())


def test_a_target_without_a_level_is_refused(source):
    with pytest.raises(TargetError, match="cpu:x86-64"):
        CpuCompiler().lower(source, variant(target=Target.parse("cpu")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": "nonsense"}, "cannot be read"),
        ({"parameters": {}}, "not one of the CPU compiler"),
        ({"parameters": {"layout": [], "options": {**CpuOptions().to_json(), "dot_rows": 17}}}, "options"),
        ({"parameters": {"layout": [["x"]], "options": CpuOptions().to_json()}}, "layout"),
        ({"parameters": {"layout": [], "options": CpuOptions().to_json()}}, "its layout says"),
    ],
)
def test_a_damaged_job_is_an_error(job, change, words):
    with pytest.raises(CompileError, match=words):
        CpuCompiler().compile(replace(job, **change))


def test_no_c_compiler(job):
    with override(cc="no-such-compiler"), pytest.raises(CompilerMissingError, match="SILO_CC"):
        CpuCompiler().compile(job)
