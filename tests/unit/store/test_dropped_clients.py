"""A client of a remote store that nobody holds any more: its connections close and its threads end."""

import contextlib
import gc
import os
import threading
import time
from pathlib import Path

import pytest

from silo.store.remote import upload_queue
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient, ThreadPool
from silo.store.remote.object_protocol import blob_name
from web_double import web_double

NAMES = [blob_name(f"{number:064x}") for number in range(8)]


def threads():
    return [one for one in threading.enumerate() if one.name.startswith(("silo-remote", "silo-outbox"))]


def connections(address):
    """The sockets of this process that are connected to a port, as the kernel lists them."""
    port = f":{int(address.rpartition(':')[2].strip('/').partition('/')[0]):04X}"
    inodes = {
        row.split()[9] for row in Path("/proc/net/tcp").read_text().splitlines()[1:] if row.split()[2].endswith(port)
    }
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            link = str(one.readlink())
            found += link.startswith("socket:[") and link[8:-1] in inodes
    return found


@pytest.fixture(autouse=True)
def no_threads_of_other_tests():
    assert until(lambda: not threads())


def until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.02)
    return true()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are counted by Linux's list")
def test_connections_and_threads_end_with_their_client(monkeypatch):
    monkeypatch.setattr(upload_queue, "_IDLE_S", 0.1)
    with web_double() as double:
        before = len(threads())
        for turn in range(3):
            client = RemoteClient(RemoteAddress.parse(double.address), writes=True)
            assert client.get_each(NAMES, 100) == (dict.fromkeys(NAMES, b"data") if turn else {})
            for name in NAMES:
                client.send(name, b"data")
            assert client.flush(20) == 0
            assert client.list("blobs").names
            assert len(threads()) > before
            assert connections(double.address) >= 1
            del client
            assert until(lambda: len(threads()) <= before and connections(double.address) == 0), threads()


def test_what_is_queued_is_sent_though_nobody_holds_the_client(monkeypatch):
    monkeypatch.setattr(upload_queue, "_IDLE_S", 0.1)
    with web_double() as double:
        client = RemoteClient(RemoteAddress.parse(double.address), writes=True)
        for name in NAMES:
            client.send(name, b"data")
        del client
        assert until(lambda: len(double.files) == len(NAMES))


def test_a_queue_whose_threads_have_ended_begins_anew(monkeypatch):
    monkeypatch.setattr(upload_queue, "_IDLE_S", 0.05)
    with web_double() as double:
        client = RemoteClient(RemoteAddress.parse(double.address), writes=True)
        for name in NAMES[:3]:
            client.send(name, b"data")
            assert client.flush(20) == 0
            assert until(lambda: not any(one.name.startswith("silo-outbox") for one in threads()))
        assert len(double.files) == 3


def test_the_threads_of_a_pool_end_with_it_and_not_before_its_jobs():
    done, before = [], len(threads())
    pool = ThreadPool(4)
    for number in range(20):
        pool.start(lambda number=number: (time.sleep(0.01), done.append(number)))
    assert len(threads()) <= before + 4
    del pool
    assert until(lambda: sorted(done) == list(range(20)) and len(threads()) <= before)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="sockets are counted by Linux's list")
def test_a_child_made_by_fork_closes_its_copies_and_leaves_its_parents_open():
    with web_double() as double:
        client = RemoteClient(RemoteAddress.parse(double.address), writes=False)
        assert client.get_each(NAMES, 100) == {}
        kept = connections(double.address)
        assert kept >= 1
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(connections(double.address))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert connections(double.address) == kept
        assert client.get_each(NAMES, 100) == {}
        assert not client.off
