"""Hooks of ``triton.knobs.runtime``, as profilers add them, around launches of ``silo.kernel``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton import knobs

import silo


def _about(grid: Any, kernel: Any, arguments: Any) -> dict[str, Any]:
    return {"bytes": arguments["n"] * 4 * arguments["BLOCK"], "warps": kernel.num_warps, "grid": tuple(grid)}


@silo.kernel
@triton.jit(launch_metadata=_about)
def fill(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 1.0, mask=i < n)


@pytest.fixture
def seen() -> Iterator[list[tuple[str, Any]]]:
    """What the hooks were given, in order; they are removed afterwards."""
    found: list[tuple[str, Any]] = []
    runtime: Any = knobs.runtime

    def enter(metadata: Any) -> None:
        found.append(("enter", metadata))

    def leave(metadata: Any) -> None:
        found.append(("exit", metadata))

    runtime.launch_enter_hook.add(enter)
    runtime.launch_exit_hook.add(leave)
    yield found
    runtime.launch_enter_hook.remove(enter)
    runtime.launch_exit_hook.remove(leave)


def test_hooks_of_triton_see_a_launch(seen: list[tuple[str, Any]]) -> None:
    # The kind of fault: a profiler of the kernel's own library misses launches, because another runtime makes them.
    out = np.zeros(100, "float32")
    fill[(2,)](out, 100, BLOCK=64, num_warps=8)
    assert (out == 1).all()
    assert [word for word, _ in seen] == ["enter", "exit"]
    assert seen[0][1] is seen[1][1]
    metadata = seen[0][1]
    assert metadata.data["name"] == "fill"
    assert metadata.get() == {
        "name": "fill",
        "function": None,
        "stream": 0,
        "bytes": 100 * 4 * 64,
        "warps": 8,
        "grid": (2, 1, 1),
    }


def test_hooks_that_are_gone_see_nothing() -> None:
    found: list[object] = []
    knobs.runtime.launch_enter_hook.add(found.append)
    fill[(1,)](np.zeros(4, "float32"), 4, BLOCK=4)
    knobs.runtime.launch_enter_hook.remove(found.append)
    fill[(1,)](np.zeros(4, "float32"), 4, BLOCK=4)
    assert len(found) == 1


def test_a_hook_that_raises_stops_the_launch() -> None:
    def refuse(_metadata: object) -> None:
        raise RuntimeError("not now")

    knobs.runtime.launch_enter_hook.add(refuse)
    out = np.zeros(4, "float32")
    try:
        with pytest.raises(RuntimeError, match="not now"):
            fill[(1,)](out, 4, BLOCK=4)
    finally:
        knobs.runtime.launch_enter_hook.remove(refuse)
    assert (out == 0).all()
