"""``silo.cuda`` on the CPU: results against numpy, faults that a check finds, and refusals by name."""

import subprocess

import numpy as np
import pytest

import silo
from cuda_cpu_samples import FAULTS, RIGHT, launcher_of, need_clang
from cuda_samples import variant_of
from silo.core.device import Target
from silo.drivers.cpu.levels import host_target
from silo.emulation.checked_runs import CHECKED_FLAGS
from silo.emulation.clang import find_clang
from silo.errors import ArgumentError, CheckError, CompileError, CompilerMissingError, LaunchError
from silo.kinds.cuda_cpp import nvrtc
from silo.kinds.cuda_cpp.cpu.cpu_build import code_flags
from silo.kinds.cuda_cpp.cpu.cpu_text import entry_text, may_wait, rewritten
from silo.kinds.cuda_cpp.cpu.cuda_cpu_compiler import CudaCpuCompiler
from silo.kinds.cuda_cpp.kernel_body import waits_for_grid
from silo.settings import override

pytestmark = pytest.mark.skipif(bool(need_clang()), reason=need_clang() or "clang is here")

_QUICK_RIGHT = {
    "sums of a block by cub",
    "scans of a block by cub",
    "a plain loop",
    "three axes",
    "a tree in shared memory",
    "shuffles",
    "cooperative groups",
    "half",
}
_QUICK_FAULTS = {"a barrier is missing", "no guard at the end", "an element of shared memory is not set"}


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("home")):
        yield


def _each(samples, quick):
    marks = {True: (), False: (pytest.mark.all,)}
    return [pytest.param(one, id=one.name, marks=marks[one.name in quick]) for one in samples]


def _compare(one, given):
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in given.items()}
    made = launcher_of(one)
    made(*given.values())
    for name, value in one.expected(copies).items():
        wanted = np.asarray(value)
        error = np.abs(given[name].astype(np.float64) - wanted).max() / max(np.abs(wanted).max(), 1e-30)
        assert error <= one.tolerance, (name, error)
    return made


@pytest.mark.parametrize("one", _each(RIGHT, _QUICK_RIGHT))
def test_results_are_numpys(one):
    _compare(one, one.arguments(np.random.default_rng(3)))


@pytest.mark.parametrize("one", _each([one for one in RIGHT if not one.lock], {"shuffles"}))
def test_a_check_finds_nothing_in_a_right_kernel(one):
    silo.check(launcher_of(one))(*one.arguments(np.random.default_rng(4)).values())


@pytest.mark.parametrize("one", _each(FAULTS, _QUICK_FAULTS))
def test_a_planted_fault_is_found_at_its_line(one):
    a, o = np.ones(64, np.float32), np.zeros(64, np.float32)
    checking = silo.check(launcher_of(one), uninitialized=one.uninitialized, steps=100_000)
    with pytest.raises(CheckError) as caught:
        checking(a, o, one.n)
    line = next(at for at, text in enumerate(one.text.splitlines(), 1) if text.endswith("// here"))
    assert caught.value.kind == one.error
    assert f"kernel.cu:{line}" in str(caught.value), str(caught.value)


@pytest.mark.parametrize("name", ["a plain loop", "shuffles"])
def test_only_threads_that_wait_have_stacks(name):
    one = next(one for one in RIGHT if one.name == name)
    made, compiler = launcher_of(one), CudaCpuCompiler()
    compiled = compiler.compile(compiler.lower(made.kernel.source, variant_of(made, str(host_target()))).job)
    assert (compiled.launch.scratch_bytes > 0) is one.waits
    assert [blob.kind for blob in compiled.sidecars] == ["cudajob"]


def test_shared_memory_in_a_called_function_gets_fibers():
    text = """
__device__ float turned(float v) {
  __shared__ float s[64];
  s[threadIdx.x] = v;
  __syncthreads();
  return s[63 - threadIdx.x];
}
__global__ void k(const float *a, float *o) { o[threadIdx.x] = turned(a[threadIdx.x]); }
"""
    a, o = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    silo.cuda(text, threads=64, grid=(1,))(a, o)
    assert (o == a[::-1]).all()


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ('asm volatile("bar.sync 0;");', 3, "inline PTX does not run on the CPU"),
        ('__asm volatile(".incbin \\"/etc/hostname\\"");', 3, "inline PTX does not run on the CPU"),
        ("o[0] = tex2D<float>(t, 1.0f, 2.0f);", 3, r"a texture \(tex2D\) does not run on the CPU"),
        ("cooperative_groups::this_multi_grid().sync();", 3, "no member named .this_multi_grid. in namespace"),
        ("cub::BlockRadixSort<float, 32, 4> s;", 3, "cub::BlockRadixSort does not run on the CPU"),
        ("o[0] = undeclared;", 3, "use of undeclared identifier 'undeclared'"),
    ],
    ids=[
        "PTX",
        "assembly",
        "a texture",
        "a barrier of several grids",
        "another part of cub",
        "an unknown name",
    ],
)
def test_a_refusal_names_the_part_and_the_line(body, line, message, monkeypatch):
    head = "cub/cub.cuh" if "cub::" in body else "cooperative_groups.h"
    text = f"#include <{head}>\n__global__ void k(float *o, unsigned long long t) {{\n  {body}\n}}\n"
    made = silo.cuda(text, threads=32, grid=(1,), signature="o: out *fp32, t: u64")
    with pytest.raises(CompileError, match=rf"kernel\.cu:{line}: {message}"):
        made(np.zeros(4, np.float32), 1)


@pytest.mark.parametrize("word", ["asm", "__asm", "__asm__", "JOIN(a, sm)", "JOIN(__a, sm)"])
def test_no_word_for_assembly_reads_a_file(word):
    read = f'{word}(".incbin \\"/etc/hostname\\"");'
    text = f"#define JOIN(a, b) a##b\n{read}\n__global__ void k(float *o) {{ o[0] = 1; }}\n"
    made = silo.cuda(text, threads=32, grid=(1,), signature="o: out *fp32")
    with pytest.raises(CompileError, match=r"kernel\.cu:2: inline PTX does not run on the CPU"):
        made(np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("mma.h", "wmma"),
        ("cuda/barrier", "cuda::barrier"),
        ("cuda/pipeline", "cuda::pipeline"),
        ("cuda/std/tuple", "cuda::std::tuple"),
    ],
)
def test_a_refused_header_is_named_with_its_line(header, what):
    text = f"\n#include <{header}>\n__global__ void k(float *o) {{ o[0] = 1; }}\n"
    made = silo.cuda(text, threads=32, grid=(1,), signature="o: out *fp32")
    with pytest.raises(CompileError, match=rf"kernel\.cu:2: {what}.* does not run on the CPU"):
        made(np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "how many threads has a block"),
        ({"threads": 2048}, "a block has 1 to 1024 threads"),
        ({"threads": 32, "cluster": 2}, "clusters of blocks do not run on the CPU"),
        ({"threads": 32, "shared": 200_000}, "at most 183296"),
    ],
    ids=["no threads", "too many threads", "a cluster", "too much shared memory"],
)
def test_a_launch_that_the_cpu_does_not_have_is_refused(options, message):
    made = silo.cuda("__global__ void k(float *o) { o[0] = 1; }", grid=(1,), signature="o: out *fp32", **options)
    with pytest.raises(CompileError, match=message):
        made(np.zeros(4, np.float32))


def test_what_a_block_does_wrong_is_an_error_with_its_line():
    head = "__global__ void k(float *o, int n) {\n  int t = threadIdx.x;\n"
    wrong = {
        "  float v = t;\n  if (t < 8) v = __shfl_sync(0xffffffffu, v, 0);\n  __syncthreads();\n  o[t] = v; }": (
            r"kernel\.cu:4: .* waits for lanes that its mask names: 24 of them"
        ),
        "  if (t < 32) __syncthreads();\n  else { o[0] = 2; __syncthreads(); }\n  o[t] = 1; }": (
            r"wait at different calls of __syncthreads"
        ),
        "  __shared__ float s[20000];\n  s[t] = 1;\n  __syncthreads();\n  o[t] = s[t]; }": "more than the 49152 bytes",
        "  assert(t < n);\n  __syncthreads();\n  o[t] = 1; }": r"kernel\.cu:3: the assertion fails: t < n \(thread 60",
        "  if (t == 7) __trap();\n  o[t] = 1; }": r"kernel\.cu:3: __trap\(\) \(thread 7, 0, 0 of block 0, 0, 0\)",
    }
    for body, message in wrong.items():
        made = silo.cuda(head + body, threads=64, grid=(1,), signature="o: out *fp32, n: i32")
        with pytest.raises(LaunchError, match=message):
            made(np.zeros(64, np.float32), 60)


def test_a_float_of_8_bits_may_be_declared_and_fails_when_it_is_converted():
    text = """
#include <cuda_fp8.h>
__device__ float read(__nv_fp8_e4m3 v) { return __half2float(__nv_cvt_fp8_to_halfraw(v.__x, __NV_E4M3)); }
__device__ float read(float v) { return v; }
__global__ void k(const float *x, float *o, int n) {
  __nv_fp8_e4m3 v{};
  o[threadIdx.x] = n ? read(v) : read(x[threadIdx.x]);
}
"""
    made = silo.cuda(text, threads=32, grid=(1,))
    x, o = np.ones(32, np.float32), np.zeros(32, np.float32)
    made(x, o, 0)
    assert (o == 1).all()
    with pytest.raises(LaunchError, match=r"kernel\.cu:3: a float of 8 bits \(cuda_fp8\.h\) does not run on the CPU"):
        made(x, o, 1)


def test_threads_that_ended_are_not_waited_for_as_on_the_hardware():
    made = silo.cuda(
        "__global__ void k(float *o, int n) { int t = threadIdx.x; if (t >= n) return; __syncthreads(); o[t] = 1; }",
        threads=64,
        grid=(1,),
        signature="o: inout *fp32, n: i32",
    )
    o = np.zeros(64, np.float32)
    made(o, 40)
    assert o.sum() == 40


GRID = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int *x, int *sums, int *o, int n) {
  cg::grid_group grid = cg::this_grid();
  __shared__ int s[64];
  int t = threadIdx.x, sum = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
  s[t] = sum;
  __syncthreads();
  for (int step = 32; step; step /= 2) {
    if (t < step) s[t] += s[t + step];
    __syncthreads();
  }
  if (blockIdx.x == STRAY) return;
  if (t == 0) sums[blockIdx.x] = s[0];
  grid.sync();
  sum = 0;
  for (int b = 0; b < grid.num_blocks(); b++) sum += sums[b];
  cg::sync(grid);
  for (int i = grid.thread_rank(); i < n; i += grid.size()) o[i] = x[i] + sum;
}
"""


def _over_grid(blocks, stray=-1):
    made = silo.cuda(GRID, threads=64, constants={"STRAY": stray}, cooperative=True)
    x = np.arange(1000, dtype=np.int32)
    sums, o = np.zeros(max(blocks, 1), np.int32), np.zeros(1000, np.int32)
    return made[blocks], (x, sums, o, 1000), x + x.sum()


def test_the_blocks_of_a_cooperative_launch_meet_at_the_barrier_of_the_grid():
    for blocks in (1, 3, 40):
        launch, given, expected = _over_grid(blocks)
        for _ in range(5):
            launch(*given)
            assert (given[2] == expected).all()
            given[2][:] = 0
    launch, given, _ = _over_grid(2000)
    with pytest.raises(LaunchError, match=r"a cooperative launch.*all 2000 must run at once.*1024"):
        launch(*given)
    launch, given, _ = _over_grid(3, stray=1)
    message = r"kernel\.cu:17: the barrier of the grid is not reached by every block: 1 of the grid ended"
    with pytest.raises(LaunchError, match=message):
        launch(*given)


def test_a_check_of_a_cooperative_kernel_takes_one_block():
    made = silo.cuda(GRID, threads=64, constants={"STRAY": -1}, cooperative=True, grid=(1,))
    _, given, expected = _over_grid(1)
    silo.check(made)(*given)
    assert (given[2] == expected).all()
    more = silo.cuda(GRID, threads=64, constants={"STRAY": -1}, cooperative=True, grid=(2,))
    _, given, _ = _over_grid(2)
    with pytest.raises(ArgumentError, match=r"these 2 wait for each other.*with a grid of one block"):
        silo.check(more)(*given)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("\n  cg::this_grid().sync();", 3),
        ("\n  auto g = cg::this_grid();\n  g.sync();", 4),
        ("\n  const cg::grid_group g{cg::this_grid()};\n  cg::sync(g);", 4),
        ("\n  cooperative_groups::sync(cooperative_groups::this_grid());", 3),
        ("\n  auto g = cg::this_grid();\n  auto b = cg::this_thread_block(); /* g.sync() */\n  b.sync();", 0),
        ("\n  auto g = cg::this_grid();\n  if (g.is_valid()) g.sync();", 0),
    ],
)
def test_a_barrier_of_the_grid_needs_a_cooperative_launch_on_every_target(body, line):
    text = f"#include <cooperative_groups.h>\n__global__ void k(int *o) {{{body}\n}}\n"
    assert waits_for_grid(text, "k") == line
    for cooperative in (False, True):
        made = silo.cuda(text, threads=32, grid=(1,), signature="o: out *i32", cooperative=cooperative)
        if line and not cooperative:
            with pytest.raises(CompileError, match=rf"kernel\.cu:{line}: .*pass cooperative=True"):
                made.kernel.source.unit(variant_of(made, "cuda:sm_90a"))
        else:
            assert made.kernel.source.unit(variant_of(made, "cuda:sm_90a")).cooperative is cooperative


def test_headers_and_macros_of_the_user():
    made = silo.cuda(
        '#include "own/scale.h"\n__global__ void k(float *o) { o[threadIdx.x] = scaled(OFFSET); }',
        threads=32,
        grid=(1,),
        constants={"OFFSET": 3},
        include={"own/scale.h": "#pragma once\n__device__ float scaled(float x) { return 2 * x; }\n"},
    )
    o = np.zeros(32, np.float32)
    made(o)
    assert (o == 6).all()


def test_the_device_code_of_a_file_with_host_code_runs(tmp_path):
    (tmp_path / "own.h").write_text(
        "#include <cstdint>\n__device__ inline int64_t twice(int64_t x) { return 2 * x; }\n"
    )
    (tmp_path / "k.cu").write_text(
        '#include <stdio.h>\n#include <vector>\n#include <array>\n#include <initializer_list>\n#include "own.h"\n'
        "namespace app {\n"
        "__global__ void k(const int64_t *x, int64_t *o) { uint i = threadIdx.x;\n"
        "  std::array<int64_t, 2> a = {twice(x[i]), INT_MAX}; o[i] = 0; for (int64_t one : a) o[i] += one;"
        "  for (int one : {1, 2}) o[i] += one; }\n}\n"
        'int main() { app::k<<<1, 32>>>(nullptr, nullptr); printf("%d", 1); }\n'
    )
    x, o = np.arange(32), np.zeros(32, np.int64)
    made = silo.cuda(tmp_path / "k.cu", threads=32, grid=(1,), device_only=True)
    made(x, o)
    assert (o == 2 * x + 2**31 + 2).all()
    silo.check(made)(x, o)


def test_clang_reads_types_without_nvrtc(monkeypatch):
    def none(*_):
        raise CompilerMissingError("NVRTC is not installed")

    monkeypatch.setattr(nvrtc, "find_nvrtc", none)
    text = """
#include <cuda_fp16.h>
namespace n { struct P { const float *x; int m[2]; }; enum class E : short { A }; }
template <class T, int N>
__global__ void k(const T *a, T *__restrict__ b, n::P p, n::E e, half h, float4 v, unsigned m) {}
"""
    source = silo.cuda(text, entry="k<double, 4>", threads=1).kernel.source
    found = [(one.type.form, one.type.dtype, one.type.const, one.type.bytes) for one in source.parameters]
    assert found == [
        ("pointer", "fp64", True, 8),
        ("pointer", "fp64", False, 8),
        ("struct", "", False, 16),
        ("scalar", "i16", False, 2),
        ("scalar", "fp16", False, 2),
        ("struct", "", False, 16),
        ("scalar", "u32", False, 4),
    ]
    assert [(one.name, one.offset, one.type.dtype) for one in source.parameters[2].type.members] == [
        ("x", 0, "fp32"),
        ("m.0", 8, "i32"),
        ("m.1", 12, "i32"),
    ]


def test_declarations_of_dynamic_shared_memory():
    assert rewritten("extern volatile __shared__ int s[];") == "extern volatile __thread int s[] SILO_DYNAMIC;"
    assert rewritten("__shared__ extern int s[];") == "extern __thread int s[] SILO_DYNAMIC;"
    assert rewritten("extern int g;\n__shared__ int s;") == "extern int g;\n__shared__ int s;"


def test_the_body_decides_whether_threads_may_wait():
    text = (
        "__global__ void a(int *o) { o[0] = 1; /* __syncthreads() */ }\n"
        "__global__ void b(int *o) { __syncthreads(); }\n"
    )
    for entry, waits in (("a", False), ("b", True)):
        made = silo.cuda(text, entry=entry, threads=1, signature="o: out *i32")
        assert may_wait(made.kernel.source.unit(variant_of(made, "cpu:x86-64-v3"))) is waits


def test_the_identity_names_clang_and_no_path():
    first = CudaCpuCompiler().identity(host_target())
    assert first == CudaCpuCompiler().identity(host_target())
    assert "clang version" in first
    assert "/" not in first
    assert first != CudaCpuCompiler().identity(Target("cpu", "x86-64-v2"))
    assert not CudaCpuCompiler().accepts("metal", host_target())
    assert not CudaCpuCompiler().accepts("cuda", Target("cpu", "x86-64-v9"))
    assert any("SILO_THREADS_CHECKED" in flag for flag in CHECKED_FLAGS)


def test_structs_by_value_are_passed_and_checked():
    text = """
struct P { const float *x; float *out; float a; int n; };
__global__ void k(P p, float4 f) {
  int i = threadIdx.x;
  if (i < p.n) p.out[i] = p.a * p.x[i] + f.w; // here
}
"""
    made = silo.cuda(text, threads=64, grid=(1,))
    x, out = np.arange(60, dtype=np.float32), np.zeros(60, np.float32)
    made(x, out, 2.0, 60, 1.0, 2.0, 3.0, 4.0)
    assert (out == 2 * x + 4).all()
    silo.check(made)(x, out, 2.0, 60, 1.0, 2.0, 3.0, 4.0)
    with pytest.raises(CheckError, match=r"out of bounds at kernel\.cu:5, thread \(60, 0, 0\)"):
        silo.check(made)(x, out, 2.0, 64, 1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize("name", ["a tree in shared memory", "half"])
def test_the_text_compiles_for_aarch64(name, tmp_path):
    one = next(one for one in RIGHT if one.name == name)
    target = Target("cpu", "aarch64-armv8.2")
    unit = launcher_of(one).kernel.source.unit(variant_of(launcher_of(one), str(target)))
    text = entry_text(unit, "entry", waits=one.waits, stack=16384, memory=49152)
    flags = (*code_flags(target, waits=one.waits), "-x", "c++", "-c", "-o", str(tmp_path / "made.o"), "-")
    command = [*find_clang().command, "--target=aarch64-linux-gnu", *flags]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
