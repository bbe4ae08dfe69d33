"""What is on its way to a remote store, and records that travel many in one object."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import hashlib
import logging
import random
import threading
import time

import pytest

from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.store.remote import copying
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import blob_name, entry_name, record_name
from silo.store.remote.upload_queue import MOST_FOLDED, UploadQueue, fold_of, line_of, verified_fold
from silo.store.store import Store

KEY = "5" * 64


def machine(folder, address, *, writes=True):
    return Store(folder, RemoteClient(RemoteAddress.parse(address), writes=writes))


def numbers(store):
    return sorted(record["n"] for record in store.records.read(KEY))


def listed(double):
    return [path.rpartition("/")[2] for path in double.files if "/records/" in path]


class Gate:
    """Holds requests of some method back until it is opened."""

    def __init__(self, method):
        self.method, self.opened, self.held = method, threading.Event(), 0

    def __call__(self, handler, path):
        if handler.command == self.method:
            self.held += 1
            assert self.opened.wait(30)
        return False


def test_records_that_wait_for_a_slow_remote_store_travel_in_one_object(tmp_path, double):
    first = machine(tmp_path / "first", double.address)
    double.fault = gate = Gate("MKCOL")
    for number in range(300):
        first.records.append(KEY, {"n": number})
    gate.opened.set()
    assert first.link.flush(20) == 0
    assert len(listed(double)) <= 3
    assert {name.partition(".")[2] for name in listed(double)} - {""}
    second = machine(tmp_path / "second", double.address)
    assert second.records.catch_up([KEY])
    assert numbers(second) == list(range(300))
    # The next look fetches nothing, and nobody sends again what lies in an object with others.
    requests = len(double.requests)
    assert not second.records.catch_up([KEY], follow=True)
    assert not machine(tmp_path / "first", double.address).records.catch_up([KEY])
    assert second.link.flush(10) == 0
    asked = [method for method, _ in double.requests[requests:]]
    assert "PUT" not in asked
    assert (second.link.off, numbers(Store(tmp_path / "first"))) == ("", list(range(300)))


def test_a_record_alone_and_in_a_fold_counts_once_and_a_list_that_was_emptied_is_read_again(tmp_path, share):
    lines = [line_of(KEY, {"n": number}) for number in range(5)]
    folder = share / "records" / KEY
    folder.mkdir(parents=True)
    for some in (lines[:3], lines[2:]):
        name, data = fold_of(some)
        (folder / name).write_bytes(data)
    first = machine(tmp_path / "first", f"file:{share}")
    first.records.append(KEY, {"n": 0})
    assert first.link.flush(10) == 0
    assert first.records.catch_up([KEY], follow=True)
    assert numbers(first) == list(range(5))
    (tmp_path / "first" / "records" / f"{KEY}.jsonl").unlink()
    assert first.records.catch_up([KEY], follow=True)
    assert numbers(first) == list(range(5))


OTHERS = line_of("6" * 64, {"n": 7})
OURS = [line_of(KEY, {"n": number}) for number in range(3)]


@pytest.mark.parametrize(
    ("lines", "change"),
    [
        (OURS, lambda name, data: (name.replace(".3", ".4"), data)),
        (OURS, lambda name, data: (name, data[:-1])),
        (OURS, lambda name, data: (name, data.replace(b'"n":1', b'"n":8'))),
        ([*OURS[:2], OTHERS], lambda name, data: (name, data)),
        ([*OURS[:2], OURS[2][:-5]], lambda name, data: (name, data)),
        ([*OURS[:2], OURS[2][:-5] + b"\n"], lambda name, data: (name, data)),
        ([*OURS[:2], b"\n"], lambda name, data: (name, data)),
        (OURS, lambda name, data: (name, b"x" * (MOST_FOLDED + 1))),
    ],
)
def test_a_fold_that_is_not_what_its_name_says_counts_as_absent(tmp_path, share, caplog, lines, change):
    folder = share / "records" / KEY
    folder.mkdir(parents=True)
    name, data = change(*fold_of(lines))
    (folder / name).write_bytes(data)
    first = machine(tmp_path / "first", f"file:{share}")
    Store(tmp_path / "first").records.append(KEY, {"n": 1})
    with caplog.at_level(logging.WARNING, "silo.store"):
        for _ in range(3):
            first.records.catch_up([KEY], follow=True)
    assert caplog.text.count("counts as absent") == 1
    assert (numbers(first), first.link.off) == ([1], "")
    assert first.link.flush(10) == 0
    if len(data) <= MOST_FOLDED:  # one that cannot be read may hold the line
        assert (folder / record_name(KEY, fold_of(OURS[1:2])[0].partition(".")[0]).rpartition("/")[2]).exists()
    bad = {row.part: row for row in copying.check_remote(machine(tmp_path / "other", f"file:{share}").link)}["records"]
    assert [which for which, _ in bad.bad] == [f"records/{KEY}/{name}"]


def test_a_fold_holds_what_was_folded():
    name, data = fold_of(OURS)
    assert list(verified_fold(KEY, name, data).values()) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_pushed_records_travel_folded_and_once(tmp_path, double):
    own = Store(tmp_path / "first")
    for number in range(2000):
        own.records.append(KEY, {"n": number, "much": "x" * 300})
    rows = {
        row.part: row
        for row in copying.push(tmp_path / "first", RemoteClient(RemoteAddress.parse(double.address), writes=True))
    }
    assert (rows["records"].copied, rows["records"].there) == (2000, 0)
    assert 3 <= len(listed(double)) <= 6
    own.records.append(KEY, {"n": 2000})
    rows = {
        row.part: row
        for row in copying.push(tmp_path / "first", RemoteClient(RemoteAddress.parse(double.address), writes=True))
    }
    assert (rows["records"].copied, rows["records"].there) == (1, 2000)
    assert all(
        not row.bad for row in copying.check_remote(RemoteClient(RemoteAddress.parse(double.address), writes=True))
    )
    second = machine(tmp_path / "second", double.address)
    for expected in ((2001, 0, 0), (0, 2001, 0)):
        rows = copying.pull(tmp_path / "second", second.artifacts, second.records, second.link)
        found = {row.part: row for row in rows}["records"]
        assert (found.copied, found.there, found.left) == expected
    assert numbers(second) == list(range(2001))


def test_an_outcome_is_sent_when_its_code_is_there_and_code_goes_side_by_side(tmp_path, double):
    problems, at_once = [], 0
    lock = threading.Lock()
    three_at_once = threading.Event()

    def watch(handler, path):
        nonlocal at_once
        if handler.command != "PUT":
            return False
        with lock:
            at_once += 1
            if at_once > 2:
                three_at_once.set()
        if "/blobs/" in path:
            three_at_once.wait(30)
        with lock:
            at_once -= 1
            if "/jobs/" in path and "/blobs/" not in path:
                there = {name.rpartition("/")[2] for name in double.files if "/blobs/" in name}
                folder = path.rpartition("/")[0].rpartition("/")[2]
                problems.extend(sha for job, shas in jobs.items() if job[:2] == folder for sha in shas - there)
        return False

    jobs = {}
    double.fault = watch
    first = machine(tmp_path / "first", double.address)
    for number in range(24):
        job = f"{number:02x}" * 32
        made = Compiled(
            LaunchInfo("f", ()),
            CompiledBlob("cubin", b"code %d" % number),
            (CompiledBlob("ttir", b"t%d" % number),),
            "",
        )
        jobs[job] = {hashlib.sha256(blob.data).hexdigest() for blob in (made.blob, *made.sidecars)}
        first.artifacts.put_compiled(job, made)
    assert first.link.flush(60) == 0
    assert problems == []
    assert three_at_once.is_set()
    names = set(double.files)
    for job, shas in jobs.items():
        assert f"/cache/{entry_name('jobs', job)}" in names
        assert {f"/cache/{blob_name(sha)}" for sha in shas} <= names


def test_reading_a_list_that_is_followed_never_waits_for_the_remote_store(tmp_path, double, monkeypatch):
    from silo.store.remote import shared_parts

    monkeypatch.setattr(shared_parts, "_EVERY_S", 0.0)
    monkeypatch.setattr(shared_parts, "_SHARE", 0)
    first, second = machine(tmp_path / "first", double.address), machine(tmp_path / "second", double.address)
    second.records.catch_up([KEY], follow=True)
    first.records.append(KEY, {"n": 1})
    assert first.link.flush(10) == 0
    double.fault = gate = Gate("PROPFIND")
    assert numbers(second) == []  # it would wait for the gate
    assert numbers(second) == []
    gate.opened.set()
    end = time.monotonic() + 20
    while numbers(second) != [1] and time.monotonic() < end:
        time.sleep(0.01)
    assert numbers(second) == [1]
    assert gate.held >= 1


def test_what_a_remote_store_does_not_take_any_more_is_forgotten():
    sent, told = [], []

    def deliver(name, data):
        sent.append(name)
        time.sleep(0.05)
        return False

    outbox = UploadQueue(deliver, lambda count, why: told.append((count, why)))
    for number in range(100):
        outbox.put(f"blobs/00/{number}", b"x")
        outbox.put(f"records/k/{number}", b"x\n")
        outbox.put(f"jobs/00/{number}", b"x")
    assert outbox.flush(10) == 0
    assert len(sent) < 30


def test_records_go_beside_each_other_when_somebody_waits_for_all_of_them():
    """A program that ends waits for one answer then, and not for one after the other."""
    first, second = threading.Event(), threading.Event()

    def deliver(name, data):
        (first if data == b"1\n" else second).set()
        return second.wait(30) if data == b"1\n" else True

    outbox = UploadQueue(deliver, lambda *_: pytest.fail("all is sent"))
    outbox.put("records/k/1", b"1\n")
    assert first.wait(30)
    outbox.put("records/k/2", b"2\n")
    assert not second.wait(0.2)
    assert outbox.flush(30) == 0
    assert second.is_set()


def test_a_remote_store_is_reached_before_it_is_needed(tmp_path, double):
    store = machine(tmp_path / "one", double.address)
    store.link.reach()
    end = time.monotonic() + 20
    while not double.requests and time.monotonic() < end:
        time.sleep(0.01)
    assert [method for method, _ in double.requests] == ["OPTIONS"]
    store.records.catch_up([KEY])
    assert [method for method, _ in double.requests].count("OPTIONS") == 1


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_sent_twice_whatever_the_order(seed):
    chance, lock, sent = random.Random(seed), threading.Lock(), []
    expected = {"blobs": [], "jobs": [], "records": []}

    def deliver(name, data):
        time.sleep(chance.random() / 2000)
        with lock:
            sent.append((name, data))
        return True

    def put(first):
        for number in range(first, first + 200):
            part, data = chance.choice([*expected]), b"%d\n" % number
            expected[part].append(data)
            outbox.put(f"{part}/{number % 3}/{number}", data)

    outbox = UploadQueue(deliver, lambda *_: pytest.fail("all is sent"))
    threads = [threading.Thread(target=put, args=(first,)) for first in range(0, 800, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outbox.flush(20) == 0
    for part in ("blobs", "jobs"):
        assert sorted(data for name, data in sent if name.startswith(part)) == sorted(expected[part])
    lines = [
        (name.split("/")[1], line)
        for name, data in sent
        if name.startswith("records")
        for line in data.splitlines(keepends=True)
    ]
    assert sorted(line for _, line in lines) == sorted(expected["records"])
    assert all(int(folder) == int(line) % 3 for folder, line in lines)
