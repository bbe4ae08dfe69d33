"""What a bundle says of memory behind none of a kernel's arguments: it goes where code goes; both readers know it."""

import json
import struct
from dataclasses import replace

import pytest

from bundle_samples import sample, sealed
from silo.artifacts.artifact import Artifact
from silo.bundle.bundle_slices import cut_contents, cut_slice, targets_of
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.errors import BundleFormatError

WHY = "it loads addresses from memory"


def hiding(contents):
    """The contents with such a second variant."""
    kernel = contents.kernels[0]
    first, second = kernel.variants
    second = replace(second, artifact=replace(second.artifact, hidden_memory=WHY))
    return replace(contents, kernels=(replace(kernel, variants=(first, second)),))


@pytest.fixture(name="path")
def made_bundle(tmp_path):
    made = sample(1, 2)
    path = tmp_path / "a.silo"
    write_bundle(path, hiding(made.contents), made.read_blob)
    return path


def said(contents):
    return [one.artifact.hidden_memory for one in contents.kernels[0].variants]


def both_refuse(data):
    """The field that the reader names, and what it says."""
    with pytest.raises(BundleFormatError) as refused:
        Bundle.from_bytes(data).contents()
    return refused.value.field, str(refused.value)


def test_both_readers_take_it_and_python_tells_it(path):
    with open_bundle(path) as bundle:
        assert bundle.header.minor == 5
        assert said(bundle.contents()) == ["", WHY]
        assert [bundle.open_kernel("kernel_0")[number].artifact.hidden_memory for number in (0, 1)] == ["", WHY]
        assert sum(len(group.numbers) for group in bundle.open_kernel("kernel_0").groups()) == 2
    assert verify_bundle(path) == ()


def test_without_any_a_file_is_of_an_older_version_and_says_nothing(tmp_path):
    made = sample(1, 2)
    path = tmp_path / "plain.silo"
    write_bundle(path, made.contents, made.read_blob)
    with open_bundle(path) as bundle:
        assert bundle.header.minor < 5
        assert said(bundle.contents()) == ["", ""]
        assert b"hidden_memory" not in bundle.manifest_text


def test_updates_cuts_and_slices_keep_it(path):
    before = path.read_bytes()
    update_bundle(path, {"kernel_0": KernelUpdate()})
    assert path.read_bytes() == before
    with open_bundle(path) as bundle:
        assert said(cut_contents(bundle.contents(), None, None)) == ["", WHY]
        slices = [cut_slice(bundle, [target]) for target in targets_of(bundle.contents())]
        assert [said(one.contents) for one in slices] == [[""], [WHY]]


@pytest.mark.parametrize("value", ["", None, 1, True, [], "a\nb", "\u202e", "x" * 1025])
def test_both_readers_refuse_what_is_no_reason(path, value):
    with open_bundle(path) as bundle:
        manifest = json.loads(bundle.manifest_text)
    manifest["kernels"][0]["variants"][1]["hidden_memory"] = value
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    field, _ = both_refuse(sealed(path.read_bytes(), text, compress=False))
    assert field == "kernels[0].variants[1].hidden_memory"


def test_a_file_of_an_older_version_has_no_such_member(path):
    with open_bundle(path) as bundle:
        text = bundle.manifest_text.replace(b'"format":[1,5]', b'"format":[1,4]')
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 10, 4)
    field, message = both_refuse(sealed(bytes(data), text, compress=False))
    assert field == "kernels[0].variants[1]"
    assert "hidden_memory" in message


def test_an_artifact_of_a_store_says_it_only_where_there_is_something_to_say(path):
    with open_bundle(path) as bundle:
        silent, hiding = (one.artifact for one in bundle.contents().kernels[0].variants)
    data = silent.to_json()
    assert isinstance(data, dict)
    assert "hidden_memory" not in data
    for one in (silent, hiding):
        assert Artifact.from_json(one.to_json()) == one
    for value in ("", None, 1):
        with pytest.raises(ValueError, match="artifact"):
            Artifact.from_json({**data, "hidden_memory": value})
