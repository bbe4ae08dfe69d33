"""What the code of a CuTe kernel may assume of a call. Needs no DSL."""

import cute_functions as functions
import pytest

from silo.core.argument_facts import ArgumentFacts
from silo.core.signature import ParameterKind
from silo.core.specialization import Fact
from silo.errors import ArgumentError
from silo.frozen import replace
from silo.kinds.cute.front.cute_source import cute

ARRAY = ArgumentFacts.array("float16", 64)


def specialize(function=functions.add, **given):
    facts = {name: one if isinstance(one, ArgumentFacts) else ArgumentFacts(one) for name, one in given.items()}
    return cute(function, block=128).source.specialize(facts)


@pytest.mark.parametrize(("address", "facts"), [(0, [Fact.ALIGNED_16]), (16, [Fact.ALIGNED_16]), (4, []), (8, [])])
def test_alignment_is_a_fact(address, facts):
    _, found = specialize(x=ArgumentFacts.array("float32", address), out=ArgumentFacts.array("float32", 8), n=3)
    assert [fact for name, fact in found.facts if name == "x"] == facts


def test_an_array_whose_elements_lie_across_their_size_is_refused():
    with pytest.raises(ArgumentError, match="the array x begins at an address that is not a multiple of the 4 bytes"):
        specialize(x=ArgumentFacts.array("float32", 1), out=ArgumentFacts.array("float32", 8), n=3)
    specialize(x=ArgumentFacts.array("int8", 1), out=ArgumentFacts.array("float32", 8), n=3)


def test_scalars_have_the_width_that_is_declared():
    for value in (1, 16, -5, 2**31 - 1):
        signature, found = specialize(x=ARRAY, out=ARRAY, n=value)
        assert str(signature["n"].dtype) == "int32"
        assert not found.facts_of("n")  # and no value is folded in
    for value, message in ((2**31, "does not fit"), (2.5, "is not an integer"), (None, "cannot be None")):
        with pytest.raises(ArgumentError, match=message):
            specialize(x=ARRAY, out=ARRAY, n=value)
    with pytest.raises(ArgumentError, match="does not fit"):
        specialize(functions.scaled, x=ARRAY, p=ARRAY, a=1, flag=True, wide=-1)


@pytest.mark.parametrize(
    ("value", "name", "kind"),
    [
        (1, "int32", ParameterKind.INTEGER),
        (2**40, "int64", ParameterKind.INTEGER),
        (1.5, "float32", ParameterKind.FLOAT),
        (True, "bool", ParameterKind.BOOL),
    ],
)
def test_a_scalar_without_a_type_has_the_least(value, name, kind):
    signature, _ = specialize(functions.scaled, x=ARRAY, p=ARRAY, a=value, flag=True, wide=1)
    assert (str(signature["a"].dtype), signature["a"].kind) == (name, kind)


def test_an_array_may_be_left_out_where_the_function_takes_none():
    signature, found = specialize(functions.scaled, x=None, p=ARRAY, a=ARRAY, flag=True, wide=1, MODE="fast")
    assert found.facts_of("x") == {Fact.NONE}
    assert signature["a"].kind is ParameterKind.POINTER
    assert found.constant_values == {"MODE": "fast"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": ARRAY, "out": ARRAY}, "add: the argument n is missing"),
        ({"x": ARRAY, "out": ARRAY, "n": ARRAY}, "n is int32; it takes a number, not an array"),
        ({"x": 3, "out": ARRAY, "n": 3}, "x takes an array, not 3"),
        ({"x": ARRAY, "out": ARRAY, "n": 3, "BLOCK": ARRAY}, "BLOCK is a Constexpr, so it takes a value, not an array"),
        ({"x": ARRAY, "out": ARRAY, "n": 3, "m": 3}, "add has no parameter m; it takes x, out, n, BLOCK"),
        ({"x": replace(ARRAY, shape=(4, 0)), "out": ARRAY, "n": 3}, r"x has no elements \(shape \(4, 0\)\)"),
        (
            {"x": replace(ARRAY, shape=(70000, 70000), strides=(70000, 1)), "out": ARRAY, "n": 3},
            'offsets in 32 bits: use layouts="dynamic"',
        ),
        ({"x": replace(ARRAY, block_shape=(4,)), "out": ARRAY, "n": 3}, "x takes an array, not a tensor descriptor"),
    ],
)
def test_what_a_parameter_cannot_take_is_one_line(given, message):
    with pytest.raises(ArgumentError, match=message) as raised:
        specialize(**given)
    assert "\n" not in str(raised.value)


def test_code_for_dynamic_layouts_takes_empty_arrays():
    source = cute(functions.add, block=128, layouts="dynamic").source
    empty = replace(ARRAY, shape=(0,))
    assert source.specialize({"x": empty, "out": empty, "n": ArgumentFacts(0)})
