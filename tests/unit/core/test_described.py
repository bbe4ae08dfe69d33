"""Arrays in messages: by dtype and shape, never by their contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silo.core.argument_facts import describe

pytest.importorskip("triton")

import triton
import triton.language as tl

import silo
from silo.errors import SiloError


@silo.kernel
@triton.jit
def fill(out, value, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), value)


def test_nested_arrays_are_described() -> None:
    array = np.arange(1000.0)
    assert describe({"a": array}).startswith("{'a': float64[1000]")
    assert describe((1, [array])).startswith("(1, [float64[1000]")
    assert len(describe("x" * 1000)) == 60


@pytest.mark.parametrize(
    "arguments",
    [
        {"value": 1, "BLOCK": np.arange(1000.0)},
        {"value": 1, "BLOCK": (np.arange(1000.0), 2)},
        {"value": np.zeros(1000, dtype=object), "BLOCK": 4},
        {"value": 1, "BLOCK": 4, "num_warps": np.arange(1000.0)},
    ],
)
def test_an_error_about_an_array_shows_none_of_its_elements(arguments: dict[str, Any]) -> None:
    with pytest.raises(SiloError) as caught:
        fill[(1,)](np.zeros(16, "float32"), **arguments)
    text = str(caught.value)
    assert "[1000]" in text or "got a tuple" in text
    assert "0., " not in text
    assert "999" not in text
