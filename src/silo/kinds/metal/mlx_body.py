"""A kernel's text as MLX takes it: the body of a function whose signature MLX writes, and what stands before it.

MLX passes inputs and fresh outputs, in this order, and declares what it finds named in the body.
"""

from __future__ import annotations

from collections.abc import Iterator

from silo.errors import DeviceError, SourceError
from silo.frozen import frozen
from silo.kinds.metal.front.mlx_signature import MLX_POSITIONS
from silo.kinds.metal.front.parser import parse_metal
from silo.kinds.metal.front.shader_text import AddressSpace, MslKernel, MslParameter
from silo.kinds.metal.shader_plan import ShaderBuffer, ShaderPlan

__all__ = ["MlxBody", "MlxInput", "mlx_body"]


@frozen
class MlxInput:
    """An input: what MLX calls it, the buffer that it is, and in which memory the kernel reads an array."""

    name: str
    buffer: ShaderBuffer
    space: AddressSpace


@frozen
class MlxBody:
    """What ``mlx.core.fast.metal_kernel`` is given. ``outputs`` are names with the buffers that they are."""

    inputs: tuple[MlxInput, ...]
    outputs: tuple[tuple[str, ShaderBuffer], ...]
    header: str
    source: str


def mlx_body(text: str, plan: ShaderPlan, kernel: str) -> MlxBody:
    """The kernel of a plan.

    The header is the whole text, with the kernel: nothing is cut out that others might use. In the body each parameter
    is declared anew, as the text has it, from what MLX declares.

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
    # In a block where a name of the kernel's is one that MLX declares.
    opening, closing = ("{ ", "\n}") if named else ("", "")
    source = opening + " ".join(lines) + f'\n#line {line} "{kernel}.metal"\n{body}{closing}\n'
    taken = " ".join(dict.fromkeys(_taken(found)))
    return MlxBody(tuple(inputs), tuple(outputs), text + "\n", f"{taken}\n{source}" if taken else source)


def _declared(one: MslParameter, name: str) -> str:
    """An array, as the text has it: of its type, wherever it begins."""
    const = "const " if one.const else ""
    kind = f"{const}{one.space.value} {one.type}"
    if one.form == "&":
        return f"{kind}& {one.name} = *({kind}*){name};"
    return f"{kind}* {one.name} = ({kind}*){name};"


def _number(one: MslParameter) -> str:
    return f"const constant {one.type}& {one.name} = silo_in_{one.name};"


def _taken(kernel: MslKernel) -> Iterator[str]:
    """What MLX declares, under names of our own: the kernel's may be the same."""
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
