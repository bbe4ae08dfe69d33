"""What nvcc makes, where it is: C++ kernels with every kind of parameter, and files that are not taken."""
# pyright: reportCallIssue=false

import shutil
import subprocess

import pytest

import silo
from silo.errors import SourceError

NVCC = shutil.which("nvcc")
pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")

CODE = """
extern "C" __global__ void __launch_bounds__(256) many(const float *__restrict__ x, float *y, bool flag, signed char c,
    short s, int i, long long l, unsigned char uc, unsigned short us, unsigned u, unsigned long long ul, float f,
    double d)
{
    extern __shared__ float dynamic[];
    __shared__ int fixed[32];
    fixed[threadIdx.x & 31] = i;
    dynamic[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = flag ? c + s + i + l + uc + us + u + ul + f + d + dynamic[0] + fixed[3] : 0;
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(float *y) { y[0] = 1; }
extern "C" __global__ void empty() {}
struct options { float a; int b; double c; };
extern "C" __global__ void by_value(float *y, options o) { y[0] = o.a + o.b + o.c; }
template <typename T> __global__ void mangled(T *y, T value) { y[threadIdx.x] = value; }
template __global__ void mangled<float>(float *, float);
"""

MANY = (
    "x: in *fp32, y: out *fp32, flag: bool, c: i8, s: i16, i: i32, l: i64, uc: u8, us: u16, u: u32, ul: u64, "
    "f: fp32, d: fp64"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvcc")

    def run(name, *options, code=CODE):
        (folder / "k.cu").write_text(code)
        done = subprocess.run(
            [NVCC, "-arch=sm_90", *options, "-o", name, "k.cu"], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"nvcc cannot compile here: {done.stderr[-300:]}")
        return folder / name

    return run


@pytest.mark.parametrize(("name", "option"), [("k.cubin", "-cubin"), ("k.ptx", "-ptx")])
def test_kernels_of_nvcc(made, name, option):
    path = made(name, option)

    def launch(entry, signature, **options):
        return silo.binary(path, signature=signature, entry=entry, **options).kernel.source.codes[0].launch

    many = launch("many", MANY, threads=256, shared_bytes=1024)
    assert len(many.layout) == 13
    with pytest.raises(SourceError, match="1 to 256"):
        launch("many", MANY, threads=512)
    assert launch("clustered", "y: *fp32", threads=32).cluster == (2, 1, 1)
    assert launch("empty", "", threads=32).layout == ()
    with pytest.raises(SourceError, match=r"(?s)16 bytes at 8.*struct by value"):
        launch("by_value", "y: *fp32, o: i64", threads=32)
    assert launch("_Z7mangledIfEvPT_S0_", "y: out *fp32, value: fp32", threads=32).entry.startswith("_Z7mangled")


@pytest.mark.parametrize(
    ("name", "options", "what"),
    [
        ("k.fatbin", ["-fatbin"], "is a CUDA fatbin.*cuobjdump"),
        ("rdc.cubin", ["-cubin", "-rdc=true"], "is a relocatable cubin"),
        ("k.o", ["-c"], "is host code for .*it has CUDA code inside.*cuobjdump"),
    ],
)
def test_files_of_nvcc_that_are_not_taken(made, name, options, what):
    with pytest.raises(SourceError, match=f"{name} {what}"):
        silo.binary(made(name, *options), signature="", entry="empty", threads=32)


TILED = """
extern "C" __global__ void __block_size__((16, 8, 2)) tiled(float *y) { y[threadIdx.x] = threadIdx.z; }
extern "C" __global__ void __launch_bounds__(256) bounded(float *y) { y[threadIdx.x] = threadIdx.y; }
"""


@pytest.mark.parametrize(("name", "option"), [("tiled.cubin", "-cubin"), ("tiled.ptx", "-ptx")])
def test_the_block_that_nvcc_was_told(made, name, option):
    path = made(name, option, code=TILED)

    def block(entry, threads=None):
        made = silo.binary(path, signature="y: out *fp32", entry=entry, threads=threads)
        return made.kernel.source.codes[0].launch.block

    assert block("tiled") == block("tiled", (16, 8, 2)) == (16, 8, 2)
    assert block("bounded", (16, 16)) == (16, 16, 1)
    with pytest.raises(SourceError, match="compiled for exactly 16 x 8 x 2"):
        block("tiled", 256)
    with pytest.raises(SourceError, match="272 in all; a block of bounded has 1 to 256"):
        block("bounded", (16, 17))
