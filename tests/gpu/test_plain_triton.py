"""Triton's own calls on a machine with a GPU: Silo stays out of the way, and can be asked for."""

import pytest

from triton_entry import answer

pytest.importorskip("triton", reason="Triton is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

PROGRAM = """
import json, torch, triton, triton.language as tl
from triton.runtime.driver import driver

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def run(device):
    x, y = torch.randn(1000, device=device), torch.randn(1000, device=device)
    out = torch.empty_like(x)
    try:
        kernel = add[(8,)](x, y, out, 1000, BLOCK=128)
    except Exception as error:
        return str(error)
    return [kernel.metadata.target.backend, torch.equal(out, x + y)]

found = [type(driver.active).__module__]
"""


def test_the_gpu_is_used_as_if_silo_were_not_there(tmp_path):
    module, found = answer(tmp_path, PROGRAM + "print(json.dumps([*found, run('cuda')]))")
    assert not module.startswith("silo")
    assert found[1] is True
    assert found[0] != "cpu"


def test_a_setting_runs_kernels_on_the_cpu_all_the_same(tmp_path):
    module, here, there = answer(
        tmp_path, PROGRAM + "print(json.dumps([*found, run('cpu'), run('cuda')]))", SILO_TRITON="cpu"
    )
    assert module == "silo.kinds.triton.programs.backend.driver"
    assert here == ["cpu", True]
    assert "'x' is in memory of cuda" in there


SWITCHED = """
from silo.kinds.triton.programs.backend.driver import CpuDriver
before = driver.active
first = run("cuda")
driver.set_active(CpuDriver())
second = run("cpu")
driver.set_active(before)
print(json.dumps([first, second, run("cuda")]))
"""


def test_one_kernel_runs_on_both_in_turn(tmp_path):
    first, second, third = answer(tmp_path, PROGRAM + SWITCHED)
    assert first[1] is True
    assert second == ["cpu", True]
    assert third == first
