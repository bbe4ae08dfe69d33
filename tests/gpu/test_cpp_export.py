"""A bundle's export on real GPUs: built here by the C++ compiler alone, with neither Python nor CMake in it."""

from pathlib import Path

import pytest

import exported

ROOT = Path(__file__).parents[2]
LIBRARY = "libcuda.so.1"
MODES = ("devices", "threads", "capture", "errors", "fault")


@pytest.fixture(scope="module")
def folder(cuda, tmp_path_factory):
    """An export of ``add`` and ``matmul`` for this machine's GPU and CPU, whose cases travel with it."""
    pytest.importorskip("triton", reason="the examples' kernels are Triton's")
    return exported.folder(tmp_path_factory.mktemp("export"), ["cpu", "cuda"], ["add", "matmul"])


@pytest.fixture(scope="module")
def program(folder):
    return exported.program(folder, Path(__file__).with_name("export_program.cpp"), folder.parent / "program")


@pytest.mark.parametrize("mode", MODES)
def test_an_export_on_the_gpus_of_this_machine(program, mode):
    told = exported.run([program, mode, LIBRARY], timeout=100).stdout
    assert told.splitlines()[-1].startswith("ok"), told


def test_its_own_test_passes_on_the_gpu(folder):
    program = exported.selftest(folder, folder.parent / "selftest")
    told = exported.run([program, "cuda"], timeout=100)
    assert " 0 failed" in told.stdout, told.stdout
