"""Compiled kernels on a real NVIDIA GPU: PTX by hand, cubins made here, alone and in bundles."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from binary_samples import SAXPY_SIGNATURE, saxpy_ptx
from gpu_kernels import N, add, torch, triton
from silo.errors import ArgumentError, SiloError

ROOT = Path(__file__).parents[2]

HEAD = """.version 7.0
.target sm_70
.address_size 64
"""

SAXPY = saxpy_ptx("sm_70")

# out[i] = the i-th scalar, as 64 bits; the launch's own sizes behind them.
SCALARS = (
    HEAD
    + """.visible .entry scalars(
    .param .u64 out, .param .u8 flag, .param .s8 a, .param .u16 b, .param .u64 c, .param .align 2 .b8 h[2],
    .param .align 2 .b8 f[2], .param .f64 d, .param .u64 nothing
)
{
    .reg .b64 %rd<5>; .reg .b16 %h<3>; .reg .f64 %d; .reg .b32 %r<3>;
    ld.param.u64 %rd0, [out]; cvta.to.global.u64 %rd1, %rd0;
    ld.param.u8 %rd2, [flag]; st.global.u64 [%rd1], %rd2;
    ld.param.s8 %rd2, [a]; st.global.u64 [%rd1+8], %rd2;
    ld.param.u16 %rd2, [b]; st.global.u64 [%rd1+16], %rd2;
    ld.param.u64 %rd2, [c]; st.global.u64 [%rd1+24], %rd2;
    ld.param.u16 %rd2, [h]; st.global.u64 [%rd1+32], %rd2;
    ld.param.u16 %rd2, [f]; st.global.u64 [%rd1+40], %rd2;
    ld.param.f64 %d, [d]; st.global.f64 [%rd1+48], %d;
    ld.param.u64 %rd2, [nothing]; st.global.u64 [%rd1+56], %rd2;
    mov.u32 %r0, %ntid.x; cvt.u64.u32 %rd2, %r0; st.global.u64 [%rd1+64], %rd2;
    mov.u32 %r0, %dynamic_smem_size; cvt.u64.u32 %rd2, %r0; st.global.u64 [%rd1+72], %rd2;
    ret;
}
"""
)

# Each thread writes its own place and what it knows of the block: tid, ntid, ctaid.
PLACES = (
    HEAD
    + """.visible .entry places(.param .u64 out)
DIRECTIVES
{
    .reg .b32 %x, %y, %z, %nx, %ny, %nz, %b, %i, %v; .reg .b64 %p, %o;
    mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;
    mov.u32 %nx, %ntid.x; mov.u32 %ny, %ntid.y; mov.u32 %nz, %ntid.z;
    mov.u32 %b, %ctaid.x;
    mad.lo.s32 %i, %b, %nz, %z; mad.lo.s32 %i, %i, %ny, %y; mad.lo.s32 %i, %i, %nx, %x;
    ld.param.u64 %p, [out]; cvta.to.global.u64 %p, %p;
    mul.wide.s32 %o, %i, 28; add.s64 %p, %p, %o;
    st.global.u32 [%p], %x; st.global.u32 [%p+4], %y; st.global.u32 [%p+8], %z;
    st.global.u32 [%p+12], %nx; st.global.u32 [%p+16], %ny; st.global.u32 [%p+20], %nz;
    st.global.u32 [%p+24], %b;
    ret;
}
"""
)

pytestmark = pytest.mark.usefixtures("store")


def saxpy(code=SAXPY, **options):
    return silo.binary(
        code, **{"signature": SAXPY_SIGNATURE, "threads": 256, "grid": lambda a: (silo.cdiv(a.n, 256),), **options}
    )


def vectors(n=N):
    return torch.randn(n, device="cuda"), torch.randn(n, device="cuda")


def cubin_of_add():
    """The cubin that the Triton of this machine makes, with how it is launched."""
    x = torch.empty(N, device="cuda")
    compiled = add[(1,)](x, x, x, N, BLOCK=256, num_warps=4)
    return compiled.asm["cubin"], compiled.metadata


# ---- alone ----


@pytest.mark.parametrize("n", [1, 255, 256, 257, N])
def test_ptx(n):
    x, y = vectors(n)
    expected = 2.5 * x + y
    saxpy()(x, y, n, 2.5)
    torch.testing.assert_close(y, expected)


def test_scalars_arrive_by_their_exact_bytes():
    k = silo.binary(
        SCALARS,
        signature="out: out *i64, flag: bool, a: i8, b: u16, c: u64, h: fp16, f: bf16, d: fp64, nothing: null",
        threads=96,
        shared_bytes=60_000,
        grid=(1,),
    )
    out = torch.zeros(10, dtype=torch.int64, device="cuda")
    k(out, flag=True, a=-7, b=65535, c=(1 << 64) - 1, h=1.5, f=-2.0, d=0.1)
    values = out.tolist()
    assert values[:6] == [1, -7, 65535, -1, 0x3E00, 0xC000]
    assert out.view(torch.float64)[6].item() == 0.1
    assert values[7:9] == [0, 96]
    assert values[9] >= 60_000


@pytest.mark.parametrize(
    ("block", "directives"),
    [
        ((4, 3, 2), ""),
        ((4, 3, 2), ".reqntid 4, 3, 2"),
        ((16, 16, 1), ".maxntid 16, 16"),
        ((1, 1, 64), ""),
        ((1, 1024, 1), ""),
        ((1024, 1, 1), ""),
    ],
)
def test_blocks_of_two_and_three_dimensions(block, directives):
    code = PLACES.replace("DIRECTIVES", directives)
    threads = None if "reqntid" in directives else block
    k = silo.binary(code, signature="out: out *i32", threads=threads, grid=(3,))
    nx, ny, nz = block
    out = torch.full((3, nz, ny, nx, 7), -1, dtype=torch.int32, device="cuda")
    k(out)
    b, z, y, x = torch.meshgrid(*map(torch.arange, (3, nz, ny, nx)), indexing="ij")
    sizes = [torch.full_like(x, size) for size in block]
    assert torch.equal(out.cpu(), torch.stack([x, y, z, *sizes, b], dim=-1).int())


def test_a_block_that_is_too_large_for_the_code():
    wide = PLACES.replace("DIRECTIVES", ".maxntid 64")
    with pytest.raises(SiloError, match="1 to 64"):
        silo.binary(wide, signature="out: *i32", threads=(16, 8), grid=(1,))


def test_a_cubin_of_triton():
    data, metadata = cubin_of_add()
    k = silo.binary(
        data,
        signature="x: in *fp32, y: in *fp32, out: out *fp32, n: i32, scratch: null, profile: null",
        shared_bytes=metadata.shared,
        facts={"x": "aligned16", "y": "aligned16", "out": "aligned16", "n": "divisible16"},
        grid=lambda a: (silo.cdiv(a.n, 256),),
    )
    x, y = vectors()
    out = torch.zeros_like(x)
    k(x, y, out, N)
    torch.testing.assert_close(out, x + y)
    with pytest.raises(SiloError, match="is not at a multiple of 16 bytes"):
        k(x[1:], y[1:], out[1:], N - 16)
    with pytest.raises(SiloError, match="n is not a multiple of 16"):
        k(x, y, out, N - 1)


def test_the_aligned_binary_where_it_holds_and_the_plain_one_elsewhere():
    wrong = SAXPY.replace("fma.rn.f32 %f3, %f2, %f0, %f1", "sub.f32 %f3, %f0, %f1").replace("saxpy", "difference")
    k = saxpy([SAXPY, silo.Binary(wrong, facts={"x": "aligned16"})], name="either")
    x, y = vectors()
    expected = x - y
    k(x, y, N, 2.0)
    torch.testing.assert_close(y, expected)
    expected = 2 * x[1:] + y[1:]
    k(x[1:], y[1:], N - 1, 2.0)
    torch.testing.assert_close(y[1:], expected)


def test_ptx_of_a_later_architecture_is_refused_before_the_driver_sees_it():
    k = saxpy(SAXPY.replace("sm_70", "sm_121"))
    with pytest.raises(SiloError, match=r"needs compute capability 12\.1"):
        k(*vectors(), N, 1.0)


def test_streams_binding_and_graphs():
    k = saxpy()
    x, y = vectors()
    expected = y + 3 * x
    k.warmup(x, y, N, 1.0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    k(x, y, N, 1.0, stream=stream)
    with torch.cuda.stream(stream):
        k.bind(x, y, N, 1.0)(x, y, N, 1.0)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k(x, y, N, 1.0)
    graph.replay()
    torch.testing.assert_close(y, expected)


def test_wrong_arguments():
    x, y = vectors()
    for call in ((x.cpu(), y, N, 1.0), (x.double(), y, N, 1.0), (x, y, 1 << 31, 1.0), (x, y, N)):
        with pytest.raises(ArgumentError):
            saxpy()(*call)


# ---- in a bundle ----

LAUNCH = """
import sys
import numpy as np
import silo
kernels = silo.load(sys.argv[1])
x, y = silo.Buffer(1000, "float32", "cuda"), silo.Buffer(1000, "float32", "cuda")
values = np.arange(1000, dtype=np.float32)
x.copy_from(values)
y.copy_from(values)
kernels.saxpy(x, y, 1000, 2.0)
assert (y.numpy() == 3 * values).all()
assert not {"triton", "torch"} & set(sys.modules)
"""


def test_a_bundle_of_binaries(tmp_path):
    assert triton
    (tmp_path / "saxpy.ptx").write_text(SAXPY)
    (tmp_path / "kernels.py").write_text(
        "import silo\nfrom pathlib import Path\n"
        "saxpy = silo.binary(Path(__file__).parent / 'saxpy.ptx', threads=256,\n"
        f"    signature={SAXPY_SIGNATURE!r}, grid=lambda a: (silo.cdiv(a.n, 256),))\n"
        "@saxpy.cases(n=[1000])\n"
        "def _(n, make):\n"
        "    x, y = make.normal(n), make.normal(n)\n"
        "    return silo.Case(args=(x, y, n, 2.0), expected={'y': lambda: 2 * x.host + y.host})\n"
    )
    environment = {
        **os.environ,
        "SILO_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
    }

    def run(*command):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr

    run(sys.executable, "-c", "from silo.cli.main import main; main()", "build", "kernels.py", "-o", "k.silo")
    run(sys.executable, "-c", LAUNCH, "k.silo")
    run(sys.executable, "-c", "from silo.cli.main import main; main()", "run", "k.silo", "--device", "cuda")
