"""Kinds of libraries under ``silo exec``: recorded, then served frozen with their arrays moved; hooks see them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the oracles of the census are torch's")
PROGRAM = Path(__file__).with_name("exec_census.py")
KINDS = ("liger: modulated_rms_norm", "fla: l2norm")


def test_kinds_of_libraries_are_recorded_and_served(tmp_path):
    for package in ("liger_kernel", "fla"):
        pytest.importorskip(package)
    tmp_path.chmod(0o700)

    def run(*options, cache, report=None):
        own = {"TRITON_CACHE_DIR": str(tmp_path / cache), "SILO_HOME": str(tmp_path / "home"), "SILO_TRITON": "cpu"}
        reported = [] if report is None else ["--report", str(report)]
        end = options.index("--") if "--" in options else len(options)
        command = ["-m", "silo", "exec", *reported, *options[:end], str(PROGRAM), *options[end + 1 :], *KINDS]
        done = subprocess.run(
            [sys.executable, *command],
            env={**os.environ, **own, "FLA_CACHE_MODE": "disabled"},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert (found["kinds"], found["wrong"], found["unseen"]) == (len(KINDS), {}, []), found
        return found

    bundle, report = str(tmp_path / "K.silo"), tmp_path / "report"
    recorded = run("--record", bundle, "--", "--configs=2", "--hooks", cache="first")
    assert recorded["compiles"] > 4
    assert recorded["measured"] >= 2
    served = run("--bundle", bundle, "--frozen", "--", "--configs=2", "--moved=1", cache="second", report=report)
    assert (served["compiles"], served["measured"], served["tuners"]) == (0, 0, recorded["tuners"])
    (line,) = report.read_text().splitlines()
    assert not any(one["refusals"] for one in json.loads(line)["kernels"])
