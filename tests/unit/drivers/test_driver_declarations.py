"""Drivers as data: each folder of silo/drivers declares what the rest of Silo needs to know of its kind."""

import subprocess
import sys

import pytest

from silo.core.device import DriverDeclaration, Target, driver_of, drivers
from silo.core.plugins import driver_kinds, load_place, shipped_places
from silo.drivers.cpu.cpu_device import CpuDevice
from silo.drivers.metal.metal_device import MetalDevice
from silo.drivers.tpu.tpu_device import TpuDevice
from silo.launch.gpu import GpuDevice
from silo.settings import settings


def test_a_folder_is_a_driver():
    assert [one.kind for one in drivers()] == list(driver_kinds()) == sorted(shipped_places("silo.devices"))
    assert {"cpu", "cuda", "hip", "metal", "tpu"} <= set(driver_kinds())
    for kind, place in shipped_places("silo.devices").items():
        assert callable(load_place(place)), kind


@pytest.mark.parametrize("driver", drivers(), ids=lambda driver: driver.kind)
def test_what_a_driver_declares_agrees_with_itself(driver):
    assert driver.is_arch(driver.example)
    assert str(Target.parse(f"{driver.kind}:{driver.example}")) == f"{driver.kind}:{driver.example}"
    assert all(driver.is_arch(arch) and arch == Target(driver.kind, arch).device_arch for arch in driver.units)
    assert not driver.library or hasattr(settings(), driver.library)


def test_devices_have_the_memory_that_their_driver_declares():
    for kind, device in (("cpu", CpuDevice), ("metal", MetalDevice)):
        assert device.memory.fget(None) == driver_of(kind).memory
    assert TpuDevice(None, None, 0, "").memory == driver_of("tpu").memory
    for kind in ("cuda", "hip"):
        assert GpuDevice(driver_of(kind), 0, {}).memory == driver_of(kind).memory


def test_two_drivers_are_for_different_memory_and_code():
    for found in ([m for one in drivers() for m in one.memory.types], [b for one in drivers() for b in one.blobs]):
        assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("target", "lanes"),
    [
        ("cuda:sm_90a", 32),
        *(("hip:gfx906", 64), ("hip:gfx90a", 64), ("hip:gfx942", 64), ("hip:gfx9-generic", 64)),
        *(("hip:gfx9-4-generic", 64), ("hip:gfx1030", 32), ("hip:gfx1201", 32), ("hip:gfx10-3-generic", 32)),
        *(("hip:gfx11-generic", 32), ("hip", 64), ("xpu:pvc", 32)),
    ],
)
def test_lanes_of_a_warp(target, lanes):
    found = Target.parse(target)
    assert driver_of(found.kind).warp_size(found.arch) == lanes


def test_a_kind_without_a_driver_has_the_defaults():
    assert driver_of("of_a_plugin") == DriverDeclaration("of_a_plugin")
    assert Target("of_a_plugin", "a9f").device_arch == "a9f"


def test_a_declaration_opens_no_driver():
    code = """if True:
    import sys
    from silo.core.device import drivers
    assert drivers()
    print([name for name in sys.modules if name.startswith(("silo.launch", "silo.machine", "silo._native", "jax"))])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
