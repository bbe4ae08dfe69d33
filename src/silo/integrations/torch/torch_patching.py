"""A method or function of torch that Silo replaces: once in a process, and only in the form that Silo knows."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected

__all__ = ["Seam"]


class Seam:
    """Where Silo takes part in torch: a method of a class or a function of a module, and what is told of it.

    Args:
        path: the class and the method, such as ``"CachingAutotuner.save_cpu_kernel"``, or a function's name.
        parameters: the names of the method's parameters; with others, torch keeps its own.
        unused: why Silo takes no part as long as torch did not load the module.
        connected: what Silo does there.
        changed: what is different in a torch with another form of the method, and the cure; said after its version.
        level: of :mod:`logging`, for ``changed``.
    """

    def __init__(
        self, path: str, parameters: Sequence[str], *, unused: str, connected: str, changed: str, level: int
    ) -> None:
        self._owner, _, self._method = path.rpartition(".")
        self._parameters = list(parameters)
        self._connected = connected
        self._changed = changed
        self._level = level
        self.state: Decision = Rejected(unused)

    def connect(self, module: Any, replacing: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:  # noqa: ANN401
        """Put ``replacing(method)`` in the place of the method, unless it is there already; else say why not."""
        owner: Any = getattr(module, self._owner, None) if self._owner else module
        found: Any = getattr(owner, self._method, None)
        if getattr(found, "of_silo", False):
            return
        if found is None or list(inspect.signature(found).parameters) != self._parameters:
            torch: Any = import_module("torch")
            self.state = Rejected(f"torch {torch.__version__} {self._changed}")
            logging.getLogger("silo").log(self._level, "%s", self.state.reason)
            return
        replaced: Any = replacing(found)
        replaced.of_silo = True  # how it is known the next time
        setattr(owner, self._method, replaced)
        self.state = Accepted(self._connected)
