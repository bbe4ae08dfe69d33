"""Launches of unchanged programs on the CPU, beyond pointers and numbers."""
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false
# ruff: noqa: E402  # what follows needs Triton

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl
from triton.runtime.driver import driver as active_driver
from triton.tools.tensor_descriptor import TensorDescriptor

import silo
from silo.kinds.triton.front import adapter
from silo.kinds.triton.programs.backend.compiler import CpuBackend
from silo.kinds.triton.programs.backend.driver import CpuDriver
from silo.kinds.triton.programs.launch_report import KernelLine, Report, gather, text_of
from silo.kinds.triton.programs.program_kernels import SLOT, TABLE

pytestmark = pytest.mark.skipif(adapter.triton_version() < "3.6", reason="Triton's own calls run on the CPU from 3.6")


@pytest.fixture(autouse=True)
def accelerated(monkeypatch, tmp_path):
    """Silo's backend is Triton's active one, as where no GPU is, and launches are Silo's."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    backend = triton.backends.Backend(CpuBackend, CpuDriver)
    monkeypatch.setitem(triton.backends.backends, "silo", backend)
    before = active_driver._active
    active_driver.set_active(CpuDriver())
    with silo.accelerate():
        yield
    for function in (host, device, double, counted, scaled):
        function.device_caches.clear()
    if before is None:  # from Triton 3.7 on, a compiled kernel that is freed asks the active driver
        gc.collect()
    active_driver._active = before


class Array:
    """The least that Triton takes for a tensor, over numpy's memory."""

    device = "cpu"

    def __init__(self, data):
        room = np.zeros(data.nbytes + 16, np.uint8)
        start = -room.ctypes.data % 16  # Triton's descriptors ask for it
        self.data = room[start : start + data.nbytes].view(np.float32).reshape(data.shape)
        self.data[...] = data
        self.dtype, self.shape = self.data.dtype, self.data.shape

    def data_ptr(self):
        return self.data.ctypes.data

    def stride(self):
        return tuple(step // self.data.itemsize for step in self.data.strides)


RNG = np.random.default_rng(1)

LOADED = """
import sys, triton
apart = [name for name, module in list(sys.modules.items()) if name.startswith("triton.")
         and getattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], None) is None]
print(sorted(apart))
"""


def arrays(*shapes):
    return [Array(RNG.normal(size=shape).astype(np.float32)) for shape in shapes]


def test_every_module_of_triton_is_in_its_package_as_without_silo(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LOADED)
    found = [
        subprocess.run([sys.executable, *words, str(program)], capture_output=True, text=True, check=True).stdout
        for words in ([], ["-m", "silo", "exec"])
    ]
    assert found[0] == found[1]


@triton.jit
def host(d, out, B: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(0) * B
    tl.store(out + (at + tl.arange(0, B))[:, None] * N + tl.arange(0, N)[None, :], d.load([at, 0]) * 2)


@triton.jit
def device(x, out, M, N: tl.constexpr, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, N])
    e = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, N])
    e.store([tl.program_id(0) * B, 0], d.load([tl.program_id(0) * B, 0]) * 2)


@triton.jit
def double(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def counted(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def scaled(pair, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(pair[0] + i) * pair[1])


def kernel(function):
    return next(one for one in TABLE if one.native is vars(function).get(SLOT))


def test_a_descriptor_that_changes_in_place_between_launches():
    x, other, out = arrays((64, 32), (64, 64), (64, 32))
    d = TensorDescriptor.from_tensor(x, [16, 32])
    d.shape, d.strides = list(d.shape), list(d.strides)

    def run():
        out.data.fill(np.nan)
        host[(4,)](d, out, 16, d.block_shape[1])
        return out.data

    for turn in range(3):
        assert (run() == 2 * x.data).all(), turn
    d.shape[0] = 40
    assert (run()[:40] == 2 * x.data[:40]).all()
    assert (out.data[40:] == 0).all()
    d.padding = "nan"
    assert np.isnan(run()[40:]).all()
    d.base, d.strides[0], d.shape = other, 64, [64, 32]
    assert (run() == 2 * other.data[:, :32]).all()
    d.strides = [32, 1]
    narrow = 2 * other.data.ravel()[: 64 * 32].reshape(64, 32)
    assert (run() == narrow).all()
    d.block_shape = [16, 16]
    run()
    assert (out.data.ravel()[: 64 * 16].reshape(64, 16) == narrow[:, :16]).all()
    assert (kernel(host).launches, kernel(host).reasons) == ((6, 2), {})


def test_descriptors_made_in_kernels_and_kernels_launched_by_hand():
    x, out = arrays((64, 32), (64, 32))
    for _ in range(3):
        out.data.fill(0)
        device[(4,)](x, out, 64, 32, 16)
        assert (out.data == 2 * x.data).all()
    assert kernel(device).launches == (2, 1)
    warm = double.warmup(x, out, 2048, 256, grid=(1,))
    for n in (2048, 1000, 2048):
        out.data.fill(0)
        assert warm[(8, 1, 1)](x, out, n, 256) is None
        assert (out.data.ravel()[:n] == 2 * x.data.ravel()[:n]).all()
        assert not out.data.ravel()[n:].any()
    launches, own = kernel(double).launches
    assert launches + own == 3
    assert launches >= 1


def test_hooks_see_launches_with_their_names():
    x, out = arrays(256, 256)
    double[(1,)](x, out, 256, 256)
    seen = []
    enter, leave = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook

    def entering(lazy):
        seen.append(("enter", lazy.get()["name"], bool((out.data == 0).all())))

    def leaving(lazy):
        seen.append(("leave", lazy.get()["name"], bool((out.data == 2 * x.data).all())))

    launches, own = kernel(double).launches
    enter.add(entering)
    leave.add(leaving)
    try:
        out.data.fill(0)
        double[(1,)](x, out, 256, 256)
    finally:
        enter.remove(entering)
        leave.remove(leaving)
    assert seen == [("enter", "double", True), ("leave", "double", True)]
    assert kernel(double).launches == (launches + 1, own)


class Pair(NamedTuple):
    array: Any
    factor: Any


def test_tuples_are_right_and_counted():
    x, out = arrays(64, 64)
    for factor in (3, 2.5, 1):
        for kind in (lambda *values: values, Pair):
            out.data.fill(0)
            scaled[(1,)](kind(x, factor), out, 64)
            assert (out.data == x.data * np.float32(factor)).all()
    launches, own = kernel(scaled).launches
    assert launches + own == 6
    assert launches > 0 or kernel(scaled).reasons == {"the argument pair is a tuple": 6}


def test_the_table_gives_reasons_and_shares():
    lines = (
        KernelLine("busy", "a.py:1", 90, 2, 2, {}, {}),
        KernelLine("left", "a.py:9", 0, 6, 1, {"it is odd": 1}, {"it is odd": 5}),
    )
    text = text_of(Report(7, "a.py", "3.9.0", lines, {"a hook decides": 2}))
    assert text.splitlines()[0] == "silo: Triton kernels of process 7 (Triton 3.9.0)"
    assert text.splitlines()[-4:] == [
        "  90 of 100 launches by Silo (90.0 %)",
        "  left to Triton: 3 launches (3.0 %): the first of each kind, which Triton compiles",
        "  left to Triton: 5 launches (5.0 %) of left: it is odd",
        "  left to Triton: 2 launches (2.0 %): a hook decides",
    ]


def test_what_is_gathered_adds_up():
    x, out = arrays(64, 64)
    for _ in range(3):
        counted[(1,)](x, out, 64, 64)
        counted[[1]](x, out, 64, 64)
    (line,) = [one for one in gather({}).kernels if one.kernel == "counted"]
    assert (line.launches, line.own_launches) == (2, 4)
    assert list(line.reasons.values()) == [3]
    assert "its grid" in next(iter(line.reasons))
    assert Path(line.place.rpartition(":")[0]).name == Path(__file__).name
