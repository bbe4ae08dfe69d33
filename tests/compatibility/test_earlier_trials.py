"""A store that an earlier version tuned is worth its trials to today's compilers: nothing stands in for identities."""

import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("triton", reason="Triton is not installed")

import silo
from silo.settings import child_environment

EARLIER = Path(__file__).resolve().parents[1] / "data" / "earlier"
SAMPLES = Path(__file__).resolve().parents[1] / "samples"
WINNER = "BLOCK=4096, num_warps=4"  # of "add", whose code is what it was; loops that sum rows have other code since
C_COMPILER = "cc (Debian 12.2.0-14+deb12u1) 12.2.0"


@pytest.fixture
def folder(tmp_path):
    """A folder with the kernels, and the store in ``home``."""
    import pinned

    if not pinned.fits():
        pytest.skip(f"this machine does not run code for {pinned.TARGET}")
    if version("triton") != "3.9.0":
        pytest.skip("another Triton lowers kernels to other text")
    (tmp_path / "kernels.py").write_bytes((EARLIER / "kernels.py").read_bytes())
    with tarfile.open(EARLIER / "store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (tmp_path / "home", *(tmp_path / "home").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)  # a store that others may write is not read
    return tmp_path


@pytest.fixture
def same_compiler():
    """The C compiler that made the objects in the store."""
    found = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    if found[:1] != [C_COMPILER]:
        pytest.skip(f"the objects in the store are by {C_COMPILER}")


def python(*words, folder, **variables):
    """The output of a program over the store."""
    paths = [str(folder), str(SAMPLES), str(Path(silo.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    variables |= {"SILO_HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment = child_environment(**variables)
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def tuned(folder):
    words = (SAMPLES / "pinned.py", "--machine", "tune", folder / "kernels.py", "--json")
    return {row["kernel"]: row for row in json.loads(python(*words, folder=folder))}


CALLED = """
import json
import pinned
pinned.pin_machine()
import numpy as np
import kernels

x, out = np.ones(1 << 14, np.float32), np.zeros(1 << 14, np.float32)
kernels.add(x, x, out, 1 << 14)
assert (out == 2).all()
print(json.dumps(kernels.add.explain(x, x, out, 1 << 14)))
"""


def test_tuning_measures_only_kernels_whose_code_changed(folder, same_compiler):
    rows = tuned(folder)
    assert (rows["add"]["winner"], rows["add"]["measured"], rows["add"]["reused"]) == (WINNER, 0, 4)
    assert (rows["row_sums"]["measured"], rows["row_sums"]["reused"]) == (4, 0)


def test_calls_that_may_not_measure_get_the_earlier_winner(folder, same_compiler):
    # A frozen call neither measures nor guesses.
    said = json.loads(python("-c", CALLED, folder=folder, SILO_TUNE="frozen"))
    assert f"config: {WINNER} (bucket winner" in said


def test_calls_that_may_measure_do_not(folder, same_compiler):
    said = json.loads(python("-c", CALLED, folder=folder, SILO_TUNE="auto"))
    assert f"config: {WINNER} (bucket winner" in said
    records = [line for path in (folder / "home" / "records").iterdir() for line in path.read_text().splitlines()]
    # Tuning at a call notes that it began.
    assert not any('"effort/1"' in line for line in records)


def test_with_other_code_the_winner_and_its_rivals_are_measured(folder):
    # The flag marks where branches may lead to, so every function differs.
    other = {"SILO_CC": "cc -fcf-protection=full", "SILO_TUNE_BUDGET": "60"}
    said = json.loads(python("-c", CALLED, folder=folder, SILO_TUNE="auto", **other))
    assert "(bucket winner" in said
    assert said.count(": not measured") == 1  # three configs of four were compared when it was tuned
    again = json.loads(python("-c", CALLED, folder=folder, SILO_TUNE="frozen", **other))
    assert again == said
