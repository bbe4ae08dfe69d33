"""Lowers ``tt.dot``: a call of the runtime's micro-kernel on stored tiles, or three plain loops."""

from __future__ import annotations

from silo.backends.cpu.analysis.values import load_parts
from silo.backends.cpu.loop_ir import Assign, Buffer, Call, Define, For, If, Statement
from silo.backends.cpu.lower.forms import AffineForms
from silo.backends.cpu.lower.group import lower_group
from silo.backends.cpu.lower.nest import Nest, linear_index
from silo.backends.cpu.lower.scope import Scope
from silo.backends.cpu.ops_types import HALVES
from silo.backends.cpu.schedule.plan import DotStep, Group
from silo.sources.triton.ssa import Value

__all__ = ["lower_dot"]


def lower_dot(scope: Scope, step: DotStep) -> None:
    """Emit ``target += left @ right``; the sum of halves is kept in f32 and rounded once."""
    left, right = step.operation.operands[:2]
    (rows, depth), columns = left.type.shape, right.type.shape[1]
    result = step.operation.result
    if step.target is not result:
        scope.same[result] = step.target
    target = scope.buffer(step.target)
    assert target is not None
    element = result.type.element
    a = _operand(scope, left)
    place = None if step.right is None else _in_place(scope, step.right, right)
    b = _operand(scope, right)
    sums = target
    if element in HALVES:
        sums = scope.new_buffer(result.type, "f32")
        _convert(scope, target, element, sums, "f32")
    for buffer in (a, b, sums):
        scope.lifetimes.touch(buffer)
    if scope.reference:
        _plain(scope, (rows, columns, depth), a, b, sums)
    else:
        _call(scope, (rows, columns, depth), a, place or (b.name, str(columns)), sums)
    if element in HALVES:
        _convert(scope, sums, "f32", target, element)
    scope.lifetimes.touch(target)


def _operand(scope: Scope, value: Value) -> Buffer:
    """``value`` in memory, halves as f32."""
    wanted = "f32" if value.type.element in HALVES else ""
    found = scope.buffer(value, wanted)
    if found is None:
        source = scope.buffer(value)
        assert source is not None
        # Not remembered: a carried value changes while its name stays.
        found = scope.new_buffer(value.type, wanted)
        _convert(scope, source, value.type.element, found, wanted)
    return found


def _in_place(scope: Scope, copy: Group, value: Value) -> tuple[str, str]:
    """Pointer and row stride of a right operand, read where it lies if its rows are whole and contiguous."""
    load = value.owner
    assert load is not None
    pointer, mask, _ = load_parts(load)
    shape = value.type.shape
    nest = Nest(scope, shape)
    forms = AffineForms(scope, nest, wrapped=True)
    axes = tuple(range(len(shape)))
    base, strides = forms.of(pointer, axes)
    known = forms.guard_mask(mask, axes)
    assert known, "the scheduler looked at the mask"
    for statement in nest.levels[0]:
        scope.emit(statement)
    buffer = scope.buffer_for(value)
    scope.lifetimes.touch(buffer)
    place, row = scope.name("right"), scope.name("row")
    scope.emit(Define(f"{buffer.ctype} const *", place, buffer.name, mutable=True))
    scope.emit(Define("int64_t", row, str(shape[1]), mutable=True))
    with scope.collecting() as copying:
        lower_group(scope, copy)
    conditions = [f"{strides.get(1, '0')} == 1", *dict.fromkeys(forms.guards)]
    found: list[Statement] = [Assign(place, base), Assign(row, strides.get(0, "0"))]
    scope.emit(If(" && ".join(conditions), found, copying))
    return place, row


def _convert(scope: Scope, source: Buffer, before: str, target: Buffer, after: str) -> None:
    index = scope.name("i")
    function = f"silo_{before}_to_{after}"
    scope.pieces.add("half")
    scope.lifetimes.touch(source)
    scope.lifetimes.touch(target)
    body = [Assign(f"{target.name}[{index}]", f"{function}({source.name}[{index}])")]
    scope.emit(For(index, "0", str(source.elements), [*body], simd=not scope.reference))


def _plain(scope: Scope, sizes: tuple[int, int, int], a: Buffer, b: Buffer, sums: Buffer) -> None:
    rows, columns, depth = sizes
    i, j, k = scope.name("i"), scope.name("i"), scope.name("i")
    left = f"{a.name}[{linear_index((i, k), (rows, depth))}]"
    right = f"{b.name}[{linear_index((k, j), (depth, columns))}]"
    place = f"{sums.name}[{linear_index((i, j), (rows, columns))}]"
    total = scope.name("sum")
    if sums.ctype == "int32_t":
        product = f"(int32_t)((uint32_t){total} + (uint32_t)((int32_t){left} * (int32_t){right}))"
    else:
        product = f"{total} + ({sums.ctype}){left} * ({sums.ctype}){right}"
    inner = For(k, "0", str(depth), [Assign(total, product)])
    cell = For(j, "0", str(columns), [Define(sums.ctype, total, place, mutable=True), inner, Assign(place, total)])
    scope.emit(For(i, "0", str(rows), [cell]))


def _call(scope: Scope, sizes: tuple[int, int, int], a: Buffer, right: tuple[str, str], sums: Buffer) -> None:
    rows, columns, depth = sizes
    b, stride = right
    piece = {"int8_t": "dot_i8", "double": "dot_f64"}.get(a.ctype, "dot_f32")
    scope.pieces.add(piece)
    scope.emit(
        Call(f"silo_{piece}({rows}, {columns}, {depth}, {a.name}, {depth}, {b}, {stride}, {sums.name}, {columns})")
    )
