"""Copies and fills of :class:`silo.Buffer` in host memory while a plan is recorded: launches of two native kernels."""

from __future__ import annotations

from functools import cache
from typing import Any

from silo.core.dtypes import dtype_named
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.errors import ArgumentError
from silo.launch import native
from silo.launch.runtime import Launcher, make_launcher

__all__ = ["copy", "fill"]


def copy(to: Any, data: object, stream_or_at: int = -1, at: int = -1) -> None:  # noqa: ANN401  # a Buffer or its stand-in
    """``to.copy_from(data)``: all bytes of another Buffer in host memory.

    Raises:
        ArgumentError: anything else is copied, or another number of bytes.
    """
    part = stream_or_at if stream_or_at > 0 else at
    real = data.stands_for if isinstance(data, native.StandIn) else data
    if not isinstance(real, native.HostBuffer) or part != -1:
        raise ArgumentError(
            "a plan records copies of a whole Buffer in host memory to another: of bytes, and of parts, it would keep"
            " what was there when it was recorded"
        )
    size = _bytes(to)
    if size != _bytes(data):
        raise ArgumentError("a Buffer is copied from one of as many bytes")
    _launcher("copy")[1](to, data, size)


def fill(to: Any, byte: int, stream: int = 0) -> None:  # noqa: ANN401  # as above
    """``to.fill(byte)``."""
    del stream
    _launcher("fill")[1](to, byte, _bytes(to))


def _bytes(buffer: Any) -> Any:  # noqa: ANN401  # an int, or one with its expression
    if not isinstance(buffer, native.StandIn):
        return buffer.nbytes
    real: Any = buffer.stands_for
    stand_in: Any = buffer
    return stand_in.numel() * dtype_named(real.dtype).itemsize


@cache
def _launcher(what: str) -> Launcher:
    address = native.copy_kernels()[0 if what == "copy" else 1]
    loaded = native.LoadedKernel(native.CpuModule(address=address), what, f"Buffer.{what}")
    first = Parameter("to", ParameterKind.POINTER, effect=Effect.WRITE, specialize=False)
    second = (
        Parameter("data", ParameterKind.POINTER, effect=Effect.READ, specialize=False)
        if what == "copy"
        else Parameter("byte", ParameterKind.INTEGER, dtype_named("int32"), specialize=False)
    )
    size = Parameter("bytes", ParameterKind.INTEGER, dtype_named("int64"), specialize=False)
    layout = ((0, "ptr", True), (1, "ptr" if what == "copy" else "i32", False), (2, "i64", False))
    effects = {"to": "write", "data": "read"} if what == "copy" else {"to": "write"}

    def on_miss(_: object) -> native.Binding:
        return native.Binding(loaded, layout, {}, effects=effects)

    return make_launcher(f"Buffer.{what}", Signature((first, second, size)), on_miss=on_miss, grid=1)
