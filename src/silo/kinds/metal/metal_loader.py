"""Launches Metal kernels on a Mac: through torch (``torch.mps.compile_shader``), or through MLX."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from silo.core.launch_info import LaunchInfo
from silo.core.protocols import Device, LibraryCall
from silo.core.values import DTypeKind
from silo.errors import ArgumentError, DeviceError, SourceError
from silo.frozen import frozen
from silo.kinds.metal.front.parser import AddressSpace, MslKernel, MslParameter, parse_metal
from silo.kinds.metal.front.variant_text import MLX_POSITIONS, SMALL
from silo.kinds.metal.shader_compiler import ShaderBuffer, ShaderLayout

__all__ = ["MlxBody", "MlxCall", "MlxInput", "ShaderCall", "load_msl", "mlx_body", "torch_call"]


# ---- A kernel's text in MLX's form: the body of a function whose signature MLX writes ----


@frozen
class MlxInput:
    """An input: MLX's name for it, its buffer, and the address space from which the kernel reads an array."""

    name: str
    buffer: ShaderBuffer
    space: AddressSpace


@frozen
class MlxBody:
    """The arguments of ``mlx.core.fast.metal_kernel``. ``outputs`` are names with their buffers."""

    inputs: tuple[MlxInput, ...]
    outputs: tuple[tuple[str, ShaderBuffer], ...]
    header: str
    source: str


def mlx_body(text: str, plan: ShaderLayout, kernel: str) -> MlxBody:
    """Returns the kernel ``plan.function`` of a text in the form that MLX takes: a header, and the body of a function.

    The header is the whole text, with the kernel, because other functions may use any part of it. The body declares
    each parameter again, with its type from the text, as a copy of MLX's own parameter.

    Raises:
        DeviceError: a kernel that MLX cannot launch.
    """
    try:
        parsed = parse_metal(text, f"{kernel}.metal")
    except SourceError as error:
        raise DeviceError(f"{kernel}: its text is damaged: {error}") from error
    kernel_text = next((kernel for kernel in parsed.kernels if kernel.name == plan.function), None)
    if kernel_text is None:
        raise DeviceError(f"{kernel}: its text has no kernel {plan.function}")
    if kernel_text.template:
        raise DeviceError(
            f"{kernel}: it is the instance of a template, which has no body of its own for MLX: launch it with torch's "
            "arrays, or write the instance out"
        )
    parameters = {buffer.index: buffer for buffer in kernel_text.buffers}
    inputs: list[MlxInput] = []
    outputs: list[tuple[str, ShaderBuffer]] = []
    lines: list[str] = []
    for buffer in plan.buffers:
        array = parameters.get(buffer.index)
        if array is None:
            raise DeviceError(f"{kernel}: its text has no buffer {buffer.index}")
        if buffer.index in plan.written:
            outputs.append((f"silo_out_{array.name}", buffer))
            lines.append(_declared(array, outputs[-1][0]))
        elif buffer.dtype is not None or array.const or buffer.index in plan.read:
            inputs.append(MlxInput(f"silo_in_{array.name}", buffer, array.space))
            lines.append(_number(array) if buffer.dtype is not None else _declared(array, inputs[-1].name))
        else:
            raise DeviceError(
                f"{kernel}: {array.name} is read and written, and MLX gives kernels arrays to read and fresh ones to "
                f'write: where the kernel writes every element and reads none of it, say effects={{"{array.name}": '
                '"out"}; else launch it with torch\'s arrays'
            )
    if not outputs:
        raise DeviceError(f"{kernel}: it writes no array, so MLX has nothing to launch it for: give effects=")
    lines += _positions(kernel_text, kernel)
    body = text[slice(*kernel_text.body)]
    line = text.count("\n", 0, kernel_text.body[0]) + 1
    uses_positions = any(parameter.name in MLX_POSITIONS for parameter in kernel_text.parameters)
    # If a parameter of the kernel has the same name as a position that MLX declares, the body is put in a nested block,
    # in which the parameter hides MLX's variable.
    opening, closing = ("{ ", "\n}") if uses_positions else ("", "")
    source = opening + " ".join(lines) + f'\n#line {line} "{kernel}.metal"\n{body}{closing}\n'
    copies = " ".join(dict.fromkeys(_position_copies(kernel_text)))
    return MlxBody(tuple(inputs), tuple(outputs), text + "\n", f"{copies}\n{source}" if copies else source)


def _declared(msl_parameter: MslParameter, name: str) -> str:
    """Returns the declaration of an array, with its type from the text."""
    const = "const " if msl_parameter.const else ""
    kind = f"{const}{msl_parameter.space.value} {msl_parameter.type}"
    if msl_parameter.form == "&":
        return f"{kind}& {msl_parameter.name} = *({kind}*){name};"
    return f"{kind}* {msl_parameter.name} = ({kind}*){name};"


def _number(msl_parameter: MslParameter) -> str:
    return f"const constant {msl_parameter.type}& {msl_parameter.name} = silo_in_{msl_parameter.name};"


def _position_copies(kernel: MslKernel) -> Iterator[str]:
    """Yields declarations that copy MLX's thread positions to variables whose names begin with ``silo_``.

    The kernel's own parameters may have the names of MLX's variables and would hide them.
    """
    for parameter in kernel.parameters:
        if parameter.attribute in MLX_POSITIONS:
            yield f"const {MLX_POSITIONS[parameter.attribute]} silo_{parameter.attribute} = {parameter.attribute};"


def _positions(kernel: MslKernel, name: str) -> Iterator[str]:
    for parameter in kernel.parameters:
        if parameter.is_buffer:
            continue
        if parameter.attribute not in MLX_POSITIONS:
            raise DeviceError(f"{name}: {parameter.name} is [[{parameter.attribute}]], which MLX does not pass")
        wide = MLX_POSITIONS[parameter.attribute].endswith("3")
        part = {"2": ".xy", "3": ""}.get(parameter.type[-1], ".x") if wide else ""
        yield f"{parameter.type} {parameter.name} = {parameter.type}(silo_{parameter.attribute}{part});"


# ---- Launching through MLX: results replace the contents of the call's arrays ----

# MLX's names of dtypes that differ from Silo's.
_DTYPES = {"bool": "bool_"}


class MlxCall:
    """Implements :class:`silo.core.protocols.LibraryCall` for arrays of MLX.

    MLX does not let kernels write to the caller's memory. For each array that the kernel writes, MLX makes a new array
    of the same shape and dtype, and the caller's array then takes over the new array (``out[...] = made``, without a
    copy). So the kernel must write every element. Inputs are row-major, as for MLX's own kernels. The call starts MLX's
    evaluation and does not wait for it.
    """

    def __init__(self, mx: Any, plan: ShaderLayout, body: MlxBody, name: str) -> None:  # noqa: ANN401  # the module
        self._mx, self._plan, self._body, self._name = mx, plan, body, name
        word = hashlib.sha256(f"{body.header}{body.source}".encode()).hexdigest()[:16]
        self._kernel: Any = mx.fast.metal_kernel(
            name=f"silo_{word}",
            input_names=[input_.name for input_ in body.inputs],
            output_names=[output_name for output_name, _ in body.outputs],
            source=body.source,
            header=body.header,
        )

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> None:
        """Enqueues the kernel.

        Raises ArgumentError if MLX passes an array in another address space than the kernel reads.
        """
        del stream  # MLX uses its current stream
        if 0 in grid:
            return
        outputs = [arguments[buffer.parameter] for _, buffer in self._body.outputs]
        x, y, z = self._plan.group
        results = self._kernel(
            inputs=[self._given(input_, arguments[input_.buffer.parameter]) for input_ in self._body.inputs],
            output_shapes=[output.shape for output in outputs],
            output_dtypes=[output.dtype for output in outputs],
            grid=(grid[0] * x, grid[1] * y, grid[2] * z),
            threadgroup=(x, y, z),
        )
        # Without this call, MLX would run the kernel only when a result is read, and the next launch may replace that
        # result.
        self._mx.async_eval(results)
        for output, result in zip(outputs, results, strict=True):
            output[...] = result

    def _given(self, mlx_input: MlxInput, value: Any) -> Any:  # noqa: ANN401  # an array of MLX
        mx = self._mx
        if mlx_input.buffer.dtype is not None:
            name = mlx_input.buffer.dtype.name
            return mx.array(value, getattr(mx, _DTYPES.get(name, name)))
        if mlx_input.space is AddressSpace.CONSTANT:
            if value.size >= SMALL:
                raise ArgumentError(
                    f"{self._name}: {mlx_input.name.removeprefix('silo_in_')} is in constant memory, where MLX puts "
                    "arrays "
                    f"of fewer than {SMALL} elements alone, and it has {value.size}: declare it device const"
                )
            return value if value.ndim else value.reshape(1)
        if value.size >= SMALL:
            return value
        # MLX would pass a smaller array in constant memory, but the kernel takes a pointer to device memory.
        return mx.concatenate([value.reshape(-1), mx.zeros((SMALL - value.size,), value.dtype)])


# ---- Launching on a Mac ----


# torch's casts for numbers that are narrower than torch's own. An unsigned number is passed as the signed number with
# the same bits.
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
    """Loads an ``msl`` blob and returns its call.

    The text is compiled once for each library whose arrays a call passes.

    If torch is imported, torch compiles the text now, so a text that Metal refuses is an error here; MLX compiles at
    the first call.

    Raises:
        DeviceError: no library is installed, torch is too old for ``compile_shader``, or Metal refuses the text.
    """
    del device  # a Mac has only one
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
    """Implements :class:`silo.core.protocols.LibraryCall`, through torch or, for MLX's arrays, through MLX."""

    def __init__(self, plan: ShaderLayout, text: str, name: str) -> None:
        self._plan, self._text, self._name = plan, text, name
        self._calls: dict[str, LibraryCall] = {}
        self._arrays = tuple(buffer.parameter for buffer in plan.buffers if buffer.dtype is None)

    def through(self, library: str) -> LibraryCall:
        """Returns the function that launches with arrays of a library. Raises DeviceError."""
        call = self._calls.get(library)
        if call is None:
            make_call = _with_mlx if library == "mlx" else _with_torch
            call = self._calls[library] = make_call(self._plan, self._text, self._name)
        return call

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> object:
        """Launches the kernel. Raises ArgumentError if a stream was given, or arrays of both libraries."""
        if stream is not None:
            raise ArgumentError(f"{self._name}: Metal launches go to the library's own stream; leave stream= out")
        libraries = {_library(arguments[array]) for array in self._arrays} or {"torch"}
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
    except Exception as error:  # torch may raise any exception for a text that Metal refuses
        raise DeviceError(f"{name}: Metal does not compile its text: {error}") from error
    return torch_call(function, plan, name)


def _with_mlx(plan: ShaderLayout, text: str, name: str) -> LibraryCall:
    mx = import_module("mlx.core")  # already imported, by the program that made the arrays
    return MlxCall(mx, plan, mlx_body(text, plan, name), name)


def torch_call(function: Any, plan: ShaderLayout, name: str) -> LibraryCall:  # noqa: ANN401  # torch's
    """Returns the function that launches through torch.

    Raises DeviceError if the GPU cannot run this kernel with threadgroups of that size.
    """
    x, y, z = plan.group
    limit = int(function.max_threads_per_threadgroup)
    if x * y * z > limit:
        raise DeviceError(
            f"{name}: its threadgroup is ({x}, {y}, {z}), and this GPU runs at most {limit} threads of this kernel "
            "together, for the registers it takes: build it with a smaller group_size"
        )
    buffers_by_index = {buffer.index: buffer for buffer in plan.buffers}
    order = [buffers_by_index.get(index) for index in range(max(buffers_by_index, default=-1) + 1)]
    casts = {buffer.index: cast for buffer in plan.buffers if buffer.dtype and (cast := _CASTS.get(buffer.dtype.name))}
    options: dict[str, Any] = {"group_size": (x, y, z)} | ({"arg_casts": casts} if casts else {})

    def call(arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object) -> None:
        del stream  # torch uses its current stream
        if 0 in grid:
            return
        # Buffer indices that the kernel does not use get a number that is never read.
        values = [0 if buffer is None else _given(buffer, arguments) for buffer in order]
        function(*values, threads=(grid[0] * x, grid[1] * y, grid[2] * z), **options)

    return call


def _given(shader_buffer: ShaderBuffer, arguments: tuple[Any, ...]) -> object:
    value = arguments[shader_buffer.parameter]
    if shader_buffer.dtype is None:
        return value
    if shader_buffer.dtype.kind is DTypeKind.FLOAT:
        return float(value)
    number = int(value)
    top = 1 << (shader_buffer.dtype.bits - 1)
    # torch's only unsigned cast is uint8
    wraps = shader_buffer.dtype.kind is DTypeKind.UINT and shader_buffer.dtype.bits > 8 and number >= top
    return number - 2 * top if wraps else number
