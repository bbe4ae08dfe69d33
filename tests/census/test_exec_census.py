"""Kinds of libraries under ``silo exec``: recorded, then served frozen with their arrays moved; hooks see them.

A fifth of flash-linear-attention's operators takes a minute; ``SILO_TEST_OPERATORS=all`` runs them all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from triton_entry import SILO, entry_folder

pytest.importorskip("torch", reason="the oracles of the census are torch's")
PROGRAM = Path(__file__).with_name("exec_census.py")
KINDS = ("liger: modulated_rms_norm", "fla: l2norm")
SHARES = range(5) if os.environ.get("SILO_TEST_OPERATORS") == "all" else (2,)


def exec_census(folder, *options, cache, kinds, report=None):
    """The census under ``silo exec`` in a fresh process; options before ``--`` are Silo's, those after it its own."""
    own = {"TRITON_CACHE_DIR": str(folder / cache), "SILO_HOME": str(folder / "home"), "SILO_TRITON": "cpu"}
    own["PYTHONPATH"] = os.pathsep.join([str(entry_folder(folder, SILO)), os.environ.get("PYTHONPATH", "")])
    reported = [] if report is None else ["--report", str(report)]
    end = options.index("--") if "--" in options else len(options)
    command = ["-m", "silo", "exec", *reported, *options[:end], str(PROGRAM), *options[end + 1 :], *kinds]
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
    assert (found["wrong"], found["unseen"]) == ({}, []), found
    return found


CUDA_KINDS = ("tutorial: vector addition", "liger: modulated_rms_norm", "fla: l2norm", "conch: rms_norm")


@pytest.mark.all  # in every run tests/unit/integrations/test_cuda_on_cpu.py runs Triton kernels that say cuda
def test_kinds_of_libraries_say_cuda_and_run_on_the_cpu(tmp_path):
    for package in ("liger_kernel", "fla", "conch"):
        pytest.importorskip(package)
    found = exec_census(tmp_path, "--on", "cpu", "--", "--cuda", cache="cuda", kinds=CUDA_KINDS)
    assert found["kinds"] == len(CUDA_KINDS)


@pytest.mark.all
@pytest.mark.parametrize("share", range(8))
def test_kinds_say_cuda_and_run_on_the_cpu(tmp_path, share):
    found = exec_census(tmp_path, "--on", "cpu", "--", "--cuda", f"--share={share}/8", cache="cuda", kinds=())
    assert found["kinds"] >= 5


@pytest.mark.all
@pytest.mark.skipif("SILO_TEST_REPOSITORIES" not in os.environ, reason="SILO_TEST_REPOSITORIES names no checkouts")
def test_public_programs_that_say_cuda(capsys):
    import cuda_programs

    folder = os.environ["SILO_TEST_REPOSITORIES"]
    assert cuda_programs.main([folder, "--packages", f"{folder}/packages"]) == 0, capsys.readouterr().out


def refusals(report):
    (line,) = report.read_text().splitlines()
    return [one for one in json.loads(line)["kernels"] if one["refusals"]]


@pytest.mark.all
def test_kinds_of_libraries_are_recorded_and_served(tmp_path):
    for package in ("liger_kernel", "fla"):
        pytest.importorskip(package)
    tmp_path.chmod(0o700)
    bundle, report = str(tmp_path / "K.silo"), tmp_path / "report"
    recorded = exec_census(tmp_path, "--record", bundle, "--", "--configs=2", "--hooks", cache="first", kinds=KINDS)
    assert recorded["kinds"] == len(KINDS)
    assert recorded["compiles"] > 4
    assert recorded["measured"] >= 2
    served = exec_census(
        tmp_path, "--bundle", bundle, "--frozen", "--", "--configs=2", "--moved=1",
        cache="second", kinds=KINDS, report=report,
    )  # fmt: skip
    assert (served["compiles"], served["measured"], served["tuners"]) == (0, 0, recorded["tuners"])
    assert not refusals(report)


@pytest.mark.all
@pytest.mark.parametrize("share", SHARES)
def test_tuned_operators_of_fla_are_recorded_and_served_for_other_lengths(tmp_path, share):
    pytest.importorskip("fla")
    tmp_path.chmod(0o700)
    bundle, report = str(tmp_path / "K.silo"), tmp_path / "report"
    own = ("--", "--configs=2", f"--share={share}/5")
    words = ("by the library's reference",)
    recorded = exec_census(tmp_path, "--record", bundle, *own, cache="first", kinds=words)
    assert recorded["kinds"] >= 5
    assert recorded["measured"] >= 2
    served = exec_census(
        tmp_path, "--bundle", bundle, "--frozen", *own, "--moved=1", "--longer=26",
        cache="second", kinds=words, report=report,
    )  # fmt: skip
    assert (served["kinds"], served["compiles"], served["measured"]) == (recorded["kinds"], 0, 0)
    assert not refusals(report)
