"""Plans that a bundle keeps, through libsilo: on the CPU, and on the stub of CUDA."""

import numpy as np
import pytest


from libsilo import CPU, CUDA, Bundle, LibraryError, Queue, pointer
from made_plans import ROWS, SUMS, add, write_plans

USAGE, NO_KERNEL, EXPRESSION, NO_VARIANT, UNTRUSTED, FAULT = 20, 21, 29, 30, 31, 46
F4 = np.float32


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_plans(tmp_path_factory.mktemp("plans") / "plans.silo")


@pytest.fixture
def bundle(path):
    with Bundle(path, vouch=lambda code: 1) as opened:
        yield opened


def arrays(n, count=4):
    return [np.random.default_rng(n + index).random(n, dtype=F4) for index in range(count)]


def test_calls_make_the_launches_of_their_form(bundle):
    assert bundle.plans == ["failing", "rows", "sums"]
    with bundle.plan("sums") as plan:
        assert plan.parameters == ["x", "y", "between", "out", "n"]
        for n in (16, 1000, 17, 5000, 16):
            for given in (n, 0):
                x, y, between, out = arrays(n)
                plan(x, y, between, out, given)
                np.testing.assert_array_equal(between, x + y)
                np.testing.assert_array_equal(out, between + x)


def test_grids_and_numbers_are_computed(bundle):
    out = np.zeros(64, np.int32)
    with bundle.plan("rows") as plan:
        plan(out, 4, "double")
        assert out[:16].tolist() == [8000 + index for index in range(16)]
        plan(out, 2, None)
        assert out[:3].tolist() == [2000, 2001, 8002]
        with pytest.raises(LibraryError, match="larger than 64 bits") as caught:
            plan(out, 1 << 62, "double")
        assert caught.value.code == EXPRESSION


def test_calls_that_no_form_serves_say_why(bundle):
    x, y, between, out = arrays(16)
    with bundle.plan("sums") as plan:
        for values, reason in (
            ((x, y, between, out, -1), r"form 1: \(n > 0\) does not hold"),
            ((x, y, between, out, -1), "form 2: n is not 0"),
            ((x.astype(np.float64), y, between, out, 16), "x has elements of another type"),
            ((x.reshape(4, 4), y, between, out, 16), "x has 2 axes, not 1"),
            ((x, y, between, out, 2.0), "n is not an integer"),
            ((x, y, between, 5, 16), "out is not an array"),
            ((pointer(x.ctypes.data), y, between, out, 0), "x is an address, and its shape is needed"),
        ):
            with pytest.raises(LibraryError, match=reason) as caught:
                plan(*values)
            assert caught.value.code == NO_VARIANT
            assert len(caught.value.details.splitlines()) == 2
        with pytest.raises(LibraryError, match="takes 5 arguments, and 4 were given") as caught:
            plan(x, y, between, out)
        assert caught.value.code == USAGE
        plan(pointer(x.ctypes.data), y, between, out, 16)
        np.testing.assert_array_equal(out, (x + y) + x)


def test_a_launch_that_cannot_be_added_launches_nothing(bundle):
    """The second launch refuses a null pointer; the first one is not made either."""
    x, y, between, out = arrays(16)
    before = between.copy()
    with bundle.plan("sums") as plan:
        with pytest.raises(LibraryError, match="null pointer"):
            plan(x, y, between, pointer(None), 16)
        np.testing.assert_array_equal(between, before)
        plan(x, y, between, out, 16)
        np.testing.assert_array_equal(out, (x + y) + x)


def test_a_launch_that_fails_in_the_middle_ends_the_call(bundle):
    x, out, ints = np.ones(16, F4), np.zeros(16, F4), np.zeros(16, np.int32)
    with bundle.plan("failing") as plan:
        for _ in range(2):
            out[:] = 0
            with pytest.raises(LibraryError, match="fails") as caught:
                plan(x, out, ints)
            assert caught.value.code == FAULT
            assert out.tolist() == [2.0] * 16
            assert x.tolist() == [1.0] * 16  # the launch after it was not made


def test_names_and_mistakes(bundle):
    with pytest.raises(LibraryError, match="has no plan 'other'; it has failing, rows, sums") as caught:
        bundle.plan("other")
    assert caught.value.code == NO_KERNEL
    library = bundle.library
    assert library.silo_bundle_plan(bundle.handle, b"sums", None, None, None) == USAGE
    assert library.silo_plan_call(None, None, None, 0, None) == USAGE
    from libsilo import Plan

    with Plan(library) as plan:  # of no bundle
        assert plan.parameters == []
        with pytest.raises(LibraryError, match="the plan is of no bundle"):
            plan()


def test_a_plan_whose_kernel_is_elsewhere_is_named(tmp_path):
    from dataclasses import replace

    gone = replace(ROWS, name="gone", forms=(replace(ROWS.forms[0], launches=(add("out", "out", "out", 1),)),))
    lost = replace(gone.forms[0].launches[0], kernel="lost")
    gone = replace(gone, forms=(replace(gone.forms[0], launches=(lost,)),))
    with Bundle(write_plans(tmp_path / "gone.silo", gone, SUMS), vouch=lambda code: 1) as opened:
        with pytest.raises(LibraryError, match="no kernel 'lost'") as caught:
            opened.plan("gone")
        assert caught.value.code == NO_KERNEL
        opened.plan("sums").close()


def test_a_parameter_that_the_kernel_has_not_is_damage(tmp_path):
    from dataclasses import replace

    first = SUMS.forms[0]
    wrong = replace(first.launches[0].arguments[0], parameter="z")
    launch = replace(first.launches[0], arguments=(wrong, *first.launches[0].arguments[1:]))
    plan = replace(SUMS, forms=(replace(first, launches=(launch,)),))
    with (
        Bundle(write_plans(tmp_path / "wrong.silo", plan), vouch=lambda code: 1) as opened,
        pytest.raises(LibraryError, match="a parameter z, which it does not have"),
    ):
        opened.plan("sums")
