"""Kernels that the CuTe DSL itself compiles and launches: an elementwise kernel and an example's matrix product."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false
# The DSL evaluates annotations, so this file must not postpone them.

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import cutlass
from cuda.bindings import driver
from cute_gemms import WgmmaGemm  # imported after sys.path is extended
from cutlass import cute
from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

import silo
from cute_kernels import add_kernel

FFI = "--enable-tvm-ffi"


@cute.jit
def add(
    x: cute.Tensor,
    y: cute.Tensor,
    out: cute.Tensor,
    n: cutlass.Int32,
    THREADS: cutlass.Constexpr,
    stream: driver.CUstream,
):
    """Launch the elementwise kernel as a user of the DSL does."""
    blocks = (n + THREADS - 1) // THREADS
    add_kernel(x, y, out, n, THREADS).launch(grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream)


class StreamGemm(WgmmaGemm):
    """The example's matrix product with a stream as parameter, which ``host="dsl"`` requires."""

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: driver.CUstream):
        """Launch the product; the tensor maps are made from a and b."""
        self.product(a, b, c, stream=stream)


def silo_gemm(host, config):
    """Return the product as a Silo kernel with one config; ``host`` names the host code that launches it."""
    return silo.cute(
        StreamGemm,
        name=f"gemm_{host}",
        signature="a: in, b: in, c: out",
        host=host,
        space={name: [value] for name, value in config.items()},
        grid=lambda a: (silo.cdiv(a.c.shape[0], a.BLOCK_M), silo.cdiv(a.c.shape[1], a.BLOCK_N)),
    )


def compiled_add(n, threads, arch, options=""):
    """Return the elementwise kernel, compiled by ``cute.compile`` for contiguous arrays of n fp32 elements."""
    arrays = (make_fake_tensor(cutlass.Float32, (n,), (1,), assumed_align=16) for _ in range(3))
    return _compiled(add, *arrays, cutlass.Int32(n), threads, arch=arch, options=options)


def compiled_gemm(size, config, arch, options=""):
    """Return the matrix product, compiled by ``cute.compile`` for one size."""
    m, n, k = size
    shapes = ((m, k), (n, k), (m, n))
    arrays = (make_fake_tensor(cutlass.BFloat16, shape, (shape[1], 1), assumed_align=16) for shape in shapes)
    return _compiled(StreamGemm(**config), *arrays, arch=arch, options=options)


def _compiled(function, *arguments, arch, options):
    stream = make_fake_stream(use_tvm_ffi_env_stream=FFI in options)
    return cute.compile(function, *arguments, stream, options=f"--gpu-arch {arch} {options}".strip())
