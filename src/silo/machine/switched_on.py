"""Handles of features that a program has switched on, and may switch off again."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

__all__ = ["SwitchedOn"]


class SwitchedOn:
    """A feature that is on until :meth:`stop`, or the block's end; ``undo`` is None if it was never switched on."""

    def __init__(self, undo: Callable[[], None] | None) -> None:
        self._undo = undo

    def stop(self) -> None:
        """Switches it off, once; it ends with the last handle of it."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Calls :meth:`stop`."""
        self.stop()

    def __bool__(self) -> bool:
        """Whether it is on."""
        return self._undo is not None
