# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false

import hashlib
import json
import os
import random
import struct
import subprocess
import sys
from dataclasses import replace

import pytest
import zstandard

from bundle_samples import Sample, put, sample, sealed, typed
from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, decode_document, encode_documents
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.values import parse_json
from silo.errors import BundleError, BundleFormatError


def written(path, made: Sample):
    write_bundle(path, made.contents, made.read_blob)
    return open_bundle(path)


@pytest.mark.parametrize(("kernels", "variants"), [(0, 0), (1, 0), (1, 1), (3, 7)])
def test_everything_comes_back(tmp_path, kernels, variants):
    made = sample(kernels, variants)
    with written(tmp_path / "k.silo", made) as bundle:
        contents = bundle.contents()
        assert contents.kernels == made.contents.kernels
        assert (contents.producer, contents.notes) == (made.contents.producer, made.contents.notes)
        assert dict(contents.toolchain) == {"triton": "3.9.0", "zstd": ".".join(map(str, zstandard.ZSTD_VERSION))}
        assert {entry.sha256: bundle.read(entry) for entry in bundle.blobs} == made.blobs
        assert all(bundle.blob(sha256) == data for sha256, data in made.blobs.items())
        assert bundle.kernel_names == tuple(kernel.name for kernel in made.contents.kernels)
        for number, name in enumerate(bundle.kernel_names):
            assert bundle.cases(name) == ({"n": 1 << 16, "kernel": number},)
            assert [trial["config"] for trial in bundle.trials(name)] == [0, 1, 2]
    assert verify_bundle(tmp_path / "k.silo") == ()


def test_an_empty_kernel_with_nothing_but_a_name(tmp_path):
    made = Sample(BundleContents((BundleKernel("k", typed("float32")),)), {})
    with written(tmp_path / "k.silo", made) as bundle:
        assert bundle.kernel("k") == made.contents.kernels[0]
        assert bundle.cases("k") == bundle.trials("k") == ()
        assert bundle.blobs == ()


def test_the_kind_of_a_kernel_is_written_where_it_is_named_and_changes_no_other_file(tmp_path):
    made = sample(2, 1, targets=("cuda:sm_90",))
    first, second = made.contents.kernels
    named = replace(made.contents, kernels=(replace(first, kind="toy"), second))
    with written(tmp_path / "k.silo", Sample(named, made.blobs)) as bundle:
        assert [one.kind for one in bundle.contents().kernels] == ["toy", ""]
        assert parse_json(bundle.manifest_text)["format"] == [1, 2]
    assert verify_bundle(tmp_path / "k.silo") == ()
    with written(tmp_path / "old.silo", made) as bundle:
        assert b'"kind":"toy"' not in bundle.manifest_text
        assert parse_json(bundle.manifest_text)["format"][1] < 2


def test_same_inputs_same_bytes_whatever_the_folder_and_the_order_of_kernels(tmp_path):
    made = sample(4, 5)
    one, two = tmp_path / "one" / "k.silo", tmp_path / "another folder" / "other.silo"
    one.parent.mkdir()
    two.parent.mkdir()
    first = write_bundle(one, made.contents, made.read_blob)
    turned = replace(made.contents, kernels=made.contents.kernels[::-1], producer=made.contents.producer[::-1])
    second = write_bundle(two, turned, made.read_blob)
    assert one.read_bytes() == two.read_bytes()
    assert first == second
    assert first.size_bytes == one.stat().st_size
    assert str(tmp_path).encode() not in one.read_bytes()
    assert str(tmp_path).encode() not in open_bundle(one).manifest_text


def test_the_order_of_variants_is_kept(tmp_path):
    made = sample(1, 6)
    kernel = made.contents.kernels[0]
    turned = replace(made.contents, kernels=(replace(kernel, variants=kernel.variants[::-1]),))
    with written(tmp_path / "k.silo", Sample(turned, made.blobs)) as bundle:
        assert bundle.kernel(kernel.name).variants == kernel.variants[::-1]


def test_a_copy_in_another_place_reads_the_same(tmp_path):
    made = sample()
    write_bundle(tmp_path / "k.silo", made.contents, made.read_blob)
    (tmp_path / "k.silo").rename(tmp_path / "moved.silo")
    (tmp_path / "moved.silo").chmod(0o444)
    assert open_bundle(tmp_path / "moved.silo").contents().kernels == made.contents.kernels


def test_the_file_is_laid_out_as_specified(tmp_path):
    made = sample(3, 4)
    bundle = written(tmp_path / "k.silo", made)
    data = (tmp_path / "k.silo").read_bytes()
    rows = [(entry.kind, entry.sha256) for entry in bundle.blobs]
    assert rows == sorted(set(rows))
    for entry in bundle.blobs:
        assert entry.offset % 64 == 0
        stored = data[entry.offset : entry.offset + entry.stored_bytes]
        raw = stored if entry.codec == "raw" else zstandard.ZstdDecompressor().decompress(stored)
        assert hashlib.sha256(raw).hexdigest() == entry.sha256
    assert {entry.codec for entry in bundle.blobs} == {"raw", "zstd"}
    header = bundle.header
    assert header.manifest_offset + header.manifest_bytes == len(data)
    assert hashlib.sha256(data[header.manifest_offset :]).hexdigest() == bundle.identity
    manifest = json.loads(zstandard.ZstdDecompressor().decompress(data[header.manifest_offset :]))
    assert manifest["format"] == [1, 1]
    assert (
        json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == bundle.manifest_text
    )
    assert parse_json(bundle.manifest_text) == manifest


@pytest.mark.parametrize(
    ("kernels", "variants", "targets"),
    [(3, 6, ("cuda:sm_90",)), (3, 6, ("cpu:x86-64-v3",)), (20, 50, ("cuda:sm_90", "cpu:x86-64-v3"))],
)
def test_the_size_is_near_that_of_the_frames(tmp_path, kernels, variants, targets):
    made = sample(kernels, variants, blob_bytes=4000, targets=targets)
    documents = {ref.sha256 for kernel in made.contents.kernels for ref in (kernel.cases, kernel.trials)}
    size = write_bundle(tmp_path / "k.silo", made.contents, made.read_blob).size_bytes
    compressor = zstandard.ZstdCompressor(level=19)
    frames = {sha256: len(compressor.compress(data)) for sha256, data in made.blobs.items()}
    code = sum(length for sha256, length in frames.items() if sha256 not in documents)
    rest = sum(length for sha256, length in frames.items() if sha256 in documents)
    assert size <= 1.05 * code + 300 * kernels * variants + rest


def test_constants_that_python_takes_for_equal_stay_apart(tmp_path):
    made = sample(1, 1)
    kernel = made.contents.kernels[0]
    base = kernel.variants[0]
    values = [1, True, 1.0, "1", None, (1,), (True,)]
    variants = tuple(
        replace(
            base, artifact=replace(base.artifact, variant=replace(base.artifact.variant, config=Config.of(FLAG=value)))
        )
        for value in values
    )
    contents = replace(made.contents, kernels=(replace(kernel, variants=variants),))
    with written(tmp_path / "k.silo", Sample(contents, made.blobs)) as bundle:
        found = [variant.artifact.variant.config.as_dict()["FLAG"] for variant in bundle.kernel(kernel.name).variants]
    assert [repr(value) for value in found] == [repr(value) for value in values]


def test_blobs_of_equal_bytes_and_different_kind(tmp_path):
    blobs = {}
    made = sample(1, 1)
    item = made.contents.kernels[0].variants[0]
    refs = (put(blobs, "ttir", b"same"), put(blobs, "c", b"same"))
    kernel = replace(
        made.contents.kernels[0], variants=(replace(item, artifact=replace(item.artifact, sidecars=refs)),)
    )
    with written(tmp_path / "k.silo", Sample(BundleContents((kernel,)), made.blobs | blobs)) as bundle:
        assert bundle.kernel(kernel.name).variants[0].artifact.sidecars == refs
        assert bundle.blob(refs[0].sha256) == b"same"


def test_empty_and_large_blobs(tmp_path):
    made = sample(1, 1)
    blobs = dict(made.blobs)
    item = made.contents.kernels[0].variants[0]
    refs = (
        put(blobs, "c", b""),
        put(blobs, "ttir", random.Random(0).randbytes(300_000)),
        put(blobs, "ptx", bytes(1 << 20)),
    )
    kernel = replace(
        made.contents.kernels[0], variants=(replace(item, artifact=replace(item.artifact, sidecars=refs)),)
    )
    with written(tmp_path / "k.silo", Sample(BundleContents((kernel,)), blobs)) as bundle:
        assert [bundle.blob(ref.sha256) for ref in refs] == [blobs[ref.sha256] for ref in refs]
    assert verify_bundle(tmp_path / "k.silo") == ()


@pytest.mark.parametrize(
    "change", ["absent", "other bytes", "two sizes", "unknown kind", "twice", "two kernels of one name"]
)
def test_a_writer_given_nonsense_leaves_the_old_file(tmp_path, change):
    made = sample()
    path = tmp_path / "k.silo"
    write_bundle(path, made.contents, made.read_blob)
    before = path.read_bytes()
    kernel, other = made.contents.kernels
    item = kernel.variants[0]
    blobs = dict(made.blobs)
    kernels = (kernel, other)

    def with_blob(**changes):
        ref = replace(item.artifact.blob, **changes)
        return (
            replace(kernel, variants=(*kernel.variants[1:], replace(item, artifact=replace(item.artifact, blob=ref)))),
            other,
        )

    if change == "absent":
        del blobs[item.artifact.blob.sha256]
    elif change == "other bytes":
        blobs[item.artifact.blob.sha256] = bytes(item.artifact.blob.size)
    elif change == "two sizes":
        ref = replace(item.artifact.blob, size=5)
        second = replace(item, artifact=replace(item.artifact, blob=ref, compiler="other"))
        kernels = (replace(kernel, variants=(*kernel.variants, second)), other)
    elif change == "unknown kind":
        kernels = with_blob(kind="exe")
    elif change == "twice":
        kernels = (replace(kernel, variants=(*kernel.variants, item)), other)
    else:
        kernels = (kernel, replace(other, name=kernel.name))
    with pytest.raises(BundleError):
        write_bundle(path, replace(made.contents, kernels=kernels), blobs.get)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["k.silo"]


def test_writing_through_a_link_keeps_the_link_and_the_permissions(tmp_path):
    made = sample()
    real, link = tmp_path / "real.silo", tmp_path / "link.silo"
    write_bundle(real, made.contents, made.read_blob)
    real.chmod(0o640)
    link.symlink_to(real)
    write_bundle(link, replace(made.contents, notes=()), made.read_blob)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert open_bundle(real).contents().notes == ()


def test_an_open_bundle_outlives_its_replacement(tmp_path):
    made, other = sample(1, 2), sample(2, 2, blob_bytes=800)
    bundle = written(tmp_path / "k.silo", made)
    write_bundle(tmp_path / "k.silo", other.contents, other.read_blob)
    assert {entry.sha256: bundle.read(entry) for entry in bundle.blobs} == made.blobs


def test_asking_for_what_is_not_there_says_what_is(tmp_path):
    bundle = written(tmp_path / "k.silo", sample(2, 1))
    with pytest.raises(BundleError, match=r"k\.silo holds no kernel 'nope'; it holds: kernel_0, kernel_1"):
        bundle.kernel("nope")
    with pytest.raises(BundleError, match="no blob"):
        bundle.blob("0" * 64)


@pytest.mark.parametrize("make", [lambda path: None, os.mkdir, os.mkfifo])
def test_opening_what_is_no_file_is_an_error_of_ours(tmp_path, make):
    path = tmp_path / "k.silo"
    make(path)
    with pytest.raises(BundleError, match=r"cannot (open|read) the bundle .*k\.silo"):
        open_bundle(path)


@pytest.mark.parametrize("data", [b"", b"S", b"SILOBNDL", b"PK\x03\x04" * 40, b"\0" * 64])
def test_opening_a_foreign_file(tmp_path, data):
    (tmp_path / "k.silo").write_bytes(data)
    with pytest.raises(BundleFormatError, match=r"k\.silo"):
        open_bundle(tmp_path / "k.silo")


def test_closing_twice_is_fine(tmp_path):
    bundle = written(tmp_path / "k.silo", sample())
    bundle.close()
    bundle.close()


def test_only_touched_blobs_are_verified(tmp_path):
    made = sample(2, 4)
    write_bundle(tmp_path / "k.silo", made.contents, made.read_blob)
    data = bytearray((tmp_path / "k.silo").read_bytes())
    bundle = Bundle.from_bytes(bytes(data))
    bad = bundle.blobs[0]
    data[bad.offset + bad.stored_bytes // 2] ^= 1
    bundle = Bundle.from_bytes(bytes(data))
    for entry in bundle.blobs[1:]:
        bundle.read(entry)
    with pytest.raises(BundleFormatError) as caught:
        bundle.blob(bad.sha256)
    assert caught.value.offset == bad.offset
    assert bad.sha256[:16] in caught.value.field


@pytest.mark.parametrize("documents", [(), ({"a": 1},), ("x\ny", None, [1, {"b": []}])])
def test_documents_come_back(documents):
    lines = encode_documents(documents).splitlines(keepends=True)
    assert tuple(decode_document(line) for line in lines) == documents


@pytest.mark.parametrize("data", [b"1", b"\n", b"{}\n1.5\n", b'{"a":1,"a":2}\n', b"1\n{"])
def test_wrong_documents_are_refused(data):
    with pytest.raises(ValueError, match=r"float|key|end|Expecting"):
        [decode_document(line) for line in data.splitlines(keepends=True)]


def test_a_reference_by_content_only(tmp_path):
    bundle = written(tmp_path / "k.silo", sample(1, 2))
    assert all(isinstance(ref, BlobRef) for ref in bundle.refs)
    assert {ref.kind for ref in bundle.refs} == {"so", "c", "cubin", "cases", "trials"}


TOUCHED = """
import resource, sys
from silo.bundle.reader import open_bundle
open_bundle(sys.argv[2]).blob(open_bundle(sys.argv[2]).blobs[0].sha256)  # warm: modules, allocator
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
bundle = open_bundle(sys.argv[1])
bundle.blob(bundle.blobs[len(bundle.blobs) // 2].sha256)
print(faults() - before)
"""


def test_only_touched_pages_are_read(tmp_path):
    blobs = {}
    made = sample(1, 1)
    item = made.contents.kernels[0].variants[0]
    rng = random.Random(0)
    variants = []
    for number in range(64):
        ref = put(blobs, "cubin", rng.randbytes(512 << 10))
        variants.append(
            replace(item, artifact=replace(item.artifact, blob=ref, sidecars=(), compiler=f"made-up {number}"))
        )
    contents = BundleContents((replace(made.contents.kernels[0], variants=tuple(variants), cases=None, trials=None),))
    write_bundle(tmp_path / "large.silo", contents, blobs.get, read_stored=lambda ref: ("raw", blobs[ref.sha256]))
    write_bundle(tmp_path / "small.silo", made.contents, made.read_blob)
    arguments = [sys.executable, "-c", TOUCHED, tmp_path / "large.silo", tmp_path / "small.silo"]
    faults = int(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    pages = (tmp_path / "large.silo").stat().st_size // 4096
    assert pages > 8000
    # One blob is 128 pages of the file and as many of the copy, the rest is the manifest and Python's own.
    assert faults < pages / 8


def test_a_file_has_the_lowest_version_that_can_express_it(tmp_path):
    plain, with_space = sample(1, 2), sample(2, 2)
    assert [rules.space for kernel in with_space.contents.kernels for rules in kernel.rules] == [0, 5]
    for name, made, minor in (("plain.silo", plain, 0), ("space.silo", with_space, 1)):
        path = tmp_path / name
        written(path, made).close()
        assert struct.unpack_from("<HH", path.read_bytes(), 8) == (1, minor)
    data = bytearray(path.read_bytes())
    data[10] = 0  # 1.0 knows no such member
    text = open_bundle(path).manifest_text.replace(b'"format":[1,1]', b'"format":[1,0]')
    old = tmp_path / "old.silo"
    old.write_bytes(sealed(bytes(data), text, compress=False))
    with open_bundle(old) as bundle, pytest.raises(BundleFormatError, match=r"unknown members \['space'\]"):
        bundle.contents()
