"""The append-only log: frames come back whole, whatever ends a writer, and the name of a new file is durable."""

import os
from contextlib import contextmanager

import pytest

from silo.store import records
from silo.store.privacy import NotPrivateError, open_own
from silo.store.records import AppendLog, CutLogError, LogFraming

LINES = LogFraming(end=b"\n")
NAMED = LogFraming(lambda: b"NAME", 4)


def log_at(path, framing=LINES):
    return AppendLog(path, framing, open_own)


def add(log, *frames):
    for frame in frames:
        with log.writing() as file:
            file.append(frame)


def bytes_of(log):
    with log.reading() as file:
        return file.read_all()


@pytest.mark.parametrize(
    ("framing", "there", "then"),
    [
        (LINES, b"", b"new\n"),
        (LINES, b"one\n", b"one\nnew\n"),
        (LINES, b"one\nto", b"one\nto\nnew\n"),
        (NAMED, b"", b"NAMEnew\n"),
        (NAMED, b"NA", b"NAMEnew\n"),  # its maker was killed
        (NAMED, b"NAMEone\nto", b"NAMEone\ntonew\n"),  # readers look for the next frame
    ],
)
def test_what_an_append_makes_of_a_file(tmp_path, framing, there, then):
    log = log_at(tmp_path / "log", framing)
    log.path.write_bytes(there)
    log.path.chmod(0o600)
    add(log, b"new\n")
    assert bytes_of(log) == then


def test_reading_makes_no_file_and_a_file_of_others_is_refused(tmp_path):
    log = log_at(tmp_path / "log")
    with pytest.raises(FileNotFoundError), log.reading():
        pass
    assert not log.path.exists()
    log.path.write_bytes(b"x\n")
    log.path.chmod(0o666)
    for use in (log.reading, log.writing):
        with pytest.raises(NotPrivateError, match="others may write"), use():
            pass
    assert log.path.read_bytes() == b"x\n"


@contextmanager
def failing(monkeypatch, name, after=0):
    """The disk refuses: to write more than ``after`` bytes, or to keep what was written."""

    def write_all(descriptor, data):
        os.write(descriptor, bytes(data)[:after])
        raise OSError(28, "No space left on device")

    def fsync(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        if name == "write":
            patch.setattr(records, "write_all", write_all)
        else:
            patch.setattr(records.os, "fsync", fsync)
        yield


@pytest.mark.parametrize(("name", "after"), [("write", 0), ("write", 2), ("fsync", 0)])
def test_an_append_that_the_disk_refuses_is_taken_back_under_the_lock_alone(tmp_path, monkeypatch, name, after):
    log = log_at(tmp_path / "log")
    add(log, b"one\n")
    with failing(monkeypatch, name, after), pytest.raises(OSError, match=r"No space|Input/output"):
        add(log, b"two\n")
    assert bytes_of(log) == b"one\n"

    @contextmanager
    def no_locks(descriptor, path, *, exclusive):
        yield False

    monkeypatch.setattr(records, "file_lock", no_locks)
    with failing(monkeypatch, name, after), pytest.raises(OSError, match=r"No space|Input/output"):
        add(log, b"two\n")
    assert bytes_of(log) == b"one\n" + (b"two\n"[:after] if name == "write" else b"two\n")
    add(log, b"three\n")
    assert bytes_of(log).endswith(b"\nthree\n")


def test_a_file_that_was_removed_while_a_writer_waited_is_made_anew(tmp_path, monkeypatch):
    log = log_at(tmp_path / "log", NAMED)
    add(log, b"old\n")
    real = records.file_lock

    @contextmanager
    def removed_first(descriptor, path, *, exclusive):
        monkeypatch.setattr(records, "file_lock", real)
        log.path.unlink()
        with real(descriptor, path, exclusive=exclusive) as is_locked:
            yield is_locked

    monkeypatch.setattr(records, "file_lock", removed_first)
    add(log, b"new\n")
    assert bytes_of(log) == b"NAMEnew\n"


def test_the_name_of_a_new_file_is_made_durable_once(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(records, "sync_directory", synced.append)
    log = log_at(tmp_path / "log")
    add(log, b"one\n", b"two\n")
    assert synced == [tmp_path]
    log.path.unlink()
    add(log, b"three\n")
    add(log_at(log.path), b"four\n")  # the process that made the file may have been killed
    assert synced == [tmp_path] * 3


def test_a_file_that_is_cut_while_it_is_read_is_told(tmp_path):
    log = log_at(tmp_path / "log")
    add(log, b"one\n")
    with log.reading() as file:
        assert file.read(1, 3) == b"ne\n"
        with pytest.raises(CutLogError, match="cut while it was read"):
            file.read(1, 4)
