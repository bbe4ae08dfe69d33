"""Conversion between Triton's constexpr objects and values that can be part of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from silo.core.dtypes import DType, dtype
from silo.core.values import FunctionValue, Value
from silo.sources.triton.adapter.objects import is_constexpr, is_function

__all__ = ["to_value"]


def to_value(candidate: Any, functions: Callable[[Any], FunctionValue] | None) -> Value:  # noqa: ANN401
    """The value of a constexpr; ``functions`` turns a Triton function into its value.

    Raises:
        TypeError: the object has no canonical form.
    """
    if candidate is None or isinstance(candidate, bool | int | float | str):
        return _builtin(candidate)
    if isinstance(candidate, DType | FunctionValue):
        return candidate
    if isinstance(candidate, tuple | list):
        return tuple(to_value(item, functions) for item in cast("list[object]", candidate))
    kind: type[object] = candidate.__class__
    if is_constexpr(candidate):
        return to_value(candidate.value, functions)
    if kind.__module__.startswith("triton.") and kind.__name__ == "dtype":
        return _dtype(candidate.name)
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return _dtype(str(candidate).removeprefix("torch."))
    if functions is not None and is_function(candidate):
        return functions(candidate)
    item = getattr(candidate, "item", None)
    if callable(item) and getattr(candidate, "ndim", None) == 0:  # a numpy scalar
        return to_value(item(), functions)
    raise TypeError(f"a {kind.__name__} cannot be a constexpr value: {candidate!r}")


def _builtin(candidate: float | str | None) -> Value:
    # An IntEnum or a subclass of str is its plain value.
    for kind in (bool, int, float, str):
        if isinstance(candidate, kind):
            return kind(candidate)
    return None


def _dtype(name: str) -> DType:
    try:
        return dtype(name)
    except KeyError as error:
        raise TypeError(f"{name} cannot be a constexpr value: {error.args[0]}") from None
