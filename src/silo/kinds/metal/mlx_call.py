"""Launches Metal kernels through MLX: the body of a text in MLX's form, and the call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from silo.errors import ArgumentError, DeviceError, SourceError
from silo.frozen import frozen
from silo.kinds.metal.front.parser import AddressSpace, MslKernel, MslParameter, parse_metal
from silo.kinds.metal.front.variant_text import MLX_POSITIONS, SMALL
from silo.kinds.metal.shader_compiler import ShaderBuffer, ShaderLayout

__all__ = ["MlxBody", "MlxCall", "MlxInput", "mlx_body"]

# ---- A kernel's text in MLX's form: the body of a function whose signature MLX writes ----


@frozen
class MlxInput:
    """An input: MLX's name for it, its buffer, and the memory in which the kernel reads an array."""

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
    """Returns the kernel of a plan in MLX's form.

    The header is the whole text, with the kernel: other functions may use any part of it. The body declares each
    parameter again with its type from the text, from MLX's own parameter.

    Raises:
        DeviceError: a kernel that MLX cannot launch.
    """
    try:
        parsed = parse_metal(text, f"{kernel}.metal")
    except SourceError as error:
        raise DeviceError(f"{kernel}: its text is damaged: {error}") from error
    found = next((one for one in parsed.kernels if one.name == plan.function), None)
    if found is None:
        raise DeviceError(f"{kernel}: its text has no kernel {plan.function}")
    if found.template:
        raise DeviceError(
            f"{kernel}: it is the instance of a template, which has no body of its own for MLX: launch it with torch's "
            "arrays, or write the instance out"
        )
    parameters = {one.index: one for one in found.buffers}
    inputs: list[MlxInput] = []
    outputs: list[tuple[str, ShaderBuffer]] = []
    lines: list[str] = []
    for buffer in plan.buffers:
        one = parameters.get(buffer.index)
        if one is None:
            raise DeviceError(f"{kernel}: its text has no buffer {buffer.index}")
        if buffer.index in plan.written:
            outputs.append((f"silo_out_{one.name}", buffer))
            lines.append(_declared(one, outputs[-1][0]))
        elif buffer.dtype is not None or one.const or buffer.index in plan.read:
            inputs.append(MlxInput(f"silo_in_{one.name}", buffer, one.space))
            lines.append(_number(one) if buffer.dtype is not None else _declared(one, inputs[-1].name))
        else:
            raise DeviceError(
                f"{kernel}: {one.name} is read and written, and MLX gives kernels arrays to read and fresh ones to "
                f'write: where the kernel writes every element and reads none of it, say effects={{"{one.name}": '
                '"out"}; else launch it with torch\'s arrays'
            )
    if not outputs:
        raise DeviceError(f"{kernel}: it writes no array, so MLX has nothing to launch it for: give effects=")
    lines += _positions(found, kernel)
    body = text[slice(*found.body)]
    line = text.count("\n", 0, found.body[0]) + 1
    named = any(one.name in MLX_POSITIONS for one in found.parameters)
    # In a block if a parameter of the kernel has a name that MLX declares.
    opening, closing = ("{ ", "\n}") if named else ("", "")
    source = opening + " ".join(lines) + f'\n#line {line} "{kernel}.metal"\n{body}{closing}\n'
    taken = " ".join(dict.fromkeys(_taken(found)))
    return MlxBody(tuple(inputs), tuple(outputs), text + "\n", f"{taken}\n{source}" if taken else source)


def _declared(one: MslParameter, name: str) -> str:
    """Returns the declaration of an array with its type from the text."""
    const = "const " if one.const else ""
    kind = f"{const}{one.space.value} {one.type}"
    if one.form == "&":
        return f"{kind}& {one.name} = *({kind}*){name};"
    return f"{kind}* {one.name} = ({kind}*){name};"


def _number(one: MslParameter) -> str:
    return f"const constant {one.type}& {one.name} = silo_in_{one.name};"


def _taken(kernel: MslKernel) -> Iterator[str]:
    """Yields copies of MLX's declared positions under Silo's names, as the kernel may use the same names."""
    for one in kernel.parameters:
        if one.attribute in MLX_POSITIONS:
            yield f"const {MLX_POSITIONS[one.attribute]} silo_{one.attribute} = {one.attribute};"


def _positions(kernel: MslKernel, name: str) -> Iterator[str]:
    for one in kernel.parameters:
        if one.is_buffer:
            continue
        if one.attribute not in MLX_POSITIONS:
            raise DeviceError(f"{name}: {one.name} is [[{one.attribute}]], which MLX does not pass")
        wide = MLX_POSITIONS[one.attribute].endswith("3")
        part = {"2": ".xy", "3": ""}.get(one.type[-1], ".x") if wide else ""
        yield f"{one.type} {one.name} = {one.type}(silo_{one.attribute}{part});"


# ---- Launching Metal kernels through MLX: results replace the contents of the call's arrays ----

# MLX's names of dtypes, if they differ.
_DTYPES = {"bool": "bool_"}


class MlxCall:
    """Implements :class:`silo.core.protocols.LibraryCall` with arrays of MLX.

    MLX does not let kernels write memory of the caller. An array that the kernel writes is a new one, of the shape and
    dtype of the caller's array, which then holds it (``out[...] = made``, without a copy). So the kernel must write all
    of it. Inputs are row-major, as for MLX's own kernels. The call starts MLX's evaluation and does not wait for it.
    """

    def __init__(self, mx: Any, plan: ShaderLayout, body: MlxBody, name: str) -> None:  # noqa: ANN401  # the module
        self._mx, self._plan, self._body, self._name = mx, plan, body, name
        word = hashlib.sha256(f"{body.header}{body.source}".encode()).hexdigest()[:16]
        self._kernel: Any = mx.fast.metal_kernel(
            name=f"silo_{word}",
            input_names=[one.name for one in body.inputs],
            output_names=[made for made, _ in body.outputs],
            source=body.source,
            header=body.header,
        )

    def __call__(self, arguments: tuple[Any, ...], grid: tuple[int, int, int], stream: object, /) -> None:
        """Enqueues the kernel. Raises ArgumentError: MLX passes an array in another memory than the kernel reads."""
        del stream  # MLX uses its current stream
        if 0 in grid:
            return
        outputs = [arguments[buffer.parameter] for _, buffer in self._body.outputs]
        x, y, z = self._plan.group
        made = self._kernel(
            inputs=[self._given(one, arguments[one.buffer.parameter]) for one in self._body.inputs],
            output_shapes=[one.shape for one in outputs],
            output_dtypes=[one.dtype for one in outputs],
            grid=(grid[0] * x, grid[1] * y, grid[2] * z),
            threadgroup=(x, y, z),
        )
        self._mx.async_eval(made)  # otherwise it would run when a result is read, which the next launch may replace
        for one, result in zip(outputs, made, strict=True):
            one[...] = result

    def _given(self, one: MlxInput, value: Any) -> Any:  # noqa: ANN401  # an array of MLX
        mx = self._mx
        if one.buffer.dtype is not None:
            name = one.buffer.dtype.name
            return mx.array(value, getattr(mx, _DTYPES.get(name, name)))
        if one.space is AddressSpace.CONSTANT:
            if value.size >= SMALL:
                raise ArgumentError(
                    f"{self._name}: {one.name.removeprefix('silo_in_')} is in constant memory, where MLX puts arrays "
                    f"of fewer than {SMALL} elements alone, and it has {value.size}: declare it device const"
                )
            return value if value.ndim else value.reshape(1)
        if value.size >= SMALL:
            return value
        # MLX would pass it in constant memory, and the kernel takes a pointer to device memory.
        return mx.concatenate([value.reshape(-1), mx.zeros((SMALL - value.size,), value.dtype)])
