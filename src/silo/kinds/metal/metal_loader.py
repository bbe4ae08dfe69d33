"""Launches Metal kernels on a Mac: through torch (``torch.mps.compile_shader``), or through MLX."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from silo.core.dtypes import DTypeKind
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LibraryCall
from silo.errors import ArgumentError, DeviceError
from silo.kinds.metal.mlx_call import MlxCall, mlx_body
from silo.kinds.metal.shader_compiler import ShaderBuffer, ShaderLayout

__all__ = ["ShaderCall", "load_msl", "torch_call"]

# torch's casts for numbers narrower than its own; an unsigned number is passed as the signed number of the same bits.
_CASTS = {
    "bool": "uint8",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "uint16": "int16",
    "int32": "int32",
    "uint32": "int32",
    "float16": "fp16",
    "bfloat16": "bf16",
}


def load_msl(device: Device, launch: LaunchInfo, blob: bytes, name: str) -> LibraryCall:
    """Loads an ``msl`` and returns its call: a text is compiled once for each library whose arrays a call passes.

    If torch is imported, it compiles the text now, and raises if Metal refuses it; MLX compiles at the first call.

    Raises:
        DeviceError: no library is installed, torch is too old for ``compile_shader``, or Metal refuses the text.
    """
    del device  # a Mac has one
    try:
        plan = ShaderLayout.from_text(launch.loader)
        text = blob.decode()
    except ValueError as error:
        raise DeviceError(f"{name}: what its launch info says of launches is damaged: {error}") from error
    call = ShaderCall(plan, text, name)
    if "torch" in sys.modules or "mlx.core" not in sys.modules:
        call.through("torch")
    return call


class ShaderCall:
    """Implements :class:`silo.core.protocols.LibraryCall`: through torch, or through MLX for its arrays."""

    def __init__(self, plan: ShaderLayout, text: str, name: str) -> None:
        self._plan, self._text, self._name = plan, text, name
        self._calls: dict[str, LibraryCall] = {}
        self._arrays = tuple(one.parameter for one in plan.buffers if one.dtype is None)

    def through(self, library: str) -> LibraryCall:
        """Returns the function that launches with arrays of a library. Raises DeviceError."""
        found = self._calls.get(library)
        if found is None:
            made = _with_mlx if library == "mlx" else _with_torch
            found = self._calls[library] = made(self._plan, self._text, self._name)
        return found

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Launches the kernel. Raises ArgumentError: a stream was given, or arrays of both libraries."""
        if stream is not None:
            raise ArgumentError(f"{self._name}: Metal launches go to the library's own stream; leave stream= out")
        libraries = {_library(arguments[place]) for place in self._arrays} or {"torch"}
        if len(libraries) > 1:
            raise ArgumentError(
                f"{self._name}: it is called with arrays of torch and of MLX: pass arrays of one of them"
            )
        return self.through(libraries.pop())(arguments, grid, None)


def _library(array: object) -> str:
    return "mlx" if type(array).__module__.partition(".")[0] == "mlx" else "torch"


def _with_torch(plan: ShaderLayout, text: str, name: str) -> LibraryCall:
    try:
        import torch  # noqa: PLC0415  # launches the kernel

        compile_shader: Callable[[str], Any] = getattr(torch.mps, "compile_shader")  # noqa: B009  # the stubs lack it
    except (ImportError, AttributeError) as error:
        raise DeviceError(f"{name}: Metal kernels are launched by torch 2.7 or later, or by MLX: {error}") from error
    try:
        library: Any = compile_shader(text)
        function: Any = getattr(library, plan.function)
    except Exception as error:  # torch may raise anything for a text that Metal refuses
        raise DeviceError(f"{name}: Metal does not compile its text: {error}") from error
    return torch_call(function, plan, name)


def _with_mlx(plan: ShaderLayout, text: str, name: str) -> LibraryCall:
    mx = import_module("mlx.core")  # imported by the program that made the arrays
    return MlxCall(mx, plan, mlx_body(text, plan, name), name)


def torch_call(function: Any, plan: ShaderLayout, name: str) -> LibraryCall:  # noqa: ANN401  # torch's
    """Returns a launch's function. Raises DeviceError: the GPU cannot run a threadgroup of that size of this kernel."""
    x, y, z = plan.group
    most = int(function.max_threads_per_threadgroup)
    if x * y * z > most:
        raise DeviceError(
            f"{name}: its threadgroup is ({x}, {y}, {z}), and this GPU runs at most {most} threads of this kernel "
            "together, for the registers it takes: build it with a smaller group_size"
        )
    taken = {one.index: one for one in plan.buffers}
    order = [taken.get(index) for index in range(max(taken, default=-1) + 1)]
    casts = {one.index: cast for one in plan.buffers if one.dtype and (cast := _CASTS.get(one.dtype.name))}
    options: dict[str, Any] = {"group_size": (x, y, z)} | ({"arg_casts": casts} if casts else {})

    def call(arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object) -> None:
        del stream  # torch uses its current stream
        if 0 in grid:
            return
        # An index that the kernel leaves out gets a number that nothing reads.
        given = [0 if one is None else _given(one, arguments) for one in order]
        function(*given, threads=(grid[0] * x, grid[1] * y, grid[2] * z), **options)

    return call


def _given(one: ShaderBuffer, arguments: tuple[Any, ...]) -> object:
    value = arguments[one.parameter]
    if one.dtype is None:
        return value
    if one.dtype.kind is DTypeKind.FLOAT:
        return float(value)
    number = int(value)
    top = 1 << (one.dtype.bits - 1)
    wraps = one.dtype.kind is DTypeKind.UINT and one.dtype.bits > 8 and number >= top  # torch has uint8
    return number - 2 * top if wraps else number
