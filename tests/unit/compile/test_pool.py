import json
import os
import threading

import pytest

from silo.compile.pool import WorkerPool
from silo.compile.toolchain import InProcess, Toolchain
from silo.compile.wire import decode_outcome, encode, encode_compiled, encode_error, read_message
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.variant import Compiled, CompiledBlob, CompileJob
from silo.errors import CompileError, SiloError, UnsupportedError

PLUGINS = {"fake": "fake_backend.declaration:FAKE"}


def job(**values):
    parameters = {"values": values, "options": {}, "specialization": {}, "layout": ["x"]}
    return CompileJob("fake", "kernel", Target.parse("fake:one"), "text", parameters)


def reader(data):
    at = 0

    def take(count):
        nonlocal at
        part = data[at : at + count]
        if len(part) < count:
            raise EOFError
        at += count
        return part

    return take


def framed(header):
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "big") + text


pytestmark = pytest.mark.usefixtures("samples_in_processes")


@pytest.fixture(scope="module")
def pool(samples_in_processes):
    with WorkerPool(workers=2, timeout_s=60, plugins=PLUGINS) as made:
        yield made


def test_outcomes_are_the_same_as_in_process(pool):
    with InProcess(Toolchain(PLUGINS)) as here:
        for made in (job(), job(REGISTERS=9)):
            assert pool.submit(made).result() == here.submit(made).result()


def test_map_keeps_the_order(pool):
    jobs = [job(REGISTERS=count, SLEEP_MS=50 - 10 * count) for count in range(5)]
    assert [compiled.launch.registers for compiled in pool.map(jobs)] == list(range(5))


def test_errors_keep_their_class(pool):
    with pytest.raises(CompileError, match=r"^as told$"):
        pool.submit(job(RAISE="as told")).result()


def test_a_bug_of_a_plugin_names_the_plugin_and_the_place(pool):
    with pytest.raises(CompileError, match=r"plug-in fake failed on kernel for fake:one: RuntimeError: oh.*_behave"):
        pool.submit(job(BUG="oh")).result()


def test_what_a_compiler_prints_does_not_disturb_the_messages(pool):
    assert pool.submit(job(NOISE=200_000)).result().blob.kind == "fake"


def test_what_a_compiler_complains_of_is_part_of_its_error(pool):
    for _ in range(2):
        with pytest.raises(CompileError, match=r"^as told\nkernel.ttir:1:2: error: noise to be heard$"):
            pool.submit(job(RAISE="as told", NOISE=10)).result()
        with pytest.raises(CompileError, match=r"^as told$"):
            pool.submit(job(RAISE="as told")).result()


def test_an_unknown_compiler_is_an_error_that_lists_the_known(pool):
    with pytest.raises(CompileError, match=r"called nobody; installed: .*fake"):
        pool.submit(CompileJob("nobody", "kernel", Target.parse("fake:one"), "", {})).result()


def test_equal_jobs_in_flight_are_compiled_once(pool):
    first, second = (pool.submit(job(SLEEP_MS=300, REGISTERS=77)) for _ in range(2))
    assert first is not second
    assert first.result() is second.result()
    assert pool.submit(job(SLEEP_MS=300, REGISTERS=77)).result() is not first.result()


def test_a_cancelled_waiter_does_not_cancel_the_other():
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS) as pool:
        pool.submit(job(SLEEP_MS=200))
        queued = [pool.submit(job(REGISTERS=5)) for _ in range(2)]
        assert queued[0].cancel()
        assert queued[1].result().launch.registers == 5
        assert queued[0].cancelled()


def test_a_job_that_everybody_cancelled_is_not_compiled():
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS) as pool:
        pool.submit(job(SLEEP_MS=200))
        assert pool.submit(job(HANG=1)).cancel()
        assert pool.submit(job(REGISTERS=6)).result().launch.registers == 6


def test_workers_start_with_the_first_job():
    before = threading.active_count()
    with WorkerPool(workers=2, plugins=PLUGINS) as pool:
        assert threading.active_count() == before
        pool.submit(job()).result()
        assert threading.active_count() == before + 1


def test_workers_start_and_warm_up_for_jobs_that_are_announced():
    before = threading.active_count()
    with WorkerPool(workers=2, plugins=PLUGINS) as pool:
        with pytest.raises(CompileError, match="nobody asked"):
            pool.submit(job(WARM=1)).result()
        pool.warm(5, "fake")
        assert threading.active_count() == before + 2
        pool.warm(5, "fake")
        assert threading.active_count() == before + 2
    with WorkerPool(workers=2, plugins=PLUGINS) as pool:
        pool.warm(2, "fake")
        list(pool.map([job(WARM=1, SLEEP_MS=200, REGISTERS=count) for count in range(4)]))
        pool.close()
        pool.warm(2, "fake")
        assert len(pool._threads) == 2


def test_workers_give_way_to_the_process_that_lowers(pool):
    pool.submit(job()).result()
    (worker, *_) = pool._processes
    assert os.getpriority(os.PRIO_PROCESS, worker._process.pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_what_cannot_be_warmed_up_is_said_by_the_job():
    with WorkerPool(workers=1, plugins=PLUGINS) as pool:
        pool.warm(1, "none")
        assert pool.submit(job()).result().launch.registers == 16
        with pytest.raises(CompileError, match="nobody asked"):
            pool.submit(job(WARM=1)).result()


def test_a_closed_pool_refuses():
    pool = WorkerPool(workers=1, plugins=PLUGINS)
    pool.close()
    with pytest.raises(CompileError, match="closed"):
        pool.submit(job())
    pool.close()


def test_in_process_failures_come_through_the_future():
    here = InProcess(Toolchain(PLUGINS))
    future = here.submit(job(BUG="oh"))
    with pytest.raises(CompileError, match="plug-in fake failed"):
        future.result()
    assert list(here.map([job()])) == [here.submit(job()).result()]
    here.close()
    with pytest.raises(CompileError, match="closed"):
        here.submit(job())


def test_messages_round_trip():
    launch = LaunchInfo("kernel", (LayoutSlot("x", AbiType.POINTER),), cluster=(2, 1, 1))
    compiled = Compiled(launch, CompiledBlob("cubin", b"\0\1"), (CompiledBlob("ptx", b""),), "log ü")
    assert decode_outcome(read_message(reader(encode_compiled(compiled)))) == compiled
    error = decode_outcome(read_message(reader(encode_error(UnsupportedError("no such thing")))))
    assert type(error) is UnsupportedError
    assert str(error) == "no such thing"


@pytest.mark.parametrize("name", ["NotAnError", "annotations", "BundleFormatError"])
def test_an_error_that_cannot_be_rebuilt_keeps_its_text(name):
    error = decode_outcome(({"outcome": "error", "class": name, "message": "text", "sizes": []}, ()))
    assert type(error) is CompileError
    assert str(error) == f"{name}: text"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\1x",
        b"\0\0\0\x02{}",
        b"\0\0\0\x02[]",
        encode({"x": 1})[:-1] + b"x",
        framed({"sizes": [-1]}),
        framed({"sizes": ["a"]}),
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(CompileError):
        read_message(reader(data))


@pytest.mark.parametrize(
    "header", [{}, {"outcome": "compiled"}, {"outcome": "compiled", "launch": {}, "kinds": ["a"], "log": ""}]
)
def test_what_is_no_outcome_is_an_error(header):
    assert isinstance(decode_outcome(({**header, "sizes": []}, ())), SiloError)


def test_workers_without_jobs_end_and_others_start_for_the_next_job():
    with WorkerPool(workers=1, timeout_s=60, plugins=PLUGINS, idle_s=0.05) as pool:
        first = pool.submit(job()).result()
        (thread,) = pool._threads
        thread.join(timeout=60)
        assert not thread.is_alive()
        assert not pool._threads
        assert not pool._processes
        assert pool.submit(job(REGISTERS=3)).result() != first
