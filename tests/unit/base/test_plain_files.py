"""Opening files that somebody else may have made: pipes, devices, links and sparse files cost no time and no memory.

Each row of ``NOT_PLAIN`` stands for a kind of thing that a path may lead to although a file is expected there.
"""

import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from silo.bundle.reader import open_bundle
from silo.bundle.signing import header_of
from silo.errors import BundleError, LockError, SourceError, StoreError, TuneError
from silo.export.project import read_record
from silo.measuring.lock_files import read_lock
from silo.plain_files import FileRefusedError, open_plain, read_plain
from silo.settings import override
from silo.store.atomic_files import sweep_abandoned
from silo.tuner.formats.result_files import read_results


def a_pipe(path):
    os.mkfifo(path)


def a_device(path):
    path.symlink_to("/dev/zero")


def a_folder(path):
    path.mkdir()


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


NOT_PLAIN = [a_pipe, a_device, a_folder, a_socket]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", NOT_PLAIN)
def test_what_is_no_plain_file_is_refused_at_once_wherever_a_file_is_named(tmp_path, make):
    """One path for each place that opens files a user names or that lie beside a bundle."""

    def made(name):
        make(tmp_path / name)
        return tmp_path / name

    with pytest.raises(FileRefusedError, match="not a plain file"):
        open_plain(made("plain"))
    with pytest.raises(LockError, match="not a plain file"):
        read_lock(made("silo.lock.json"))
    with pytest.raises(TuneError, match="not a plain file"):
        read_results(made("cache.json"))
    with pytest.raises(BundleError, match=r"not a plain file|a folder|No such device"):  # the system opens no socket
        open_bundle(made("K.silo"))
    assert header_of(tmp_path / "K.silo") is None
    (tmp_path / "export").mkdir()
    made("export/silo-export.json")
    with pytest.raises(StoreError, match="not a plain file"):
        read_record(tmp_path / "export")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", NOT_PLAIN)
def test_kernels_read_from_files_need_plain_files(tmp_path, make):
    from silo.kinds.binary.binary_definition import _read as read_binary
    from silo.kinds.metal.front.metal_source import _read as read_metal

    make(tmp_path / "k.metal")
    with pytest.raises(SourceError, match="not a plain file"):
        read_metal(tmp_path / "k.metal", "here", (), ())
    with pytest.raises(SourceError, match="not a plain file"):
        read_binary(tmp_path / "k.metal")


@pytest.mark.timeout(20)
def test_an_unfinished_file_that_is_a_pipe_keeps_no_writer_waiting(tmp_path):
    """Anybody may put such a name into a folder that all may write."""
    pipe = tmp_path / ".silo-tmp-1-0"
    os.mkfifo(pipe)
    os.utime(pipe, (0, 0))
    assert sweep_abandoned(tmp_path) == (0, 0)


def test_a_sparse_file_takes_no_memory(tmp_path):
    path = tmp_path / "silo.lock.json"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(LockError, match="raise SILO_FILE_BYTES"):
            read_lock(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_file_within_the_limit_is_read_whole_and_one_byte_more_is_refused(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x" * 4096)
    assert read_plain(path, 4096) == b"x" * 4096
    with pytest.raises(FileRefusedError, match="4096 bytes, and 4095 may be read"):
        read_plain(path, 4095)
    with override(file_bytes=4095), pytest.raises(FileRefusedError, match="SILO_FILE_BYTES"):
        read_plain(path)


def test_links_are_followed_unless_they_are_refused(tmp_path):
    """A lock file or a bundle that a user names may be a link (a mounted configuration is one)."""
    (tmp_path / "f").write_bytes(b"data")
    (tmp_path / "link").symlink_to("f")
    assert read_plain(tmp_path / "link") == b"data"
    with pytest.raises(FileRefusedError, match="symbolic link"):
        open_plain(tmp_path / "link", os.O_RDONLY | os.O_NOFOLLOW)


def test_a_file_that_grows_while_it_is_read_is_refused():
    """Files of /proc have no size before they are read."""
    with pytest.raises(FileRefusedError, match="and 8 may be read"):
        read_plain(Path("/proc/self/status"), 8)
