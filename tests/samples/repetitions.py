"""How often tests repeat: kills, forks and random kernels; and how many values of a parameter each run covers."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["EVERYTHING", "one_in", "repetitions"]

EVERYTHING = "SILO_TEST_ALL" in os.environ
"""Whether this is a run of ``scripts/test --all``."""


def repetitions(variable: str, usual: int, everything: int) -> int:
    """Return the variable's number, if set; else ``everything`` in ``scripts/test --all``, and ``usual`` otherwise."""
    return int(os.environ.get(variable, everything if EVERYTHING else usual))


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """Return the values for ``pytest.mark.parametrize``: of ``count`` neighbours, usual runs test only the first."""
    return [pytest.param(one, marks=() if place % count == 0 else pytest.mark.all) for place, one in enumerate(values)]
