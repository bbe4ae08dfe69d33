"""One fresh process of the benchmark: ``child.py silo BUNDLE KERNELS LIBRARY CHECK`` or ``child.py triton``.

Prints one JSON line: the nanoseconds of each step, and which of torch, Triton and numpy were imported.
"""
# Triton's kernels take integers for their constexprs.
# pyright: reportArgumentType=false

import sys
import time

now = time.perf_counter_ns
SIZE = 1 << 16
BLOCK = 1024


def make_context(driver):
    """Make the device's primary context by the driver alone, so that none of its time counts as Silo's."""
    import ctypes

    device, context = ctypes.c_int(), ctypes.c_void_p()
    codes = [driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0)]
    codes += [driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), driver.cuCtxSetCurrent(context)]
    if any(codes):
        raise SystemExit(f"{driver}: no context: {codes}")


def run_silo(path, count, library, *, check):
    """Measure Silo.

    Return the nanoseconds of each step (import, context, ...), and the heavy modules that were loaded.
    """
    steps = {}
    begin = now()
    from silo import Buffer, load
    from silo.launch import native

    steps["import"] = now() - begin

    import ctypes

    begin = now()
    make_context(ctypes.CDLL(library))
    steps["context"] = now() - begin

    start = begin = now()
    x, y, out = (Buffer((SIZE,), "float32", device="cuda") for _ in range(3))
    steps["arguments"] = now() - begin
    begin = now()
    kernels = load(path)
    steps["open"] = now() - begin
    begin = now()
    first = next(iter(kernels))
    kernels[first](x, y, out, SIZE)
    native.gpu_synchronize("cuda", 0)
    steps["launch"] = now() - begin
    steps["first launch"] = now() - start
    begin = now()
    kernels[first](x, y, out, SIZE)
    native.gpu_synchronize("cuda", 0)
    steps["second launch"] = now() - begin
    for name in list(kernels)[1:count]:
        begin = now()
        kernels[name](x, y, out, SIZE)
        native.gpu_synchronize("cuda", 0)
        steps["last kernel"] = now() - begin
    loaded = [name for name in ("torch", "triton", "numpy") if name in sys.modules]
    if check:
        check_silo(kernels[first], x, y, out, native)
    return steps, loaded


def check_silo(kernel, x, y, out, native):
    """Exit with an error unless a launch computes out = x + y."""
    import array

    left, right = (array.array("f", (float(i % 100 + add) for i in range(SIZE))) for add in (1, 7))
    x.copy_from(memoryview(left))
    y.copy_from(memoryview(right))
    kernel(x, y, out, SIZE)
    native.gpu_synchronize("cuda", 0)
    result = array.array("f", bytes(4 * SIZE))
    out.copy_to(memoryview(result))
    native.gpu_synchronize("cuda", 0)
    if any(a + b != c for a, b, c in zip(left, right, result, strict=True)):
        raise SystemExit("the kernel's result is wrong")


def run_triton(count):
    """Measure the steps of :func:`run_silo` with Triton and torch; ``TRITON_CACHE_DIR`` names Triton's disk cache."""
    import bench.cold_start  # noqa: F401  # before the clock: no part of what Triton costs

    steps = {}
    begin = now()
    import torch
    import triton  # noqa: F401  # what a user of it imports

    steps["import"] = now() - begin
    begin = now()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    steps["context"] = now() - begin
    start = begin = now()
    x, y, out = (torch.zeros(SIZE, device="cuda") for _ in range(3))
    steps["arguments"] = now() - begin
    begin = now()
    from bench.cold_start import kernels as cold_kernels

    steps["open"] = now() - begin
    grid = (-(-SIZE // BLOCK),)
    begin = now()
    cold_kernels.add_0[grid](x, y, out, SIZE, BLOCK=BLOCK)
    torch.cuda.synchronize()
    steps["launch"] = now() - begin
    steps["first launch"] = now() - start
    begin = now()
    cold_kernels.add_0[grid](x, y, out, SIZE, BLOCK=BLOCK)
    torch.cuda.synchronize()
    steps["second launch"] = now() - begin
    for index in range(1, count):
        begin = now()
        getattr(cold_kernels, f"add_{index}")[grid](x, y, out, SIZE, BLOCK=BLOCK)
        torch.cuda.synchronize()
        steps["last kernel"] = now() - begin
    return steps, ["torch", "triton"]


def main():
    if sys.argv[1] == "triton":
        steps, loaded = run_triton(10)
    else:
        steps, loaded = run_silo(sys.argv[2], int(sys.argv[3]), sys.argv[4], check=sys.argv[5] == "check")
    import json

    print(json.dumps({"steps": steps, "loaded": loaded}))


if __name__ == "__main__":
    main()
