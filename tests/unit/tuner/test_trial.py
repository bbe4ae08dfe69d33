import dataclasses
import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_backend.measure import fake_study
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.values import canonical_json, parse_json
from silo.tuner.trial import Stage, Status, Study, Trial, resources_of, trials_from_record, trials_to_record

STUDY = fake_study()
CONFIG = Config.of(BLOCK=1024, num_warps=4)


def make(**changes):
    trial = STUDY.trial(
        CONFIG,
        Status.OK,
        [100, 101, 99],
        compile_ns=5,
        artifact="a" * 64,
        max_error=1.5e-7,
        resources=(("threads", 128),),
    )
    return dataclasses.replace(trial, **changes)


@pytest.mark.parametrize(
    "trial",
    [
        make(),
        make(stage=Stage.FINAL),
        make(max_error=None),
        make(max_error=float("inf")),
        make(status=Status.WRONG, samples_ns=(), message="out: 3 of 8 values"),
        STUDY.failed(CONFIG, Status.TIMEOUT, "took 60 s", compile_ns=60_000_000_000),
    ],
)
def test_json_round_trip_through_bytes(trial):
    assert Trial.from_json(parse_json(canonical_json(trial.to_json()))) == trial


def test_samples_belong_to_ok_trials_only():
    with pytest.raises(ValueError, match="samples"):
        make(samples_ns=())
    with pytest.raises(ValueError, match="samples"):
        make(status=Status.RUN)
    with pytest.raises(ValueError, match="natural"):
        make(samples_ns=(1, -1))


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(schema="trial/2"),
        lambda d: d.pop("schema"),
        lambda d: d.update(clock=3),
        lambda d: d.pop("stage"),
        lambda d: d.update(status="fine"),
        lambda d: d.update(samples_ns=[1, True]),
        lambda d: d.update(samples_ns="12"),
        lambda d: d.update(compile_ns=-1),
        lambda d: d.update(message=3),
        lambda d: d.update(max_error=3),
        lambda d: d.update(resources=[["threads", 3]]),
        lambda d: d.update(tools={"compiler": 3}),
        lambda d: d.update(device={}),
        lambda d: d.update(bucket="n"),
    ],
)
def test_damaged_json_is_refused(damage):
    data = json.loads(canonical_json(make().to_json()))
    Trial.from_json(data)
    damage(data)
    with pytest.raises(ValueError, match=r"."):
        Trial.from_json(data)


SCALARS = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=4)
TEXTS = st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS, lambda x: st.lists(x, max_size=3) | st.dictionaries(TEXTS, x, max_size=3), max_leaves=5
)


def places(data, path=()):
    yield path
    members = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, member in members:
        yield from places(member, (*path, name))


@given(st.data())
@settings(max_examples=300)
def test_whatever_is_changed_is_read_right_or_refused(data):
    tree = json.loads(canonical_json(make().to_json()))
    path = data.draw(st.sampled_from(list(places(tree))))
    value = data.draw(
        ANYTHING
        | st.sampled_from([{"float": "0x1p99999"}, {"float": "nan"}, {"tuple": [{"float": "1"}]}, {"dtype": "x"}])
    )
    if path:
        owner = functools.reduce(lambda node, name: node[name], path[:-1], tree)
        owner[path[-1]] = value
    else:
        tree = value
    try:
        trial = Trial.from_json(tree)
    except ValueError:
        return
    assert Trial.from_json(trial.to_json()).identity == trial.identity
    assert parse_json(trial.identity) == trial.to_json()


def test_records_hold_several_trials():
    trials = (make(), make(stage=Stage.FINAL))
    assert trials_from_record(trials_to_record(trials)) == trials
    schema = {"schema": "trials/1"}
    for record in ({"schema": "trials/2", "trials": []}, {**schema, "trials": 3}, [], schema):
        with pytest.raises(ValueError, match="trials"):
            trials_from_record(record)


def test_every_member_of_a_study_is_part_of_its_key():
    others = {
        "kernel": "sub",
        "source": "1" * 64,
        "target": Target("fake", "v2"),
        "compiler": "fake 2",
        "bucket_names": ("m",),
        "bucket": (1 << 21,),
        "device": dataclasses.replace(STUDY.device, units=8),
        "policy": "fake/2",
    }
    keys = {STUDY.key} | {dataclasses.replace(STUDY, **{name: value}).key for name, value in others.items()}
    assert len(keys) == 1 + len(others)
    assert all(len(key) == 64 for key in keys)


def test_study_json_round_trip():
    again = Study.from_json(parse_json(canonical_json(STUDY.to_json())))
    assert again == STUDY
    assert again.key == STUDY.key
    data = json.loads(canonical_json(STUDY.to_json()))
    for bad in ([], {**data, "more": 1}, {name: value for name, value in data.items() if name != "bucket"}):
        with pytest.raises(ValueError, match="study"):
            Study.from_json(bad)


def test_studies_read_well():
    assert str(fake_study(n=1 << 20)) == "add[n~2^20] on fake:v1"
    assert str(fake_study(n=3)) == "add[n=3] on fake:v1"
    assert str(dataclasses.replace(STUDY, bucket=(), bucket_names=())) == "add on fake:v1"


def test_a_study_refuses_trials_of_others():
    assert STUDY.refuses(make()) == ""
    assert "policy" in STUDY.refuses(make(policy="fake/2"))
    assert "bucket" in STUDY.refuses(make(bucket=(1,)))
    assert "device" in STUDY.refuses(make(device=dataclasses.replace(STUDY.device, name="Fake Two")))


def test_resources_leave_out_what_is_unknown():
    launch = LaunchInfo("k", (), threads=128, shared_bytes=64)
    assert resources_of(launch) == (("shared_bytes", 64), ("threads", 128))
    assert ("registers", 40) in resources_of(dataclasses.replace(launch, registers=40))
