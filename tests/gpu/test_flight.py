"""Planted faults on a GPU: the flight recorder, the examination of its report, and the second run with copies."""

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("planted faults need a GPU", allow_module_level=True)
for _name in ("fla", "liger_kernel"):
    if find_spec(_name) is None:
        pytest.skip(f"planted faults need {_name} (fla-core 0.6.0, liger-kernel 0.8.5)", allow_module_level=True)

from tests.census.planted_faults import PLANTS, run_plant  # noqa: E402


@pytest.fixture(scope="module")
def outcomes():
    known = {}
    with ThreadPoolExecutor(6) as pool:
        return list(pool.map(lambda plant: run_plant(plant, "cuda", 10, known), PLANTS))


def test_no_innocent_kernel_is_named(outcomes):
    assert [one for one in outcomes if "WRONG" in one.ring + one.second or one.ring == "no report"] == []


def test_faults_named_from_the_ring_alone(outcomes):
    assert sum(one.ring == "named" for one in outcomes) >= 12, outcomes
    assert {one.ring for one in outcomes} <= {"named", "undecided"}


def test_faults_named_in_the_second_run(outcomes):
    assert sum(one.second == "named" for one in outcomes) >= 19, outcomes
