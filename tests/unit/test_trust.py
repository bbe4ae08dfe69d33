import logging
from dataclasses import replace

import pytest

from silo.artifacts.artifact import BlobRef
from silo.core.compiled import Compiled, CompiledBlob
from silo.core.decisions import Accepted, Rejected
from silo.core.launch_info import LaunchInfo
from silo.errors import TrustError
from silo.store.store import MemoryStore, Store
from silo.store.trust import is_private, may_load

A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.mark.parametrize(
    ("sha256", "trust", "expected"),
    [
        (A, False, "built here"),
        (A, True, "built here"),
        (B, False, "trusted with 'silo trust'"),
        (C, True, "the caller passed trust=True"),
        (C, False, None),
    ],
)
def test_who_vouches(sha256, trust, expected):
    decision = may_load(sha256, built={A}, trusted={B}, trust=trust)
    if expected is None:
        assert isinstance(decision, Rejected)
    else:
        assert decision == Accepted(expected)


@pytest.mark.parametrize(
    ("mode", "owner", "private"),
    [
        (0o100600, 7, True),
        (0o100644, 7, True),
        (0o100620, 7, False),
        (0o100602, 7, False),
        (0o100600, 8, False),
        (0o100600, 0, False),
    ],
)
def test_only_what_is_the_users_own_is_believed(mode, owner, private):
    assert bool(is_private(mode, owner, 7)) is private


def compiled(kind="so", data=b"native code"):
    return Compiled(LaunchInfo("f", ()), CompiledBlob(kind, data), (CompiledBlob("c", b"int f;"),))


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    return Store(tmp_path / "store") if request.param == "disk" else MemoryStore()


def test_what_was_compiled_here_may_be_loaded(store):
    outcome = store.artifacts.put_compiled("1" * 64, compiled())
    store.trust.require(outcome.refs, origin="k.silo")
    assert store.trust.decide(outcome.blob.sha256) == Accepted("built here")


def test_a_blob_that_was_only_put_may_not(store):
    ref = BlobRef(store.blobs.put(b"from a bundle"), "so", 13)
    with pytest.raises(TrustError, match=r"(?s)k\.silo brings native code.*silo trust k\.silo.*trust=True"):
        store.trust.require([ref], origin="k.silo")
    store.trust.require([ref], origin="k.silo", trust=True)
    assert not store.trust.decide(ref.sha256), "trust=True is for one load"


def test_device_code_needs_no_trust(store):
    store.trust.require([BlobRef(A, "cubin", 5), BlobRef(B, "c", 5)], origin="k.silo")


def test_trusting_a_file_covers_its_host_code_and_is_noted_once(store):
    refs = [BlobRef(A, "so", 5), BlobRef(B, "so", 5), BlobRef(C, "cubin", 5)]
    assert store.trust.note_trusted(refs, "k.silo") == 2
    assert store.trust.note_trusted(refs, "k.silo") == 0
    store.trust.require(refs, origin="k.silo")
    assert store.trust.decide(A) == Accepted("trusted with 'silo trust'")
    assert not store.trust.decide(C)


def test_one_untrusted_blob_refuses_all(store):
    store.trust.note_trusted([BlobRef(A, "so", 5)], "k.silo")
    with pytest.raises(TrustError) as caught:
        store.trust.require([BlobRef(A, "so", 5), BlobRef(B, "so", 5)], origin="k.silo")
    assert B[:16] in str(caught.value)
    assert A[:16] not in str(caught.value)


def test_trust_is_kept_and_moves_with_the_store(tmp_path):
    store = Store(tmp_path / "one")
    outcome = store.artifacts.put_compiled("1" * 64, compiled())
    store.trust.note_trusted([BlobRef(B, "so", 5)], "k.silo")
    (tmp_path / "one").rename(tmp_path / "two")
    moved = Store(tmp_path / "two")
    assert moved.trust.decide(outcome.blob.sha256)
    assert moved.trust.decide(B)


def test_another_process_sees_new_trust_without_reopening(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    assert not second.trust.decide(B)
    first.trust.note_trusted([BlobRef(B, "so", 5)], "k.silo")
    assert second.trust.decide(B)


@pytest.mark.parametrize("which", [".", "trust", "trust/trusted.jsonl"])
def test_lists_that_others_may_write_are_not_believed(tmp_path, caplog, which):
    Store(tmp_path / "s").trust.note_trusted([BlobRef(B, "so", 5)], "k.silo")
    path = tmp_path / "s" / which
    path.chmod(path.stat().st_mode | 0o022)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert not Store(tmp_path / "s").trust.decide(B)
    assert "others may write it" in caplog.text


def test_a_damaged_ledger_line_vouches_for_nothing(tmp_path):
    Store(tmp_path).trust.note_trusted([BlobRef(B, "so", 5)], "k.silo")
    path = tmp_path / "trust" / "trusted.jsonl"
    path.write_bytes(path.read_bytes().replace(B.encode(), C.encode()))
    store = Store(tmp_path)
    assert not store.trust.decide(B)
    assert not store.trust.decide(C)


def test_the_job_kept_for_other_code_vouches_for_its_own_bytes_only(store):
    store.artifacts.put_compiled("1" * 64, compiled())
    other = replace(compiled(), blob=CompiledBlob("so", b"other"))
    ref = BlobRef(store.blobs.put(other.blob.data), "so", 5)
    assert not store.trust.decide(ref.sha256)
