"""A bundle holds code for what heuristics compute of every case, although cases that are alike are planned as one."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import silo
from silo.bundle.documents import case_recipes
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import build_bundle
from silo.commands.run_cases import run_cases
from silo.core.recipes import ScalarRecipe
from silo.errors import NoVariantError
from silo.settings import override

KERNEL = """
import silo
import triton
import triton.language as tl


@silo.kernel({space}grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.heuristics({heuristics})
@triton.jit
def mark(x, out, n, BLOCK: tl.constexpr, {names}):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + {mark}, mask=i < n)


@mark.cases(n={sizes}, dtype={dtypes})
def _(n, dtype, make):
    x, out = make.integers(n, low=0, high=9, dtype=dtype), make.empty(n, dtype=dtype)
    return silo.Case(args=(x, out, n), kwargs={given}, expected={{"out": lambda: x.host + {expected}}})
"""
EVEN = {
    "space": "",
    "heuristics": '{"EVEN": lambda a: a["n"] % a["BLOCK"] == 0}',
    "names": "EVEN: tl.constexpr",
    "mark": "EVEN",
    "sizes": "[1000, 1001]",
    "dtypes": '["int32"]',
    "given": '{"BLOCK": 8}',
    "expected": "int(n % 8 == 0)",
}
SPACE = 'space={"BLOCK": [8, 64, 1024]}, key=["n"], '


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("home"), tune="off"):
        yield


def built(folder, targets=("cpu",), **changes):
    source = folder / "kernels.py"
    options = {"configs": changes.pop("configs")} if "configs" in changes else {}
    source.write_text(KERNEL.format(**{**EVEN, **changes}))
    build_bundle([source], folder / "k.silo", targets=targets, tune="off", **options)
    return folder / "k.silo"


def failures(path):
    return [(one.case, one.message) for one in run_cases(path) if not one.ok]


def marked(path, n, *, offset=0, **given):
    """What a call of a bundle adds to every element; not aligned where ``offset`` says so."""
    x, out = (np.zeros(n + offset, np.int32)[offset:] for _ in range(2))
    silo.load(path).mark(x, out, n, **given)
    (found,) = set(out.tolist())
    return found


def constants(path, name):
    return sorted(
        one.artifact.variant.specialization.constant_values[name] for one in open_bundle(path).kernel("mark").variants
    )


def test_cases_that_differ_in_a_derived_constexpr_have_code_of_their_own(tmp_path):
    path = built(tmp_path)
    assert failures(path) == []
    assert [marked(path, n, BLOCK=8) for n in (1000, 1001)] == [1, 0]
    # Each value has a fallback that assumes nothing, too: no case has such a size, or such arrays.
    assert [marked(path, n, offset=1, BLOCK=8) for n in (24, 25, 1024, 17)] == [1, 0, 1, 0]
    assert constants(path, "EVEN") == [False, False, True, True]


def test_each_variant_says_which_cases_it_is_for(tmp_path):
    path = built(tmp_path, sizes="[1000, 1001, 1003]")
    found = {}
    for one in open_bundle(path).kernel("mark").variants:
        found.setdefault(one.artifact.variant.specialization.constant_values["EVEN"], []).append(one.reason)
    specialized, fallback = found[False]
    assert "n=1001" in specialized
    assert "n=1003" in specialized
    assert "n=1000" not in specialized
    assert fallback.startswith("fallback that assumes nothing")
    assert "n=1001" not in found[True][0]


def test_heuristics_that_read_the_config_and_each_other_are_computed_for_every_case_and_config(tmp_path):
    changes = {
        "heuristics": '{"EVEN": lambda a: a["n"] % a["BLOCK"] == 0, "MODE": lambda a: a["n"] % 3 + 10 * a["EVEN"]}',
        "names": "EVEN: tl.constexpr, MODE: tl.constexpr",
        "mark": "MODE",
        "space": SPACE,
        "sizes": "[1000, 1001, 1002, 1024, 1088]",
        "given": "{}",
        "expected": "0",
    }
    path = built(tmp_path, configs="all", **changes)
    values = {
        (v.config.as_dict()["BLOCK"], v.specialization.constant_values["MODE"])
        for v in (one.artifact.variant for one in open_bundle(path).kernel("mark").variants)
    }
    sizes = (1000, 1001, 1002, 1024, 1088)
    assert values == {(block, n % 3 + 10 * (n % block == 0)) for block in (8, 64, 1024) for n in sizes}
    for block in (8, 64, 1024):
        assert [marked(path, n, BLOCK=block) for n in sizes] == [n % 3 + 10 * (n % block == 0) for n in sizes]


def test_a_derived_value_that_no_case_has_is_refused_with_the_reason(tmp_path):
    path = built(tmp_path, sizes="[1000, 2000]")
    with pytest.raises(NoVariantError, match="compiled for EVEN=True, and the call needs EVEN=False"):
        marked(path, 1001, BLOCK=8)


def test_cases_of_one_label_are_told_apart(tmp_path):
    """The second function's case is known by the same parameters, and gives another block."""
    source = tmp_path / "kernels.py"
    text = KERNEL.format(**{**EVEN, "sizes": "[1000]", "given": '{"BLOCK": 16}', "expected": "0"})
    second = text[text.index("@mark.cases") :].replace("16", "8").replace("x.host + 0", "x.host + 1")
    source.write_text(text + second)
    build_bundle([source], tmp_path / "k.silo", targets=["cpu"], tune="off")
    assert failures(tmp_path / "k.silo") == []
    variants = [one.artifact.variant for one in open_bundle(tmp_path / "k.silo").kernel("mark").variants]
    values = {tuple(one.specialization.constant_values[name] for name in ("BLOCK", "EVEN")) for one in variants}
    assert values == {(16, False), (8, True)}


def test_what_heuristics_in_python_say_of_a_case_travels_with_it(tmp_path):
    """A bundle has no such function to ask, so its calls give the value, and so do its cases."""
    changes = {
        "heuristics": '{"EVEN": lambda a: a["n"] % 8 == 0 and "int32" in str(a["x"].dtype)}',
        "dtypes": '["int32", "int64"]',
        "expected": 'int(n % 8 == 0 and dtype == "int32")',
    }
    path = built(tmp_path, **changes)
    assert failures(path) == []
    recipes = {one.label: dict(one.arguments)["EVEN"] for one in case_recipes(open_bundle(path), "mark")}
    assert recipes["n=1000,dtype=int32"] == ScalarRecipe(True)
    assert recipes["n=1000,dtype=int64"] == recipes["n=1001,dtype=int32"] == ScalarRecipe(False)
    assert [marked(path, 1000, BLOCK=8, EVEN=even) for even in (True, False)] == [1, 0]
