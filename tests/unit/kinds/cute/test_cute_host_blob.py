"""The blob of the DSL's host code, and what refuses it. Needs no DSL."""

import hashlib
from types import SimpleNamespace

import pytest

from silo.core.consent import HostCode
from silo.core.decisions import Rejected
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.plugins import is_host_code, loader_of
from silo.errors import DeviceError, TrustError
from silo.frozen import replace
from silo.kinds.cute import host_loader
from silo.kinds.cute.cute_declaration import CUTEOBJ
from silo.kinds.cute.front import cute_installation
from silo.kinds.cute.host_loader import MAGIC, HostObject, HostValue, Passing
from silo.launch.runtime import load_library_code

SAMPLE = HostObject(
    function="silo_add",
    initialize="silo_cuda_init",
    prepare="silo_cuda_load_to_device",
    arguments=(
        HostValue(Passing.TENSOR, 1),
        HostValue(Passing.ADDRESS, 0),
        HostValue(Passing.FLOAT, 2),
        HostValue(Passing.GRID, 2),
        HostValue(Passing.STREAM),
    ),
    parameters=3,
    dsl="4.8.1",
    toolkit="13.4",
    code=b"\x7fELF and so on",
)
LAUNCH = LaunchInfo("silo_add", ())
DEVICE = SimpleNamespace(
    target=Target("cuda", "sm_90a"),
    index=0,
    facts=lambda: {"driver_version": 13000},
    memory=SimpleNamespace(types=(2,)),
)


def test_a_blob_reads_as_it_was_written():
    assert HostObject.from_bytes(SAMPLE.to_bytes()) == SAMPLE


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(MAGIC) + 2],
        lambda data: b"\x7fELF" + data,
        lambda data: data.replace(b"address", b"addresz"),
        lambda data: data[: len(MAGIC)] + b"\xff\xff\xff\x7f" + data[len(MAGIC) + 4 :],
        lambda data: data.replace(b'["grid",2]', b'["grid",3]'),
        lambda data: data.replace(b'["float",2]', b'["float",3]'),
        lambda data: data.replace(b'"parameters":3', b'"parameters":-'),
    ],
)
def test_a_damaged_blob_is_refused(change):
    data = change(SAMPLE.to_bytes())
    with pytest.raises(ValueError, match=r".+"):
        HostObject.from_bytes(data)
    with pytest.raises(DeviceError, match="its code is damaged"):
        host_loader.load_cuteobj(DEVICE, LAUNCH, data, "add")


def test_it_is_host_code_that_a_loader_of_silo_runs():
    assert is_host_code("cuteobj")
    assert loader_of("cuteobj") is CUTEOBJ


def test_nothing_is_opened_without_consent(monkeypatch):
    """Not even read: the loader is imported after the question."""
    monkeypatch.setattr(host_loader, "load_cuteobj", lambda *_: pytest.fail("the loader saw it"))
    blob = SAMPLE.to_bytes()
    with pytest.raises(TrustError, match="without consent"):
        load_library_code(CUTEOBJ, DEVICE, LAUNCH, blob, "cuteobj", "add", consent=None)
    other = HostCode(hashlib.sha256(b"other").hexdigest(), "cuteobj", LAUNCH)
    with pytest.raises(TrustError, match="which these bytes are not"):
        load_library_code(CUTEOBJ, DEVICE, LAUNCH, blob, "cuteobj", "add", consent=SimpleNamespace(code=other))


def test_each_missing_part_is_named_with_its_cure(monkeypatch, tmp_path):
    blob = SAMPLE.to_bytes()

    def refused(text):
        with pytest.raises(DeviceError, match=text):
            host_loader.load_cuteobj(DEVICE, LAUNCH, blob, "add")

    monkeypatch.setattr(host_loader, "dsl_version", lambda: None)
    refused(r"add: .*nvidia-cutlass-dsl is not installed: pip install 'nvidia-cutlass-dsl==4\.8\.1'")
    monkeypatch.setattr(host_loader, "dsl_version", lambda: "4.9.0")
    refused(r"made by nvidia-cutlass-dsl 4\.8\.1, and 4\.9\.0 is installed: .*or build the kernel again")
    monkeypatch.setattr(host_loader, "dsl_version", lambda: "4.8.1")
    monkeypatch.setattr(cute_installation, "folders_of", lambda _: [tmp_path])
    refused(r"libcute_dsl_runtime\.so is not installed")
    made = tmp_path / "cu14" / "lib"
    made.mkdir(parents=True)
    (made / "libcute_dsl_runtime.so").write_bytes(b"")
    refused("for CUDA 14, and the driver supports CUDA 13")
    monkeypatch.setattr(host_loader, "_driver_major", lambda _: 14)
    refused("runtime library cannot be loaded")
    elsewhere = SimpleNamespace(target=Target("hip", "gfx942"), index=0, facts=dict)
    with pytest.raises(DeviceError, match="NVIDIA GPUs, not on hip:gfx942"):
        host_loader.load_cuteobj(elsewhere, LAUNCH, blob, "add")


def test_the_newest_library_that_the_driver_supports_is_taken(monkeypatch, tmp_path):
    for name in ("cu12", "cu13", "cux"):
        (tmp_path / name / "lib").mkdir(parents=True)
        (tmp_path / name / "lib" / "libcute_dsl_runtime.so").write_bytes(b"")
    monkeypatch.setattr(cute_installation, "folders_of", lambda _: [tmp_path])
    assert "cu13" in str(cute_installation.runtime_library())
    assert "cu13" in str(cute_installation.runtime_library(14))
    assert "cu12" in str(cute_installation.runtime_library(12))
    assert isinstance(cute_installation.runtime_library(11), Rejected)
    found = cute_installation.tvm_ffi_library()
    assert isinstance(found, Rejected)
    assert "apache-tvm-ffi" in found.reason


def test_the_sample_is_what_the_consent_names():
    assert replace(SAMPLE, dsl="4.9.0").to_bytes() != SAMPLE.to_bytes()


def test_a_loaded_object_is_found_by_its_functions_too(monkeypatch):
    """For objects with several functions: what was loaded for one of them is never called for another."""
    made = []

    class Module:
        def __init__(self, host, name, major):
            self.function = host.function
            made.append(host.function)

        def prepare(self, index, name):
            return None

    monkeypatch.setattr(host_loader, "_Module", Module)
    monkeypatch.setattr(host_loader, "_modules", {})
    monkeypatch.setattr(host_loader.native, "gpu_within", lambda kind, index, call, values: call(*values))
    monkeypatch.setattr(host_loader, "_call", lambda host, module, index, name: module)
    other = replace(SAMPLE, function="silo_sub")
    changed = [replace(SAMPLE, initialize="init"), replace(SAMPLE, prepare="ready"), replace(SAMPLE, toolkit="13.0")]
    loaded: list = [host_loader.load_cuteobj(DEVICE, LAUNCH, one.to_bytes(), "k") for one in (SAMPLE, other, SAMPLE)]
    assert [one.function for one in loaded] == ["silo_add", "silo_sub", "silo_add"]
    assert made == ["silo_add", "silo_sub"]
    for one in changed:
        host_loader.load_cuteobj(DEVICE, LAUNCH, one.to_bytes(), "k")
    assert len(made) == 5
