"""Hooks that a library calls around launches of its own see launches of ``silo.kernel`` as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from silo.forks import Mutex
from silo.sources.source_kind import HasLaunchHooks

if TYPE_CHECKING:
    from silo.calls.resolver import Resolved
    from silo.launch.hooks import LaunchEvent

__all__ = ["show_launches"]

_shown: dict[int, _Shown] = {}  # by the kind's id: kinds are objects of the process


def show_launches(kind: HasLaunchHooks) -> None:
    """Let the hooks of the kind's library see launches of its kernels, from now on, while the library has any."""
    shown = _shown.setdefault(id(kind), _Shown(kind))
    kind.follow_launch_hooks(shown.switch)


class _Shown:
    """Whether the launches of one kind's kernels are shown to its library, and the hook that shows them."""

    def __init__(self, kind: HasLaunchHooks) -> None:
        self._kind = kind
        self._lock = Mutex()
        self._remove: Callable[[], None] | None = None

    def switch(self, on: bool) -> None:  # noqa: FBT001  # the protocol's
        """Add the hook when the library gets its first hook, remove it after its last."""
        if on is (self._remove is not None):
            return
        from silo.launch.hooks import on_launch  # noqa: PLC0415  # few programs have hooks

        with self._lock:
            if on and self._remove is None:
                self._remove = on_launch(self._enter)
            elif not on and self._remove is not None:
                self._remove()
                self._remove = None

    def _enter(self, event: LaunchEvent) -> Callable[[], object] | None:
        from silo.calls.resolver import Resolved  # noqa: PLC0415  # loaded by the first call
        from silo.sources.kinds import kind_named  # noqa: PLC0415  # as above
        from silo.sources.seen_launch import SeenLaunch  # noqa: PLC0415  # few programs have hooks

        found = event.tag
        if not isinstance(found, Resolved) or id(kind_named(found.kernel.source.kind)) != id(self._kind):
            return None
        arguments = {**event.config, **event.arguments}
        launch = SeenLaunch(found.kernel.source, arguments, event.grid, event.stream, lambda: _metadata(found))
        return self._kind.enter_launch(launch)


def _metadata(found: Resolved) -> object:
    from silo.building.compiled_calls import code_metadata  # noqa: PLC0415  # few hooks look at it

    return cast("object", code_metadata(found.artifact))
