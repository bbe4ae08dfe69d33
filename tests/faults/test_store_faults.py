"""The store when the disk is full, read-only or shared, and when its writers are killed."""
# pyright: reportCallIssue=false

import errno
import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from silo.core.consent import HostCode
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.forks import Notices
from silo.store.records import DiskRecords
from silo.store.store import Store

JOB = "1" * 64


def run(script: str, *arguments: object, timeout: float = 120) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Quota:
    """``os.write`` on a disk with ``left`` free bytes: writes what fits, then refuses."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.write = os.write

    def __call__(self, descriptor, data):
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.write(descriptor, bytes(data)[: self.left])
        self.left -= written
        return written


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def fill(store: Store) -> None:
    store.records.append("k", {"kept": 1})
    store.artifacts.put_compiled(JOB, compiled(b"kept"))


def compiled(data: bytes) -> Compiled:
    return Compiled(LaunchInfo("f", ()), CompiledBlob("cubin", data))


@pytest.mark.parametrize("left", [0, 1, 10, 40, 60])
def test_a_full_disk_loses_nothing_kept_and_goes_on_in_memory(tmp_path, monkeypatch, caplog, left):
    store = Store(tmp_path)
    fill(store)
    before = snapshot(tmp_path)
    monkeypatch.setattr("silo.store.atomic_files.os.write", Quota(left))
    with caplog.at_level(logging.WARNING, "silo.store"):
        store.records.append("k", {"new": "x" * 100})
        store.artifacts.put_compiled("2" * 64, compiled(b"y" * 100))
        store.records.append("k", {"new": "z" * 100})
    assert snapshot(tmp_path) == before
    assert list(store.records.read("k")) == [{"kept": 1}, {"new": "x" * 100}, {"new": "z" * 100}]
    assert store.artifacts.compiled("2" * 64) == compiled(b"y" * 100)
    assert store.artifacts.compiled(JOB) == compiled(b"kept")
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    monkeypatch.undo()
    store.records.append("k", {"after": 1})
    assert list(Store(tmp_path).records.read("k")) == [{"kept": 1}, {"after": 1}], "space was freed: kept again"


def test_a_failed_fsync_takes_the_record_back(tmp_path, monkeypatch):
    records = DiskRecords(tmp_path, Notices())
    records.append("k", 1)

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("silo.store.records.os.fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            records.append("k", 2)
    records.append("k", 3)
    assert list(records.read("k")) == [1, 3]


LIMIT = """
import json, logging, resource, sys
from pathlib import Path
from silo.store.store import Store
logging.basicConfig()
store = Store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
for number in range(40):
    store.records.append("k", {"n": number, "pad": "x" * 300})
store.blobs.put(b"small")
sha = store.blobs.put(b"z" * 6000)
assert store.blobs.get(sha) == b"z" * 6000
print(json.dumps([record["n"] for record in store.records.read("k")]))
"""


def test_a_file_size_limit_of_the_system(tmp_path):
    assert json.loads(run(LIMIT, tmp_path)) == list(range(40))
    kept = [record["n"] for record in Store(tmp_path).records.read("k")]
    assert kept == list(range(len(kept)))
    assert 10 <= len(kept) < 40
    data = (tmp_path / "records" / "k.jsonl").read_bytes()
    assert data.endswith(b"\n")
    assert data.count(b"\n") == len(kept), "no torn line is left"


def read_only(monkeypatch, reason=errno.EROFS):
    real = os.open

    def refuse(path, flags, *rest, **named):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(reason, os.strerror(reason), str(path))
        return real(path, flags, *rest, **named)

    def no_change(*_, **__):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "open", refuse)
    for name in ("mkdir", "rename", "replace", "unlink", "utime"):
        monkeypatch.setattr(os, name, no_change)


@pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_store_that_cannot_be_written_is_used_and_said_once(tmp_path, monkeypatch, caplog, reason):
    fill(Store(tmp_path))
    before = snapshot(tmp_path)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "silo.store"):
        read_only(patch, reason)
        store = Store(tmp_path)
        assert list(store.records.read("k")) == [{"kept": 1}]
        assert store.artifacts.compiled(JOB) == compiled(b"kept")
        for number in range(3):
            store.records.append("k", {"new": number})
        outcome = store.artifacts.put_compiled("2" * 64, Compiled(LaunchInfo("f", ()), CompiledBlob("so", b"native")))
        assert store.artifacts.compiled("2" * 64).blob.data == b"native"
        assert store.trust.decide(outcome.host_code), "code built by this process is its own"
        assert list(store.records.read("k")) == [{"kept": 1}, *({"new": number} for number in range(3))]
    assert len(caplog.records) == 1
    assert os.strerror(reason) in caplog.text
    assert snapshot(tmp_path) == before


def test_a_damaged_blob_of_a_read_only_store_is_a_miss(tmp_path, monkeypatch, caplog):
    store = Store(tmp_path)
    sha256 = store.blobs.put(b"code")
    (tmp_path / "blobs" / sha256[:2] / sha256).write_bytes(b"codf")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "silo.store"):
        read_only(patch)
        assert store.blobs.get(sha256) is None
        assert store.blobs.get(sha256) is None
    assert len(caplog.records) == 1
    assert "it stays where it is" in caplog.text


def test_a_root_under_a_file_is_no_error(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store")
    with caplog.at_level(logging.WARNING, "silo.store"):
        fill(store)
    assert list(store.records.read("k")) == [{"kept": 1}]
    assert store.artifacts.compiled(JOB) == compiled(b"kept")
    assert len(caplog.records) == 1


WORKER = """
import sys
from pathlib import Path
from silo.core.variant import Compiled, CompiledBlob
from silo.core.launch_info import LaunchInfo
from silo.store.store import Store
store, who = Store(Path(sys.argv[1])), int(sys.argv[2])
for step in range(15):
    store.records.append("k", {"who": who, "step": step, "pad": "x" * (who * 997 % 9000)})
    # Half of the blobs and jobs are the same in every process.
    shared = step % 2 == 0
    data = b"%d/%d" % (0 if shared else who, step)
    job = f"{step if shared else 1000 + who * 100 + step:064x}"
    store.artifacts.put_compiled(job, Compiled(LaunchInfo("f", ()), CompiledBlob("so", data * 50)))
    assert store.artifacts.compiled(job).blob.data == data * 50
    assert len(list(store.records.read("k"))) > step
"""


def test_sixteen_processes_at_once(tmp_path, caplog):
    processes = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), str(who)], stderr=subprocess.PIPE, text=True)
        for who in range(16)
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 16, errors
    assert not any(errors), "no process had anything to warn of"
    store = Store(tmp_path)
    with caplog.at_level(logging.WARNING, "silo.store"):
        records = list(store.records.read("k"))
    assert not caplog.records
    assert sorted((record["who"], record["step"]) for record in records) == [
        (who, step) for who in range(16) for step in range(15)
    ]
    for who in range(16):
        steps = [record["step"] for record in records if record["who"] == who]
        assert steps == list(range(15)), "each process's records are in its own order"
    shas = {path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    assert len(shas) == 8 + 16 * 7
    assert all(store.blobs.get(sha256) for sha256 in shas)
    codes = [HostCode(sha256, "so", LaunchInfo("f", ())) for sha256 in shas]
    assert all(store.trust.decide(code) for code in codes)


# One single-threaded process forks the victims, so that a kill costs milliseconds.
NURSERY = """
import hashlib, logging, os, random, signal, sys, time
from pathlib import Path
from silo.core.variant import Compiled, CompiledBlob
from silo.core.launch_info import LaunchInfo
from silo.store.store import Store
root, kills = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(7)
ack = os.open(root / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

def victim(who):
    store = Store(root / "store")
    for step in range(1000):
        # Large enough that a kill can cut a write short.
        store.records.append("k", {"who": who, "step": step, "pad": "x" * 700_000})
        os.write(ack, b"record %d %d\\n" % (who, step))
        data = hashlib.sha256(b"%d %d" % (who, step)).digest() * 3000
        job = f"{who * 1000 + step:064x}"
        store.artifacts.put_compiled(job, Compiled(LaunchInfo("f", ()), CompiledBlob("cubin", data)))
        os.write(ack, b"job %s %s\\n" % (job.encode(), hashlib.sha256(data).hexdigest().encode()))

# What one record takes on this disk, so that some victims live long enough to write some.
begin = time.monotonic()
Store(root / "pace").records.append("k", {"pad": "x" * 700_000})
longest_s = max(0.06, 2 * (time.monotonic() - begin))

for who in range(kills):
    pid = os.fork()
    if pid == 0:
        try:
            victim(who)
        finally:
            os._exit(3)
    time.sleep(rng.uniform(0.001, longest_s))
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status), status
"""


def test_fifty_kills_lose_nothing_that_was_acknowledged(tmp_path):
    run(NURSERY, tmp_path, 50)
    store = Store(tmp_path / "store")
    lines = [line.split() for line in (tmp_path / "acknowledged").read_text().splitlines()]
    assert lines, "the victims got work done"
    records = list(store.records.read("k"))
    assert all(len(record["pad"]) == 700_000 for record in records)
    seen = [(record["who"], record["step"]) for record in records]
    assert len(set(seen)) == len(seen)
    acknowledged = {(int(who), int(step)) for kind, who, step in lines if kind == "record"}
    assert acknowledged <= set(seen)
    assert len(seen) - len(acknowledged) <= 50, "at most the one in flight of each victim is there unacknowledged"
    for kind, job, sha256 in lines:
        if kind == "job":
            found = store.artifacts.compiled(job)
            assert found is not None
            assert hashlib.sha256(found.blob.data).hexdigest() == sha256
    assert not list((tmp_path / "store").rglob("damaged/*")), "no damaged entry was ever published"
    store.records.append("k", {"after": 1})
    assert list(store.records.read("k"))[-1] == {"after": 1}
