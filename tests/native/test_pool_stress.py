"""The CPU's threads under stress, in processes of their own with a time limit: nothing hangs, nothing is run twice."""

import ctypes.util
import os
import sys
from pathlib import Path

import pytest

import launch_kernels
from timed_program import run_timed

PROGRAM = Path(__file__).parents[1] / "samples" / "pool_program.py"
LIMIT_S = 240
RUNTIME = ctypes.util.find_library("gomp")
POOLS = ("auto", "own", "openmp")
needs_runtime = pytest.mark.skipif(RUNTIME is None, reason="needs libgomp")


@pytest.fixture(autouse=True)
def kernels():
    launch_kernels.blob()  # skips without a C compiler


def run(what, pool, runtime=None):
    environment = os.environ | {"SILO_POOL": pool, "OMP_NUM_THREADS": "4"}
    words = [sys.executable, str(PROGRAM), what, *([runtime] if runtime else [])]
    status, _, complained = run_timed(words, environment, LIMIT_S)
    assert status == 0, complained[-3000:]


@pytest.mark.parametrize("what", ["fork", "crowd", "sizes", "pinned"])
def test_without_another_runtime(what):
    run(what, "auto")


@needs_runtime
@pytest.mark.spread
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("what", ["fork", "crowd", "sizes", "errors", "handler"])
def test_beside_openmp(what, pool):
    run(what, pool, RUNTIME)


@needs_runtime
@pytest.mark.parametrize("pool", ["auto", "openmp"])
def test_a_launch_within_a_parallel_region_stays_on_its_thread(pool):
    run("nested", pool, RUNTIME)


@pytest.mark.parametrize("pool", POOLS)
def test_more_threads_than_cores(pool):
    run("one_core", pool)
