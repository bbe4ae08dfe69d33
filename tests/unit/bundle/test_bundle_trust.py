"""Host code in a bundle, from building it here to getting it from somebody else."""

import pytest

from bundle_samples import sample
from silo.artifacts.artifact import Artifact
from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant, calls_of, host_code
from silo.bundle.reader import open_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import BundleFormatError, TrustError
from silo.store.store import Store


def built_here(store: Store, path) -> None:
    """A bundle of one CPU variant that ``store`` compiled."""
    compiled = Compiled(LaunchInfo("f", ()), CompiledBlob("so", b"native code " * 40), (CompiledBlob("c", b"int f;"),))
    outcome = store.artifacts.put_compiled("1" * 64, compiled)
    base = sample(1, 1).contents.kernels[0]
    variant = base.variants[0].artifact.variant
    artifact = Artifact(variant, outcome.launch, outcome.blob, outcome.sidecars, "made-up 1.0", "1" * 64)
    kernel = BundleKernel("f", base.signature, variants=(BundleVariant(artifact, "first config"),))
    store.artifacts.put("1" * 64, artifact)
    store.trust.note_built(host_code(kernel.variants[0], calls_of(kernel)))
    write_bundle(path, BundleContents((kernel,)), store.blobs.get)


def codes(bundle):
    """The native code of a bundle, as it has it called."""
    return [
        host_code(one, calls_of(kernel))
        for kernel in map(bundle.kernel, bundle.kernel_names)
        for one in kernel.variants
        if one.artifact.runs_on_host
    ]


def test_the_builder_loads_it_and_others_are_asked(tmp_path):
    mine, other = Store(tmp_path / "mine"), Store(tmp_path / "other")
    built_here(mine, tmp_path / "k.silo")
    with open_bundle(tmp_path / "k.silo") as bundle:
        mine.trust.require(codes(bundle), origin="k.silo")
        with pytest.raises(TrustError, match=r"silo trust k\.silo"):
            other.trust.require(codes(bundle), origin="k.silo")
        other.trust.require(codes(bundle), origin="k.silo", trust=True)
        assert other.trust.note_trusted([(one, "f") for one in codes(bundle)], "k.silo") == 1
        other.trust.require(codes(bundle), origin="k.silo")


def test_looking_needs_no_trust(tmp_path):
    built_here(Store(tmp_path / "mine"), tmp_path / "k.silo")
    assert verify_bundle(tmp_path / "k.silo") == ()
    with open_bundle(tmp_path / "k.silo") as bundle:
        assert bundle.kernel("f").variants[0].artifact.launch.entry == "f"


def test_altered_code_is_refused_although_the_file_is_trusted(tmp_path):
    store = Store(tmp_path / "mine")
    path = tmp_path / "k.silo"
    built_here(store, path)
    entry = next(entry for entry in open_bundle(path).blobs if entry.kind == "so")
    data = bytearray(path.read_bytes())
    data[entry.offset + entry.stored_bytes - 3] ^= 4
    path.write_bytes(data)
    with open_bundle(path) as bundle:
        store.trust.require(codes(bundle), origin="k.silo")
        with pytest.raises(BundleFormatError, match="blob so"):
            bundle.blob(entry.sha256)


def test_code_swapped_for_other_code_is_not_what_was_trusted(tmp_path):
    store = Store(tmp_path / "mine")
    built_here(store, tmp_path / "k.silo")
    other = sample(1, 1)
    write_bundle(tmp_path / "k.silo", other.contents, other.read_blob)
    with open_bundle(tmp_path / "k.silo") as bundle, pytest.raises(TrustError):
        store.trust.require(codes(bundle), origin="k.silo")
