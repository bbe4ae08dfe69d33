"""What a signature of a bundle covers, where it lies, and what becomes of it when the bundle is written."""

import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="signatures need kernel-silo[sign]")

from bundle_samples import sample
from made_keys import OTHER, SECRET, minisign
from silo.bundle.format import HEADER_BYTES
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.signing import (
    Signing,
    header_of,
    read_signature,
    settle_signature,
    sign_header,
    signature_of,
    signed_by,
)
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_open
from silo.bundle.writer import write_bundle
from silo.core.decisions import Rejected
from silo.core.minisign import MAX_SIGNATURE_BYTES
from silo.errors import BundleError, SignatureError
from silo.shipping.sign_bundle import verify_bundle_signature

TRIAL = {"kernel_0": KernelUpdate(trials=({"new": 1},))}


@pytest.fixture
def path(tmp_path):
    made = sample(2, 3)
    write_bundle(tmp_path / "k.silo", made.contents, made.read_blob)
    return tmp_path / "k.silo"


def sign(path, key=SECRET):
    return sign_header(path, open_bundle(path).signed_bytes, key)


def is_signed(path, key=SECRET):
    return bool(signed_by(path, open_bundle(path).signed_bytes, key.public))


def refusal(path):
    found = read_signature(path)
    assert isinstance(found, Rejected)
    return found.reason


def is_whole(data):
    try:
        return not verify_open(Bundle.from_bytes(data))
    except BundleError:
        return False


# ---- what is covered ----


@pytest.mark.parametrize("raw", [False, True])
def test_the_header_is_what_is_signed_byte_for_byte(tmp_path, raw):
    made = sample(1, 2)
    written = write_bundle(tmp_path / "k.silo", made.contents, made.read_blob, raw=raw)
    data = (tmp_path / "k.silo").read_bytes()
    assert open_bundle(tmp_path / "k.silo").signed_bytes == written.header == data[:HEADER_BYTES]


def everything(data):
    """All that a reader gives out, whether or not the file is as it was written."""
    bundle = Bundle.from_bytes(data)
    return bundle.manifest_text, [bundle.read(entry) for entry in bundle.blobs]


@pytest.mark.parametrize("raw", [False, True])
def test_with_the_header_as_it_was_nothing_that_is_read_may_differ(tmp_path, raw):
    """So whoever signs the header signs all of the file.

    A frame of zstd has bits that mean nothing: what it holds is what has a hash, not how it is packed.
    """
    made = sample(1, 1)
    write_bundle(tmp_path / "k.silo", made.contents, made.read_blob, raw=raw)
    data = (tmp_path / "k.silo").read_bytes()
    assert is_whole(data)
    unseen = 0
    for at in range(HEADER_BYTES, len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        if is_whole(bytes(changed)):
            assert everything(bytes(changed)) == everything(data), at
            unseen += 1
    assert unseen == 0 if raw else unseen < len(data) // 100
    for end in range(HEADER_BYTES, len(data), 7):
        assert not is_whole(data[:end])
    assert not is_whole(data + b"\0")


def test_every_byte_of_the_header_is_signed(path):
    sign(path)
    header = open_bundle(path).signed_bytes
    for at in range(HEADER_BYTES):
        changed = bytearray(header)
        changed[at] ^= 1
        assert not signed_by(path, bytes(changed), SECRET.public)
    assert signed_by(path, header, SECRET.public)


def test_minisign_checks_the_first_64_bytes(path, tmp_path):
    sign(path)
    (tmp_path / "h").write_bytes(path.read_bytes()[:HEADER_BYTES])
    (tmp_path / "k.pub").write_text(SECRET.public.file_text)
    done = minisign("-V", "-p", tmp_path / "k.pub", "-m", tmp_path / "h", "-x", f"{path}.minisig")
    assert f"silo bundle identity:{open_bundle(path).identity} file:k.silo" in done.stdout


def test_a_signature_of_the_whole_file_is_refused_with_the_way_to_sign_the_header(path):
    whole = SECRET.sign(path.read_bytes(), "by hand")
    Path(f"{path}.minisig").write_bytes(whole.file_bytes("by hand"))
    found = verify_bundle_signature(path, SECRET.public)
    assert not found.signed
    assert "signed the whole file" in found.reason
    assert "head -c 64 k.silo > header" in found.reason
    Path(f"{path}.minisig").write_bytes(SECRET.sign(b"another", "x").file_bytes("x"))
    assert "another file's, or altered" in verify_bundle_signature(path, SECRET.public).reason


def test_the_first_line_of_a_signature_says_how_minisign_checks_it(path):
    sign(path)
    first = Path(f"{path}.minisig").read_bytes().splitlines()[0]
    assert b"head -c 64 K.silo > header && minisign -V -p PUB -m header -x K.silo.minisig" in first
    assert len(first) <= 1024  # minisign reads no longer comment


# ---- where it lies ----


def test_a_signature_lies_beside_the_name_or_beside_what_a_link_leads_to(path, tmp_path):
    sign(path)
    link = tmp_path / "elsewhere" / "current.silo"
    link.parent.mkdir()
    link.symlink_to(path)
    assert is_signed(link)
    sign(link, OTHER)
    assert not (tmp_path / "elsewhere" / "current.silo.minisig").exists()
    assert is_signed(path, OTHER)
    # Stores of models keep each file by its hash, with links that have their names.
    shutil.move(f"{path}.minisig", tmp_path / "by-hash")
    (tmp_path / "elsewhere" / "current.silo.minisig").symlink_to(tmp_path / "by-hash")
    assert is_signed(link, OTHER)
    assert not is_signed(path, OTHER)
    sign(link)
    assert is_signed(link)
    assert (tmp_path / "by-hash").exists(), "what a link leads to is not written"


def test_a_signature_replaces_a_link_and_not_what_it_leads_to(path, tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "k.silo.minisig").symlink_to(tmp_path / "precious")
    sign(path)
    assert (tmp_path / "precious").read_text() == "precious"
    assert is_signed(path)


def test_what_lies_there_and_is_no_signature_is_a_reason(path, tmp_path):
    place = tmp_path / "k.silo.minisig"
    assert signature_of(path) is None
    assert "not signed" in signed_by(path, b"", SECRET.public).reason
    os.mkfifo(place)
    assert "not a plain file" in refusal(path)
    place.unlink()
    place.mkdir()
    assert refusal(path)
    place.rmdir()
    place.symlink_to(place)
    assert "cannot be opened" in refusal(path)
    place.unlink()
    with place.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    assert f"more than the {MAX_SIGNATURE_BYTES} bytes" in refusal(path)
    with pytest.raises(SignatureError, match="more than the"):
        signature_of(path)
    place.unlink()
    place.write_bytes(b"four\nlines\nof\ntext\n")
    with pytest.raises(SignatureError, match=r"k\.silo\.minisig: not a signature"):
        signature_of(path)


def test_a_signature_that_cannot_be_written_leaves_the_old_one(path):
    sign(path)
    with pytest.raises(SignatureError, match="cannot write the signature"):
        sign_header(path.parent / "missing" / "k.silo", bytes(64), SECRET)
    assert is_signed(path)
    assert [one for one in path.parent.iterdir() if one.name.startswith(".silo-tmp")] == []


@pytest.mark.parametrize("name", ["a b.silo", "evil\n\x1b[31m[red].silo", "é.silo", "x" * 240 + ".silo", "\udcff.silo"])
def test_a_name_of_any_kind_is_one_line_of_the_comment(path, name):
    named = path.with_name(name)
    path.rename(named)
    place = f"{named}.minisig"
    if len(os.fsencode(named.name)) + len(".minisig") > 255:
        pytest.skip("the file system has no such names")
    sign(named)
    assert Path(place).exists()
    comment = signature_of(named).comment_text
    assert comment.isprintable()
    assert is_signed(named)


# ---- what becomes of it ----


def test_a_signature_that_became_false_is_removed_and_said(path):
    sign(path)
    updated = update_bundle(path, TRIAL)
    assert "k.silo.minisig is removed" in updated.signature
    assert signature_of(path) is None
    assert update_bundle(path, TRIAL).signature == ""


def test_a_signature_that_is_true_stays(path):
    sign(path)
    assert update_bundle(path, {}).signature == ""
    assert is_signed(path)


def test_a_bundle_is_signed_anew_as_often_as_it_is_refined(path):
    sign(path)
    signing = Signing(open_bundle(path).signed_bytes, SECRET)
    for number in range(3):
        updated = update_bundle(path, {"kernel_0": KernelUpdate(trials=({"n": number},))}, signing=signing)
        assert updated.signature == f"signed by {SECRET.public.id}: k.silo.minisig"
        assert is_signed(path)


def test_what_another_program_put_there_meanwhile_is_not_signed(path):
    signing = Signing(open_bundle(path).signed_bytes, SECRET)
    made = sample(1, 1)
    write_bundle(path, made.contents, made.read_blob)
    sign(path, OTHER)
    with pytest.raises(SignatureError, match=r"replaced by another program.*k\.silo\.minisig is removed"):
        update_bundle(path, TRIAL, signing=signing)
    assert signature_of(path) is None
    assert open_bundle(path).trials("kernel_0")[-1] == {"new": 1}, "what was measured is kept"


def test_what_another_program_signed_with_the_same_key_is_signed_anew(path):
    signing = Signing(open_bundle(path).signed_bytes, SECRET)
    update_bundle(path, {"kernel_1": KernelUpdate(trials=({"other": 1},))})
    sign(path)
    update_bundle(path, TRIAL, signing=signing)
    assert is_signed(path)


def test_a_build_over_another_bundle_removes_its_signature_or_makes_its_own(path):
    before = header_of(path)
    sign(path)
    made = sample(1, 1)
    after = write_bundle(path, made.contents, made.read_blob).header
    assert "removed" in settle_signature(path, before, after, None)
    assert signature_of(path) is None
    settle_signature(path, before, after, SECRET)
    assert settle_signature(path, after, after, None) == ""
    assert is_signed(path)


def test_a_signature_beside_a_link_is_removed_too(path, tmp_path):
    sign(path)
    link = tmp_path / "elsewhere" / "k.silo"
    link.parent.mkdir()
    link.symlink_to(path)
    shutil.copy(f"{path}.minisig", f"{link}.minisig")
    update_bundle(link, TRIAL)
    assert signature_of(link) is None
    assert signature_of(path) is None
