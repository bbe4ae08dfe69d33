"""How much of a breadth runs each time: of kills, forks and random kernels; of values of one parameter."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["EVERYTHING", "one_in", "repetitions"]

EVERYTHING = "SILO_TEST_ALL" in os.environ
"""Whether this is a run of ``scripts/test --all``."""


def repetitions(variable: str, usual: int, everything: int) -> int:
    """What the variable says; else ``everything`` in ``scripts/test --all``, and ``usual`` in any other run."""
    return int(os.environ.get(variable, everything if EVERYTHING else usual))


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """The values for ``pytest.mark.parametrize``: of ``count`` neighbours only the first runs each time."""
    return [pytest.param(one, marks=() if place % count == 0 else pytest.mark.all) for place, one in enumerate(values)]
