import numpy as np
import pytest

import silo
from silo.core.values import dtype
from silo.errors import CaseError, SourceError
from silo.judging.drawn_values import VALUES, draw_values, poison
from silo.judging.judged_results import expected_arrays, scales_of, wrong_results
from silo.judging.task import LARGEST, Role, draw_case, read_task


@silo.task(cases=12)
def add(draw):
    n = draw.size(1, 500)
    x, y, out, notes = draw.array(n), draw.array(n), draw.empty(n), draw.scratch(4, dtype="int32")
    return draw.case(lambda: {"out": x.double + y.double}, x=x, y=y, out=out, n=n, notes=notes)


def case(number=0, values=2, task=add):
    return draw_case(task, number, 1, values)


def size(one):
    found = dict(one.arguments)["n"]
    assert isinstance(found, int)
    return found


def left(one, task=add, **changes):
    """The reasons for which results are wrong that are the expected ones but for ``changes``."""
    arrays = list(one.arrays.values())
    expected = expected_arrays(one)
    content = {}
    for name, array in one.arrays.items():
        with np.errstate(all="ignore"):
            values = expected.get(name, array.host).astype(array.host.dtype)
        content[name] = changes.get(name, lambda values: values)(values.copy())
    return wrong_results(task, one, expected, arrays, [content[name].tobytes() for name in one.arrays])


def test_equal_shape_seeds_draw_equal_shapes_and_other_values():
    for number in range(12):
        assert case(number, 2).shape == case(number, 3).shape
    assert case(0, 2).arrays["x"].host.tobytes() != case(0, 3).arrays["x"].host.tobytes()
    assert {draw_case(add, 1, seed, 0).shape for seed in range(5)} != {case(1).shape}


def test_cases_are_aligned_odd_smallest_and_largest():
    sizes = [size(case(number)) for number in range(4)]
    assert sizes[0] % 16 == 0
    assert sizes[1] % 16
    assert sizes[2:] == [1, 500]
    assert [case(number).arrays["x"].offset for number in range(4)] == [0, 4, 4, 0]


def test_each_way_to_draw_values_occurs_in_each_array():
    seen = [case(number).label for number in range(12)]
    for way in VALUES:
        assert any(f"{way} values" in label for label in seen)
    nan = case(next(number for number, label in enumerate(seen) if "nan" in label and number != 2))
    assert all(np.isnan(nan.arrays[name].host).any() for name in ("x", "y"))


def test_the_last_case_passes_one_array_twice():
    twice = [dict(case(number).arguments)["x"] is dict(case(number).arguments)["y"] for number in range(11)]
    assert not any(twice)
    last = dict(case(11).arguments)
    assert last["x"] is last["y"]


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("how", VALUES)
def test_values_have_the_named_property(name, how):
    values = draw_values(how, dtype(name), (300,), np.random.default_rng(1)).astype(np.float64)
    properties = {
        "zeros": (values == 0).all,
        "repeated": lambda: len(set(values)) == 1,
        "nan": lambda: np.isnan(values).any(),
        "infinite": lambda: np.isinf(values).any(),
        "huge": lambda: np.isfinite(values).all() and np.abs(values).max() > 3e4,
        "denormal": lambda: 0 < np.abs(values).max() < 1e-4,
    }
    assert properties.get(how, lambda: np.isfinite(values).all())()
    assert np.isnan(poison(dtype(name), (3,), np.random.default_rng(1)).astype(np.float64)).all()


@pytest.mark.parametrize("number", range(12))
def test_the_expected_results_are_right(number):
    assert left(case(number)) == []


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("out", lambda v: v + 1, "out: "),
        ("out", lambda v: np.where(np.arange(v.size) == 3, np.nan, v), "out: "),
        ("out", lambda v: (v.astype(np.float16)).astype(v.dtype), "out: "),
        ("x", lambda v: v[::-1], "changes x"),
        ("y", lambda v: -v, "changes y"),
        ("notes", lambda v: v + 1, None),
    ],
)
def test_other_results_are_wrong(name, change, says):
    every = (draw_case(add, number, seed, 2) for seed in range(9) for number in range(12))
    ordinary = next(
        one for one in every if "normal" in one.label and size(one) > 8 and one.arrays["x"] is not one.arrays["y"]
    )
    reasons = left(ordinary, **{name: lambda values: change(values).astype(values.dtype)})
    assert (says in reasons[0]) if says else reasons == []


@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_float_is_compared(name):
    @silo.task(values=("normal",))
    def same(draw):
        x, out = draw.array(64, dtype=name), draw.empty(64, dtype=name)
        return draw.case(lambda: {"out": x.double}, x=x, out=out)

    one = draw_case(same, 0, 1, 2)
    assert left(one, same) == []
    assert left(one, same, out=lambda values: (values.astype(np.float64) + 3).astype(values.dtype))


def test_a_signed_zero_of_an_input_counts():
    one = next(one for one in map(case, range(12)) if "zeros" in one.label)
    assert any("changes x" in reason for reason in left(one, x=np.abs))


def test_either_side_of_an_overflow_is_right():
    @silo.task(values=("huge",))
    def double(draw):
        x, out = draw.array(64), draw.empty(64)
        return draw.case(lambda: {"out": x.double * 1.00001}, x=x, out=out)

    most = np.finfo(np.float32).max
    one = draw_case(double, 0, 1, 2)
    one.arrays["x"]._host = np.full(64, most, np.float32)
    for value, right in ((most, True), (np.inf, True), (-most, False), (0.0, False)):
        found = left(one, double, out=lambda v, value=value: np.full_like(v, value))
        assert (found == []) == right


def test_the_results_of_a_large_case_are_the_scale_of_small_ones():
    every = (draw_case(add, 2, seed, 2) for seed in range(9))
    small = next(one for one in every if one.ordinary and one.arrays["x"] is not one.arrays["y"])
    expected = expected_arrays(small)
    scales = scales_of(case(LARGEST), expected_arrays(case(LARGEST)))
    assert 2 < scales["out"] < 20
    arrays = list(small.arrays.values())
    content = {name: one.host.tobytes() for name, one in small.arrays.items()}
    expected["out"][:] = 1e-6
    content["out"] = (expected["out"] + 2e-5).astype(np.float32).tobytes()
    sent = [content[name] for name in small.arrays]
    assert wrong_results(add, small, expected, arrays, sent)
    assert wrong_results(add, small, expected, arrays, sent, scales) == []


def test_other_numbers_of_bytes_are_refused():
    one = case()
    with pytest.raises(ValueError, match="other arrays"):
        wrong_results(add, one, expected_arrays(one), list(one.arrays.values()), [b""])


def returning(function):
    return silo.task(cases=4)(lambda draw: function(draw, draw.array(8), draw.empty(8)))


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda draw, x, out: 5, "returned a int"),
        (lambda draw, x, out: draw.case({"out": x.double}, x=x, out=out), "given by a function"),
        (lambda draw, x, out: draw.case(dict, x=x), "draw.empty or draw.inout"),
        (lambda draw, x, out: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_task_is_refused(function, says):
    with pytest.raises(CaseError, match=says):
        draw_case(returning(function), 0, 1, 2)


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        (dict, "gives nothing"),
        (lambda: {"out": np.zeros(9)}, "shape"),
        (lambda: {"out": np.zeros(8), "x": np.zeros(8)}, "gives out, x"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_reference_is_refused(expected, says):
    one = draw_case(returning(lambda draw, x, out: draw.case(expected, x=x, out=out)), 0, 1, 2)
    with pytest.raises(CaseError, match=says):
        expected_arrays(one)


def test_references_may_be_of_torch():
    torch = pytest.importorskip("torch")
    task = returning(lambda draw, x, out: draw.case(lambda: {"out": torch.tensor(x.double)}, x=x, out=out))
    assert left(draw_case(task, 0, 1, 2), task) == []


def test_unknown_values_and_limits_are_refused():
    with pytest.raises(CaseError, match="not strange"):
        silo.task(values=("strange",))
    with pytest.raises(CaseError, match="no limit 'second'"):
        silo.task(second=3)
    with pytest.raises(CaseError, match="4 cases or more"):
        silo.task(cases=1)


def test_a_file_has_one_task(tmp_path):
    path = tmp_path / "tasks.py"
    path.write_text("x = 1\n")
    with pytest.raises(SourceError, match="has 0 tasks"):
        read_task(path)
    path.write_text("import silo\n@silo.task\ndef one(draw): ...\n")
    assert read_task(path).name == "one"


def test_roles_are_named():
    assert {one.value for one in Role} == {"input", "output", "inout", "scratch"}
