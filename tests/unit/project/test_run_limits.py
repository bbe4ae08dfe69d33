"""``--within``, which ends a run between two tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"
TESTS = "import time\ndef test_first():\n    time.sleep(0.1)\n    assert {passes}\ndef test_second(): pass\n"


@pytest.mark.parametrize("passes", [True, False])
def test_no_test_starts_after_the_time_and_only_failures_fail(tmp_path, passes):
    shutil.copy(CONFTEST, tmp_path)
    for name in ("tested_versions", "kept_objects"):
        shutil.copy(CONFTEST.parent / "samples" / f"{name}.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(TESTS.format(passes=passes))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--within", "0.05"]
    environment = os.environ | {"SILO_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "0.05 s are over: not all tests were run" in done.stdout
    assert ("1 passed" if passes else "1 failed") in done.stdout
    assert "2 passed" not in done.stdout
    assert done.returncode == (0 if passes else 2)
    assert "test_it.py" in (tmp_path / "build" / "tests" / "seconds.json").read_text()
