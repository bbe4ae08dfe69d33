"""Constants as users write them, as values that can be part of a key."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final, cast

from silo.core.argument_facts import describe
from silo.core.dtypes import DType, dtype
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.values import FunctionValue, RecordValue, Value
from silo.core.variant import Variant
from silo.errors import SourceError

__all__ = ["NOT_SPECIAL", "NotSpecial", "constants_of", "dtype_value", "recall", "remember", "to_value"]


# ---- Constants as users write them, as values that can be part of a key ----


class NotSpecial:
    """The type of :data:`NOT_SPECIAL`."""


NOT_SPECIAL: Final = NotSpecial()
"""Returned by a kind of source for an object that does not belong to its library."""


def to_value(candidate: Any, special: Callable[[Any], Value | NotSpecial]) -> Value:  # noqa: ANN401
    """The value of a constant; ``special`` returns the value of a library's own object.

    >>> to_value([1, (2.5, None)], lambda candidate: NOT_SPECIAL)
    (1, (2.5, None))

    Raises:
        TypeError: the object lacks a canonical form.
    """
    if candidate is None or isinstance(candidate, bool | int | float | str):
        return _builtin(candidate)
    if isinstance(candidate, DType | FunctionValue | RecordValue):
        return candidate
    if isinstance(candidate, tuple | list):
        return tuple(to_value(item, special) for item in cast("list[object]", candidate))
    found = special(candidate)
    if not isinstance(found, NotSpecial):
        return found
    kind: type[object] = candidate.__class__
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return dtype_value(str(candidate).removeprefix("torch."))
    item = getattr(candidate, "item", None)
    if callable(item) and getattr(candidate, "ndim", None) == 0:  # a numpy scalar
        return to_value(item(), special)
    raise TypeError(f"a {kind.__name__} cannot be a constexpr value: {describe(candidate)}")


def constants_of(owner: object, signature: Signature, variant: Variant) -> dict[str, Value]:
    """The value of each constexpr of a variant: the call's, else the config's, else the default.

    Raises:
        SourceError: a constexpr has none of these; ``owner`` is named.
    """
    known = {**dict(variant.config.values), **variant.specialization.constant_values}
    found: dict[str, Value] = {}
    for one in signature.parameters:
        if one.kind is not ParameterKind.CONSTEXPR:
            continue
        if one.name in known:
            found[one.name] = known[one.name]
        elif not isinstance(one.default, NoDefault):
            found[one.name] = one.default
        else:
            raise SourceError(f"{owner}: the constant {one.name} has no value: pass it, or let the space set it")
    return found


def _builtin(candidate: float | str | None) -> Value:
    # An IntEnum or a subclass of str counts as its plain value.
    for kind in (bool, int, float, str):
        if isinstance(candidate, kind):
            return kind(candidate)
    return None


def dtype_value(name: str) -> DType:
    """The dtype with this name. Raises TypeError if it is unknown."""
    try:
        return dtype(name)
    except KeyError as error:
        raise TypeError(f"{name} cannot be a constexpr value: {error.args[0]}") from None


# ---- Functions passed as constexpr values ----


_functions: weakref.WeakValueDictionary[FunctionValue, object] = weakref.WeakValueDictionary()


def remember(value: FunctionValue, function: object) -> FunctionValue:
    """Keeps ``function`` findable under ``value`` for as long as it lives."""
    _functions[value] = function
    return value


def recall(value: FunctionValue) -> object:
    """The function of a value. Raises SourceError if this process never saw it."""
    function = _functions.get(value)
    if function is None:
        raise SourceError(
            f"the function {value.name} was passed as a constexpr but is not known in this process: "
            "import the module that defines it and call the kernel with it once"
        )
    return function
