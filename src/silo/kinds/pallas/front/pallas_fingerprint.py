"""The fingerprint of a Pallas body, from its source, callees and globals; and the values of constants."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType
from typing import Any

from silo.core.values import JSON, FunctionValue, Value, digest
from silo.kinds.pallas.front.pallas_element_types import dtype_of
from silo.sources import constant_values, reached_code
from silo.sources.constant_values import NOT_SPECIAL, NotSpecial, remember
from silo.sources.reached_code import ReachedObjects, reached_by

__all__ = ["constant_value", "plain_function", "reached_from"]


def reached_from(function: Any) -> JSON:  # noqa: ANN401
    """Returns all code and values that a body or an index map reaches, as data.

    Raises:
        SourceError: a source is not available, or a value that is read has no canonical form.
    """
    return reached_by(_Reached(), function)


def constant_value(candidate: Any) -> Value:  # noqa: ANN401
    """Returns the value of a constant: plain values, dtypes, functions. Raises TypeError for others."""

    def special(one: Any) -> Value | NotSpecial:  # noqa: ANN401
        if (element := dtype_of(one)) is not None:
            return element
        plain = plain_function(one)
        if isinstance(plain, FunctionType | BuiltinFunctionType):
            name = plain.__qualname__.replace("<locals>.", "")
            return remember(FunctionValue(name, digest("pallas-function/1", reached_from(one))), one)
        return NOT_SPECIAL

    return constant_values.to_value(candidate, special)


def plain_function(function: Any) -> Any:  # noqa: ANN401
    """Returns the author's function inside wrappers of jax or ``functools``; any other object unchanged."""
    return reached_code.plain_function(function, _Reached.libraries)


class _Reached(ReachedObjects):
    """Reached objects. jax's own functions count by name only, as its version is part of the compiler's identity."""

    libraries = ("jax", "jaxlib", "numpy", "ml_dtypes", *ReachedObjects.libraries)

    def special(self, value: Any) -> Value | NotSpecial:  # noqa: ANN401
        return dtype_of(value) or NOT_SPECIAL
