# pyright: reportCallIssue=false

import json
import logging

import pytest

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.config import Config
from silo.core.consent import Consent, HostCode, require_consent
from silo.core.decisions import Accepted, Rejected
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Compiled, CompiledBlob, Variant
from silo.errors import TrustError
from silo.frozen import replace
from silo.store.store import MemoryStore, Store
from silo.store.trust_ledger import consent_to_confirmed, may_load

A, B, C = "a" * 64, "b" * 64, "c" * 64
LAUNCH = LaunchInfo("f", (LayoutSlot("x", AbiType.POINTER), LayoutSlot("n", AbiType.I32)), scratch_bytes=64)
SIGNATURE = Signature(
    (
        Parameter("x", ParameterKind.POINTER, dtype("float32"), Effect.WRITE),
        Parameter("n", ParameterKind.INTEGER, dtype("int32")),
    )
)


def code(blob=A, **changes):
    made = HostCode(blob, "so", LAUNCH, SIGNATURE, Specialization((("x", Fact.ALIGNED_16),)), C, {"grid": [1]})
    return replace(made, **changes)


# Every way in which a bundle may lie about code that was vouched for.
LIES = {
    "other bytes": {"blob": B},
    "kind": {"kind": "c"},
    "entry": {"launch": replace(LAUNCH, entry="abort")},
    "layout too short": {"launch": replace(LAUNCH, layout=LAUNCH.layout[:1])},
    "no layout": {"launch": replace(LAUNCH, layout=())},
    "an integer for a pointer": {
        "launch": replace(LAUNCH, layout=(LayoutSlot("n", AbiType.I64), *LAUNCH.layout[1:])),
    },
    "less scratch": {"launch": replace(LAUNCH, scratch_bytes=0)},
    "chunks": {"launch": replace(LAUNCH, options=(("cpu_chunk", 1),))},
    "dtype": {
        "signature": Signature(
            (Parameter("x", ParameterKind.POINTER, dtype("int8"), Effect.WRITE), *SIGNATURE.parameters[1:])
        )
    },
    "effect": {"signature": SIGNATURE.with_effects({"x": Effect.READ})},
    "default": {"signature": Signature((SIGNATURE.parameters[0], replace(SIGNATURE.parameters[1], default=1 << 20)))},
    "no signature": {"signature": None},
    "specialization": {"specialization": Specialization()},
    "text": {"text": B},
    "no text": {"text": ""},
    "grid": {"calls": {"grid": [2]}},
    "calls": {"calls": None},
}


@pytest.mark.parametrize(
    ("digest", "trust", "expected"),
    [
        (A, False, "built here"),
        (A, True, "built here"),
        (B, False, "trusted with 'silo trust'"),
        (C, True, "the caller passed trust=True"),
        (C, False, None),
    ],
)
def test_who_vouches(digest, trust, expected):
    decision = may_load(digest, built={A}, trusted={B}, trust=trust)
    if expected is None:
        assert isinstance(decision, Rejected)
    else:
        assert decision == Accepted(expected)


def compiled(kind="so", data=b"native code"):
    return Compiled(LAUNCH, CompiledBlob(kind, data), (CompiledBlob("c", b"int f;"), CompiledBlob("ttir", b"module")))


def built(store, job="1" * 64, **changes):
    """The artifact of a kernel that ``store`` compiled."""
    outcome = store.artifacts.put_compiled(job, compiled())
    variant = Variant("f", A, SIGNATURE, Specialization(), Config.of(), Target.parse("cpu:x86-64-v2"))
    artifact = Artifact(variant, outcome.launch, outcome.blob, outcome.sidecars, "made-up 1.0", job)
    store.artifacts.put(job, replace(artifact, **changes))
    return artifact


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    return Store(tmp_path / "store") if request.param == "disk" else MemoryStore()


def test_what_was_compiled_here_may_be_loaded(store):
    artifact = built(store)
    consent = store.trust.vouch(artifact.host_code(), origin="k.silo")
    assert consent.reason == "built here"
    require_consent(consent, artifact.launch, b"native code", "so", "f")
    assert store.artifacts.get("1" * 64) == artifact


def test_a_bundle_around_code_that_was_built_here_is_not_what_was_built(store):
    artifact = built(store)
    assert not store.trust.decide(artifact.host_code({"grid": []}))


@pytest.mark.parametrize("lie", LIES)
def test_nothing_of_what_was_vouched_for_may_differ(store, lie):
    store.trust.note_trusted([(code(), "f for cpu")], "k.silo")
    store.trust.note_built(code())
    assert store.trust.decide(code())
    assert not store.trust.decide(code(**LIES[lie]))


def test_a_blob_that_was_only_put_may_not(store):
    ref = BlobRef(store.blobs.put(b"from a bundle"), "so", 13)
    with pytest.raises(TrustError, match=r"(?s)k\.silo brings native code.*silo trust k\.silo.*trust=True"):
        store.trust.vouch(code(ref.sha256), origin="k.silo")
    assert store.trust.vouch(code(ref.sha256), origin="k.silo", trust=True).reason == "the caller passed trust=True"
    assert not store.trust.decide(code(ref.sha256)), "trust=True is for one load"


def test_native_code_in_the_store_that_nobody_built_here_is_a_miss(tmp_path, caplog):
    """Whoever could write entries and blobs has no say in what runs."""
    theirs, mine = Store(tmp_path / "theirs"), Store(tmp_path / "mine")
    built(theirs)
    built(mine, job="2" * 64)
    for part in ("artifacts", "jobs"):
        path = tmp_path / "mine" / part / "11"
        (tmp_path / "theirs" / part / "11").rename(path)
    for path in (tmp_path / "theirs" / "blobs").rglob("*"):
        target = tmp_path / "mine" / path.relative_to(tmp_path / "theirs")
        if path.is_file() and not target.exists():
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
    # The same code is known, and the same interface; a lie about it is not.
    assert mine.artifacts.get("1" * 64) is not None
    shown = mine.artifacts._artifacts.get("1" * 64)
    shown["value"]["launch"]["entry"] = "abort"
    mine.artifacts._artifacts.put("1" * 64, shown)
    shown = mine.artifacts._jobs.get("1" * 64)
    shown["value"]["launch"]["layout"] = []
    mine.artifacts._jobs.put("1" * 64, shown)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert mine.artifacts.get("1" * 64) is None
        assert mine.artifacts.outcome("1" * 64) is None
        assert mine.artifacts.compiled("1" * 64) is None
    assert len(caplog.records) == 1
    assert "nobody here built it" in caplog.text


def test_trusting_a_file_is_noted_once_and_listed(store):
    codes = [(code(A), "f for cpu:x86-64-v2"), (code(B), "g for cpu:x86-64-v2")]
    assert store.trust.note_trusted(codes, "k.silo") == 2
    assert store.trust.note_trusted(codes, "k.silo") == 0
    store.trust.require([one for one, _ in codes], origin="k.silo")
    assert store.trust.decide(code(A)) == Accepted("trusted with 'silo trust'")
    assert not store.trust.decide(code(C))
    first, second = store.trust.trusted()
    assert (first.digest, first.blob, first.kernel, first.origin) == (
        code(A).digest,
        A,
        "f for cpu:x86-64-v2",
        "k.silo",
    )
    assert second.since >= first.since > 1.7e9


@pytest.mark.parametrize("named", [code(A).digest, A])
def test_a_word_is_taken_back_and_may_be_given_again(store, named):
    store.trust.note_trusted([(code(A), "f"), (code(B), "g")], "k.silo")
    assert store.trust.untrust([named]) == 1
    assert store.trust.untrust([named]) == 0
    assert not store.trust.decide(code(A))
    assert store.trust.decide(code(B))
    assert [one.blob for one in store.trust.trusted()] == [B]
    assert store.trust.note_trusted([(code(A), "f")], "k.silo") == 1
    assert store.trust.decide(code(A))


def test_what_was_built_here_is_not_trusted_for_ever_either(tmp_path):
    store = Store(tmp_path)
    store.trust.note_built(code(A), code(B))
    assert store.trust.untrust([code(A).digest]) == 1
    again = Store(tmp_path)
    assert not again.trust.decide(code(A))
    assert again.trust.decide(code(B))
    again.trust.note_built(code(A))
    assert Store(tmp_path).trust.decide(code(A))


def test_one_untrusted_code_refuses_all(store):
    store.trust.note_trusted([(code(A), "f")], "k.silo")
    with pytest.raises(TrustError) as caught:
        store.trust.require([code(A), code(B)], origin="k.silo")
    assert B[:16] in str(caught.value)
    assert A[:16] not in str(caught.value)


def test_a_refusal_of_much_code_is_short(store):
    with pytest.raises(TrustError, match="and 97 more") as caught:
        store.trust.require([code(f"{number:02x}" * 32) for number in range(100)], origin="k.silo")
    assert len(str(caught.value)) < 600


def test_trust_is_kept_and_moves_with_the_store(tmp_path):
    store = Store(tmp_path / "one")
    artifact = built(store)
    store.trust.note_trusted([(code(B), "f")], "k.silo")
    (tmp_path / "one").rename(tmp_path / "two")
    moved = Store(tmp_path / "two")
    assert moved.trust.decide(artifact.host_code())
    assert moved.trust.decide(code(B))


def test_another_process_sees_new_trust_without_reopening(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    assert not second.trust.decide(code(B))
    first.trust.note_trusted([(code(B), "f")], "k.silo")
    assert second.trust.decide(code(B))


def test_a_list_that_did_not_change_is_read_once(tmp_path, monkeypatch):
    Store(tmp_path).trust.note_built(code(A))
    store = Store(tmp_path)
    reads = []
    records, read = store.trust._records, store.trust._records.read
    monkeypatch.setattr(records, "read", lambda name: reads.append(name) or read(name))
    Store(tmp_path).trust.note_trusted([(code(B), "f")], "k.silo")
    for _ in range(3):
        assert store.trust.decide(code(A))
        assert store.trust.decide(code(B))
        assert not store.trust.decide(code(C))
    assert sorted(reads) == ["built", "trusted"]


@pytest.mark.parametrize("which", [".", "trust", "trust/trusted.jsonl"])
def test_lists_that_others_may_write_are_not_believed(tmp_path, caplog, which):
    Store(tmp_path / "s").trust.note_trusted([(code(B), "f")], "k.silo")
    path = tmp_path / "s" / which
    path.chmod(path.stat().st_mode | 0o022)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert not Store(tmp_path / "s").trust.decide(code(B))
    assert "others may write it" in caplog.text


def test_a_damaged_ledger_line_vouches_for_nothing(tmp_path):
    Store(tmp_path).trust.note_trusted([(code(B), "f")], "k.silo")
    path = tmp_path / "trust" / "trusted.jsonl"
    path.write_bytes(path.read_bytes().replace(code(B).digest.encode(), code(C).digest.encode()))
    store = Store(tmp_path)
    assert not store.trust.decide(code(B))
    assert not store.trust.decide(code(C))


@pytest.mark.parametrize(
    "record",
    [1, [], {}, {"built": 5}, {"built": [5, [A]]}, {"trusted": [[A], 5, [A, B, 3]]}, {"untrusted": {}}, {"sha256": 5}],
)
def test_a_record_that_makes_no_sense_says_nothing(store, record):
    for name in ("built", "trusted"):
        store.trust._records.append(name, record)
    assert not store.trust.decide(code())
    assert store.trust.trusted() == ()


def test_notes_of_an_older_silo_give_no_consent_and_the_refusal_says_so(store):
    store.trust._records.append("built", {"sha256": A, "kind": "so"})
    store.trust._records.append("trusted", {"sha256": B, "kind": "so", "origin": "k.silo"})
    for blob, how in ((A, "built here"), (B, "trusted")):
        with pytest.raises(TrustError, match=rf"its bytes are known here \(it was {how}\), and an older Silo noted"):
            store.trust.vouch(code(blob), origin="k.silo")
    (old,) = store.trust.trusted()
    assert (old.digest, old.blob, old.origin, old.since) == ("", B, "k.silo", 0)
    assert store.trust.untrust([B]) == 1
    assert store.trust.trusted() == ()


def test_an_older_silo_passes_over_our_notes(tmp_path):
    """It takes any record with a ``sha256`` for a blob's."""
    store = Store(tmp_path)
    store.trust.note_built(code(A))
    store.trust.note_trusted([(code(B), "f")], "k.silo")
    store.trust.untrust([code(B).digest])
    for path in (tmp_path / "trust").iterdir():
        for line in path.read_text().splitlines():
            assert "sha256" not in json.loads(line.split(" ", 2)[2])


def test_the_job_kept_for_other_code_vouches_for_its_own_bytes_only(store):
    outcome = store.artifacts.put_compiled("1" * 64, compiled())
    assert store.trust.decide(outcome.host_code)
    ref = BlobRef(store.blobs.put(b"other"), "so", 5)
    assert not store.trust.decide(replace(outcome, blob=ref).host_code)


def test_consent_is_given_by_the_ledger_alone(store):
    store.trust.note_built(code())
    consent = store.trust.vouch(code(), origin="k.silo")
    with pytest.raises(TypeError, match="not made"):
        Consent(code(), "mine")
    with pytest.raises(AttributeError):
        consent.code = code(B)
    with pytest.raises(TypeError):
        consent.__reduce__()


def test_consent_of_another_process_is_to_what_arrived():
    assert consent_to_confirmed(code(), code().digest, "the parent").code == code()
    for digest in (code(B).digest, "", None, 0):
        with pytest.raises(TrustError, match="f: the parent has given no consent"):
            consent_to_confirmed(code(), digest, "the parent")
