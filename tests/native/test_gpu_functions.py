"""What is asked of the driver for a kernel, and what is refused."""

from __future__ import annotations

import gpu_stub

HEAD = """
import pytest
from gpu_stub import launcher, open_drivers, stub, text
from silo.errors import ArgumentError, DeviceError, LaunchError
from silo.launch import native
open_drivers_now = open_drivers
def module(kind="cuda", index=0, **directives):
    return native.GpuModule(kind, index, text("k", **directives))
def refused(match, code, **options):
    with pytest.raises(DeviceError, match=match):
        native.LoadedKernel(code, "k", "kernel", **options)
"""


def test_shared_memory_up_to_the_limit():
    gpu_stub.run(
        HEAD
        + """
open_drivers()
limit = 232448
native.LoadedKernel(module(static_shared=1000), "k", shared_bytes=49152 - 1000)
assert (stub.last("k").max_dynamic, stub.last("k").cache) == (-1, -1)
launch = launcher(native.LoadedKernel(module(static_shared=1000), "k", shared_bytes=49152 - 999))
assert (stub.last("k").max_dynamic, stub.last("k").cache) == (limit - 1000, 1)
launch()
launch = launcher(native.LoadedKernel(module(static_shared=1000), "k", shared_bytes=limit - 1000))
launch()
assert stub.last("k").shared == limit - 1000 and stub.last("k").count == 2
refused(f"kernel on cuda:0 .Stub H100, sm_90.: it needs {limit + 1} bytes .* .1000 static, {limit - 999} dynamic."
        f", the device has {limit}", module(static_shared=1000), shared_bytes=limit - 999)
refused("65537 bytes", module("hip"), shared_bytes=65537)
launcher(native.LoadedKernel(module("hip"), "k", shared_bytes=65536))()
assert stub.last("k").shared == 65536
stub.fail("cuFuncSetAttribute", 1)
with pytest.raises(DeviceError, match="cannot prepare a kernel: CUDA_ERROR_INVALID_VALUE"):
    native.LoadedKernel(module(), "k", shared_bytes=60000)
"""
    )


def test_blocks():
    gpu_stub.run(
        HEAD
        + """
open_drivers()
for kind in ("cuda", "hip"):
    code = module(kind, max_threads=256)
    for block in ((256, 1, 1), (16, 16, 1), (1, 4, 64), (4, 3, 2), (1, 1, 1)):
        launcher(native.LoadedKernel(code, "k", block=block), grid=(5, 4, 3))()
        assert stub.last("k").block == block and stub.last("k").grid == (5, 4, 3)
    refused("launched with 257 threads a block .257 x 1 x 1., the code allows 1 to 256", code, block=(257, 1, 1))
    refused("launched with 272 threads a block .17 x 16 x 1., the code allows 1 to 256", code, block=(17, 16, 1))
    for axis, name in enumerate("xyz"):
        deepest = 64 if kind == "cuda" and name == "z" else 1024
        def along(size):
            return tuple(size if axis == other else 1 for other in range(3))
        launcher(native.LoadedKernel(module(kind), "k", block=along(deepest)))()
        assert stub.last("k").block == along(deepest)
        shown = " x ".join(map(str, along(deepest + 1)))
        refused(f"blocks of {shown} threads, the device takes 1 to {deepest} along {name}", module(kind),
                block=along(deepest + 1))
        for size in (0, -1, 65536, 2**32 + 1):
            shown = " x ".join(map(str, along(size)))
            refused(f"kernel: a block of {shown} threads cannot be", code, block=along(size))
for block in ((1, 1), 256, (1, 1, 1.5)):
    with pytest.raises(TypeError):
        native.LoadedKernel(code, "k", block=block)
with pytest.raises(OverflowError):
    native.LoadedKernel(code, "k", block=(2**63, 1, 1))
"""
    )


def test_attributes():
    gpu_stub.run(
        HEAD
        + """
open_drivers()
code = module()
def attributes(**options):
    launcher(native.LoadedKernel(code, "k", **options), grid=(3, 2, 1))()
    return stub.last("k").attributes
assert attributes() == {}
assert attributes(pdl=True) == {6: (1, 0, 0)}
assert attributes(cooperative=True) == {2: (1, 0, 0)}
assert attributes(cluster=(2, 1, 1)) == {4: (2, 1, 1), 5: (1, 0, 0)}
assert stub.last("k").grid == (6, 2, 1) and stub.last("k").non_portable == -1
assert attributes(cluster=(2, 2, 2), pdl=True, cooperative=True) == {
    4: (2, 2, 2), 5: (1, 0, 0), 2: (1, 0, 0), 6: (1, 0, 0)}
assert stub.last("k").grid == (6, 4, 2) and stub.last("k").non_portable == -1
assert attributes(cluster=(16, 1, 1))[4] == (16, 1, 1) and stub.last("k").non_portable == 1
assert stub.last("k").grid == (48, 2, 1)
for cluster in ((17, 1, 1), (4, 4, 2), (0, 1, 1), (2**32 - 1, 2, 2)):
    refused("there are 1 to 16 blocks in one", code, cluster=cluster)
"""
    )


def test_a_device_that_has_not_what_the_kernel_needs():
    gpu_stub.run(
        HEAD
        + """
stub.attribute(120, 0), stub.attribute(95, 0), stub.attribute(75, 8)
open_drivers()
for kind in ("cuda", "hip"):
    refused("in clusters, which this device has not", module(kind), cluster=(2, 1, 1))
    refused("programmatic dependent launch, which this device has not", module(kind), pdl=True)
    launcher(native.LoadedKernel(module(kind), "k"))()
refused("a cooperative launch, which this device has not", module(), cooperative=True)
launcher(native.LoadedKernel(module("hip"), "k", cooperative=True))()
assert stub.last("k").cooperative
"""
    )


def test_grids():
    gpu_stub.run(
        HEAD
        + """
open_drivers()
def launch(grid, kind="cuda", **options):
    before = stub.last("k").count
    launcher(native.LoadedKernel(module(kind), "k", **options), grid=grid)()
    assert stub.last("k").count == before + 1
    return stub.last("k").grid
largest = 2**31 - 1
for grid in ((largest, 65535, 1), (largest, 1, 65535), (1, 65535, 65535)):  # all three together are too many to end
    assert launch(grid) == grid
assert launch((largest // 2, 21845, 1), cluster=(2, 3, 1)) == (largest - 1, 65535, 1)
assert launch((2**32 // 256 - 1, 1, 1), "hip", block=(256, 1, 1)) == (2**24 - 1, 1, 1)
assert launch((2**32 // 4 - 1, 65536, 1), "hip", block=(4, 8, 2)) == (2**30 - 1, 65536, 1)
for grid in ((largest, 65536, 1), (largest, 1, 65536), (1, 65536, 65536)):
    assert launch(grid, "hip") == grid
for grid, options in (((largest + 1,), {}), ((1, 65536), {}), ((1, 1, 65536), {}), ((2**40,), {}),
                      ((largest // 2 + 1,), {"cluster": (2, 1, 1)}), ((2**24,), {"kind": "hip", "block": (256, 1, 1)}),
                      ((2**30,), {"kind": "hip", "block": (4, 8, 2)})):
    with pytest.raises((ArgumentError, LaunchError, DeviceError)):
        launch(grid, **options)
for grid in ((0,), (3, 0), (1, 1, 0)):
    before = stub.last("k").count
    launcher(native.LoadedKernel(module(), "k"), grid=grid)()
    assert stub.last("k").count == before
"""
    )


def test_both_drivers_take_cpu_modules_beside():
    gpu_stub.run(
        HEAD
        + """
open_drivers()
with pytest.raises(TypeError, match="a CpuModule, a GpuModule or a LibraryCode"):
    native.LoadedKernel(3, "k")
assert [native.LoadedKernel(module(kind), "k").driver for kind in ("cuda", "hip")] == ["cuda", "hip"]
"""
    )
