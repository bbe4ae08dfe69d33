"""Children made by fork of processes that compile, tune and launch; each in a process of its own, with a time limit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = Path(__file__).parents[1] / "fork_program.py"
LIMIT_S = 240


@pytest.mark.parametrize("what", ["after", "exits", "meanwhile", "pool", "loader", "plain"])
def test_a_child_made_by_fork_works(what, tmp_path):
    if what in ("loader", "plain"):
        pytest.importorskip("torch")
    environment = os.environ | {
        "SILO_HOME": str(tmp_path / "store"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "SILO_TRITON": "cpu",
        "PYTHONWARNINGS": "ignore",
    }
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), what],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = program.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it hangs: {what}")
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    assert program.returncode == 0, said[-4000:]
