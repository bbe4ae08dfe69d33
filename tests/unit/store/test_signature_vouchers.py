"""Keys, signatures, and the word of the trust ledger for what a trusted key signs."""

import os
import stat
import subprocess
import sys

import pytest

pytest.importorskip("cryptography", reason="signatures need kernel-silo[sign]")

from made_keys import HEADER, OTHER, SECRET, minisign, resigned, without_cryptography
from silo.core.consent import HostCode
from silo.core.decisions import Accepted, Rejected
from silo.core.launch_info import LaunchInfo
from silo.core.minisign import MinisignSignature, PublicKey
from silo.errors import PackageError, SignatureError, TrustError
from silo.frozen import replace
from silo.store.signatures import (
    ScryptLimits,
    SignedFile,
    check_signature,
    make_key_files,
    read_public_key,
    read_secret_key,
    signer_among,
)
from silo.store.store import MemoryStore, Store
from silo.store.trust_ledger import may_load

CODE = HostCode("a" * 64, "so", LaunchInfo("f", ()))
LIGHT = ScryptLimits(1 << 15, 1 << 24)  # what minisign asks for takes seconds and a gigabyte


def no_encryption():
    return None


def no_password():
    raise AssertionError("nobody is to ask for a password")


def file_of(signature, header=HEADER):
    data = signature if not isinstance(signature, MinisignSignature) else signature.file_bytes("a comment")
    return SignedFile(header, "k.silo.minisig", lambda: data)


def good():
    return SECRET.sign(HEADER, "the comment")


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    return Store(tmp_path / "store") if request.param == "disk" else MemoryStore()


def decide(store, file):
    return store.trust.decide(CODE, signed=lambda: store.trust.keys.decide(file))


# ---- signatures ----


def test_a_signature_is_of_one_message_by_one_key():
    assert check_signature(good(), SECRET.public, HEADER) == Accepted(f"signed by {SECRET.public.id}")
    assert not check_signature(good(), SECRET.public, HEADER[:-1] + b"x")
    assert "not by" in check_signature(good(), OTHER.public, HEADER).reason
    # A key of another maker may have the same number.
    assert not check_signature(good(), replace(OTHER.public, number=SECRET.number), HEADER)
    assert good() == good(), "nothing of it is random"


@pytest.mark.parametrize(
    "change",
    [
        {"comment": b"another comment"},
        {"comment_signature": bytes(64)},
        {"data": bytes(64)},
        {"number": OTHER.number},
        {"data": good().comment_signature, "comment_signature": good().data},
    ],
)
def test_every_part_is_covered(change):
    assert not check_signature(replace(good(), **change), SECRET.public, HEADER)


def test_a_scalar_beyond_the_order_of_the_curve_is_refused():
    """The same signature, written in another way: whoever may write two could show two files of one."""
    order = 2**252 + 27742317777372353535851937790883648493
    signature = good()
    scalar = (int.from_bytes(signature.data[32:], "little") + order).to_bytes(32, "little")
    assert not check_signature(replace(signature, data=signature.data[:32] + scalar), SECRET.public, HEADER)


def test_each_key_with_the_number_is_tried():
    impostor = replace(OTHER.public, number=SECRET.number)
    assert signer_among(good(), [impostor, SECRET.public], HEADER) == SECRET.public
    assert isinstance(signer_among(good(), [impostor], HEADER), Rejected)
    nobody = signer_among(good(), [OTHER.public], HEADER)
    assert isinstance(nobody, Rejected)
    assert "not among the keys" in nobody.reason


@pytest.mark.parametrize("comment", ["two\nlines", "\x1b[31m", "\u202e", "\udcff"])
def test_a_comment_that_is_no_line_of_text_is_not_signed(comment):
    with pytest.raises(SignatureError, match="one line of printable text"):
        SECRET.sign(HEADER, comment)


# ---- key files ----


@pytest.mark.parametrize("password", [None, "a pass word", "pässwörd"])
def test_keys_are_written_and_read(tmp_path, password):
    public = make_key_files(tmp_path / "k.key", tmp_path / "k.pub", lambda: password, LIGHT)
    assert read_public_key(str(tmp_path / "k.pub")) == read_public_key(public.text) == public
    key = read_secret_key(tmp_path / "k.key", no_password if password is None else lambda: password)
    assert key.public == public
    assert key.seed.hex() not in repr(key)
    assert repr(key.seed) not in repr(key)
    assert stat.S_IMODE((tmp_path / "k.key").stat().st_mode) == 0o600
    assert password is None or key.seed not in (tmp_path / "k.key").read_bytes()
    if password is not None:
        with pytest.raises(SignatureError, match=r"k\.key: the password is wrong"):
            read_secret_key(tmp_path / "k.key", lambda: "another")


@pytest.mark.parametrize("there", ["k.key", "k.pub", "link"])
def test_no_key_is_overwritten(tmp_path, there):
    if there == "link":
        (tmp_path / "k.key").symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / there).write_text("precious")
    with pytest.raises(SignatureError, match="is there already"):
        make_key_files(tmp_path / "k.key", tmp_path / "k.pub", no_encryption)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["k.key"] if there == "link" else [there])


def test_no_secret_stays_where_the_public_key_cannot_be_written(tmp_path):
    with pytest.raises(SignatureError, match="cannot write"):
        make_key_files(tmp_path / "k.key", tmp_path / "missing" / "k.pub", no_encryption)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_may_read_is_not_used(tmp_path, mode):
    make_key_files(tmp_path / "k.key", tmp_path / "k.pub", no_encryption)
    (tmp_path / "k.key").chmod(mode)
    with pytest.raises(SignatureError, match=rf"k\.key: others may read or write it \(mode {mode:o}\).*chmod 600"):
        read_secret_key(tmp_path / "k.key", no_password)
    (tmp_path / "link").symlink_to(tmp_path / "k.key")
    with pytest.raises(SignatureError, match="others may read"):
        read_secret_key(tmp_path / "link", no_password)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_key_of_another_user_is_not_used(tmp_path):
    make_key_files(tmp_path / "k.key", tmp_path / "k.pub", no_encryption)
    os.chown(tmp_path / "k.key", 12345, -1)
    with pytest.raises(SignatureError, match="belongs to user 12345"):
        read_secret_key(tmp_path / "k.key", no_password)


def test_what_is_no_secret_key_is_refused(tmp_path):
    path = tmp_path / "k.key"
    make_key_files(path, tmp_path / "k.pub", no_encryption)
    data = path.read_bytes()
    head, text = data.split(b"\n")[:2]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SignatureError, match="not a plain file"):
        read_secret_key(tmp_path / "pipe", no_password)
    with pytest.raises(SignatureError, match="cannot be opened"):
        read_secret_key(tmp_path / "missing", no_password)
    with pytest.raises(SignatureError, match="give the public one"):
        read_public_key(str(path))
    for bad in (b"", data * 2, text, head + b"\n" + text[:-4] + b"\n", b"x" * 5000, (tmp_path / "k.pub").read_bytes()):
        path.write_bytes(bad)
        with pytest.raises(SignatureError):
            read_secret_key(path, no_password)


@pytest.mark.parametrize("at", [0, 2, 4, 54, 62, 100, 130])
def test_a_damaged_secret_key_is_not_used(tmp_path, at):
    import base64

    make_key_files(tmp_path / "k.key", tmp_path / "k.pub", no_encryption)
    head, text = (tmp_path / "k.key").read_bytes().split(b"\n")[:2]
    data = bytearray(base64.b64decode(text))
    data[at] ^= 1
    (tmp_path / "k.key").write_bytes(head + b"\n" + base64.b64encode(data) + b"\n")
    with pytest.raises(SignatureError, match=r"checksum differs|other algorithms"):
        read_secret_key(tmp_path / "k.key", no_password)


def test_halves_of_two_keys_are_not_used(tmp_path):
    """A signature made with another key's public half would give the secret half away."""
    import base64

    from silo.store.signatures import _NO_SCRYPT, _checksum

    hidden = SECRET.number + SECRET.seed + OTHER.public.point
    hidden += _checksum(SECRET.number, SECRET.seed, OTHER.public.point)
    data = b"Ed" + _NO_SCRYPT + b"B2" + bytes(48) + hidden
    (tmp_path / "k.key").write_text(f"untrusted comment: x\n{base64.b64encode(data).decode()}\n")
    (tmp_path / "k.key").chmod(0o600)
    with pytest.raises(SignatureError, match="do not belong together"):
        read_secret_key(tmp_path / "k.key", no_password)


@pytest.mark.parametrize("limits", [ScryptLimits(1 << 60, 1 << 24), ScryptLimits(1 << 25, 1 << 62)])
def test_a_key_file_does_not_say_how_much_memory_its_password_takes(limits):
    with pytest.raises(SignatureError, match="are allowed"):
        limits.derive("x", bytes(32), 8)


# ---- minisign ----


@pytest.mark.parametrize("password", ["", "a password"])
def test_minisign_takes_our_keys_and_signatures_and_we_take_its(tmp_path, password):
    """Both ways, for keys that each of the two made."""
    message = tmp_path / "header"
    message.write_bytes(HEADER)
    ours, theirs = tmp_path / "ours.key", tmp_path / "theirs.key"
    make_key_files(ours, tmp_path / "ours.pub", lambda: password or None, LIGHT)
    options = [] if password else ["-W"]
    # With a password both take a gigabyte for a second.
    minisign("-G", *options, "-s", theirs, "-p", tmp_path / "theirs.pub", text=f"{password}\n{password}\n")
    for key in (ours, theirs):
        public = read_public_key(str(key.with_suffix(".pub")))
        secret = read_secret_key(key, lambda: password)
        assert secret.public == public
        minisign("-S", "-s", key, "-m", message, "-t", "from minisign", text=f"{password}\n")
        signature = MinisignSignature.parse((tmp_path / "header.minisig").read_bytes())
        assert check_signature(signature, public, HEADER)
        assert signature.comment_text == "from minisign"
        (tmp_path / "header.minisig").write_bytes(secret.sign(HEADER, "from silo").file_bytes("x"))
        said = minisign("-V", "-p", key.with_suffix(".pub"), "-m", message)
        assert "Trusted comment: from silo" in said.stdout
        message.write_bytes(HEADER[::-1])
        assert minisign("-V", "-p", key.with_suffix(".pub"), "-m", message, check=False).returncode != 0
        message.write_bytes(HEADER)


def test_minisigns_old_form_is_refused(tmp_path):
    (tmp_path / "header").write_bytes(HEADER)
    minisign("-G", "-W", "-s", tmp_path / "k.key", "-p", tmp_path / "k.pub")
    minisign("-S", "-l", "-s", tmp_path / "k.key", "-m", tmp_path / "header")
    with pytest.raises(SignatureError, match="old form"):
        MinisignSignature.parse((tmp_path / "header.minisig").read_bytes())


# ---- the ledger ----


def test_a_signature_counts_as_long_as_its_key_is_trusted(store):
    file = file_of(good())
    assert "which is not trusted here" in decide(store, file).reason
    assert store.trust.keys.note_key(SECRET.public, "team.pub", 5)
    assert not store.trust.keys.note_key(SECRET.public, "team.pub", 6)
    assert decide(store, file) == Accepted(f"signed by {SECRET.public.id}, which is trusted here")
    consent = store.trust.vouch(CODE, origin="k.silo", signed=lambda: file)
    assert consent.reason.startswith("signed by")
    store.trust.require([CODE], origin="k.silo", signed=lambda: file)
    (entry,) = store.trust.keys.trusted()
    assert (entry.text, entry.origin, entry.since) == (SECRET.public.text, "team.pub", 5)
    assert store.trust.keys.untrust(SECRET.public.text, 7)
    assert not store.trust.keys.untrust(SECRET.public.text, 7)
    assert not decide(store, file), "its receipt fell with the key"
    with pytest.raises(TrustError, match="not trusted here"):
        store.trust.vouch(CODE, origin="k.silo", signed=lambda: file)


def test_a_signature_vouches_for_its_own_file_alone(store):
    store.trust.keys.note_key(SECRET.public, "", 0)
    assert decide(store, file_of(good()))
    other = HEADER[:-1] + b"x"
    assert "not a signature of this file" in decide(store, file_of(good(), other)).reason
    assert "no signature" in decide(store, file_of(None, other)).reason
    assert not store.trust.decide(CODE), "the code was trusted as part of the file, and not by itself"


@pytest.mark.parametrize("data", [b"", b"x" * 20000, b"\x00" * 100, resigned(HEADER, b"x", OTHER).file_bytes("x")])
def test_what_is_no_signature_of_a_trusted_key_is_a_refusal_with_a_reason(store, data):
    store.trust.keys.note_key(SECRET.public, "", 0)
    decision = decide(store, file_of(data))
    assert isinstance(decision, Rejected)
    assert "k.silo.minisig: " in decision.reason


def test_a_signature_that_cannot_be_read_is_a_refusal(store):
    store.trust.keys.note_key(SECRET.public, "", 0)
    assert decide(store, file_of(Rejected("it is a pipe"))).reason.endswith("it is a pipe")


def test_a_receipt_spares_the_next_process_the_package(store, monkeypatch):
    store.trust.keys.note_key(SECRET.public, "", 0)
    assert decide(store, file_of(good()))
    other = SECRET.sign(b"x" * 64, "")
    without_cryptography(monkeypatch)
    assert decide(store, file_of(None)), "nor is the signature read"
    assert "pip install 'kernel-silo[sign]'" in decide(store, file_of(other, b"x" * 64)).reason
    with pytest.raises(PackageError, match=r"kernel-silo\[sign\]"):
        SECRET.sign(HEADER, "x")


def test_receipts_are_kept_and_another_process_sees_a_key_that_was_taken_back(tmp_path):
    Store(tmp_path).trust.keys.note_key(SECRET.public, "", 0)
    first, second = Store(tmp_path), Store(tmp_path)
    assert decide(first, file_of(good()))
    assert decide(second, file_of(None))
    first.trust.keys.untrust(SECRET.public.text, 1)
    assert not decide(second, file_of(None))
    first.trust.keys.note_key(SECRET.public, "", 2)
    assert not decide(second, file_of(None)), "the receipt does not come back with the key"
    assert decide(second, file_of(good()))


def test_a_receipt_that_arrives_after_its_key_was_taken_back_says_nothing(tmp_path):
    store = Store(tmp_path)
    store.trust.keys.note_key(SECRET.public, "", 0)
    slow = Store(tmp_path)
    assert slow.trust.keys.trusted()
    store.trust.keys.untrust(SECRET.public.text, 1)
    slow.trust.keys._add({"signed": HEADER.hex(), "by": SECRET.public.text})
    store.trust.keys.note_key(SECRET.public, "", 2)
    assert not decide(Store(tmp_path), file_of(None))


def test_a_file_may_be_refused_whoever_signed_it(store):
    store.trust.keys.note_key(SECRET.public, "", 0)
    assert decide(store, file_of(good()))
    assert store.trust.keys.untrust_file(file_of(good()), 1)
    assert not store.trust.keys.untrust_file(file_of(good()), 1)
    assert "silo untrust" in decide(store, file_of(good())).reason
    assert decide(store, file_of(SECRET.sign(b"x" * 64, ""), b"x" * 64)), "other files are signed as before"


@pytest.mark.parametrize(
    "record",
    [
        1,
        [],
        {"key": SECRET.public.text},
        {"key": 5, "origin": "", "at": 0},
        {"signed": HEADER.hex(), "by": SECRET.public.text},
        {"signed": HEADER.hex()},
        {"untrusted key": 5},
    ],
)
def test_a_record_that_makes_no_sense_says_nothing(store, record):
    store.trust._records.append("keys", record)
    assert store.trust.keys.trusted() == ()
    assert not decide(store, file_of(None))


@pytest.mark.parametrize("which", ["trust", "trust/keys.jsonl"])
def test_keys_that_others_may_write_are_not_believed(tmp_path, which):
    Store(tmp_path / "s").trust.keys.note_key(SECRET.public, "", 0)
    path = tmp_path / "s" / which
    path.chmod(path.stat().st_mode | 0o022)
    assert not decide(Store(tmp_path / "s"), file_of(good()))


def test_nothing_is_checked_where_something_else_vouches(store, monkeypatch):
    store.trust.note_built(CODE)
    assert store.trust.vouch(CODE, origin="k", signed=no_password).reason == "built here"
    other = replace(CODE, blob="b" * 64)
    assert store.trust.vouch(other, origin="k", trust=True, signed=no_password).reason == "the caller passed trust=True"


def test_a_signature_is_checked_once_for_all_the_code_of_a_file(store):
    asked = []
    store.trust.keys.note_key(SECRET.public, "", 0)
    codes = [replace(CODE, blob=f"{number:064x}") for number in range(5)]
    with pytest.raises(TrustError):
        store.trust.require(codes, origin="k", signed=lambda: asked.append(1) or file_of(None))
    assert asked == [1]


def test_the_rule():
    assert may_load("a", (), (), signed=Accepted("signed")) == Accepted("signed")
    assert may_load("a", (), (), signed=Rejected("why")).reason.endswith("; why")
    assert may_load("a", (), (), signed=Rejected("")).reason == may_load("a", (), ()).reason
    assert "older Silo" in may_load("a", (), (), signed=Rejected("why"), older="it was built here").reason


def test_a_key_of_the_ledger_that_is_none_vouches_for_nothing(store):
    store.trust._records.append("keys", {"key": "RW", "origin": "", "at": 0})
    assert isinstance(decide(store, file_of(good())), Rejected)


def test_a_store_in_use_knows_nothing_of_signatures_until_it_is_asked(tmp_path):
    program = (
        "import sys; from pathlib import Path; from silo.store.store import Store\n"
        f"store = Store(Path({str(tmp_path)!r}))\n"
        "print([name for name in sys.modules if 'sign' in name or 'trusted_keys' in name or 'cryptography' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [name for name in eval(done.stdout) if name.startswith(("silo.", "crypto"))] == ["silo.core.signature"]


@pytest.mark.parametrize("first", [0, 5000, 70000])
def test_nothing_altered_is_accepted(first):
    """A share of ``python -m tests.fuzz.signatures``."""
    from fuzz.signatures import attack

    found = [attack(seed) for seed in range(first, first + 500)]
    assert [one for one in found if one.status not in ("refused", "same")] == []
    assert len([one for one in found if one.status == "refused"]) > 400


def test_public_keys_of_the_ledger_are_listed_as_they_are(store):
    store.trust.keys.note_key(OTHER.public, "b.pub", 1)
    store.trust.keys.note_key(SECRET.public, "a.pub", 2)
    assert [PublicKey.parse(one.text) for one in store.trust.keys.trusted()] == [OTHER.public, SECRET.public]
