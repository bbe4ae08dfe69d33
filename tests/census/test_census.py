"""Kernels of the kinds that people write, by Triton's own calls on the CPU, each against an independent oracle."""
# the imports below need torch and Triton

import re
from collections import Counter

import pytest

pytest.importorskip("torch", reason="the oracles of the census are torch's")
pytest.importorskip("triton", reason="Triton is not installed")

from census_kinds import KINDS, LIBRARIES, launched_kernels, load_kinds, named_operations
from census_missing import MISSING

from silo.kinds.triton.front.operations.operation_table import OPERATIONS

_, ABSENT = load_kinds()


def chosen_kinds():
    """Every kind. Of the kinds from a library, each run takes every sixth, and ``scripts/test --all`` takes all."""
    seen = Counter()
    for label, one in KINDS.items():
        seen[one.source] += 1
        usual = one.source not in LIBRARIES or seen[one.source] % 6 == 1 or label in MISSING
        yield pytest.param(label, marks=() if usual else pytest.mark.all)


@pytest.mark.filterwarnings("ignore:Logical operators:UserWarning")  # Triton warns of a library's kernel
@pytest.mark.filterwarnings("ignore:Triton.3.2.0 detected:UserWarning")  # a library warns of this Triton
@pytest.mark.parametrize("label", list(chosen_kinds()))
def test_kind(label, tmp_path):
    if label not in MISSING:
        with launched_kernels() as kernels:
            KINDS[label].run()
        assert kernels, f"{label} launched nothing"
        names = named_operations(tmp_path)
        assert "tt.func" in names
        assert sorted(names - set(OPERATIONS)) == [], "operations without a record"
        return
    _, text = MISSING[label]
    with pytest.raises(Exception, match=re.escape(text)):
        KINDS[label].run()


@pytest.mark.parametrize(("library", "count"), [("liger", 50), ("conch", 12), ("fla", 10)])
def test_kinds_of_libraries(library, count):
    if library in ABSENT:
        pytest.skip(ABSENT[library])
    assert sum(label.startswith(library) for label in KINDS) >= count


def test_only_known_kinds_are_missing():
    known = [label for label in MISSING if label.partition(":")[0] not in ABSENT]
    assert set(known) <= set(KINDS)
