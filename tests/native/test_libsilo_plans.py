"""Plans of libsilo on the CPU: steps of launches that are run as one, with other arguments each time."""

import ctypes
import threading

import numpy as np
import pytest

from libsilo import CPU, Bundle, LibraryError, Plan, Queue
from made_bundles import write_made

F4 = np.float32
USAGE, FAULT = 20, 46


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture
def bundle(made):
    with Bundle(made, vouch=lambda code: 1) as opened:
        yield opened


def arrays(count, n):
    rng = np.random.default_rng(n)
    return [rng.random(n, dtype=F4) for _ in range(count)]


def test_each_step_runs_with_its_own_arguments(bundle):
    add = bundle["add"]
    with Plan(bundle.library) as plan:
        assert plan.explain() == ("", "")
        for n in (1, 16, 17, 640, 0, 5000, 16):
            x, y, z = arrays(3, n)
            first, second = np.zeros(n, F4), np.zeros(n, F4)
            add.add_to(plan, x, y, first, n)
            add.add_to(plan, first, z, second, n)
            add.add_to(plan, first, second, first, n)
            assert not second.any()
            plan.run()
            np.testing.assert_array_equal(second, x + y + z)
            np.testing.assert_array_equal(first, (x + y) + second)
        way, reason = plan.explain()
        assert way == "in order, on the CPU"
        assert reason


def test_a_run_without_additions_repeats_the_step(bundle):
    x, y = arrays(2, 100)
    total = np.zeros(100, F4)
    with Plan(bundle.library) as plan:
        plan.run()  # nothing to launch
        bundle["add"].add_to(plan, x, total, total, 100)
        bundle["add"].add_to(plan, y, total, total, 100)
        for _ in range(3):
            plan.run()
    expected = np.zeros(100, F4)
    for _ in range(3):
        expected = y + (x + expected)
    np.testing.assert_array_equal(total, expected)


def test_kinds_of_parameters_arrive(bundle):
    values = (True, -8, -16, -32, -(1 << 40), 200, 60000, 1 << 31, 1 << 62, 1.5, 2.5, 3.5, 4.5)
    out, expected = np.zeros(112, np.uint8), np.zeros(112, np.uint8)
    bundle["kinds"](expected, *values)
    with Plan(bundle.library) as plan:
        bundle["kinds"].add_to(plan, out, *values)
        plan.run()
    np.testing.assert_array_equal(out, expected)
    assert out.any()


def test_grids_are_given_declared_or_empty(bundle):
    out = np.zeros(4, np.int32)
    with Plan(bundle.library) as plan:
        bundle["bare"].add_to(plan, out, 2, grid=(0, 1, 1))
        plan.run()
        assert not out.any()
        bundle["bare"].add_to(plan, out, 2, grid=(2, 2, 1))
        plan.run()
        assert out[3] == 2003
        bundle["shaped"].add_to(plan, out, 2)
        plan.run()
        assert out[3] == 4003


def test_more_sequences_than_are_kept_are_right(bundle):
    x, y, out = arrays(3, 64)
    with Plan(bundle.library) as plan:
        for count in [*range(1, 80), *range(1, 80, 7)]:
            out[:] = x
            for _ in range(count):
                bundle["add"].add_to(plan, y, out, out, 64)
            plan.run()
            expected = x.copy()
            for _ in range(count):
                expected = y + expected
            np.testing.assert_array_equal(out, expected)


def test_a_step_with_a_refused_launch_is_not_run(bundle):
    x, y, out = arrays(3, 64)
    before = out.copy()
    with Plan(bundle.library) as plan:
        bundle["add"].add_to(plan, x, y, out, 64)
        with pytest.raises(LibraryError, match="it takes float32"):
            bundle["add"].add_to(plan, x.astype(np.float64), y, out, 64)
        with pytest.raises(LibraryError, match="a launch could not be added to this step") as caught:
            plan.run()
        assert caught.value.code == USAGE
        np.testing.assert_array_equal(out, before)
        bundle["add"].add_to(plan, x, x, out, 64)
        plan.run()
        np.testing.assert_array_equal(out, x + x)


def test_a_kernel_that_fails_is_named_with_how_many_ran(bundle):
    x, y, out = arrays(3, 64)
    with Plan(bundle.library) as plan:
        bundle["add"].add_to(plan, x, y, out, 64)
        bundle["fails"].add_to(plan, np.zeros(16, np.int32), 3)
        with pytest.raises(LibraryError, match="fails") as caught:
            plan.run()
        assert caught.value.code == FAULT
        np.testing.assert_array_equal(out, x + y)


def test_mistakes_are_refused(bundle):
    library, place = bundle.library, Queue(CPU, 0, None)
    assert library.silo_plan_begin(None, None, None) == USAGE
    assert library.silo_plan_add(None, bundle["add"].handle, None, 0, None, None) == USAGE
    assert library.silo_plan_run(None, None, None) == USAGE
    library.silo_plan_close(None)
    made = ctypes.c_void_p()
    assert library.silo_plan_begin(ctypes.byref(place), ctypes.byref(made), None) == 0
    assert library.silo_plan_add(made, None, None, 0, None, None) == USAGE
    library.silo_plan_close(made)


def test_two_threads_at_one_time_are_told(bundle):
    """While a run of one thread is in its kernel, another thread is refused, and the run ends well."""
    n = 1 << 22
    x, y, out = arrays(3, n)
    refused, stop = [], threading.Event()
    with Plan(bundle.library) as plan:
        bundle["add"].add_to(plan, x, y, out, n)

        def other():
            while not stop.is_set():
                try:
                    plan.run()
                except LibraryError as error:
                    refused.append(error)

        threads = [threading.Thread(target=other) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(2000):
            if refused:
                break
            stop.wait(0.005)
        stop.set()
        for thread in threads:
            thread.join()
    assert refused
    assert {error.code for error in refused} == {USAGE}
    assert "used by two threads at one time" in refused[0].text
    np.testing.assert_array_equal(out, x + y)
