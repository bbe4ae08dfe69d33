"""Triton runs the census through Silo, on host memory."""

import os

import pytest

os.environ.setdefault("LIGER_FUSED_MOE_AUTOTUNE", "0")  # one config a kernel: its tuner tries dozens


@pytest.fixture(autouse=True)
def plugin(monkeypatch, tmp_path):
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    from triton.runtime.driver import driver

    from silo.kinds.triton.programs.backend.compiler import CpuBackend
    from silo.kinds.triton.programs.backend.driver import CpuDriver

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(triton.backends.backends, "silo", triton.backends.Backend(CpuBackend, CpuDriver))
    before = driver._active
    driver.set_active(CpuDriver())
    yield
    driver._active = before
