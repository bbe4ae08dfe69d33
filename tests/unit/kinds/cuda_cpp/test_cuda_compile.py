"""``silo.cuda`` by NVRTC, without a GPU: types, code, keys, limits and errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from cuda_samples import VADD, need_nvrtc, variant_of
from silo.artifacts.binary_inspection import inspect_binary
from silo.core.argument_facts import ArgumentFacts
from silo.core.signature import Effect
from silo.errors import ArgumentError, CompileError, CompilerMissingError, SourceError
from silo.kinds.cuda_cpp.nvrtc_compiler import NvrtcCompiler
from silo.kinds.cuda_cpp.nvrtc_process import ask_nvrtc
from silo.settings import override

NVRTC = need_nvrtc()
COMPILER = NvrtcCompiler()


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("home")):
        yield


def vadd(**options):
    options = {"entry": "vadd<float, 3>", "threads": "BLOCK", "space": {"BLOCK": [128, 256]}, **options}
    return silo.cuda(VADD, **options)


def compiled(made, target="cuda:sm_90a", **values):
    return COMPILER.compile(COMPILER.lower(made.kernel.source, variant_of(made, target, **values)).job)


def types_of(text, entry="k", **options):
    source = silo.cuda(text, entry=entry, threads=1, **options).kernel.source
    return [(one.type.form, one.type.spelled, one.type.dtype, one.type.bytes) for one in source.parameters]


# ---- types ----


def test_the_compiler_reads_the_types_of_parameters():
    text = """
    #include <cuda_fp16.h>
    typedef unsigned long long u64;
    enum class Mode : unsigned char { A, B };
    template <class T> using pointer = const T *;
    extern "C" __global__ void k(const float *__restrict__ a, float *const b, const int n, u64 seed, bool flag,
                                 Mode mode, __half h, __half *hs, float4 *vectors, void *raw, const char *const text,
                                 pointer<short> s, float (*callback)(float)) {}
    """
    found = types_of(text)
    assert [one[0] for one in found] == [*["pointer"] * 2, *["scalar"] * 5, *["pointer"] * 6]
    assert [one[2] for one in found] == [
        *("fp32", "fp32", "i32", "u64", "i1", "u8", "fp16", "fp16", "fp32", "", "i8", "i16", "")
    ]
    assert [one[3] for one in found[2:7]] == [4, 8, 1, 1, 2]
    assert found[0][1] == "const float *"


def test_members_of_a_struct_have_types_and_offsets():
    text = """
    namespace n { struct Inner { short s[2]; double d; }; template <class T> struct V { T v[2]; }; }
    struct P { const float *x; float *y; n::Inner in; int n; float a[2]; };
    __global__ void k(P p, n::V<float> v, float4 f, dim3 d, int tail) {}
    """
    source = silo.cuda(text, threads=1).kernel.source
    p, v, f, d, _ = (one.type for one in source.parameters)
    assert [(one.name, one.offset, one.type.dtype) for one in p.members] == [
        ("x", 0, "fp32"),
        ("y", 8, "fp32"),
        ("in.s.0", 16, "i16"),
        ("in.s.1", 18, "i16"),
        ("in.d", 24, "fp64"),
        ("n", 32, "i32"),
        ("a.0", 36, "fp32"),
        ("a.1", 40, "fp32"),
    ]
    assert (p.bytes, p.align) == (48, 8)
    assert p.members[0].type.const
    assert [(one.name, one.offset) for one in v.members] == [("v.0", 0), ("v.1", 4)]
    assert (len(f.members), f.bytes, f.align, len(d.members)) == (4, 16, 16, 3)


def test_a_template_has_the_types_of_its_arguments():
    text = "template <class T, int N> __global__ void k(const T *x, T (&&y)[N], int n) {}"
    with pytest.raises(CompileError, match=r"k.*kernel\.cu:1: .*rvalue reference type"):
        types_of(text, "k<double, 4>")
    text = "template <class T> struct R { T *p; }; template <class T, int N> __global__ void k(const T *x, R<T> r) {}"
    assert [one[1] for one in types_of(text, "k<double, 4>")] == ["const double *", "R<double>"]


def test_the_effects_are_those_of_const_and_of_the_signature():
    made = vadd(signature={"out": "out"})
    variant = variant_of(made, BLOCK=128)
    effects = COMPILER.lower(made.kernel.source, variant).facts.effects
    assert effects == {"x": Effect.READ, "y": Effect.READ, "out": Effect.WRITE}
    with pytest.raises(SourceError, match=r"x is const float \*, so it is not written"):
        assert vadd(signature={"x": "out"}).kernel.source.parameters
    with pytest.raises(SourceError, match=r"n is declared as fp32; it is int"):
        assert vadd(signature={"n": "fp32"}).kernel.source.parameters


def test_declared_types_need_no_compiler(tmp_path):
    with override(nvrtc=str(tmp_path / "absent.so")):
        made = vadd(signature="x: in *fp32, y: in *fp32, out: out *fp32, n: i32")
        assert [one.type.dtype for one in made.kernel.source.parameters] == ["fp32", "fp32", "fp32", "i32"]


def test_arguments_of_other_types_are_refused():
    source = vadd().kernel.source
    good = {name: ArgumentFacts.array("float32") for name in ("x", "y", "out")} | {"n": ArgumentFacts(5)}
    assert source.specialize(good)[0].names == ("x", "y", "out", "n", "BLOCK")
    for wrong, message in (
        ({"x": ArgumentFacts.array("float64")}, r"x is an array of float64.*pass float32"),
        ({"n": ArgumentFacts(1 << 40)}, "does not fit"),
        ({"n": ArgumentFacts(1.5)}, "not an integer"),
        ({"n": ArgumentFacts.array("int32")}, "takes a number"),
        ({"x": ArgumentFacts(3)}, "takes an array"),
    ):
        with pytest.raises(ArgumentError, match=message):
            source.specialize(good | wrong)
    del good["y"]
    with pytest.raises(ArgumentError, match="y is missing"):
        source.specialize(good)


def test_an_array_of_vectors_is_aligned():
    source = silo.cuda("__global__ void k(float4 *x) {}", threads=1).kernel.source
    source.specialize({"x": ArgumentFacts.array("float32", 64)})
    with pytest.raises(ArgumentError, match="multiple of 16 bytes"):
        source.specialize({"x": ArgumentFacts.array("float32", 68)})


# ---- code ----


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_100a", "cuda:sm_120a"])
def test_a_template_is_compiled_for_each_arch(target):
    made = compiled(vadd(), target, BLOCK=256)
    (kernel,) = inspect_binary(made.blob.data, "cubin")
    assert kernel.arch == target.partition(":")[2].rstrip("a")
    assert (made.launch.entry, made.launch.threads, kernel.most_threads) == (kernel.entry, 256, 256)
    assert [slot.type.value for slot in made.launch.layout] == ["ptr", "ptr", "ptr", "i32"]


def test_constants_are_macros_or_template_arguments():
    text = "template <class T, bool F> __global__ void k(T *x) { x[0] = F ? SCALE : WORD; }"
    made = silo.cuda(
        text, entry="k<T, FAST>", threads=32, constants={"T": "int", "FAST": True, "SCALE": 3, "WORD": "(1 + 1)"}
    )
    unit = made.kernel.source.unit(variant_of(made))
    assert unit.expression == "k<int, true>"
    assert unit.defines == (("SCALE", "3"), ("WORD", "(1 + 1)"))
    assert compiled(made).launch.entry.startswith("_Z1kIiLb1EE")
    wrong = silo.cuda(text, entry="k<int, true>", threads=1, constants={"SCALE": "1\n#include <x>", "WORD": 1})
    with pytest.raises(CompileError, match="cannot be"):
        variant_of(wrong)


def test_bytes_are_the_same_from_two_folders_and_processes(tmp_path):
    text = '#include "own.h"\n#include <cuda_fp16.h>\nstatic __device__ int hidden;\n'
    text += "__global__ void k(float *x) { x[0] = X + hidden; }\n"
    program = (
        "import sys, hashlib, silo\nfrom pathlib import Path\nfrom cuda_samples import variant_of\n"
        "from silo.kinds.cuda_cpp.nvrtc_compiler import NvrtcCompiler as N\n"
        "made = silo.cuda(Path(sys.argv[1]), threads=32, flags=['-lineinfo'])\n"
        "variant = variant_of(made)\nblob = N().compile(N().lower(made.kernel.source, variant).job).blob.data\n"
        "print(variant.source, hashlib.sha256(blob).hexdigest())\n"
    )
    said = set()
    for at, name in enumerate(("a", "b/c", "b/c")):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "k.cu").write_text(text)
        (folder / "own.h").write_text("#pragma once\n#define X 1\n")
        environment = {**os.environ, "SILO_HOME": str(tmp_path / f"home{at % 2}"), "PYTHONHASHSEED": str(at)}
        environment["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parents[3] / "samples"), *sys.path))
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder / "k.cu")],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        said.add(done.stdout)
    assert len(said) == 1


def test_a_changed_header_is_another_key(tmp_path):
    (tmp_path / "k.cu").write_text('#include "a.h"\n__global__ void k(int *x) { x[0] = X; }\n')
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    found = []
    for value in (1, 2):
        (tmp_path / "b.h").write_text(f"#define X {value}\n")
        made = silo.cuda(tmp_path / "k.cu", threads=32)
        variant = variant_of(made)
        job = COMPILER.lower(made.kernel.source, variant).job
        found.append((variant.source, job.key("same"), COMPILER.compile(job).blob.data))
    assert all(first != second for first, second in zip(*found, strict=True))


def test_no_folder_of_the_process_is_searched(tmp_path, monkeypatch):
    (tmp_path / "leak.h").write_text("#define X 1\n")
    monkeypatch.chdir(tmp_path)
    made = silo.cuda('#include "leak.h"\n__global__ void k(int *x) { x[0] = X; }', threads=32)
    with pytest.raises(CompileError, match=r"leak\.h"):
        compiled(made)
    given = silo.cuda('#include "leak.h"\n__global__ void k(int *x) { x[0] = X; }', threads=32, include=[tmp_path])
    assert compiled(given).blob.data
    texts = {"leak.h": "#define X 2\n"}
    assert compiled(silo.cuda('#include "leak.h"\n__global__ void k(int *x) { x[0] = X; }', threads=32, include=texts))


# ---- launches ----


def test_threads_are_held_against_the_launch_bounds():
    made = vadd(threads=512)
    with pytest.raises(CompileError, match=r"threads is 512, 512 in all, and the launch bounds .* allow 128"):
        compiled(made, BLOCK=128)
    with pytest.raises(CompileError, match=r"Give threads=, for example threads=256 \(at most 128\)"):
        compiled(vadd(threads=None), BLOCK=128)


def test_block_and_cluster_of_the_text_are_those_of_the_launch():
    text = "__global__ void __cluster_dims__(2, 1, 1) k(int *x) { x[0] = 1; }"
    assert compiled(silo.cuda(text, threads=(8, 4))).launch.cluster == (2, 1, 1)
    with pytest.raises(CompileError, match="compiled for 2"):
        compiled(silo.cuda(text, threads=32, cluster=4))
    text = "__global__ void __block_size__((64, 1, 1)) k(int *x) { x[0] = 1; }"
    assert compiled(silo.cuda(text)).launch.block == (64, 1, 1)


def test_dynamic_shared_memory_is_an_expression_of_the_constants():
    text = (
        "extern __shared__ float buffer[]; __global__ void k(float *x) { buffer[threadIdx.x] = 1; x[0] = buffer[0]; }"
    )
    made = silo.cuda(text, threads="B", shared=lambda c: 4 * c.B * c.B, space={"B": [32, 64]})
    assert compiled(made, B=64).launch.shared_bytes == 4 * 64 * 64


def test_constant_memory_has_values_by_name():
    text = "__constant__ float w[2][2];\n__constant__ int n;\n__global__ void k(float *x) { x[0] = w[1][0] + n; }"
    made = silo.cuda(text, threads=1, constant_memory={"w": [[1.5, 2], [3, 4]], "n": 7})
    other = silo.cuda(text, threads=1, constant_memory={"w": [[1.5, 2], [3, 4]], "n": 8})
    assert "w[2][2] = {{1.5, 2}, {3, 4}};\n__constant__ int n = 7;" in made.kernel.source.text.text
    assert made.kernel.source.fingerprint != other.kernel.source.fingerprint
    assert compiled(made).blob != compiled(other).blob


def test_flags_reach_the_compiler():
    text = "__global__ void k(float *x) { x[0] = x[1] / x[2]; }"
    exact, fast = (compiled(silo.cuda(text, threads=1, flags=flags)) for flags in ((), ("-use_fast_math",)))
    assert len(exact.blob.data) > len(fast.blob.data)


# ---- errors ----


def test_an_error_has_the_users_line_and_the_first_cause(tmp_path):
    (tmp_path / "k.cu").write_text("\n\n__global__ void k(float *x) {\n  int unused;\n  x[0] = y;\n  foo(1)\n}\n")
    with pytest.raises(CompileError) as caught:
        compiled(silo.cuda(tmp_path / "k.cu", threads=1))
    first = str(caught.value).splitlines()[0]
    assert 'k.cu:5: identifier "y" is undefined' in first
    with pytest.raises(CompileError, match="entry='k<float>' names no kernel"):
        compiled(silo.cuda("__global__ void k(float *x) {}", entry="k<float>", threads=1))


def test_host_code_is_refused_with_its_line_or_left_out(tmp_path):
    (tmp_path / "k.cu").write_text("int twice(int x) { return 2 * x; }\n__global__ void k(int *x) { x[0] = 1; }\n")
    with pytest.raises(CompileError, match=r"(?s)k\.cu:1: .*device_only=True"):
        compiled(silo.cuda(tmp_path / "k.cu", threads=1))
    assert compiled(silo.cuda(tmp_path / "k.cu", threads=1, device_only=True)).blob.data
    (tmp_path / "k.cu").write_text("#include <stdio.h>\n#include <stdint.h>\n__global__ void k(uint32_t *x) {}\n")
    with pytest.raises(CompileError, match=r"(?s)k\.cu:1: .*'stdio\.h'.*device_only=True"):
        compiled(silo.cuda(tmp_path / "k.cu", threads=1))
    assert compiled(silo.cuda(tmp_path / "k.cu", threads=1, device_only=True)).blob.data


def test_dependent_launches_have_their_functions_in_device_code(tmp_path):
    (tmp_path / "k.cu").write_text(
        "#include <vector>\n__global__ void k(float *x) {\n"
        "  cudaGridDependencySynchronize(); x[threadIdx.x] = FLT_MIN * M_PI_2;"
        " __extension__ typedef int I; cudaTriggerProgrammaticLaunchCompletion(); }\nint main() {}\n"
    )
    made = silo.cuda(tmp_path / "k.cu", threads=32, device_only=True, pdl=True)
    job = NvrtcCompiler().lower(made.kernel.source, variant_of(made)).job
    ptx = NvrtcCompiler().code_form(job, "ptx")
    assert "griddepcontrol.wait" in ptx
    assert "griddepcontrol.launch_dependents" in ptx


def test_other_parameters_than_declared_are_found_in_the_binary():
    made = silo.cuda("__global__ void k(int *x, long n) { x[0] = n; }", threads=1, signature="x: out *i32, n: i32")
    with pytest.raises(CompileError, match="n, 4 bytes; the binary has 8 bytes"):
        compiled(made)


def test_a_missing_nvrtc_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("silo.kinds.cuda_cpp.nvrtc._installed", lambda: ())
    with override(nvrtc=None, home=tmp_path), pytest.raises(CompilerMissingError, match=r"kernel-silo\[cuda\]"):
        COMPILER.identity(variant_of(vadd(), BLOCK=128).target)


def test_the_question_for_types_ends_with_its_process_and_its_ceiling(tmp_path):
    text = silo.cuda("#include <cub/block/block_reduce.cuh>\n__global__ void k() {}", threads=1).kernel.source.text
    with override(home=tmp_path, compile_bytes=300 << 20), pytest.raises((CompileError, SourceError)):
        ask_nvrtc(text, ["-arch=compute_90"], ["k"])


CUB = """
#include <cub/block/block_reduce.cuh>
__global__ void k(float *x) {
  __shared__ typename cub::BlockReduce<float, 64>::TempStorage t;
  float s = cub::BlockReduce<float, 64>(t).Sum(x[threadIdx.x]);
  if (!threadIdx.x) x[0] = s;
}
"""
GROUPS = """
#include <cooperative_groups.h>
__global__ void k(float *x) {
  auto b = cooperative_groups::this_thread_block();
  b.sync();
  x[b.thread_rank()] = b.size();
}
"""
TENSOR_CORES = """
#include <mma.h>
using namespace nvcuda::wmma;
__global__ void k(half *a, float *c) {
  fragment<matrix_a, 16, 16, 16, half, row_major> f;
  fragment<matrix_b, 16, 16, 16, half, row_major> g;
  fragment<accumulator, 16, 16, 16, float> h;
  fill_fragment(h, 0.f);
  load_matrix_sync(f, a, 16);
  load_matrix_sync(g, a, 16);
  mma_sync(h, f, g, h);
  store_matrix_sync(c, h, 16, mem_row_major);
}
"""
SMALL = """
#include <cuda_bf16.h>
#include <cuda_fp8.h>
__global__ void k(__nv_bfloat16 *x, __nv_fp8_e4m3 *y, cudaTextureObject_t t) {
  y[0] = __nv_fp8_e4m3(float(x[0]) + tex2D<float>(t, 0, 0));
}
"""


@pytest.mark.all
@pytest.mark.parametrize("text", [CUB, GROUPS, TENSOR_CORES, SMALL])
def test_the_toolkits_headers_compile_and_memory_is_given_back(text):
    made = silo.cuda(text, threads=64)
    first = compiled(made)
    sizes = []
    for _ in range(3):
        assert compiled(made).blob == first.blob
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20)
    assert sizes[-1] - sizes[0] < 64
