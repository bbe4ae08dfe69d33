"""One launch, as the hooks of the library that the kernel is written with see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from silo.sources.kernel_source import KernelSource

__all__ = ["SeenLaunch"]


@dataclass(frozen=True, slots=True)
class SeenLaunch:
    """A launch that is about to happen.

    ``arguments`` holds the caller's objects and the config's constexprs by the kernel's parameter names; ``stream`` is
    the driver's handle (0: the null stream, and every launch on a CPU). ``metadata`` makes the description of the
    compiled code (``num_warps``, ``num_ctas``, ``shared`` in bytes, ...), which few hooks read.
    """

    source: KernelSource
    arguments: Mapping[str, object]
    grid: tuple[int, int, int]
    stream: int
    metadata: Callable[[], Any]
