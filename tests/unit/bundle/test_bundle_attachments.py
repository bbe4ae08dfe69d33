"""Attachments: files that travel with the kernels of a bundle."""

import json
from dataclasses import replace

import pytest

from bundle_samples import put, sample, sealed
from silo.artifacts.artifact import BlobRef
from silo.bundle.bundle_slices import cut_contents, cut_slice, join_slices, targets_of
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.errors import BundleError, BundleFormatError


@pytest.fixture(name="path")
def made_bundle(tmp_path):
    made = sample(1, 2)
    blobs = dict(made.blobs)
    text = put(blobs, "file", b"text " * 100)
    code = made.contents.kernels[0].variants[1].artifact.blob
    contents = replace(made.contents, attachments=(("notes/b", text), ("notes/a", code), ("again", text)))
    path = tmp_path / "a.silo"
    write_bundle(path, contents, blobs.get)
    return path


def test_attachments_are_kept_by_name_and_share_blobs(path):
    with open_bundle(path) as bundle:
        assert bundle.header.minor == 4
        assert list(bundle.attachments) == ["again", "notes/a", "notes/b"]
        assert bundle.blob(bundle.attachments["notes/b"].sha256) == b"text " * 100
        assert bundle.attachments["notes/a"] == bundle.kernel("kernel_0").variants[1].artifact.blob
        assert len({entry.sha256 for entry in bundle.blobs}) == len(bundle.blobs)
    assert verify_bundle(path) == ()


def test_an_update_keeps_them_and_a_cut_leaves_them_out(path):
    before = path.read_bytes()
    update_bundle(path, {"kernel_0": KernelUpdate()})
    assert path.read_bytes() == before
    with open_bundle(path) as bundle:
        assert cut_contents(bundle.contents(), None, None).attachments == ()


def test_slices_have_all_of_them_and_joined_they_are_the_whole(path, tmp_path):
    with open_bundle(path) as whole:
        slices = [cut_slice(whole, [target]) for target in targets_of(whole.contents())]
        assert len(slices) == 2
        paths = [tmp_path / f"{number}.silo" for number in range(len(slices))]
        for file, part in zip(paths, slices, strict=True):
            write_bundle(file, part.contents, lambda sha256: part.documents.get(sha256) or whole.blob(sha256))  # noqa: B023
    parts = [open_bundle(file) for file in paths]
    joined = join_slices(parts)
    blobs = {entry.sha256: part.read(entry) for part in parts for entry in part.blobs}
    write_bundle(tmp_path / "joined.silo", joined.contents, {**blobs, **joined.documents}.get)
    assert (tmp_path / "joined.silo").read_bytes() == path.read_bytes()


def test_without_any_a_file_is_of_an_older_version(tmp_path):
    made = sample(1, 2)
    path = tmp_path / "plain.silo"
    write_bundle(path, made.contents, made.read_blob)
    with open_bundle(path) as bundle:
        assert bundle.header.minor < 4
        assert bundle.attachments == {}


@pytest.mark.parametrize(
    ("attachments", "field"),
    [
        ([], "attachments"),
        ({}, "attachments"),
        ([["a"]], "attachments[0]"),
        ([["a", 0, 0]], "attachments[0]"),
        ([["", 0]], "attachments[0][0]"),
        ([["a\n", 0]], "attachments[0][0]"),
        ([["a", 99]], "attachments[0][1]"),
        ([["a", -1]], "attachments[0][1]"),
        ([["a", True]], "attachments[0][1]"),
        ([["a", 0], ["a", 1]], "attachments[1][0]"),
        ([["b", 0], ["a", 1]], "attachments[1][0]"),
    ],
)
def test_both_readers_refuse_what_is_not_a_list_of_them(path, attachments, field):
    with open_bundle(path) as bundle:
        manifest = json.loads(bundle.manifest_text)
    manifest["attachments"] = attachments
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    data = sealed(path.read_bytes(), text, compress=False)
    with pytest.raises(BundleFormatError) as refused:
        Bundle.from_bytes(data)
    assert refused.value.field == field


def test_an_older_version_has_none(path):
    with open_bundle(path) as bundle:
        text = bundle.manifest_text.replace(b'"format":[1,4]', b'"format":[1,3]')
    data = bytearray(path.read_bytes())
    data[10] = 3
    data = sealed(bytes(data), text, compress=False)
    with pytest.raises(BundleFormatError):
        Bundle.from_bytes(data)


def test_a_writer_refuses_two_of_one_name(tmp_path):
    made = sample(1, 1)
    ref = BlobRef("ab" * 32, "file", 1)
    with pytest.raises(BundleError, match="different names"):
        write_bundle(tmp_path / "b.silo", replace(made.contents, attachments=(("a", ref), ("a", ref))), made.read_blob)
