"""Pruning a remote store: losing configs first, never under a reader, and what is left can be used."""

import time

import pytest

from pruned_stores import keep_kernel, key_of, ledger_study
from silo.errors import RemoteError, StoreError
from silo.store.remote import remote_pruning
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient
from silo.store.remote.remote_pruning import LeaseHolder, holding_lease, leases_of, prune_remote, remote_records
from silo.store.store import Store
from silo.store.upkeep import KEPT_RIVALS
from silo.tuner.ledger import read_trials


def link_to(address, *, writes=True):
    return RemoteClient(RemoteAddress.parse(address), writes=writes)


@pytest.fixture(params=["folder", "web"])
def address(request, share, double):
    return f"file:{share}" if request.param == "folder" else double.address


@pytest.fixture
def filled(tmp_path, address):
    """A remote store with two kernels of twelve configs, in which config 0 is the fastest."""
    store = Store(tmp_path / "writer", link_to(address))
    for kernel in ("k", "other"):
        keep_kernel(store, kernel, 12, size=5000)
    assert store.link.flush(60) == 0
    return address


def code_there(tmp_path, address, kernel, name="reader"):
    """The configs whose code another machine can fetch."""
    store = Store(tmp_path / name, link_to(address))
    return [number for number in range(12) if store.artifacts.get(key_of(kernel, number)) is not None]


def test_losing_configs_lose_their_code_and_keep_their_trials(tmp_path, filled):
    link = link_to(filled)
    found = prune_remote(link, None, losers_alone=True)
    losing = 12 - 1 - KEPT_RIVALS
    assert (found.blobs, found.entries) == (2 * losing, 2 * losing)
    assert code_there(tmp_path, filled, "k") == list(range(1 + KEPT_RIVALS))
    records = remote_records(link)
    assert len(read_trials(ledger_study("k"), records)) == 12
    assert not leases_of(link), "its own lease has ended"
    assert prune_remote(link, None, losers_alone=True).blobs == 0


def test_a_size_takes_losing_configs_first(tmp_path, filled):
    link = link_to(filled)
    whole = prune_remote(link, 1 << 30)
    assert whole.freed_bytes == 0
    limit = whole.left_bytes - 10_000
    found = prune_remote(link, limit)
    assert limit - 5000 < found.left_bytes <= limit
    assert set(range(1 + KEPT_RIVALS)) <= set(code_there(tmp_path, filled, "k"))
    found = prune_remote(link, 0)
    assert found.left_bytes < 12 * 2 * 2000, "descriptions of artifacts"
    assert code_there(tmp_path, filled, "k", "later") == []


def test_an_age_counts_from_the_last_trial(filled):
    link = link_to(filled)
    assert prune_remote(link, None, older_than_s=int(time.time()) - 3600).blobs == 0
    assert prune_remote(link, None, losers_alone=True, older_than_s=int(time.time()) + 3600).blobs > 0


def test_nobody_prunes_under_a_reader(filled):
    reader, pruner = link_to(filled), link_to(filled)
    with holding_lease(reader, "tune"):
        with pytest.raises(StoreError, match="is in use, so it is not pruned: silo tune on"):
            prune_remote(pruner, 0)
        assert len(leases_of(reader)) == 1, "the lease of the refused pruning has ended"
    assert prune_remote(pruner, 0).blobs > 0


def test_a_pruning_stops_when_a_reader_begins(filled, monkeypatch):
    monkeypatch.setattr("silo.store.remote.remote_pruning._BATCH", 6)
    reader, pruner = link_to(filled), link_to(filled)
    real, seen = pruner.remove_each, []

    def remove_each(names):
        done = real(names)
        seen.extend(names)
        if len(seen) == 6:
            LeaseHolder(reader, "tune", 60).begin()
        return done

    monkeypatch.setattr(pruner, "remove_each", remove_each)
    with pytest.raises(StoreError, match="in use"):
        prune_remote(pruner, 0)
    assert len([name for name in seen if not name.startswith("leases/")]) == 6


def test_two_prunings_at_once_are_one(filled):
    first = LeaseHolder(link_to(filled), "prune", 60)
    assert first.begin()
    with pytest.raises(StoreError, match="silo prune on"):
        prune_remote(link_to(filled), 0)
    first.end()


def test_a_lease_of_a_killed_process_ends_by_itself_and_is_removed(filled, monkeypatch):
    link = link_to(filled)
    monkeypatch.setattr(remote_pruning, "_SKEW_S", -10)  # it ended, by so much
    assert LeaseHolder(link, "tune", 0).begin()
    assert prune_remote(link, 1 << 30).freed_bytes == 0
    assert not link.list("leases").names


def test_a_lease_is_renewed(filled):
    link = link_to(filled)
    holder = LeaseHolder(link, "tune", 100_000)
    holder.begin()
    holder.keep()
    assert link.flush(10) == 0
    assert len(leases_of(link)) == 1, "not before a third of its time has passed"
    holder._due_s = 0
    time.sleep(1.1)  # its name has the second of its end
    holder.keep()
    assert link.flush(10) == 0
    assert len(leases_of(link)) == 2
    holder.end()
    assert not leases_of(link)


def test_a_store_that_is_only_read_is_not_pruned(filled):
    with pytest.raises(StoreError, match="SILO_REMOTE_MODE=read"):
        prune_remote(link_to(filled, writes=False), 0)
    with holding_lease(link_to(filled, writes=False), "tune") as holder:
        assert holder is None


def test_the_probe_writes_reads_and_removes(address, tmp_path):
    link = link_to(address)
    link.probe_write()
    assert not link.list("blobs").names


def test_the_probe_finds_a_store_that_takes_nothing(share, monkeypatch):
    link = link_to(f"file:{share}")
    objects = link._opened()

    def full(*_):
        raise RemoteError("it answers: OOM command not allowed when used memory > 'maxmemory'", kind="refused")

    monkeypatch.setattr(objects, "put", full)
    with pytest.raises(RemoteError, match="it answers and takes nothing: it answers: OOM"):
        link.probe_write()
