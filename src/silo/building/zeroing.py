"""Launches of kernels whose configs set arguments to zero first, as a ``pre_hook`` of ``triton.Config`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from silo.core.argument_facts import describe
from silo.errors import ArgumentError, SourceError
from silo.launch.native import recording

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.building.loaded_kernels import HeuristicLauncher
    from silo.launch.runtime import Launcher

__all__ = ["ZeroingLauncher", "refuse_zeroing", "set_to_zero"]


class ZeroingLauncher:
    """Wraps a launcher, and sets the arguments that the call's config names to zero before each launch.

    If all configs name the same arguments, a call only pays for setting them. Otherwise the config of each call is
    looked up first, by a second pass through the guard.
    """

    def __init__(self, launcher: Launcher | HeuristicLauncher, native: Launcher, kernel: DeclaredKernel) -> None:
        self._launcher = launcher
        self._native = native
        self._kernel = kernel
        self._completed: Callable[..., dict[str, object]] | None = getattr(launcher, "complete", None)

    @property
    def native(self) -> Launcher:
        """The wrapped native launcher."""
        return self._native

    def complete(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The keyword arguments with the values of heuristics that run in Python."""
        return dict(kwargs) if self._completed is None else self._completed(args, kwargs)

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Sets the arguments to zero and launches with the declared grid."""
        named = self.complete(args, kwargs)
        self._set(args, named, {})
        self._launcher(*args, **named)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launch(*args: object, **kwargs: object) -> None:
            named = self.complete(args, kwargs)
            self._set(args, named, {"grid": grid})
            self._launcher[grid](*args, **named)

        return launch

    def _set(self, args: tuple[object, ...], kwargs: Mapping[str, object], grid: Mapping[str, object]) -> None:
        kernel = self._kernel
        if recording() is not None:
            raise ArgumentError(
                f"{kernel.name} has arguments set to zero before its launches, which a plan does not record: set them"
                " to zero by a kernel of its own, or end the plan there"
            )
        names = kernel.zeroed_always
        if names is None:
            names = kernel.zeroed_by(self._native.resolve(*args, **kwargs, **grid).config)
        set_to_zero(kernel, names, args, kwargs)


def set_to_zero(
    kernel: DeclaredKernel, names: tuple[str, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Sets these arguments of a call to zero, in the current stream of their library.

    Raises:
        ArgumentError: an argument cannot be filled, or the call names another stream.
    """
    given: dict[str, Any] = {**dict(zip(kernel.source.signature.names, args, strict=False)), **kwargs}
    if names and kwargs.get("stream") is not None:
        raise ArgumentError(
            f"{kernel.name}: its config sets {', '.join(names)} to zero in the library's current stream, and the call "
            "names a stream; make that stream the current one of the library instead"
        )
    for name in names:
        array = given.get(name)
        fill = getattr(array, "zero_", None)  # torch
        if callable(fill):
            fill()
        elif callable(fill := getattr(array, "fill", None)):  # numpy, cupy, silo.Buffer
            fill(0)
        else:
            raise ArgumentError(
                f"{kernel.name}: its config sets {name} to zero before each launch, and {describe(array)} cannot be "
                "filled"
            )


def refuse_zeroing(kernel: DeclaredKernel, user: str) -> None:
    """Raises SourceError if configs of the kernel set arguments to zero: ``user`` launches without doing so."""
    if kernel.zeroed:
        names = sorted({name for names in kernel.zeroed.values() for name in names})
        raise SourceError(
            f"{kernel.name} ({kernel.location}): the pre_hook of its configs sets {', '.join(names)} to zero before "
            f"each launch, and {user} runs no hook; zero it before the call and leave the hook out, or give "
            "silo.kernel a space="
        )
