"""Runs kernels in checking mode, and compares the finding with the expected one."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import silo
from silo.errors import CheckError

__all__ = ["N", "clean", "fault", "floats"]

N = 100


def floats(count=N, start=1.0):
    return np.arange(start, start + count, dtype=np.float32)


def fault(kernel, grid, *args, expected, at, inside=None, options=None, **kwargs):
    """Run a check that must find ``expected`` on the line that contains ``at``, and must leave every array unchanged.

    The line is one of ``kernel``, or of ``inside``, a function that the kernel calls. Returns the error.
    """
    arrays = [array for array in (*args, *kwargs.values()) if isinstance(array, np.ndarray)]
    before = [array.copy() for array in arrays]
    with pytest.raises(CheckError) as raised:
        silo.check(kernel, **(options or {}))[grid](*args, **kwargs)
    error = raised.value
    assert error.kind == expected, str(error)
    lines, start = inspect.getsourcelines((inside or kernel).fn)
    line = next(start + offset for offset, text in enumerate(lines) if at in text)
    assert error.place == f"{inspect.getsourcefile((inside or kernel).fn)}:{line}", str(error)
    for array, held in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, held)
    return error


def clean(kernel, grid, *args, options=None, **kwargs):
    """Run a check that must find nothing."""
    silo.check(kernel, **(options or {}))[grid](*args, **kwargs)
