"""Children of processes in which some thread was inside the system's dynamic loader while another one forked.

The loader's locks are the kind: the C library leaves some of them locked in the child for ever.
"""
# pyright: reportCallIssue=false

import ctypes
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import forked
import launch_kernels as kernels
from repetitions import repetitions
from silo.errors import LaunchError
from silo.launch import native
from silo.launch.native import threads
from silo.launch.runtime import make_launcher
from silo.settings import override

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS's loader has fork handlers of its own")


MANY = 500_000  # programs


@contextmanager
def inside_the_loader():
    """Another thread is inside ``dl_iterate_phdr``, which holds the lock that dlopen and dlclose take too."""
    entered, go = threading.Event(), threading.Event()

    def look(*_):
        entered.set()
        go.wait()
        return 1

    body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(look)
    thread = threading.Thread(target=ctypes.CDLL(None).dl_iterate_phdr, args=(body, None))
    thread.start()
    try:
        entered.wait()
        yield
    finally:
        go.set()
        thread.join()


def launch_ids(launch):
    """Launches that are worth several threads, so that an OpenMP runtime is looked for."""
    out = np.zeros(MANY, np.int64)
    for _ in range(5):
        out[:] = -1
        launch[(MANY,)](out)
        assert (out == np.arange(MANY)).all()


def ids():
    return make_launcher("ids", kernels.any_parameters("out"), on_miss=kernels.Asked("ids", ((0, "ptr", True),)))


def test_a_launch_on_several_threads_does_not_wait_for_the_lost_lock():
    launch = ids()
    with override(pool="auto"), threads(2):
        launch_ids(launch)
        with inside_the_loader():
            forked.run(lambda: launch_ids(launch))
        forked.run(lambda: launch_ids(launch))


def test_loading_code_is_an_error_instead_of_a_wait_for_ever():
    launch_ids(ids())  # the kernels' code is at hand, and one object of it is loaded
    data = kernels.blob()

    def work():
        with pytest.raises(LaunchError, match=r"made by fork\(\) while another thread"):
            native.LoadedKernel(native.CpuModule(data), "ids")
        with pytest.raises(LaunchError, match=r"made by fork\(\) while another thread"):
            native.LoadedKernel(native.CpuModule(data), "ids")

    with inside_the_loader():
        forked.run(work)


def test_a_child_of_any_other_process_loads_code():
    data = kernels.blob()

    def work():
        assert native.LoadedKernel(native.CpuModule(data), "ids").entry == "ids"
        forked.run(work_again)

    def work_again():
        assert native.LoadedKernel(native.CpuModule(data), "nothing").entry == "nothing"

    forked.run(work)


def test_a_fork_waits_for_threads_that_load_but_not_for_ever():
    """A thread of Silo's that waits in the loader for something that never comes does not stop a fork."""
    launch = ids()
    with override(pool="auto"), threads(2):
        launch_ids(launch)
        with inside_the_loader():
            stuck = threading.Thread(target=launch_ids, args=(launch,))
            stuck.start()
            time.sleep(0.1)  # it holds Silo's lock, and waits for the loader's
            begin = time.monotonic()
            forked.run(lambda: launch_ids(launch))
            assert time.monotonic() - begin < 15
        stuck.join()


def test_forks_while_another_thread_loads_and_unloads():
    data = kernels.blob()
    launch = ids()
    stop = threading.Event()

    def body():
        while not stop.is_set():
            native.LoadedKernel(native.CpuModule(data), "nothing")

    def work():
        launch_ids(launch)
        native.LoadedKernel(native.CpuModule(data), "nothing")

    others = [threading.Thread(target=body) for _ in range(2)]
    with override(pool="auto"), threads(2):
        launch_ids(launch)
        for other in others:
            other.start()
        try:
            for _ in range(repetitions("SILO_TEST_FORKS", 10, 60)):
                forked.run(work)
        finally:
            stop.set()
            for other in others:
                other.join()
