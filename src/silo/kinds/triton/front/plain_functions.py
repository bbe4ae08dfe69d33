"""Python functions within Triton's objects, and the libraries whose code is known by name. Imports nothing heavy."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["LIBRARIES", "is_library", "plain_function"]

LIBRARIES = ("triton", "builtins", "math", "typing", "copy")
"""Packages whose code is known by name: their versions are part of the compiler's identity."""


def is_library(name: str | None) -> bool:
    """Whether a module's code is known by name."""
    return name is not None and name.partition(".")[0] in LIBRARIES


def plain_function(function: Any) -> Any:  # noqa: ANN401
    """The Python function within Triton's objects; any other object as it is."""
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    return function
