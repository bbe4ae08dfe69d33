"""Host functions of the CuTe DSL, which the DSL's own host code launches. Needs the DSL."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream, make_ptr

from silo.core.launch_info import AbiType
from silo.core.values import dtype
from silo.kinds.cute.cute_compiler import trace
from silo.kinds.cute.cute_job import CuteJob, host_arguments
from silo.kinds.cute.cute_toolchain import require_dsl, toolkit_version
from silo.kinds.cute.front.cute_installation import FRONT_END
from silo.kinds.cute.front.wrapping import Form, Wrapper, WrapperParameter
from silo.kinds.cute.host_object import linker

F32, I32, BOOL = dtype("fp32"), dtype("i32"), dtype("i1")
LEAVES = ((AbiType.POINTER, ""), (AbiType.I32, "shape.0"))


@cute.kernel
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, n: cutlass.Int32):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    i = bx * 256 + tx
    if i < n:
        c[i] = a[i] + b[i]


@cute.jit
def run_add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, n: cutlass.Int32, block: cutlass.Constexpr, stream):
    add(a, b, c, n).launch(grid=((n + block - 1) // block, 1, 1), block=(block, 1, 1), stream=stream)


@cute.kernel
def fill(a: cute.Tensor, value: cutlass.Float32, count: cutlass.Int32, flag: cutlass.Boolean):
    tx, _, _ = cute.arch.thread_idx()
    if flag and tx < count:
        a[tx] = value


@cute.jit
def run_fill(
    a: cute.Pointer,
    value: cutlass.Float32,
    count: cutlass.Int32,
    flag: cutlass.Boolean,
    gx: cutlass.Int32,
    gy: cutlass.Int32,
    gz: cutlass.Int32,
    stream,
):
    array = cute.make_tensor(a, cute.make_layout((64,)))
    fill(array, value, count, flag).launch(grid=(gx, gy, gz), block=(64, 1, 1), stream=stream)


@cute.jit
def run_alone(a: cute.Pointer):
    fill(cute.make_tensor(a, cute.make_layout((64,))), 1.0, 64, True).launch(grid=(1, 1, 1), block=(64, 1, 1))


@cute.jit
def run_stream_first(stream, a: cute.Pointer):
    fill(cute.make_tensor(a, cute.make_layout((64,))), 1.0, 64, True).launch(
        grid=(1, 1, 1), block=(64, 1, 1), stream=stream
    )


def _pointer():
    return make_ptr(cutlass.Float32, 0, cute.AddressSpace.gmem, assumed_align=16)


def _stream():
    return make_fake_stream(use_tvm_ffi_env_stream=True)


def with_tensors():
    """Return a wrapper with arrays of one length, declared by their layouts."""
    length = cute.SymInt()
    arrays = [make_fake_compact_tensor(cutlass.Float32, (length,), assumed_align=16) for _ in range(3)]
    parameters = (
        *(WrapperParameter(name, Form.TENSOR, F32, LEAVES) for name in "abc"),
        WrapperParameter("n", Form.SCALAR, I32),
    )
    return Wrapper(run_add, (*arrays, cutlass.Int32(1), 256, _stream()), parameters, written=False, stream=True)


def with_pointers():
    """Return a wrapper with an array passed by its address, numbers, and the grid of the launch."""
    given = (_pointer(), cutlass.Float32(1), cutlass.Int32(1), cutlass.Boolean(True))
    parameters = (
        WrapperParameter("a", Form.POINTER, F32),
        WrapperParameter("value", Form.SCALAR, F32),
        WrapperParameter("count", Form.SCALAR, I32),
        WrapperParameter("flag", Form.SCALAR, BOOL),
    )
    grid = (cutlass.Int32(1),) * 3
    return Wrapper(run_fill, (*given, *grid, _stream()), parameters, written=True, stream=True)


def without_stream():
    """Return a wrapper without a stream: its launch goes to the default stream, whatever the call's stream is."""
    return Wrapper(run_alone, (_pointer(),), (WrapperParameter("a", Form.POINTER, F32),), written=False)


def stream_first():
    """Return a wrapper whose stream is the first parameter, before the array."""
    parameters = (WrapperParameter("a", Form.POINTER, F32),)
    return Wrapper(run_stream_first, (_stream(), _pointer()), parameters, written=False, stream=True)


def job(wrapper, names, target):
    """Return the compile job of a wrapper; ``names`` are all parameters of the kernel."""
    with FRONT_END:
        traced = trace(wrapper, target.arch, "add")
    made = CuteJob(
        traced.artifact,
        require_dsl(),
        toolkit_version(),
        host_arguments(wrapper),
        host="dsl",
        parameters=names,
        linker=linker().version,
    )
    return made.to_job("add", target)
