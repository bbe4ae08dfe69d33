"""Expands a factor of ``tt.dot_scaled`` to f32: each element times its scale, exact within the range of f32."""

from __future__ import annotations

from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, LoopBuffer, Statement
from silo.kinds.triton.cpu.lower.index import linear_index
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.front.ssa import Operation, Type, Value

__all__ = ["is_pair_along_depth", "scaled_operand"]

_E2M1, _FP16 = 4, 6  # of Triton's ScaleDotElemType: two elements a byte; the one whose smallest scale is 0


def is_pair_along_depth(operation: Operation, side: int) -> bool:
    """Whether each byte of the operand holds two elements that follow each other along the inner axis."""
    return _format(operation, side) == _E2M1 and bool(operation.attributes["rhs_k_pack" if side else "lhs_k_pack"])


def scaled_operand(scope: LoweringScope, operation: Operation, side: int) -> tuple[LoopBuffer, tuple[int, ...]]:
    """A buffer of the scaled elements of the left (0) or right (1) operand, and its shape."""
    scope.pieces.add("dot_scale")
    value = operation.operands[side]
    packed = _format(operation, side) == _E2M1
    depth_axis = len(value.type.shape) - (2 if side else 1)
    pair_axis = depth_axis if is_pair_along_depth(operation, side) else 2 * len(value.type.shape) - 3 - depth_axis
    shape = tuple(
        extent * 2 if packed and axis == pair_axis else extent for axis, extent in enumerate(value.type.shape)
    )
    target = scope.new_buffer(Type("f32", shape, tensor=True, pointer=False))
    scope.lifetimes.touch(target)
    index = tuple(scope.name("i") for _ in shape)
    body: list[Statement] = []
    text = _element(scope, value, index, pair_axis if packed else None)
    scale = _scale_of(operation, side)
    if scale is not None:
        group = shape[depth_axis] // scale.type.shape[-1]
        rest = index[depth_axis - 1] if side == 0 else index[depth_axis + 1]
        place = (*index[:-2], rest, f"({index[depth_axis]} / {group})")
        name = scope.name("t")
        body.append(Define("float", name, _scale(scope, operation, scale, place)))
        text = f"{text} * {name}"
    body.append(Assign(f"{target.name}[{linear_index(index, shape)}]", text))
    for number, (name, extent) in enumerate(zip(reversed(index), reversed(shape), strict=True)):
        body = [For(name, "0", str(extent), body, simd=number == 0 and not scope.reference)]
    scope.emit(body[0])
    return target, shape


def _format(operation: Operation, side: int) -> int:
    found = operation.attributes["b_elem_type" if side else "a_elem_type"]
    assert isinstance(found, int)
    return found


def _scale_of(operation: Operation, side: int) -> Value | None:
    segment = operation.operand_segments()[3 + side]
    return segment[0] if segment else None


def _element(scope: LoweringScope, value: Value, index: tuple[str, ...], pair_axis: int | None) -> str:
    buffer = _buffer(scope, value)
    if pair_axis is None:
        element = value.type.element
        scope.pieces.add(f"dot_read_{element}")
        return f"silo_{element}_to_f32({buffer.name}[{linear_index(index, value.type.shape)}])"
    place = tuple(f"({name} / 2)" if axis == pair_axis else name for axis, name in enumerate(index))
    byte = f"{buffer.name}[{linear_index(place, value.type.shape)}]"
    return f"silo_e2m1_to_f32((uint32_t)(uint8_t){byte} >> ((uint32_t){index[pair_axis]} % 2 * 4))"


def _scale(scope: LoweringScope, operation: Operation, scale: Value, place: tuple[str, ...]) -> str:
    buffer = _buffer(scope, scale)
    text = f"{buffer.name}[{linear_index(place, scale.type.shape)}]"
    element = scale.type.element
    if element != "i8":
        scope.pieces.add(f"dot_read_{element}")
        return f"silo_{element}_to_f32({text})"
    least = "0u" if _FP16 in (_format(operation, 0), _format(operation, 1)) else "0x00400000u"
    return f"silo_e8m0_to_f32((uint8_t){text}, {least})"


def _buffer(scope: LoweringScope, value: Value) -> LoopBuffer:
    buffer = scope.buffer(value)
    assert buffer is not None, "the scheduler stores the operands of a dot"
    scope.lifetimes.touch(buffer)
    return buffer
