"""What a CuTe kernel is known by: its source, what it calls and the globals it reads; and the values of constants."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

from silo.core.values import JSON, FunctionValue, Value, digest
from silo.errors import SourceError
from silo.kinds.cute.front.cute_element_types import dtype_of
from silo.sources import constant_values, reached_objects
from silo.sources.constant_values import NOT_SPECIAL, NotSpecial
from silo.sources.functions import remember
from silo.sources.reached_objects import ReachedObjects, reached_by

__all__ = ["constant_value", "plain_function", "reached_from"]


def reached_from(function: Any) -> JSON:  # noqa: ANN401
    """All that decides what a function, an object or a class of the author's does, as data.

    Raises:
        SourceError: a source is not available, or something that is read has no canonical form.
    """
    return reached_by(_Reached(), function)


def constant_value(candidate: Any) -> Value:  # noqa: ANN401
    """The value of a constant: plain values, dtypes of the DSL, functions. ``TypeError`` for anything else."""

    def special(one: Any) -> Value | NotSpecial:  # noqa: ANN401
        if (element := dtype_of(one)) is not None:
            return element
        if isinstance(plain_function(one), FunctionType | BuiltinFunctionType):
            return _function_value(one)
        return NOT_SPECIAL

    return constant_values.to_value(candidate, special)


def _function_value(function: Any) -> FunctionValue:  # noqa: ANN401
    plain = plain_function(function)
    name = plain.__qualname__.replace("<locals>.", "")
    return remember(FunctionValue(name, digest("cute-function/1", reached_from(function))), function)


def plain_function(function: Any) -> Any:  # noqa: ANN401
    """The author's function within what the DSL or ``functools`` made of it; any other object as it is."""
    return reached_objects.plain_function(function, _Reached.libraries)


class _Reached(ReachedObjects):
    """What the DSL wraps, too."""

    libraries = ("cutlass", "cuda", *ReachedObjects.libraries)
    constant_word = "a Constexpr"

    def special(self, value: Any) -> Value | NotSpecial:  # noqa: ANN401
        return dtype_of(value) or NOT_SPECIAL

    def refuse(self, value: Any, name: str) -> None:  # noqa: ANN401
        kind = cast("type[object]", type(value))
        if kind.__module__.startswith("cutlass._mlir"):  # even its text may need a context that is gone
            raise SourceError(f"the kernel reads {name}, a value of an earlier trace ({kind.__name__}): make it anew")
