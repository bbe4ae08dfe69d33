"""Checks whether torch has the functions that Silo replaces, in the expected form, and replaces them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from silo.forks import Mutex
from silo.frozen import frozen

__all__ = ["HOOKS", "HookPoint", "HookStack", "Replacement", "fits"]

# Takes torch's function and returns its replacement.
Replacement: TypeAlias = Callable[[Any], Any]


@frozen
class HookPoint:
    """A function that is replaced: the class that holds it, its name, and the parameters that Silo relies on.

    ``holder`` is "" for a function of the module itself. The function of the installed torch may have further
    parameters after these.
    """

    holder: str
    name: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(filter(None, (self.holder, self.name)))


def fits(wanted: Sequence[str], function: Any) -> bool:  # noqa: ANN401
    """Returns whether a function's first parameters have these names.

    >>> fits(("number",), lambda number, base=10: number), fits(("number",), lambda: 0)
    (True, False)
    """
    try:
        plain = getattr(function, "__func__", function)  # the function inside of a class method
        return tuple(inspect.signature(plain).parameters)[: len(wanted)] == tuple(wanted)
    except (TypeError, ValueError):
        return False


@dataclass(eq=False, slots=True)
class _Place:
    """A replaced member of a class or module: torch's function, the replacements in order, the current member."""

    holder: Any
    name: str
    plain: Any
    present: Any
    makers: list[Replacement] = field(default_factory=list[Replacement])


class HookStack:
    """Replaces members of classes and modules. Several features may replace one member, and be turned off in any order.

    If the program itself replaces a member later, the program's function stays, and still calls the replacement that
    was there when the program put its own function there.

    >>> class Torch: size = staticmethod(lambda: 1)
    >>> plain, stack, one = vars(Torch)["size"], HookStack(), lambda plain: staticmethod(lambda: plain() + 1)
    >>> stack.put(Torch, "size", one); Torch.size()
    2
    >>> stack.take(Torch, "size", one); vars(Torch)["size"] is plain
    True
    """

    def __init__(self) -> None:
        self._lock = Mutex()
        self._replaced: dict[tuple[int, str], _Place] = {}

    def put(self, holder: Any, name: str, make: Replacement) -> None:  # noqa: ANN401
        """Replaces a member by ``make(member)``, where the member may already be a replacement."""
        with self._lock:
            key = (id(holder), name)
            patch = self._replaced.get(key)
            if patch is None:
                members = cast("dict[str, Any]", vars(holder))
                patch = self._replaced[key] = _Place(holder, name, members[name], members[name])
            patch.makers.append(make)
            self._renew(patch)

    def take(self, holder: Any, name: str, make: Replacement) -> None:  # noqa: ANN401
        """Removes the replacement of one :meth:`put`; the member's other replacements stay."""
        with self._lock:
            patch = self._replaced.get((id(holder), name))
            if patch is None or make not in patch.makers:
                return
            patch.makers.remove(make)
            self._renew(patch)
            if not patch.makers:
                del self._replaced[id(holder), name]

    @staticmethod
    def _renew(place: _Place) -> None:
        if cast("dict[str, Any]", vars(place.holder)).get(place.name) is not place.present:
            return  # the program has put its own function there; that probably calls Silo's, so it stays
        replacement = place.plain
        for make in place.makers:
            replacement = make(replacement)
        place.present = replacement
        setattr(place.holder, place.name, replacement)


HOOKS = HookStack()
"""The functions of Inductor that are replaced in this process."""
