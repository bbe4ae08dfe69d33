"""``silo inspect`` and ``silo verify`` name variants of a file that share code with a look-alike (V=1 and V=True).

Stands for bundles that an earlier version built, which took such values for one.
"""

import pytest

pytest.importorskip("cryptography", reason="silo verify needs kernel-silo[sign]")

from bundle_samples import sample
from silo.bundle.writer import write_bundle
from silo.commands.bundle_description import describe_bundle
from silo.frozen import replace
from silo.shipping.sign_bundle import verify_bundle_signature


def with_constant(one, value):
    variant = one.artifact.variant
    specialization = variant.specialization.with_constants({**variant.specialization.constant_values, "V": value})
    return replace(one, artifact=replace(one.artifact, variant=replace(variant, specialization=specialization)))


def test_a_file_whose_variants_share_code_says_which(tmp_path):
    made = sample()
    kernel, *others = (replace(one, cases=None, trials=None) for one in made.contents.kernels)
    first, second, *_ = kernel.variants
    path = tmp_path / "k.silo"
    for values, lines in (((1, True), 1), ((0.0, -0.0), 1), ((2, 3), 0)):
        shared = tuple(with_constant(first, value) for value in values)
        whole = replace(kernel, variants=(*kernel.variants, *shared, with_constant(second, values[1])))
        write_bundle(path, replace(made.contents, kernels=(whole, *others)), made.read_blob)
        described, verified = describe_bundle(path).doubts, verify_bundle_signature(path).doubts
        assert described == verified
        assert len(described) == lines
        assert all(kernel.name in line and f"V={values[0]!r} serves V={values[1]!r}" in line for line in described)
        assert verify_bundle_signature(path).problems == ()
