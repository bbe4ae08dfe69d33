"""TPUs as jax describes them: what Silo makes of that. None was ever run on."""

from types import SimpleNamespace

import pytest

from silo.core.device import Target
from silo.drivers.tpu import tpu_device as device
from silo.errors import DeviceError


def chip(kind, cores=1):
    return SimpleNamespace(device_kind=kind, num_cores=cores, memory_stats=lambda: {"bytes_limit": 1 << 34})


def test_a_chip_is_called_what_targets_call_it():
    found = device.described(chip("TPU v5 lite"), 1, "0.10.2")
    assert (found.target, found.index, found.driver) == (Target.parse("tpu:v5e"), 1, "jax 0.10.2")
    assert found.model.memory_bytes == 1 << 34
    assert found.runs(Target.parse("tpu:v5e"), "jaxexp")
    assert not found.runs(Target.parse("tpu:v6e"), "jaxexp")
    assert found.facts()["sm_count"] == 1
    assert found.timer().elapsed_ns(lambda: None, 3) >= 0


def test_a_chip_that_no_target_names_is_refused():
    with pytest.raises(DeviceError, match="calls 'TPU v99', and Silo knows TPU v4"):
        device.described(chip("TPU v99"), 0, "0.10.2")


def test_where_there_are_none_nothing_is_imported(monkeypatch):
    monkeypatch.setattr(device, "import_module", lambda name: pytest.fail(f"{name} is imported"))
    with pytest.raises(DeviceError, match="no TPU"):
        device.devices()


def test_its_code_is_loaded_by_jax():
    found = device.described(chip("TPU7x", 2), 0, "0.10.2")
    with pytest.raises(DeviceError, match="no driver of Silo loads 'jaxexp'"):
        found.load(None, b"", "jaxexp", "k")
