import threading
from dataclasses import replace

import pytest

from bundle_samples import put, sample
from silo.bundle.reader import open_bundle
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.dispatch import DispatchRules
from silo.errors import BundleError


@pytest.fixture
def made():
    return sample(2, 3)


@pytest.fixture
def path(tmp_path, made):
    write_bundle(tmp_path / "k.silo", made.contents, made.read_blob)
    return tmp_path / "k.silo"


def test_trials_join_and_equal_ones_count_once(path, made):
    old = open_bundle(path).trials("kernel_0")
    update_bundle(path, {"kernel_0": KernelUpdate(trials=(old[1], {"new": 1}))})
    bundle = open_bundle(path)
    assert bundle.trials("kernel_0") == (*old, {"new": 1})
    assert bundle.kernel("kernel_1") == made.contents.kernels[1]
    assert verify_bundle(path) == ()


def test_rules_of_one_target_and_signature_are_replaced(path, made):
    old = made.contents.kernels[0].rules[0]
    new = replace(old, rules=DispatchRules.of(["n"], {}, Config.of(BLOCK=512)))
    other = replace(new, target=made.contents.kernels[0].variants[1].artifact.variant.target)
    update_bundle(path, {"kernel_0": KernelUpdate(rules=(new, other))})
    assert open_bundle(path).kernel("kernel_0").rules == (new, other)


def test_variants_are_replaced_in_place_or_added_at_the_end(path, made):
    blobs = {}
    items = made.contents.kernels[0].variants
    ref = put(blobs, "cubin", b"new code")
    better = replace(items[1], artifact=replace(items[1].artifact, blob=ref), reason="compiled again")
    added = replace(items[1], artifact=replace(items[1].artifact, blob=ref, compiler="other 2.0"))
    update_bundle(path, {"kernel_0": KernelUpdate(variants=(better, added))}, blobs.get)
    bundle = open_bundle(path)
    assert bundle.kernel("kernel_0").variants == (items[0], better, items[2], added)
    assert bundle.blob(ref.sha256) == b"new code"
    assert items[1].artifact.blob.sha256 not in {entry.sha256 for entry in bundle.blobs}, (
        "what nothing needs is dropped"
    )
    assert verify_bundle(path) == ()


def test_an_update_gives_the_bytes_that_a_build_would(path, made, tmp_path):
    update_bundle(path, {"kernel_0": KernelUpdate()})
    write_bundle(tmp_path / "again.silo", made.contents, made.read_blob)
    assert path.read_bytes() == (tmp_path / "again.silo").read_bytes()


def test_a_failed_update_leaves_the_bundle(path, made):
    before = path.read_bytes()
    item = made.contents.kernels[0].variants[0]
    lost = replace(item, artifact=replace(item.artifact, blob=put({}, "so", b"nobody has it")))
    with pytest.raises(BundleError, match="gone"):
        update_bundle(path, {"kernel_0": KernelUpdate(variants=(lost,))})
    with pytest.raises(BundleError, match="no kernel nope"):
        update_bundle(path, {"nope": KernelUpdate()})
    assert path.read_bytes() == before
    with pytest.raises(BundleError, match="cannot open"):
        update_bundle(path.parent / "absent.silo", {})


def test_a_damaged_blob_is_not_carried_along(path):
    bundle = open_bundle(path)
    entry = bundle.blobs[0]
    data = bytearray(path.read_bytes())
    data[entry.offset] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError):
        update_bundle(path, {"kernel_0": KernelUpdate(trials=({"new": 1},))})
    assert path.read_bytes() == data


def test_updates_at_once_all_count(path):
    def work(number):
        for step in range(4):
            update_bundle(path, {"kernel_0": KernelUpdate(trials=({"thread": number, "step": step},))})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trials = open_bundle(path).trials("kernel_0")
    assert len(trials) == 3 + 16
    assert verify_bundle(path) == ()
