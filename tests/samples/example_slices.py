"""Builds bundles of the examples, cuts them by target, and merges the parts again."""

from pathlib import Path

from silo.bundle.verify import verify_bundle
from silo.commands.build_bundle import build_bundle
from silo.settings import override
from silo.shipping.slice_bundle import merge_bundles, slice_by_target

EXAMPLES = Path(__file__).parents[2] / "examples"


def check_round_trip(folder, example, targets, kernels=None):
    """Check that an example's bundle, cut by target and merged in either order, has the same bytes."""
    whole = folder / "whole.silo"
    with override(home=folder / "home", jobs=1, tune="off"):
        build_bundle([EXAMPLES / example], whole, targets=targets, kernels=kernels, tune="off", configs="1")
    parts = [folder / "parts" / one.path for one in slice_by_target(whole, folder / "parts")]
    assert len(parts) >= 2
    for number, order in enumerate((parts, parts[::-1])):
        joined = folder / f"joined-{number}.silo"
        merge_bundles(order, joined)
        assert joined.read_bytes() == whole.read_bytes()
    assert not any(verify_bundle(part) for part in parts)
