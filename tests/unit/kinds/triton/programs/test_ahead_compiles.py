"""Configs of tuners compiled ahead in worker processes, in programs on the stub driver, whose code is for an sm_90."""

from concurrent.futures import Future
from typing import Any

import pytest

from silo.kinds.triton.programs.searches.ahead_compiles import (
    AheadCompiles,
    JobState,
    SearchCompiles,
    next_to_measure,
    turned,
    worker_count,
)
from triton_programs import program

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")

HEAD = """
import contextlib, os, signal, tempfile, threading, time
from pathlib import Path
import silo.kinds.triton.programs.searches.ahead_compiles as ahead_compiles
from silo.kinds.triton.programs.triton_patching import _SWITCH
ahead_compiles.available_cpus = lambda: 3  # two workers
CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (128, 256) for w in (2, 4, 8)]
measured = []
def bench(call, quantiles):
    call()
    measured.append(1)
    return [len(measured) * 1.0] * 3
def tuned(function, configs=CONFIGS, **more):
    return triton.autotune(configs, key=["n"], do_bench=bench, **more)(function)
@triton.jit
def doubled(a, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.exp(tl.load(a + i, mask=i < n)), mask=i < n)
def fresh():
    os.environ["TRITON_CACHE_DIR"] = folder = tempfile.mkdtemp()
    return folder
def forget(tuner):
    tuner.cache.clear()
    function = tuner.fn
    while hasattr(function, "fn") and not hasattr(function, "params"):
        function = function.fn
    function.device_caches.clear()
def files(folder):
    found = {str(one.relative_to(folder)): one.read_bytes() for one in Path(folder).glob("*/*") if one.is_file()}
    return {name: data.replace(folder.encode(), b"") for name, data in found.items() if not name.endswith(".so")}
def ahead():
    return None if _SWITCH._searches is None else _SWITCH._searches._ahead
def counts():
    return ahead_compiles.AheadCounts() if ahead() is None else ahead().counts
def jobs():
    return ahead()._jobs
def workers():
    return [one._process.pid for one in ahead()._pool._processes] if ahead() and ahead()._pool else []
def plain(call, tuner):
    # What Triton alone leaves in its cache.
    folder = fresh()
    call()
    forget(tuner)
    return files(folder)
t = tuned(doubled)
def call(n=100):
    t[(1,)](x, z, n)
if len(sys.argv) == 1:
    fresh()
"""


def run(code, **more):
    return program(HEAD + code, **{"SILO_COMPILE_AHEAD": "1", **more})


def test_workers_and_orders():
    assert worker_count(16, 16, 1) == 15
    assert worker_count(16, 16, 8) == 1
    assert worker_count(16, 1, 1) == worker_count(16, 8, 8) == 0
    assert worker_count(3, 16, 2) == 3
    assert turned([0, 1, 2, 3, 4], 1, 2) == [2, 3, 4, 0, 1]
    assert [turned([0, 1, 2], rank, 8)[0] for rank in range(8)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_which_config_is_measured_next():
    running, queued, ready = JobState.RUNNING, JobState.QUEUED, JobState.READY
    assert next_to_measure({0: running, 1: ready, 2: ready}, 15) == 1
    assert next_to_measure({0: running, 1: queued}, 15) is None
    assert next_to_measure({0: running, 1: queued, 2: queued}, 1) == 2
    assert next_to_measure({0: queued, 1: queued}, 15) == 1  # the workers are starting
    assert next_to_measure({0: running, 1: running}, 1) is None


class FakeJob:
    def __init__(self, state):
        self.future, self.kept = Future(), Future()
        if state is JobState.RUNNING:
            self.future.set_running_or_notify_cancel()

    @property
    def state(self):
        return JobState.READY if self.kept.done() else JobState.RUNNING if self.future.running() else JobState.QUEUED


def test_configs_are_measured_as_their_compiles_end():
    ahead: Any = AheadCompiles()
    jobs = {name: FakeJob(JobState.RUNNING) for name in ("slow", "quick", "middle")}
    ahead._jobs.update(jobs)
    compiles = SearchCompiles(("slow", "quick", "middle"), {0: "slow", 1: "quick", 2: "middle", 4: "slow"}, 15)
    order = ahead.places_as_ready(compiles, 5)
    assert next(order) == 3  # it was not sent
    jobs["quick"].kept.set_result(None)
    assert next(order) == 1
    jobs["middle"].kept.set_result(None)
    assert next(order) == 2
    jobs["slow"].kept.set_result(None)
    assert [*order] == [0, 4]


def test_the_launcher_of_a_signature_is_built_beside_the_configs():
    run(
        """
import triton.backends.nvidia.driver as nvidia, triton.testing
built = []
if hasattr(nvidia, "make_launcher"):
    own = nvidia.make_launcher
    def make_launcher(*given):
        built.append(threading.current_thread().name)
        return own(*given)
    nvidia.make_launcher = make_launcher
triton.testing.do_bench = lambda fn, **given: [fn() or 1.0] * 3
folder = fresh()
with silo.accelerate():
    triton.autotune(CONFIGS, key=["n"])(doubled)[(1,)](x, z, 100)
if hasattr(nvidia, "make_launcher"):
    assert built[0] == "silo-launcher" and set(built[1:]) == {"MainThread"}, built
    assert len([*Path(folder).glob("*/__triton_launcher*")]) == 1
else:
    assert not built and not [*Path(folder).glob("*/__triton_launcher*")]
"""
    )


def test_measurements_in_another_order_decide_alike():
    run(
        """
import triton.testing
calls = []
def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    fn()
    last = S.last("doubled")
    calls.append((last.grid[0], last.block[0]))
    return [last.grid[0] + abs(last.block[0] - 128) / 100.0] * 3
triton.testing.do_bench = do_bench
def call(t):
    fresh()
    calls.clear()
    t[lambda given: (triton.cdiv(512, given["BLOCK"]),)](x, z, 100)
    return str(t.best_config), [(str(config), times) for config, times in t.configs_timings.items()]
make = lambda: triton.autotune(CONFIGS, key=["n"])(doubled)
expected, plain = call(make()), [*calls]
forget(t)
with silo.accelerate():
    assert call(make()) == expected
    assert sorted(calls) == sorted(plain)
    assert counts().sent + counts().stolen > 0, counts()
"""
    )


def test_the_cache_holds_the_same_bytes_and_nothing_stays_behind():
    run(
        """
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
before = dict(vars(Autotuner)), dict(vars(JITFunction))
expected = plain(call, t)
folder = fresh()
with silo.accelerate():
    call()
    found = counts()
    # One front end for the configs that differ in warps alone; each of the six goes to a worker or is Triton's.
    assert (found.asked, found.front_ends, found.sent, found.failed) == (6, 2, 6, 0), found
    assert found.kept + found.stolen == 6 and found.kept >= 3, found
    pids = workers()
    assert all(os.getpriority(os.PRIO_PROCESS, one) > os.getpriority(os.PRIO_PROCESS, 0) for one in pids)
    assert not any("libtorch" in Path(f"/proc/{one}/maps").read_text() for one in pids)
    assert not jobs()
assert files(folder) == expected and len(expected) >= 6 * 8
assert (dict(vars(Autotuner)), dict(vars(JITFunction))) == before
"""
    )


def test_a_front_end_that_reads_an_option_is_run_for_each_of_its_values():
    run(
        """
import triton.language.extra.cuda as cuda
@triton.jit
def warps(a, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n) * cuda.num_warps(), mask=i < n)
t = tuned(warps)
expected = plain(call, t)
folder = fresh()
with silo.accelerate():
    call()
    assert (counts().asked, counts().front_ends, counts().failed) == (6, 6, 0), counts()
assert files(folder) == expected
"""
    )


@pytest.mark.all
def test_heuristics_and_prune_functions_and_hooks_of_configs():
    run(
        """
hooked, pruned = [], []
configs = [triton.Config({"BLOCK": b}, num_warps=w, pre_hook=lambda given: hooked.append(given["BLOCK"]))
           for b in (128, 256) for w in (2, 4)]
def prune(configs, given, **more):
    pruned.append(given["n"])
    return configs[1:]
@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def even(a, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=(i < n) | EVEN), mask=i < n)
t = tuned(even, configs, prune_configs_by={"early_config_prune": prune})
call = lambda n=256: t[(1,)](x, z, n)
expected = plain(call, t)
seen = list(hooked), list(pruned)
hooked.clear(), pruned.clear()
folder = fresh()
with silo.accelerate():
    call()
    assert (counts().asked, counts().sent, counts().failed) == (3, 3, 0), counts()
assert (hooked, pruned) == seen, (hooked, pruned, seen)
assert files(folder) == expected
"""
    )


def test_hooks_of_the_program_are_called_as_by_triton_alone():
    run(
        """
from triton import knobs
def during(put, take):
    log = []
    put(log)
    try:
        fresh()
        call()
        own, log[:] = list(log), []
        forget(t)
        fresh()
        with silo.accelerate():
            call()
            assert counts().asked == 0, counts()
        forget(t)
        assert log == own and own, (log, own)
    finally:
        take()
f = t.fn
hook = lambda log: f.add_pre_run_hook(lambda *a, **k: log.append(k["BLOCK"]))
during(hook, f.pre_run_hooks.clear)
def jit(name):
    def put(log):
        setattr(knobs.runtime, name, lambda **given: log.append(given["compile"]["num_warps"]) and False)
    return put, lambda: setattr(knobs.runtime, name, None)
during(*jit("jit_cache_hook"))
during(*jit("jit_post_compile_hook"))
def listen(log):
    knobs.compilation.listener = lambda **given: log.append(given["cache_hit"])
during(listen, lambda: setattr(knobs.compilation, "listener", None))
"""
    )


def test_settings_under_which_each_config_compiles_in_its_turn():
    run(
        """
from triton import knobs
from silo.kinds.triton.front.adapter import reason_to_compile_in_turn
why = lambda: reason_to_compile_in_turn(t, lambda layer: True)
assert why() == ""
for name in ("override", "dump_ir", "always_compile", "store_binary_only"):
    with knobs.compilation.scope():
        setattr(knobs.compilation, name, True)
        assert name in why(), why()
with knobs.compilation.scope():
    knobs.compilation.use_ir_loc = "ttir"
    assert "use_ir_loc" in why(), why()
with knobs.nvidia.scope():
    knobs.propagate_env = False
    knobs.nvidia.dump_nvptx = True  # a worker would not know
    knobs.propagate_env = True
    assert "nvidia.dump_nvptx" in why(), why()
with knobs.nvidia.scope():
    knobs.nvidia.disable_ptxas_opt = True  # a worker is told by the variable
    assert why() == "", why()
os.environ["TRITON_AUTOTUNING_COMPILE_WORKERS"] = "4"
assert "in parallel itself" in why(), why()
del os.environ["TRITON_AUTOTUNING_COMPILE_WORKERS"]
assert "has replaced how its kernel" in reason_to_compile_in_turn(t, lambda layer: False)
assert why() == ""
"""
    )


def test_it_is_off_by_a_setting():
    run(
        """
with silo.accelerate():
    call()
    assert len(measured) == 6 and ahead() is None and _SWITCH._searches is not None
""",
        SILO_COMPILE_AHEAD="0",
    )


def test_errors_that_a_tuner_tolerates_and_errors_that_it_does_not():
    said = run(
        """
@triton.jit
def asserts(a, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 256)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n), mask=i < n)
@triton.jit
def broken(a, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, no_such_name, mask=i < n)
def outcome(function):
    global t
    t = tuned(function)
    measured.clear()
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error).partition("program.py")[2]
    finally:
        forget(t)
    return [one[0] for one in t.configs_timings.values()]
own = [outcome(asserts), outcome(broken)]
fresh()
with silo.accelerate():
    assert [outcome(asserts), outcome(broken)] == own, own
    assert counts().failed == 0 and counts().sent == 3 and not jobs(), counts()
assert own[0][3:] == [float("inf")] * 3 and own[0][0] == 1.0 and own[1][0] == "CompilationError", own
import gc
gc.unfreeze()  # the objects of the process that this one was forked from are collected at its end, too
"""
    )
    assert "leaked" not in said  # nanobind reports objects that a kept traceback holds


def test_a_compile_that_fails_in_a_worker_fails_in_triton_too():
    """The stages of a worker are Triton's own: what they refuse is left to Triton, which refuses it itself."""
    run(
        """
configs = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 128, "ptx_options": "--no-such-option"})]
def outcome():
    global t
    t = tuned(doubled, configs)
    measured.clear()
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return [one[0] for one in t.configs_timings.values()]
own = outcome()
assert own == [1.0, float("inf")], own
forget(t)
fresh()
with silo.accelerate():
    assert outcome() == own
    assert counts().failed == 1 and not jobs(), counts()
"""
    )


@pytest.mark.all
def test_what_the_front_end_and_the_compiler_print_is_printed_as_by_triton_alone():
    run(
        """
import io
@triton.jit
def prints(a, out, n, BLOCK: tl.constexpr):
    tl.static_print("block", BLOCK)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n), mask=i < n)
def printed(function):
    global t
    t = tuned(function)
    fresh()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        call()
    forget(t)
    return [line for line in out.getvalue().splitlines() if line.startswith(("block", "Autotuning")) or "Used" in line]
own = printed(prints)
with silo.accelerate():
    assert printed(prints) == own and own.count("block 128") == 3, own
    assert counts().asked == 0
os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
own = printed(doubled)
with silo.accelerate():
    assert printed(doubled) == own, own
    assert counts().sent == 6 and counts().kept == 0, counts()
del os.environ["TRITON_DUMP_PTXAS_LOG"]
os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
own = printed(doubled)
with silo.accelerate():
    now = printed(doubled)
    assert [line.partition("finished")[0] for line in now] == [line.partition("finished")[0] for line in own] and own
"""
    )


@pytest.mark.all
def test_a_variable_that_is_set_after_the_workers_have_started():
    run(
        """
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
expected = plain(call, t)
del os.environ["TRITON_DISABLE_LINE_INFO"]
with silo.accelerate():
    fresh()
    call()
    forget(t)
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    folder = fresh()
    call()
    assert counts().failed == 0 and counts().kept >= 8, counts()
found = files(folder)
differ = [name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)]
assert not differ and found, (differ[:5], found.get(differ[0], b"")[-900:], expected.get(differ[0], b"")[-900:])
"""
    )


def test_a_hit_of_tritons_own_cache_of_decisions_starts_nothing():
    run(
        """
t = tuned(doubled, cache_results=True)
call()
t.cache.clear()
with silo.accelerate():
    call()
    assert counts().asked == 0 and len(measured) == 6
""",
        SILO_KEEP_DECISIONS="0",
    )


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("raise RuntimeError('no more')", marks=pytest.mark.all),
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    ],
    ids=["error", "interrupt"],
)
def test_a_tuner_that_stops_early_leaves_no_work_behind(how):
    run(
        f"""
stopping = [True]
def bench(call, quantiles):
    call()
    measured.append(1)
    if stopping and len(measured) == 2:
        {how}
    return [len(measured) * 1.0] * 3
many = [triton.Config({{"BLOCK": b}}, num_warps=w) for b in (64, 128, 256, 512) for w in (1, 2, 4, 8)]
t = tuned(doubled, many)
expected = None
with silo.accelerate():
    fresh()
    try:
        call()
    except (RuntimeError, KeyboardInterrupt) as error:
        expected = error
    assert expected is not None and not jobs()
    assert counts().sent == 16
    done = counts().kept + counts().stolen
    time.sleep(3)
    assert counts().kept + counts().stolen <= done + 2 < 16, counts()  # what two workers were at
    stopping.clear()
    measured.clear()
    call()
    assert len(measured) == 16 and counts().failed == 0
"""
    )


@pytest.mark.all
def test_ranks_share_the_cache_and_begin_elsewhere():
    run(
        """
import subprocess, sys
if len(sys.argv) > 1:
    with silo.accelerate():
        while len(list(Path(sys.argv[1]).iterdir())) < 2:
            Path(sys.argv[1], os.environ["LOCAL_RANK"]).touch()
            time.sleep(0.01)
        call()
        print(counts().kept, counts().stolen, counts().failed)
else:
    expected = plain(call, t)
    folder, meeting = fresh(), tempfile.mkdtemp()
    ranks = [subprocess.Popen([sys.executable, __file__, meeting], stdout=subprocess.PIPE, text=True,
             env={**os.environ, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}) for rank in range(2)]
    said = [list(map(int, one.communicate()[0].split())) for one in ranks]
    assert [one.returncode for one in ranks] == [0, 0] and [failed for _, _, failed in said] == [0, 0], said
    found = files(folder)
    assert found == expected, [one for one in found.keys() | expected.keys() if found.get(one) != expected.get(one)]
""",
        SILO_KEEP_DECISIONS="0",
    )


def test_a_disk_that_is_full():
    said = run(
        """
import triton.runtime.cache as cache
put = cache.FileCacheManager.put
def full(self, data, filename, binary=True):
    if threading.current_thread() is not threading.main_thread():
        raise OSError(28, "No space left on device")
    return put(self, data, filename, binary)
cache.FileCacheManager.put = full
with silo.accelerate():
    call()
    assert len(measured) == 6 and counts().kept == 0 and counts().failed >= 3, counts()
    call(101)  # enough faults: Triton compiles alone
    assert counts().asked == 6 and len(measured) == 12
"""
    )
    assert said.count("No space left on device") == 2  # the first fault, and the one that ends it
    assert "from now on Triton compiles all of them" in said


def test_workers_that_are_killed():
    said = run(
        """
def murder():
    while not done:
        for one in workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.01)
done = []
with silo.accelerate():
    thread = threading.Thread(target=murder)
    thread.start()
    call()
    done.append(1)
    thread.join()
    assert len(measured) == 6 and counts().failed >= 1, counts()
"""
    )
    assert said.count("was not compiled ahead of its tuner") in (1, 2)


def test_a_worker_that_hangs_is_ended_and_the_config_is_left_to_triton():
    said = run(
        """
from silo.compile.worker_process import WorkerProcess
own_write, stopped = WorkerProcess._write, []
def write(self, data, deadline):
    own_write(self, data, deadline)
    if not stopped:  # the worker is ready, and has its first job
        stopped.append(self._process.pid)
        os.kill(stopped[0], signal.SIGSTOP)
WorkerProcess._write = write
with silo.accelerate():
    call()
    assert len(measured) == 6 and counts().failed >= 1, counts()
    assert stopped and stopped[0] not in workers()
""",
        SILO_COMPILE_TIMEOUT="2",
    )
    assert "took more than 2 s and was stopped" in said
    assert said.count("so Triton compiles it in its turn") in (1, 2)  # the first fault; the third, after which it ends


def test_a_program_that_replaces_methods_of_the_tuner_or_of_launches():
    run(
        """
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
own = Autotuner._bench
benched = []
def mine(self, *args, config, **meta):
    benched.append(config)
    return own(self, *args, config=config, **meta)
Autotuner._bench = mine
with silo.accelerate():
    call()
    assert len(benched) == 6 and Autotuner._bench is mine and counts().asked == 0
assert Autotuner._bench is mine
Autotuner._bench = own
forget(t)
fresh()
with silo.accelerate():
    run = JITFunction.run
    warm = []
    def replaced(self, *args, warmup, **keywords):
        warm.append(warmup)
        return run(self, *args, warmup=warmup, **keywords)
    JITFunction.run = replaced
    call()
    assert not any(warm) and counts().asked == 0
    JITFunction.run = run
""",
        SILO_KEEP_DECISIONS="0",
    )


def test_a_fork_in_the_middle():
    run(
        """
children = []
def bench(call, quantiles):
    call()
    measured.append(1)
    if len(measured) == 1:
        children.append(os.fork())
        if not children[0]:  # a child that compiles what a worker of its parent's is at
            assert not jobs()
            doubled.warmup(x, z, 100, BLOCK=256, num_warps=8, grid=(1,))
            os._exit(7)
    return [len(measured) * 1.0] * 3
t = tuned(doubled)
with silo.accelerate():
    call()
    assert len(measured) == 6 and counts().failed == 0
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
"""
    )


def test_progress_is_logged():
    said = run(
        """
def bench(call, quantiles):
    call()
    time.sleep(0.3)
    measured.append(1)
    return [len(measured) * 1.0] * 3
t = tuned(doubled)
with silo.accelerate():
    call()
""",
        SILO_LOG="info",
    )
    lines = [line for line in said.splitlines() if "tuning doubled: " in line]
    assert len(lines) == 1
    assert " of 6 configs, 1 kernel so far, " in lines[0]
    assert lines[0].endswith(" s")
