"""Signals while a launch on the CPU runs: in processes of their own, with a time limit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import launch_kernels as kernels
from silo.errors import ArgumentError
from timed_program import run_timed

PROGRAM = Path(__file__).parents[1] / "samples" / "interrupt_program.py"
LIMIT_S = 240


def run(*arguments):
    kernels.blob()  # skips where there is no C compiler
    status, said, complained = run_timed([sys.executable, str(PROGRAM), *arguments], dict(os.environ), LIMIT_S)
    assert (status, said, complained) == (0, "", "")


@pytest.mark.spread
@pytest.mark.parametrize("release", ["released", "held"])
@pytest.mark.parametrize("count", ["1", "2"])
@pytest.mark.parametrize("what", ["main_thread", "other_thread"])
def test_an_interrupt_ends_a_launch_whatever_its_grid(what, count, release):
    run(what, count, release)


@pytest.mark.parametrize("what", ["one_by_one", "ends", "goes_on"])
def test_a_signal_meanwhile(what):
    run(what)


@pytest.mark.parametrize("arguments", [("1",), ("2",), ("2", "cooperative")])
def test_a_signals_handler_forks(arguments):
    run("forks", *arguments)


def test_a_grid_that_no_launch_can_end_is_refused():
    launch, _ = kernels.nothing()
    for grid in ((1 << 31, 1 << 31), (1 << 31, (1 << 22) + 1), ((1 << 32) - 1, (1 << 32) - 1)):
        with pytest.raises(ArgumentError, match=r"more than 2\^53 programs, which no launch ends"):
            launch[grid]()
    launch[(1 << 31, 1 << 22)]()


@pytest.mark.parametrize("where", ["dtype", "__dlpack__"])
def test_an_interrupt_while_an_object_is_asked_what_it_has_is_not_lost(where):
    """The kernel is called with such an object in a process of its own, which is to end by the interrupt."""
    code = f"""
from launch_kernels import nothing

class Asked:
    def __getattribute__(self, name):
        if name == {where!r}:
            raise KeyboardInterrupt
        return object.__getattribute__(self, name)

    def data_ptr(self):
        return 64

class Kind(type):
    def __getattribute__(self, name):
        if name == {where!r}:
            raise KeyboardInterrupt
        return type.__getattribute__(self, name)

class OfKind(Asked, metaclass=Kind):
    pass

launch, _ = nothing("x")
try:
    try:
        launch[1](OfKind() if {where!r} == "__dlpack__" else Asked())
    except Exception:
        pass  # an object that does not say what it has
    for _ in range(1000):
        pass
except KeyboardInterrupt:
    print("interrupted")
"""
    path = os.pathsep.join([str(Path(__file__).parents[1] / "samples"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert "interrupted" in done.stdout, done.stdout + done.stderr
