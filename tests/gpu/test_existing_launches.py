"""Unchanged programs with descriptors, scratch memory, hooks and kernels launched by hand, on a real NVIDIA GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

PROGRAM = Path(__file__).parents[1] / "samples" / "descriptor_program.py"


def run(folder, *command):
    environment = {**os.environ, "SILO_HOME": str(folder / "home"), "TRITON_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done


def test_silo_launches_what_tritons_tutorials_do(tmp_path):
    plain = json.loads(run(tmp_path, str(PROGRAM), "100").stdout.splitlines()[-1])
    report = tmp_path / "report.jsonl"
    ours = json.loads(
        run(tmp_path, "-m", "silo", "exec", "--report", str(report), str(PROGRAM), "100").stdout.splitlines()[-1]
    )
    assert ours["seen"] == plain["seen"]
    assert ours["left"] == plain["left"]
    assert [name for name, *_ in ours["seen"][:3]] == ["by_host 256x128", "by_device", "halve"]
    assert len(ours["seen"]) == 30
    assert ours["seen"][0][1] == 2 * 256 * 128 * 64
    assert ours["asked"] == plain["asked"]
    assert ours["bad"] == 0
    (line,) = [json.loads(one) for one in report.read_text().splitlines()]
    counts = {one["kernel"]: (one["launches"], one["own_launches"]) for one in line["kernels"]}
    assert set(counts) == {"by_host", "by_device", "halve"}
    for kernel, (silo, own) in counts.items():
        assert silo / (silo + own) >= 0.95, (kernel, counts, line)
    assert not line["passed"]
    assert not any(one["refusals"] or one["reasons"] for one in line["kernels"]), line


def test_the_table_is_printed_without_a_file(tmp_path):
    done = run(tmp_path, "-m", "silo", "exec", "--report", str(PROGRAM), "5")
    assert "by_host" in done.stderr
    assert "launches by Silo (" in done.stderr


WITHOUT_ALLOCATOR = """
import torch, triton, triton.language as tl

@triton.jit
def copy(x, out, M, N: tl.constexpr, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, N])
    tl.store(out + tl.arange(0, B)[:, None] * N + tl.arange(0, N)[None, :], d.load([0, 0]))

x = torch.randn(64, 64, device="cuda")
out = torch.empty_like(x)
def outcome():
    try:
        copy[(1,)](x, out, 64, 64, 16)
    except RuntimeError as error:
        return str(error)
    torch.cuda.synchronize()
    return "launched"
first = outcome()
triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
second, third = outcome(), outcome()
assert (second, third) == ("launched", "launched") and torch.equal(out[:16], x[:16])
from triton.runtime._allocation import NullAllocator
triton.set_allocator(NullAllocator())
print(first == outcome(), first)
"""


def test_without_an_allocator_tritons_error_is_raised(tmp_path):
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("descriptors take no scratch memory here")
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_ALLOCATOR)
    plain = run(tmp_path, str(program)).stdout
    assert plain.startswith("True ")
    assert "set_allocator" in plain
    assert run(tmp_path, "-m", "silo", "exec", str(program)).stdout == plain


def test_maps_follow_a_descriptor_that_moves_through_memory(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def copy(d, out, B: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(0) * B
    tl.store(out + (at + tl.arange(0, B))[:, None] * N + tl.arange(0, N)[None, :], d.load([at, 0]))

x = torch.randn(64, 256, device="cuda")
d = TensorDescriptor.from_tensor(x, [16, 64])
for turn in range(200):
    d.base = x.flatten()[64 * (turn % 4):]
    d.strides = [256, 1] if turn % 2 else [512, 1]
    d.shape = [32, 64 - 8 * (turn % 3)]
    out = torch.full((32, 64), 7.0, device="cuda")
    copy[(2,)](d, out, 16, 64)
    rows = torch.as_strided(x, (32, 64), d.strides, 64 * (turn % 4)).clone()
    rows[:, d.shape[1]:] = 0
    assert torch.equal(out, rows), turn
print("right")
"""
    )
    report = tmp_path / "report.jsonl"
    done = run(tmp_path, "-m", "silo", "exec", "--report", str(report), str(program))
    assert done.stdout == "right\n"
    (line,) = [json.loads(one) for one in report.read_text().splitlines()]
    assert line["kernels"][0]["launches"] == 199, line
