"""The energy counter of NVIDIA GPUs: read from NVML, and refused with the reason wherever NVML does not answer."""

import pytest

import nvml_stub
from silo.core.decisions import Rejected
from silo.drivers.cuda.energy_counter import energy_counter
from silo.settings import override


def opened(monkeypatch, mode="", bus_id=nvml_stub.BUS_ID):
    monkeypatch.setenv("NVML_STUB", mode)
    with override(nvml_library=nvml_stub.library()):
        return energy_counter(bus_id)


def test_the_counter_is_read_and_grows(monkeypatch):
    import time

    counter = opened(monkeypatch)
    assert not isinstance(counter, Rejected)
    first = counter.millijoules()
    time.sleep(0.05)
    assert counter.millijoules() > first


@pytest.mark.parametrize(
    ("mode", "bus_id", "reason"),
    [
        ("refuses", nvml_stub.BUS_ID, "NVML reads no energy: Not Supported (error 3)"),
        ("unloaded", nvml_stub.BUS_ID, "NVML does not start: Driver Not Loaded (error 9)"),
        ("", "0000:02:00.0", "NVML does not find the GPU at 0000:02:00.0: Not Found (error 6)"),
    ],
)
def test_a_refusal_says_why(monkeypatch, mode, bus_id, reason):
    found = opened(monkeypatch, mode, bus_id)
    assert isinstance(found, Rejected)
    assert found.reason == reason


def test_a_missing_library_is_a_reason():
    with override(nvml_library="/nowhere/libnvidia-ml.so.1"):
        found = energy_counter(nvml_stub.BUS_ID)
    assert isinstance(found, Rejected)
    assert "/nowhere/libnvidia-ml.so.1" in found.reason


def test_a_library_of_another_kind_is_a_reason():
    with override(nvml_library="libc.so.6"):
        found = energy_counter(nvml_stub.BUS_ID)
    assert isinstance(found, Rejected)
    assert found.reason.startswith("libc.so.6 has no nvmlInit_v2")
