"""Programs that wait for each other, and kernels that fault: in processes of their own, with a time limit."""

import os
import re
import signal
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

import cpu_samples
from timed_program import run_timed

pytest.importorskip("triton")
pytestmark = cpu_samples.needs_compiler

PROGRAM = Path(__file__).parents[1] / "samples" / "waiting_program.py"
LIMIT_S = 240


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


def run(store, *arguments, python=(), **variables):
    environment = os.environ | {"SILO_HOME": str(store), "SILO_TUNE": "off", **variables}
    command = [sys.executable, *python, str(PROGRAM), *arguments]
    status, _, said = run_timed(command, environment, LIMIT_S)
    return status, said


@pytest.mark.parametrize("threads", ["1", "2"])
def test_programs_wait_for_any_other(store, threads):
    assert run(store, "waits", SILO_THREADS=threads) == (0, "")


@pytest.mark.parametrize("what", ["cooperative", "interrupt", "released"])
def test_waiting(store, what):
    assert run(store, what) == (0, "")


@pytest.mark.parametrize("threads", ["1", "8"])
def test_more_programs_wait_than_may_run_at_once(store, threads):
    """The pool's own threads count: 8 of them are not let in where 3 programs may run."""
    assert run(store, "stuck", SILO_THREADS=threads, SILO_PROGRAMS_AT_ONCE="3") == (0, "")


@pytest.mark.parametrize(
    ("programs", "wrong", "program", "grid"), [(4, 2, "2, 0, 0", "4, 1, 1"), (64, 42, "2, 10, 0", "4, 16, 1")]
)
def test_a_kernel_that_faults_says_which_and_dies_of_it(store, programs, wrong, program, grid):
    code, said = run(store, "fault", str(programs), str(wrong))
    assert code == -signal.SIGSEGV
    assert re.fullmatch(
        rf"silo: SIGSEGV in kernel stray, program \({program}\) of a grid of \({grid}\), at address 0x[0-9a-f]+: "
        r"run with SILO_CHECK=1, or silo.check, to find the access\n",
        said,
    )


@pytest.mark.skipif(find_library("gomp") is None, reason="needs libgomp")
def test_a_kernel_that_faults_on_a_thread_of_openmp_says_which(store):
    variables = {"SILO_POOL": "openmp", "SILO_THREADS": "4", "OMP_NUM_THREADS": "4", "LD_PRELOAD": find_library("gomp")}
    code, said = run(store, "fault", "64", "42", **variables)
    assert code == -signal.SIGSEGV
    assert said.startswith("silo: SIGSEGV in kernel stray, program (2, 10, 0)")


def test_who_had_the_signal_before_has_it_after(store):
    code, said = run(store, "fault", "64", "42", python=("-X", "faulthandler"))
    assert code == -signal.SIGSEGV
    assert said.startswith("silo: SIGSEGV in kernel stray, program (2, 10, 0)")
    assert "Fatal Python error: Segmentation fault" in said


@pytest.mark.parametrize("what", ["fault_elsewhere", "sent"])
def test_other_signals_are_none_of_ours(store, what):
    assert run(store, what) == (-signal.SIGSEGV, "")
