"""Runs ``tests/stub``, file by file, in processes whose GPU drivers are stubs: a driver is opened once a process."""

import sys
from pathlib import Path

import pytest

import gpu_stub
import warm_python

FOLDER = Path(__file__).parents[1] / "stub"
FILES = sorted(FOLDER.glob("test_*.py"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_files(file, tmp_path):
    done = warm_python.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", str(file)],
        env=gpu_stub.environment(devices=2, SILO_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
