"""Workers that crash, hang or are left behind."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

import silo
from silo.compile.pool import WorkerPool
from silo.core.device import Target
from silo.core.variant import CompileJob
from silo.errors import CompileCrashError, CompileError, CompileTimeoutError

PLUGINS = {"fake": "fake_backend.declaration:FAKE"}
SEARCH = os.pathsep.join([str(Path(silo.__file__).parent.parent), str(Path(__file__).parents[1] / "samples")])

pytestmark = pytest.mark.usefixtures("samples_in_processes")


def job(**values):
    parameters = {"values": values, "options": {}, "specialization": {}, "layout": ["x"]}
    return CompileJob("fake", "kernel", Target.parse("fake:one"), "text", parameters)


def worker_pids(parent):
    """Children of a process, by their command lines; the test fails where /proc is not there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent and b"silo.compile.worker" in command:
                found.append(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def own_pids(monkeypatch):
    """Leaves out the workers that other tests' pools in this process keep warm."""
    others = set(worker_pids(os.getpid()))
    everybody = worker_pids
    monkeypatch.setitem(
        globals(), "worker_pids", lambda parent: [pid for pid in everybody(parent) if pid not in others]
    )


def is_gone(pid, wait_s=10.0):
    """Whether the process ends (a zombie that nobody waited for counts as ended)."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_a_crash_costs_one_job_and_the_worker_is_replaced():
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS) as pool:
        before = pool.submit(job())
        crash = pool.submit(job(CRASH=3, NOISE=1))
        after = pool.submit(job(REGISTERS=9))
        assert before.result().launch.registers == 16
        with pytest.raises(
            CompileCrashError,
            match=r"died twice while compiling kernel for fake:one: exit status 3.*from the fake",
        ):
            crash.result()
        assert after.result().launch.registers == 9


def test_a_signal_is_named():
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS) as pool:
        with pytest.raises(CompileCrashError, match="signal SIGSEGV"):
            pool.submit(job(CRASH=-signal.SIGSEGV)).result()
        assert pool.submit(job()).result()


def test_a_job_whose_worker_died_once_is_tried_again(tmp_path):
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS) as pool:
        mark = tmp_path / "crashed"
        assert pool.submit(job(CRASH_ONCE=str(mark), REGISTERS=9)).result().launch.registers == 9
        assert mark.exists()


def test_a_trial_may_take_as_long_as_others_suggest(monkeypatch):
    monkeypatch.setattr("silo.compile.pool._LEAST_S", 0.5)
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS) as pool:
        for number in range(8):
            pool.submit(job(REGISTERS=number), trial=True).result()
        with pytest.raises(CompileTimeoutError, match="other configs of the kernel took a fourth of that"):
            pool.submit(job(HANG=1), trial=True).result()
        assert pool.submit(job(SLEEP_MS=700)).result(), "what is not a trial has the pool's own limit"


def test_a_hang_is_stopped_and_costs_one_job():
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS) as pool:
        pool.submit(job()).result()
        (pid,) = worker_pids(os.getpid())
        with pytest.raises(CompileTimeoutError, match=r"more than 0\.3 s.*SILO_COMPILE_TIMEOUT"):
            pool.submit(job(HANG=1), timeout_s=0.3).result()
        assert is_gone(pid)
        assert pool.submit(job(REGISTERS=9)).result().launch.registers == 9


def test_close_stops_busy_workers_and_fails_their_jobs():
    pool = WorkerPool(workers=2, timeout_s=600, plugins=PLUGINS)
    pool.submit(job()).result()
    busy = pool.submit(job(HANG=1))
    queued = [pool.submit(job(HANG=2 + count)) for count in range(3)]
    while not busy.running():
        time.sleep(0.01)
    pids = worker_pids(os.getpid())
    assert pids
    pool.close()
    with pytest.raises(CompileError, match="closed"):
        busy.result(timeout=60)
    for future in queued:
        with pytest.raises((CompileError, CancelledError)):
            future.result(timeout=60)
    assert all(is_gone(pid) for pid in pids)
    assert worker_pids(os.getpid()) == []


PARENT = """
import sys, time
from silo.compile.pool import WorkerPool
from silo.core.device import Target
from silo.core.variant import CompileJob
pool = WorkerPool(workers=1, plugins={"fake": "fake_backend.declaration:FAKE"})
parameters = {"values": VALUES, "options": {}, "specialization": {}, "layout": []}
future = pool.submit(CompileJob("fake", "kernel", Target.parse("fake:one"), "", parameters))
while not (future.running() and pool._processes and all(p._ready for p in pool._processes)):
    time.sleep(0.01)
print("busy", flush=True)
AFTER
"""


def start_parent(values, after):
    code = PARENT.replace("VALUES", values).replace("AFTER", after)
    environment = {**os.environ, "PYTHONPATH": SEARCH}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout.readline() == b"busy\n"
    return parent


def test_workers_die_with_a_killed_parent():
    parent = start_parent("{'HANG': 1}", "time.sleep(600)")
    (worker,) = worker_pids(parent.pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert is_gone(worker)


def test_a_program_that_forgets_to_close_ends_and_takes_its_workers_along():
    parent = start_parent("{'HANG': 1}", "")
    assert parent.wait(timeout=120) == 0
    parent.stdout.close()
    assert worker_pids(parent.pid) == []


def test_a_worker_that_cannot_start_is_an_error_of_the_job(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with (
        WorkerPool(workers=1, timeout_s=5, plugins=PLUGINS) as pool,
        pytest.raises(CompileError, match="cannot be started"),
    ):
        pool.submit(job()).result()


def test_a_plugin_that_does_not_load_is_an_error_of_the_job():
    with (
        WorkerPool(workers=1, timeout_s=60, plugins={"fake": "silo.no_such_module:Compiler"}) as pool,
        pytest.raises(CompileError, match=r"silo\.no_such_module"),
    ):
        pool.submit(job()).result()


INTERRUPTED = """
import time
from silo.compile.pool import WorkerPool
from silo.core.device import Target
from silo.core.variant import CompileJob
parameters = {"values": {"HANG": 1}, "options": {}, "specialization": {}, "layout": []}
try:
    with WorkerPool(workers=1, plugins={"fake": "fake_backend.declaration:FAKE"}) as pool:
        future = pool.submit(CompileJob("fake", "kernel", Target.parse("fake:one"), "", parameters))
        while not (pool._processes and all(process._ready for process in pool._processes)):
            time.sleep(0.01)
        print("busy", flush=True)
        future.result()
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_an_interrupt_ends_program_and_workers():
    environment = {**os.environ, "PYTHONPATH": SEARCH}
    parent = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
    assert parent.stdout.readline() == b"busy\n"
    (worker,) = worker_pids(parent.pid)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    assert parent.wait(timeout=120) == 130
    parent.stdout.close()
    assert is_gone(worker)
