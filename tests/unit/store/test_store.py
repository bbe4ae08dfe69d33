import logging
import os
import re
import time
from dataclasses import replace

import pytest

from bundle_samples import variant
from silo.artifacts.artifact import Artifact
from silo.core.consent import HostCode
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import RecordStore
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import StoreError
from silo.store.store import MemoryStore, Store
from silo.store.usage import PruneRule, clear, prune, usage

JOB = "1" * 64


def compiled(data=b"code", log=""):
    return Compiled(
        LaunchInfo("f", (), registers=7), CompiledBlob("cubin", data), (CompiledBlob("ttir", b"module"),), log
    )


def keep(store, number=0, data=b"code"):
    """Keep one artifact the way the compile path does; its key."""
    job = f"{number:064x}"
    outcome = store.artifacts.put_compiled(job, compiled(data))
    item = variant("add", number, "cuda:sm_90")
    artifact = Artifact(item, outcome.launch, outcome.blob, outcome.sidecars, "made-up 1.0", job)
    key = item.artifact_key(artifact.compiler)
    store.artifacts.put(key, artifact)
    return key, artifact


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    return Store(tmp_path / "store") if request.param == "disk" else MemoryStore()


def test_artifacts_and_jobs_come_back(store):
    key, artifact = keep(store)
    assert store.artifacts.get(key) == artifact
    assert store.artifacts.compiled(artifact.job) == compiled()
    assert store.artifacts.outcome(artifact.job).blob == artifact.blob
    assert store.artifacts.get("0" * 64) is None
    assert store.artifacts.compiled("e" * 64) is None


def test_equal_jobs_share_their_blobs(store):
    one = store.artifacts.put_compiled("1" * 64, compiled())
    two = store.artifacts.put_compiled("2" * 64, compiled(log="warning: unused"))
    assert one.refs == two.refs
    assert store.artifacts.compiled("2" * 64).log == "warning: unused"


def test_the_records_are_what_the_protocol_asks_for(store):
    records: RecordStore = store.records
    records.append("k", {"sha": store.blobs.put(b"x")})
    assert len(list(records.read("k"))) == 1


def test_opening_writes_nothing(tmp_path):
    store = Store(tmp_path / "store")
    assert store.blobs.get("0" * 64) is None
    assert list(store.records.read("k")) == []
    assert store.artifacts.get("0" * 64) is None
    assert not store.trust.decide(HostCode("0" * 64, "so", LaunchInfo("f", ())))
    assert not (tmp_path / "store").exists()


def test_a_moved_store_holds_the_same_and_names_no_place(tmp_path):
    first = tmp_path / "a very particular place"
    store = Store(first)
    key, artifact = keep(store)
    store.records.append("trials", {"n": 1})
    for path in first.rglob("*"):
        assert not path.is_file() or b"particular" not in path.read_bytes()
    first.rename(tmp_path / "elsewhere")
    moved = Store(tmp_path / "elsewhere")
    assert moved.artifacts.get(key) == artifact
    assert moved.artifacts.compiled(artifact.job) == compiled()
    assert list(moved.records.read("trials")) == [{"n": 1}]
    assert not first.exists()


def test_a_second_store_on_the_directory_sees_the_first_ones_work(tmp_path):
    one, two = Store(tmp_path), Store(tmp_path)
    key, artifact = keep(one)
    one.records.append("k", 1)
    two.records.append("k", 2)
    assert two.artifacts.get(key) == artifact
    assert list(one.records.read("k")) == [1, 2]


@pytest.mark.parametrize("part", ["artifacts", "jobs"])
def test_a_damaged_entry_is_a_miss_told_once_and_made_again(tmp_path, caplog, part):
    store = Store(tmp_path)
    key, artifact = keep(store)
    (path,) = (tmp_path / part).rglob("*.json")
    path.write_bytes(path.read_bytes().replace(b'"registers":7', b'"registers":9'))
    with caplog.at_level(logging.WARNING, "silo.store"):
        for _ in range(2):
            assert (store.artifacts.get(key) if part == "artifacts" else store.artifacts.compiled(artifact.job)) is None
    assert len(caplog.records) == 1
    assert "damaged" in caplog.text
    assert [found.name for found in (tmp_path / "damaged").iterdir()] == [path.name]
    keep(store)
    assert store.artifacts.get(key) == artifact
    assert store.artifacts.compiled(artifact.job) == compiled()


def test_an_artifact_whose_blob_is_gone_or_damaged_is_a_miss(tmp_path):
    store = Store(tmp_path)
    key, artifact = keep(store)
    path = tmp_path / "blobs" / artifact.blob.sha256[:2] / artifact.blob.sha256
    path.write_bytes(b"codf")
    assert store.artifacts.compiled(artifact.job) is None
    assert store.artifacts.get(key) is None


def test_an_entry_of_another_schema_is_a_miss(tmp_path, caplog):
    store = Store(tmp_path)
    store.artifacts._artifacts.put(JOB, {"schema": "artifact/2", "value": 1})
    store.artifacts._jobs.put(JOB, {"schema": "job/1", "value": {"launch": 3}})
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert store.artifacts.get(JOB) is None
        assert store.artifacts.compiled(JOB) is None
    assert "schema" in caplog.text


def test_a_newer_store_is_refused(tmp_path):
    keep(Store(tmp_path))
    (tmp_path / "silo-store.json").write_bytes(b'{"silo-store":2}\n')
    with pytest.raises(StoreError, match=r"(?s)newer Silo.*schema 2.*SILO_HOME"):
        Store(tmp_path)


DAMAGED = [b"", b"{", b"{}", b"[]", b'{"silo-store":true}', b'{"silo-store":"1"}', b'{"silo-store":0}', b"\xff"]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_store_with_a_damaged_schema_file_is_put_aside_with_one_line(tmp_path, text, caplog):
    """For a file of the store that is torn: the program goes on in memory, reads nothing there and changes nothing."""
    keep(Store(tmp_path))
    (tmp_path / "silo-store.json").write_bytes(text)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with caplog.at_level(logging.WARNING, "silo.store"):
        store, again = Store(tmp_path), Store(tmp_path)
        assert store.artifacts.get(JOB) is None
        keep(store)
        again.records.append("k", 1)
    assert caplog.text.count("is not used") == 1
    assert "not the schema file" in store.unused
    assert "not the schema file" in caplog.text
    assert "SILO_HOME" in caplog.text
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_schema_file_that_is_damaged_while_a_program_runs_costs_what_it_would_keep(tmp_path, caplog):
    store = Store(tmp_path)
    (tmp_path / "silo-store.json").write_bytes(b"{")
    with caplog.at_level(logging.WARNING, "silo.store"):
        keep(store)
        store.records.append("k", 1)
    assert list(store.records.read("k")) == [1]
    assert caplog.text.count("not the schema file") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["silo-store.json"]


def age(root, seconds):
    for path in root.rglob("*"):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def on_disk(path):
    status = path.stat()
    return max(status.st_size, status.st_blocks * 512)


def test_usage_counts_every_part(tmp_path):
    store = Store(tmp_path)
    assert usage(tmp_path).total_bytes == 0
    keep(store, 1, b"x" * 1000)
    store.records.append("k", 1)
    found = usage(tmp_path)
    assert found.files == {"blobs": 2, "artifacts": 1, "jobs": 1, "files": 0, "records": 1, "damaged": 0}
    assert found.size_bytes["blobs"] >= 1006
    assert found.total_bytes == sum(on_disk(path) for path in tmp_path.rglob("*") if path.is_file())
    assert found.total_bytes > sum(found.size_bytes.values()), "the schema file counts too"
    assert usage(tmp_path / "absent").total_bytes == 0


def test_prune_takes_unreferenced_blobs_first_then_the_oldest_artifacts(tmp_path):
    store = Store(tmp_path)
    stray = store.blobs.put(b"s" * 1000)
    keys = [keep(store, number, bytes([number]) * 5000)[0] for number in range(3)]
    store.records.append("k", 1)
    age(tmp_path, 10_000)
    # The first kept is the youngest.
    for path in [*(tmp_path / "artifacts").rglob(f"{keys[0]}*"), *(tmp_path / "jobs").rglob(f"{0:064x}*")]:
        os.utime(path, (time.time() - 5000, time.time() - 5000))
    found = usage(tmp_path)
    one = sum(found.size_bytes[part] for part in ("blobs", "artifacts", "jobs")) // 3

    pruned = prune(tmp_path, PruneRule(found.total_bytes - 500))
    assert (pruned.blobs, pruned.entries) == (1, 0)
    assert store.blobs.get(stray) is None
    assert all(store.artifacts.get(key) for key in keys)

    limit = found.total_bytes - 3 * one // 2
    pruned = prune(tmp_path, PruneRule(limit))
    assert pruned.left_bytes <= limit
    assert [store.artifacts.get(key) is not None for key in keys] == [True, False, False]
    found = usage(tmp_path)
    assert (pruned.left_bytes, pruned.records_bytes) == (found.total_bytes, found.size_bytes["records"])
    assert list(store.records.read("k")) == [1]


def test_prune_leaves_what_is_young(tmp_path):
    store = Store(tmp_path)
    key, _ = keep(store)
    store.blobs.put(b"about to be referred to")
    assert prune(tmp_path, PruneRule(0)).freed_bytes == 0
    assert store.artifacts.get(key) is not None


def test_prune_sweeps_unfinished_files_when_they_are_old(tmp_path):
    keep(Store(tmp_path))
    (tmp_path / "blobs" / ".silo-tmp-1-00").write_bytes(b"x" * 10)
    assert prune(tmp_path, PruneRule(1 << 30)).temporary == 0
    age(tmp_path, 10_000)
    pruned = prune(tmp_path, PruneRule(1 << 30))
    assert (pruned.temporary, pruned.blobs, pruned.entries) == (1, 0, 0)


def test_clear_keeps_trust_unless_told_otherwise(tmp_path):
    store = Store(tmp_path)
    outcome = store.artifacts.put_compiled(JOB, replace(compiled(), blob=CompiledBlob("so", b"native")))
    store.records.append("k", 1)
    assert clear(tmp_path) > 0
    assert sum(usage(tmp_path).size_bytes.values()) == 0
    again = Store(tmp_path)
    assert again.artifacts.compiled(JOB) is None
    assert again.trust.decide(outcome.host_code)
    with pytest.raises(ValueError, match="trust"):
        clear(tmp_path, ("trust",))


def test_clear_of_one_part(tmp_path):
    store = Store(tmp_path)
    key, _ = keep(store)
    store.records.append("k", 1)
    clear(tmp_path, ("records",))
    assert list(store.records.read("k")) == []
    assert store.artifacts.get(key) is not None


def test_logs_say_where_and_what_to_do(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store")
    with caplog.at_level(logging.WARNING, "silo.store"):
        store.records.append("k", 1)
    assert re.search(r"store .*file/store cannot be written: .*memory.*SILO_HOME", caplog.text)
