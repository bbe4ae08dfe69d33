"""A part of a bundle, and bundles in which all is stored as it is."""

from dataclasses import replace

import pytest

from bundle_samples import sample
from silo.bundle.bundle_slices import cut_contents, is_for
from silo.bundle.contents import BundleContents
from silo.bundle.reader import open_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.core.device import Target
from silo.errors import BundleError

CPU, CUDA = Target.parse("cpu"), Target.parse("cuda:sm_90")


@pytest.mark.parametrize(
    ("wanted", "serves"),
    [("cuda", True), ("cuda:sm_90", True), ("cuda:sm_90a", True), ("cuda:sm_80", False), ("hip", False)],
)
def test_a_kind_stands_for_all_of_it(wanted, serves):
    assert is_for(Target.parse("cuda:sm_90a"), Target.parse(wanted)) is serves


def test_only_what_launches_need_is_kept():
    whole = sample(kernels=3, variants=4).contents
    # As builds write them: a config is chosen before a compiler has seen effects.
    rules = [replace(one, signature=one.signature.without_effects()) for one in whole.kernels[0].rules]
    whole = replace(whole, kernels=tuple(replace(one, rules=tuple(rules)) for one in whole.kernels))
    cut = cut_contents(whole, ["kernel_0", "kernel_2"], [CPU])
    assert [kernel.name for kernel in cut.kernels] == ["kernel_0", "kernel_2"]
    for kernel in cut.kernels:
        assert {one.artifact.variant.target.kind for one in kernel.variants} == {"cpu"}
        assert {ref.kind for ref in kernel.refs} == {"so"}
        assert kernel.rules
        assert (kernel.key, kernel.grid) == (("n",), whole.kernels[0].grid)
    (kernel,) = cut_contents(whole, ["kernel_0"], [CUDA]).kernels
    assert not kernel.rules  # they are for the CPU
    assert cut_contents(whole, None, None).kernels[0].variants != whole.kernels[0].variants  # sidecars are gone


def test_nothing_left_is_an_error():
    whole = sample().contents
    with pytest.raises(BundleError, match="there is no kernel x; the bundle has kernel_0, kernel_1"):
        cut_contents(whole, ["x"], None)
    with pytest.raises(BundleError, match="kernel_0 has no code for hip; it has code for cpu:x86-64-v3, cuda:sm_90"):
        cut_contents(whole, None, [Target.parse("hip")])


def test_stored_as_it_is(tmp_path):
    made = sample(blob_bytes=4000)
    contents = cut_contents(made.contents, None, None)
    contents = BundleContents(contents.kernels, contents.producer, (*contents.toolchain, ("zstd", "1.2.3")))
    first, second = tmp_path / "a.silo", tmp_path / "b.silo"
    assert write_bundle(first, contents, made.read_blob, raw=True) == write_bundle(
        second, contents, made.read_blob, raw=True
    )
    assert first.read_bytes() == second.read_bytes()
    with open_bundle(first) as bundle:
        assert {entry.codec for entry in bundle.blobs} == {"raw"}
        assert not bundle.header.zstd_manifest
        assert dict(bundle.contents().toolchain) == {"triton": "3.9.0"}  # no libzstd had a say
    assert not verify_bundle(first)
