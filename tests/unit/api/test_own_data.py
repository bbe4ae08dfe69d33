"""Arrays of cases with data of their own: values kept whole, functions of an element's indices."""
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import json

import numpy as np
import pytest

import silo
from silo.building.ready_cases import prepare_recipe
from silo.core.cases import Make, record
from silo.core.literal_data import OWN_LIMIT
from silo.core.recipes import ArrayRecipe, CaseRecipe
from silo.core.values import DTYPES
from silo.errors import CaseError, TraceError
from silo.launch.array_libraries.array_contents import fill
from silo.launch.array_libraries.library_table import materialize


@pytest.fixture(params=["python", "native"])
def make(request):
    """``make`` with the slow way of filling, which needs no native module, and the one that is used."""
    if request.param == "python":
        return Make(lambda recipe: recipe.host())
    return Make(lambda recipe: materialize(recipe, "numpy"), fill)


def through_json(recipe):
    return ArrayRecipe.from_json(json.loads(json.dumps(recipe.to_json())))


def test_values_are_kept_as_they_are(make):
    x = make.array([[1, 2, 3], [4, 5, 6]])
    assert (x.dtype.name, x.shape) == ("int32", (2, 3))
    assert x.host.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (x.array == x.host).all()
    y = make.array(np.linspace(0, 1, 7)[::2])
    assert (y.dtype.name, y.host.tolist()) == ("float64", np.linspace(0, 1, 7)[::2].tolist())
    again = through_json(y.recipe)
    assert again == y.recipe
    assert (again.host() == y.host).all()


NATURAL = [
    ([True, False], "bool"),
    ([1, 2], "int32"),
    ([1 << 40], "int64"),
    ([1, 2.5], "float32"),
    (np.int8([1]), "int8"),
    (np.float16(2), "float16"),
    ([], "int32"),
]


@pytest.mark.parametrize(("values", "name"), NATURAL)
def test_the_dtype_is_that_of_the_values(make, values, name):
    made = make.array(values)
    assert made.dtype.name == name
    assert made.host.tolist() == np.asarray(values).tolist()


def test_a_dtype_and_a_shape_can_be_given(make):
    assert make.array([1, 2, 3, 4], dtype="float16", shape=(2, 2)).host.tolist() == [[1, 2], [3, 4]]
    assert make.array(np.arange(3), dtype="uint8").host.dtype == np.uint8
    wide = make.array([[1, 2], [3, 4]], strides=(4, 1))
    assert (wide.host.strides, wide.host.tolist()) == ((16, 4), [[1, 2], [3, 4]])


def test_a_function_of_the_indices(make):
    n = 6
    lower = make.array(lambda i, j: silo.select(j <= i, i * n + j, -1), shape=(n, n), dtype="int16")
    i, j = np.indices((n, n))
    assert (lower.host == np.where(j <= i, i * n + j, -1)).all()
    assert (lower.array == lower.host).all()
    again = through_json(lower.recipe)
    assert again == lower.recipe
    assert (again.host() == lower.host).all()
    assert make.array(lambda i: i * 16, shape=5).host.tolist() == [0, 16, 32, 48, 64]
    assert make.array(lambda: 7, shape=()).host.tolist() == 7
    assert make.array(lambda i, j: i + j, shape=(0, 3)).host.shape == (0, 3)


@pytest.mark.parametrize("element", DTYPES, ids=str)
def test_every_dtype_and_both_ways_are_the_same_bits(element):
    if element.name.startswith(("bfloat", "float8")):
        pytest.importorskip("ml_dtypes")
    slow, fast = Make(lambda recipe: recipe.host()), Make(lambda recipe: materialize(recipe, "numpy"), fill)
    for values in ([0, 1, 1, 0], lambda i: i % 2):
        one, other = (each.array(values, shape=4, dtype=element) for each in (slow, fast))
        assert one.recipe == other.recipe == through_json(one.recipe)
        assert one.host.tobytes() == other.host.tobytes() == fill(one.recipe).tobytes()
        assert one.host.astype(np.float32).sum() == 2


def test_the_same_in_every_library():
    recipe = Make(lambda recipe: recipe).array(lambda i: i * i, shape=9, dtype="float32").recipe
    wanted = np.arange(9, dtype=np.float32) ** 2
    assert materialize(recipe, "buffer").raw.cast("f").tolist() == wanted.tolist()
    torch = pytest.importorskip("torch")
    assert torch.equal(materialize(recipe, "torch"), torch.from_numpy(wanted))


WRONG = {
    "too many": (
        lambda m: m.array(np.zeros(OWN_LIMIT + 1, np.int8)),
        rf"at most {OWN_LIMIT} bytes .* make\.array\(lambda",
    ),
    "ragged": (lambda m: m.array([[1], [2, 3]]), "rows of one axis have 1 and 2 elements"),
    "no numbers": (lambda m: m.array(["a"]), "takes numbers in lists of one length, not str"),
    "no array": (lambda m: m.array({1: 2}), "takes arrays on the host and numbers"),
    "out of range": (lambda m: m.array([300], dtype="int8"), "300 does not fit int8"),
    "no integer": (lambda m: m.array([1.5], dtype="int8"), "1.5 does not fit int8"),
    "no number": (lambda m: m.array([float("nan")], dtype="int8"), "nan does not fit int8"),
    "another shape": (lambda m: m.array([1, 2], shape=3), "2 values do not make an array of shape"),
    "no shape": (lambda m: m.array(lambda i: i), r"needs the shape too: make\.array\(lambda i"),
    "a formula out of range": (lambda m: m.array(lambda i: i, shape=300, dtype="int8").host, "299 does not fit int8"),
    "a formula without value": (lambda m: m.array(lambda i: 8 // (i - 2), shape=4).host, "i0 - 2"),
    "many axes": (lambda m: m.array(lambda *i: 0, shape=(1,) * 9), "takes at most 8 indices"),
    "a wrong shape": (lambda m: m.normal("a"), "a shape is made of integers, not 'a'"),
    "no seed": (lambda m: m.integers(3, high=2, low=2), "high must be above low"),
}


@pytest.mark.parametrize(("build", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(make, build, message):
    with pytest.raises(CaseError, match=message):
        build(make)


def test_what_is_no_expression_is_said(make):
    with pytest.raises(TraceError, match=r"cannot become an expression|failed while it was traced"):
        make.array(np.sin, shape=4)
    with pytest.raises(TraceError):
        make.array(lambda i: i, shape=(2, 2))


@pytest.mark.parametrize(
    "own",
    [{"values": "00"}, {"values": "zz"}, {"formula": ["?"]}, {"formula": "n"}, {}, {"values": "00", "more": 1}, 3],
)
def test_damaged_data_is_refused(own):
    good = Make(lambda recipe: recipe).array([1, 2]).recipe.to_json()
    with pytest.raises(ValueError, match=r"own|values|formula|array|node|expression|malformed|not"):
        ArrayRecipe.from_json({**good, "own": own})
    plain = {name: value for name, value in good.items() if name != "own"}
    with pytest.raises(ValueError, match="has no data of its own"):
        ArrayRecipe.from_json(plain)


def test_every_method_takes_the_shape_first_and_the_rest_by_name(make):
    made = [
        make.normal(2, 3, dtype="float64", mean=1.0, std=2.0, seed=4, strides=(4, 1)),
        make.uniform((2, 3), dtype="float32", low=1.0, high=2.0, seed=4, strides=(4, 1)),
        make.integers(2, 3, dtype="int8", low=1, high=3, seed=4, strides=(4, 1)),
        make.empty(2, 3, dtype="int8", strides=(4, 1)),
        make.zeros((2, 3), dtype="int8", strides=(4, 1)),
        make.full(2, 3, value=5, dtype="int8", strides=(4, 1)),
        make.arange(2, 3, start=1, step=2, dtype="int8", strides=(4, 1)),
        make.array(lambda i, j: i, shape=(2, 3), dtype="int8", strides=(4, 1)),
        make.array([[1, 2, 3], [4, 5, 6]], dtype="int8", strides=(4, 1)),
    ]
    assert {(one.shape, one.stride()) for one in made} == {((2, 3), (4, 1))}


def test_an_array_that_was_not_made_points_to_make_array():
    with pytest.raises(CaseError, match=r"not made by make\.\*.*make\.array\(\.\.\.\) keeps its values"):
        record(silo.Case(args=(np.zeros(3),)), ["x"])


def test_own_data_travels_with_a_case():
    make = Make(lambda recipe: materialize(recipe, "numpy"), fill)
    x, places, out = make.array([1.5, 2.5, 3.5]), make.array(lambda i: 2 - i, shape=3), make.empty(3)
    case = silo.Case(args=(x, places, out), expected={"out": lambda: x.host[places.host]})
    document = json.loads(json.dumps(record(case, ["x", "places", "out"], "n=3").to_json()))
    again = prepare_recipe(CaseRecipe.from_json(document), materialize)
    assert again.arguments["x"].tolist() == [1.5, 2.5, 3.5]
    assert again.arguments["places"].tolist() == [2, 1, 0]
    assert again.uninitialized == ("out",)
    again.arguments["out"][...] = [3.5, 2.5, 1.5]
    assert again.check()[0]
