"""CUDA C++ for AMD GPUs by clang and Triton's device libraries: built and read again, never run here."""

import pytest

import silo
from cuda_samples import VADD, variant_of
from silo.artifacts.binary_inspection import inspect_binary
from silo.commands.bundle_description import describe_bundle
from silo.errors import CompileError, CompilerMissingError
from silo.kinds.cuda_cpp.hip_compiler import HipCompiler, hip_tools
from silo.settings import override

try:
    hip_tools()
except CompilerMissingError as error:
    pytest.skip(str(error), allow_module_level=True)

COMPILER = HipCompiler()
SIGNATURE = "x: in *fp32, y: in *fp32, out: out *fp32, n: i32"  # no NVRTC reads it


@pytest.fixture(autouse=True)
def store(tmp_path):
    with override(home=tmp_path / "home"):
        yield


def compiled(made, target, **values):
    return COMPILER.compile(COMPILER.lower(made.kernel.source, variant_of(made, target, **values)).job)


@pytest.mark.parametrize(("arch", "warp"), [("gfx90a", 64), ("gfx942", 64), ("gfx1100", 32)])
def test_a_template_is_built_for_each_chip(arch, warp):
    made = silo.cuda(VADD, entry="vadd<float, 3>", threads="BLOCK", space={"BLOCK": [128]}, signature=SIGNATURE)
    found = compiled(made, f"hip:{arch}", BLOCK=128)
    (kernel,) = inspect_binary(found.blob.data, "hsaco")
    assert (kernel.arch, kernel.entry, kernel.most_threads) == (arch, found.launch.entry, 128)
    assert (found.blob.kind, found.launch.threads, found.launch.num_warps) == ("hsaco", 128, 128 // warp)
    assert compiled(made, f"hip:{arch}", BLOCK=128).blob == found.blob


def test_a_bundle_has_a_variant_for_each_chip(tmp_path):
    made = silo.cuda(
        VADD, entry="vadd<float, 3>", threads="BLOCK", space={"BLOCK": [64, 128]}, signature=SIGNATURE, grid=(1,)
    )

    @made.cases(n=[100])
    def _(n, make):
        x, y, out = make.normal(n), make.normal(n), make.empty(n)
        return silo.Case(args=(x, y, out, n), expected={"out": lambda: x.host + 3 * y.host})

    targets = ["hip:gfx90a", "hip:gfx942", "hip:gfx1100"]
    silo.build(made, output=tmp_path / "k.silo", targets=targets, tune="off")
    found = sorted(one.target for one in describe_bundle(tmp_path / "k.silo").variants)
    assert found == sorted(2 * targets)


def test_the_warp_size_is_a_fact_of_the_text_and_headers_travel(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.h").write_text('#include "../two.h"\n')
    (tmp_path / "two.h").write_text("#define TWO 2\n")
    (tmp_path / "k.hip").write_text(
        '#include "deep/one.h"\n#include <hip/hip_runtime.h>\n__global__ void k(int *x) { x[TWO] = SILO_WARP_SIZE; }\n'
    )
    made = silo.cuda(tmp_path / "k.hip", threads=64, signature="x: out *i32")
    job = COMPILER.lower(made.kernel.source, variant_of(made, "hip:gfx942")).job
    assert "v_mov_b32_e32 v1, 64" in COMPILER.code_form(job, "amdgcn")
    job = COMPILER.lower(made.kernel.source, variant_of(made, "hip:gfx1100")).job
    assert ", 32" in COMPILER.code_form(job, "amdgcn")


def test_errors_have_the_users_line_and_flags_are_translated(tmp_path):
    text = "\n__global__ void k(float *x) { x[0] = y; }\n"
    made = silo.cuda(text, threads=64, signature="x: out *fp32")
    with pytest.raises(CompileError, match=r"k: kernel\.cu:2: use of undeclared identifier 'y'"):
        compiled(made, "hip:gfx942")
    made = silo.cuda("__global__ void k(float *x) {}", threads=64, signature="x: out *fp32", flags=["-maxrregcount=32"])
    with pytest.raises(CompileError, match="-maxrregcount=32 of NVRTC has no equal"):
        compiled(made, "hip:gfx942")


def test_no_file_of_the_process_is_read(tmp_path, monkeypatch):
    (tmp_path / "leak.h").write_text("#define X 1\n")
    monkeypatch.chdir(tmp_path)
    made = silo.cuda('#include "leak.h"\n__global__ void k(int *x) { x[0] = X; }', threads=64, signature="x: out *i32")
    with pytest.raises(CompileError, match=r"leak\.h"):
        compiled(made, "hip:gfx942")


def test_no_assembly_reads_a_file():
    text = '__global__ void k(int *x) { __asm(".incbin \\"/etc/hostname\\""); }'
    made = silo.cuda(text, threads=64, signature="x: out *i32")
    with pytest.raises(CompileError, match=r"kernel\.cu:1: .*\nInline assembly is refused for AMD GPUs"):
        compiled(made, "hip:gfx942")
