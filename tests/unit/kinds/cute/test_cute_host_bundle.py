"""A kernel with host="dsl" in a bundle, called on the stub of the driver: nothing but the launch is missing there.

The DSL's library asks the system's driver, which is not here; the stub is Silo's alone. Needs the DSL.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
pytest.importorskip("tvm_ffi", reason="tvm-ffi is not installed")

import cute_host_kernels
import gpu_stub
import warm_python

CALL = """
import sys
import silo
from silo.kinds.cute import host_loader

kernel = silo.load(sys.argv[1], trust=sys.argv[2] == "trusted")["add"]
arrays = [silo.Buffer((1000,), "float32", device="cuda") for _ in range(3)]

def call(*given, **more):
    try:
        kernel(*given, **more)
    except Exception as error:
        print(type(error).__name__, error)

call(*arrays, 2.0, 1000)
host_loader._Module.prepare = lambda *_: None  # the driver refused the device code; go on as if it had not
call(*arrays, 2.0, 1000)
call(*arrays, 2.0, 1000, stream=7)
call(*arrays, 2.0, 1000, stream="mine")
kernel = silo.load(sys.argv[1], trust=sys.argv[2] == "trusted")["copy"]  # of tensor maps, which its host code makes
call(*(silo.Buffer((256, 32), "float32", device="cuda") for _ in range(2)))
assert "cutlass" not in sys.modules
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    made = folder / "k.silo"
    warm_python.run(
        [sys.executable, "-m", "silo", "build", cute_host_kernels.__file__, "-o", str(made), "-t", "cuda:sm_90a"],
        check=True,
        capture_output=True,
        env={**os.environ, "SILO_HOME": str(folder / "store")},
    )
    return made


def called(bundle: Path, how: str, home: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(bundle), how],
        capture_output=True,
        text=True,
        check=False,
        env=gpu_stub.environment(SILO_HOME=str(home)),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_bundle_of_strangers_is_not_loaded(bundle, tmp_path):
    lines = called(bundle, "unknown", tmp_path)
    assert lines[0].startswith("TrustError")
    assert any("cuteobj" in line and "nobody here built it" in line for line in lines)


def test_a_trusted_bundle_is_loaded_and_called(bundle, tmp_path):
    refused, first, second, wrong, copied = called(bundle, "trusted", tmp_path)
    assert refused.startswith("DeviceError add: its device code cannot be loaded: CUDA error 35")
    assert first == second == "LaunchError add: the launch failed: CUDA error 35 (cudaErrorInsufficientDriver)"
    assert copied == "LaunchError copy: the launch failed: CUDA error 35 (cudaErrorInsufficientDriver)"
    assert wrong.startswith("ArgumentError add: argument 'stream' needs a stream")
