"""Copies and fills of :class:`silo.Buffer` while a plan is recorded: launches of two kernels in the buffer's memory."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.traced import cdiv
from silo.core.values import dtype_named
from silo.errors import ArgumentError
from silo.launch import native
from silo.launch.arguments import SeenCall
from silo.launch.runtime import Launcher, make_launcher

__all__ = ["BLOCK_BYTES", "copy", "fill", "kernel_ptx"]

_THREADS = 256
BLOCK_BYTES = 16 * _THREADS
"""The bytes that a block of the GPU kernels copies or fills; each thread handles 16."""


def copy(to: Any, data: object, stream: int = 0, at: int = -1) -> None:  # noqa: ANN401  # a Buffer or its stand-in
    """Does ``to.copy_from(data)`` by launching a kernel.

    ``data`` must be another Buffer of the same size in the same memory.

    Raises:
        ArgumentError: ``data`` is not a Buffer, its size or memory differs, or only a part is to be copied (``at``).
    """
    real = data.stands_for if isinstance(data, native.StandIn) else data
    if not isinstance(real, native.HostBuffer | native.GpuBuffer) or at != -1:
        raise ArgumentError(
            "a plan records copies of a whole Buffer to another: of bytes, and of parts, it would keep what was there"
            " when it was recorded"
        )
    if (memory := _memory_and_device(to)) != _memory_and_device(data):
        raise ArgumentError("a plan records copies within host memory and within one GPU's, not from one to the other")
    size = _bytes(to)
    if size != _bytes(data):
        raise ArgumentError("a Buffer is copied from one of as many bytes")
    _launch("copy", memory, stream, to, data, size)


def fill(to: Any, byte: int, stream: int = 0) -> None:  # noqa: ANN401  # as above
    """Does ``to.fill(byte)`` by launching a kernel.

    Raises:
        ArgumentError: kernels cannot be launched in the Buffer's memory.
    """
    size = _bytes(to)
    _launch("fill", _memory_and_device(to), stream, to, byte, size)


def _launch(label: str, where: tuple[str, int], stream: int, to: Any, source: object, size: Any) -> None:  # noqa: ANN401
    on = {"stream": stream} if stream and where[0] != "cpu" else {}
    _launcher(label)[_grid(where, size)](to, source, size, **on)


def _memory_and_device(buffer: Any) -> tuple[str, int]:  # noqa: ANN401  # a Buffer or its stand-in
    real: Any = buffer.stands_for if isinstance(buffer, native.StandIn) else buffer
    if isinstance(real, native.HostBuffer):
        return ("cpu", 0)
    kind, _, index = real.device.partition(":")
    if kind != "cuda":
        raise ArgumentError(f"a plan records copies and fills in host memory and on NVIDIA's GPUs, not on {kind}")
    return (kind, int(index))


def _grid(where: tuple[str, int], size: Any) -> tuple[Any]:  # noqa: ANN401  # an int, or one with its expression
    if where[0] == "cpu":
        return (1,)
    return (cast("Any", cdiv(size, BLOCK_BYTES)),)


def _bytes(buffer: Any) -> Any:  # noqa: ANN401  # an int, or one with its expression
    if not isinstance(buffer, native.StandIn):
        return buffer.nbytes
    real: Any = buffer.stands_for
    stand_in: Any = buffer
    return stand_in.numel() * dtype_named(real.dtype).itemsize


@cache
def _launcher(label: str) -> Launcher:
    first = Parameter("to", ParameterKind.POINTER, effect=Effect.WRITE, specialize=False)
    second = (
        Parameter("data", ParameterKind.POINTER, effect=Effect.READ, specialize=False)
        if label == "copy"
        else Parameter("byte", ParameterKind.INTEGER, dtype_named("int32"), specialize=False)
    )
    size = Parameter("bytes", ParameterKind.INTEGER, dtype_named("int64"), specialize=False)
    layout = ((0, "ptr", True), (1, "ptr" if label == "copy" else "i32", False), (2, "i64", False))
    effects = {"to": "write", "data": "read"} if label == "copy" else {"to": "write"}

    def on_miss(call: SeenCall) -> native.Binding:
        return native.Binding(
            _load(label, "cpu" if call.on_host else "cuda", call.device[1]), layout, {}, effects=effects
        )

    return make_launcher(f"Buffer.{label}", Signature((first, second, size)), on_miss=on_miss)


@cache
def _load(label: str, kind: str, index: int) -> native.LoadedKernel:
    if kind == "cpu":
        address = native.copy_kernels()[0 if label == "copy" else 1]
        return native.LoadedKernel(native.CpuModule(address=address), label, f"Buffer.{label}")
    module = native.GpuModule(kind, index, kernel_ptx(label).encode())
    return native.LoadedKernel(module, f"silo_buffer_{label}", f"Buffer.{label}", block=(_THREADS, 1, 1))


def kernel_ptx(label: str) -> str:
    """Returns the PTX of the ``copy`` or the ``fill`` kernel for NVIDIA's GPUs.

    A thread moves 16 bytes at once if the addresses are aligned and at least 16 bytes are left.
    """
    second, begin, load, load_byte = _COPY if label == "copy" else _FILL
    return _TEXT.format(what=label, second=second, begin=begin, load=load, load_byte=load_byte, block_bytes=BLOCK_BYTES)


_COPY = (
    ".param .u64 data",
    "ld.param.u64 %y, [data]; cvta.to.global.u64 %y, %y; add.u64 %y, %y, %o; or.b64 %w, %x, %y;",
    "ld.global.v4.u32 {%a, %b, %c, %d}, [%y];",
    "ld.global.u8 %a, [%y];",
)
_FILL = (
    ".param .u32 byte",
    """\
ld.param.u32 %a, [byte]; and.b32 %a, %a, 255; mul.lo.u32 %a, %a, 0x01010101;
mov.u32 %b, %a; mov.u32 %c, %a; mov.u32 %d, %a; mov.u64 %y, %x; mov.u64 %w, %x;""",
    "",
    "",
)
_TEXT = """\
.version 7.0
.target sm_70
.address_size 64
.visible .entry silo_buffer_{what}(.param .u64 to, {second}, .param .u64 bytes)
{{
.reg .pred %p, %q; .reg .b32 %t, %a, %b, %c, %d; .reg .b64 %n, %o, %w, %x, %y, %z;
ld.param.u64 %n, [bytes];
mov.u32 %t, %ctaid.x; mul.wide.u32 %o, %t, {block_bytes};
mov.u32 %t, %tid.x; mul.wide.u32 %x, %t, 16; add.u64 %o, %o, %x;
setp.ge.u64 %p, %o, %n;
@%p ret;
ld.param.u64 %x, [to]; cvta.to.global.u64 %x, %x; add.u64 %x, %x, %o;
{begin}
and.b64 %w, %w, 15; setp.ne.u64 %p, %w, 0;
sub.u64 %z, %n, %o; setp.lt.u64 %q, %z, 16;
or.pred %p, %p, %q;
@%p bra SLOW;
{load}
st.global.v4.u32 [%x], {{%a, %b, %c, %d}};
ret;
SLOW:
min.u64 %z, %z, 16;
NEXT:
{load_byte}
st.global.u8 [%x], %a;
add.u64 %x, %x, 1; add.u64 %y, %y, 1; sub.u64 %z, %z, 1;
setp.ne.u64 %p, %z, 0;
@%p bra NEXT;
ret;
}}
"""
