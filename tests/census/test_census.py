"""Kernels of the kinds that people write, by Triton's own calls on the CPU, each against an independent oracle."""
# what follows needs torch and Triton

import re

import pytest

pytest.importorskip("torch", reason="the oracles of the census are torch's")
pytest.importorskip("triton", reason="Triton is not installed")

from census_kinds import KINDS, launched_kernels, load_kinds
from census_missing import MISSING

_, ABSENT = load_kinds()


@pytest.mark.parametrize("label", list(KINDS))
def test_kind(label):
    if label not in MISSING:
        with launched_kernels() as kernels:
            KINDS[label].run()
        assert kernels, f"{label} launched nothing"
        return
    _, text = MISSING[label]
    with pytest.raises(Exception, match=re.escape(text)):
        KINDS[label].run()


def test_kinds_of_liger():
    if ABSENT:
        pytest.skip(ABSENT)
    assert sum(label.startswith("liger") for label in KINDS) >= 50


def test_only_known_kinds_are_missing():
    known = [label for label in MISSING if not (ABSENT and label.startswith("liger"))]
    assert set(known) <= set(KINDS)
