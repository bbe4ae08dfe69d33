"""The example kernels through libsilo, on the CPU: each case gives what its author expects."""

from pathlib import Path

import numpy as np
import pytest

import silo
from libsilo import ABSENT, Bundle, LibraryError
from silo.building.ready_cases import prepare_recipe
from silo.commands.build_bundle import build_bundle
from silo.settings import override
from silo.tuning.case_tuning import materializer

pytest.importorskip("triton", reason="the examples are kernels of Triton")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "kernels.py"
KERNELS = ("add", "attention", "dropout", "layer_norm", "matmul", "softmax")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    path = folder / "examples.silo"
    with override(home=str(folder / "store")):
        build_bundle([EXAMPLES], path, targets=["cpu"], tune="off")
    return path


@pytest.fixture(scope="module")
def bundle(built):
    with Bundle(built, vouch=lambda code: 1) as opened:
        yield opened


def test_all_are_there(bundle):
    assert tuple(bundle.kernels) == KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_cases(built, bundle, name):
    kernel = bundle[name]
    recipes = silo.load(built, trust=True)[name].recipes()
    assert recipes
    for recipe in recipes:
        case = prepare_recipe(recipe, materializer("numpy", None))
        values = [case.arguments.get(parameter, ABSENT) for parameter in kernel.parameters]
        kernel(*values, **case.options)
        result, argument = case.check()
        assert result is not None
        assert result.ok, f"{case.label}: {argument}: {result.message}"


def test_a_view_and_other_elements(bundle):
    x = np.arange(64, dtype=np.float32).reshape(8, 8)[1:]
    out = np.zeros(40, np.float32)
    bundle["add"](x.reshape(-1)[8:48], x.reshape(-1)[8:48], out, 40)
    np.testing.assert_array_equal(out, 2 * x.reshape(-1)[8:48])
    with pytest.raises(LibraryError, match="float64"):
        bundle["add"](out.astype(np.float64), out, out, 40)
