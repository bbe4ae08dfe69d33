"""Launches on the CPU under stress: forks, many Python threads, parallel regions of OpenMP, a single core.

``native/test_pool_stress.py`` runs ``pool_program.py WHAT [RUNTIME]``; RUNTIME is an OpenMP library to load first.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import launch_kernels as kernels
from silo.core.signature import Signature
from silo.errors import LaunchError
from silo.launch import native
from silo.launch.native import cpu_threads, threads
from silo.launch.runtime import make_launcher

PROGRAMS = 400
CHILD_S = 60


def launcher(entry, *names, layout=((0, "ptr", True),)):
    asked = kernels.Asked(entry, layout)
    return make_launcher(entry, kernels.any_parameters(*names or ("out",)), on_miss=asked)


def heavy():
    """Return a function that makes a launch large enough for all threads, and checks that each program ran once."""
    launch = launcher("turn", "out", "turns", layout=((0, "ptr", True), (1, "i32", False)))

    def run():
        out = np.zeros(8, np.int64)
        launch[(PROGRAMS,)](out, 2000)
        assert out.sum() == PROGRAMS, out

    return run


def tasks():
    return len(list(Path("/proc/self/task").iterdir()))


def in_child(body):
    """Run ``body`` in a forked child, which must exit with 0 in time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + CHILD_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def fork(library):
    """Children of a process with its own and OpenMP's threads can launch.

    Their children and the children of busy parents can launch too.
    """
    run = heavy()
    run()
    if library is not None:
        region(library, lambda: None)

    def child():
        for _ in range(20):
            run()
        in_child(run)

    for _ in range(5):
        in_child(child)
        run()
    stop = threading.Event()

    def body():
        while not stop.is_set():
            run()

    others = [threading.Thread(target=body) for _ in range(3)]
    for other in others:
        other.start()
    try:
        for _ in range(10):
            in_child(run)
    finally:
        stop.set()
        for other in others:
            other.join()


def crowd(_library):
    """32 Python threads launch at once: each program runs once; only one thread at a time has a team or the pool."""
    run = heavy()
    run()
    before, seen, wrong = tasks(), [], []
    barrier = threading.Barrier(32)

    def body():
        try:
            barrier.wait()
            for _ in range(30):
                run()
                seen.append(tasks())
        except BaseException as error:  # kept, because a thread's error would be lost
            wrong.append(error)
            raise

    started = [threading.Thread(target=body) for _ in range(32)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert not wrong
    # The pool's threads and the threads of one OpenMP team, whichever thread launched first.
    assert max(seen) <= before + 32 + cpu_threads(), (before, max(seen))


def region(library, body):
    """Call ``body`` on each thread of an OpenMP team of four."""
    library.GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: body()), None, 4, 0)


def nested(library):
    """Each thread of a parallel region launches, and its launch runs on that thread only."""
    run, launch = heavy(), launcher("threads")
    wrong, used = [], []

    def body():
        out = np.zeros(4, np.uint64)
        launch[(4,)](out)
        used.append(len(set(out)))
        try:
            run()
        except AssertionError as error:
            wrong.append(error)

    run()
    for _ in range(5):
        region(library, body)
        run()
    assert not wrong
    assert used == [1] * 20, used


def one_core(_library):
    """With more threads than cores (one core is left), launches end and no thread spins."""
    run = heavy()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for count in (1, 4, 16):
        with threads(count):
            assert count == 1 or native.cpu_state()["spin"] == 0
            begin = time.process_time()
            for _ in range(30):
                run()
            time.sleep(0.05)
            spent = time.process_time()
            time.sleep(0.2)
            assert time.process_time() - spent < 0.1, "idle threads take time"
            assert time.process_time() - begin < 60


def pinned(_library):
    """In a process that measures, each thread has a processor; a launch whose threads do not arrive is counted."""
    run, all_of_them = heavy(), os.sched_getaffinity(0)
    wide = len(all_of_them) > 1 and cpu_threads() == len(all_of_them)
    assert native.cpu_pin_threads() is wide
    run()
    if wide:
        assert cpu_threads() == len(all_of_them)
        assert native.cpu_state()["affinity"] == len(all_of_them)
        assert native.cpu_state()["spin"] != 0
        places = [os.sched_getaffinity(int(one.name)) for one in Path("/proc/self/task").iterdir()]
        assert sorted(place for place in map(tuple, places) if len(place) == 1) == [
            (one,) for one in sorted(all_of_them)
        ]
    # Both threads run on the processor of this thread, so the other thread is seldom scheduled while this one works.
    os.sched_setaffinity(0, {min(all_of_them)})
    for one in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(one.name), {min(all_of_them)})
    with threads(2):
        for one in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(one.name), {min(all_of_them)})
        before = native.cpu_short_handed()
        for _ in range(200):
            run()
        assert native.cpu_short_handed() > before
    before = native.cpu_short_handed()
    with threads(1):
        run()
    assert native.cpu_short_handed() == before  # a launch on one thread waits for no other


def sizes(_library):
    """The number of threads changes all the time while three Python threads launch."""
    run, stop = heavy(), threading.Event()
    wrong = []

    def body():
        try:
            while not stop.is_set():
                run()
        except BaseException as error:
            wrong.append(error)
            raise

    started = [threading.Thread(target=body) for _ in range(3)]
    for one in started:
        one.start()
    for turn in range(200):
        native.cpu_threads(1 + turn * 7 % 20)
        native.cpu_spin(turn % 3 * 30)
        native.cpu_use_pool(("own", "auto", "openmp")[turn % 3])
    stop.set()
    for one in started:
        one.join()
    assert not wrong


def errors(_library):
    """A program that fails on any thread ends the launch with its error text; the next launch is complete."""
    run = heavy()
    says = make_launcher("says", Signature(()), on_miss=kernels.Asked("fail_with_text"))
    fails = make_launcher("fails", Signature(()), on_miss=kernels.Asked("all_fail"))
    for _ in range(30):
        with pytest.raises(LaunchError, match="program 3 divides by zero"):
            says[(PROGRAMS,)]()
        with pytest.raises(LaunchError) as raised:
            fails[(PROGRAMS,)]()
        assert len(set(str(raised.value).removeprefix("fails: ").partition(" ")[0])) == 1
        run()


def handler(_library):
    """A signal handler forks during a launch: the child's launch raises an error, and the child can launch again."""
    launch, run = launcher("threads"), heavy()
    run()
    parent, children = os.getpid(), []

    def fork_here(_signal, _frame):
        children.append(os.fork())

    signal.signal(signal.SIGALRM, fork_here)
    out = np.zeros(600, np.uint64)
    signal.setitimer(signal.ITIMER_REAL, 0.15)
    try:
        launch[(600,)](out)
    except LaunchError as error:
        if os.getpid() == parent or "forked" not in str(error):
            raise
        run()
        os._exit(0)
    if os.getpid() != parent:
        os._exit(5)
    assert children
    assert out.all()
    deadline = time.monotonic() + CHILD_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(children[0], os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.005)
    os.kill(children[0], 9)
    raise AssertionError("the child hangs")


WHAT = {
    "handler": handler,
    "fork": fork,
    "crowd": crowd,
    "nested": nested,
    "one_core": one_core,
    "sizes": sizes,
    "errors": errors,
    "pinned": pinned,
}

if __name__ == "__main__":
    loaded = ctypes.CDLL(sys.argv[2]) if len(sys.argv) > 2 else None
    cpu_threads(4)
    WHAT[sys.argv[1]](loaded)
