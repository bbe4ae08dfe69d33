"""Another user of the machine beside this one: in one folder, in one journal, at the files of an agent, at every lock.

The other user is a child of the tests' process that has given up root, so these tests need root. What it does stands
for what any local user may do where a folder lets them.
"""

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bundle_samples import sample
from scale_file import write_scale
from silo.bundle.update import locked_bundle
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import Target
from silo.errors import BundleError, LockError, SiloError, StoreError
from silo.export.project import write_folder
from silo.kinds.triton.programs.records.archive import Archive, ForeignWinner
from silo.kinds.triton.programs.records.journal import journal_of
from silo.kinds.triton.programs.records.journal_folding import fold, open_folded
from silo.machine.user_files import write_texts
from silo.measuring.lock_files import update_lock
from silo.settings import override
from silo.store.privacy import NotPrivateError, output_place

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

OTHER = 65534


def become_other():
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)


def as_other(action):
    """What ``action`` returns as the other user, as JSON has it; the text of its error where it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become_other()
            answer = action()
        except Exception as error:  # noqa: BLE001  # it is the answer
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text)


@contextmanager
def other_doing(action):
    """The other user runs ``action`` again and again until the block ends; begun once when it begins."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        become_other()
        told = False
        while True:
            with suppress(OSError):
                action()
            if not told:
                os.write(writing, b"x")
                told = True
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"x"
        yield
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def winner(number):
    return ForeignWinner("k", "0" * 64, Target.parse("cpu:x86-64-v3"), ("n",), (number,), Config.of({"BLOCK": 64}))


@pytest.fixture
def shared(tmp_path):
    """A folder that all may write, as ``/tmp`` is, with every folder on the way open to all."""
    folder = Path("/tmp") / f"silo-test-{os.getpid()}-{tmp_path.name}"  # pytest's own folders are private
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def theirs(shared):
    """A folder of the other user's."""
    folder = shared / "theirs"
    folder.mkdir(mode=0o755)
    os.chown(folder, OTHER, OTHER)
    return folder


def test_two_users_do_not_share_a_journal(shared):
    path = shared / "K.silo"
    Archive(path).decide(winner(1))
    before = journal_of(path).read_bytes()

    def record():
        Archive(path).decide(winner(2))

    answer = as_other(record)
    assert answer.startswith("BundleError: nothing can be recorded")
    assert journal_of(path).read_bytes() == before
    fold(path)
    assert as_other(record) is None  # a journal of their own, as long as it lasts
    with pytest.raises(BundleError, match=f"belongs to user {OTHER}, not 0"):
        Archive(path)
    with open_folded(path) as bundle:
        assert bundle.attachments


@pytest.mark.timeout(60)
def test_no_lock_of_another_user_is_waited_for(shared, monkeypatch):
    """Bundle, lock file, folder: readable by all, and locked by somebody else for good."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    path, lock = shared / "K.silo", shared / "silo.lock.json"
    Archive(path).decide(winner(1))
    fold(path)
    update_lock(lock, [])
    Archive(path).decide(winner(2))

    def lock_all():
        held = [os.open(one, os.O_RDONLY) for one in (path, lock, shared)]
        for one in held:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(600)

    def lock_journal():
        fcntl.flock(os.open(journal_of(path), os.O_RDONLY), fcntl.LOCK_EX)

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        become_other()
        os.write(writing, b"x")
        lock_all()
    try:
        os.read(reading, 1)
        time.sleep(0.2)
        assert as_other(lock_journal).startswith("PermissionError")
        with override(lock_wait_s=0.5):
            assert fold(path) is not None
            with locked_bundle(path):
                pass
            update_lock(lock, [])
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_links_of_another_user_lead_no_write_anywhere(theirs, tmp_path):
    """Build, record and the lock file, at a name that is a link of the folder's owner."""
    own = tmp_path / "own.conf"
    own.write_text("secret=1\n")
    made = sample(1, 1)
    for name in ("K.silo", "silo.lock.json", "dangling.silo"):
        target = own if name != "dangling.silo" else tmp_path / "made.conf"
        (theirs / name).symlink_to(target)
        os.chown(theirs / name, OTHER, OTHER, follow_symlinks=False)
    for name in ("K.silo", "dangling.silo"):
        with pytest.raises(BundleError, match=f"a link of user {OTHER}"):
            write_bundle(theirs / name, made.contents, made.read_blob)
        with pytest.raises(BundleError, match=f"a link of user {OTHER}"):
            Archive(theirs / name)
    with pytest.raises(LockError, match=f"a link of user {OTHER}"):
        update_lock(theirs / "silo.lock.json", [])
    folder = tmp_path / "folder"
    folder.mkdir()
    (theirs / "out").symlink_to(folder)
    os.chown(theirs / "out", OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(StoreError, match=f"a link of user {OTHER}"):
        write_texts(theirs / "out", {"a": "text"})
    with pytest.raises(StoreError, match=f"a link of user {OTHER}"):
        write_folder(theirs / "out", {"a": b"text"}, {})
    assert list(folder.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == [folder, own]
    assert own.read_text() == "secret=1\n"


def test_links_of_ones_own_are_followed(theirs, tmp_path):
    (tmp_path / "link").symlink_to("K.silo")
    assert output_place(tmp_path / "link") == tmp_path / "K.silo"
    (tmp_path / "K.silo").touch()
    assert output_place(tmp_path / "link") == tmp_path / "K.silo"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(NotPrivateError):
        output_place(tmp_path / "loop")
    assert output_place(tmp_path / "missing" / "K.silo") == tmp_path / "missing" / "K.silo"


@pytest.mark.timeout(120)
def test_links_swapped_while_it_is_written_cost_nothing_of_the_users(theirs, tmp_path, monkeypatch):
    """Build, record, fold and lock in a folder whose owner puts links and files in the place of each name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "own.conf"
    own.write_text("secret=1\n")
    own.chmod(0o644)
    names = ("K.silo", "K.silo.journal", "silo.lock.json")

    def swap():
        for name in names:
            place = theirs / name
            place.unlink(missing_ok=True)
            place.symlink_to(own)
            place.unlink(missing_ok=True)
            place.write_bytes(b"x" * 40)
            place.unlink(missing_ok=True)

    made = sample(1, 1)
    outcomes = set()
    with other_doing(swap):
        end = time.monotonic() + 6
        while time.monotonic() < end:
            for attempt in (
                lambda: write_bundle(theirs / "K.silo", made.contents, made.read_blob),
                lambda: Archive(theirs / "K.silo").decide(winner(1)),
                lambda: fold(theirs / "K.silo"),
                lambda: update_lock(theirs / "silo.lock.json", []),
            ):
                try:
                    attempt()
                    outcomes.add("done")
                except SiloError as error:
                    outcomes.add(type(error).__name__)
            assert own.read_text() == "secret=1\n"
    assert {"done", "BundleError"} <= outcomes
    assert sorted(one.name for one in tmp_path.iterdir() if one.name != "cache") == ["own.conf"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_an_agent_leaves_nothing_open_to_another_user(shared, tmp_path):
    """While an agent measures, somebody else opens all that appears in the folder of temporary files."""
    pytest.importorskip("triton", reason="this test compiles Triton kernels")
    kernels = write_scale(tmp_path)
    temporary = shared / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    seen, opened = shared / "seen", shared / "opened"
    for one in (seen, opened):
        one.touch()
        one.chmod(0o666)
    places = [temporary, Path("/dev/shm")]  # shared memory that has a name
    there = {str(one) for place in places for one in place.iterdir()}

    def look():
        for place in places:
            for path in place.iterdir():
                if str(path) in there or (place != temporary and "silo" not in path.name):
                    continue
                with seen.open("a") as file:
                    file.write(f"{path}\n")
                for flags in (os.O_RDONLY, os.O_WRONLY):
                    try:
                        os.close(os.open(path, flags))
                    except OSError:
                        continue
                    with opened.open("a") as file:
                        file.write(f"{path} {flags}\n")

    agent = shlex.join([sys.executable, "-m", "silo", "agent", "--device", "cpu"])
    command = [sys.executable, "-m", "silo", "tune", str(kernels), "--json", "--agent", agent]
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "home"), "TMPDIR": str(temporary)}
    with other_doing(look):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert seen.read_text()  # the other user has looked while there was something
    assert opened.read_text() == ""
