"""Checking mode: memory that torch allocated and nothing was written to, read by a kernel, with ``SILO_CHECK=1``.

The kind is an argument that nobody named as uninitialised. Each program runs in a process of its own, because torch's
allocator is told for a whole process.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import cpu_samples

pytestmark = cpu_samples.needs_compiler

KERNELS = """
import numpy as np
import torch, triton, triton.language as tl
import silo
from silo.errors import CheckError
from silo.launch.new_memory import state

@triton.jit
def accumulate(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out + i, mask=i < n, other=0)
    tl.store(out + i, before + tl.load(x + i, mask=i < n, other=0), mask=i < n)

@triton.jit
def selected(x, out, n, first, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out + i, mask=i < n, other=0)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.store(out + i, tl.where(first != 0, value, before + value), mask=i < n)

@triton.jit
def counted(count):
    tl.atomic_add(count, 1)

@triton.jit
def looked_up(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n, other=0)
    tl.store(out + i, tl.load(x + at, mask=i < n, other=0), mask=i < n)

@triton.jit
def filled(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 1.0, mask=i < n)

def found(kernel, grid, *args, **constants):
    before = [one.clone() for one in args if isinstance(one, torch.Tensor)]
    try:
        kernel[grid](*args, **constants)
    except CheckError as error:
        for one, held in zip([one for one in args if isinstance(one, torch.Tensor)], before):
            assert one.numpy().tobytes() == held.numpy().tobytes(), "a failed check leaves the arguments alone"
        return error
    return None

n = 1000
x = torch.ones(n)
assert state(), state().reason
"""

FOUND = """
every = torch.empty(n), torch.empty_like(x), torch.empty_strided((n,), (1,)), x.new_empty(n), torch.empty(2 * n)[n:]
for made in every:
    error = found(KERNEL(accumulate), (8,), x, made, n, BLOCK=128)
    assert error is not None and error.kind == "uninitialized" and error.argument == "out", error
    assert "a load of memory that nothing was written to" in str(error)
    assert "no operator and no kernel wrote to it" in str(error)
error = found(KERNEL(counted), (8,), torch.empty(2, dtype=torch.int32))
assert error is not None and error.kind == "uninitialized", error
error = found(KERNEL(looked_up), (8,), x, torch.empty(n, dtype=torch.int32), torch.zeros(n), n, BLOCK=128)
assert error is not None and error.kind == "uninitialized" and error.argument == "index", error
"""

CLEAN = """
zeroed, copied, through_numpy, by_kernel, in_part = (torch.empty(n) for _ in range(5))
zeroed.zero_(), copied.copy_(x), by_kernel.data, in_part[:2].fill_(1)
through_numpy.numpy()[:] = 2
out = torch.empty(n)
assert found(KERNEL(filled), (8,), out, n, BLOCK=128) is None and (out == 1).all()
assert found(KERNEL(filled), (8,), by_kernel, n, BLOCK=128) is None
for made in (zeroed, copied, through_numpy, by_kernel, in_part, x + 1, torch.zeros(n), torch.full((n,), 3.0), out):
    assert found(KERNEL(accumulate), (8,), x, made, n, BLOCK=128) is None
out = torch.empty(n)  # it is read, and nothing depends on it
assert found(KERNEL(selected), (8,), x, out, n, 1, BLOCK=128) is None and (out == 1).all()
assert found(KERNEL(selected), (8,), x, torch.empty(n), n, 0, BLOCK=128).kind == "uninitialized"
"""

FORMS = {"silo": "KERNEL = silo.kernel\n", "plain": "KERNEL = lambda kernel: kernel\n"}


def run(program: str, tmp_path, check: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    env = {**os.environ, "SILO_CHECK": check, "SILO_TRITON": "cpu", "SILO_HOME": str(tmp_path / "home")}
    env["TRITON_CACHE_DIR"] = str(tmp_path / "triton")
    done = subprocess.run(
        [sys.executable, str(path)], env=env, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("form", FORMS)
def test_memory_that_nothing_was_written_to_is_found_without_being_named(tmp_path, form):
    run(KERNELS + FORMS[form] + FOUND, tmp_path, "1")


@pytest.mark.parametrize("form", FORMS)
def test_memory_that_anything_was_written_to_and_reads_without_effect_are_no_finding(tmp_path, form):
    run(KERNELS + FORMS[form] + CLEAN, tmp_path, "1")


def test_without_the_setting_new_memory_is_as_torch_leaves_it(tmp_path):
    program = KERNELS.replace("assert state(), state().reason", "assert not state()")
    run(program + "silo.check(accumulate)[(8,)](x, torch.empty(n), n, BLOCK=128)\n", tmp_path, "0")
