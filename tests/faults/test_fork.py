"""Children made by fork of processes that compile, tune and launch; each in a process of its own, with a time limit."""

import os
import sys
from pathlib import Path

import pytest

from timed_program import run_timed

pytest.importorskip("triton")

PROGRAM = Path(__file__).parents[1] / "samples" / "fork_program.py"
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
    status, said, complained = run_timed([sys.executable, str(PROGRAM), what], environment, LIMIT_S)
    assert status == 0, (said + complained)[-4000:]
