"""CPU code never touches memory past its arrays, not even speculatively: the next page is out of reach."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the examples are Triton kernels")

PROGRAM = Path(__file__).resolve().parents[1] / "samples" / "guard_program.py"


@pytest.mark.parametrize("config", ["first", "last"])
def test_the_examples_stay_within_their_arrays(tmp_path, config):
    # The last config of each space has the largest blocks: more of each tile lies outside of the arrays.
    environment = {**os.environ, "SILO_HOME": str(tmp_path), "SILO_TUNE": "off", "SILO_THREADS": "1"}
    command = [sys.executable, str(PROGRAM), config]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    assert "in bounds" in done.stdout
