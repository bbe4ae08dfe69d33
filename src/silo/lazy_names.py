"""Package attributes that are imported from other modules at their first use (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: dict[str, object], modules: Mapping[str, str]) -> Callable[[str], object]:
    """Returns the ``__getattr__`` of a package whose names are defined in other modules.

    Args:
        package: the package's ``globals()``; each name is stored there after its first use.
        modules: maps each name to its ``module:name``.

    >>> package = {"__name__": "shapes"}
    >>> lazy_names(package, {"turn": "math:pi"})("turn") == package["turn"]
    True
    """

    def imported(name: str) -> object:
        place = modules.get(name)
        if place is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        module, _, there = place.partition(":")
        value = package[name] = getattr(import_module(module), there)
        return value

    return imported
