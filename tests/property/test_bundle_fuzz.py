"""Any bytes at all: a bundle is read right or refused with field and offset; nothing else may happen."""

import contextlib
import copy
import hashlib
import json
import random
import struct

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bundle_samples import sample, sealed
from repetitions import repetitions
from silo.bundle.reader import Bundle
from silo.bundle.verify import verify_open
from silo.bundle.writer import write_bundle
from silo.errors import BundleFormatError, BundleVersionError


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A bundle of about 3 KB with every kind of content."""
    made = sample(2, 2, blob_bytes=160)
    path = tmp_path_factory.mktemp("fuzz") / "k.silo"
    write_bundle(path, made.contents, made.read_blob)
    return path.read_bytes()


def read_all(data: bytes):
    """Everything a reader can get out of a bundle."""
    bundle = Bundle.from_bytes(data, "k.silo")
    contents = bundle.contents()
    blobs = [bundle.read(entry) for entry in bundle.blobs]
    documents = [(bundle.cases(name), bundle.trials(name)) for name in bundle.kernel_names]
    return contents, blobs, documents


def read_one_by_one(data: bytes) -> None:
    """What launches read, by the way that launches take."""
    bundle = Bundle.from_bytes(data, "k.silo")
    for name in bundle.kernel_names:
        kernel = bundle.open_kernel(name)
        for group in kernel.groups():
            for number in group.numbers:
                assert kernel[number].artifact.variant.specialization == group.specialization
        assert sorted(number for one in kernel.code for number in one.numbers) == list(range(len(kernel)))


def outcome(data: bytes):
    """What was read, or None where it was refused properly."""
    with contextlib.suppress(BundleFormatError, BundleVersionError):
        read_one_by_one(data)
    try:
        return read_all(data)
    except BundleFormatError as error:
        refusal = error
    except BundleVersionError as error:
        assert "newer" in str(error)  # noqa: PT017  # anything but these two errors must come out
        return None
    assert refusal.field
    assert refusal.field in str(refusal)
    assert 0 <= refusal.offset <= max(len(data), 64)
    str(refusal).encode()
    return None


def manifest_of(data: bytes) -> bytes:
    return Bundle.from_bytes(data).manifest_text


def mutated(rng: random.Random, data: bytes) -> bytes:
    """One to four changes of bytes."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not result:
            break
        at = rng.randrange(len(result))
        match rng.randrange(7):
            case 0:
                result[at] ^= 1 << rng.randrange(8)
            case 1:
                result[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del result[at : at + rng.randint(1, 80)]
            case 3:
                result[at:at] = rng.randbytes(rng.randint(1, 80))
            case 4:
                end, to = at + rng.randint(1, 80), rng.randrange(len(result))
                result[to : to + end - at] = result[at:end]
            case 5:
                del result[at:]
            case _:
                width = rng.choice((1, 2, 4, 8))
                field = rng.randrange(8, 64)
                result[field : field + width] = rng.choice(
                    (bytes(width), b"\xff" * width, rng.randbytes(width), (64).to_bytes(width, "little"))
                )
    return bytes(result)


def places(node, path=()):
    yield path
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(child, (*path, key))


STRANGE = (
    *(None, True, False, 0, 1, -1, 63, 64, 1 << 31, 1 << 40, 1 << 63, 1 << 64, -(1 << 63), 10**400),
    *("", "x", "\ud800", "\0", "cpu", "cuda:sm_90", "0" * 64, "raw", "zstd", "so"),
    *([], [[]], [0], [1, 2, 3, 4, 5, 6], ["add", 1], ["const", 5], {}, {"a": 1}),
    *({"int": "9" * 5000}, {"float": "0x1p99999"}, {"float": "inf"}, {"dtype": "nope"}, {"function": [1, 2]}),
    {"tuple": [{"tuple": []}]},
)


def restructured(rng: random.Random, manifest) -> bytes:
    """The manifest with one to three of its nodes replaced, removed or repeated."""
    tree = json.loads(json.dumps(manifest))
    for _ in range(rng.randint(1, 3)):
        *parents, last = rng.choice([path for path in places(tree) if path])
        node = tree
        for key in parents:
            node = node[key]
        match rng.randrange(5):
            case 0:
                del node[last]
            case 1 if isinstance(node, list):
                node.insert(last, node[rng.randrange(len(node))])
            case 2 if isinstance(node, dict):
                node[rng.choice(("x", "name", "format", ""))] = copy.deepcopy(rng.choice(STRANGE))
            case 3 if type(node[last]) is int:
                node[last] += rng.choice((-64, -1, 1, 2, 64, 1 << 20))
            case _:
                node[last] = copy.deepcopy(rng.choice(STRANGE))
        if not tree:
            break
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return text.encode()


def test_the_whole_bundle_is_read_right(small):
    contents, blobs, documents = read_all(small)
    assert len(contents.kernels) == len(documents) == 2
    assert blobs
    for compress in (False, True):
        assert outcome(sealed(small, manifest_of(small), compress=compress)) == (contents, blobs, documents)


def test_mutated_files(small):
    rng = random.Random(1)
    right = read_all(small)
    refused = 0
    count = repetitions("SILO_TEST_MUTANTS", 3000, 12_000)
    for _ in range(count):
        found = outcome(mutated(rng, small))
        refused += found is None
        assert found is None or found == right
    assert refused > 0.92 * count


def test_mutated_manifests_under_a_right_hash(small):
    rng = random.Random(2)
    text = manifest_of(small)
    refused = 0
    count = repetitions("SILO_TEST_MUTANTS", 1200, 5000)
    for number in range(count):
        refused += outcome(sealed(small, mutated(rng, text), compress=number % 2 == 0)) is None
    assert refused > 0.8 * count


def test_rebuilt_manifests_under_a_right_hash(small):
    rng = random.Random(3)
    manifest = json.loads(manifest_of(small))
    refused = 0
    count = repetitions("SILO_TEST_MUTANTS", 800, 3000)
    for _ in range(count):
        data = sealed(small, restructured(rng, manifest), compress=False)
        found = outcome(data)
        refused += found is None
        if found is not None:
            # What was let through must be fit for everything that is done with it.
            verify_open(Bundle.from_bytes(data))
    assert refused > 0.5 * count


def test_mutated_zstd_frames_of_a_manifest(small):
    rng = random.Random(4)
    frame = zstandard.ZstdCompressor(level=19).compress(manifest_of(small))
    offset = struct.unpack_from("<Q", small, 16)[0]
    right = read_all(small)
    count = repetitions("SILO_TEST_MUTANTS", 800, 3000)
    for _ in range(count):
        stored = mutated(rng, frame)
        head = small[:12] + struct.pack("<IQQ", 1, offset, len(stored)) + hashlib.sha256(stored).digest()
        found = outcome(head + small[64:offset] + stored)
        # Some bits of a frame mean nothing, so the same text may come out; another text seldom parses.
        assert found is None or len(found[0].kernels) == len(right[0].kernels)


def test_every_flipped_bit_is_found(small):
    rng = random.Random(5)
    offset = struct.unpack_from("<Q", small, 16)[0]
    places_ = [(at, bit) for at in range(64) for bit in range(8)]
    places_ += [(at, rng.randrange(8)) for at in range(64, len(small))]
    for at, bit in places_:
        data = bytearray(small)
        data[at] ^= 1 << bit
        try:
            problems = verify_open(Bundle.from_bytes(bytes(data)))
        except (BundleFormatError, BundleVersionError):
            continue
        assert at in range(64, offset), "a flip in the header or the manifest must not even open"
        assert problems, f"bit {bit} of byte {at} was flipped unseen"
        assert all(problem.offset <= at for problem in problems)


def test_every_truncation_is_found(small):
    for length in range(len(small)):
        assert outcome(small[:length]) is None
    assert outcome(small + b"\0") is None


@pytest.mark.parametrize("claimed", [1 << 29, 1 << 40, (1 << 64) - 3])
def test_a_frame_that_claims_too_much_costs_no_memory(small, claimed):
    """A zstd frame whose header states a huge content size, as manifest and as blob."""
    frame = b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", claimed) + b"\x01\x00\x00"
    offset = struct.unpack_from("<Q", small, 16)[0]
    head = small[:12] + struct.pack("<IQQ", 1, offset, len(frame)) + hashlib.sha256(frame).digest()
    assert outcome(head + small[64:offset] + frame) is None


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes(data):
    assert outcome(data) is None
    assert outcome(b"SILOBNDL" + data) is None


@given(
    manifest=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
        max_leaves=20,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_json_as_manifest(manifest):
    text = json.dumps(manifest).encode()
    head = b"SILOBNDL" + struct.pack("<HHIQQ", 1, 0, 0, 64, len(text)) + hashlib.sha256(text).digest()
    assert outcome(head + text) is None


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"blobs":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":1,"a":1}',
        b'{"a":1.5}',
        b'{"a":NaN}',
    ],
    ids=["lists", "objects", "deep", "twice", "float", "nan"],
)
def test_evil_json(text):
    head = b"SILOBNDL" + struct.pack("<HHIQQ", 1, 0, 0, 64, len(text)) + hashlib.sha256(text).digest()
    assert outcome(head + text) is None


def test_utf_16_is_refused(small):
    text = manifest_of(small).decode().encode("utf-16-le")
    assert outcome(sealed(small, text, compress=False)) is None
