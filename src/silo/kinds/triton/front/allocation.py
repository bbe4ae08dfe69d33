"""The allocator of scratch memory that a program passed to ``triton.set_allocator``."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["allocate_scratch", "given_allocator"]


def given_allocator() -> Any:  # noqa: ANN401  # a callable of Triton's protocol, or None
    """The allocator that the program set by ``triton.set_allocator`` in this context; None if it set none."""
    module: Any = sys.modules.get("triton.runtime._allocation")
    registered = getattr(module, "_allocator", None)
    if registered is None:
        return None
    allocator = registered.get() if hasattr(registered, "get") else registered  # a ContextVar since Triton 3.5
    return None if type(allocator).__name__ == "NullAllocator" else allocator


def allocate_scratch(size: int, alignment: int, kind: str, index: int, stream: int) -> tuple[object, int]:
    """Allocates scratch memory for a launch of an unchanged program, as Triton does: the buffer and its address.

    The program's allocator for this context is called at each launch. The caller holds the buffer until it has
    launched.

    Raises:
        RuntimeError: ``triton.set_allocator`` was not called in this context; this is Triton's own error.
    """
    del kind, index
    registered: Any = sys.modules["triton.runtime._allocation"]._allocator  # noqa: SLF001
    allocator = registered.get() if hasattr(registered, "get") else registered  # a ContextVar since Triton 3.5
    buffer = allocator(size, alignment, stream)
    if buffer is None or isinstance(buffer, int):
        return buffer, buffer or 0
    return buffer, int(buffer.data_ptr())
