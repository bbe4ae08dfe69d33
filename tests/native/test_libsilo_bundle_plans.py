"""Plans that a bundle keeps, through libsilo: on the CPU, and on the stub of CUDA."""

import ctypes
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from libsilo import LINKED, Bundle, LibraryError, Plan, pointer
from made_plans import ROWS, SUMS, add, write_plans
from samples import gpu_stub
from silo.bundle.contents import host_plans
from silo.bundle.reader import open_bundle

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
    with Plan(library) as plan:  # of no bundle
        assert plan.parameters == []
        with pytest.raises(LibraryError, match="the plan is of no bundle"):
            plan()


def test_a_plan_whose_kernel_is_elsewhere_is_named(tmp_path):
    gone = replace(ROWS, name="gone", forms=(replace(ROWS.forms[0], launches=(add("out", "out", "out", 1),)),))
    lost = replace(gone.forms[0].launches[0], kernel="lost")
    gone = replace(gone, forms=(replace(gone.forms[0], launches=(lost,)),))
    with Bundle(write_plans(tmp_path / "gone.silo", gone, SUMS), vouch=lambda code: 1) as opened:
        with pytest.raises(LibraryError, match="no kernel 'lost'") as caught:
            opened.plan("gone")
        assert caught.value.code == NO_KERNEL
        opened.plan("sums").close()


def test_a_parameter_that_the_kernel_has_not_is_damage(tmp_path):
    first = SUMS.forms[0]
    wrong = replace(first.launches[0].arguments[0], parameter="z")
    launch = replace(first.launches[0], arguments=(wrong, *first.launches[0].arguments[1:]))
    plan = replace(SUMS, forms=(replace(first, launches=(launch,)),))
    with (
        Bundle(write_plans(tmp_path / "wrong.silo", plan), vouch=lambda code: 1) as opened,
        pytest.raises(LibraryError, match="a parameter z, which it does not have"),
    ):
        opened.plan("sums")


ON_STUB = """
import ctypes, os, struct
import numpy as np
import silo
from gpu_stub import stub
from libsilo import CUDA, Bundle, LibraryError, Queue, array

log = []
for entry in ("add_64", "add_256", "add_any", "rows"):
    stub.run(entry, lambda launch, entry=entry: log.append((entry, launch.grid, launch.parameters)))

def taken():
    found, log[:] = list(log), []
    return [(entry.split("_")[0], *(int.from_bytes(one, "little") for one in given)) for entry, _, given in found]

def arrays(count):
    return [silo.Buffer(1024, "float32", device="cuda") for _ in range(count)]

opened = Bundle(os.environ["PLANS"], cuda_library=os.environ["SILO_TEST_STUB"].encode())
queue = Queue(CUDA, 0, None)
plan = opened.plan("sums", queue)  # nobody vouches: no code of the host is called
python = silo.load(os.environ["PLANS"]).plans["sums"]

def c(one):
    return array(one.address, "float32", (1024,))

first = arrays(4)
python(*first, 7)  # which makes the launches one by one
taken()
for n in (1024, 7, 100, 0):
    x, y, between, out = arrays(4)
    size = n or 1024
    expected = [("add", x.address, y.address, between.address, size)]
    expected += [("add", between.address, x.address, out.address, size)]
    plan(*map(c, (x, y, between, out)), n)
    assert taken() == expected, n
    python(x, y, between, out, n)
    assert taken() == expected, n
    python(x, y, between, out, n)
    assert taken() == expected, n
assert plan.explain()[0] == "device", plan.explain()
assert {form.way for form in python.report().forms} == {"device"}, str(python.report())
try:
    opened.plan("sums")
except LibraryError as error:
    assert error.code == 31 and "says what native code is called with" in error.text, error
else:
    raise AssertionError("a CPU's plan that nobody vouched for")
print("ended")
"""


def test_a_plan_runs_on_a_gpu_that_it_was_not_recorded_on(path, tmp_path):
    assert gpu_stub.run(ON_STUB, PLANS=str(path), SILO_HOME=str(tmp_path)).endswith("ended\n")


def test_a_plan_on_a_cpu_is_vouched_for_by_the_digest_that_the_ledger_keeps(path):
    with open_bundle(path) as read:
        known = {name: plan for plan, name in host_plans(read.contents())}
        identity = read.identity
    asked = []

    def vouch(code):
        asked.append((code.kernel.decode(), code.sha256.decode(), code.digest.decode(), code.identity.decode()))
        text = ctypes.string_at(code.data, code.bytes)
        assert hashlib.sha256(text).hexdigest() == code.sha256.decode()
        return code.kernel != b"rows"

    with Bundle(path, vouch=vouch) as opened:
        opened.plan("sums").close()
        with pytest.raises(LibraryError, match="the program does not vouch for it") as caught:
            opened.plan("rows")
        assert caught.value.code == UNTRUSTED
    assert asked == [(name, known[name].blob, known[name].digest, identity) for name in ("sums", "rows")]
    with Bundle(path) as opened, pytest.raises(LibraryError, match="nobody was asked to vouch for it"):
        opened.plan("sums")
    with Bundle(path.read_bytes(), flags=LINKED) as opened:
        opened.plan("sums").close()
