"""The driver that guesses arguments, over made-up checkouts: kernels found, built, run, compared and left out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from tests.census.checkouts import command
from tests.census.checkouts.compare import differences, explained_by_doubles, order_matters
from tests.census.checkouts.guess import Guess, first_guess, other_switches, spread
from tests.census.checkouts.judge import STATUSES
from tests.census.checkouts.memory import Arena
from tests.census.checkouts.modules import CannotBuildError, Checkout
from tests.census.checkouts.reading import read

ROOT = Path(__file__).resolve().parents[2]

HELPERS = """
import somewhere_else
import triton
import triton.language as tl

LIMIT: tl.constexpr = tl.constexpr(0.25)
IS_FAST = somewhere_else.is_fast()


@triton.jit
def clamped(x):
    if IS_FAST:
        return x
    return tl.minimum(x, LIMIT)
"""
KERNELS = """
import absent_package
import triton
import triton.language as tl

from .helpers import clamped
from absent_package import helper


@triton.autotune(configs=absent_package.CONFIGS, key=["n"])
@triton.jit
def scale_rows(x_ptr, index_ptr, y_ptr, stride_x, stride_y, n, scale, BLOCK: tl.constexpr, HAS_SCALE: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    source = tl.load(index_ptr + row)
    x = tl.load(x_ptr + source * stride_x + offsets, mask=offsets < n, other=0.0)
    if HAS_SCALE:
        x = x * scale
    tl.store(y_ptr + row * stride_y + offsets, clamped(x), mask=offsets < n)


@triton.jit
def in_turn(counter_ptr, out_ptr):
    place = tl.atomic_add(counter_ptr, 1)
    tl.store(out_ptr + place, tl.program_id(0) * 2.0 + tl.program_id(1))


@triton.jit
def of_comparisons(out_ptr, n):
    i = tl.arange(0, 16)
    value = (i == 3) * (i - 5)
    tl.store(out_ptr + i, value.to(tl.float32), mask=tl.program_id(0) < n)


@triton.jit
def calls_what_is_absent(x_ptr):
    tl.store(x_ptr, helper(1.0))


@triton.jit
def never_lowered(x_ptr):
    tl.store(x_ptr, tl.no_such_function(1.0))


@triton.jit
def pairs_of_rows(x_ptr, y_ptr, stride_y_batch, stride_y_row, N: tl.constexpr):
    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, N)[None, :]
    row_ptrs = y_ptr + tl.program_id(0) * stride_y_batch + rows * stride_y_row
    x = tl.load(x_ptr + rows * N + columns)
    tl.store(row_ptrs + 2 * columns, x)
    tl.store(row_ptrs + 2 * columns + 1, -x)


@triton.jit
def beyond_integers(x_ptr, out_ptr):
    i = tl.arange(0, 16)
    whole = (tl.load(x_ptr + i).to(tl.float32) * 0.0 + 3e9 + i).to(tl.int32)
    tl.store(out_ptr + i, (whole & 0xFFFF).to(tl.float32) / 64)


@triton.jit
def of_an_address(x_ptr, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), (x_ptr.to(tl.int64) % 9973 + tl.arange(0, 16)).to(tl.float32))


@triton.jit
def barrier(x_ptr):
    waited = tl.inline_asm_elementwise("bar.sync 0; mov.u32 $0, 0;", "=r,r", [tl.load(x_ptr)], tl.int32, True, 1)
    tl.store(x_ptr, waited)
"""


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "made" / "package"
    folder.mkdir(parents=True)
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "broken.py").write_text("from triton import jit\ndef (:\n")
    return tmp_path / "made"


def built(checkout, name, folder):
    found = Checkout(checkout)
    folder.mkdir()
    (kernel,) = [one for one in found.kernels() if one.name == name]
    found.write(kernel, folder)
    return read(folder, name)


def test_the_driver_runs_kernels_of_a_checkout_and_names_what_it_leaves_out(checkout, tmp_path):
    report = tmp_path / "report.json"
    words = [sys.executable, "-m", "tests.census.checkouts", "--json", str(report), "--variants", "1"]
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"SILO_TEST_CHECKOUTS": str(checkout), "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=120
    )
    found = json.loads(report.read_text())
    outcomes = {one["kernel"].rpartition("::")[2]: one for one in found["outcomes"]}
    statuses = {name: one["status"] for name, one in outcomes.items()}
    assert statuses == {
        "scale_rows": "same",
        "in_turn": "same",
        "of_comparisons": "same",
        "calls_what_is_absent": "unbuilt",
        "never_lowered": "front end",
        "pairs_of_rows": "same",
        "beyond_integers": "same",
        "of_an_address": "undefined",
        "barrier": "refused",
    }, (outcomes, done.stderr)
    assert "helper" in outcomes["calls_what_is_absent"]["reason"]
    assert "no_such_function" in outcomes["never_lowered"]["reason"]
    assert outcomes["scale_rows"]["compile_s"] > 0
    # Rows that overlap at first: a store gives one place several values.
    assert outcomes["pairs_of_rows"]["guess"]["scalars"] == {"stride_y_batch": 4096, "stride_y_row": 64}
    assert found["helpers"] == {"made": 1}
    assert "package/broken.py" in found["unread"]["made"][0]
    assert done.returncode == 1  # a kernel is refused
    assert "| made | 9 | 7 |" in done.stdout
    assert set(statuses.values()) <= set(STATUSES)


def test_a_run_is_resumed_from_its_file(checkout, tmp_path):
    report = tmp_path / "report.json"
    words = ["--checkouts", str(checkout), "--variants", "1", "--json", str(report), "--only", "never_lowered"]
    assert command.main([*words]) == 0
    found = json.loads(report.read_text())
    (first,) = found["outcomes"]
    report.write_text(json.dumps({"outcomes": [{**first, "reason": "kept"}]}))
    assert command.main([*words, "--only", "calls_what_is_absent", "--resume"]) == 0
    outcomes = json.loads(report.read_text())["outcomes"]
    assert {one["kernel"].rpartition("::")[2]: one["status"] for one in outcomes} == {
        "never_lowered": "front end",
        "calls_what_is_absent": "unbuilt",
    }
    assert outcomes[0]["reason"] == "kept"


def test_without_a_checkout_the_driver_names_the_variable(tmp_path):
    words = [sys.executable, "-m", "tests.census.checkouts", "--checkouts", str(tmp_path / "absent")]
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "SILO_TEST_CHECKOUTS" in done.stdout


def test_uses_and_names_decide_what_is_guessed(checkout, tmp_path):
    reading = built(checkout, "scale_rows", tmp_path / "modules")
    guess = first_guess(reading)
    assert guess.arrays == {"x_ptr": "f32", "index_ptr": "i32", "y_ptr": "f32"}
    assert reading.indices == {"index_ptr"}
    assert guess.scalars["n"] < guess.scalars["stride_x"]
    assert guess.constants == {"BLOCK": 32, "HAS_SCALE": False}
    assert other_switches(reading, guess).constants["HAS_SCALE"] is True


def test_a_call_of_an_absent_function_cannot_be_built(checkout, tmp_path):
    with pytest.raises(CannotBuildError, match="helper is not in the checkout"):
        built(checkout, "calls_what_is_absent", tmp_path / "modules")


def blocks(folder, guess, **changed):
    """A saved block for each name, in which one element of ``y`` is changed."""
    found = {}
    for name, value in changed.items():
        arena = Arena(guess, wide=name == "doubles")
        arena.arrays["y"][5] = value
        found[name] = folder / name
        arena.save(str(found[name]))
    return found


def test_strides_are_spread():
    guess = Guess(scalars={"stride_x": 1, "n": 50}, constants={"STRIDE_Y": 64, "BLOCK": 32})
    assert spread(guess) == Guess(scalars={"stride_x": 64, "n": 50}, constants={"STRIDE_Y": 4096, "BLOCK": 32})


def test_differences_are_rounding_order_or_unexplained(tmp_path):
    guess = Guess(arrays={"x": "i32", "y": "f32"}, grid=(1,))
    at = blocks(tmp_path, guess, ours=1.0, near=1.00001, rounded=1.001, wrong=2.0, doubles=1.0004)
    assert differences(guess, at["ours"], at["near"]) == []
    rounded = differences(guess, at["ours"], at["rounded"])
    assert [(one.name, int(np.flatnonzero(one.where)[0]), one.first) for one in rounded] == [
        ("y", 5, (1.0, float(np.float32(1.001))))
    ]
    assert explained_by_doubles(guess, rounded, at["ours"], at["rounded"], at["doubles"]) == []
    wrong = differences(guess, at["ours"], at["wrong"])
    # Both ways: neither a wrong result of Silo's nor of the interpreter's is rounding.
    assert explained_by_doubles(guess, wrong, at["ours"], at["wrong"], at["doubles"])
    assert explained_by_doubles(guess, wrong, at["wrong"], at["ours"], at["doubles"])
    assert order_matters(guess, wrong, at["wrong"], at["ours"]) == []
    assert order_matters(guess, wrong, at["wrong"], at["wrong"]) != []
