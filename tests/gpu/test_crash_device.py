"""Crash reports of a real GPU: a fault named and shown alone on the device, and work that does not end."""

import json
import os
import subprocess
import sys

import pytest

from gpu_kernels import torch  # noqa: F401  # skips without a GPU

KERNEL = """
import time
import torch, triton, triton.language as tl
import silo

@silo.kernel(space={"BLOCK": [256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def strided(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i.to(tl.int64) * stride, mask=i < n), mask=i < n)

@silo.kernel(space={"BLOCK": [256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def waiting(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    while tl.load(out, volatile=True) < 0:
        pass
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
strided(x, out, 1, 900)
torch.cuda.synchronize()
"""


def run(folder, last, **variables):
    (folder / "program.py").write_text(KERNEL + last)
    report = folder / "crash.silo"
    environment = {**os.environ, "SILO_FLIGHT": "1", "SILO_FLIGHT_FILE": str(report), "SILO_TUNE": "off", **variables}
    environment["SILO_HOME"] = str(folder / "store")
    words = [sys.executable, str(folder / "program.py")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=200)
    return done, report, environment


def test_a_fault_is_named_and_shown_alone_on_the_device(tmp_path):
    done, report, environment = run(tmp_path, "strided(x, out, 1 << 34, 900)\ntorch.cuda.synchronize()\n")
    assert done.returncode != 0
    assert report.exists(), done.stderr
    words = [sys.executable, "-m", "silo", "crash", str(report), "--device", "cuda", "--json"]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=400)
    assert found.returncode == 1, found.stderr
    rows = json.loads(found.stdout)
    named = [one["argument"] for one in rows["verdicts"] if one["outcome"] == "named"]
    assert named == ["x"], rows["verdicts"]
    assert sorted(one["outcome"] for one in rows["device"]) == ["ends", "faults"], rows["device"]


@pytest.mark.parametrize("ends", [True, False])
def test_work_that_does_not_end_leaves_a_report(tmp_path, ends):
    last = f"out[0] = {0 if ends else -1}\nwaiting(x, out, 900)\ntime.sleep(6)\nimport os; os._exit(0)\n"
    done, report, _ = run(tmp_path, last, SILO_FLIGHT_HANG="3")
    assert report.exists() != ends, done.stderr
