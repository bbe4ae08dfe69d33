"""Suspects of a crash report, each alone on a GPU's driver: in a process that a fault or a hang ends by itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="this test compiles Triton kernels")

import triton
import triton.language as tl

import silo
from silo.launch import flight, native
from silo.settings import override


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@pytest.fixture
def report(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("judged_kernels.py"), folder / "sitecustomize.py")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with override(flight="1", flight_file=tmp_path / "crash.silo", tune="off"):
        flight.start()
        for warps in (1, 8, 16):  # judged_kernels.py: right, a fault, a write behind the output
            made = silo.kernel(space=[{"BLOCK": 64, "num_warps": warps}], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))(
                add
            )
            made(*(silo.Buffer((100,), "float32", device="cuda") for _ in range(3)), 100)
        yield flight.dump_launches(tmp_path / "now.silo")
    native.flight_stop()


def test_each_suspect_is_launched_alone(report):
    done = subprocess.run(
        [sys.executable, "-m", "silo", "crash", str(report), "--device", "cuda:1", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    rows = json.loads(done.stdout)
    found = {row["numbers"][0]: (row["outcome"], row["text"]) for row in rows["device"]}
    first, second, third = (found[number] for number in sorted(found))
    assert first == ("ends", "")
    assert second[0] == "faults"
    assert "700" in second[1]
    assert third == ("writes beside", "the memory of out")
    assert {row["outcome"] for row in rows["verdicts"]} == {"undecided"}  # the check itself finds nothing wrong
