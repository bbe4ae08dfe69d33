"""Operators of Liger-Kernel and flash-linear-attention under ``silo exec``: recorded, then served with no compile."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("recorded_libraries.py")


@pytest.mark.all
def test_libraries_are_served_frozen_whatever_sizes_and_alignments_come(tmp_path):
    for package in ("liger_kernel", "fla", "torch"):
        pytest.importorskip(package)
    tmp_path.chmod(0o700)

    def run(*options, cache, program=PROGRAM, arguments=()):
        own = {"TRITON_CACHE_DIR": str(tmp_path / cache), "SILO_HOME": str(tmp_path / "home"), "SILO_TRITON": "cpu"}
        done = subprocess.run(
            [sys.executable, "-m", "silo", "exec", *options, str(program), *arguments],
            env={**os.environ, **own, "FLA_CACHE_MODE": "disabled"},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    bundle = tmp_path / "K.silo"
    assert run("--record", str(bundle), cache="first") > 4
    moved = tmp_path / "elsewhere" / "program.py"
    moved.parent.mkdir()
    moved.write_text(PROGRAM.read_text())
    assert run("--bundle", str(bundle), "--frozen", cache="second", program=moved, arguments=["other"]) == 0


def test_options_that_make_no_sense_are_errors(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("print('ran')")
    (tmp_path / "damaged.silo").write_bytes(b"no bundle")
    for options in (
        ["--frozen"],
        ["--record", "a.silo", "--bundle", "b.silo"],
        ["--record", str(tmp_path / "missing" / "K.silo")],
        ["--bundle", str(tmp_path / "damaged.silo")],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "silo", "exec", *options, str(program)], capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert done.stdout == ""
        assert "error" in done.stderr


def test_options_of_python_hold_for_the_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys, warnings; assert False; print(sys.flags.optimize, sys.warnoptions)")
    done = subprocess.run(
        [sys.executable, "-O", "-W", "ignore", "-m", "silo", "exec", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "1"), done.stderr
    assert "ignore" in done.stdout
