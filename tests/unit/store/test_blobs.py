import hashlib
import logging
import os

import pytest

from silo.errors import StoreError
from silo.forks import Notices
from silo.store.stored_objects import DiskBlobs, MemoryBlobs


@pytest.fixture(params=["disk", "memory"])
def blobs(request, tmp_path):
    return DiskBlobs(tmp_path, Notices()) if request.param == "disk" else MemoryBlobs()


@pytest.mark.parametrize("data", [b"", b"code", bytes(range(256)) * 1000])
def test_what_was_put_is_got(blobs, data):
    sha256 = blobs.put(data)
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert blobs.get(sha256) == data
    assert bytes(blobs.map(sha256)) == data
    assert blobs.holds(sha256, len(data))
    assert not blobs.holds(sha256, len(data) + 1)


def test_absent_is_none(blobs):
    assert blobs.get("0" * 64) is None
    assert blobs.map("0" * 64) is None
    assert not blobs.holds("0" * 64, 0)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 63 + "\n"])
def test_a_name_that_is_no_sha256_is_refused(blobs, name):
    with pytest.raises(StoreError, match="sha256"):
        blobs.get(name)


def test_a_view_cannot_be_written(blobs):
    view = blobs.map(blobs.put(b"code"))
    with pytest.raises(TypeError):
        view[0] = 1


@pytest.mark.parametrize("read", ["get", "map"])
@pytest.mark.parametrize("damage", [b"", b"codf", b"cod", b"code and more"])
def test_a_damaged_blob_is_a_miss_told_once_and_put_again(tmp_path, caplog, read, damage):
    blobs = DiskBlobs(tmp_path, Notices())
    sha256 = blobs.put(b"code")
    path = tmp_path / "blobs" / sha256[:2] / sha256
    path.write_bytes(damage)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert getattr(blobs, read)(sha256) is None
        assert getattr(blobs, read)(sha256) is None
    assert len(caplog.records) == 1
    assert "damaged" in caplog.text
    assert sha256 in caplog.text
    assert (tmp_path / "damaged" / sha256).read_bytes() == damage
    blobs.put(b"code")
    assert blobs.get(sha256) == b"code"


def test_putting_over_a_damaged_blob_of_the_same_size_repairs_it(tmp_path):
    blobs = DiskBlobs(tmp_path, Notices())
    sha256 = blobs.put(b"code")
    (tmp_path / "blobs" / sha256[:2] / sha256).write_bytes(b"codf")
    blobs.put(b"code")
    assert blobs.get(sha256) == b"code"


def test_putting_again_writes_nothing_but_looks_fresh(tmp_path):
    blobs = DiskBlobs(tmp_path, Notices())
    sha256 = blobs.put(b"code")
    path = tmp_path / "blobs" / sha256[:2] / sha256
    inode = path.stat().st_ino
    os.utime(path, (1, 1))
    blobs.put(b"code")
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1


def test_a_view_outlives_the_file(tmp_path):
    blobs = DiskBlobs(tmp_path, Notices())
    sha256 = blobs.put(b"code" * 5000)
    view = blobs.map(sha256)
    (tmp_path / "blobs" / sha256[:2] / sha256).unlink()
    assert bytes(view) == b"code" * 5000


def test_files_are_private_and_no_temporary_is_left(tmp_path):
    blobs = DiskBlobs(tmp_path, Notices())
    sha256 = blobs.put(b"code")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files] == [sha256]
    assert files[0].stat().st_mode & 0o077 == 0
