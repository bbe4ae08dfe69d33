"""Heuristics are usable alone: nothing heavy comes with them."""

import json
import subprocess
import sys

HEAVY = ("torch", "triton", "numpy", "jax", "silo.launch", "silo.kernels", "silo._native")


def test_heuristics_and_grids_import_nothing_heavy():
    code = (
        "import sys, json; from silo import heuristics; from silo.core import grids;"
        "heuristics.pointwise('cuda:sm_90', {'x': 1024}); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not loaded & set(HEAVY)
    assert "silo.heuristics.combo" in loaded
