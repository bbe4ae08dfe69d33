"""How much of a breadth runs each time: of kills, forks and random kernels; of the combinations of parameters."""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

__all__ = ["EVERYTHING", "combinations", "one_in", "repetitions"]

EVERYTHING = "SILO_TEST_ALL" in os.environ
"""Whether this is a run of ``scripts/test --all``."""


def repetitions(variable: str, usual: int, everything: int) -> int:
    """What the variable says; else ``everything`` in ``scripts/test --all``, and ``usual`` in any other run."""
    return int(os.environ.get(variable, everything if EVERYTHING else usual))


def combinations(*axes: Sequence[Any]) -> list[Any]:
    """Every combination of the axes' values, for ``pytest.mark.parametrize``; most in ``scripts/test --all`` alone.

    As many run each time as the longest axis has values, so that each value of each axis is among them.
    """
    usual = {tuple(turn % len(axis) for axis in axes) for turn in range(max(map(len, axes)))}
    found = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        found.append(pytest.param(*values, marks=() if places in usual else pytest.mark.all))
    return found


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """The values for ``pytest.mark.parametrize``: of ``count`` neighbours only the first runs each time."""
    return [pytest.param(one, marks=() if place % count == 0 else pytest.mark.all) for place, one in enumerate(values)]
