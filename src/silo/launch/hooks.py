"""Callbacks around every launch of this process. Without hooks a launch costs nothing more."""

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
    effect. ``tag`` is the object that the kernel's owner put into the binding; it is for Silo's own hooks. A replay of
    a plan is one launch: ``parts`` has its kernels in order, with ``torch.NAME`` for work of torch that a plan
    captured, the grid their number; it is empty for a launch of one kernel.
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
    """Called right before a launch; its return value, unless None, is called right after the launch."""

    def __call__(self, event: LaunchEvent, /) -> Callable[[], object] | None:
        """May raise: then nothing is launched and the caller gets the exception."""
        ...


_EFFECTS = {effect.value: effect for effect in Effect}  # several times as fast as Effect(value)

_lock = Mutex()
_hooks: tuple[LaunchHook, ...] = ()
_of_each: tuple[LaunchHook, ...] = ()  # hooks that get the launches of a plan one by one
_suspended: Counter[int] = Counter()  # how often, by thread; a child made by fork has one thread


def on_launch(hook: LaunchHook, *, each: bool = False) -> Callable[[], None]:
    """Call ``hook`` before every launch from now on; the returned function removes it.

    Hooks run in the order they were added, the functions that they return in the opposite order. A hook must not keep
    arrays longer than it needs them. Kernels launched inside a captured graph's replay are not seen, nor are launches
    that tuning makes to check and to measure. A replay of a plan is one launch (:attr:`LaunchEvent.parts`), unless some
    hook has ``each``: then plans run their functions, launch by launch, as long as it is there. A plan of a block
    cannot, and raises ``ArgumentError``.

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
            _hooks = tuple(one for one in _hooks if one is not hook)
            _of_each = tuple(one for one in _of_each if one is not hook)
            _switch()

    return remove


def _switch() -> None:
    """Set whether the native module calls hooks; called with the lock held."""
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
    """No hook sees a launch until the block ends, in any thread: for measurements, which hooks would distort."""
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
    """Whether some hook sees the launches of a plan one by one."""
    return bool(_of_each) and not _suspended


@contextmanager
def launch_hook(hook: LaunchHook, *, each: bool = False) -> Generator[None]:
    """:func:`on_launch` until the block ends."""
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
    """A hook that puts each launch into an NVTX range named after the kernel, for Nsight Systems.

    Through the ``nvtx`` package, or torch if that is loaded.

    Raises:
        SettingsError: neither is there.
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
    """A hook that names each launch in torch's profiler, as ``silo::kernel``.

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
