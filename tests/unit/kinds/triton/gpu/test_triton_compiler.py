"""Real compiles for GPUs that are not here. Needs Triton, no GPU."""
# pyright: reportMissingImports=false

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import silo
from silo.artifacts.binary_inspection import free_of_folders, inspect_binary
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import CompileError, SourceError
from silo.kinds.triton.front.gpu_layout import argument_slots, complete_layout
from silo.kinds.triton.gpu.gpu_compiler import TritonCompiler

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (rk[None, :] + k))
        y = tl.load(b + (rk[:, None] + k) * N + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def scalars(out, flag, h, b, f, d, i8, i16, i64, u8, u32, one, nothing):
    value = h.to(tl.float32) + b.to(tl.float32) + f + d.to(tl.float32) + i8 + i16 + i64 + u8 + u32 + one
    if nothing is None:
        value += 1
    if flag:
        tl.store(out, value)
"""

P, I, F, B, C = (  # noqa: E741  # one letter per kind keeps the signatures in one line
    ParameterKind.POINTER,
    ParameterKind.INTEGER,
    ParameterKind.FLOAT,
    ParameterKind.BOOL,
    ParameterKind.CONSTEXPR,
)


def signature(**parameters):
    return Signature(
        tuple(Parameter(name, kind, dtype(rest[0]) if rest else None) for name, (kind, *rest) in parameters.items())
    )


ADD = signature(x=(P, "fp32"), y=(P, "fp32"), out=(P, "fp32"), n=(I, "i32"), BLOCK=(C,))
MATMUL = signature(
    a=(P, "fp16"), b=(P, "fp16"), c=(P, "fp16"), M=(I, "i32"), N=(I, "i32"), K=(I, "i32"), BM=(C,), BN=(C,), BK=(C,)
)
SCALARS = signature(
    out=(P, "fp32"),
    flag=(B, "bool"),
    h=(F, "fp16"),
    b=(F, "bf16"),
    f=(F, "fp32"),
    d=(F, "fp64"),
    i8=(I, "i8"),
    i16=(I, "i16"),
    i64=(I, "i64"),
    u8=(I, "u8"),
    u32=(I, "u32"),
    one=(I, "i32"),
    nothing=(P, "fp32"),
)


class Source:
    kind = "triton"
    fingerprint = "0" * 64

    def __init__(self, function, typed):
        self.function = function
        self.name = function.__name__
        self.signature = typed


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "silo_gpu_kernels.py"
    path.write_text(KERNELS)
    sys.path.insert(0, str(path.parent))
    try:
        import silo_gpu_kernels
    finally:
        sys.path.remove(str(path.parent))
    return silo_gpu_kernels


def job_for(function, typed, target, config, specialization=None):
    source = Source(function, typed)
    variant = Variant(source.name, "0" * 64, typed, specialization or Specialization(), config, Target.parse(target))
    return TritonCompiler().lower(source, variant).job


def test_options_of_cpus_do_not_change_the_job(kernels):
    plain = job_for(kernels.add, ADD, "cuda:sm_80", Config.of(BLOCK=512, num_warps=4))
    config = Config.of(BLOCK=512, num_warps=4, cpu_chunk=4, cpu_dot_rows=8, cpu_threads=1)
    assert job_for(kernels.add, ADD, "cuda:sm_80", config) == plain
    assert job_for(kernels.add, ADD, "cuda:sm_80", Config.of(BLOCK=512, num_warps=8)) != plain


def build(function, typed, target, config, specialization=None):
    return TritonCompiler().compile(job_for(function, typed, target, config, specialization))


def layout_of(compiled):
    return [(slot.name, slot.type.value) for slot in compiled.launch.layout]


ADD_LAYOUT = [("x", "ptr"), ("y", "ptr"), ("out", "ptr"), ("n", "i32"), ("", "scratch"), ("", "profile")]
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "sm_120a")


@pytest.mark.parametrize("arch", TARGETS)
def test_a_cubin_for_every_nvidia_target(kernels, arch):
    compiled = build(kernels.add, ADD, f"cuda:{arch}", Config.of(BLOCK=512, num_warps=8))
    launch = compiled.launch
    assert compiled.blob.kind == "cubin"
    assert (launch.entry, launch.num_warps, launch.threads, launch.cluster) == ("add", 8, 256, (1, 1, 1))
    assert (launch.shared_bytes, launch.scratch_bytes, launch.profile_bytes) == (0, 0, 0)
    assert (launch.cooperative, launch.pdl, launch.spills) == (False, False, 0)
    assert launch.registers > 0
    assert layout_of(compiled) == ADD_LAYOUT
    (kernel,) = inspect_binary(compiled.blob.data, "cubin")
    assert kernel.arch == arch.rstrip("a")
    assert not compiled.log


@pytest.mark.parametrize(("arch", "threads"), [("gfx90a", 256), ("gfx942", 256), ("gfx1100", 128)])
def test_an_hsaco_for_every_amd_target(kernels, arch, threads):
    compiled = build(kernels.add, ADD, f"hip:{arch}", Config.of(BLOCK=512, num_warps=4))
    launch = compiled.launch
    assert compiled.blob.kind == "hsaco"
    assert (launch.entry, launch.num_warps, launch.threads) == ("add", 4, threads)
    assert layout_of(compiled) == ADD_LAYOUT
    assert launch.registers > 0
    (kernel,) = inspect_binary(compiled.blob.data, "hsaco")
    assert kernel.arch == arch


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90", "hip:gfx942"])
def test_a_matmul_needs_shared_memory(kernels, target):
    compiled = build(kernels.matmul, MATMUL, target, Config.of(BM=64, BN=64, BK=32, num_warps=4, num_stages=2))
    assert compiled.launch.shared_bytes > 0
    assert compiled.launch.registers > 16
    assert [slot.name for slot in compiled.launch.layout if slot.name] == ["a", "b", "c", "M", "N", "K"]


def test_spills_are_seen(kernels):
    config = Config.of(BM=64, BN=64, BK=32, num_warps=4, maxnreg=48)
    launch = build(kernels.matmul, MATMUL, "cuda:sm_80", config).launch
    assert launch.registers <= 48
    assert launch.spills > 0


def test_a_cluster_and_programmatic_launch(kernels):
    config = Config.of(BLOCK=1024, num_ctas=2, launch_pdl=True, launch_cooperative_grid=True)
    launch = build(kernels.add, ADD, "cuda:sm_90", config).launch
    assert launch.cluster == (2, 1, 1)
    assert launch.pdl
    assert launch.cooperative


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90", "hip:gfx942"])
def test_constants_are_folded_out_of_the_layout(kernels, target):
    facts = Specialization((("one", Fact.EQUAL_1), ("nothing", Fact.NONE), ("out", Fact.ALIGNED_16)))
    compiled = build(kernels.scalars, SCALARS, target, Config(), facts)
    kinds = [slot.type for slot in compiled.launch.layout]
    assert kinds == [
        AbiType.POINTER,
        AbiType.I1,
        AbiType.FP16,
        AbiType.BF16,
        AbiType.FP32,
        AbiType.FP64,
        AbiType.I8,
        AbiType.I16,
        AbiType.I64,
        AbiType.U8,
        AbiType.U32,
        AbiType.SCRATCH,
        AbiType.PROFILE,
    ]


def test_alignment_changes_the_code(kernels):
    config = Config.of(BLOCK=512)
    aligned = Specialization((*((name, Fact.ALIGNED_16) for name in ("x", "y", "out")), ("n", Fact.DIVISIBLE_16)))
    assert (
        build(kernels.add, ADD, "cuda:sm_80", config).blob
        != build(kernels.add, ADD, "cuda:sm_80", config, aligned).blob
    )


def test_the_specific_form_is_the_same_job(kernels):
    config = Config.of(BLOCK=512)
    assert job_for(kernels.add, ADD, "cuda:sm_90", config) == job_for(kernels.add, ADD, "cuda:sm_90a", config)
    assert job_for(kernels.add, ADD, "cuda:sm_80", config).target == Target.parse("cuda:sm_80")


def test_a_binary_that_takes_other_parameters_is_refused(kernels):
    compiled = build(kernels.add, ADD, "cuda:sm_80", Config.of(BLOCK=512))
    (kernel,) = inspect_binary(compiled.blob.data, "cubin")
    slots = argument_slots(ADD, Specialization())
    assert complete_layout(slots, kernel) == compiled.launch.layout
    with pytest.raises(CompileError, match="takes 6 parameters"):
        complete_layout(slots[:3], kernel)
    with pytest.raises(CompileError, match="takes 6 parameters"):
        complete_layout(slots + slots, kernel)
    with pytest.raises(CompileError, match="the parameter n has 4 bytes at 24"):
        complete_layout((*slots[:3], slots[0].__class__("n", AbiType.I64)), kernel)


def test_options_that_triton_refuses_name_them(kernels):
    with pytest.raises(CompileError, match="num_warps"):
        job_for(kernels.add, ADD, "cuda:sm_80", Config.of(BLOCK=512, num_warps=3))
    with pytest.raises(CompileError, match="num_ctas"):
        job_for(kernels.add, ADD, "cuda:sm_80", Config.of(BLOCK=512, num_ctas=2))


def test_a_failed_stage_says_why_and_not_the_whole_assembly(kernels):
    config = Config.of(BM=64, BN=64, BK=32, num_warps=4, maxnreg=48)
    with pytest.raises(CompileError, match="Insufficient registers") as caught:
        build(kernels.matmul, MATMUL, "cuda:sm_90", config)
    assert len(str(caught.value)) < 2000


def test_a_foreign_source_is_refused():
    class Other:
        name = "other"

    variant = Variant("other", "", Signature(()), Specialization(), Config(), Target.parse("cuda:sm_80"))
    with pytest.raises(SourceError, match="no Triton source"):
        TritonCompiler().lower(Other(), variant)


@pytest.mark.parametrize(
    ("kind", "target", "reason"),
    [
        ("triton", "cuda:sm_90", None),
        ("triton", "cuda:sm_120a", None),
        ("triton", "hip:gfx1100", None),
        ("binary", "cuda:sm_90", "triton kernels only"),
        ("triton", "cpu:x86-64-v3", "not for cpu"),
        ("triton", "cuda", "names no arch"),
        ("triton", "cuda:sm_100f", "family-specific"),
        ("triton", "cuda:sm_86a", "does not exist"),
        ("triton", "hip:gfx11-generic", "generic"),
    ],
)
def test_what_it_accepts(kind, target, reason):
    decision = TritonCompiler().accepts(kind, Target.parse(target))
    assert bool(decision) is (reason is None)
    assert (reason or "Triton 3.") in decision.reason


@pytest.mark.parametrize(
    ("asked", "made"),
    [("sm_89", "sm_89"), ("sm_90", "sm_90a"), ("sm_90a", "sm_90a"), ("sm_100", "sm_100a"), ("sm_120", "sm_120a")],
)
def test_the_target_the_code_is_really_for(asked, made):
    assert TritonCompiler().artifact_target(Target("cuda", asked)) == Target("cuda", made)
    assert TritonCompiler().artifact_target(Target("hip", "gfx942")) == Target("hip", "gfx942")


def test_the_identity_is_stable_and_free_of_paths(monkeypatch):
    target = Target.parse("cuda:sm_90")
    identity = TritonCompiler().identity(target)
    assert re.fullmatch(r"triton 3\.[0-9.]+ files [0-9a-f]{16}( env [0-9a-f]{16})? cuda code [0-9a-f]{32}", identity)
    assert TritonCompiler().identity(target) == identity
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere/else")
    assert TritonCompiler().identity(target) == identity
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/somewhere/else")
    assert TritonCompiler().identity(target) != identity


def test_the_identity_needs_no_import_of_triton():
    code = (
        "import sys; from silo.kinds.triton.gpu.gpu_compiler import TritonCompiler; "
        "from silo.core.device import Target; "
        "TritonCompiler().identity(Target.parse('cuda:sm_90')); print('triton' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(silo.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


FOLDER_SCRIPT = """
import hashlib, json, sys, warnings
sys.path.insert(0, sys.argv[1])
import test_triton_compiler_helper as helper
print(json.dumps(helper.digests()))
"""

HELPER = """
import hashlib
import silo_gpu_kernels as kernels
from test_triton_compiler import ADD, MATMUL, Config, build

def digests():
    result = {}
    for target in ("cuda:sm_80", "cuda:sm_90", "hip:gfx942"):
        made = (
            build(kernels.add, ADD, target, Config.of(BLOCK=512)),
            build(kernels.matmul, MATMUL, target, Config.of(BM=32, BN=32, BK=32)),
        )
        result[target] = [hashlib.sha256(compiled.blob.data).hexdigest() for compiled in made]
    return result
"""


def test_the_same_bytes_from_two_folders(tmp_path):
    results = []
    for name in ("here", "somewhere/quite/else"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "silo_gpu_kernels.py").write_text(KERNELS)
        (folder / "test_triton_compiler_helper.py").write_text(HELPER)
        shutil.copy(__file__, folder / "test_triton_compiler.py")
        environment = {**os.environ, "PYTHONPATH": str(Path(silo.__file__).parent.parent)}
        done = subprocess.run(
            [sys.executable, "-c", FOLDER_SCRIPT, str(folder)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    assert results[0] == results[1]
    assert len({digest for digests in results[0].values() for digest in digests}) == 6


def test_no_path_of_the_kernel_file_in_a_blob(kernels):
    data = build(kernels.add, ADD, "cuda:sm_90", Config.of(BLOCK=512)).blob.data
    assert free_of_folders(data, [Path(kernels.__file__).parent])
    assert b"silo_gpu_kernels" not in data


def cuobjdump():
    found = shutil.which("cuobjdump")
    if found is None:
        import triton

        bundled = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        found = str(bundled) if bundled.exists() else None
    return found


@pytest.mark.parametrize(("target", "most"), [("cuda:sm_80", 48), ("cuda:sm_90", None), ("cuda:sm_120", 48)])
def test_registers_and_stack_agree_with_cuobjdump(kernels, target, most, tmp_path):
    tool = cuobjdump()
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    config = Config.of(BM=64, BN=64, BK=32, num_warps=4, maxnreg=most)
    data = build(kernels.matmul, MATMUL, target, config).blob.data
    (kernel,) = inspect_binary(data, "cubin")
    (tmp_path / "k.cubin").write_bytes(data)
    said = subprocess.run(
        [tool, "--dump-resource-usage", str(tmp_path / "k.cubin")], capture_output=True, text=True, check=True
    ).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|SHARED):(\d+)", said)}
    assert found == {"REG": kernel.registers, "STACK": kernel.local_bytes, "SHARED": kernel.shared_bytes}
