"""Methods that call each other for the values that a value is made of, in chains longer than Python's stack.

A call that is nested too deep ends all calls round it. It is done first, then the calls around it again, from the
outermost: they remember their earlier results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from silo.kinds.triton.cpu.lower.index import Index
from silo.kinds.triton.front.ssa import Value

__all__ = ["Descent"]

_DEEPEST = 48  # calls in calls; each takes some five frames of Python's stack
_Find = Callable[[Value, Index], Any]
_Found = TypeVar("_Found")


class _DeepError(Exception):
    """A call that must be made before those round it."""

    def __init__(self, find: _Find, value: Value, index: Index) -> None:
        super().__init__(value.name)
        self.call = (find, value, index)


class Descent:
    """The calls that run at the moment, counted."""

    def __init__(self) -> None:
        self._depth = 0

    def call(self, find: Callable[[Value, Index], _Found], value: Value, index: Index) -> _Found:
        """What ``find`` returns for ``value`` at ``index``.

        ``find`` remembers its result where callers look before they call here; it may be begun several times.
        """
        if self._depth == 0:
            return self._call_from_outside(find, value, index)
        if self._depth >= _DEEPEST:
            raise _DeepError(find, value, index)
        self._depth += 1
        try:
            return find(value, index)
        finally:
            self._depth -= 1

    def _call_from_outside(self, find: Callable[[Value, Index], _Found], value: Value, index: Index) -> _Found:
        pending: list[tuple[_Find, Value, Index]] = []
        while True:
            current = pending[-1] if pending else (find, value, index)
            self._depth = 1
            try:
                found = current[0](*current[1:])
            except _DeepError as deep:
                pending.append(deep.call)
                continue
            finally:
                self._depth = 0
            if not pending:
                return found
            pending.pop()
