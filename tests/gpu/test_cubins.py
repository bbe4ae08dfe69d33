"""Artifacts of the Triton compiler on a real NVIDIA device: what launch info says is what the driver needs.

Runs with ``PYTHONPATH=src python -m pytest tests/gpu`` and no installation of Silo.
"""

# kernels name sizes in capitals and take what they take

import pytest

pytest.importorskip("triton")
np = pytest.importorskip("numpy")

import triton  # noqa: E402  # after the skip
import triton.language as tl  # noqa: E402

from silo.artifacts.runs_on import runs_on  # noqa: E402
from silo.compile.pool import WorkerPool  # noqa: E402
from silo.core.config import Config  # noqa: E402
from silo.core.device import Target  # noqa: E402
from silo.core.signature import Parameter, ParameterKind, Signature  # noqa: E402
from silo.core.specialization import Fact, Specialization  # noqa: E402
from silo.core.values import dtype  # noqa: E402
from silo.core.variant import Variant  # noqa: E402
from silo.errors import CompileError  # noqa: E402
from silo.kinds.triton.gpu.gpu_compiler import TritonCompiler  # noqa: E402


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
        u = tl.load(a + rm[:, None] * K + (rk[None, :] + k))
        v = tl.load(b + (rk[:, None] + k) * N + rn[None, :])
        acc = tl.dot(u, v, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def scalars(out, flag, h, b, f, d, i8, i16, i64, u8, u16, u32, u64, one, nothing):
    tl.store(out + 0, tl.where(flag, 1.0, 2.0))
    tl.store(out + 1, h.to(tl.float64))
    tl.store(out + 2, b.to(tl.float64))
    tl.store(out + 3, f.to(tl.float64))
    tl.store(out + 4, d)
    tl.store(out + 5, i8.to(tl.float64))
    tl.store(out + 6, i16.to(tl.float64))
    tl.store(out + 7, i64.to(tl.float64))
    tl.store(out + 8, u8.to(tl.float64))
    tl.store(out + 9, u16.to(tl.float64))
    tl.store(out + 10, u32.to(tl.float64))
    tl.store(out + 11, u64.to(tl.float64))
    tl.store(out + 12, 41.0 + one)
    if nothing is None:
        tl.store(out + 13, 13.0)


@triton.jit
def copy_tiles(src, dst, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a = tl.make_tensor_descriptor(src, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    b = tl.make_tensor_descriptor(dst, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    b.store(at, a.load(at) * 2)


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
    a=(P, "fp16"), b=(P, "fp16"), c=(P, "fp32"), M=(I, "i32"), N=(I, "i32"), K=(I, "i32"), BM=(C,), BN=(C,), BK=(C,)
)
SCALARS = signature(
    out=(P, "fp64"),
    flag=(B, "bool"),
    h=(F, "fp16"),
    b=(F, "bf16"),
    f=(F, "fp32"),
    d=(F, "fp64"),
    i8=(I, "i8"),
    i16=(I, "i16"),
    i64=(I, "i64"),
    u8=(I, "u8"),
    u16=(I, "u16"),
    u32=(I, "u32"),
    u64=(I, "u64"),
    one=(I, "i32"),
    nothing=(P, "fp32"),
)
COPY = signature(src=(P, "fp32"), dst=(P, "fp32"), M=(I, "i32"), N=(I, "i32"), BM=(C,), BN=(C,))

ALIGNED_ADD = Specialization((*((name, Fact.ALIGNED_16) for name in ("x", "y", "out")), ("n", Fact.DIVISIBLE_16)))


class Source:
    kind = "triton"
    fingerprint = "0" * 64

    def __init__(self, function, typed):
        self.function = function
        self.name = function.__name__
        self.signature = typed


def job_for(function, typed, target, config, specialization=None):
    source = Source(function, typed)
    variant = Variant(source.name, source.fingerprint, typed, specialization or Specialization(), config, target)
    return TritonCompiler().lower(source, variant).job


def build(cuda, function, typed, config, specialization=None):
    """Compile for this device and load: the kernel as the driver sees it."""
    compiled = TritonCompiler().compile(job_for(function, typed, cuda.target, config, specialization))
    return cuda.load(compiled.blob.data, compiled.launch)


def check_add(cuda, kernel, n, block, offset=0):
    generator = np.random.default_rng(n)
    x, y = (generator.standard_normal(n + offset, dtype=np.float32) for _ in range(2))
    px, py = cuda.upload(x.tobytes()), cuda.upload(y.tobytes())
    pout = cuda.upload(np.full(n + offset + 1, -7, np.float32).tobytes())
    step = 4 * offset
    cuda.run(kernel, (-(-n // block), 1, 1), x=px + step, y=py + step, out=pout + step, n=n)
    out = np.frombuffer(cuda.download(pout, 4 * (n + offset + 1)), np.float32)
    np.testing.assert_array_equal(out[offset : offset + n], x[offset:] + y[offset:])
    assert out[offset + n] == -7
    assert (out[:offset] == -7).all()


@pytest.mark.parametrize("n", [1, 1000, 4096, 100_003])
def test_vector_add_that_assumes_nothing(cuda, n):
    kernel = build(cuda, add, ADD, Config.of(BLOCK=512, num_warps=4))
    check_add(cuda, kernel, n, 512)
    check_add(cuda, kernel, n, 512, offset=1)  # addresses that are multiples of 4 only


def test_vector_add_with_alignment(cuda):
    kernel = build(cuda, add, ADD, Config.of(BLOCK=1024, num_warps=8), ALIGNED_ADD)
    check_add(cuda, kernel, 4096, 1024)


@pytest.mark.parametrize(
    "config",
    [
        Config.of(BM=32, BN=32, BK=32, num_warps=2, num_stages=2),
        Config.of(BM=128, BN=128, BK=64, num_warps=8, num_stages=3),  # more than 48 KB of shared memory
        Config.of(BM=64, BN=64, BK=32, num_warps=2, maxnreg=64),  # spills
    ],
    ids=str,
)
def test_matmul(cuda, config):
    m, n, k = 256, 384, 192
    facts = Specialization(
        (*((name, Fact.ALIGNED_16) for name in "abc"), *((name, Fact.DIVISIBLE_16) for name in "MNK"))
    )
    kernel = build(cuda, matmul, MATMUL, config, facts)
    assert kernel.launch.shared_bytes > 0
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    pa, pb, pc = cuda.upload(a.tobytes()), cuda.upload(b.tobytes()), cuda.alloc(4 * m * n)
    tile = config.as_dict()
    cuda.run(kernel, (-(-m // tile["BM"]), -(-n // tile["BN"]), 1), a=pa, b=pb, c=pc, M=m, N=n, K=k)
    c = np.frombuffer(cuda.download(pc, 4 * m * n), np.float32).reshape(m, n)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("flag", [True, False])
def test_every_kind_of_scalar_arrives(cuda, flag):
    facts = Specialization((("one", Fact.EQUAL_1), ("nothing", Fact.NONE)))
    kernel = build(cuda, scalars, SCALARS, Config(), facts)
    assert {slot.name for slot in kernel.launch.layout} & {"one", "nothing"} == set()
    out = cuda.upload(bytes(8 * 14))
    values = {
        "h": 1.5,
        "b": -2.5,
        "f": 0.1,
        "d": 0.1,
        "i8": -100,
        "i16": -30_000,
        "i64": -(1 << 40),
        "u8": 200,
        "u16": 60_000,
        "u32": 4_000_000_000,
        "u64": 1 << 60,
    }
    cuda.run(kernel, (1, 1, 1), out=out, flag=flag, **values)
    found = np.frombuffer(cuda.download(out, 8 * 14), np.float64)
    expected = [1.0 if flag else 2.0, *({**values, "f": float(np.float32(0.1))}.values()), 42.0, 13.0]
    assert found.tolist() == expected


def test_global_scratch_is_what_the_kernel_needs(cuda):
    if cuda.capability < 90:
        pytest.skip("descriptors made in a kernel need no scratch before compute capability 9.0")
    facts = Specialization(
        (*((name, Fact.ALIGNED_16) for name in ("src", "dst")), *((name, Fact.DIVISIBLE_16) for name in "MN"))
    )
    kernel = build(cuda, copy_tiles, COPY, Config.of(BM=32, BN=64, num_warps=4), facts)
    assert kernel.launch.scratch_bytes > 0
    m, n = 128, 256
    source = np.arange(m * n, dtype=np.float32).reshape(m, n)
    src, dst = cuda.upload(source.tobytes()), cuda.alloc(source.nbytes)
    cuda.run(kernel, (m // 32, n // 64, 1), src=src, dst=dst, M=m, N=n)
    np.testing.assert_array_equal(
        np.frombuffer(cuda.download(dst, source.nbytes), np.float32).reshape(m, n), 2 * source
    )


@pytest.mark.parametrize(
    "options",
    [{"num_ctas": 2}, {"launch_cooperative_grid": True}, {"launch_pdl": True}, {"num_ctas": 2, "launch_pdl": True}],
    ids=str,
)
def test_launch_attributes(cuda, options):
    if cuda.capability < 90 and options.keys() & {"num_ctas", "launch_pdl"}:
        pytest.skip("clusters and programmatic launches start with compute capability 9.0")
    kernel = build(cuda, add, ADD, Config.of(BLOCK=1024, **options))
    assert kernel.launch.cluster == (options.get("num_ctas", 1), 1, 1)
    assert kernel.launch.cooperative == options.get("launch_cooperative_grid", False)
    assert kernel.launch.pdl == options.get("launch_pdl", False)
    check_add(cuda, kernel, 10_000, 1024)


@pytest.mark.parametrize("maxnreg", [None, 64])
def test_registers_and_spills_are_the_drivers(cuda, maxnreg):
    # Two warps: from four on Hopper multiplies whole warp groups, which no limit of 64 registers allows.
    kernel = build(cuda, matmul, MATMUL, Config.of(BM=64, BN=64, BK=32, num_warps=2, maxnreg=maxnreg))
    assert (kernel.launch.spills > 0) is (maxnreg is not None)
    assert kernel.launch.registers == cuda.function_attribute(kernel, 4)  # CU_FUNC_ATTRIBUTE_NUM_REGS
    assert kernel.launch.spills == cuda.function_attribute(kernel, 3) // 4  # CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
    assert kernel.launch.threads <= cuda.function_attribute(kernel, 0)  # CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_the_driver_loads_what_runs_on_says(cuda, arch):
    compiler = TritonCompiler()
    target = Target("cuda", arch)
    try:
        compiled = compiler.compile(job_for(add, ADD, target, Config.of(BLOCK=512)))
    except CompileError as error:  # this Triton may not know the arch at all
        pytest.skip(f"not compiled here: {str(error)[:200]}")
    decision = runs_on(compiler.artifact_target(target), cuda.target, "cubin")
    if decision:
        check_add(cuda, cuda.load(compiled.blob.data, compiled.launch), 1000, 512)
    else:
        with pytest.raises(Exception, match="cuModuleLoadData"):
            cuda.load(compiled.blob.data, compiled.launch)


def test_an_artifact_from_a_worker_process_runs(cuda):
    job = job_for(add, ADD, cuda.target, Config.of(BLOCK=256))
    with WorkerPool(workers=1, plugins={"triton": "silo.kinds.triton.gpu.gpu_declaration:TRITON"}) as pool:
        compiled = pool.submit(job).result()
    assert compiled == TritonCompiler().compile(job)
    check_add(cuda, cuda.load(compiled.blob.data, compiled.launch), 5000, 256)
