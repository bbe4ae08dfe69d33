"""The allocator of scratch memory that a program gave Triton."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["given_allocator"]


def given_allocator() -> Any:  # noqa: ANN401  # a callable of Triton's protocol, or None
    """The one that ``triton.set_allocator`` was given in this context; None where it was given none."""
    module: Any = sys.modules.get("triton.runtime._allocation")
    held = getattr(module, "_allocator", None)
    if held is None:
        return None
    allocator = held.get() if hasattr(held, "get") else held  # a ContextVar from Triton 3.5 on
    return None if type(allocator).__name__ == "NullAllocator" else allocator
