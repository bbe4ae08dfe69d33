"""Calls of Helion's host functions, noted and not launched: what a bundle is built from, with no GPU at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from silo.integrations.helion.launch_call import Axes, axes, check_options, plain_arguments

__all__ = ["CallNotes", "NotedCall"]


@dataclass(frozen=True)
class NotedCall:
    """One call of the launcher: the kernel, and what it was called with."""

    kernel: object
    grid: Axes
    block: Axes
    arguments: tuple[object, ...]

    def silo_kernel(self, expected: Mapping[str, Callable[..., object]] | None = None, **tolerances: float) -> Any:  # noqa: ANN401
        """The kernel for ``silo build``."""
        raise NotImplementedError


class CallNotes:
    """A launcher that launches nothing: ``host_function(x, y, _launcher=notes)`` adds to ``notes.calls``."""

    def __init__(self) -> None:
        self.calls: list[NotedCall] = []

    def __call__(
        self,
        kernel: object,
        grid: tuple[int, ...],
        *args: object,
        block: tuple[int, ...] = (256, 1, 1),
        cute_compile_options: str | None = None,
        **options: object,
    ) -> None:
        """Note a launch. Refuses what :func:`default_cute_launcher` refuses."""
        check_options(kernel, cute_compile_options, options)
        self.calls.append(NotedCall(kernel, axes("grid", grid), axes("block", block), plain_arguments(kernel, args)))
