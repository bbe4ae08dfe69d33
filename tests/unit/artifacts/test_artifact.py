# pyright: reportGeneralTypeIssues=false

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo.artifacts.artifact import Artifact, BlobRef
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import canonical_json, dtype, parse_json
from silo.core.variant import Variant

BLOB = BlobRef("ab" * 32, "cubin", 4096)
ARTIFACT = Artifact(
    variant=Variant(
        "add",
        "f" * 64,
        Signature(
            (Parameter("x", ParameterKind.POINTER, dtype("float32")), Parameter("BLOCK", ParameterKind.CONSTEXPR))
        ),
        Specialization((("x", Fact.ALIGNED_16),)),
        Config.of(BLOCK=64, num_warps=4, SCALE=0.5),
        Target.parse("cuda:sm_90a"),
    ),
    launch=LaunchInfo("add", (LayoutSlot("x", AbiType.POINTER),), num_warps=4, threads=128, registers=20, spills=0),
    blob=BLOB,
    sidecars=(BlobRef("cd" * 32, "ptx", 0),),
    compiler="triton 3.9.0",
    job="e" * 64,
)


def places(data, path=()):
    """Every place inside a JSON value."""
    yield path
    if isinstance(data, dict):
        for key, item in data.items():
            yield from places(item, (*path, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from places(item, (*path, index))


DATA = json.loads(canonical_json(ARTIFACT.to_json()))
PLACES = list(places(DATA))


def test_round_trip_through_bytes():
    assert Artifact.from_json(parse_json(canonical_json(ARTIFACT.to_json()))) == ARTIFACT


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "AB" * 32},
        {"sha256": "ab"},
        {"sha256": 7},
        {"size": -1},
        {"size": True},
        {"size": "1"},
        {"kind": None},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_wrong_blob_reference_is_refused(change):
    with pytest.raises(ValueError, match=r"not (a|the .* of a) blob reference"):
        BlobRef.from_json({**BLOB.to_json(), **change})


@pytest.mark.parametrize("name", list(DATA))
def test_a_missing_member_is_refused(name):
    with pytest.raises(ValueError, match="not an artifact"):
        Artifact.from_json({key: value for key, value in DATA.items() if key != name})


@given(
    place=st.sampled_from(PLACES),
    value=st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({}), st.just([[1]])
    ),
)
def test_any_change_is_read_or_refused_with_a_value_error(place, value):
    changed = {"root": copy.deepcopy(DATA)}
    inner, path = changed, ("root", *place)
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    try:
        read = Artifact.from_json(changed["root"])
    except ValueError:
        return
    assert Artifact.from_json(read.to_json()) == read
