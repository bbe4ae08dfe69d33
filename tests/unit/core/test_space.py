# pyright: reportGeneralTypeIssues=false

from collections import Counter

import pytest

from silo.core import space as space_module
from silo.core.config import Config
from silo.core.space import Space
from silo.core.values import FunctionValue, canonical_json, parse_json
from silo.errors import SpaceError

AXES = {"BLOCK": [256, 64, 128], "num_warps": [4, 8]}


def names(configs):
    return [(config.as_dict()["BLOCK"], config.as_dict()["num_warps"]) for config in configs]


def test_axes_span_configs_in_the_order_they_were_written():
    space = Space.of(AXES)
    assert names(space.configs()) == [(256, 4), (256, 8), (64, 4), (64, 8), (128, 4), (128, 8)]
    assert space.default == space.configs()[0] == Config.of(BLOCK=256, num_warps=4)
    assert space.size == 6
    assert dict(space.default.options) == {"num_warps": 4}


def test_lists_keep_their_order_and_lose_repetitions():
    space = Space.of([{"BLOCK": 64}, Config.of(BLOCK=32, num_warps=8), {"BLOCK": 64}])
    assert space.configs() == (Config.of(BLOCK=64), Config.of(BLOCK=32, num_warps=8))


def test_constraints_filter():
    space = Space.of(AXES, [lambda c: 16 * c.num_warps <= c.BLOCK, lambda c: c["BLOCK"] < 256])
    assert names(space.configs()) == [(64, 4), (128, 4), (128, 8)]


def test_constraints_over_arguments_count_when_those_are_given():
    space = Space.of(AXES, [lambda c: c.n >= c.BLOCK], key=["n"])
    assert space.size == 6
    assert names(space.configs({"n": 100})) == [(64, 4), (64, 8)]
    assert space.configs({"m": 1}) == space.configs()
    with pytest.raises(SpaceError, match="no config of the space satisfies its constraints for n=1"):
        space.configs({"n": 1})


def test_constraints_can_be_added_to_a_space():
    space = Space.of(Space.of(AXES, [lambda c: c.BLOCK < 256]), [lambda c: c.num_warps == 4])
    assert names(space.configs()) == [(64, 4), (128, 4)]
    assert Space.of(space) is space


def test_values_that_are_equal_in_python_are_different_configs():
    space = Space.of({"FLAG": [1, True, 1.0, None, "1"]})
    assert [type(config.as_dict()["FLAG"]) for config in space.configs()] == [int, bool, float, type(None), str]


def test_neighbours_are_one_step_in_one_parameter():
    space = Space.of(AXES)
    assert names(space.neighbours(Config.of(BLOCK=128, num_warps=4))) == [(64, 4), (256, 4), (128, 8)]
    assert names(space.neighbours(Config.of(BLOCK=64, num_warps=8))) == [(128, 8), (64, 4)]


def test_neighbours_skip_what_constraints_forbid():
    space = Space.of(AXES, [lambda c: (c.BLOCK == 128) < 1])
    assert names(space.neighbours(Config.of(BLOCK=64, num_warps=4))) == [(256, 4), (64, 8)]


def test_neighbours_in_a_list():
    space = Space.of([{"B": 64, "num_warps": 4}, {"B": 128, "num_warps": 8}, {"B": 256, "num_warps": 4}])
    assert space.neighbours(space.default) == (Config.of(B=256, num_warps=4),)
    with pytest.raises(SpaceError, match="B=1 is not in the space"):
        space.neighbours(Config.of(B=1))


@pytest.mark.parametrize(
    ("members", "constraints", "message"),
    [
        ({}, [], "has neither"),
        ([], [], "has neither"),
        ({"BLOCK": []}, [], "the axis 'BLOCK' has no values"),
        ({"BLOCK": [1, 2, 1]}, [], "the axis 'BLOCK' has the value 1 twice"),
        ({"BLOCK": 64}, [], "the axis 'BLOCK' is a list of values, not 64"),
        ({"ACT": "relu"}, [], "the axis 'ACT' is a list of values, not 'relu'"),
        ({"BLOCK": [object()]}, [], "the axis 'BLOCK' has a value that no config can hold"),
        ({name: range(101) for name in "ABCDEFG"}, [], f"a space of {101**7} points is too large"),
        (AXES, [lambda c: c.BLOCK > 1000], r"no config of the space satisfies its constraints: \(BLOCK > 1000\)"),
        (AXES, [lambda c: c.BLCK > 1], "a constraint of the space cannot be traced.*nothing is called 'BLCK'"),
        (AXES, [lambda c: c.BLOCK if c.num_warps else 1], "cannot be traced.*silo.select"),
        (AXES, [lambda c: c.device.sm_count > 1], "a constraint reads device.sm_count"),
        (AXES, [lambda c: c.BLOCK // (c.num_warps - 4)], "has no value for BLOCK=256, num_warps=4: .*division by zero"),
        ({"ACT": ["relu", "none"]}, [lambda c: c.ACT > 1], "ACT is 'relu'"),
    ],
)
def test_what_is_no_space(members, constraints, message):
    with pytest.raises(SpaceError, match=message):
        Space.of(members, constraints)


def test_json_round_trip_and_key():
    spaces = [
        Space.of(AXES, [lambda c: c.n >= c.BLOCK], key=["n"]),
        Space.of([{"B": 1.5, "F": FunctionValue("relu", "ab")}, {"B": (1, None)}]),
    ]
    for space in spaces:
        again = Space.from_json(parse_json(canonical_json(space.to_json())))
        assert again == space
        assert again.key() == space.key()
        assert again.configs() == space.configs()
    assert spaces[0].key() != Space.of(AXES).key()
    assert Space.of({"A": [1, 2]}).key() != Space.of({"A": [2, 1]}).key()


@pytest.mark.parametrize(
    "change", [{"more": 1}, {"axes": 3}, {"axes": [["BLOCK"]]}, {"axes": [[1, [2]]]}, {"constraints": ["x"]}]
)
def test_json_refuses_what_it_never_writes(change):
    data = {**Space.of(AXES).to_json(), **change}
    with pytest.raises(ValueError, match="not "):
        Space.from_json(data)


def test_a_space_of_many_combinations_is_drawn_the_same_in_every_process(monkeypatch):
    monkeypatch.setattr(space_module, "MOST_LISTED", 1000)
    axes = {name: [1, 2, 4, 8, 16, 32] for name in "ABCDEFGH"}
    space = Space.of(axes, [lambda c: c.G * c.H >= 2])
    assert space.size == 1000
    assert space.default == Config.of(A=1, B=1, C=1, D=1, E=1, F=1, G=1, H=2), "the first that the constraints allow"
    assert all({config.as_dict()["G"], config.as_dict()["H"]} != {1} for config in space.listed)
    assert Space.from_json(space.to_json()).listed == space.listed
    for name in axes:  # of each value about its share
        assert min(Counter(config.as_dict()[name] for config in space.listed).values()) > 1000 // 10


def test_all_configs_are_listed_if_the_constraints_leave_few(monkeypatch):
    monkeypatch.setattr(space_module, "MOST_LISTED", 1000)
    monkeypatch.setattr(space_module, "_SURE", 100)
    space = Space.of({name: range(12) for name in "ABC"}, [lambda c: c.A + c.B + c.C <= 10])
    assert space.size == 286, "of 1,728 combinations"
    assert space.default == Config.of(A=0, B=0, C=0)
