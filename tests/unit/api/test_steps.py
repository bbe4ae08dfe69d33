"""``silo.step``: what ``silo build`` keeps of a function's launches, and what its plan does with other arguments."""

import textwrap

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.bundle.reader import open_bundle
from silo.bundle.verify import verify_bundle
from silo.commands.build_bundle import build_bundle
from silo.core.expressions import Const
from silo.core.recorded_plans import ArgumentKind, Source
from silo.errors import ArgumentError, BundleError, SourceError, TrustError
from silo.kernels.recorded_steps import record_step, step_of
from silo.settings import override

N = 1000
F4 = np.float32


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield


SOURCE = """
import numpy as np
import silo, triton, triton.language as tl

@silo.kernel(grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), space={"BLOCK": [64, 128]})
@triton.jit
def added(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

@silo.kernel
@triton.jit
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, factor * tl.load(x + at, mask=at < n), mask=at < n)

@added.cases(n=[1000, 1001])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.normal(n), make.empty(n), n))

@scaled.cases(n=[1000, 1001])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.empty(n), n, 2.0, 128), grid=(silo.cdiv(n, 128),))

def arrays(n, count=3):
    return [np.ones(n, np.float32) for _ in range(count)]

@silo.step(lambda: (*arrays(1000), 1000, 2.0), lambda: (*arrays(10), 10, 2.0))
def two(x, between, out, n, factor):
    scaled[(silo.cdiv(n, 128),)](x, between, n, factor, BLOCK=128)
    if n > 100:
        added(between, x, out, n)
    else:
        added(between, between, out, n)

@silo.step(lambda: dict(zip(("x", "out"), arrays(640, 2)), turns=3))
def turns(x, out, turns):
    for turn in range(turns):
        scaled[(silo.cdiv(x.shape[0], 128),)](x, out, x.shape[0], 1.5, BLOCK=128)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    source = folder / "steps.py"
    source.write_text(SOURCE)
    summary = build_bundle([source], folder / "steps.silo", targets=["cpu"])
    assert summary.plans == ("two", "turns")
    return folder / "steps.silo"


def test_the_bundle_has_the_steps_in_terms_of_their_arguments(path):
    assert verify_bundle(path) == ()
    with open_bundle(path) as bundle:
        plans = bundle.manifest.plans
    assert list(plans) == ["turns", "two"]
    two = plans["two"]
    assert two.parameters == ("x", "between", "out", "n", "factor")
    assert [[str(node) for node in form.holds] for form in two.forms] == [["(n > 100)"], ["not((n > 100))"]]
    first, second = two.forms[0].launches
    assert (first.kernel, second.kernel) == ("scaled", "added")
    assert [str(axis) for axis in first.grid] == ["cdiv(n, 128)"]
    assert second.grid is None
    assert {one.parameter: (one.source, one.what) for one in first.arguments} == {
        "x": (Source.GIVEN, "x"),
        "out": (Source.GIVEN, "between"),
        "n": (Source.GIVEN, "n"),
        "factor": (Source.GIVEN, "factor"),
        "BLOCK": (Source.CONSTANT, 128),
    }
    assert "BLOCK" not in {one.parameter for one in second.arguments}  # which the config sets, on each device its own
    turns = plans["turns"]
    assert turns.parameters == ("x", "out", "turns")
    assert turns.forms[0].arguments[2].kind is ArgumentKind.VALUE
    assert len(turns.forms[0].launches) == 3
    assert str(turns.forms[0].launches[0].arguments[2].what) == "x.shape[0]"


def test_plans_of_the_bundle_compute_what_the_function_computes(path):
    kernels = silo.load(path)
    plan = kernels.plans["two"]
    assert kernels.plans["two"] is plan
    assert plan.names == ("x", "between", "out", "n", "factor")
    for n, factor in ((N, 3.0), (1500, 0.5), (17, 4.0), (100, 1.0), (101, 1.0), (1, 5.0), (4096, 7.0), (1500, 2.0)):
        x = np.random.default_rng(n).standard_normal(n, F4)
        between, out = np.zeros(n, F4), np.zeros(n, F4)
        plan(x, between, out, n=n, factor=factor)
        np.testing.assert_array_equal(between, F4(factor) * x)
        np.testing.assert_array_equal(out, between + (x if n > 100 else between))
    assert plan.replays > 0
    x, out = np.ones(333, F4), np.zeros(333, F4)
    kernels.plans["turns"](x, out, turns=3)
    np.testing.assert_array_equal(out, F4(1.5) * x)


def test_calls_that_no_form_serves_say_why(path):
    plans = silo.load(path).plans
    x, out = np.ones(64, F4), np.zeros(64, F4)
    for values, reason in (
        ((x, out, 4), "form 1: turns is 4, not 3"),
        ((x, out, 3.0), "turns is 3.0, not 3"),
        ((x.astype(np.float64), out, 3), "x is of float64 with 1 axes, not of float32 with 1"),
        ((x.reshape(8, 8), out, 3), "x is of float32 with 2 axes"),
        ((None, out, 3), "x is NoneType, not an array"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            plans["turns"](*values)
    with pytest.raises(ArgumentError, match="n is float, not an integer"):
        plans["two"](x, x, out, 64.0, 2.0)
    with pytest.raises(ArgumentError, match="factor is int, not a float"):
        plans["two"](x, x, out, 64, 2)
    with pytest.raises(BundleError, match="holds no plan 'three'; it holds: turns, two"):
        plans["three"]
    assert list(plans) == ["turns", "two"]
    assert "three" not in plans


def test_a_plan_of_a_stranger_needs_consent(path, tmp_path):
    x, out = np.ones(64, F4), np.zeros(64, F4)
    with override(home=tmp_path / "other"):
        with pytest.raises(TrustError, match=r"plan .*may not be run as the plan says"):
            silo.load(path).plans["turns"](x, out, 3)
        assert not out.any()
        silo.load(path, trust=True).plans["turns"](x, out, 3)
    assert out.any()


def test_the_same_files_give_the_same_bytes(path, tmp_path):
    source = tmp_path / "steps.py"
    source.write_text(SOURCE)
    build_bundle([source], tmp_path / "steps.silo", targets=["cpu"])
    assert (tmp_path / "steps.silo").read_bytes() == path.read_bytes()


def test_with_some_kernels_steps_of_others_are_left_out(tmp_path):
    source = tmp_path / "steps.py"
    source.write_text(SOURCE)
    summary = build_bundle([source], tmp_path / "steps.silo", targets=["cpu"], kernels=["scaled"])
    assert summary.plans == ("turns",)
    assert "the step two is left out: the step two: launch 2 (added)" in "\n".join(summary.remarks)


# ---- what cannot be kept ----


@silo.kernel
@triton.jit
def copied(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@silo.kernel(space={"BLOCK": [64, 128]})
@triton.jit
def open_copied(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def two_arrays():
    return np.ones(64, F4), np.zeros(64, F4)


def recorded(function, *examples):
    one = step_of(silo.step(*(examples or (two_arrays,)))(function))
    return record_step(one, [copied.kernel, open_copied.kernel])


def test_what_is_no_argument_is_refused():
    held = np.ones(64, F4)
    with pytest.raises(ArgumentError, match=r"launch 1 \(copied\) is given memory for 'x' that is no argument"):
        recorded(lambda x, out: copied[(1,)](held, out, 64, BLOCK=64))

    def parts(x, out):
        copied[(1,)](x, out, 64, BLOCK=64)
        copied[(1,)](x[16:], out, 16, BLOCK=64)

    with pytest.raises(ArgumentError, match=r"launch 2 \(copied\) is given memory for 'x' that is no argument"):
        recorded(parts)


def test_kernels_of_no_bundle_are_refused():
    one = step_of(silo.step(two_arrays)(lambda x, out: copied[(1,)](x, out, 64, BLOCK=64)))
    with pytest.raises(ArgumentError, match=r"launch 1 \(copied\) is not of a kernel that the bundle holds"):
        record_step(one, [open_copied.kernel])


def test_a_grid_that_a_function_computes_from_the_config_is_refused():
    def by_config(x, out):
        open_copied[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](x, out, 64)

    with pytest.raises(ArgumentError, match="has a grid by a function, and leaves BLOCK to the config"):
        recorded(by_config)

    def with_block(x, out):
        open_copied[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](x, out, 64, BLOCK=64, num_warps=2)

    (launch,) = recorded(with_block).forms[0].launches
    assert launch.grid == (Const(1),)
    assert launch.options == (("num_warps", 2),)


@silo.kernel(grid=(1,))
@triton.jit
def moved(x, out):
    out.store([0, 0], x.load([0, 0]))


def test_descriptors_and_addresses_are_refused():
    def described(x, out):
        moved(*(silo.TensorDescriptor(one, (8, 16), (16, 1), [8, 16]) for one in (x, out)))

    with pytest.raises(ArgumentError, match=r"launch 1 \(moved\) is given a tensor descriptor for 'x'"):
        record_step(
            step_of(silo.step(lambda: (np.ones((8, 16), F4), np.zeros((8, 16), F4)))(described)), [moved.kernel]
        )
    torch = pytest.importorskip("torch")

    def by_address(x, out):
        copied[(1,)](x, out, 64 if x.data_ptr() % 16 == 0 else 32, BLOCK=64)

    with pytest.raises(ArgumentError, match=r"depends on the address of x, by data_ptr\(\)"):
        recorded(by_address, lambda: (torch.ones(64), torch.zeros(64)))


def test_nothing_launched_other_objects_and_bad_examples_are_refused():
    with pytest.raises(ArgumentError, match="nothing was launched"):
        recorded(lambda x, out: None)
    with pytest.raises(ArgumentError, match="its argument options is object, which a bundle does not hold"):
        recorded(lambda x, out, options: copied[(1,)](x, out, 64, BLOCK=64), lambda: (*two_arrays(), object()))
    with pytest.raises(SourceError, match=r"example 1 of the step .* gives ndarray"):
        recorded(lambda x: None, lambda: np.ones(3))
    with pytest.raises(SourceError, match="the examples of the step"):
        recorded(lambda x, out, n=64: copied[(1,)](x, out, n, BLOCK=64), two_arrays, lambda: (*two_arrays(), 64))
    with pytest.raises(ArgumentError, match="takes functions that make the arguments"):
        silo.step()
    with pytest.raises(ArgumentError, match="takes functions that make the arguments"):
        silo.step(np.ones(3))


def test_two_steps_of_one_name_are_refused(tmp_path):
    for name in ("one", "two"):
        text = SOURCE.replace("added", f"added_{name}").replace("scaled", f"scaled_{name}")
        (tmp_path / f"steps_{name}.py").write_text(textwrap.dedent(text))
    files = [tmp_path / "steps_one.py", tmp_path / "steps_two.py"]
    with pytest.raises(SourceError, match="two steps are called 'two'"):
        build_bundle(files, tmp_path / "both.silo", targets=["cpu"])
