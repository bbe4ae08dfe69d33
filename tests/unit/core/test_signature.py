import pytest

from silo.core.signature import NO_DEFAULT, Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import canonical_json, dtype, parse_json

SIGNATURE = Signature(
    (
        Parameter("x", ParameterKind.POINTER, dtype("fp16"), Effect.READ, align=False),
        Parameter("n", ParameterKind.INTEGER, dtype("i32"), specialize=False),
        Parameter("p", ParameterKind.FLOAT, dtype("fp32"), default=0.5),
        Parameter("bias", default=None),
        Parameter("BLOCK", ParameterKind.CONSTEXPR),
    )
)


def test_json_round_trip():
    assert Signature.from_json(parse_json(canonical_json(SIGNATURE.to_json()))) == SIGNATURE


def test_a_default_of_none_is_not_no_default():
    assert SIGNATURE["bias"].default is None
    assert SIGNATURE["x"].default is NO_DEFAULT
    assert Parameter.from_json(Parameter("a", default=None).to_json()).default is None
    assert Parameter.from_json(Parameter("a").to_json()).default is NO_DEFAULT


def test_lookup_and_types():
    assert SIGNATURE.names == ("x", "n", "p", "bias", "BLOCK")
    assert not SIGNATURE.is_typed
    assert Signature(SIGNATURE.parameters[:3]).is_typed
    with pytest.raises(KeyError):
        SIGNATURE["y"]
    with pytest.raises(ValueError, match="two parameters have one name: a, a"):
        Signature((Parameter("a"), Parameter("a")))


def test_effects():
    changed = SIGNATURE.with_effects({"x": Effect.WRITE})
    assert changed["x"].effect is Effect.WRITE
    assert changed["n"] == SIGNATURE["n"]
    assert [(e.reads, e.writes) for e in Effect] == [(False, False), (True, False), (False, True), (True, True)]
    assert Parameter("unknown").effect is Effect.BOTH


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"name": 3},
        {"kind": "tensor"},
        {"kind": None},
        {"dtype": 5},
        {"effect": "none at all"},
        {"default": 3},
        {"default": [1, 2]},
        {"specialize": 1},
        {"align": "no"},
    ],
)
def test_json_refuses_what_it_never_writes(change):
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        Parameter.from_json({"name": "x", "kind": "pointer", **change})


@pytest.mark.parametrize("data", [None, {}, [1], [None], "x"])
def test_json_that_is_no_signature(data):
    with pytest.raises(ValueError, match="not a"):
        Signature.from_json(data)


def test_an_unknown_dtype_is_bad_data():
    with pytest.raises(ValueError, match="unknown dtype"):
        Parameter.from_json({"name": "x", "kind": "pointer", "dtype": "half"})


def test_specializations_are_sorted_and_round_trip():
    one = Specialization(
        (("y", Fact.ALIGNED_16), ("x", Fact.DIVISIBLE_16), ("x", Fact.ALIGNED_16)), (("B", 1.5), ("A", (1, None)))
    )
    two = Specialization(tuple(reversed(one.facts)), tuple(reversed(one.constants)))
    assert one == two
    assert one.facts_of("x") == {Fact.DIVISIBLE_16, Fact.ALIGNED_16}
    assert one.facts_of("z") == frozenset()
    assert one.constant_values == {"A": (1, None), "B": 1.5}
    assert Specialization.from_json(parse_json(canonical_json(one.to_json()))) == one


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"facts": []},
        {"facts": [["x", "aligned32"]], "constants": []},
        {"facts": [["x"]], "constants": []},
        {"facts": 3, "constants": []},
        {"facts": [[1, "none"]], "constants": []},
        {"facts": [], "constants": [["x", 1.5]]},
        {"facts": [], "constants": [[3, 1]]},
        {"facts": [], "constants": 1},
    ],
)
def test_specialization_json_refuses_what_it_never_writes(data):
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        Specialization.from_json(data)
