"""Allocates scratch memory for kernels, in stream order, with the allocator that manages the device's memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from silo.core.plugins import SOURCES, part_of, shipped_places
from silo.errors import LaunchError
from silo.forks import Mutex
from silo.launch import native
from silo.launch.native import torch_with_gpu

__all__ = ["Allocator", "allocate", "set_allocator"]

Allocator = Callable[[int, int, int, str], Any]
"""A function that is called with bytes, alignment in bytes, stream handle and device (``cuda:0``).

It returns an object with ``data_ptr()``, an ``address`` or ``__cuda_array_interface__``; Silo drops its reference as
soon as the launch is in the stream."""

# torch's caching allocator aligns addresses to this (kMinBlockSize in c10's CUDACachingAllocator).
_TORCH_ALIGNMENT = 512

_lock = Mutex()
_user: Allocator | None = None
# Silo's own buffers, used if no other allocator is set: for each stream (kind, index, handle), one buffer that grows. A
# launch that a graph captures gets a buffer of its own in _captured, which is never freed.
_pools: dict[tuple[str, int, int], native.GpuBuffer] = {}
_captured: list[native.GpuBuffer] = []


def set_allocator(allocator: Allocator | None) -> None:
    """Takes scratch memory from ``allocator`` from now on; None restores the default.

    The default is the first that is available: the allocator that the program set with ``triton.set_allocator``,
    torch's caching allocator, Silo's own buffers (one for each stream, which grows).
    """
    global _user  # noqa: PLW0603  # one a process
    _user = allocator


def allocate(size: int, alignment: int, kind: str, index: int, stream: int) -> tuple[object, int]:
    """Allocates ``size`` bytes and returns (owner, address). The native module calls this.

    The owner is released right after the launch. So an allocator must not pass the memory to another stream before the
    kernel has run; the allocators of torch and other frameworks guarantee this.
    """
    device = f"{kind}:{index}"
    owner: Any
    if _user is not None:
        owner = _user(size, alignment, stream, device)
    elif (of_language := _language_allocator()) is not None:
        owner = of_language(size, alignment, stream)
    elif (torch := torch_with_gpu(kind)) is not None:
        owner = _torch_memory(torch, size, alignment, index, stream)
    else:
        owner = _own_memory(size, kind, index, stream)
    return owner, _address(owner)


def _language_allocator() -> Any:  # noqa: ANN401  # takes bytes, alignment and stream; or None
    """Returns the allocator that the program set with ``triton.set_allocator``, or None."""
    for kind in shipped_places(SOURCES):
        if kind in sys.modules and (part := part_of(SOURCES, kind, "allocation")) is not None:
            allocator = part.given_allocator()
            if allocator is not None:
                return allocator
    return None


def _torch_memory(torch: Any, size: int, alignment: int, index: int, stream: int) -> Any:  # noqa: ANN401
    current = torch.cuda.current_stream(index)
    on_stream = (
        nullcontext()
        if current.cuda_stream == stream
        else torch.cuda.stream(torch.cuda.ExternalStream(stream, device=index))
    )
    spare = alignment if alignment > _TORCH_ALIGNMENT else 0
    with on_stream:
        memory = torch.empty(size + spare, dtype=torch.uint8, device=f"cuda:{index}")
    return memory[-memory.data_ptr() % alignment :] if spare else memory


def _own_memory(size: int, kind: str, index: int, stream: int) -> native.GpuBuffer:
    if native.gpu_capturing(kind, index, stream):
        buffer = native.GpuBuffer((size,), "uint8", kind, index)
        _captured.append(buffer)
        return buffer
    with _lock:
        buffer = _pools.get((kind, index, stream))
        if buffer is None or buffer.nbytes < size:
            # This frees the previous buffer, and the driver first waits for all work that may use it.
            buffer = _pools[kind, index, stream] = native.GpuBuffer((size,), "uint8", kind, index)
        return buffer


def _address(owner: Any) -> int:  # noqa: ANN401
    if hasattr(owner, "data_ptr"):
        return int(owner.data_ptr())
    if hasattr(owner, "address"):
        return int(owner.address)
    interface = getattr(owner, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    raise LaunchError(
        f"the allocator gave a {type(owner).__name__}; it gives an object with data_ptr(), address or "
        "__cuda_array_interface__"
    )


native.set_scratch_allocator(
    allocate
)  # replaces the default of silo.launch.runtime, which imports this module whenever a kernel needs scratch memory
