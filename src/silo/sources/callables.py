"""The callable object of kernels that only Python code calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from silo.sources.kernel_source import KernelSource

__all__ = ["PlainCallable", "plain_callable"]


class PlainCallable:
    """A kernel that users call as ``k(...)`` or ``k[grid](...)``, with its members as attributes."""

    def __init__(self, source: KernelSource, members: Mapping[str, object]) -> None:
        self._source = source
        self.__dict__.update(members)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._source.name

    def __repr__(self) -> str:
        return f"<silo kernel {self._source}>"


def plain_callable(source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> PlainCallable:
    """A kernel with its own class: ``__call__`` is looked up there, so there is no Python frame in between."""
    native = launcher()
    own: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": PlainCallable.__doc__,
        "__call__": native,
        "__getitem__": staticmethod(native.__getitem__),
    }
    return type("PlainCallable", (PlainCallable,), own)(source, members)
