"""The typed signature of one call of a Pallas kernel, and what no such call can pass. Needs no jax."""

import pallas_bodies as bodies
import pytest

from pallas_variants import source_of, variant_of
from silo import ArgSpec
from silo.core.argument_facts import ArgumentFacts
from silo.errors import ArgumentError, SourceError

ROWS = ArgSpec(block=(8, None), dims=(0,))
MADE = source_of(bodies.scaled, args=[ROWS, ArgSpec(role="out", dtype="bf16"), None, "i8"])
GOOD = {"x": (64, 128), "out": ((64, 128), "bf16"), "a": 1.5, "n": 3}


def test_scalars_have_32_bits_or_what_is_declared():
    signature = variant_of(MADE, GOOD).signature
    assert {one.name: str(one.dtype) for one in signature.parameters if one.dtype} == {
        "x": "float32",
        "out": "bfloat16",
        "a": "float32",
        "n": "int8",
    }
    assert str(variant_of(MADE, {**GOOD, "a": True}).signature["a"].dtype) == "bool"
    assert str(variant_of(MADE, {**GOOD, "a": 7}).signature["a"].dtype) == "int32"


def test_another_value_is_the_same_variant():
    assert variant_of(MADE, GOOD) == variant_of(MADE, {**GOOD, "a": 2.5, "n": 4})
    assert variant_of(MADE, GOOD) != variant_of(MADE, {**GOOD, "x": (32, 128)})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"x": (64,)}, "has 2 axes, and the array is of shape (64,)"),
        ({"x": ((64, 128), "fp64")}, "jax narrows to float32 without a word"),
        ({"x": ((64, 128), "i64")}, "convert it to int32"),
        ({"out": (64, 128)}, "is declared to be of bfloat16, and the array is of float32"),
        ({"x": 3}, "takes an array, not 3"),
        ({"x": None}, "takes an array, not None"),
        ({"a": (4,)}, "no silo.ArgSpec says that it is an array"),
        ({"a": "text"}, "make it a constexpr"),
        ({"a": 1 << 31}, "does not fit"),
        ({"n": 128}, "128 does not fit"),
        ({"n": 1.5}, "is not an integer"),
        ({"BLOCK": (4,)}, "takes a value, not an array"),
        ({"z": 1}, "has no parameter z"),
    ],
)
def test_what_no_call_can_pass_is_refused(said, words):
    with pytest.raises(ArgumentError) as caught:
        variant_of(MADE, {**GOOD, **said})
    assert words in str(caught.value)


def test_a_missing_argument_is_named():
    with pytest.raises(ArgumentError, match="the argument x is missing"):
        MADE.specialize({"out": ArgumentFacts.array("bf16")})


def test_constants_are_from_the_call_then_the_config_then_the_default():
    assert MADE.constants(variant_of(MADE, GOOD, config={"BLOCK": 16})) == {"BLOCK": 16, "MODE": 1}
    assert MADE.constants(variant_of(MADE, {**GOOD, "BLOCK": 4}, config={"MODE": 2})) == {"BLOCK": 4, "MODE": 2}
    with pytest.raises(SourceError, match="the constant BLOCK has no value"):
        MADE.constants(variant_of(MADE, GOOD))
