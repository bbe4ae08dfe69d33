"""Cases of kernels that take tensor descriptors, and copies of such arguments."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import pytest

import silo
from silo.building.ready_cases import prepare_recipe
from silo.core.cases import Case, CaseRecipe, DescriptorRecipe, Make, record
from silo.core.values import canonical_json, parse_json
from silo.errors import CaseError
from silo.launch.array_parts import with_base
from silo.machine.array_copies import array_behind
from silo.measuring.sent_calls import SharedArguments, describable, read_descriptors

NAMES = ("source", "target", "n")


@pytest.fixture
def make():
    return Make(lambda recipe: recipe.host())


def test_from_a_case_to_its_recipe_and_back(make):
    x, out = make.normal(32, 16, strides=(24, 1)), make.empty(32, 16)
    source = make.descriptor(x, [8, 16], padding="nan", round_f32_to_tf32=True)
    target = make.descriptor(out, (8, 16))
    case = Case(args=(source, target, 3), expected={"target": x})
    assert (source.shape, source.block_shape) == ((32, 16), (8, 16))
    assert repr(source) == "<descriptor of <normal float32 [32, 16]>, block [8, 16]>"
    arguments = case.arguments(NAMES)
    one = arguments["source"]
    assert isinstance(one, silo.TensorDescriptor)
    assert one is source.array
    assert one.base is x.array
    assert (one.shape, one.strides, one.block_shape) == ((32, 16), (24, 1), (8, 16))
    assert (one.padding, one.round_f32_to_tf32) == ("nan", True)

    recipe = record(case, NAMES)
    again = CaseRecipe.from_json(parse_json(canonical_json(recipe.to_json())))
    assert again == recipe
    made = again.materialize(lambda array: array.host())
    np.testing.assert_array_equal(made["source"].base, one.base)
    assert made["source"].strides == (24, 1)
    assert made["n"] == 3
    prepared = prepare_recipe(again, lambda array: array.host())
    result, name = prepared.check()
    assert (result.ok, name) == (False, "target")
    prepared.arguments["target"].base[...] = x.host
    assert prepared.check()[0].ok


def test_one_descriptor_given_twice_is_one_object(make):
    d = make.descriptor(make.zeros(8, 8), (8, 8))
    recipe = record(Case(args=(d, d, 1)), NAMES)
    made = recipe.materialize(lambda array: array.host())
    assert made["source"] is made["target"]


def test_an_array_is_behind_one_argument_only(make):
    x = make.zeros(8, 8)
    for second in (x, make.descriptor(x, (4, 8))):
        case = Case(args=(make.descriptor(x, (8, 8)), second, 1))
        with pytest.raises(CaseError, match="the array of 'target' is behind another argument"):
            record(case, NAMES)


def test_what_is_no_descriptor(make):
    x = make.zeros(8, 8)
    for blocks in ((8,), (8, 0), ()):
        with pytest.raises(CaseError, match="has the block shape"):
            make.descriptor(x, blocks)
    with pytest.raises(CaseError, match="pads with 'zero' or 'nan', not 'one'"):
        make.descriptor(x, (8, 8), padding="one")
    good = make.descriptor(x, (8, 8)).recipe.to_json()
    for change in ({"block_shape": [8]}, {"padding": 3}, {"tf32": 1}, {"array": None}, {"more": 1}):
        with pytest.raises(ValueError):  # noqa: PT011  # each says something else
            DescriptorRecipe.from_json({**good, **change})


def test_another_process_gets_descriptors_over_its_own_arrays():
    base = np.arange(128, dtype=np.float16).reshape(16, 8)
    one = silo.TensorDescriptor(base, [16, 8], [8, 1], [4, 8], "nan")
    arguments = {"d": one, "same": base, "n": 3}
    assert array_behind(one) is base
    assert array_behind(base) is base
    assert array_behind(3) is array_behind(silo.TensorDescriptor(3, [1], [1], [1])) is None
    assert describable(arguments)
    assert not describable({"d": silo.TensorDescriptor(object(), [1], [1], [1])})
    with SharedArguments(arguments) as shared:
        shared.fill()
        told = parse_json(canonical_json(shared.to_json()))
        assert told["places"] == {"d": 0, "same": 0}
        np.testing.assert_array_equal(shared.given("d"), base)
        (made,) = read_descriptors(told, lambda name: {"d": 4096}[name]).values()
        del shared
    assert (made.base.data_ptr(), made.base.dtype) == (4096, "float16")
    assert (made.shape, made.strides, made.block_shape, made.padding) == ((16, 8), (8, 1), (4, 8), "nan")
    twin = with_base(one, None)
    assert (twin.base, twin.shape, twin.padding, twin.round_f32_to_tf32) == (None, (16, 8), "nan", False)
