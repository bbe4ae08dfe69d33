"""CuTe DSL kernels, each with a host function that launches it in a different way. Needs the DSL."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from types import SimpleNamespace

import cuda.bindings.driver as cuda
import cutlass
from cutlass import (
    cute,
    memory,
)
from cutlass.cute import nvgpu
from cutlass.cute.nvgpu import warpgroup
from cutlass.cute.runtime import (
    make_fake_compact_tensor,
    make_fake_stream,
    make_fake_tensor,
    make_ptr,
)

from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.kinds.cute.front.wrapping import Form, Wrapper, WrapperParameter

F32, I32 = dtype("fp32"), dtype("i32")


@cute.kernel
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, n: cutlass.Int32, s: cutlass.Float32):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    i = bx * 256 + tx
    if i < n:
        c[i] = a[i] + b[i] * s


@cute.jit
def add_static(
    pa: cute.Pointer,
    pb: cute.Pointer,
    pc: cute.Pointer,
    n: cutlass.Int32,
    s: cutlass.Float32,
    gx: cutlass.Int32,
    gy: cutlass.Int32,
    gz: cutlass.Int32,
):
    layout = cute.make_layout((1 << 20,))
    a, b, c = cute.make_tensor(pa, layout), cute.make_tensor(pb, layout), cute.make_tensor(pc, layout)
    add(a, b, c, n, s).launch(grid=(gx, gy, gz), block=(256, 1, 1))


@cute.jit
def add_dynamic(
    stream: cuda.CUstream,
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    n: cutlass.Int32,
    s: cutlass.Float32,
):
    add(a, b, c, n, s).launch(
        grid=((n + 255) // 256, 1, 1),
        block=(256, 1, 1),
        cluster=(2, 1, 1),
        stream=stream,
        use_pdl=True,
        cooperative=True,
    )


@cute.jit
def add_elsewhere(
    a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, n: cutlass.Int32, s: cutlass.Float32, t: cuda.CUstream
):
    add(a, b, c, n, s).launch(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1))


@cute.jit
def add_twice(pa: cute.Pointer, n: cutlass.Int32, s: cutlass.Float32):
    x = cute.make_tensor(pa, cute.make_layout((1 << 20,)))
    add(x, x, x, n, s).launch(grid=(4, 1, 1), block=(256, 1, 1))
    add(x, x, x, n, s).launch(grid=(4, 1, 1), block=(256, 1, 1))


@cute.jit
def add_computed(pa: cute.Pointer, n: cutlass.Int32, s: cutlass.Float32):
    x = cute.make_tensor(pa, cute.make_layout((1 << 20,)))
    add(x, x, x, n * 2, s).launch(grid=(4, 1, 1), block=(256, 1, 1))


@cute.jit
def add_maybe(pa: cute.Pointer, n: cutlass.Int32, s: cutlass.Float32):
    x = cute.make_tensor(pa, cute.make_layout((1 << 20,)))
    if n > 0:
        add(x, x, x, n, s).launch(grid=(4, 1, 1), block=(256, 1, 1))


@cute.jit
def add_sized(pa: cute.Pointer, n: cutlass.Int32, s: cutlass.Float32):
    x = cute.make_tensor(pa, cute.make_layout((1 << 20,)))
    add(x, x, x, n, s).launch(grid=(4, 1, 1), block=(64, 1, 1), smem=n)


@cute.kernel
def row_sum(x: cute.Tensor, out: cute.Tensor, block: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    shared = memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((block,)), byte_alignment=16)
    shared[tx] = x[bx, tx]
    cute.arch.barrier()
    if tx == 0:
        total = cutlass.Float32(0)
        for i in cutlass.range(block):
            total += shared[i]
        out[bx] = total


@cute.jit
def row_sums(x: cute.Tensor, out: cute.Tensor, block: cutlass.Constexpr):
    row_sum(x, out, block).launch(grid=(x.shape[0], 1, 1), block=(block, 1, 1))


@cute.kernel
def which_arch(x: cute.Tensor):
    arch = cutlass.cutlass_dsl.CuTeDSL._get_dsl().get_arch_enum()
    x[0] = cutlass.Float32(arch.major)


@cute.jit
def which_arch_host(px: cute.Pointer):
    which_arch(cute.make_tensor(px, cute.make_layout((1,)))).launch(grid=(1, 1, 1), block=(1, 1, 1))


@cute.kernel
def big(x: cute.Tensor, floats: cutlass.Constexpr):
    tx, _, _ = cute.arch.thread_idx()
    shared = memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((floats,)), byte_alignment=16)
    shared[tx] = x[tx]
    cute.arch.barrier()
    x[tx] = shared[31 - tx]


@cute.jit
def big_host(px: cute.Pointer, floats: cutlass.Constexpr):
    big(cute.make_tensor(px, cute.make_layout((32,))), floats).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.kernel
def multiply(x: cute.Tensor, mma: cute.TiledMma):
    thread, _, _ = cute.arch.thread_idx()
    x[thread] = cutlass.Float32(mma.get_slice(0).partition_shape_C((64, 64))[1])


@cute.jit
def multiply_host(px: cute.Pointer):
    bf16 = cutlass.BFloat16
    operation = warpgroup.MmaF16BF16Op(
        bf16,
        cutlass.Float32,
        (64, 64, 16),
        warpgroup.OperandSource.SMEM,
        nvgpu.OperandMajorMode.K,
        nvgpu.OperandMajorMode.K,
    )
    x = cute.make_tensor(px, cute.make_layout((128,)))
    multiply(x, cute.make_tiled_mma(operation)).launch(grid=(1, 1, 1), block=(128, 1, 1))


@cute.jit
def wrong(px: cute.Pointer):
    x = cute.make_tensor(px, cute.make_layout((32,)))
    x.no_such_member()


def pointer():
    return make_ptr(cutlass.Float32, 0, cute.AddressSpace.gmem, assumed_align=16)


def array(name, form=Form.POINTER, leaves=()):
    return WrapperParameter(name, form, F32, tuple(leaves))


def number(name, kind=F32):
    return WrapperParameter(name, Form.SCALAR, kind)


LINE = ((AbiType.POINTER, ""), (AbiType.I32, "shape.0"))
ROWS = ((AbiType.POINTER, ""), (AbiType.I32, "shape.0"), (AbiType.I64, "stride.0"))


def line():
    return make_fake_compact_tensor(cutlass.Float32, (cute.SymInt(),), assumed_align=16)


def rows(width):
    return make_fake_tensor(cutlass.Float32, (cute.SymInt(), width), stride=(cute.SymInt(64), 1), assumed_align=16)


def static(**options):
    given = (pointer(), pointer(), pointer(), 1, 1.0, 1, 1, 1)
    return Wrapper(
        add_static, given, (array("a"), array("b"), array("c"), number("n", I32), number("s")), True, **options
    )


def dynamic(function=add_dynamic, given=None):
    given = given or (make_fake_stream(), line(), line(), line(), 1, 1.0)
    arrays = tuple(array(name, Form.TENSOR, LINE) for name in "abc")
    return Wrapper(function, given, (*arrays, number("n", I32), number("s")), False, stream=True)


def elsewhere():
    return dynamic(add_elsewhere, (line(), line(), line(), 1, 1.0, make_fake_stream()))


def sums(block=256):
    parameters = (array("x", Form.TENSOR, ROWS), array("out", Form.TENSOR, LINE))
    return Wrapper(row_sums, (rows(block), line(), block), parameters, False)


def one(function, *more, **options):
    return Wrapper(
        function, (pointer(), *more), (array("x"), number("n", I32), number("s"))[: 1 + len(more)], False, **options
    )


def large(floats):
    return Wrapper(big_host, (pointer(), floats), (array("x"),), False)


def nothing():
    return one(multiply_host)


def source(make, name="k"):
    """Return a source whose wrapper is the result of ``make``."""
    signature = Signature((Parameter("x", ParameterKind.POINTER, F32),))
    calls = []

    def wrapper(variant):
        calls.append(variant)
        return make()

    return SimpleNamespace(kind="cute", name=name, fingerprint=name, signature=signature, wrapper=wrapper, calls=calls)


def variant(given, arch):
    return Variant(
        given.name, given.fingerprint, given.signature, Specialization(), Config(), Target.parse(f"cuda:{arch}")
    )
