"""Checks the launches on a GPU that Triton makes itself: the first launch of a kernel for each guard code.

Silo's launch hooks do not see these launches, so the check is called here, before Triton launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from silo.kinds.triton.front import adapter
from silo.launch.arguments import SeenCall
from silo.launch.flight import launch_check
from silo.launch.hooks import LaunchEvent

__all__ = ["check_first"]


def check_first(name: str, call: SeenCall, own_way: Callable[[], object]) -> None:
    """Compiles the kernel without launching it, and checks the launch that will follow. Raises CheckError.

    On the CPU, Triton's own launch goes through a launcher of Silo, which runs the check.

    Args:
        name: the kernel's name.
        call: the call.
        own_way: a ``functools.partial`` of Triton's ``run`` with the arguments and the grid.
    """
    check = launch_check()
    if check is None or adapter.active_target().backend == "cpu" or not isinstance(own_way, partial):
        return
    own_call = cast("partial[Any]", own_way)
    compiled = own_call.func(*own_call.args, **{**own_call.keywords, "warmup": True})
    if compiled is None:
        return
    grid: Any = own_call.keywords.get("grid")
    values: Mapping[str, object] = {**call.values, **dict(call.options)}
    extents = grid(dict(values)) if callable(grid) else grid
    sizes = (*(int(extent) for extent in cast("tuple[int, ...]", extents)), 1, 1)[:3]
    kind = str(adapter.active_target().backend)
    event = LaunchEvent(
        name, values, {}, cast("tuple[int, int, int]", sizes), 0, f"{kind}:{adapter.active_device()}", {}, compiled
    )
    check(event)
