"""Pickling of kernels by module and name, as Python pickles functions."""

from __future__ import annotations

import importlib
import sys
from functools import reduce
from typing import Any

from silo.errors import ArgumentError, SourceError

__all__ = ["kernel_named", "reference_to"]


def reference_to(kernel: Any) -> tuple[Any, tuple[str, str]]:  # noqa: ANN401  # a twin made by `wrap`
    """How to find the kernel again, for ``__reduce_ex__``: a function, and the module and name it is called with.

    Its own qualified name where that leads to it; else the name of a module's variable that holds it, for
    ``fast = silo.kernel(existing)`` has the name of the function within.

    Raises:
        ArgumentError: no module has it; a TypeError, as for all that cannot be pickled.
    """
    function = kernel.fn
    module, name = str(function.__module__), str(function.__qualname__)
    if _found(module, name) is kernel:
        return kernel_named, (module, name)
    own = [module] if module in sys.modules else []
    for place in (*own, *(place for place in tuple(sys.modules) if place != module)):
        for variable, value in tuple(getattr(sys.modules.get(place), "__dict__", {}).items()):
            if value is kernel:
                return kernel_named, (place, variable)
    where = "inside a function" if "<locals>" in name else "in no module's variable"
    raise ArgumentError(
        f"the kernel {module}.{name} is {where}, and pickles hold kernels by name, as they do functions: define it at "
        "the top of a module, or assign what silo.kernel gives to a variable there"
    )


def kernel_named(module: str, name: str) -> Any:  # noqa: ANN401
    """What :func:`reference_to` led to, in the process that reads a pickle.

    Raises:
        SourceError: the module cannot be imported there, or has no such kernel.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise SourceError(
            f"a pickled kernel is {module}.{name}, and {module} cannot be imported here: {error}; put its file where "
            "this process imports from"
        ) from error
    found = _found(module, name)
    if found is None:
        advice = "; put the kernel into a module that both processes import" if module == "__main__" else ""
        raise SourceError(f"a pickled kernel is {module}.{name}, and this process has no {name} in {module}{advice}")
    return found


def _found(module: str, name: str) -> Any:  # noqa: ANN401  # None: nothing
    try:
        return reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None
