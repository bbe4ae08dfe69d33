"""Planted faults on the CPU (``planted_faults``): no innocent kernel is named, and most plants are."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.census.planted_faults import PLANTS, planted_text

ROOT = Path(__file__).parents[2]
NEEDED = [name for name in ("fla", "liger_kernel") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(NEEDED), reason=f"not installed: {', '.join(NEEDED)}")


@pytest.mark.parametrize("plant", PLANTS, ids=[one.name for one in PLANTS])
def test_a_plant_changes_its_kernel(plant):
    _, lines = planted_text(plant)
    assert lines


@pytest.mark.all
def test_plants_are_named(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.census.planted_faults", "--turns", "3"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "SILO_FLIGHT": "1",
            "SILO_FLIGHT_FILE": str(tmp_path / "crash.silo"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
