"""Places that a source is read from and a program may change: globals, cells of closures, attributes, containers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

__all__ = ["Places", "places_hold"]

_CONTAINERS = (list, dict, set)


class Places:
    """The places met so far, each once, with the value at that time.

    Objects of a library (``is_library`` of a module's name) are identified by its version and left out.
    """

    def __init__(self, is_library: Callable[[str | None], bool]) -> None:
        self._is_library = is_library
        self._found: dict[tuple[int, str | None], tuple[object, str | None, object]] = {}
        self.attributes = False  # whether an attribute was met that holds a value, and not only a module or a function

    @property
    def listed(self) -> tuple[object, ...]:
        """(holder, name, value), flattened into one tuple; see :class:`silo.sources.kernel_source.ReadsPlaces`."""
        return tuple(part for place in self._found.values() for part in place)

    def add_name(self, function: Any, name: str) -> None:  # noqa: ANN401  # a Python function
        """Adds a name that is not local in a function: a variable of its closure or a global. Builtins are left out."""
        free = cast("tuple[str, ...]", function.__code__.co_freevars)
        cell = function.__closure__[free.index(name)] if name in free else None
        if cell is not None and hasattr(cell, "cell_contents"):  # not a variable without a value
            self._add(cell, "cell_contents", cell.cell_contents)
        elif name in function.__globals__:
            self._add(function.__globals__, name, function.__globals__[name])

    def add_attribute(self, holder: Any, name: str, value: object) -> None:  # noqa: ANN401
        """Adds an attribute of an object, unless each read returns a new object, as for methods."""
        if isinstance(holder, ModuleType) and self._is_library(holder.__name__):
            return
        if _is_box(value) or not (isinstance(value, ModuleType) or callable(value)):
            self.attributes = True
        if isinstance(holder, ModuleType) and vars(holder).get(name, _MISSING) is value:
            self._add(vars(holder), name, value)
        elif getattr(holder, name, _MISSING) is value:
            self._add(holder, name, value)

    def _add(self, holder: object, name: str, value: object) -> None:
        boxed = _is_box(value)
        if not boxed and self._is_of_library(value):
            return
        self._found[id(holder), name] = (holder, name, value)
        content = value
        if boxed:  # its content may be set
            box: Any = value
            members = cast("dict[str, object]", vars(box))
            content = box.value
            self._found[id(box), "value"] = (members if "value" in members else box, "value", content)
        if isinstance(content, _CONTAINERS):
            self._found[id(cast("object", content)), None] = (content, None, _copied(cast("object", content)))

    def _is_of_library(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is a library's module, function or class."""
        if isinstance(value, ModuleType):
            return self._is_library(value.__name__)
        return self._is_library(getattr(value, "__module__", None)) and callable(value)


def _is_box(value: object) -> bool:
    """Whether it is Triton's box of a constant."""
    return type(value).__name__ == "constexpr" and hasattr(value, "value")


def _copied(value: object) -> object:
    """A copy of nested containers; other values are shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list):
        return [_copied(item) for item in cast("list[object]", value)]
    return set(cast("set[object]", value)) if isinstance(value, set) else value


def places_hold(places: tuple[object, ...]) -> bool:
    """Whether each place still has its value, compared as the native launcher does."""
    for at in range(0, len(places), 3):
        holder, name, value = cast("tuple[Any, str | None, object]", places[at : at + 3])
        if name is None:
            if holder != value:
                return False
        elif isinstance(holder, dict):
            if cast("dict[str, object]", holder).get(name, _MISSING) is not value:
                return False
        elif getattr(holder, name, _MISSING) is not value:
            return False
    return True
