"""Replaces functions of torch under their own names."""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinMethodType, FunctionType
from typing import Any

__all__ = ["named_as", "put"]


def put(owners: tuple[Any, ...], name: str, function: Callable[..., Any]) -> None:
    """Make ``function`` the member ``name`` of every owner, as a separate function object in each.

    ``torch.compile`` finds torch's functions by identity and has rules by name: it raises if one object has two names
    with different rules.
    """
    for owner in owners:
        original = getattr(owner, name, None)
        made: Any = function
        if isinstance(function, FunctionType):
            made = FunctionType(
                function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
            )
            made.__kwdefaults__ = function.__kwdefaults__
        elif isinstance(function, BuiltinMethodType):
            made = _calling(function)
        if original is not None and isinstance(made, FunctionType):
            named_as(made, original)
        setattr(owner, name, made)


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)  # noqa: PLW0108  # a new object


def named_as(function: Any, original: Any) -> Any:  # noqa: ANN401
    """Give ``function`` the name, module and docstring of ``original``, which tracers print; returns ``function``."""
    function.__name__ = getattr(original, "__name__", function.__name__)
    function.__qualname__ = getattr(original, "__qualname__", function.__name__)
    function.__doc__ = getattr(original, "__doc__", None)
    function.__module__ = getattr(original, "__module__", None) or "torch"
    return function
