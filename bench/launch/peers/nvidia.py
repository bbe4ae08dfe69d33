"""Launchers that take addresses or arrays of their own: cuda.core, cuda.bindings, cupy, tvm-ffi."""
# Each of these packages may be missing.
# pyright: reportMissingImports=false

from __future__ import annotations

import ctypes

from bench.launch.cases import ELEMENTS, GRID, THREADS, Call
from bench.launch.floor import driver as floor_driver
from bench.launch.floor import load
from bench.launch.peers import AbsentError, Context, Row


def cuda_core(context: Context) -> Call:
    import numpy as np

    try:
        from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch
    except ImportError:
        try:
            # the module of these names in older versions
            from cuda.core.experimental import Device, LaunchConfig, ObjectCode, Stream, launch
        except ImportError as error:
            raise AbsentError(f"cuda.core: {error}") from error
    device = Device(context.device)
    device.set_current()
    stream = Stream.from_handle(context.stream) if context.stream else device.default_stream
    kernel = ObjectCode.from_ptx(context.ptx.rstrip(b"\0")).get_kernel("nop")
    integers = {name: np.int32(value) for name, value in context.case.integer_values().items()}
    return context.call(
        "launch(stream, config, kernel, {arguments})",
        values={**context.addresses, **integers},
        constexprs=False,
        launch=launch,
        stream=stream,
        config=LaunchConfig(grid=GRID[0], block=THREADS),
        kernel=kernel,
    )


def cuda_bindings(context: Context) -> Call:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise AbsentError(f"cuda.bindings: {error}") from error

    function = driver.CUfunction(load(floor_driver("libcuda.so.1", context.folder, context.device), context.ptx, "nop"))
    case = context.case
    names = [*case.pointer_names, *case.integer_names]
    values = "(" + "".join(f"{name}, " for name in names) + ")"
    packed = f"({values}, types)" if names else "0"
    return Call(
        f"launch(function, {GRID[0]}, 1, 1, {THREADS}, 1, 1, 0, stream, {packed}, 0)",
        {
            **context.addresses,
            "launch": driver.cuLaunchKernel,
            "function": function,
            "stream": driver.CUstream(context.stream),
            "types": (ctypes.c_void_p,) * case.pointers + (ctypes.c_int,) * case.integers,
        },
    )


def cupy_raw(context: Context) -> Call:
    import numpy as np

    try:
        import cupy
    except ImportError as error:
        raise AbsentError(f"cupy: {error}") from error
    case = context.case
    parameters = [f"float *{name}" for name in case.pointer_names] + [f"int {name}" for name in case.integer_names]
    kernel = cupy.RawKernel(f'extern "C" __global__ void nop({", ".join(parameters)}) {{}}', "nop")
    arrays = {name: cupy.zeros(ELEMENTS, dtype=cupy.float32) for name in case.pointer_names}
    integers = {name: np.int32(value) for name, value in case.integer_values().items()}
    values = "(" + "".join(f"{name}, " for name in (*arrays, *integers)) + ")"
    (cupy.cuda.ExternalStream(context.stream) if context.stream else cupy.cuda.Stream.null).use()
    return Call(f"k(({GRID[0]},), ({THREADS},), {values})", {**arrays, **integers, "k": kernel})


TVM_FFI = """
using Launch = int(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                   void **);
static Launch *launch_kernel;
void open(int64_t address) {{ launch_kernel = reinterpret_cast<Launch *>(address); }}
void launch(int64_t function, int64_t stream{declared}) {{
  {copies}
  void *params[] = {{{pointed}nullptr}};
  int code = launch_kernel(reinterpret_cast<void *>(function), {grid}, 1, 1, {threads}, 1, 1, 0,
                            reinterpret_cast<void *>(stream), params, nullptr);
  if (code) TVM_FFI_THROW(RuntimeError) << "cuLaunchKernel: " << code;
}}
"""


def tvm_ffi(context: Context) -> Call:
    """A function with the kernel's parameters, compiled with tvm-ffi's own inline loader."""
    try:
        from tvm_ffi import cpp
    except ImportError as error:
        raise AbsentError(f"tvm-ffi: {error}") from error
    case = context.case
    declared = [f"tvm::ffi::TensorView {name}" for name in case.pointer_names]
    declared += [f"int32_t {name}" for name in case.integer_names]
    copies = [f"void *a{index} = {name}.data_ptr();" for index, name in enumerate(case.pointer_names)]
    pointed = [f"&a{index}, " for index in range(case.pointers)] + [f"&{name}, " for name in case.integer_names]
    source = TVM_FFI.format(
        declared="".join(f", {one}" for one in declared),
        copies=" ".join(copies),
        pointed="".join(pointed),
        grid=GRID[0],
        threads=THREADS,
    )
    module = cpp.load_inline(name=f"silo_bench_{case.kernel}", cpp_sources=source, functions=["open", "launch"])
    address = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value
    module.open(address)
    function = load(floor_driver("libcuda.so.1", context.folder, context.device), context.ptx, "nop")
    return context.call(
        "launch(function, stream, {arguments})",
        constexprs=False,
        launch=module.launch,
        function=function,
        stream=context.stream,
        keep=module,
    )


ROWS = (
    Row("cuda-core", "cuda.core launch(stream, config, kernel, ...), addresses", cuda_core),
    Row("cupy", "cupy RawKernel, cupy arrays", cupy_raw),
    Row("cuda-bindings", "cuda.bindings cuLaunchKernel, addresses", cuda_bindings),
    Row("tvm-ffi", "tvm-ffi, a compiled function, tensors", tvm_ffi),
)
