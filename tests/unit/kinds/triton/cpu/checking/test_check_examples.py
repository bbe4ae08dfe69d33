"""Checking mode finds nothing in kernels that are right: the examples, looking for NaNs as well."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

import cpu_samples
from silo.commands.run_cases import checking_mode as check
from silo.kernels.collection import collect_kernels
from silo.machine.device_plugins import device_named
from silo.tuning.case_tuning import call_arguments, make_of

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EXAMPLES = Path(__file__).resolve().parents[6] / "examples" / "kernels.py"
KERNELS = ("add", "softmax", "layer_norm", "matmul", "attention", "dropout")


@pytest.mark.parametrize("name", KERNELS)
def test_examples_are_clean(name):
    (kernel,) = collect_kernels([EXAMPLES], [name])
    device = device_named("cpu")
    for function in kernel.case_functions:
        for values in list(function.combinations())[-1:]:  # the last has sizes that are not multiples of blocks
            case = function.prepare(values, make_of(None, device))
            checked = check(kernel, nan=True, uninitialized=case.uninitialized)
            named = call_arguments(kernel, case)
            grid = case.grid_of(checked.config(**named), device.facts())
            (checked if grid is None else checked[grid])(**named)
            result, _ = case.check()
            assert result is not None
            assert result.ok, result.message


def test_every_example_is_there():
    assert {kernel.name for kernel in collect_kernels([EXAMPLES], None)} == set(KERNELS)
