"""Conversion between Triton's constexpr objects and values that can be part of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from silo.core.values import FunctionValue, Value
from silo.kinds.triton.front.adapter.triton_objects import is_constexpr, is_function
from silo.sources import constant_values
from silo.sources.constant_values import NOT_SPECIAL, NotSpecial, dtype_value

__all__ = ["to_value"]


def to_value(candidate: Any, functions: Callable[[Any], FunctionValue] | None) -> Value:  # noqa: ANN401
    """The value of a constexpr; ``functions`` turns a Triton function into its value.

    Raises:
        TypeError: the object has no canonical form.
    """

    def special(one: Any) -> Value | NotSpecial:  # noqa: ANN401
        kind: type[object] = one.__class__
        if is_constexpr(one):
            return to_value(one.value, functions)
        if kind.__module__.startswith("triton.") and kind.__name__ == "dtype":
            return dtype_value(one.name)
        if functions is not None and is_function(one):
            return functions(one)
        return NOT_SPECIAL

    return constant_values.to_value(candidate, special)
