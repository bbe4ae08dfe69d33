"""A checked kernel within a block, for callers in Python and in C."""

from __future__ import annotations

import ctypes
import logging

import pytest

from silo.checking.kernel import LaunchableKernel, NativeCall, NativeKernel
from silo.checking.machine import CheckedLaunch, CheckFinding, Ran
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import CheckLimits
from silo.errors import CheckError, LaunchError, SiloError

LAUNCH = LaunchInfo("entry", ())


class OneRun(CheckedLaunch[int, str, str, int]):
    """A launch whose only run has the fault that the call names."""

    def __init__(self, call) -> None:
        self.call = call

    @property
    def schedules(self):
        return (0,)

    def run(self, schedule, exchange=None):
        if isinstance(self.call, BaseException):
            raise self.call
        return Ran(self.call or None)

    def results(self):
        return 0

    def difference(self, results):
        return None

    def fault_finding(self, fault, schedule):
        return CheckFinding("race", fault, ("why",), "x", "k.py:3", " at k.py:3", (1, 0, 0), (2,))

    def doubt_finding(self, doubt, other, effect, schedule):
        raise AssertionError

    def publish(self, results):
        pass

    def put_back(self):
        pass


class Code:
    """Code that has a line to note on each launch."""

    def begin(self, arguments, limits, notes):
        notes.append(f"{len(limits.memory)} arrays are not looked at")
        return OneRun


def kernel():
    return LaunchableKernel("k", LAUNCH, (), Code())


def test_a_finding_is_raised_with_all_that_is_known_of_it():
    one = kernel()
    with pytest.raises(CheckError, match=r"^k: a race at k\.py:3\n  why$") as caught, one.over({}, CheckLimits()):
        one.check("a race")
    error = caught.value
    assert (error.kind, error.place, error.argument) == ("race", "k.py:3", "x")
    assert (error.program, error.index) == ((1, 0, 0), (2,))


def test_a_note_is_logged_once_by_a_kernel(caplog):
    caplog.set_level(logging.INFO, "silo")
    one = kernel()
    for memory in ((), (), (1,)):
        with one.over({}, CheckLimits(memory=memory)):
            one.check("")
    assert [record.getMessage() for record in caplog.records] == [
        "k: 0 arrays are not looked at",
        "k: 1 arrays are not looked at",
    ]


def test_a_launch_that_nobody_waits_for_is_an_error():
    with pytest.raises(SiloError, match="nobody waits"):
        kernel().check("")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("of a kind")])
def test_the_caller_of_a_launch_in_c_gets_the_exception_of_its_runs(error):
    one = kernel()

    def launch(call, code):
        with one.over({}, CheckLimits()):
            assert one.check_for_c(call) is (code == 0)
            raise LaunchError(f"the kernel returned {code}")

    with pytest.raises(type(error)):
        launch(error, 1)
    with pytest.raises(LaunchError, match="returned 0"):  # of another reason
        launch("", 0)


def test_an_entry_for_the_thread_pool_makes_the_runs_of_the_first_chunk():
    calls = []

    class Recording(Code):
        def begin(self, arguments, limits, notes):
            def launch(call):
                calls.append(call)
                return OneRun("a race")

            return launch

    one = NativeKernel("k", LAUNCH, (), Recording())
    grid = (ctypes.c_uint32 * 3)(2, 3, 4)
    with one.over({}, CheckLimits()):
        assert one.entry(64, grid, 0, 8, None, 0) == 1
        assert one.entry(64, grid, 8, 24, None, 0) == 0
    assert calls == [NativeCall(64, (2, 3, 4), 0)]
    assert calls[0].total == 24
