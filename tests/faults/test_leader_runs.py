"""Eight processes that measure with noise of their own: they differ alone and agree behind a leader, also a killed one.

``SILO_TEST_RUNS=50`` runs more often.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton kernels are compiled")
pytest.importorskip("fcntl", reason="leaders hold a lock of the system")

RUNS = int(os.environ.get("SILO_TEST_RUNS", "1"))


def test_processes_agree_behind_a_leader_and_differ_without_one(tmp_path):
    from pathlib import Path

    import fleets

    program = Path(fleets.__file__).parent / "leader_program.py"
    done = subprocess.run(
        [sys.executable, str(program), str(RUNS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240 + 60 * RUNS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["runs"], told["agreed"], told["agreed_killed"]) == (RUNS, RUNS, RUNS)
    assert told["alone"] == min(RUNS, 5)  # the chance that eight agree by accident is one in sixteen thousand
