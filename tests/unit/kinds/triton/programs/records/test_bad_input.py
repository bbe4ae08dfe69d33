"""Bad input of programs under ``silo exec``: one line says it, and the program runs as without Silo, or not at all."""

import os
import subprocess
import sys

import pytest

import triton_entry
from triton_programs import TUNED, program

SCRIPT = "import triton\nprint('the program ran')\n"


def run(folder, *words, **variables):
    (folder / "program.py").write_text(SCRIPT)
    before = [sys.executable, *(["-m", "silo", "exec", *words] if words else []), "program.py"]
    places = (str(triton_entry.entry_folder(folder, triton_entry.SILO)), os.environ.get("PYTHONPATH", ""))
    own = {
        "SILO_HOME": str(folder / "home"),
        "SILO_ACCELERATE": "1",
        "PYTHONPATH": os.pathsep.join(places),
    }
    return subprocess.run(
        before,
        cwd=folder,
        env={**os.environ, **own, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(params=["missing", "damaged", "cut"])
def bundle(request, tmp_path):
    file = tmp_path / "K.silo"
    if request.param == "damaged":
        file.write_bytes(bytes(range(256)) * 20)
    elif request.param == "cut":
        file.write_bytes(b"SILOBNDL")
    return file


@pytest.mark.parametrize("frozen", [False, True])
def test_a_bundle_that_cannot_be_read_is_one_line_before_the_program_runs(tmp_path, bundle, frozen):
    done = run(tmp_path, "--bundle", str(bundle), *(["--frozen"] if frozen else []))
    assert done.returncode == 3
    assert "the program ran" not in done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert bundle.name in done.stderr


def test_a_bundle_of_a_variable_that_cannot_be_read_is_one_line_and_the_program_runs(tmp_path, bundle):
    done = run(tmp_path, SILO_BUNDLE=str(bundle))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the program ran\n"
    assert done.stderr.startswith("Triton compiles and tunes itself: ")
    assert done.stderr.count("\n") == 1


def test_a_record_file_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    done = run(tmp_path, "--record", "file/K.silo")  # it passes for root, who may write anywhere
    if done.returncode == 0:
        assert done.stdout == "the program ran\n"
        assert done.stderr.startswith("nothing is recorded: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_while_recording(tmp_path):
    pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")
    said = program(
        TUNED
        + f"""
from silo.kinds.triton.programs.records.capture_activation import recording
import silo.store.records as records
own = records.LogFile.append
def full(self, data):
    if sys._getframe(1).f_code.co_filename.endswith("journal.py"):
        raise OSError(28, "No space left on device")
    return own(self, data)
records.LogFile.append = full
with recording({str(tmp_path / "K.silo")!r}), silo.accelerate():
    for n in (100, 256, 300):
        t[(1,)](x, z, n)
        k[(1,)](x, y, z, n, 2.0, BLOCK=64)
assert len(measured) == 6, measured
""",
        SILO_COMPILE_AHEAD="0",
        TRITON_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert said.count("No space left on device") == 2, said  # once for each kernel
    assert "Traceback" not in said
