"""Functions passed as constexpr values: a table from the name in a value to the function, for one process."""

from __future__ import annotations

import weakref

from silo.core.values import FunctionValue
from silo.errors import SourceError

__all__ = ["recall", "remember"]

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
