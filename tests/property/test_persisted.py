"""Values whose fields declare their JSON: every value comes back, and whatever is not its JSON is refused by name."""

import copy
import json
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bundle_samples import sample
from fake_backend.measure import fake_study
from silo.artifacts.artifact import BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleRules, BundleVariant, entry_members
from silo.bundle.encode import minor_version
from silo.core.config import Config
from silo.core.device import TARGET, DeviceModel, Target
from silo.core.extents import DynamicLayout, Extents
from silo.core.json_reader import (
    BOOL,
    DTYPE,
    FLOAT,
    INTEGER,
    NATURAL,
    NATURALS,
    TEXT,
    VALUE,
    Persisted,
    PersistedRow,
    enumerated,
    integer,
    listed,
    members_of,
    named,
    optional,
    paired,
    value_of,
    write_members,
)
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.recipes import ArrayRecipe, CaseRecipe, DescriptorRecipe, ScalarRecipe
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTYPES, canonical_json, parse_json, value_to_json
from silo.frozen import field, frozen, replace
from silo.store.artifacts import Outcome
from silo.tuner.foreign_decision import ForeignWinner
from silo.tuner.trial import ReferenceSamples, Status

ROOT = Path(__file__).resolve().parents[2]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@frozen
class Place(PersistedRow):
    title = "a place"

    name: str = field(form=TEXT)
    at: int = field(default=0, form=integer(-3, 3))


@frozen
class Thing(Persisted):
    title = "a thing"
    tags = MappingProxyType({"schema": "thing/1"})

    name: str = field(form=TEXT)
    count: int = field(form=NATURAL)
    colour: Colour = field(form=enumerated(Colour))
    target: Target = field(form=TARGET)
    places: tuple[Place, ...] = field(form=listed(value_of(Place), most=4))
    values: tuple[tuple[str, object], ...] = field(default=(), form=named(VALUE))
    pairs: tuple[tuple[str, int], ...] = field(default=(), form=paired(INTEGER))
    ratio: float | None = field(default=None, form=optional(FLOAT))
    samples: tuple[int, ...] = field(default=(), form=NATURALS, left_out=True)
    dtype: object = field(default=None, form=DTYPE, left_out=True)
    flag: bool = field(default=False, form=BOOL, member="is_flagged", left_out=True)
    newer: bool = field(default=False, form=BOOL, since=7)

    def __post_init__(self):
        if self.name == "refused":
            raise ValueError("no thing is called refused")


texts = st.text(max_size=6).filter(lambda text: text != "refused")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.sampled_from(DTYPES)
things = st.builds(
    Thing,
    name=texts,
    count=st.integers(0, 1 << 70),
    colour=st.sampled_from(Colour),
    target=st.sampled_from([Target.parse("cuda:sm_90a"), Target.parse("cpu:x86-64-v3")]),
    places=st.lists(st.builds(Place, texts, st.integers(-3, 3)), max_size=4).map(tuple),
    values=st.dictionaries(texts, scalars, max_size=4).map(lambda members: tuple(sorted(members.items()))),
    pairs=st.lists(st.tuples(texts, st.integers()), max_size=4).map(tuple),
    ratio=st.none() | st.floats(allow_nan=False),
    samples=st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple),
    dtype=st.none() | st.sampled_from(DTYPES),
    flag=st.booleans(),
    newer=st.booleans(),
)
THING = Thing("x", 3, Colour.RED, Target.parse("cuda:sm_90a"), (Place("a", 1),), newer=True)
THING_JSON = write_members(THING)

JUNK = (
    *(None, True, False, 0, -1, 4, 1 << 70, "", "x", "red", "cpu", [], [[]], ["a"], ["a", 9], [["a", 1]], {}),
    *({"a": 1}, {"float": "nan"}, {"float": "0x1p+99999"}, {"dtype": "no"}, {"int": "x"}, {"tuple": [[]]}),
)


@settings(max_examples=200, deadline=None)
@given(things)
def test_every_value_comes_back(thing):
    data = thing.to_json()
    text = canonical_json(data)
    back = Thing.from_json(parse_json(text))
    assert canonical_json(back.to_json()) == text
    assert back.to_json() == data
    assert list(data) == sorted(data)
    assert ("newer" in data, "is_flagged" in data, "samples" in data) == (thing.newer, thing.flag, bool(thing.samples))


def test_members_are_those_that_the_fields_declare():
    assert [one.member for one in members_of(Thing)][-2:] == ["is_flagged", "newer"]
    assert {one.member: one.since for one in members_of(Thing) if one.since} == {"newer": 7}
    assert THING_JSON["schema"] == "thing/1"
    assert THING_JSON["places"] == [["a", 1]]


@pytest.mark.parametrize("name", sorted(set(THING_JSON)))
def test_a_member_that_is_missing_is_named(name):
    data = {key: value for key, value in THING_JSON.items() if key != name}
    if name == "newer":
        assert Thing.from_json(data) == replace(THING, newer=False)
        return
    with pytest.raises(ValueError, match=rf"not a thing: members \['{name}'\] are missing"):
        Thing.from_json(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": 1}, r"not a thing: unknown members \['more'\]"),
        ({"flag": True}, r"not a thing: unknown members \['flag'\]"),  # the field's name, not the member's
        ({"schema": "thing/2"}, "not a thing: its schema is 'thing/2', not 'thing/1'"),
        ({"newer": False}, "the newer of a thing is left out where it is False"),
        ({"samples": []}, "the samples of a thing is left out"),
        ({"is_flagged": 1}, "not the is_flagged of a thing: 1"),
        ({"count": -1}, "not the count of a thing: -1"),
        ({"count": True}, "not the count of a thing: True"),
        ({"colour": "green"}, "not the colour of a thing: 'green'"),
        ({"colour": []}, r"not the colour of a thing: \[\]"),
        ({"target": "nope"}, "nope"),
        ({"places": [["a", 4]]}, "not the at of a place: 4"),
        ({"places": [["a"]]}, r"not a place: \['a'\]"),
        ({"places": [["a", 1]] * 5}, "the places of a thing of 5 items; at most 4"),
        ({"values": {"a": {"float": "x"}}}, "a of the values of a thing"),
        ({"pairs": [["a", "b"]]}, "not a of the pairs of a thing: 'b'"),
        ({"ratio": 1}, "not the ratio of a thing: 1"),
        ({"samples": [1, True]}, "not the samples of a thing"),
        ({"samples": [1, -1]}, "not the samples of a thing"),
        ({"dtype": "float31"}, "float31"),
        ({"name": "refused"}, "no thing is called refused"),
    ],
)
def test_what_is_malformed_is_refused_at_its_place(change, message):
    with pytest.raises(ValueError, match=message):
        Thing.from_json({**THING_JSON, **change})


def test_a_class_says_when_a_field_declares_no_form():
    @frozen
    class Half(Persisted):
        title = "a half"

        name: str = field(form=TEXT)
        rest: int = 0

    with pytest.raises(TypeError, match=r"Half\.rest declares no form"):
        Half("x").to_json()

    @frozen
    class Empty(Persisted):
        title = "an empty"

        name: str = field(form=TEXT, left_out=True)

    with pytest.raises(TypeError, match=r"Empty\.name is left out and has no default"):
        Empty("x").to_json()


# ---- Silo's own classes ----

STUDY = fake_study()
CONFIG = Config.of(BLOCK=64, ACT="relu", num_warps=4)
MADE = sample(1, 2)
VARIANT = MADE.contents.kernels[0].variants[0]
ARTIFACT = VARIANT.artifact
X = ArrayRecipe.of("normal", (4, 8), strides=(8, 1))
MAPS = (TensorMap("x", 3, 2, 6, (64,)), TensorMap("x", 3, 2, 6, (8, 64), axes=(0, (64, 1))))
OWN = [
    THING,
    CONFIG,
    ARTIFACT,
    replace(ARTIFACT, hidden_memory="it loads addresses from memory"),
    ARTIFACT.variant,
    ARTIFACT.variant.signature.parameters[0],
    BlobRef("ab" * 32, "cubin", 5),
    LaunchInfo("f", (LayoutSlot("x", AbiType.TENSORMAP),), threads=64, block=(8, 8, 1), tensor_maps=MAPS, loader="x"),
    LaunchInfo("f", (), cluster=(2, 1, 1), counts_blocks=True, options=(("cpu_chunk", 2),)),
    *MAPS,
    Specialization((("x", Fact.ALIGNED_16),), (("B", (1, None)),), (("x", Extents((4, 8))),), (1, 2, 3)),
    Extents((4, 8), (8, 1)),
    DeviceModel("cpu", "stub", "x86-64-v3", 2, 1 << 30),
    STUDY,
    STUDY.trial(CONFIG, Status.OK, (30, 10), max_error=0.5, reference=ReferenceSamples(CONFIG, (1, 2))),
    Outcome(ARTIFACT.launch, ARTIFACT.blob, (ARTIFACT.blob,), "log"),
    ForeignWinner("k", "s", Target.parse("cuda:sm_90a"), ("n",), (64, 0.5, None), CONFIG),
    CaseRecipe("n", (("x", X), ("t", DescriptorRecipe(X, (2, 4))), ("n", ScalarRecipe(32))), config=(("s", 0.5),)),
]


def places_in(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from places_in(item, (*path, key))


def changed(data, path, value):
    if not path:
        return value
    made = copy.deepcopy(data)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


@pytest.mark.parametrize("value", OWN, ids=lambda value: type(value).__name__)
def test_values_of_silo_come_back_and_are_read_strictly(value):
    data = json.loads(canonical_json(value.to_json()))
    assert type(value).from_json(data) == value
    accepted = 0
    for path in places_in(data):
        for junk in JUNK:
            other = changed(data, path, junk)
            try:
                read = type(value).from_json(other)
            except ValueError:  # and nothing else comes out
                continue
            accepted += 1
            again = json.loads(canonical_json(read.to_json()))
            assert again == other or type(value).from_json(again) == read
    assert accepted
    with pytest.raises(ValueError, match=r"nobody|launch info"):
        type(value).from_json({**data, "nobody": 1})


# ---- The manifest ----


def minor_with(**changes):
    contents = MADE.contents
    kernel = contents.kernels[0]
    rules = kernel.rules[0] if kernel.rules else None
    for name, value in changes.items():
        match name.split("_", 1):
            case ["kernel", one]:
                kernel = replace(kernel, **{one: value})
            case ["rules", one]:
                assert rules is not None
                kernel = replace(kernel, rules=(replace(rules, **{one: value}),))
            case ["artifact", one]:
                kernel = replace(kernel, variants=(replace(VARIANT, artifact=replace(ARTIFACT, **{one: value})),))
            case [_, one]:
                contents = replace(contents, **{one: value})
    return minor_version(replace(contents, kernels=(kernel,)))


@pytest.mark.parametrize(
    ("changes", "minor"),
    [
        ({"rules_space": 3}, 1),
        ({"kernel_kind": "metal"}, 2),
        ({"rules_extents": (("x", Extents((4,))),)}, 2),
        ({"rules_extents": (("x", DynamicLayout.of((4,), (1,), 32)),)}, 3),
        ({"artifact_launch": replace(ARTIFACT.launch, loader="x")}, 3),
        ({"artifact_launch": replace(ARTIFACT.launch, layout=(LayoutSlot("", AbiType.EMPTY),))}, 3),
        ({"artifact_launch": replace(ARTIFACT.launch, tensor_maps=MAPS)}, 3),
        ({"contents_attachments": (("a", BlobRef("ab" * 32, "file", 5)),)}, 4),
        ({"artifact_hidden_memory": "x"}, 5),
        ({"kernel_contiguous": ("x",)}, 6),
        ({"kernel_kind": "metal", "artifact_hidden_memory": "x"}, 5),
    ],
)
def test_a_file_is_of_the_lowest_version_that_has_its_members(changes, minor):
    assert minor_with(rules_space=0) < minor or minor == 1
    assert minor_with(**({"rules_space": 0} if "rules_space" not in changes else {}), **changes) == minor


def test_the_list_of_the_native_reader_is_printed_from_the_declarations():
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "manifest_members.py"), "--check"], check=False)
    assert done.returncode == 0, "run python scripts/manifest_members.py"


OBJECTS = {"TOP": BundleContents, "KERNEL": BundleKernel, "RULES": BundleRules, "VARIANT": BundleVariant}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_list_of_the_native_reader_has_every_member_and_version(name):
    text = (ROOT / "native" / "core" / "manifest_members.h").read_text(encoding="utf-8")
    body = text.partition(f" SILO_{name}_NAMES[")[2].partition("};")[0]
    printed = {one: int(since) for one, since in re.findall(r'\{"(\w+)", (\d), SILO_CHECK', body)}
    added = {"blobs": 0, "format": 0, "tables": 0} if name == "TOP" else {}
    assert printed == {one.name: one.field.since for one in entry_members(OBJECTS[name])} | added


def test_the_page_on_the_format_has_every_member_and_version():
    page = (ROOT / "docs" / "bundle-format.md").read_text(encoding="utf-8")
    members = [one.field for cls in OBJECTS.values() for one in entry_members(cls)]
    members += [one for cls in (LaunchInfo, TensorMap, Specialization) for one in members_of(cls)]
    for member in members:
        if member.name == "options":  # each is a member of launch info by its own name
            continue
        assert re.search(rf"[`\"]{member.name}[`\"]", page), member.name
        if member.since:
            (row,) = re.findall(rf"^\| 1\.{member.since} \|.*$", page, re.MULTILINE)
            assert member.name in row, f"{member.name} is of 1.{member.since}"


def test_values_keep_the_text_that_they_had():
    assert canonical_json(MAPS[1].to_json()) == (
        b'{"axes":[0,[64,1]],"box":[8,64],"element_bytes":2,"element_type":6,"fp4_padded":false,"name":"x","swizzle":3}'
    )
    assert value_to_json(0.5) == {"float": "0x1.0000000000000p-1"}
