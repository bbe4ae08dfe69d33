"""Locks between processes: every wait ends, names who is waited for, and no other user can be waited for.

The tests of waiting stand for every place that takes a lock; ``PLACES`` has a row for each of them.
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from silo.bundle.update import locked_bundle
from silo.calls.leader import _lease
from silo.errors import BundleError, LockError
from silo.forks import Notices
from silo.kinds.triton.programs.records.archive import Archive, TextNames
from silo.kinds.triton.programs.records.journal import Journal
from silo.measuring.lock_files import update_lock
from silo.settings import override
from silo.store.privacy import HeldLockError, file_lock, holder_of, lock_of_place
from silo.store.records import DiskRecords

HOLD = """
import sys, time
from pathlib import Path
{imports}
with {block}:
    print("held", flush=True)
    time.sleep(600)
"""

FLOCK = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def holding(text, path, **changes):
    """Another process that runs ``text`` with ``path``, which holds its lock when the block begins."""
    process = subprocess.Popen([sys.executable, "-c", text, str(path)], stdout=subprocess.PIPE, text=True, **changes)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)


@pytest.fixture
def lock_folder(tmp_path, monkeypatch):
    """Locks lie in a folder of the test's own, for processes that it starts too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "silo-locks"


def take_lock_of_place(path):
    with lock_of_place(path):
        pass


def update_a_lock_file(path):
    update_lock(path, [])


def take_bundle(path):
    with locked_bundle(path):
        pass


PLACES = {
    "a place": (take_lock_of_place, HeldLockError),
    "a lock file": (update_a_lock_file, LockError),
    "a bundle": (take_bundle, BundleError),
}
HOLD_PLACE = HOLD.format(
    imports="from silo.store.privacy import lock_of_place", block="lock_of_place(Path(sys.argv[1]))"
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", PLACES)
def test_a_wait_ends_and_names_the_process_that_is_waited_for(tmp_path, lock_folder, caplog, monkeypatch, name):
    take, error = PLACES[name]
    monkeypatch.setattr("silo.store.privacy._SILENT_S", 0.5)
    path = tmp_path / "K.silo"
    with holding(HOLD_PLACE, path) as process, override(lock_wait_s=1.5):
        begun = time.monotonic()
        with pytest.raises(error, match=rf"process {process.pid} .*SILO_LOCK_WAIT"):
            take(path)
        assert 1.5 <= time.monotonic() - begun < 20
        told = [record.getMessage() for record in caplog.records if "waiting" in record.getMessage()]
        assert len(told) == 1
        assert f"process {process.pid} ({sys.executable} -c" in told[0]
    take(path)  # a killed process leaves no lock
    assert list(lock_folder.iterdir()) == []


@pytest.mark.timeout(60)
def test_a_wait_for_a_journal_ends_and_names_the_process(tmp_path):
    journal = Journal(tmp_path / "K.silo.journal")
    with journal.locked():
        journal.append({"number": 1})
    with holding(FLOCK, journal.path) as process, override(lock_wait_s=0.3):
        with pytest.raises(BundleError, match=f"process {process.pid} "), journal.locked():
            pass
        with pytest.raises(BundleError, match=f"process {process.pid} "):
            journal.read(lambda record: None)


@pytest.mark.timeout(60)
def test_a_recording_waits_once_and_not_for_each_kernel(tmp_path):
    recording = Archive(tmp_path / "K.silo")
    entries = [TextNames(f"{number:064}", ()) for number in range(50)]
    with holding(FLOCK, recording.journal.path) as process, override(lock_wait_s=0.5):
        begun = time.monotonic()
        for entry in entries:
            with pytest.raises(BundleError, match=f"process {process.pid} "):
                recording.add(entry, {})
        assert time.monotonic() - begun < 15  # and not 25


@pytest.mark.timeout(60)
def test_the_leader_is_named_to_who_waits(tmp_path):
    lock = tmp_path / "silo.lock.json"
    text = HOLD.format(imports="from silo.calls.leader import _lease", block="_lease(Path(sys.argv[1]))")
    with holding(text, lock) as process, _lease(lock) as lease:
        assert not lease.held
        assert lease.leader().startswith(f"process {process.pid} ")
    with _lease(lock) as lease:
        assert lease.held
    assert (tmp_path / "silo.lock.json.lease").stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(60)
def test_a_lease_that_is_a_strangers_is_an_error(tmp_path):
    lock, own = tmp_path / "silo.lock.json", tmp_path / "own.conf"
    lease = tmp_path / "silo.lock.json.lease"
    own.write_text("secret=1")
    for make in (lambda: lease.symlink_to(own), lambda: lease.hardlink_to(own), lambda: os.mkfifo(lease)):
        make()
        with pytest.raises(LockError, match=r"silo\.lock\.json\.lease: it is"), _lease(lock):
            pass
        lease.unlink()
    assert own.read_text() == "secret=1"


@pytest.mark.timeout(60)
def test_a_store_goes_on_without_records_that_another_process_holds(tmp_path, caplog):
    tmp_path.chmod(0o700)
    records = DiskRecords(tmp_path, Notices())
    records.append("k", {"a": 1})
    with holding(FLOCK, tmp_path / "k.jsonl") as process, override(lock_wait_s=0.3):
        assert list(records.read("k")) == []
        assert f"process {process.pid} " in caplog.text
        with pytest.raises(HeldLockError, match=f"process {process.pid} "):
            records.append("k", {"a": 2})
    assert list(records.read("k")) == [{"a": 1}]


@pytest.mark.timeout(60)
def test_who_waits_gets_the_lock_when_its_holder_ends(tmp_path, lock_folder):
    path = tmp_path / "K.silo"
    with holding(HOLD_PLACE, path) as process:
        threading.Timer(0.5, process.send_signal, [signal.SIGTERM]).start()
        with override(lock_wait_s=50):
            take_lock_of_place(path)
        assert process.wait(20) == -signal.SIGTERM


@pytest.mark.timeout(60)
def test_a_lock_of_the_bundle_or_its_folder_by_anybody_is_not_waited_for(tmp_path, lock_folder):
    """Who may read a file may lock it: the lock that counts lies elsewhere."""
    path = tmp_path / "silo.lock.json"
    update_lock(path, [])
    path.chmod(0o644)
    with holding(FLOCK, path), holding(FLOCK, tmp_path), override(lock_wait_s=0.3):
        take_bundle(path)
        update_lock(path, [])


def test_updates_of_one_place_take_turns_however_they_name_it(tmp_path, lock_folder):
    count = tmp_path / "count"
    count.write_text("0")

    def add():
        for _ in range(20):
            with lock_of_place(count):
                count.write_text(str(int(count.read_text()) + 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read_text() == "80"
    assert list(lock_folder.iterdir()) == []


def test_locks_of_places_are_private_files(tmp_path, lock_folder):
    with lock_of_place(tmp_path / "K.silo"):
        (lock,) = lock_folder.iterdir()
        assert lock.stat().st_mode & 0o777 == 0o600
        assert lock_folder.stat().st_mode & 0o777 == 0o700
        assert lock.read_text().startswith(f"process {os.getpid()} on ")


def test_lock_files_of_killed_processes_are_removed_and_held_ones_stay(tmp_path, lock_folder):
    with holding(HOLD_PLACE, tmp_path / "a"), holding(HOLD_PLACE, tmp_path / "b") as killed:
        killed.kill()
        killed.wait()
        assert len(list(lock_folder.iterdir())) == 2
        for lock in lock_folder.iterdir():
            os.utime(lock, (0, 0))
        take_lock_of_place(tmp_path / "c")
        (left,) = lock_folder.iterdir()
        with override(lock_wait_s=0.2), pytest.raises(HeldLockError):
            take_lock_of_place(tmp_path / "a")
        assert left.exists()


def test_a_lock_folder_that_others_may_write_is_not_used(tmp_path, lock_folder):
    lock_folder.mkdir(parents=True)
    lock_folder.chmod(0o777)
    with lock_of_place(tmp_path / "K.silo"):
        assert list(lock_folder.iterdir()) == []


def test_the_holder_is_read_from_the_lock_file_where_the_system_shows_none(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    path.write_bytes(b"process 7 on far (python \x1b[2J train.py)")
    monkeypatch.setattr("silo.store.privacy._locking_process", lambda device, inode: None)
    with path.open("rb") as file:
        assert holder_of(file.fileno()) == "process 7 on far (python \\x1b[2J train.py)"
    path.write_bytes(b"")
    with path.open("rb") as file:
        assert "cannot be seen from here" in holder_of(file.fileno())


def test_a_child_that_leaves_the_block_unlocks_nothing_of_its_parent(tmp_path):
    path = tmp_path / "f"
    path.touch()
    descriptor = os.open(path, os.O_RDWR)
    other = os.open(path, os.O_RDWR)
    child = None
    try:
        with file_lock(descriptor, path, exclusive=True):
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
                with pytest.raises(BlockingIOError):
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if child == 0:
            os._exit(0)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        if child == 0:
            os._exit(1)
        os.close(descriptor)
        os.close(other)


def test_nothing_else_of_silo_takes_a_lock_without_a_limit():
    """A new flock in the sources goes through ``silo.store.privacy``, or does not wait."""
    root = Path(__file__).parents[3]
    sources = [*(root / "src" / "silo").rglob("*.py"), *(root / "native").rglob("*.[ch]")]
    assert len(sources) > 500
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sources
        for line in path.read_text(encoding="utf-8").splitlines()
        if ("flock(" in line or "lockf(" in line) and "LOCK_NB" not in line and "LOCK_UN" not in line
    ]
    assert found == []
