"""Callbacks around every launch of this process. Without a hook, launches have no overhead."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from silo.core.signature import Effect
from silo.errors import ArgumentError, SettingsError
from silo.forks import Mutex, in_child
from silo.launch import native

__all__ = [
    "LaunchEvent",
    "LaunchHook",
    "launch_hook",
    "nvtx_ranges",
    "on_launch",
    "torch_annotations",
    "want_each_launch",
    "without_hooks",
]


@dataclass(frozen=True, slots=True)
class LaunchEvent:
    """One launch. ``arguments`` holds the caller's objects by name, ``stream`` the driver's handle (0: null stream).

    ``effects`` holds the kernel's effects through pointers and descriptors; a parameter without an entry may have any
    effect. ``tag`` is the object that the kernel's owner attached to the loaded code, for Silo's own hooks.

    A replay of a plan is one launch. Then ``parts`` has the names of its kernels in order, with ``torch.NAME`` for work
    of torch that the plan captured, and ``grid`` is ``(len(parts), 1, 1)``. ``parts`` is empty for a launch of one
    kernel.
    """

    kernel: str
    arguments: Mapping[str, object]
    config: Mapping[str, object]
    grid: tuple[int, int, int]
    stream: int
    device: str
    effects: Mapping[str, Effect]
    tag: object = field(default=None, repr=False, compare=False)
    parts: tuple[str, ...] = ()


class LaunchHook(Protocol):
    """A function that is called right before each launch.

    It returns None, or a function that is called right after the launch.
    """

    def __call__(self, event: LaunchEvent, /) -> Callable[[], object] | None:
        """Handles a launch before it happens. If this raises, nothing is launched and the caller gets the exception."""
        ...


_EFFECTS = {effect.value: effect for effect in Effect}  # a lookup is several times as fast as Effect(value)

_lock = Mutex()
_hooks: tuple[LaunchHook, ...] = ()
_of_each: tuple[LaunchHook, ...] = ()  # the hooks that get the launches of a plan one by one
# by thread id, the number of without_hooks() blocks that run; a forked child, which has one thread, keeps one entry
_suspended: Counter[int] = Counter()


def on_launch(hook: LaunchHook, *, each: bool = False) -> Callable[[], None]:
    """Calls ``hook`` before every launch from now on. Returns a function that removes the hook.

    Hooks run in the order in which they were added, and the functions that they return in the opposite order. A hook
    must not keep arrays longer than it needs them. Hooks do not see kernels that a replay of a captured graph launches,
    nor launches that tuning makes to check and to measure.

    A replay of a plan is one launch (:attr:`LaunchEvent.parts`). While a hook with ``each`` is registered, a plan is
    not replayed: its function is called instead, so that hooks see launch by launch. A plan of a block has no function
    and raises ``ArgumentError``.

    Raises:
        ArgumentError: ``hook`` cannot be called.
    """
    if not callable(hook):
        raise ArgumentError(f"silo.on_launch takes a function of an event, not {hook!r}")
    global _hooks, _of_each  # noqa: PLW0603  # replaced as a whole under the lock, read without it
    with _lock:
        _hooks = (*_hooks, hook)
        _of_each = (*_of_each, hook) if each else _of_each
        _switch()

    def remove() -> None:
        global _hooks, _of_each  # noqa: PLW0603
        with _lock:
            _hooks = tuple(other for other in _hooks if other is not hook)
            _of_each = tuple(other for other in _of_each if other is not hook)
            _switch()

    return remove


def _switch() -> None:
    """Enables or disables the calls of hooks in the native module. The caller holds the lock."""
    if _hooks and not _suspended:
        native.set_hooks(_enter, _exit, bool(_of_each))
    else:
        native.set_hooks(None, None)


def _survive() -> None:
    for thread in list(_suspended):
        if thread != threading.get_ident():
            del _suspended[thread]
    _switch()


in_child(_survive)


@contextmanager
def without_hooks() -> Generator[None]:
    """Disables all hooks, in every thread, until the block ends: they would distort measurements."""
    thread = threading.get_ident()
    with _lock:
        _suspended[thread] += 1
        _switch()
    try:
        yield
    finally:
        with _lock:
            _suspended[thread] -= 1
            if not _suspended[thread]:
                del _suspended[thread]
            _switch()


def want_each_launch() -> bool:
    """Returns whether a hook with ``each`` is registered and hooks are not disabled."""
    return bool(_of_each) and not _suspended


@contextmanager
def launch_hook(hook: LaunchHook, *, each: bool = False) -> Generator[None]:
    """Calls ``hook`` before every launch until the block ends; see :func:`on_launch`."""
    remove = on_launch(hook, each=each)
    try:
        yield
    finally:
        remove()


def _enter(
    kernel: str,
    arguments: dict[str, Any],
    config: dict[str, Any],
    grid: tuple[int, int, int],
    stream: int,
    device: tuple[str, int],
    effects: dict[str, str] | None,
    tag: object,
    parts: tuple[str, ...] = (),
) -> list[Callable[[], object]]:
    words = {name: _EFFECTS[effect] for name, effect in effects.items()} if effects else {}
    event = LaunchEvent(kernel, arguments, config, grid, stream, f"{device[0]}:{device[1]}", words, tag, parts)
    leave: list[Callable[[], object]] = []
    try:
        for hook in _hooks:
            if (after := hook(event)) is not None:
                leave.append(after)  # noqa: PERF401  # those that ran are left when a later one raises
    except BaseException:
        _exit(leave)
        raise
    return leave


def _exit(leave: list[Callable[[], object]]) -> None:
    for after in reversed(leave):
        after()


def nvtx_ranges() -> LaunchHook:
    """Returns a hook that puts each launch into an NVTX range named after the kernel, for Nsight Systems.

    Uses the ``nvtx`` package if it is installed, else torch if that is loaded.

    Raises:
        SettingsError: neither is available.
    """
    push, pop = _nvtx_functions()

    def hook(event: LaunchEvent) -> Callable[[], object]:
        push(event.kernel)
        return pop

    return hook


def _nvtx_functions() -> tuple[Callable[[str], object], Callable[[], object]]:
    try:
        import nvtx  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  # optional
    except ImportError:
        torch: Any = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            raise SettingsError(
                "NVTX ranges need the nvtx package (pip install nvtx) or torch with CUDA, imported before"
            ) from None
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    marks: Any = nvtx
    return marks.push_range, marks.pop_range


def torch_annotations() -> LaunchHook:
    """Returns a hook that names each launch ``silo::kernel`` in torch's profiler.

    Raises:
        SettingsError: torch is not loaded.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        raise SettingsError("annotations for torch's profiler need torch, imported before")

    def hook(event: LaunchEvent) -> Callable[[], object]:
        record = torch.profiler.record_function(f"silo::{event.kernel}")
        record.__enter__()
        return lambda: record.__exit__(None, None, None)

    return hook
