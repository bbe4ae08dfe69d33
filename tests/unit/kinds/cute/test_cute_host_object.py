"""Host code of the DSL: compiled, linked, loaded and called as far as that goes without a GPU. Needs the DSL."""
# pyright: reportMissingImports=false

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
pytest.importorskip("tvm_ffi", reason="tvm-ffi is not installed")

import torch

import cute_hosts
from silo.core.decisions import Rejected
from silo.core.device import Target
from silo.errors import (
    ArgumentError,
    CompileError,
    CompilerMissingError,
    DeviceError,
    LaunchError,
    ToolchainError,
)
from silo.kinds.cute import host_loader, host_object
from silo.kinds.cute.cute_compiler import CuteCompiler
from silo.kinds.cute.host_loader import HostObject, Passing
from silo.launch import native
from silo.settings import override

TARGET = Target("cuda", "sm_90a")
DEVICE = SimpleNamespace(
    target=TARGET, index=0, facts=lambda: {"driver_version": 13000}, memory=SimpleNamespace(types=(2,))
)


def compiled(wrapper, names):
    return CuteCompiler().compile(cute_hosts.job(wrapper, names, TARGET))


@pytest.fixture(scope="module")
def tensors():
    """Parameters in another order than the host function's, and a constant between them."""
    return compiled(cute_hosts.with_tensors(), ("block", "c", "n", "a", "b"))


@pytest.fixture(scope="module")
def pointers():
    return compiled(cute_hosts.with_pointers(), ("a", "value", "count", "flag"))


@pytest.fixture
def loaded(monkeypatch):
    """From a blob to what launches call; the driver that is not here is not asked for the kernel."""
    monkeypatch.setattr(host_loader._Module, "prepare", lambda *_: None)
    monkeypatch.setattr(native, "gpu_within", lambda kind, index, function, arguments: function(*arguments))
    return lambda code: host_loader.load_cuteobj(DEVICE, code.launch, code.blob.data, "add")


def test_the_blob_says_how_its_function_is_called(tensors, pointers):
    host = HostObject.from_bytes(tensors.blob.data)
    assert tensors.blob.kind == "cuteobj"
    assert [(one.passing, one.index) for one in host.arguments] == [
        (Passing.TENSOR, 3),
        (Passing.TENSOR, 4),
        (Passing.TENSOR, 1),
        (Passing.INTEGER, 2),
        (Passing.STREAM, 0),
    ]
    assert (tensors.launch.block, tensors.launch.entry) == ((256, 1, 1), host.function)
    assert tensors.launch.registers
    assert [one.passing for one in HostObject.from_bytes(pointers.blob.data).arguments] == [
        Passing.ADDRESS,
        Passing.FLOAT,
        Passing.INTEGER,
        Passing.BOOL,
        Passing.GRID,
        Passing.GRID,
        Passing.GRID,
        Passing.STREAM,
    ]


def test_the_object_is_the_same_in_another_process_and_folder(tensors, tmp_path):
    """It has no path in it, nothing of a library, and code for any processor."""
    program = (
        "import cute_hosts, hashlib\n"
        "from silo.kinds.cute.cute_compiler import CuteCompiler\n"
        "from silo.core.device import Target\n"
        "job = cute_hosts.job(cute_hosts.with_tensors(), ('block', 'c', 'n', 'a', 'b'), Target('cuda', 'sm_90a'))\n"
        "print(hashlib.sha256(CuteCompiler().compile(job).blob.data).hexdigest())\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "cute_hosts.py").write_bytes(Path(cute_hosts.__file__).read_bytes())
    path = os.pathsep.join([str(elsewhere), *(one for one in sys.path if one and "samples" not in one)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(elsewhere)},
    )
    assert done.stdout.strip() == hashlib.sha256(tensors.blob.data).hexdigest()
    host = HostObject.from_bytes(tensors.blob.data)
    assert len(host.code) < 60_000  # the libraries are megabytes
    assert b"libcute_dsl_runtime.so" in host.code
    assert b"site-packages" not in host.code
    assert str(Path.home()).encode() not in host.code


def test_a_call_passes_its_arguments_and_its_stream(pointers, loaded):
    """Up to the launch itself, which fails, for there is no driver: and the failure is told."""
    call = loaded(pointers)
    assert "cutlass" in sys.modules  # this process compiled; the next test loads in one that did not
    array = torch.zeros(64)
    for stream in (None, 5, SimpleNamespace(cuda_stream=7)):
        with pytest.raises(LaunchError, match=r"add: the launch failed: CUDA error 35 .cudaErrorInsufficientDriver"):
            call((array, 1.5, 3, True), (1, 1, 1), stream)
    with pytest.raises(ArgumentError, match="int32 range"):
        call((array, 1.5, 1 << 40, True), (1, 1, 1), 0)
    with pytest.raises(ArgumentError, match="stream"):
        call((array, 1.5, 3, True), (1, 1, 1), "the stream")


def test_arrays_that_the_code_is_not_for_are_refused(tensors, loaded):
    call = loaded(tensors)
    array = torch.zeros(64)
    with pytest.raises(ArgumentError, match="expected device_type=2"):
        call((256, array, 64, array, array), (1, 1, 1), 0)
    with pytest.raises(ArgumentError, match="add: Mismatched type"):
        call((256, array, 64, 3.0, array), (1, 1, 1), 0)


def test_it_is_loaded_without_the_dsls_python(pointers, tmp_path):
    place = tmp_path / "blob"
    place.write_bytes(pointers.blob.data)
    program = (
        "import sys\n"
        "from types import SimpleNamespace\n"
        "from silo.kinds.cute import host_loader\n"
        "from silo.core.launch_info import LaunchInfo\n"
        "from silo.core.device import Target\n"
        "from silo.launch import native\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'cutlass': raise ImportError('not to be imported')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "host_loader._Module.prepare = lambda *_: None\n"
        "native.gpu_within = lambda kind, index, function, arguments: function(*arguments)\n"
        "device = SimpleNamespace(target=Target('cuda', 'sm_90a'), index=0, facts=dict)\n"
        "call = host_loader.load_cuteobj(device, LaunchInfo('f', ()), open(sys.argv[1], 'rb').read(), 'add')\n"
        "try:\n"
        "    call((None, 1.5, 3, True), (1, 1, 1), 5)\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(place)], check=True, capture_output=True, text=True)
    assert "cudaErrorInsufficientDriver" in done.stdout


def test_device_code_that_the_driver_refuses_is_told(pointers, monkeypatch):
    monkeypatch.setattr(native, "gpu_within", lambda kind, index, function, arguments: function(*arguments))
    monkeypatch.setattr(host_loader, "_modules", {})
    with pytest.raises(DeviceError, match=r"cannot be loaded: CUDA error 35 .*CUDA \d+\.\d+, which a driver"):
        host_loader.load_cuteobj(DEVICE, pointers.launch, pointers.blob.data, "add")


def test_a_host_function_without_a_stream_is_refused():
    with pytest.raises(CompileError, match="needs one parameter for the stream"):
        compiled(cute_hosts.without_stream(), ("a",))


def test_the_stream_may_stand_anywhere(loaded):
    code = compiled(cute_hosts.stream_first(), ("a",))
    assert {one.passing for one in HostObject.from_bytes(code.blob.data).arguments} == {Passing.ADDRESS, Passing.STREAM}
    with pytest.raises(LaunchError, match="cudaErrorInsufficientDriver"):
        loaded(code)((torch.zeros(64),), (1, 1, 1), None)


def test_what_linking_lacks_is_named(monkeypatch):
    job = cute_hosts.job(cute_hosts.with_pointers(), ("a", "value", "count", "flag"), TARGET)
    monkeypatch.setattr(host_object, "tvm_ffi_library", lambda: Rejected("tvm-ffi is not installed"))
    with pytest.raises(ToolchainError, match=r'host="dsl" cannot be compiled: tvm-ffi is not installed'):
        CuteCompiler().compile(job)
    with pytest.raises(ToolchainError, match="for the linker another one"):
        host_object.link(b"", "another one")
    monkeypatch.setenv("PATH", "/nowhere")
    with override(cc=None), pytest.raises(CompilerMissingError, match='host="dsl" needs, for linking, a C compiler'):
        host_object.linker()


def test_what_the_linker_says_is_kept():
    with pytest.raises(CompileError, match="cannot link the DSL's host code"):
        host_object.link(b"no object", host_object.linker().version)
    assert host_object.host_object
