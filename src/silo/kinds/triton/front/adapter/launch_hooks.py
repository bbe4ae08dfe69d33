"""Triton's own hooks around launches (``triton.knobs.runtime``), which Proton and other profilers add to.

Triton keeps the hooks of a chain in a list, ``HookChain.calls`` (3.4 to 3.9). The list is replaced by a list that
reports its changes, so that a launch of Silo's costs nothing while the chains are empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = ["LAUNCH_HOOKS", "enter_launch", "follow_launch_hooks", "stages_are_inspected"]

LAUNCH_HOOKS = ("launch_enter_hook", "launch_exit_hook")


class _Calls(list[Any]):
    """The hooks of one chain; calls ``changed`` after every change."""

    changed: Callable[[], None]


def _reporting(name: str) -> Callable[..., Any]:
    plain = getattr(list, name)

    def method(self: _Calls, *arguments: Any) -> Any:  # noqa: ANN401
        result = plain(self, *arguments)
        self.changed()
        return result

    return method


for _name in ["append", "extend", "insert", "remove", "pop", "clear", "__setitem__", "__delitem__", "__iadd__"]:
    setattr(_Calls, _name, _reporting(_name))


def follow_launch_hooks(switch: Callable[[bool], None]) -> None:
    """Call ``switch`` with whether a chain has a hook: now, and after each change of one. Imports nothing."""
    knobs: Any = sys.modules.get("triton.knobs")
    if knobs is None:
        return

    def changed() -> None:
        switch(any(getattr(_chain(knobs, name), "calls", None) for name in LAUNCH_HOOKS))

    for name in LAUNCH_HOOKS:
        chain = _chain(knobs, name)
        calls = getattr(chain, "calls", None)
        if isinstance(calls, list) and not isinstance(calls, _Calls):
            chain.calls = calls = _Calls(cast("list[Any]", calls))
        if isinstance(calls, _Calls):
            calls.changed = changed
    changed()


def _chain(knobs: Any, name: str) -> Any:  # noqa: ANN401
    return getattr(knobs.runtime, name, None)


def enter_launch(
    function: Any,  # noqa: ANN401  # Triton's JITFunction
    grid: tuple[int, int, int],
    stream: int,
    arguments: Mapping[str, object],
    metadata: Callable[[], Any],
) -> Callable[[], object]:
    """Call the enter hooks with the lazy metadata that Triton gives them; the function returned calls the exit hooks.

    The metadata has the kernel's ``name``, its ``stream``, and the values of the kernel's own ``launch_metadata``, if
    it has one. ``function`` is None: a launch of Silo's lacks a handle of Triton's.
    """
    knobs: Any = module("triton.knobs")
    found = module("triton.compiler.compiler").LazyDict(
        {"name": function.fn.__name__, "function": None, "stream": stream}
    )
    own = getattr(function, "launch_metadata", None)
    if own is not None:
        values = {name: arguments.get(name) for name in function.arg_names}
        found.add(lambda: own(grid, metadata(), values), ())
    _call(knobs, "launch_enter_hook", found)
    return lambda: _call(knobs, "launch_exit_hook", found)


def _call(knobs: Any, name: str, found: Any) -> None:  # noqa: ANN401
    if (chain := _chain(knobs, name)) is not None:
        chain(found)


def stages_are_inspected(knobs: Any) -> bool:  # noqa: ANN401  # the module
    """Whether a hook of the program decides about the stages of compiles."""
    return getattr(knobs.runtime, "add_stages_inspection_hook", None) is not None
