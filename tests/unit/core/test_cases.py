# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

import numpy as np
import pytest

from silo.core.cases import (
    AliasRecipe,
    ArrayRecipe,
    Case,
    CaseRecipe,
    ExpectedRecipe,
    Make,
    ScalarRecipe,
    Work,
    check,
    compare,
    default_tolerance,
    label_of,
    record,
)
from silo.core.expressions import Argument, ConfigValue, Op, OpKind
from silo.core.generator import Fill, generate
from silo.core.recipes import SAMPLES, WHOLE_LIMIT
from silo.core.values import DTYPES, DTypeKind, canonical_json, dtype, parse_json
from silo.errors import CaseError

NAMES = ["x", "y", "out", "n", "BLOCK"]


def host(recipe):
    return recipe.host()


def add_case(n=1000, **options):
    make = Make(host)
    x, y, out = make.normal(n), make.normal(n), make.empty(n)
    return Case(args=(x, y, out, n), expected={"out": lambda: x.host + y.host}, **options)


def through_json(recipe):
    return type(recipe).from_json(parse_json(canonical_json(recipe.to_json())))


def test_make_records_and_makes():
    made = []
    make = Make(lambda recipe: made.append(recipe) or recipe.host())
    x = make.normal(3, 4, dtype="float16", mean=2.0)
    assert (x.shape, x.ndim, x.dtype, x.numel(), x.element_size()) == ((3, 4), 2, dtype("float16"), 12, 2)
    assert (x.stride(), x.stride(0), x.stride(-1)) == ((4, 1), 4, 1)
    assert x.recipe == ArrayRecipe.of("normal", (3, 4), "fp16", seed=0, mean=2.0, std=1.0)
    assert made == []
    assert x.array is x.array
    assert made == [x.recipe]
    assert x.host.dtype == np.float16
    assert x.host is x.host
    with pytest.raises(ValueError, match="read-only"):
        x.host[0, 0] = 1


def test_arrays_of_one_case_differ_and_are_the_same_every_time():
    first, second = Make(host), Make(host)
    x, y = first.normal(100), first.normal((100,))
    assert (x.host != y.host).all()
    assert (second.normal(100).host == x.host).all()
    assert (first.normal(100, seed=0).host == x.host).all()


def test_make_of_every_fill():
    make = Make(host)
    assert make.zeros(2, 2, dtype="int8").host.tolist() == [[0, 0], [0, 0]]
    assert make.full(3, value=2.5).host.tolist() == [2.5] * 3
    assert make.full((2,), value=7, dtype="uint64").host.tolist() == [7, 7]
    assert make.full(1, value=(1 << 64) - 1, dtype="uint64").host.tolist() == [(1 << 64) - 1]
    assert make.arange(4, start=-2, step=3).host.tolist() == [-2, 1, 4, 7]
    assert make.arange(3, dtype="float32", start=0.5, step=0.25).host.tolist() == [0.5, 0.75, 1.0]
    assert make.arange(3, dtype="int16", start=2, step=-2).host.tolist() == [2, 0, -2]
    assert set(make.integers(1000, low=-2, high=2).host.tolist()) == {-2, -1, 0, 1}
    assert make.integers(5, 5, high=2, dtype=np.bool_).host.dtype == np.bool_
    assert np.isnan(make.empty(3).host).all()
    uniform = make.uniform(1000, low=3.0, high=4.0).host
    assert 3.0 <= uniform.min() < 3.1
    assert 3.9 < uniform.max() < 4.0


def test_a_faster_fill_is_used_for_host_copies():
    asked = []

    def fill(recipe):
        asked.append(recipe)
        return generate(recipe.fill, recipe.dtype, recipe.seed, 0, recipe.size, params=recipe.fill_params)

    x = Make(host, fill).normal(4, 4)
    assert x.host.shape == (4, 4)
    assert asked == [x.recipe]


def test_strides_change_the_layout_and_not_the_values():
    make = Make(host)
    plain, wide = make.normal(3, 4, seed=5), make.normal(3, 4, seed=5, strides=(1, 8))
    assert wide.host.strides == (4, 32)
    assert (wide.host == plain.host).all()
    gap = np.lib.stride_tricks.as_strided(wide.host, (8,), (4,))[3:]
    assert np.isnan(gap).all()
    assert make.zeros(0, 3, strides=(3, 1)).host.shape == (0, 3)


@pytest.mark.parametrize("element", DTYPES, ids=str)
def test_recipes_of_every_dtype_round_trip(element):
    for fill in Fill:
        if fill in (Fill.NORMAL, Fill.UNIFORM) and element.kind is not DTypeKind.FLOAT:
            continue
        if fill is Fill.OWN:  # tests/unit/api/test_own_data.py
            continue
        params = {Fill.FULL: {"value": 1}, Fill.INTEGERS: {"high": 2}}.get(fill, {})
        recipe = ArrayRecipe.of(fill, (2,), element, seed=(1 << 64) - 1, strides=(3,), **params)
        assert through_json(recipe) == recipe
        assert recipe.host().shape == (2,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: m.normal(3, dtype="int32"), "cannot be of int32: it makes floats; write make.integers"),
        (lambda m: m.normal(-1), "extents are 0 or more"),
        (lambda m: m.normal(1.5), "a shape is made of integers"),
        (lambda m: m.normal(3, mean=float("inf")), "must be finite"),
        (lambda m: m.normal(3, dtype="float99"), "unknown dtype 'float99'"),
        (lambda m: m.normal(1 << 45), "would take more than"),
        (lambda m: m.normal(2, 2, strides=(1,)), "has the strides"),
        (lambda m: m.normal(2, strides=(-1,)), "0 or more"),
        (lambda m: m.normal(2, seed=-1), "the seed -1"),
        (lambda m: m.integers(3, low=5, high=5), "high must be above low"),
        (lambda m: m.integers(3, high=300, dtype="uint8"), "reaches 299, which does not fit uint8"),
        (lambda m: m.integers(3, low=-1, high=1, dtype="bool"), "reaches -1, which does not fit bool"),
        (lambda m: m.integers(3, low=0.5, high=3), "takes integers"),
        (lambda m: m.full(3, value=1.5, dtype="int32"), "full of int32 takes integers"),
        (lambda m: m.full(3, value="x"), "takes numbers"),
        (lambda m: m.arange(300, dtype="int8"), "reaches 299, which does not fit int8"),
        (lambda m: ArrayRecipe.of("gamma", (1,)), "unknown fill 'gamma'; known: zeros"),
        (lambda m: ArrayRecipe.of("normal", (1,), loc=3), "no parameter loc; known: mean, std"),
        (lambda m: ArrayRecipe.of("integers", (1,), "int8"), "integers needs high"),
        (lambda m: ArrayRecipe(Fill.NORMAL, (1,), dtype("float32")), "it takes mean, std"),
    ],
)
def test_what_cannot_be_made(build, message):
    with pytest.raises(CaseError, match=message):
        build(Make(host))


def test_record_and_replay():
    case = add_case(rtol=1e-3)
    recipe = record(case, NAMES, label_of({"n": 1000}))
    assert recipe.label == "n=1000"
    assert [name for name, _ in recipe.arguments] == ["x", "y", "out", "n"]
    again = through_json(recipe)
    assert again == recipe
    arrays = again.materialize(host)
    assert list(arrays) == ["x", "y", "out", "n"]
    assert arrays["n"] == 1000
    expected = dict(again.expected)["out"]
    assert (expected.rtol, expected.atol, expected.sampled) == (1e-3, None, None)
    arrays["out"][:] = arrays["x"] + arrays["y"]
    assert check(arrays["out"], expected)
    arrays["out"][17] += 1
    result = check(arrays["out"], expected)
    assert not result
    assert result.worst == (17,)


def test_large_results_are_sampled():
    recipe = record(add_case(WHOLE_LIMIT), NAMES)
    expected = dict(through_json(recipe).expected)["out"]
    assert expected.sampled == SAMPLES
    assert len(expected.values) <= SAMPLES * 4
    x, y = (dict(recipe.arguments)[name].host() for name in "xy")
    assert check(x + y, expected)
    index = expected.indices()[100]
    wrong = x + y
    wrong[index] = np.nan
    result = check(wrong, expected)
    assert (bool(result), result.worst) == (False, (index,))
    assert "sampled" in result.message
    assert "1 are NaN: perhaps never written" in result.message


def test_an_array_given_twice_is_one_array():
    make = Make(host)
    x = make.normal(4)
    recipe = through_json(record(Case(args=(x, x), expected={"y": lambda: x.host}), ["x", "y"]))
    assert recipe.arguments == (("x", x.recipe), ("y", AliasRecipe("x")))
    arrays = recipe.materialize(host)
    assert arrays["x"] is arrays["y"]


def test_a_grid_is_kept_as_an_expression():
    case = add_case(grid=lambda meta: (-(-meta["n"] // meta["BLOCK"]),))
    recipe = record(case, NAMES, config_names=["BLOCK"])
    assert recipe.grid == (Op(OpKind.CDIV, (Argument("n"), ConfigValue("BLOCK"))),)
    assert through_json(recipe) == recipe


def test_options_and_constexprs_by_name():
    make = Make(host)
    x = make.normal(4)
    case = Case(args=(x,), kwargs={"BLOCK": np.int64(64), "num_warps": 8})
    recipe = through_json(record(case, ["x", "BLOCK"]))
    assert dict(recipe.arguments)["BLOCK"] == ScalarRecipe(64)
    assert recipe.config == (("num_warps", 8),)
    assert case.arguments(["x", "BLOCK"])["x"] is x.array


def test_expectations_are_computed_only_when_asked():
    def fail():
        raise AssertionError("computed")

    make = Make(host)
    case = Case(args=(make.zeros(2),), expected={"x": fail})
    assert record(case, ["x"], with_expected=False).expected == ()
    with pytest.raises(AssertionError):
        record(case, ["x"])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (lambda m: Case(args=(1, 2, 3)), "has 3 arguments, and the kernel takes 2: x, n"),
        (lambda m: Case(args=(1,), kwargs={"x": 2}), "gives 'x' twice"),
        (lambda m: Case(kwargs={"q": 2}), "gives 'q', and the kernel has no such parameter: x, n"),
        (lambda m: Case(args=(np.zeros(3),)), "'x' of a case was not made by make"),
        (lambda m: Case(args=({},)), "'x' of a case is a dict"),
        (lambda m: Case(args=(m.zeros(3),), expected={"y": np.zeros(3)}), "expects values of 'y', which is none"),
        (
            lambda m: Case(args=(m.zeros(3),), expected={"x": np.zeros(4)}),
            r"shape \(4,\); the argument's shape is \(3,\)",
        ),
        (lambda m: Case(args=(m.zeros(1),), expected={"x": lambda: [object()]}), "an array of object"),
        (lambda m: Case(args=(1,), expected={"x": 1}), "which is not an array argument"),
    ],
)
def test_wrong_cases(case, message):
    with pytest.raises(CaseError, match=message):
        record(case(Make(host)), ["x", "n"])


def test_compare_tolerances():
    expected = np.array([100.0, -50.0, 0.0], np.float32)
    assert compare(expected, expected).max_abs_error == 0.0
    result = compare(expected + np.float32(0.5), expected, rtol=0.0, atol=0.25)
    assert (result.ok, result.max_abs_error, result.worst) == (False, 0.5, (0,))
    assert compare(expected + np.float32(0.5), expected, rtol=0.0, atol=0.5)
    assert result.max_rel_error == np.inf
    assert (
        "3 of 3 elements differ by more than rtol=0, atol=0.25; worst at [0]: 100.5 and should be 100.0"
        in result.message
    )


def test_compare_in_two_dimensions_names_the_index():
    expected = np.zeros((3, 4))
    actual = expected.copy()
    actual[2, 1] = 1.0
    assert compare(actual, expected).worst == (2, 1)


def test_compare_not_a_number_and_infinity():
    nan, inf = np.nan, np.inf
    assert compare(np.array([nan, inf, -inf]), np.array([nan, inf, -inf]))
    for wrong, right in ((nan, 1.0), (1.0, nan), (inf, 1.0), (1.0, inf), (inf, -inf), (nan, inf)):
        result = compare(np.array([wrong, 2.0]), np.array([right, 2.0]), rtol=10.0, atol=10.0)
        assert not result
        assert result.worst == (0,)
        assert result.max_abs_error == np.inf


def test_compare_integers_is_exact():
    big = np.array([(1 << 62) + 1], np.int64)
    result = compare(big, big - 1)
    assert not result
    assert result.max_abs_error == 1.0
    assert compare(big, big)
    assert compare(np.array([5], np.uint64), np.array([5], np.int32))
    assert not compare(np.array([True]), np.array([False]))
    assert not compare(np.array([(1 << 64) - 1], np.uint64), np.array([-1], np.int64))


def test_compare_shapes_and_nothing():
    result = compare(np.zeros(3), np.zeros((3, 1)))
    assert not result
    assert "the shape is (3,) and should be (3, 1)" in result.message
    assert not check(np.zeros(4), ExpectedRecipe.of(np.zeros(3)))
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).worst is None


def test_default_tolerances_follow_the_coarser_dtype_and_the_largest_value():
    assert default_tolerance(dtype("int32"), 5.0) == (0.0, 0.0)
    assert default_tolerance(dtype("float32"), 100.0) == (1e-4, pytest.approx(1e-3))
    reference = np.array([100.0, 1e-3])
    assert compare((reference + 5e-4).astype(np.float32), reference)
    assert not compare(reference + 5e-4, reference)
    assert not compare(np.zeros(2, np.float32), np.array([1e-3, 1e-3], np.float32))


def test_every_float_has_a_tolerance_wider_than_its_rounding():
    for element in DTYPES:
        if element.kind is DTypeKind.FLOAT:
            values = generate(Fill.NORMAL, element, 0, 0, 500, params=ArrayRecipe.of("normal", (1,)).fill_params)
            exact = generate(
                Fill.NORMAL, dtype("float64"), 0, 0, 500, params=ArrayRecipe.of("normal", (1,)).fill_params
            )
            assert compare(values, exact), element


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_expected_values_survive(name):
    array = generate(Fill.INTEGERS, dtype(name), 0, 0, 6, params=ArrayRecipe.of("integers", (1,), high=2).fill_params)
    recipe = through_json(ExpectedRecipe.of(array.reshape(2, 3), rtol=0.5, atol=0.0))
    assert recipe.array().tolist() == array.reshape(2, 3).tolist()
    swapped = array.reshape(2, 3).astype(np.float64).astype(">f8")
    assert ExpectedRecipe.of(swapped).array().tolist() == array.reshape(2, 3).astype(float).tolist()


def mutations():
    recipe = record(add_case(8, grid=(1,)), NAMES).to_json()
    array, expected = recipe["arguments"][0][1]["array"], recipe["expected"][0][1]
    for name, value in [
        ("fill", "gamma"),
        ("shape", [-1]),
        ("shape", [True]),
        ("dtype", "f"),
        ("seed", -1),
        ("seed", 1.5),
    ]:
        yield {**recipe, "arguments": [["x", {"array": {**array, name: value}}], *recipe["arguments"][1:]]}
    for name, value in [("params", {}), ("params", {"mean": 0, "std": 1}), ("strides", [1, 2]), ("more", 1)]:
        yield {**recipe, "arguments": [["x", {"array": {**array, name: value}}], *recipe["arguments"][1:]]}
    for name, value in [
        ("values", "00"),
        ("values", "zz"),
        ("sampled", 1),
        ("rtol", 1),
        ("rtol", {"float": "-0x1p+0"}),
    ]:
        yield {**recipe, "expected": [["out", {**expected, name: value}]]}
    for name, value in [("label", 3), ("grid", []), ("grid", ["x"]), ("config", []), ("expected", [["q", expected]])]:
        yield {**recipe, name: value}
    yield {**recipe, "arguments": [["x", {"alias": "y"}]]}
    yield {**recipe, "arguments": [["x", {"scalar": 1}], ["x", {"scalar": 1}]], "expected": []}
    yield {**recipe, "arguments": [["x", {"tensor": 1}]]}
    yield {**recipe, "arguments": [["x"]]}
    yield {**recipe, "more": 1}
    yield {name: value for name, value in recipe.items() if name != "grid"}
    yield None


@pytest.mark.parametrize("data", list(mutations()))
def test_json_refuses_what_it_never_writes(data):
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        CaseRecipe.from_json(data)


def test_labels():
    assert label_of({"n": 65536, "p": 0.5, "dtype": "float16"}) == "n=65536,p=0.5,dtype=float16"
    assert label_of({}) == ""


def test_a_case_says_what_it_cannot_do_without():
    make = Make(lambda recipe: recipe.host())
    x, out = make.normal(100), make.empty(100)
    recipe = record(Case(args=(x, out), bytes=800, flops=100), ("x", "out"))
    assert recipe.work == Work(800, 100)
    assert CaseRecipe.from_json(recipe.to_json()) == recipe
    only = record(Case(args=(x, out), flops=0), ("x", "out"))
    assert only.work == Work(None, 0)
    assert CaseRecipe.from_json(only.to_json()) == only


def test_a_case_that_says_nothing_is_kept_as_before():
    make = Make(lambda recipe: recipe.host())
    recipe = record(Case(args=(make.normal(100),)), ("x",))
    assert recipe.work is None
    assert "work" not in recipe.to_json()


@pytest.mark.parametrize("work", [{"bytes": 1.5}, {"bytes": -1}, {"flops": True}, {"flops": "many"}])
def test_work_that_is_no_natural_number_is_refused(work):
    with pytest.raises(CaseError, match=r"of a case is a natural number or None"):
        Case(args=(), **work)


@pytest.mark.parametrize("work", [None, 3, {}, {"bytes": 1}, {"bytes": -1, "flops": None}, {"bytes": 1, "flops": 1.0}])
def test_work_that_makes_no_sense_is_no_recipe(work):
    make = Make(lambda recipe: recipe.host())
    data = record(Case(args=(make.normal(8),), bytes=1), ("x",)).to_json()
    with pytest.raises(ValueError, match="not"):
        CaseRecipe.from_json({**data, "work": work})
