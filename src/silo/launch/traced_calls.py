"""Calls of kernels with arrays without memory, because a library traces them: the tracer that serves each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["serve_traced", "set_tracer"]

# The kernel, its arguments by place, options, and the grid or None; whether the call was served.
Tracer = Callable[[Any, tuple[object, ...], dict[str, object], object], bool]

_tracers: list[Tracer] = []


def set_tracer(tracer: Tracer) -> None:
    """Ask ``tracer`` about every call with an argument that cannot be read, before the error is raised."""
    _tracers[:] = [tracer]


def serve_traced(kernel: Any, arguments: tuple[object, ...], options: dict[str, object], grid: object) -> bool:  # noqa: ANN401
    """Whether a tracer served the call of a kernel of this process; raises the tracer's errors."""
    return any(tracer(kernel, arguments, options, grid) for tracer in _tracers)
