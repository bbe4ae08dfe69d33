"""Processes that fork after they compile, tune and launch, and meanwhile; ``faults/test_fork.py`` runs them.

``SILO_TEST_FORKS=10000 python tests/samples/fork_program.py many`` makes 10,000 children, with fresh folders in
SILO_HOME and TRITON_CACHE_DIR. It prints how many there were, and ends with 1 and the stacks of a child that hangs.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import triton
import triton.language as tl

import forked
import silo
from silo import forks, settings
from silo.machine import process_session as session

LIMIT_S = 150


@silo.kernel(space={"BLOCK": [64, 128]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scaled(x, out, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * FACTOR, mask=i < n)


def use(factor, *, tune="off", n=1000):
    """Compile a variant (each factor is another one), launch it, and check the result; return the factor."""
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    with settings.override(tune=tune, tune_budget_s=3.0):
        scaled(x, out, n, FACTOR=factor)
    assert (out == x * factor).all()
    return factor


def stored(factor):
    """Return whether the store has the variant's code, which another process compiled."""
    folder = settings.settings().store_folder / "artifacts"
    return any(str(factor).encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def compile_workers():
    """Return the process ids of this process's compile workers."""
    pools = [made._pool for made in session._sessions.values() if made._pool]
    return {process._process.pid for pool in pools for process in pool._processes}


def after():
    """A child of a process that has compiled can compile, tune, launch and store; afterwards the parent still can."""
    use(2)
    workers = compile_workers()
    assert workers

    def work():
        use(2)
        use(3)
        use(4, tune="auto", n=5000)
        forked.run(lambda: use(5))

    forked.run(work)
    assert stored(3)
    for worker in workers:
        os.kill(worker, 0)  # the worker still runs and is still the parent's
    assert compile_workers() == workers
    use(6)
    assert compile_workers() == workers


def exits():
    """A child that exits normally leaves the parent's workers alone."""
    use(2)
    workers = compile_workers()
    number = os.fork()
    if number == 0:
        sys.exit(0)
    forked.wait(number)
    use(3)
    assert compile_workers() == workers


def meanwhile():
    """Children are forked while other threads compile, tune and launch."""
    use(2)
    use(2, tune="auto")
    failed = []
    stop = threading.Event()

    def body(first, tune):
        factor = first
        while not stop.is_set():
            try:
                use(factor, tune=tune, n=1000 + factor)
                use(2)
            except Exception as error:
                failed.append(error)
                raise
            factor += 1

    threads = [threading.Thread(target=body, args=given) for given in ((1000, "off"), (2000, "auto"), (3000, "off"))]
    for one in threads:
        one.start()
    try:
        for turn in range(4):
            time.sleep(0.1 * turn)
            forked.run(lambda turn=turn: (use(2), use(10 + turn), use(30 + turn, tune="auto", n=9000 + turn)))
    finally:
        stop.set()
    for one in threads:
        one.join()
    assert not failed
    use(3)


def held():
    """At the fork, another thread holds every lock of the package, including a condition that threads wait for."""
    use(2)
    use(4, tune="auto", n=5000)
    taken, go = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in list(forks._locks):
                stack.enter_context(lock)
            taken.set()
            go.wait()

    locks = len(forks._locks)
    assert locks > 20, locks
    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        forked.run(lambda: (use(2), use(3), use(5, tune="auto", n=6000)))
    finally:
        go.set()
        thread.join()
    use(6)


def many():
    """Many children of a process in which threads launch and compile; each child launches, and some compile."""
    count, most = int(os.environ.get("SILO_TEST_FORKS", "16")), max(1, (os.cpu_count() or 1) // 2)
    stop, running, ended = threading.Event(), {}, 0
    use(2, n=1 << 20)

    def launch_on():
        while not stop.is_set():
            use(2, n=1 << 20)
            time.sleep(0.002)

    def compile_on():
        factor = 1000
        while not stop.wait(0.2):
            factor += 1
            use(factor)

    def child(number):
        faulthandler.dump_traceback_later(LIMIT_S - 10)
        use(2, n=1 << 20)
        if number % 4 == 0:
            use(100_000 + number)

    threads = [threading.Thread(target=body) for body in (launch_on, launch_on, launch_on, compile_on)]
    for one in threads:
        one.start()
    try:
        for number in range(count):
            running[forked.start(lambda number=number: child(number))] = time.monotonic()
            while len(running) >= most or (number == count - 1 and running):
                for one in list(running):  # only these children, because compile workers are children too
                    done, status = os.waitpid(one, os.WNOHANG)
                    if done:
                        del running[one]
                        ended += 1
                        assert os.waitstatus_to_exitcode(status) == 0, f"child {ended} of {count}; see standard error"
                for late in [one for one, begun in running.items() if time.monotonic() - begun > LIMIT_S]:
                    print(stacks_of(late), file=sys.stderr)
                    os.kill(late, signal.SIGKILL)
                    raise AssertionError(f"a child hangs, after {ended} of {count}")
                time.sleep(0.001)
    finally:
        stop.set()
        for one in threads:
            one.join()
    print(f"{ended} children, none hung")


def stacks_of(process):
    """Return the stacks of a process's threads from gdb; without gdb, the system call in which each thread waits."""
    if shutil.which("gdb"):
        command = ["gdb", "-p", str(process), "-batch", "-ex", "thread apply all bt 40"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout
    return "\n".join(path.read_text() for path in Path(f"/proc/{process}/task").glob("*/syscall"))


def pool():
    """The processes of a ``multiprocessing`` pool can launch."""
    use(2)
    with multiprocessing.get_context("fork").Pool(2) as processes:
        assert processes.map_async(use, [3, 4, 5, 2]).get(LIMIT_S) == [3, 4, 5, 2]
    use(6)


def loader():
    """The workers of torch's DataLoader can launch."""
    import torch

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return use(2 + index)

    use(2)
    batches = torch.utils.data.DataLoader(
        Samples(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=LIMIT_S
    )
    assert sorted(int(value) for batch in batches for value in batch) == [2, 3, 4, 5, 6, 7]
    use(9)


def plain():
    """Triton's own launches work in parent and child, if Silo's plug-in compiles in the process."""

    def launch(factor):
        import torch

        x, out = torch.arange(64, dtype=torch.float32), torch.zeros(64)
        scaled_plain[(1,)](x, out, 64, FACTOR=factor, BLOCK=64)
        assert (out == x * factor).all()

    launch(2)
    forked.run(lambda: (launch(2), launch(3)))
    launch(4)


@triton.jit
def scaled_plain(x, out, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * FACTOR, mask=i < n)


if __name__ == "__main__":
    {one.__name__: one for one in (after, exits, meanwhile, held, many, pool, loader, plain)}[sys.argv[1]]()
