"""Files of another compiler's cache in the store."""

import json
import os
import time
import zlib

import pytest

from silo.errors import StoreError
from silo.store.artifacts import MOST_BYTES, blobs_kept_here
from silo.store.store import MemoryStore, Store
from silo.store.usage import PruneRule, clear, prune, usage

KEY, OTHER = "a" * 64, "b" * 64
FILES = {"ttir": b"text " * 100, "empty": b"", "cubin": bytes(range(256))}


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    return Store(tmp_path) if request.param == "disk" else MemoryStore()


def test_files_come_back_in_their_order(store):
    assert not store.files.holds(KEY)
    assert store.files.get(KEY) is None
    assert store.files.put(KEY, FILES)
    assert list(store.files.get(KEY).items()) == list(FILES.items())
    assert store.files.holds(KEY)
    assert not store.files.holds(OTHER)
    assert store.files.put(KEY, {"ptx": b"new"})
    assert store.files.get(KEY) == {"ptx": b"new"}
    assert store.files.put(OTHER, {})
    assert store.files.get(OTHER) == {}
    with pytest.raises(StoreError, match="sha256"):
        store.files.put("../x", FILES)


def test_too_many_bytes_are_not_kept(store):
    assert not store.files.put(KEY, {"a": bytes(MOST_BYTES // 2), "b": bytes(MOST_BYTES // 2 + 1)})
    assert not store.files.holds(KEY)


@pytest.mark.parametrize(
    ("packed", "sizes"),
    [
        (zlib.compress(b"abc"), [["a", 2]]),
        (zlib.compress(b"abc"), [["a", 4]]),
        (zlib.compress(bytes(1 << 24)), [["a", 3]]),
        (b"abc", [["a", 3]]),
        (zlib.compress(b"abc"), [["a", -3]]),
        (zlib.compress(b"abc"), [["a"]]),
        (zlib.compress(b"abc"), "abc"),
        (zlib.compress(b"abc")[:-6], [["a", 3]]),
    ],
)
def test_what_says_something_else_than_its_bytes_is_absent(store, packed, sizes, caplog):
    entries, blobs = store.files._entries, store.files._blobs  # what a damaged or foreign store might hold
    ref = {"sha256": blobs.put(packed), "kind": "files", "size": len(packed)}
    entries.put(KEY, {"schema": "files/1", "blob": ref, "files": sizes})
    assert store.files.get(KEY) is None
    assert store.files.get(KEY) is None
    assert caplog.text.count("cannot be used") == 1
    assert store.files.put(KEY, FILES)
    assert store.files.get(KEY) == FILES


def test_another_schema_is_absent(tmp_path, caplog):
    store = Store(tmp_path)
    store.files.put(KEY, FILES)
    document = store.files._entries.get(KEY)
    for change in ({"schema": "files/2"}, {"more": 1}, {"blob": {"sha256": "x"}}):
        store.files._entries.put(KEY, {**json.loads(json.dumps(document)), **change})
        assert Store(tmp_path).files.get(KEY) is None
        assert not Store(tmp_path).files.holds(KEY)
    assert "cannot be used" in caplog.text


def test_usage_prune_and_clear_see_them(tmp_path):
    store = Store(tmp_path)
    for key, byte in ((KEY, b"k"), (OTHER, b"o")):
        store.files.put(key, {"cubin": os.urandom(5000), "ptx": byte})
    found = usage(tmp_path)
    assert (found.files["files"], found.files["blobs"]) == (2, 2)
    assert blobs_kept_here(tmp_path) == {one.name for one in (tmp_path / "blobs").glob("*/*")}
    for path in tmp_path.rglob("*"):
        age = 10_000 if path.stem != OTHER else 5_000
        os.utime(path, (time.time() - age, time.time() - age))
    most = usage(tmp_path).total_bytes - 1
    assert prune(tmp_path, PruneRule(most)).entries == 1
    assert (store.files.holds(KEY), store.files.holds(OTHER)) == (False, True)
    assert usage(tmp_path).total_bytes <= most
    clear(tmp_path)
    assert (usage(tmp_path).files["files"], usage(tmp_path).files["blobs"]) == (0, 0)
    assert store.files.get(OTHER) is None
