"""Kernels whose programs wait for each other, and one that faults; ``native/test_waiting.py`` runs them."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import triton
import triton.language as tl

import silo
from silo.errors import LaunchError
from silo.settings import settings


@triton.jit
def barrier(counter, out, n):
    """Every program waits until all programs have arrived."""
    tl.atomic_add(counter, 1)
    while tl.atomic_add(counter, 0) < n:
        pass
    tl.store(out + tl.program_id(0), tl.atomic_add(counter, 0))


@triton.jit
def later(flags, out, n):
    """Each program waits for the next one, so programs that run one after the other never end."""
    i = tl.program_id(0)
    if i + 1 < n:
        while tl.load(flags + i + 1, volatile=True) == 0:
            pass
    tl.store(out + i, i + 1)
    tl.atomic_xchg(flags + i, 1)


@triton.jit
def earlier(flags, out):
    """Each program waits for the one before it, like a scan that looks back."""
    i = tl.program_id(0)
    before = tl.zeros((), tl.int32)
    if i > 0:
        while tl.load(flags + i - 1, volatile=True) == 0:
            pass
        before = tl.load(out + i - 1)
    tl.store(out + i, before + 1)
    tl.atomic_xchg(flags + i, 1)


@triton.jit
def locked(lock, out):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + 1)
    tl.atomic_xchg(lock, 0)


@triton.jit
def never(flag, out):
    tl.store(out, 2)
    while tl.load(flag, volatile=True) == 0:
        pass
    tl.store(out, 1)


@triton.jit
def stray(x, at, wrong):
    """Program ``wrong`` writes to an unmapped address."""
    i = tl.program_id(0) + 4 * tl.program_id(1)
    tl.store(x + tl.where(i == wrong, at, 0), 1.0)


def run(kernel, grid, *arguments, **options):
    silo.kernel(kernel)[grid](*arguments, **options)


def waits():
    for n in (1, 2, 7, 64, 300):
        out = np.zeros(n, np.int32)
        run(barrier, (n,), np.zeros(1, np.int32), out, n)
        assert (out >= n).all()
        out = np.zeros(n, np.int32)
        run(later, (n,), np.zeros(n, np.int32), out, n)
        assert (out == np.arange(n) + 1).all()
    for n in (5, 3000):
        out = np.zeros(n, np.int32)
        run(earlier, (n,), np.zeros(n, np.int32), out)
        assert (out == np.arange(n) + 1).all()
        out = np.zeros(1, np.int32)
        run(locked, (n,), np.zeros(1, np.int32), out)
        assert out[0] == n


def cooperative():
    out = np.zeros(40, np.int32)
    run(barrier, (40,), np.zeros(1, np.int32), out, 40, launch_cooperative_grid=True)
    assert (out == 40).all()
    with pytest.raises(LaunchError, match=r"all 2000 must run at once, .* have 1024 at once.*SILO_PROGRAMS"):
        run(barrier, (2000,), np.zeros(1, np.int32), np.zeros(2000, np.int32), 2000, launch_cooperative_grid=True)


def stuck():
    """More programs wait than can run at once: the launch ends with an error after a while."""
    assert settings().programs_at_once == 3
    with pytest.raises(LaunchError, match="the launch has 50 programs, and 3 run at once"):
        run(later, (50,), np.zeros(50, np.int32), np.zeros(50, np.int32), 50)


def interrupt():
    """Ctrl-C ends a launch that waits for ever, and the next launch works.

    The interrupt is sent while the kernel runs, however long the launch takes to begin: an interrupt that Python
    handles inside a callback would be lost, because exceptions of callbacks are ignored.
    """
    flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    for grid in ((1,), (4,)):
        flag[0] = 1
        run(never, grid, flag, out)  # compiles the kernel
        flag[0] = out[0] = 0
        threading.Thread(target=interrupt_when, args=(out, 2)).start()
        with pytest.raises(KeyboardInterrupt):  # the test's own LIMIT_S ends an endless wait
            run(never, grid, flag, out)
        assert out[0] == 2
        flag[0] = 1
        run(never, grid, flag, out)
        assert out[0] == 1


def interrupt_when(array, value):
    while array[0] != value:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def released():
    """Another thread of the program writes the value that a launch waits for."""
    flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    threading.Timer(0.3, lambda: flag.fill(1)).start()
    run(never, (4,), flag, out)
    assert out[0] == 1


def fault(programs, wrong):
    x = np.zeros(16, np.float32)
    run(stray, (4, int(programs) // 4), x, 0, 0)
    run(stray, (4, int(programs) // 4), x, 1 << 40, int(wrong))


def fault_elsewhere():
    """A fault outside of any kernel, after a launch."""
    import ctypes

    run(stray, (4, 1), np.zeros(16, np.float32), 0, 0)
    ctypes.string_at(8)


def sent():
    """A SIGSEGV that a process sends is not a fault of a kernel."""
    run(stray, (4, 1), np.zeros(16, np.float32), 0, 0)
    os.kill(os.getpid(), signal.SIGSEGV)


if __name__ == "__main__":
    known = (waits, cooperative, stuck, interrupt, released, fault, fault_elsewhere, sent)
    {one.__name__: one for one in known}[sys.argv[1]](*sys.argv[2:])
