"""Journals that somebody else made: nothing of the user's is written, and reading costs what an honest one costs.

``REFUSED`` has a row for each kind of file that a stranger can put where Silo expects its own journal.
"""

import os
import struct
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from silo.core.config import Config
from silo.core.device import Target
from silo.errors import BundleError
from silo.kinds.triton.programs.records.archive import Archive, ForeignWinner
from silo.kinds.triton.programs.records.journal import MARK, Journal, JournalPlace, journal_of
from silo.kinds.triton.programs.records.journal_folding import fold, open_folded
from silo.settings import override

HEAD = struct.Struct("<IQ32s")


def winner(number):
    return ForeignWinner("k", "0" * 64, Target.parse("cpu:x86-64-v3"), ("n",), (number,), Config.of({"BLOCK": 64}))


def a_recording(folder):
    """A bundle of a stranger's folder, as he gives it away."""
    path = folder / "K.silo"
    Archive(path).decide(winner(1))
    fold(path)
    return path


def a_link(journal, own):
    journal.symlink_to(own)


def a_link_to_nothing(journal, own):
    journal.symlink_to(own.with_name("made.conf"))


def a_hard_link(journal, own):
    journal.hardlink_to(own)


def a_pipe(journal, own):
    os.mkfifo(journal)


def a_file_that_others_may_write(journal, own):
    journal.write_bytes(b"SILO-JOURNAL-ID:" + bytes(16))
    journal.chmod(0o666)


def a_file_of_another_user(journal, own):
    journal.write_bytes(b"SILO-JOURNAL-ID:" + bytes(16))
    os.chown(journal, 65534, 65534)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
REFUSED = [
    a_link,
    a_link_to_nothing,
    a_hard_link,
    a_pipe,
    a_file_that_others_may_write,
    pytest.param(a_file_of_another_user, marks=needs_root),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", REFUSED)
def test_a_strangers_journal_is_refused_and_nothing_is_written(tmp_path, make, caplog):
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    path = a_recording(stranger)
    for text in (b"secret=1\n", b"secret=1\n" * 1000):  # smaller and larger than the head of a journal
        own = tmp_path / "own.conf"
        own.write_bytes(text)
        journal = journal_of(path)
        make(journal, own)
        before = (sorted(stranger.iterdir()), path.read_bytes())
        caplog.clear()
        with open_folded(path) as bundle:  # served, without it
            assert bundle.name == "K.silo"
        assert "serves without what was recorded" in caplog.text
        with pytest.raises(BundleError, match="nothing can be recorded"):
            Archive(path)
        with pytest.raises(BundleError, match="nothing can be recorded"):
            fold(path)
        assert own.read_bytes() == text
        assert (sorted(stranger.iterdir()), path.read_bytes()) == before
        assert sorted(one.name for one in tmp_path.iterdir()) == ["own.conf", "stranger"]
        journal.unlink()


def test_serving_writes_nothing_beside_the_bundle_and_gives_what_its_own_journal_holds(tmp_path):
    path = a_recording(tmp_path)
    Archive(path).decide(winner(2))
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert set(before) == {"K.silo", "K.silo.journal"}
    tmp_path.chmod(0o500)
    try:
        from silo.kinds.triton.programs.records.archive import read_winners

        with open_folded(path) as bundle:
            assert {one.key for one in read_winners(bundle)} == {(1,), (2,)}
    finally:
        tmp_path.chmod(0o700)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
    fold(path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["K.silo"]


def test_a_new_journal_is_the_users_alone_and_an_older_one_becomes_so(tmp_path):
    """Under a umask that lets a group write: who can open a journal can lock it."""
    before = os.umask(0)
    try:
        Archive(tmp_path / "K.silo")
    finally:
        os.umask(before)
    journal = journal_of(tmp_path / "K.silo")
    assert journal.stat().st_mode & 0o777 == 0o600
    journal.chmod(0o644)
    Archive(tmp_path / "K.silo").decide(winner(1))
    assert journal.stat().st_mode & 0o777 == 0o600


def nested(count):
    """Frames of which each claims all bytes up to the end."""
    unit = len(MARK) + HEAD.size
    parts = [MARK + HEAD.pack(0, (count - one - 1) * unit, bytes(32)) for one in range(count)]
    return b"SILO-JOURNAL-ID:" + bytes(16) + b"".join(parts)


def bytes_read(path):
    """A journal's cost in bytes that are read, which no other program on the machine changes."""
    read = 0
    real = os.pread

    def counted(descriptor, size, offset):
        nonlocal read
        data = real(descriptor, size, offset)
        read += len(data)
        return data

    journal = Journal(path)
    os.pread = counted
    try:
        assert journal.read(lambda record: None).position == 0
    finally:
        os.pread = real
    return read


def test_the_cost_of_reading_grows_with_the_size_of_the_file_alone(tmp_path):
    costs = []
    for count in (1000, 2000, 4000):
        path = tmp_path / f"{count}.journal"
        path.write_bytes(nested(count))
        path.chmod(0o600)
        costs.append(bytes_read(path) / path.stat().st_size)
    assert max(costs) < 8


@pytest.mark.timeout(60)
def test_a_sparse_journal_of_3_gib_takes_little_memory_and_time(tmp_path):
    """Frames before and after the hole, and one that claims all of it."""
    path = tmp_path / "K.silo.journal"
    journal = Journal(path)
    with journal.locked():
        journal.append({"number": 1})
        with path.open("ab") as file:
            file.write(MARK + HEAD.pack(2, (3 << 30) - 1, bytes(32)))
            file.truncate(3 << 30)
        journal.append({"number": 2})
    found = []
    begun = time.process_time()
    tracemalloc.start()
    try:
        journal.read(lambda record: found.append(record.document))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert found == [{"number": 1}, {"number": 2}]
    assert time.process_time() - begun < 20


def test_a_frame_larger_than_the_limit_is_passed_over_and_never_written(tmp_path):
    journal = Journal(tmp_path / "j")
    with journal.locked():
        journal.append({"number": 1}, bytes(100_000))
        with override(file_bytes=50_000), pytest.raises(BundleError, match="SILO_FILE_BYTES"):
            journal.append({"number": 2}, bytes(100_000))
        journal.append({"number": 3})
    found = []
    with override(file_bytes=50_000):
        journal.read(lambda record: found.append(record.document))
    assert found == [{"number": 3}]


def test_folding_a_journal_holds_one_record_in_memory(tmp_path):
    """64 records of 1 MiB fold within some MiB, so within far less than their sum."""
    program = """
import hashlib, os, resource, sys
from pathlib import Path
from silo.kinds.triton.programs.records.journal_folding import fold
from silo.kinds.triton.programs.records.journal import Journal, journal_of
from silo.kinds.triton.programs.records.archive import CacheFile, file_ref
from silo.kinds.triton.programs.records.archive import Archive
path = Path(sys.argv[1])
recording = Archive(path)
for number in range(64):
    data = os.urandom(1 << 20)
    ref = file_ref(data)
    recording.add(CacheFile(f"key{number}", "k.cubin", ref), {ref.sha256: data})
del data
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fold(path)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "K.silo")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert (tmp_path / "K.silo").stat().st_size > 64 << 20
    assert int(ran.stdout) < 32 << 10  # KiB


def test_a_place_of_another_journal_begins_anew(tmp_path):
    journal = Journal(tmp_path / "j")
    with journal.locked():
        journal.append({"number": 1})
    found = []
    journal.read(lambda record: found.append(record.document), JournalPlace(b"x" * 32, 1 << 40))
    assert found == [{"number": 1}]
    assert Path(journal.path).exists()
