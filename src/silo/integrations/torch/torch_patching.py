"""A method or function of torch that Silo replaces: once per process, and only if it has the expected parameters."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected

__all__ = ["HookPoint"]


class HookPoint:
    """A place where Silo replaces a method of a class, or a function of a module, in torch.

    Args:
        path: the class and the method, such as ``"CachingAutotuner.save_cpu_kernel"``, or a function's name.
        parameters: the names of the method's parameters; a method with other parameters is not replaced.
        unused: the reason in the attribute ``state`` until torch loads the module.
        connected: the reason in the attribute ``state`` after the replacement.
        changed: for a torch with other parameters: the difference and the remedy, logged after torch's version.
        level: the :mod:`logging` level for ``changed``.
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
        """Replaces the method by ``replacing(method)``, once. If its parameters differ, only logs the reason."""
        owner: Any = getattr(module, self._owner, None) if self._owner else module
        plain: Any = getattr(owner, self._method, None)
        if getattr(plain, "of_silo", False):
            return
        if plain is None or list(inspect.signature(plain).parameters) != self._parameters:
            torch: Any = import_module("torch")
            self.state = Rejected(f"torch {torch.__version__} {self._changed}")
            logging.getLogger("silo").log(self._level, "%s", self.state.reason)
            return
        replaced: Any = replacing(plain)
        replaced.of_silo = True  # marks the replacement, so that connect() does not replace it again
        setattr(owner, self._method, replaced)
        self.state = Accepted(self._connected)
