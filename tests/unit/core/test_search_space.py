"""Spaces have one protocol: whoever uses one asks it, and never which of the kinds it is."""
# pyright: reportAttributeAccessIssue=false

import ast
import inspect
from pathlib import Path

import pytest

import silo
from silo.core.config import Config, ConfigSet
from silo.core.grouped_space import GroupedSpace
from silo.core.search_space import DeclaredSpace, SpaceHeuristic, space_of
from silo.core.space import Space
from silo.errors import SpaceError
from silo.heuristics.combo import combo_space
from silo.heuristics.heuristic_space import space as heuristic_space
from silo.tuner.session import tune

SOURCES = Path(silo.__file__).parent
KINDS = {"Space", "ConfigSet", "GroupedSpace", "HeuristicSpace", "ComboSpace", "BoundSpace", "BoundCombo"}
LISTED = [Config.of(BLOCK=block, num_warps=warps) for block in (64, 128) for warps in (4, 8)]
SPACES = {
    "axes": Space.of({"BLOCK": [64, 128], "num_warps": [4, 8]}),
    "points": Space.of(LISTED),
    "set": ConfigSet(LISTED),
    "groups": GroupedSpace(
        LISTED[0],
        tuple(tuple(Config.of({n: v}) for v in vs) for n, vs in (("BLOCK", (64, 128)), ("num_warps", (4, 8)))),
    ),
}


def test_nobody_asks_which_kind_of_space_it_has():
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "isinstance":
                continue
            if KINDS & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}:
                found.append(f"{path.relative_to(SOURCES)}: {ast.unparse(node)}")
    # Only the class itself, of what it is given to make a space of.
    assert found == ["core/space.py: isinstance(members, Space)"]


@pytest.mark.parametrize("name", SPACES)
def test_every_kind_answers_alike(name):
    space = SPACES[name]
    assert space.default == space.listed[0] == LISTED[0]
    assert all(config in space for config in space.listed)
    assert len(space.listed) <= space.size == 4
    assert space.effort == len(space.listed)
    assert (space.grouped is not None) == (name == "groups")
    assert space.configs() == space.configs({"n": 5}) == space.listed
    assert {str(config) for config in space.product()} == {str(config) for config in LISTED}
    assert Config.of(BLOCK=32, num_warps=4) not in space
    assert "no config" not in space


@pytest.mark.parametrize("name", SPACES)
def test_every_kind_leaves_to_a_call_what_the_caller_does_not_set(name):
    space = SPACES[name]
    assert space.for_call().listed == space.listed
    assert [str(one) for one in space.for_call({"n": 5}, {"num_warps": 8}).listed] == [
        "BLOCK=64, num_warps=8",
        "BLOCK=128, num_warps=8",
    ]
    # A value that no config has is the caller's business: with it, the first one is left, and of groups their choices.
    mine = space.for_call(constexprs={"num_warps": 16})
    assert str(mine.default) == "BLOCK=64, num_warps=16"
    assert all(config.as_dict()["num_warps"] == 16 for config in mine.listed)


def test_what_an_author_declares_becomes_a_space_with_his_constraints():
    for members in ({"BLOCK": [64, 128]}, [Config.of(BLOCK=64), {"BLOCK": 128}], Space.of({"BLOCK": [64, 128]})):
        assert [str(one) for one in space_of(members, [lambda c: c.BLOCK > 64]).listed] == ["BLOCK=128"]
    assert space_of(SPACES["groups"], [lambda c: c.BLOCK > 64]).default.as_dict()["BLOCK"] == 128
    assert space_of(SPACES["axes"]) is SPACES["axes"]
    with pytest.raises(SpaceError, match="satisfies its constraints"):
        space_of(SPACES["groups"], [lambda c: c.BLOCK > 512])


def test_heuristics_are_told_from_spaces():
    rows = heuristic_space("pointwise", {"x": "n"})
    for heuristic in (rows, combo_space([rows])):
        assert isinstance(heuristic, SpaceHeuristic)
        assert not isinstance(heuristic, DeclaredSpace)
    for members in (*SPACES.values(), {"BLOCK": [64]}, LISTED):
        assert not isinstance(members, SpaceHeuristic)


def test_a_session_takes_its_terms_as_values():
    assert len(inspect.signature(tune).parameters) < 8
