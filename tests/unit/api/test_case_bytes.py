"""Arrays of cases are made within a limit of memory, and the error says which, how much and what to do."""

import json

import pytest

from silo.building.ready_cases import prepare_recipe
from silo.core.recipes import ArrayRecipe, CaseRecipe
from silo.errors import CaseError, SettingsError
from silo.settings import Settings, available_memory, case_allowance, override
from silo.tuning.case_tuning import materializer


def recipe(*arrays: ArrayRecipe) -> CaseRecipe:
    return CaseRecipe("n=9", tuple((f"x{number}", one) for number, one in enumerate(arrays)))


def test_one_array_too_large_for_any_machine():
    with pytest.raises(CaseError, match=r"the case n=9 would take 1.64e\+04 GiB .*half of .* set SILO_CASE_BYTES"):
        prepare_recipe(recipe(ArrayRecipe.of("zeros", (1 << 42,))), materializer(None))


@pytest.mark.parametrize("library", ["numpy", "buffer"])
def test_the_sum_counts(library):
    arrays = [ArrayRecipe.of("zeros", (1 << 18,))] * 5
    with override(case_bytes=4 << 20):
        with pytest.raises(CaseError, match=r"would take 5 MiB of memory, .* may take 4 MiB \(SILO_CASE_BYTES\)"):
            prepare_recipe(recipe(*arrays), materializer(library))
        prepare_recipe(recipe(*arrays[:4]), materializer(library))
        with pytest.raises(CaseError, match=r"an array of shape \[2097152\] and dtype float32 would take 8 MiB"):
            materializer(library)(ArrayRecipe.of("zeros", (1 << 21,)))


def test_what_lies_between_elements_counts():
    with override(case_bytes=1 << 20), pytest.raises(CaseError, match="would take 4 MiB"):
        prepare_recipe(recipe(ArrayRecipe.of("zeros", (2,), strides=(1 << 20,))), materializer(None))


def test_a_formula_counts_with_what_computing_it_takes():
    own = {"formula": {"argument": "i0"}}
    data = {**json.loads(json.dumps(ArrayRecipe.of("zeros", (1 << 16,), "int32").to_json())), "fill": "own", "own": own}
    with override(case_bytes=1 << 20), pytest.raises(CaseError, match="would take 4 MiB"):
        prepare_recipe(recipe(ArrayRecipe.from_json(data)), materializer(None))


def test_memory_that_is_not_there():
    with override(case_bytes=1 << 62), pytest.raises(CaseError, match="this machine has not as much left"):
        materializer("numpy")(ArrayRecipe.of("normal", (1 << 41,)))


def test_the_setting():
    assert Settings.from_environment({"SILO_CASE_BYTES": "3G"}).case_bytes == 3 << 30
    assert Settings.from_environment({"SILO_FILE_BYTES": "128m"}).file_bytes == 128 << 20
    assert Settings.from_environment({"SILO_FILE_BYTES": "4096"}).file_bytes == 4096
    for wrong in ("many", "-1", "1.5G", "K", "9" * 20, "1GB"):
        with pytest.raises(SettingsError, match="SILO_CASE_BYTES is a number of bytes"):
            Settings.from_environment({"SILO_CASE_BYTES": wrong})
    with override(case_bytes=None):
        assert case_allowance() == available_memory() // 2
