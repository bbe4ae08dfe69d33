import ctypes
import itertools
import os
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import launch_kernels as kernels
from silo.core.signature import Signature
from silo.errors import DeviceError, LaunchError
from silo.launch import native
from silo.launch.native import cpu_threads, threads
from silo.launch.runtime import make_launcher
from silo.settings import override


def launcher(entry, layout=((0, "ptr", True),), names=("out",), **options):
    asked = kernels.Asked(entry, layout, **options)
    return make_launcher(entry, kernels.any_parameters(*names), on_miss=asked)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("programs", [1, 2, 7, 64, 1000, 4097])
def test_every_program_runs_exactly_once(count, programs):
    launch = launcher("ids")
    with threads(count):
        for _ in range(3):
            out = np.full(programs + 1, -1, np.int64)
            launch[(programs,)](out)
            assert (out[:-1] == np.arange(programs)).all()
            assert out[-1] == -1


@pytest.mark.parametrize(("count", "chunk"), [(1, 0), (1, 1), (2, 1), (4, 1)])
def test_programs_are_handed_out_in_order(count, chunk):
    """Where they may wait for each other, and on one thread: those of a later chunk never start before, up to the
    threads in flight."""
    launch = launcher("order", chunk=chunk)
    with threads(count):
        out = np.zeros(1001, np.int64)
        launch[(1000,)](out)
    turns, calls = out[:1000], int(out[1000])
    assert sorted(set(turns)) == list(range(1, calls + 1))
    starts = [int(np.argmax(turns == turn)) for turn in range(1, calls + 1)]
    for turn, start in enumerate(starts):
        assert sum(later < start for later in starts[turn + 1 :]) < count
    if chunk == 0:
        sizes = np.bincount(turns)[1:]
        assert sizes[0] == 1, "what a program takes is not known beforehand"
        assert (sizes[1:] <= 8 * sizes[:-1]).all(), "a piece tells what the next one takes"


@pytest.mark.parametrize("pool", ["own", "openmp"])
def test_a_thread_has_the_same_programs_in_each_launch(pool):
    """Its CPU has their memory in its cache."""
    launch, out = launcher("threads"), np.zeros(32, np.uint64)
    with override(pool=pool), threads(4):
        kept = []
        for _ in range(16):
            launch[(32,)](out)
            kept.append(out.copy())
    cpu_threads()
    # A thread that the system does not run at that moment loses its programs to others; by chance 0.25 are the same.
    assert np.median([np.mean(before == after) for before, after in itertools.pairwise(kept[1:])]) > 0.6


def test_a_launch_uses_all_threads_and_no_more():
    launch = launcher("threads")
    with threads(3):
        out = np.zeros(24, np.uint64)
        launch[(24,)](out)
        assert 2 <= len(set(out)) <= 3
    with threads(1):
        out = np.zeros(4, np.uint64)
        launch[(4,)](out)
        assert len(set(out)) == 1


@pytest.mark.parametrize("pool", ["own", "openmp"])
def test_a_thread_is_told_whether_it_is_alone(pool):
    launch, out = launcher("alone"), np.zeros(24, np.uint64)
    with override(pool=pool):
        with threads(1):
            launch[(24,)](out)
            assert len(set(out)) == 1
            assert (out & 1 == 1).all()
        with threads(3):
            launch[(24,)](out)
            assert len(set(out)) >= 2
            assert (out & 1 == 0).all()
    waits, out = launcher("alone", chunk=1), np.zeros(4, np.uint64)  # others may come to such a launch at any time
    with threads(1):
        waits[(4,)](out)
    assert (out & 1 == 0).all()


def test_a_kernel_may_ask_for_fewer_threads_never_for_more():
    with threads(3):
        for asked, most in ((1, 1), (2, 2), (99, 3)):
            out = np.zeros(24, np.uint64)
            launcher("threads", threads=asked)[(24,)](out)
            assert 1 <= len(set(out)) <= most
            assert most == 1 or len(set(out)) > 1


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_a_kernel_may_say_how_many_programs_a_thread_takes_at_a_time_at_most(chunk):
    launch = launcher("order", chunk=chunk)
    with threads(2):
        out = np.zeros(101, np.int64)
        launch[(100,)](out)
    sizes = np.bincount(out[:100])[1:]
    assert sizes.sum() == 100
    assert sizes.max() <= chunk
    assert sizes.max() == chunk or chunk == 100


def test_launches_of_little_work_wake_nobody():
    """What waking threads takes is not counted as work, or small launches would be shared out for ever."""
    launch, out = launcher("ids"), np.zeros(101, np.int64)
    with threads(32):
        for _ in range(50):
            launch[(100,)](out)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        for _ in range(300):
            launch[(100,)](out)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before < 150


@pytest.mark.parametrize("spin", [0, 2000])
def test_idle_threads_take_no_time(spin):
    with override(spin=spin), threads(2):
        launcher("threads")[(4,)](np.zeros(4, np.uint64))
        time.sleep(0.01)
        before = time.process_time()
        time.sleep(0.1)
        assert time.process_time() - before < 0.05
    cpu_threads()


def test_threads_look_for_launches_where_these_come_in_time():
    """Where none does, another library's threads may have the CPUs; the first that does is noticed."""
    launch, out = launcher("threads"), np.zeros(100, np.uint64)
    with override(spin=100_000, pool="own"), threads(2):
        if native.cpu_state()["spin"] == 0:
            pytest.skip("one CPU, on which nobody spins")

        def looks_after(*pauses):
            for pause in pauses:
                time.sleep(pause)
                launch[(100,)](out)
            return native.cpu_state()["look"]

        # On a busy machine "at once" may be late: some attempt is in time.
        pauses = ((0, 0), (0.12, 0.12, 0.12), (0.12,), (0.12,), (0,))
        expected = [100_000, 100_000, 5, 5, 100_000]
        assert any([looks_after(*some) for some in pauses] == expected for _ in range(20))
    cpu_threads()
    assert native.cpu_state()["look"] == native.cpu_state()["spin"]


def within_a_parallel_region(asked):
    """What ``asked`` says on each thread of a team of two."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(line.split()[-1] for line in lines if "libgomp" in line))
    said = []
    body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: said.append(asked()))
    library.GOMP_parallel(body, None, 2, 0)
    return said


def test_launches_on_the_threads_of_torch_take_as_many_as_torch_may():
    """And a child made by fork, where the runtime's threads do not exist, has Silo's own."""
    torch = pytest.importorskip("torch", reason="torch brings the OpenMP runtime")
    if "libgomp" not in Path("/proc/self/maps").read_text():
        pytest.skip("this torch has another OpenMP runtime than libgomp")
    launch = launcher("threads")
    out = np.zeros(24, np.uint64)
    before = torch.get_num_threads()
    try:
        with override(pool="openmp"), threads(4):
            for count in (2, 1, 2):
                torch.set_num_threads(count)
                out[:] = 0
                launch[(24,)](out)
                assert len(set(out)) == count
                assert out.all()

            def threads_of_a_launch():
                own = np.zeros(4, np.uint64)
                launch[(4,)](own)
                return len(set(own))

            assert within_a_parallel_region(threads_of_a_launch) == [1, 1], (
                "a launch of one of a team's threads stays on it"
            )
            child = os.fork()
            if child == 0:
                out[:] = 0
                launch[(24,)](out)
                os._exit(0 if out.all() and len(set(out)) > 2 else 3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        torch.set_num_threads(before)
        cpu_threads()


@pytest.mark.parametrize("spin", [-1, 100_001])
def test_impossible_times_to_spin(spin):
    with pytest.raises(ValueError, match="0 to 100000 microseconds"):
        native.cpu_spin(spin)


@pytest.mark.parametrize("pool", ["own", "openmp"])
@pytest.mark.parametrize(("count", "programs", "work", "parts"), [
    (4, 1, 10**6, 4),  # nanoseconds of one program
    (4, 1, 0, 4),  # nobody says
    (4, 1, 1000, 1),  # too short
    (2, 1, 10**6, 2),
    (4, 3, 10**6, 1),  # two rounds of halves are as long
    (4, 5, 10**6, 2),  # three rounds of halves
    (4, 16, 10**6, 1),  # each thread has four
    (1, 1, 10**6, 1),
])  # fmt: skip
def test_few_long_programs_are_cut_into_parts(pool, count, programs, work, parts):
    launch = launcher("quarters", scratch_bytes=64, work=work)
    with override(pool=pool), threads(count):
        out = np.zeros(programs * 4 + 1, np.int64)
        launch[(programs,)](out)
    assert (out[:-1] == 1).all()
    assert out[-1] == parts


def test_scratch_is_aligned_and_private():
    for size in (8, 64, 100_000, 4096):
        launch = launcher("scratch_check", ((0, "i32", False),), names=("size",), scratch_bytes=size)
        for count in (1, 4):
            with threads(count):
                launch[(16,)](size)


def test_scratch_that_no_machine_has_is_an_error():
    launch = launcher("scratch_check", ((0, "i32", False),), names=("size",), scratch_bytes=1 << 62)
    for count in (1, 2):
        with threads(count), pytest.raises(LaunchError, match="no memory for the scratch"):
            launch[(4,)](8)


@pytest.mark.parametrize("count", [1, 4])
def test_an_error_of_one_program_ends_the_launch(count):
    launch = make_launcher("f", Signature(()), on_miss=kernels.Asked("fail_at_3"))
    with threads(count):
        for _ in range(20):
            with pytest.raises(LaunchError, match="code 7"):
                launch[(1000,)]()
            launch[(3,)]()


@pytest.mark.parametrize("count", [1, 4])
def test_a_kernel_says_what_went_wrong(count):
    launch = make_launcher("f", Signature(()), on_miss=kernels.Asked("fail_with_text"))
    silent = make_launcher("g", Signature(()), on_miss=kernels.Asked("fail_at_3"))
    with threads(count):
        for _ in range(5):
            with pytest.raises(LaunchError, match=r"^f: program 3 divides by zero \(code 7\) from 'fail_with_text'"):
                launch[(1000,)]()
            launch[(3,)]()
            with pytest.raises(LaunchError, match=r"^g: the kernel reported an error"):
                silent[(1000,)]()


def test_only_the_first_failure_of_a_launch_is_told():
    launch = make_launcher("f", Signature(()), on_miss=kernels.Asked("all_fail"))
    with threads(4):
        for _ in range(50):
            with pytest.raises(LaunchError) as raised:
                launch[(64,)]()
            text = str(raised.value).removeprefix("f: ").partition(" ")[0]
            assert len(text) == 1015
            assert len(set(text)) == 1


def test_threads_that_launch_at_once_get_their_own_text():
    texts = {}

    def body(entry):
        launch = make_launcher("f", Signature(()), on_miss=kernels.Asked(entry))
        for _ in range(100):
            with pytest.raises(LaunchError) as raised:
                launch[(4,)]()
            texts.setdefault(entry, set()).add(str(raised.value).partition(" from ")[0][:20])

    started = [threading.Thread(target=body, args=(entry,)) for entry in ("fail_with_text", "fail_at_3")]
    for one in started:
        one.start()
    for one in started:
        one.join()
    assert texts == {"fail_with_text": {"f: program 3 divides"}, "fail_at_3": {"f: the kernel report"}}


def test_launches_from_several_threads_at_once():
    launch = launcher("ids")
    wrong = []

    def body():
        for programs in (1, 5, 300, 2000):
            for _ in range(30):
                out = np.full(programs, -1, np.int64)
                launch[(programs,)](out)
                if not (out == np.arange(programs)).all():
                    wrong.append(programs)

    with threads(3):
        started = [threading.Thread(target=body) for _ in range(6)]
        for one in started:
            one.start()
        for one in started:
            one.join()
    assert wrong == []


def test_other_python_threads_run_during_a_launch():
    launch = launcher("threads")
    turns = []
    stop = threading.Event()

    def count():
        while not stop.is_set():
            turns.append(1)
            time.sleep(0.001)

    other = threading.Thread(target=count)
    with threads(1):
        other.start()

        def turns_during_a_launch():
            before = len(turns)
            launch[(20,)](np.zeros(20, np.uint64))
            return len(turns) - before

        # The launch takes 60 ms and a turn 1 ms; a busy machine may run neither for a while.
        seen = any(turns_during_a_launch() >= 2 for _ in range(50))
        stop.set()
        other.join()
    assert seen


def test_changing_the_number_of_threads_while_launching():
    launch = launcher("ids")
    stop = threading.Event()
    wrong = []

    def body():
        while not stop.is_set():
            out = np.full(500, -1, np.int64)
            launch[(500,)](out)
            if not (out == np.arange(500)).all():
                wrong.append(out)

    before = cpu_threads()
    worker = threading.Thread(target=body)
    worker.start()
    try:
        for count in (1, 4, 2, 8, 1, 3) * 5:
            assert native.cpu_threads(count) == count
    finally:
        stop.set()
        worker.join()
        native.cpu_threads(before)
    assert wrong == []


@pytest.mark.parametrize("count", [0, -1, 1025])
def test_impossible_thread_counts(count):
    with pytest.raises(ValueError, match="1 to 1024 threads"):
        native.cpu_threads(count)


def test_the_setting_counts_until_a_program_says_otherwise():
    before = cpu_threads()
    try:
        with override(threads=3):
            assert cpu_threads() == 3
            assert cpu_threads(2) == 2
            assert cpu_threads() == 2
            with threads(5):
                assert native.cpu_threads() == 5
            assert cpu_threads() == 2
    finally:
        native.cpu_threads(before)


def test_a_child_made_by_fork_has_a_pool_of_its_own():
    launch = launcher("ids")
    with threads(3):
        out = np.full(100, -1, np.int64)
        launch[(100,)](out)  # the parent's workers exist
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(20):
                    out[:] = -1
                    launch[(100,)](out)
                    if not (out == np.arange(100)).all():
                        os._exit(2)
                native.cpu_threads(2)
                launch[(100,)](out)
                code = 0
            finally:
                os._exit(code)
        for _ in range(20):
            out[:] = -1
            launch[(100,)](out)
            assert (out == np.arange(100)).all()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.01)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        assert os.waitstatus_to_exitcode(status) == 0


def test_forking_while_another_thread_launches():
    launch = launcher("threads")
    stop = threading.Event()

    def body():
        out = np.zeros(4, np.uint64)
        while not stop.is_set():
            launch[(4,)](out)

    other = threading.Thread(target=body)
    with threads(2):
        other.start()
        try:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    out = np.zeros(4, np.uint64)
                    launch[(4,)](out)
                    os._exit(0 if out.all() else 3)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            other.join()


# ---- loading ----


def test_objects_load_again_and_again_and_stay_apart():
    first, second = native.CpuModule(kernels.blob()), native.CpuModule(kernels.blob())
    assert native.LoadedKernel(first, "add").entry == native.LoadedKernel(second, "add").entry == "add"
    opened = Path("/proc/self/fd")
    descriptors = len(list(opened.iterdir())) if opened.is_dir() else 0
    for _ in range(50):
        native.LoadedKernel(native.CpuModule(kernels.blob()), "nothing")
    if descriptors:
        assert len(list(opened.iterdir())) <= descriptors


def test_different_objects_are_not_taken_for_one(tmp_path):
    """The dynamic loader compares names first, and a closed descriptor's number comes back."""
    import shutil
    import subprocess

    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    modules = []
    for value in range(1, 6):
        source = tmp_path / "k.c"
        source.write_text(f"int value(void *p) {{ (void)p; return {value}; }}\n")
        subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(tmp_path / "k.so")], check=True)
        modules.append(native.CpuModule((tmp_path / "k.so").read_bytes()))
    for value, module in enumerate(modules, 1):
        binding = native.Binding(native.LoadedKernel(module, "value"), (), {})
        launch = make_launcher("v", Signature(()), on_miss=lambda call, b=binding: b)
        with pytest.raises(LaunchError, match=f"code {value}"):
            launch[1]()


def test_a_private_folder_where_memory_files_are_not_wanted(tmp_path):
    module = native.CpuModule(kernels.blob(), str(tmp_path))
    assert native.LoadedKernel(module, "add").driver == "cpu"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DeviceError, match="cannot make a folder"):
        native.CpuModule(kernels.blob(), str(tmp_path / "absent"))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an object" * 100])
def test_what_is_no_object_is_refused(data, tmp_path):
    for directory in (None, str(tmp_path)):
        with pytest.raises(DeviceError, match="cannot load the CPU code"):
            native.CpuModule(data, directory)


def test_a_kernel_that_is_not_there():
    with pytest.raises(DeviceError, match="has no kernel 'missing'"):
        kernels.loaded("missing")


def test_a_module_is_made_of_bytes_or_of_an_address():
    for arguments in ({}, {"data": kernels.blob(), "address": 4096}):
        with pytest.raises(TypeError, match="bytes or of an address"):
            native.CpuModule(**arguments)
