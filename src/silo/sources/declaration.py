"""The declaration read from a user's kernel object, and the callable object made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from silo.core.config import Config
from silo.core.search_space import DeclaredSpace
from silo.sources.kernel_source import KernelSource

__all__ = ["Declaration", "PlainCallable", "plain_callable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration that a source plug-in reads from an object. Arguments of ``silo.kernel`` take precedence over it.

    Attributes:
        source: the kernel.
        space: the configs worth trying, None if the object names none.
        key: the scalar arguments that tuning depends on.
        grid: the grid, in the form that ``silo.kernel`` accepts.
        release_gil: see ``silo.kernel``.
        prunes: whether the source prunes the configs of ``space`` at each call (:class:`PrunesConfigs`).
        open_blocks: whether calls may omit block sizes if no space is given; the sizes are then inferred from the code.
        zeroed: configs of ``space``, each with the arguments that must be set to zero before its launch.
        refusals: reasons why the object's own space cannot be used; with any reason, making the kernel fails unless
            ``silo.kernel`` is given another space.
        remarks: parts of the object that have no effect; they are reported if the object's own space is used.
    """

    source: KernelSource
    space: DeclaredSpace | None = None
    key: tuple[str, ...] = ()
    grid: object = None
    release_gil: bool = True
    prunes: bool = False
    open_blocks: bool = False
    zeroed: tuple[tuple[Config, tuple[str, ...]], ...] = ()
    refusals: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class PlainCallable:
    """A kernel that users call as ``k(...)`` or ``k[grid](...)``. Functions such as ``warmup`` are its attributes."""

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
    """Returns a kernel object of a new class. Its ``__call__`` is the launcher, so a call adds no Python frame."""
    native = launcher()
    own: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": PlainCallable.__doc__,
        "__call__": native,
        "__getitem__": staticmethod(native.__getitem__),
    }
    return type("PlainCallable", (PlainCallable,), own)(source, members)
