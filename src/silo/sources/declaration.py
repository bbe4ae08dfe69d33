"""A user's kernel object as a declaration: its source, and the space, key and hooks written beside it."""

from __future__ import annotations

from dataclasses import dataclass

from silo.core.config import Config
from silo.core.space import DeclaredSpace
from silo.sources.kernel_source import KernelSource

__all__ = ["Declaration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration that a source plug-in reads from an object. Arguments of ``silo.kernel`` take precedence.

    Attributes:
        source: the kernel.
        space: the configs worth trying, None if the object names none.
        key: the scalar arguments that tuning depends on.
        grid: the grid, as ``silo.kernel`` takes it.
        release_gil: see ``silo.kernel``.
        prunes: the source prunes the configs of ``space`` at each call (:class:`PrunesConfigs`).
        open_blocks: calls may leave block sizes out if no space is given: they are inferred from the code.
        zeroed: configs of ``space``, each with the arguments that a launch sets to zero first.
        refusals: why the object's own space cannot be used; an error unless ``silo.kernel`` is given another.
        remarks: parts of the object without effect, reported if its own space is used.
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
