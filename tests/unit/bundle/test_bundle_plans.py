"""Plans in a bundle: both readers, what they refuse, and what cuts, slices, updates and descriptions do with them."""

import copy
import json
import random
import struct
from dataclasses import replace

import pytest

from bundle_samples import sealed
from made_plans import ROWS, SUMS, launch, twice, write_plans
from silo.bundle.bundle_slices import cut_contents, cut_slice, join_slices, targets_of
from silo.bundle.contents import host_plans
from silo.bundle.reader import Bundle, open_bundle
from silo.bundle.update import KernelUpdate, update_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.commands.bundle_description import describe_bundle
from silo.core.expressions import Argument
from silo.core.recorded_plans import RecordedPlan
from silo.core.values import canonical_json
from silo.errors import BundleError, BundleFormatError


@pytest.fixture(name="path", scope="module")
def made_bundle(tmp_path_factory):
    return write_plans(tmp_path_factory.mktemp("plans") / "plans.silo")


def with_manifest(path, change):
    """The file with another manifest, its hash right."""
    with open_bundle(path) as bundle:
        manifest = json.loads(bundle.manifest_text)
    change(manifest)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return sealed(path.read_bytes(), text, compress=False)


def test_what_is_written_is_read(path):
    with open_bundle(path) as bundle:
        assert bundle.header.minor == 7
        assert list(bundle.manifest.plans) == ["failing", "rows", "sums"]
        assert bundle.manifest.plans["sums"] == SUMS
        assert bundle.manifest.plans["rows"] == ROWS
        assert bundle.contents().plans == tuple(bundle.manifest.plans.values())
    assert verify_bundle(path) == ()
    assert verify_bundle(path.with_name("plain.silo")) == ()
    with open_bundle(path.with_name("plain.silo")) as bundle:
        assert bundle.header.minor < 7
        assert bundle.manifest.plans == {}


def test_json_and_back():
    for plan in (SUMS, ROWS):
        assert RecordedPlan.from_json(json.loads(canonical_json(plan.to_json()))) == plan


def test_an_update_keeps_them_and_a_cut_those_whose_kernels_stay(path, tmp_path):
    copied = tmp_path / "copy.silo"
    copied.write_bytes(path.read_bytes())
    update_bundle(copied, {"add": KernelUpdate()})
    assert copied.read_bytes() == path.read_bytes()
    with open_bundle(path) as bundle:
        contents = bundle.contents()
    assert cut_contents(contents, None, None).plans == contents.plans
    assert [plan.name for plan in cut_contents(contents, ["add"], None).plans] == ["sums"]
    assert [plan.name for plan in cut_contents(contents, ["add", "fails"], None).plans] == ["failing", "sums"]


def test_slices_have_all_of_them_and_joined_they_are_the_whole(path, tmp_path):
    with open_bundle(path) as whole:
        paths = []
        for number, target in enumerate(targets_of(whole.contents())):
            part = cut_slice(whole, [target])
            assert part.contents.plans == whole.contents().plans
            paths.append(tmp_path / f"{number}.silo")
            write_bundle(paths[-1], part.contents, lambda sha256: part.documents.get(sha256) or whole.blob(sha256))  # noqa: B023
        parts = [open_bundle(one) for one in paths]
        joined = join_slices(parts)
        write_bundle(
            tmp_path / "joined.silo", joined.contents, lambda sha: joined.documents.get(sha) or whole.blob(sha)
        )
    assert (tmp_path / "joined.silo").read_bytes() == path.read_bytes()


def test_bundles_with_different_plans_of_one_name_are_not_joined(path, tmp_path):
    other = write_plans(tmp_path / "other.silo", replace(ROWS, name="sums"))
    with open_bundle(path) as one, open_bundle(other) as two, pytest.raises(BundleError, match="different plans sums"):
        join_slices([one, two])


def test_two_plans_of_one_name_are_not_written(tmp_path):
    with pytest.raises(BundleError, match="two plans of one bundle have one name"):
        write_plans(tmp_path / "two.silo", SUMS, replace(ROWS, name="sums"))


def test_the_description_lists_them(path):
    rows = {(row.plan, row.form): row for row in describe_bundle(path).plans}
    assert rows["sums", 1].launches == ("add", "add")
    assert rows["sums", 1].holds == "(n > 0)"
    assert "x: fp32 of 1 axes" in rows["sums", 1].arguments
    assert "mode: 'double'" in rows["rows", 1].arguments
    assert {row.plan for row in describe_bundle(path, ["bare"]).plans} == {"rows"}


def test_a_file_of_an_older_version_has_no_such_member(path):
    with open_bundle(path) as bundle:
        text = bundle.manifest_text.replace(b'"format":[1,7]', b'"format":[1,6]')
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 10, 6)
    with pytest.raises(BundleFormatError, match="plans") as refused:
        Bundle.from_bytes(sealed(bytes(data), text, compress=False))
    assert refused.value.field == "manifest"


def changed(place, value):
    """A function that puts a value to a place of a manifest: ``plans[2].forms[0]...`` as a tuple."""

    def change(manifest):
        node = manifest["plans"]
        for step in place[:-1]:
            node = node[step]
        if value is KeyError:
            del node[place[-1]]
        else:
            node[place[-1]] = value

    return change


FORM = (2, "forms", 0)  # of sums
FIRST = (*FORM, "launches", 0)
SOURCE = (*FIRST, "arguments", 0)
GRID = (1, "forms", 0, "launches", 0)  # of rows


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        ((2, "name"), "failing", "plans[2].name"),
        ((2, "name"), "", "plans[2].name"),
        ((2, "more"), 1, "plans[2]"),
        ((2, "forms"), [], "plans[2].forms"),
        ((2, "forms"), KeyError, "plans[2]"),
        ((2, "parameters"), ["x", "x", "between", "out", "n"], "plans[2].parameters"),
        ((2, "parameters"), ["x"], "plans[2].forms[0].arguments"),
        ((2, "parameters"), [f"p{index}" for index in range(65)], "plans[2].parameters"),
        ((*FORM, "launches"), [], "plans[2].forms[0].launches"),
        ((*FORM, "holds"), [], "plans[2].forms[0].holds"),
        ((*FORM, "holds"), ["n"], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"argument": "z"}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"argument": "x"}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"config": "BLOCK"}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"fact": "sm_count"}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"itemsize": "x"}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"extent": ["x", 1]}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"extent": ["x", -1]}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [{"stride": ["n", 0]}], "plans[2].forms[0].holds[0]"),
        ((*FORM, "holds"), [1 << 70], "plans[2].forms[0].holds[0]"),
        ((*FORM, "arguments", 0), {"kind": "array"}, "plans[2].forms[0].arguments[0]"),
        ((*FORM, "arguments", 0, "dtype"), "fp32", "plans[2].forms[0].arguments[0].dtype"),
        ((*FORM, "arguments", 0, "dtype"), None, "plans[2].forms[0].arguments[0].dtype"),
        ((*FORM, "arguments", 0, "rank"), 0, "plans[2].forms[0].arguments[0].rank"),
        ((*FORM, "arguments", 0, "rank"), 33, "plans[2].forms[0].arguments[0].rank"),
        ((*FORM, "arguments", 4), {"kind": "number"}, "plans[2].forms[0].arguments[4].kind"),
        ((*FORM, "arguments", 4), {"kind": "integer", "rank": 1}, "plans[2].forms[0].arguments[4]"),
        ((*FORM, "arguments", 4), {"kind": "integer", "value": 1}, "plans[2].forms[0].arguments[4]"),
        ((*FORM, "arguments", 4), {"kind": "value", "value": None}, "plans[2].forms[0].arguments[4].value"),
        ((*FORM, "arguments", 4), {"kind": "value", "value": {"tuple": []}}, "plans[2].forms[0].arguments[4].value"),
        ((*FORM, "arguments", 4), {"kind": "value", "value": "a\0b"}, "plans[2].forms[0].arguments[4].value"),
        ((*FIRST, "kernel"), 1, "plans[2].forms[0].launches[0].kernel"),
        ((*FIRST, "arguments"), {}, "plans[2].forms[0].launches[0].arguments"),
        (SOURCE, ["x", "given"], "plans[2].forms[0].launches[0].arguments[0]"),
        (SOURCE, ["x", "taken", "x"], "plans[2].forms[0].launches[0].arguments[0][1]"),
        (SOURCE, ["", "given", "x"], "plans[2].forms[0].launches[0].arguments[0][0]"),
        (SOURCE, ["x", "given", "z"], "plans[2].forms[0].launches[0].arguments[0][2]"),
        (SOURCE, ["x", "given", 0], "plans[2].forms[0].launches[0].arguments[0][2]"),
        (SOURCE, ["x", "computed", {"argument": "x"}], "plans[2].forms[0].launches[0].arguments[0][2]"),
        (SOURCE, ["x", "constant", {"function": ["f", "x"]}], "plans[2].forms[0].launches[0].arguments[0][2]"),
        (SOURCE, ["x", "constant", {"int": "9223372036854775808"}], "plans[2].forms[0].launches[0].arguments[0][2]"),
        (SOURCE, ["y", "given", "x"], "plans[2].forms[0].launches[0].arguments"),
        ((*GRID, "grid"), [], "plans[1].forms[0].launches[0].grid"),
        ((*GRID, "grid"), [1, 1, 1, 1], "plans[1].forms[0].launches[0].grid"),
        ((*GRID, "grid"), [{"argument": "mode"}], "plans[1].forms[0].launches[0].grid[0]"),
        ((*GRID, "options"), [], "plans[1].forms[0].launches[0].options"),
        ((*GRID, "options"), [["num_warps"]], "plans[1].forms[0].launches[0].options[0]"),
        ((*GRID, "options"), [["a", 1], ["a", 2]], "plans[1].forms[0].launches[0].options"),
        ((*GRID, "arguments", 0), ["out", "given", "mode"], "plans[1].forms[0].launches[0].arguments[0][2]"),
    ],
)  # fmt: skip
def test_both_readers_refuse_what_no_writer_writes(path, place, value, field):
    data = with_manifest(path, changed(place, value))
    with pytest.raises(BundleFormatError) as refused:
        Bundle.from_bytes(data)
    assert refused.value.field == field
    with open_bundle(path) as bundle:
        assert refused.value.offset == bundle.header.manifest_offset


@pytest.mark.parametrize("value", [[], {}, None, "x", [None], [[]]])
def test_both_readers_refuse_what_is_no_list_of_plans(path, value):
    with pytest.raises(BundleFormatError) as refused:
        Bundle.from_bytes(with_manifest(path, lambda manifest: manifest.update(plans=value)))
    assert refused.value.field.startswith("plans")


def test_mutants_are_refused_or_read_as_python_reads_them(path):
    """What the native reader takes, Python's classes take too, and write again as it was."""
    rng = random.Random(7)
    with open_bundle(path) as bundle:
        plans = json.loads(bundle.manifest_text)["plans"]
    strange = [None, True, 0, -1, 5, 1 << 63, "", "x", "n", "out", "given", "a\0", [], {}, [0], {"argument": "n"}]
    strange += [{"float": "nan"}, {"float": "0x1.8000000000000p+1"}, {"dtype": "float32"}, {"tuple": []}, ["add", 1]]
    taken, refused = 0, []
    for _ in range(400):
        mutant = copy.deepcopy(plans)
        for _ in range(rng.choice((1, 1, 2))):
            node = mutant
            while True:
                where = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
                if not isinstance(node[where], dict | list) or not node[where] or rng.random() < 0.1:
                    break
                node = node[where]
            if rng.random() < 0.2:
                del node[where]
            else:
                node[where] = copy.deepcopy(rng.choice(strange))
            if not mutant:
                break
        data = with_manifest(path, lambda manifest, mutant=mutant: manifest.update(plans=mutant))
        try:
            read = Bundle.from_bytes(data)
        except BundleFormatError as error:
            refused.append(error.field)
            continue
        taken += 1
        assert [one.to_json() for one in read.manifest.plans.values()] == mutant
    assert taken > 0
    assert refused
    assert all(field.startswith("plans") for field in refused)


def test_what_is_vouched_for_is_the_plan_and_its_kernels_code(path, tmp_path):
    with open_bundle(path) as bundle:
        before = {name: plan.digest for plan, name in host_plans(bundle.contents())}
    assert set(before) == {"failing", "rows", "sums"}
    form = replace(ROWS.forms[0], launches=(launch("bare", out="out", n=twice(Argument("n")), grid=(Argument("n"),)),))
    with open_bundle(write_plans(tmp_path / "other.silo", SUMS, replace(ROWS, forms=(form,)))) as bundle:
        after = {name: plan.digest for plan, name in host_plans(bundle.contents())}
    assert after["sums"] == before["sums"]
    assert after["rows"] != before["rows"]
