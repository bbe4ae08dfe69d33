"""Replaces Helion's launchers by Silo's, for every kernel that Helion generates afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from silo.errors import PackageError, UnsupportedError
from silo.integrations.helion.helion_kernels import default_cute_launcher
from silo.integrations.helion.metal_launcher import default_metal_launcher
from silo.integrations.helion.pallas_launcher import default_pallas_launcher
from silo.integrations.helion.triton_launcher import launcher
from silo.launch.native import cpu_threads

__all__ = ["LAUNCHERS", "install", "installed", "num_sm"]

# For each backend of Helion: the name that generated code imports from helion.runtime, and Silo's launcher.
LAUNCHERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "triton": ("default_launcher", launcher),
    "cute": ("default_cute_launcher", default_cute_launcher),
    "metal": ("default_metal_launcher", default_metal_launcher),
    "pallas": ("default_pallas_launcher", default_pallas_launcher),
}


def install(*backends: str) -> tuple[str, ...]:
    """Replaces Helion's launchers by Silo's, for the given backends or for all that Helion has. Returns their names.

    Generated code binds its launcher when it is imported, so kernels that were already called keep Helion's. With
    ``triton``, Helion's ``get_num_sm`` also works for CPUs (:func:`num_sm`); Helion's own raises AssertionError.

    Raises:
        PackageError: Helion is not installed.
        UnsupportedError: Silo or this version of Helion lacks a launcher for a named backend.
    """
    runtime = _runtime()
    chosen = _chosen(runtime, backends)
    for backend in chosen:
        name, ours = LAUNCHERS[backend]
        setattr(runtime, name, ours)
    own = runtime.get_num_sm
    if "triton" in chosen and not isinstance(own, _NumSM):
        runtime.get_num_sm = _NumSM(own)
    return chosen


class _NumSM:
    """A replacement of Helion's ``get_num_sm``: Helion's own function, but :func:`num_sm` for CPUs."""

    def __init__(self, original: Callable[..., int]) -> None:
        self.own = original

    def __call__(self, device: Any, *, reserved_sms: int = 0) -> int:  # noqa: ANN401  # a torch.device
        if device.type != "cpu":
            return self.own(device, reserved_sms=reserved_sms)
        try:
            # Helion's function accepts a CPU (and returns 1) if it interprets Pallas
            return self.own(device, reserved_sms=reserved_sms)
        except AssertionError:
            return num_sm(reserved_sms=reserved_sms)


def num_sm(*, reserved_sms: int = 0) -> int:
    """Returns the number of programs of a persistent kernel on the CPU: threads minus ``reserved_sms``, at least 1.

    >>> num_sm(reserved_sms=10_000)
    1
    """
    return max(cpu_threads() - max(reserved_sms, 0), 1)


@contextmanager
def installed(*backends: str) -> Generator[tuple[str, ...]]:
    """Applies :func:`install` within the block and restores Helion's launchers after it.

    Raises like :func:`install`.
    """
    runtime = _runtime()
    names = [LAUNCHERS[backend][0] for backend in _chosen(runtime, backends)] + ["get_num_sm"]
    before = [(name, getattr(runtime, name)) for name in names]
    try:
        yield install(*backends)
    finally:
        for name, value in before:
            setattr(runtime, name, value)


def _runtime() -> Any:  # noqa: ANN401  # a module
    try:
        return import_module("helion.runtime")
    except ImportError as error:
        raise PackageError("Helion, whose launchers are replaced, is not installed: pip install helion") from error


def _chosen(runtime: Any, backends: Sequence[str]) -> tuple[str, ...]:  # noqa: ANN401
    present = {backend: hasattr(runtime, name) for backend, (name, _) in LAUNCHERS.items()}
    for backend in backends:
        if not present.get(backend):
            why = "Silo has no launcher" if backend not in present else "this Helion has no launcher"
            available = ", ".join(name for name, is_there in present.items() if is_there)
            raise UnsupportedError(f"{why} for Helion's backend {backend!r}; there are {available}")
    return tuple(backends or (name for name, is_there in present.items() if is_there))
