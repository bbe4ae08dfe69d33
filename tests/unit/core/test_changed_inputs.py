"""Arrays that a kernel changes without a declaration: ``silo.core.checks.unchanged`` and ``silo.Case.changes``."""

import numpy as np
import pytest

import silo
from silo.core.cases import Make
from silo.core.checks import unchanged
from silo.errors import CaseError


@pytest.mark.parametrize("name", ["float32", "int64", "uint8", "bool", "float16"])
def test_equal_bits_are_unchanged(name):
    before = np.arange(12).reshape(3, 4).astype(name)
    assert unchanged(before.copy(), before)
    after = before.copy()
    after[2, 1] = not after[2, 1] if name == "bool" else after[2, 1] + 1
    found = unchanged(after, before)
    assert not found
    assert found.worst == (2, 1)
    assert "1 of 12 elements changed" in found.message


def test_signs_of_zeros_and_payloads_of_nans_are_bits():
    zeros = np.zeros(4, np.float32)
    assert not unchanged(-zeros, zeros)
    nans = np.full(4, np.nan, np.float32)
    assert unchanged(nans.copy(), nans)
    other = (nans.view(np.uint32) | 1).view(np.float32)
    assert not unchanged(other, nans)


def test_another_shape_is_a_change():
    assert "was" in unchanged(np.zeros(4), np.zeros(5)).message


NAMES = ("x", "y", "out", "locks")


def case(make, **more):
    x, out, locks = make.normal(8), make.empty(8), make.zeros(4, dtype="int32")
    return silo.Case(args=(x, more.pop("y", make.normal(8)), out, locks), **more)


@pytest.mark.parametrize(
    ("options", "declared", "left"),
    [
        ({}, (), set()),
        ({"expected": {"out": np.zeros(8)}}, (), {"x", "y", "locks"}),
        ({"expected": {"x": np.zeros(8)}}, (), {"y", "locks"}),
        ({"changes": ["locks"]}, (), {"x", "y"}),
        ({"expected": {"out": np.zeros(8)}}, ("y",), {"x", "locks"}),
    ],
)
def test_arrays_made_with_values_stay_unless_they_are_declared(options, declared, left):
    assert set(case(Make(lambda recipe: recipe.host()), **options).unchanged(NAMES, declared)) == left


def test_two_arguments_of_one_array_are_declared_together():
    make = Make(lambda recipe: recipe.host())
    x, out = make.normal(8), make.empty(8)
    made = silo.Case(args=(x, x, out, 4), expected={"y": np.zeros(8)})
    assert made.unchanged(NAMES, ()) == {}


@pytest.mark.parametrize("name", ["n", "other"])
def test_only_arrays_of_the_case_change(name):
    with pytest.raises(CaseError, match="none of its arrays"):
        case(Make(lambda recipe: recipe.host()), changes=[name]).unchanged(NAMES, ())
    with pytest.raises(CaseError, match="changes of a case"):
        silo.Case(changes="x")
