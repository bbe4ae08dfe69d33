"""Launches that take long, with signals meanwhile; ``native/test_interrupts.py`` runs them."""

import mmap
import os
import signal
import sys
import threading
import time
import traceback

import numpy as np
import pytest

import launch_kernels as kernels
from silo.errors import LaunchError
from silo.launch import native
from silo.launch.native import threads
from silo.launch.runtime import make_launcher

ENDLESS = (1 << 31, 1 << 20)
LIMIT_S = 100.0  # long enough for a busy machine; without the interrupt, the launches would take years


def launcher(entry, *names, layout, release_gil=True, **options):
    asked = kernels.Asked(entry, layout, **options)
    return make_launcher(entry, kernels.any_parameters(*names), on_miss=asked, release_gil=release_gil)


def turning(**options):
    """Return a launcher: each program loops ``turns`` times, then adds 1 to out[its number modulo 8]."""
    return launcher("turn", "out", "turns", layout=((0, "ptr", True), (1, "i32", False)), **options)


def interrupt_after(seconds=0.3):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def shared_counts():
    """Return an array of eight zeros in memory that forked children share."""
    return np.frombuffer(mmap.mmap(-1, 64), np.int64)


def interrupt_when_counting(out):
    """Interrupt this process once a launch has written to ``out``, however long the launch takes to begin.

    A forked child does it, because a thread of this process may never be scheduled. Returns the child's process id.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        while not out.any() and os.getppid() == parent:
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(parent, signal.SIGINT)
        os._exit(0)
    return child


def interrupted(launch, out, *arguments):
    """Make an endless launch, interrupt it, and return the note on the KeyboardInterrupt."""
    child = interrupt_when_counting(out)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised:
        launch(out, *arguments)
    os.waitpid(child, 0)
    assert time.monotonic() - begin < LIMIT_S
    (note,) = raised.value.__notes__
    return note


def waits_for(thread):
    thread.start()
    thread.join()


def works(launch):
    out = np.zeros(8, np.int64)
    launch[(1000,)](out, 5)
    assert out.sum() == 1000


def main_thread(count, release):
    """Programs of nanoseconds and of milliseconds can be interrupted, also after short launches of the same kernel."""
    launch = turning(release_gil=release == "released")
    with threads(int(count)):
        for turns in (0, 1_000_000):
            works(launch)
            out = shared_counts()
            note = interrupted(launch[ENDLESS], out, turns)
            assert note.startswith("turn: it was interrupted after at most ")
            assert note.endswith(f" of its {ENDLESS[0] * ENDLESS[1]} programs: what it writes is partly written")
            assert 0 < out.sum() <= int(note.split("at most ")[1].split(" ")[0])
        works(launch)


def one_by_one():
    """Programs that could wait for each other, but do not, can be interrupted."""
    launch = turning(chunk=1)
    with threads(2):
        interrupted(launch[ENDLESS], shared_counts(), 0)
        works(launch)


def other_thread(count, release):
    """The main thread handles the signal even if another thread launches, and that launch goes on."""
    launch = turning(release_gil=release == "released")
    out = shared_counts()
    with threads(int(count)):
        try:
            works(launch)
            other = threading.Thread(target=lambda: launch[ENDLESS](out, 0), daemon=True)
            interrupt_when_counting(out)
            begin = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                waits_for(other)
            assert time.monotonic() - begin < LIMIT_S
            works(launch)
            before = out.sum()
            time.sleep(0.1)
            assert out.sum() > before
            if count != "1":
                interrupt_after()
                with pytest.raises(KeyboardInterrupt):
                    native.cpu_threads(1)  # waits for the end of the launch
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)  # a normal exit would wait for the launch


def ends():
    """The process can end while one of its threads launches."""
    launch = turning(release_gil=False)
    works(launch)
    threading.Thread(target=lambda: launch[ENDLESS](np.zeros(8, np.int64), 0), daemon=True).start()
    time.sleep(0.5)


def goes_on():
    """A signal handler that raises nothing can itself launch, with scratch memory of its own."""
    fills = launcher("scratch_check", "size", layout=((0, "i32", False),), scratch_bytes=4096)
    inner = launcher("scratch_check", "size", layout=((0, "i32", False),), scratch_bytes=1 << 20)
    seen = []

    def handler(*_):
        inner[(4,)](1 << 20)
        seen.append(1)

    signal.signal(signal.SIGALRM, handler)
    for count in (1, 2):
        with threads(count):
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.05)
            fills[(4000,)](4096)
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen


def forks(count, cooperative=""):
    """A signal handler forks during a launch: the parent's launch is complete.

    The child's launch is an error if other threads had a part of it.
    """
    launch = turning(cooperative=True) if cooperative else turning()
    # The launch takes seconds, so that the handler runs long before its end, even on a fast machine.
    programs, turns = (8, 250_000_000) if cooperative else (4000, 500_000)
    parent = os.getpid()
    children = []

    def handler(*_):
        if not children:
            children.append(os.fork())

    signal.signal(signal.SIGALRM, handler)
    out = np.zeros(8, np.int64)
    error = None
    with threads(int(count)):
        launch[(8,)](out, 5)
        out[:] = 0
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            launch[(programs,)](out, turns)
        except LaunchError as raised:
            error = raised
        if os.getpid() != parent:
            launch[(8,)](np.zeros(8, np.int64), 5)
            whole = error is None and out.sum() == programs  # all cooperative programs may have ended before the fork
            told = "the process was forked while it ran" in str(error)
            os._exit(0 if whole or (told and (count != "1" or cooperative)) else 1)
        assert error is None
        assert out.sum() == programs
        (child,) = children
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    known = (main_thread, one_by_one, other_thread, ends, goes_on, forks)
    {one.__name__: one for one in known}[sys.argv[1]](*sys.argv[2:])
