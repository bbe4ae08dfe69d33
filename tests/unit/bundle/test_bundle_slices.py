"""A bundle cut by target and joined again: the same bytes; and what does not belong together."""

from dataclasses import replace

import pytest

from bundle_samples import sample
from silo.bundle.bundle_slices import slice_of, targets_of
from silo.bundle.reader import open_bundle
from silo.bundle.update import KernelUpdate, document_blob, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import Target
from silo.errors import BundleError
from silo.shipping.slice_bundle import merge_bundles, slice_bundle, slice_by_target


def written(path, made):
    write_bundle(path, made.contents, made.read_blob)
    return path


def several(kernels=3, variants=7, targets=("cpu:x86-64-v3", "cuda:sm_90", "hip:gfx942")):
    """A bundle whose targets lie mixed, with trials of each and of one that it has no code for."""
    made = sample(kernels, variants)
    named = [Target.parse(one) for one in targets]
    changed = []
    for number, kernel in enumerate(made.contents.kernels):
        items = []
        for at, one in enumerate(kernel.variants):
            target = named[(at * (number + 1)) % len(named)]
            items.append(replace_variant(one, target, Config.of(BLOCK=64 + at)))
        rules = tuple(
            replace_rules(rule, target) for target in (*named, Target.parse("tpu:v5e")) for rule in kernel.rules[:1]
        )
        trials = tuple(
            {"study": {"target": str(target)}, "trial": at}
            for at, target in enumerate([*named, Target.parse("tpu:v5e"), *reversed(named), named[0]])
        )
        ref, data = document_blob("trials", trials)
        made.blobs[ref.sha256] = data
        changed.append(replace(kernel, variants=tuple(items), rules=rules, trials=ref))
    made.contents = replace(made.contents, kernels=tuple(changed))
    return made


def replace_variant(one, target, config):
    from silo.frozen import replace as changed

    artifact = one.artifact
    return changed(one, artifact=changed(artifact, variant=changed(artifact.variant, target=target, config=config)))


def replace_rules(rules, target):
    from silo.frozen import replace as changed

    return changed(rules, target=target)


@pytest.fixture
def whole(tmp_path):
    path = written(tmp_path / "k.silo", several())
    assert verify_bundle(path) == ()
    return path


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_all_slices_are_the_whole_in_any_order(whole, tmp_path, order):
    made = slice_by_target(whole, tmp_path / "parts")
    assert len(made) == 3
    assert all(verify_bundle(one.path) == () for one in made)
    assert sum(one.size_bytes for one in made) < 3 * whole.stat().st_size
    merged = merge_bundles([tmp_path / "parts" / made[at].path for at in order], tmp_path / "again.silo")
    assert merged.whole
    assert (tmp_path / "again.silo").read_bytes() == whole.read_bytes()


def test_a_slice_holds_its_targets_alone(whole, tmp_path):
    made = slice_bundle(whole, ["cuda"], tmp_path / "part.silo")
    assert made.targets == ("cuda:sm_90",)
    with open_bundle(tmp_path / "part.silo") as part, open_bundle(whole) as bundle:
        contents = part.contents()
        assert {str(target) for target in targets_of(contents)} == {"cuda:sm_90"}
        assert {str(rules.target) for kernel in contents.kernels for rules in kernel.rules} == {"cuda:sm_90"}
        trials = [one for kernel in contents.kernels for one in part.trials(kernel.name)]
        assert {
            str(one["study"]["target"]) for one in trials if isinstance(one, dict) and isinstance(one["study"], dict)
        } == {"cuda:sm_90"}
        assert slice_of(part) == bundle.identity
        assert slice_of(bundle) == ""
        needed = {ref.sha256 for kernel in contents.kernels for ref in kernel.refs}
        assert {entry.sha256 for entry in part.blobs} == needed


def test_joined_slices_are_slices_until_all_are_there(whole, tmp_path):
    made = slice_by_target(whole, tmp_path / "parts")
    some = merge_bundles([one.path for one in made[1:]], tmp_path / "some.silo")
    assert (some.whole, some.of) == (False, open_bundle(whole).identity)
    again = merge_bundles([tmp_path / "some.silo", made[0].path], tmp_path / "again.silo")
    assert again.whole
    assert (tmp_path / "again.silo").read_bytes() == whole.read_bytes()


def test_a_slice_of_a_slice_joins_too(whole, tmp_path):
    slice_bundle(whole, ["cuda", "hip"], tmp_path / "gpus.silo")
    parts = [slice_bundle(tmp_path / "gpus.silo", [one], tmp_path / f"{one}.silo").path for one in ("cuda", "hip")]
    cpu = slice_bundle(whole, ["cpu"], tmp_path / "cpu.silo")
    assert merge_bundles([*parts, cpu.path], tmp_path / "again.silo").whole
    assert (tmp_path / "again.silo").read_bytes() == whole.read_bytes()


def test_one_slice_twice_counts_once(whole, tmp_path):
    made = slice_by_target(whole, tmp_path / "parts")
    paths = [one.path for one in made]
    assert merge_bundles([*paths, *paths], tmp_path / "again.silo").whole


def test_what_a_slice_was_tuned_to_is_in_the_outcome(whole, tmp_path):
    made = slice_by_target(whole, tmp_path / "parts")
    new = {"study": {"target": "cuda:sm_90"}, "trial": "new"}
    update_bundle(made[1].path, {"kernel_0": KernelUpdate(trials=(new,))})
    merged = merge_bundles([one.path for one in made], tmp_path / "again.silo")
    assert not merged.whole
    assert verify_bundle(tmp_path / "again.silo") == ()
    trials = open_bundle(tmp_path / "again.silo").trials("kernel_0")
    assert trials[:-1] == open_bundle(whole).trials("kernel_0")
    assert trials[-1] == new


def test_builds_for_other_targets_are_joined_in_the_order_given(tmp_path):
    one = written(tmp_path / "one.silo", several(targets=("cpu:x86-64-v3",)))
    two = written(tmp_path / "two.silo", several(targets=("cuda:sm_90",)))
    merged = merge_bundles([two, one], tmp_path / "k.silo")
    assert (merged.whole, merged.of) == (False, "")
    assert merged.targets == ("cuda:sm_90", "cpu:x86-64-v3")
    assert verify_bundle(tmp_path / "k.silo") == ()
    with open_bundle(tmp_path / "k.silo") as bundle, open_bundle(one) as first, open_bundle(two) as second:
        for name in bundle.kernel_names:
            together = (*second.kernel(name).variants, *first.kernel(name).variants)
            assert bundle.kernel(name).variants == together


def test_kernels_of_other_bundles_are_added(tmp_path):
    small, large = sample(1, 2), sample(3, 2)
    only = replace(large.contents, kernels=large.contents.kernels[1:])
    write_bundle(tmp_path / "b.silo", only, large.read_blob)
    written(tmp_path / "a.silo", small)
    merge_bundles([tmp_path / "a.silo", tmp_path / "b.silo"], tmp_path / "k.silo")
    assert open_bundle(tmp_path / "k.silo").kernel_names == ("kernel_0", "kernel_1", "kernel_2")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda contents: replace(contents, producer=tuple((name, "0.0") for name, _ in contents.producer)),
            "have producer of",
        ),
        (lambda contents: replace(contents, kernels=(replace(contents.kernels[0], grid=None),)), "another grid"),
        (lambda contents: replace(contents, kernels=(replace(contents.kernels[0], cases=None),)), "another cases"),
        (
            lambda contents: replace(
                contents,
                kernels=(
                    replace(
                        contents.kernels[0],
                        variants=tuple(replace_reason(one) for one in contents.kernels[0].variants),
                    ),
                ),
            ),
            "different variants",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused_and_nothing_is_written(tmp_path, change, reason):
    made = sample(1, 2)
    written(tmp_path / "a.silo", made)
    made.contents = change(made.contents)
    written(tmp_path / "b.silo", made)
    with pytest.raises(BundleError, match=reason):
        merge_bundles([tmp_path / "a.silo", tmp_path / "b.silo"], tmp_path / "k.silo")
    assert not (tmp_path / "k.silo").exists()


def replace_reason(one):
    from silo.frozen import replace as changed

    return changed(one, reason="another")


def test_a_target_without_code_is_an_error(whole, tmp_path):
    with pytest.raises(BundleError, match=r"has no code for tpu.*it has code for cpu:x86-64-v3, cuda:sm_90"):
        slice_bundle(whole, ["tpu"], tmp_path / "part.silo")
    with pytest.raises(BundleError, match="ends in"):
        slice_bundle(whole, ["cpu"], tmp_path / "part")
    assert not (tmp_path / "part.silo").exists()


@pytest.mark.parametrize(
    "note",
    [
        "",
        "no JSON",
        "[]",
        '{"of":5,"places":{}}',
        '{"of":"x","places":{"kernel_0":5}}',
        '{"of":"x","places":{"kernel_0":[[0],[],[]]}}',
        '{"of":"x","places":{"kernel_0":[[-5,2],["a"],[0,99999999999]]}}',
        '{"of":"x","places":{"kernel_0":[[0,1000000],[],[]],"no kernel":[[],[],[]]}}',
    ],
)
def test_a_note_that_makes_no_sense_places_nothing(tmp_path, note):
    made = several()
    made.contents = replace(made.contents, notes=(("slice", note),))
    written(tmp_path / "k.silo", made)
    merged = merge_bundles([tmp_path / "k.silo"], tmp_path / "again.silo")
    assert not merged.whole
    assert verify_bundle(tmp_path / "again.silo") == ()
    with open_bundle(tmp_path / "again.silo") as bundle, open_bundle(tmp_path / "k.silo") as before:
        assert {name: bundle.kernel(name).variants for name in bundle.kernel_names} == {
            name: before.kernel(name).variants for name in before.kernel_names
        }


def test_a_bundle_may_be_joined_onto_itself(whole):
    before = whole.read_bytes()
    merge_bundles([whole], whole)
    assert whole.read_bytes() == before
