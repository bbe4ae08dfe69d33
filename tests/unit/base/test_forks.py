"""Locks that a child made by fork can use, whoever held them."""
# pyright: reportCallIssue=false

import fcntl
import gc
import importlib
import os
import signal
import sys
import threading
import time
import weakref
from types import ModuleType
from typing import Any

import pytest

import forked
import silo
from silo import forks
from silo.forks import Condition, Mutex, in_child, renew_properties_of
from silo.launch import hooks
from silo.store.privacy import file_lock


class Holder:
    """Another thread that is inside of something."""

    def __init__(self, inside):
        self._inside, self._in, self._out = inside, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._body)

    def _body(self):
        with self._inside:
            self._in.set()
            self._out.wait()

    def __enter__(self):
        self._thread.start()
        self._in.wait()

    def __exit__(self, *_):
        self._out.set()
        self._thread.join()


def test_a_lock_that_another_thread_holds_is_free_in_the_child():
    undone = []
    lock = Mutex(lost=lambda: undone.append(1))

    def work():
        assert undone == [1]
        for _ in range(2):
            with lock:
                pass

    with Holder(lock):
        forked.run(work)
    assert undone == []
    with lock:
        pass


def test_a_lock_that_the_forking_thread_holds_is_still_its():
    lock = Mutex(lost=lambda: pytest.fail("it was not lost"))
    taken = []

    def work():
        other = threading.Thread(target=lambda: (lock.__enter__(), taken.append(1), lock.__exit__()))
        other.start()
        time.sleep(0.05)
        assert taken == []
        lock.__exit__()
        other.join()
        assert taken == [1]

    with lock:
        forked.run(work)


def test_a_lock_is_left_as_often_as_it_was_taken():
    lock = Mutex()

    def leave_twice():
        lock.__exit__()
        lock.__exit__()
        with Holder(lock):
            pass

    with lock, lock:
        forked.run(leave_twice)
    with Holder(lock):
        pass


def test_an_interrupt_leaves_no_lock_behind():
    """Ctrl-C raises between any two steps of Python, so taking and leaving a lock must be one step each."""

    class StopError(Exception):
        pass

    def interrupt(*_):
        raise StopError

    lock = Mutex()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(100):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                while True:
                    with lock:
                        pass
            except StopError:
                pass
            with Holder(lock):  # another thread gets it
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_handlers_run_in_the_child_and_keep_nothing_alive():
    class Owner:
        calls = 0

        def forked(self):
            self.calls += 1

    owner = Owner()
    in_child(owner.forked)

    def count(owner=owner):
        assert owner.calls == 1

    forked.run(count)
    del count
    assert owner.calls == 0
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    forked.run(lambda: None)


def test_a_child_lets_go_of_file_locks_of_other_threads(tmp_path):
    """A lock goes with the open file, which the child shares: it would last as long as the child."""
    path = tmp_path / "file"
    path.touch()
    descriptor = os.open(path, os.O_RDWR)
    go, done = os.pipe()

    def work():
        os.close(done)
        os.read(go, 1)

    with Holder(file_lock(descriptor, "f", exclusive=True)):
        child = os.fork()
        if child == 0:
            work()
            os._exit(0)
        os.close(go)
        # As where the holder is killed: its descriptor closes without a word.
        os.dup2(os.open(os.devnull, os.O_RDONLY), descriptor)
        other = os.open(path, os.O_RDWR)
        try:
            until = time.monotonic() + 60
            while True:
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    assert time.monotonic() < until, "the child holds the lock"
                    time.sleep(0.01)
        finally:
            os.close(done)
            os.waitpid(child, 0)
            os.close(other)
            os.dup2(os.open(path, os.O_RDWR), descriptor)
    os.close(descriptor)


def test_hooks_that_another_thread_suspended_are_back_in_the_child():
    def expect(suspended):
        assert bool(hooks._suspended) is suspended

    with Holder(hooks.without_hooks()):
        forked.run(lambda: expect(False))
    with hooks.without_hooks():
        forked.run(lambda: expect(True))


def test_what_another_thread_was_importing_is_imported_anew_in_the_child(tmp_path, monkeypatch):
    (tmp_path / "imported_slowly.py").write_text("import import_of_another\nwhole = True\n")
    slow = "import import_gate\nimport_gate.begun.set()\nimport_gate.go.wait()\n"
    (tmp_path / "import_of_another.py").write_text(slow)
    gate: Any = ModuleType("import_gate")
    gate.begun, gate.go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "import_gate", gate)
    monkeypatch.setattr(silo, "__path__", [*silo.__path__, str(tmp_path)])
    monkeypatch.syspath_prepend(tmp_path)

    def work():
        gate.go = threading.Event()
        gate.go.set()
        assert importlib.import_module("silo.imported_slowly").whole
        assert importlib.import_module("silo.forks").Mutex is Mutex  # what is whole stays

    thread = threading.Thread(target=importlib.import_module, args=("silo.imported_slowly",))
    thread.start()
    try:
        gate.begun.wait()
        forked.run(work)
    finally:
        gate.go.set()
        thread.join()
    assert sys.modules["silo.imported_slowly"].whole
    for name in ("silo.imported_slowly", "import_of_another"):
        del sys.modules[name]


def test_what_the_forking_thread_imports_goes_on_in_the_child(tmp_path, monkeypatch):
    (tmp_path / "forks_meanwhile.py").write_text("import forked\nimport os\nchild = os.fork()\nwhole = True\n")
    monkeypatch.setattr(silo, "__path__", [*silo.__path__, str(tmp_path)])
    made: Any = importlib.import_module("silo.forks_meanwhile")
    if made.child == 0:
        os._exit(0 if importlib.import_module("silo.forks_meanwhile") is made and made.whole else 1)
    forked.wait(made.child)
    del sys.modules["silo.forks_meanwhile"]


def test_a_module_of_another_library_that_another_thread_was_importing_is_imported_anew(tmp_path, monkeypatch):
    """Calls import modules that are not Silo's; the thread that was at one holds that module's lock alone."""
    slow = "import import_gate\nimport_gate.begun.set()\nimport_gate.go.wait()\nwhole = True\n"
    (tmp_path / "strangers_slow_module.py").write_text(slow)
    gate: Any = ModuleType("import_gate")
    gate.begun, gate.go = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "import_gate", gate)
    monkeypatch.syspath_prepend(tmp_path)

    def work():
        gate.go = threading.Event()
        gate.go.set()
        assert importlib.import_module("strangers_slow_module").whole

    thread = threading.Thread(target=importlib.import_module, args=("strangers_slow_module",))
    thread.start()
    try:
        gate.begun.wait()
        forked.run(work)
    finally:
        gate.go.set()
        thread.join()
    assert sys.modules.pop("strangers_slow_module").whole


def test_a_condition_that_another_thread_holds_or_waits_for_is_free_in_the_child():
    changed = Condition()
    go = []

    def work():
        def wait():
            with changed:
                changed.notify()  # a thread of the parent that waits must not take it
                assert changed.wait_for(lambda: go, 20)

        thread = threading.Thread(target=wait)
        with changed:
            pass
        thread.start()
        while True:
            with changed:
                if vars(changed)["_waiters"]:
                    go.append(1)
                    changed.notify()
                    break
        thread.join(20)
        assert not thread.is_alive()

    def wait_for_go():
        with changed:
            changed.wait_for(lambda: go)

    waiting = threading.Thread(target=wait_for_go)
    waiting.start()
    while not vars(changed)["_waiters"]:
        time.sleep(0.001)
    with Holder(changed):
        forked.run(work)
    with changed:
        go.append(1)
        changed.notify_all()
    waiting.join()


def test_handlers_that_many_threads_register_are_all_kept():
    class Owner:
        called = 0

        def forked(self):
            self.called += 1

    owners = [Owner() for _ in range(400)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda own=own: [in_child(one.forked) for one in own])
            for own in (owners[:100], owners[100:200], owners[200:300], owners[300:])
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(before)

    def work():
        assert [one.called for one in owners] == [1] * len(owners)

    forked.run(work)


def test_the_lock_of_temporary_files_is_free_in_the_child():
    import tempfile

    with Holder(tempfile._once_lock):  # pyright: ignore[reportAttributeAccessIssue]

        def work():
            tempfile.tempdir = None  # look for the folder again, with the lock
            assert tempfile.gettempdir()

        forked.run(work)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cached properties have no locks")
def test_cached_properties_of_packages_that_run_within_calls_are_free_in_the_child(monkeypatch):
    from functools import cached_property

    class Owner:
        @cached_property
        def slow(self):
            return 3

    library: Any = ModuleType("library_of_a_kernel.part")
    Owner.__module__ = library.__name__
    library.Owner = Owner
    monkeypatch.setitem(sys.modules, library.__name__, library)
    monkeypatch.setattr("silo.forks._packages", {"silo"})
    renew_properties_of("library_of_a_kernel")

    def work():
        assert Owner().slow == 3

    with Holder(Owner.__dict__["slow"].lock):
        forked.run(work)


def test_a_hash_that_another_thread_was_computing_is_computed_anew_in_the_child():
    """Triton's placeholder of a hash is a name alone, and would stand for any text of that name."""
    jit = pytest.importorskip("triton.runtime.jit")
    from silo.kinds.triton.front.adapter import triton_toolchain as toolchain

    function: Any = jit.JITFunction.__new__(jit.JITFunction)
    if not hasattr(jit, "JITCallable"):
        pytest.skip("this Triton's functions have no locks")
    function._hash_lock, function.hash = threading.RLock(), "recursion:f"

    def work():
        assert function.hash is None
        with function._hash_lock:
            pass

    with Holder(toolchain._driver_lock), Holder(function._hash_lock):
        forked.run(work)
    assert function.hash == "recursion:f"


def test_a_fork_waits_for_native_code_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_MOST_WAITED_S", 60.0)  # a busy machine lets the thread sleep longer than it asks
    # The kind of fault: a library's own lock, which no child renews, is held by a thread that the child does not have.
    lock = forks.waits_for(forks.Mutex())
    held, ended = threading.Event(), threading.Event()

    def compile_something() -> None:
        with lock:
            held.set()
            time.sleep(0.3)
            ended.set()

    thread = threading.Thread(target=compile_something)
    thread.start()
    held.wait()

    def child() -> None:
        assert ended.is_set()  # the fork came after the thread had left
        with lock:
            pass

    forked.run(child)
    thread.join()
    with lock:
        pass


def test_a_fork_waits_a_second_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_MOST_WAITED_S", 0.05)
    lost: list[int] = []
    lock = forks.waits_for(forks.Mutex(lost=lambda: lost.append(1)))
    with Holder(lock):

        def child() -> None:
            with lock:
                assert lost == [1]

        forked.run(child)
    assert lost == []
