"""The C++ program of the GPU tests over the stub of the driver: what it asks of a driver, and in which order."""

from pathlib import Path

import pytest

import c_programs
import exported
import gpu_stub

PROGRAM = Path(__file__).parents[1] / "gpu" / "export_program.cpp"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    pytest.importorskip("triton", reason="the examples' kernels are Triton's")
    folder = tmp_path_factory.mktemp("export")
    made = exported.folder(folder, ["cuda:sm_90"], ["add"])
    return exported.program(made, PROGRAM, folder / "program", c_programs.archive())


@pytest.mark.parametrize("mode", ["devices", "threads"])
def test_an_export_on_two_devices(program, mode):
    told = exported.run([program, mode, gpu_stub.library(), "stub"], STUB_DEVICES="2").stdout
    assert told.splitlines()[-1].startswith("ok"), told


def test_without_a_driver_the_error_names_it(program, tmp_path):
    library = tmp_path / "libcuda.so.1"
    told = exported.run([program, "absent", library]).stdout
    assert str(library) in told
    assert told.splitlines()[-1].startswith("ok"), told
