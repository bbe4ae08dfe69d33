"""Type rules: conditions on the types of an operation's operands, results and regions.

Each rule's docstring states the condition; a rule raises :func:`malformed` for an operation that breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from silo.errors import SourceError
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type, Value

__all__ = [
    "TypeRule",
    "addptr_types",
    "assert_types",
    "assume_types",
    "atomic_cas_types",
    "atomic_load_types",
    "atomic_poll_types",
    "atomic_rmw_types",
    "branch_types",
    "broadcast_types",
    "call_types",
    "cat_types",
    "comparison_types",
    "constant_types",
    "dot_scaled_types",
    "dot_types",
    "expand_dims_types",
    "for_types",
    "foreign_types",
    "func_types",
    "gather_types",
    "histogram_types",
    "if_types",
    "join_types",
    "load_types",
    "make_range_types",
    "malformed",
    "map_elementwise_types",
    "no_values",
    "poison_types",
    "print_types",
    "program_types",
    "reduction_types",
    "reshape_types",
    "same_shape",
    "same_type",
    "select_types",
    "splat_types",
    "split_types",
    "store_types",
    "trans_types",
    "unsplat_types",
    "while_types",
]

TypeRule: TypeAlias = "Callable[[Module, Operation], None]"
"""Raises ``SourceError`` for an operation of a module that breaks the rule."""


def malformed(operation: Operation, rule: str) -> SourceError:
    """Returns the error for an operation that breaks ``rule``."""
    location = f" ({operation.location})" if operation.location else ""
    operands = ", ".join(f"%{value.name}: {_spell(value.type)}" for value in operation.operands)
    return SourceError(f"malformed TTIR: {operation.name}({operands}){location}: {rule}")


def _spell(kind: Type) -> str:
    scalar = f"!tt.ptr<{kind.element}>" if kind.pointer else kind.element
    return f"tensor<{'x'.join((*map(str, kind.shape), scalar))}>" if kind.tensor else scalar


def _need(operation: Operation, holds: object, rule: str) -> None:
    if not holds:
        raise malformed(operation, rule)


def _counts(operation: Operation, operands: int, results: int) -> None:
    _need(operation, len(operation.operands) == operands, f"it takes {operands} operands")
    _need(operation, len(operation.results) == results, f"it has {results} results")


def _same_scalar(left: Type, right: Type) -> bool:
    return left.element == right.element and left.pointer == right.pointer


def splat_types(_module: Module, operation: Operation) -> None:
    """Checks that the operand is a scalar, and the result a tensor of this scalar."""
    _counts(operation, 1, 1)
    source, target = operation.operands[0].type, operation.result.type
    _need(
        operation,
        not source.tensor and target.tensor and _same_scalar(source, target),
        "a scalar becomes a tensor of it",
    )


def expand_dims_types(_module: Module, operation: Operation) -> None:
    """Checks that the result has one more axis than the operand, of extent 1."""
    _counts(operation, 1, 1)
    source, target = operation.operands[0].type, operation.result.type
    axis = operation.attributes.get("axis")
    _need(operation, isinstance(axis, int) and 0 <= axis <= len(source.shape), "it has an axis within the rank")
    assert isinstance(axis, int)
    expected = (*source.shape[:axis], 1, *source.shape[axis:])
    _need(operation, target.shape == expected and _same_scalar(source, target), f"the result has the shape {expected}")


def broadcast_types(_module: Module, operation: Operation) -> None:
    """Checks that the result differs from the operand only in axes whose extent was 1."""
    _counts(operation, 1, 1)
    source, target = operation.operands[0].type, operation.result.type
    fits = len(source.shape) == len(target.shape) and all(
        small in (1, large) for small, large in zip(source.shape, target.shape, strict=True)
    )
    _need(operation, fits and _same_scalar(source, target), "extents of 1 grow, all others stay")


def addptr_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are pointers and as many integers."""
    _counts(operation, 2, 1)
    pointer, offset = (value.type for value in operation.operands)
    _need(operation, pointer.pointer and operation.result.type == pointer, "it moves a pointer")
    _need(
        operation,
        offset.shape == pointer.shape and offset.element.startswith("i"),
        "the offset is an integer per pointer",
    )


def load_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a pointer, an optional mask, and an optional value for masked-off elements."""
    _need(
        operation, 1 <= len(operation.operands) <= 3 and len(operation.results) == 1, "it takes pointer, mask and other"
    )
    pointer, result = operation.operands[0].type, operation.result.type
    if not pointer.pointer:  # a block pointer, which is kept as text
        return
    _need(operation, _pointee(pointer) == result, "what is loaded has the type behind the pointer")
    groups = operation.operand_segments()
    mask = groups[1] if len(groups) == 3 else tuple(operation.operands[1:2])
    other = groups[2] if len(groups) == 3 else tuple(operation.operands[2:3])
    _mask(operation, mask, pointer)
    _need(operation, all(value.type == result for value in other), "the other value has the loaded type")


def _pointee(pointer: Type) -> Type:
    if pointer.element.startswith("!tt.ptr<"):
        return Type(pointer.element[len("!tt.ptr<") : -1], pointer.shape, pointer.tensor, pointer=True)
    return Type(pointer.element, pointer.shape, pointer.tensor)


def _mask(operation: Operation, mask: tuple[Value, ...], pointer: Type) -> None:
    expected = Type("i1", pointer.shape, pointer.tensor)
    _need(operation, all(value.type == expected for value in mask), "the mask has one i1 per pointer")


def store_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a pointer, a value of its element type, and an optional mask."""
    _need(operation, 2 <= len(operation.operands) <= 3 and not operation.results, "it takes pointer, value and mask")
    pointer, value = operation.operands[0].type, operation.operands[1].type
    if pointer.pointer:
        _need(operation, _pointee(pointer) == value, "what is stored has the type behind the pointer")
        _mask(operation, tuple(operation.operands[2:]), pointer)


def atomic_rmw_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a pointer, a value of its element type, and an optional mask.

    The result is the old value.
    """
    _need(
        operation, 2 <= len(operation.operands) <= 3 and len(operation.results) == 1, "it takes pointer, value and mask"
    )
    pointer, value = operation.operands[0].type, operation.operands[1].type
    _need(
        operation,
        _pointee(pointer) == value == operation.result.type,
        "value and result have the type behind the pointer",
    )
    _mask(operation, tuple(operation.operands[2:]), pointer)


def atomic_cas_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a pointer and two values of its element type."""
    _counts(operation, 3, 1)
    pointer, compare, value = (operand.type for operand in operation.operands)
    _need(
        operation,
        _pointee(pointer) == compare == value == operation.result.type,
        "both values and the result have the type behind the pointer",
    )


def histogram_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are integers along one axis, and an optional mask."""
    _need(operation, 1 <= len(operation.operands) <= 2 and len(operation.results) == 1, "it takes values and a mask")
    values, result = operation.operands[0].type, operation.result.type
    _need(operation, values.tensor and len(values.shape) == 1 and values.element.startswith("i"), "it counts integers")
    _need(operation, result.tensor and len(result.shape) == 1 and result.element.startswith("i"), "it has bins")
    _need(
        operation,
        all(mask.type == Type("i1", values.shape, tensor=True) for mask in operation.operands[1:]),
        "the mask has one i1 per value",
    )


def gather_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a source and indices of the same rank."""
    _counts(operation, 2, 1)
    source, index = (value.type for value in operation.operands)
    axis = operation.attributes.get("axis")
    rank = len(source.shape)
    _need(operation, isinstance(axis, int) and 0 <= axis < rank, "it has an axis within the rank")
    same = len(index.shape) == rank and all(
        own == other
        for dimension, (own, other) in enumerate(zip(source.shape, index.shape, strict=True))
        if dimension != axis
    )
    fits = operation.result.type.shape == index.shape and _same_scalar(operation.result.type, source)
    _need(operation, same and fits and index.element.startswith("i"), "indices and source differ along the axis only")


def cat_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are two tensors of one type."""
    _counts(operation, 2, 1)
    left, right = (value.type for value in operation.operands)
    _need(operation, left.tensor and left == right, "it takes two tensors of one type")
    expected = Type(left.element, (2 * left.shape[0], *left.shape[1:]), tensor=True, pointer=left.pointer)
    _need(operation, operation.result.type == expected, "the result holds one after the other")


def join_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are two tensors of one type."""
    _counts(operation, 2, 1)
    left, right = (value.type for value in operation.operands)
    _need(operation, left.tensor and left == right, "it takes two tensors of one type")
    expected = Type(left.element, (*left.shape, 2), tensor=True, pointer=left.pointer)
    _need(operation, operation.result.type == expected, "the result has one more axis, of extent 2")


def split_types(_module: Module, operation: Operation) -> None:
    """Checks that the operand is a tensor whose last axis has two elements."""
    _counts(operation, 1, 2)
    source = operation.operands[0].type
    _need(operation, source.tensor and source.shape[-1] == 2, "the last axis has the extent 2")
    expected = Type(source.element, source.shape[:-1], tensor=True, pointer=source.pointer)
    _need(operation, all(value.type == expected for value in operation.results), "the results lack the last axis")


def unsplat_types(_module: Module, operation: Operation) -> None:
    """Checks that the operand is a tensor of one element."""
    _counts(operation, 1, 1)
    source, result = operation.operands[0].type, operation.result.type
    fits = source.tensor and source.elements == 1 and not result.tensor and _same_scalar(source, result)
    _need(operation, fits, "a tensor of one element becomes it")


def map_elementwise_types(_module: Module, operation: Operation) -> None:
    """Checks that operands and results have one shape and that the region takes packs of elements."""
    pack = operation.attributes.get("pack", 1)
    _need(operation, isinstance(pack, int) and pack > 0, "it has a pack")
    assert isinstance(pack, int)
    _need(operation, operation.operands and operation.results, "it has operands and results")
    shape = operation.operands[0].type.shape
    values = (*operation.operands, *operation.results)
    _need(operation, all(value.type.tensor and value.type.shape == shape for value in values), "one shape for all")
    _need(operation, operation.operands[0].type.elements % pack == 0, "whole packs")
    _need(operation, len(operation.regions) == 1 and operation.regions[0].blocks, "it has one region")
    blocks = operation.regions[0].blocks
    operand_types = [Type(v.type.element, pointer=v.type.pointer) for v in operation.operands for _ in range(pack)]
    result_types = [Type(v.type.element, pointer=v.type.pointer) for v in operation.results for _ in range(pack)]
    _need(
        operation,
        [value.type for value in blocks[0].arguments] == operand_types,
        "its region takes a pack of each operand",
    )
    ends = [block.operations[-1] for block in blocks if block.operations[-1].name == "tt.map_elementwise.return"]
    fits = all([value.type for value in end.operands] == result_types for end in ends)
    _need(operation, ends and fits, "its region gives a pack of each result")


def dot_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are two factors whose inner extents agree, and an accumulator."""
    _counts(operation, 3, 1)
    left, right, total = (value.type for value in operation.operands)
    rank = len(left.shape)
    _need(
        operation, rank in (2, 3) and len(right.shape) == len(total.shape) == rank, "it multiplies matrices of one rank"
    )
    _need(operation, left.shape[-1] == right.shape[-2], "the inner extents agree")
    expected = (*left.shape[:-1], right.shape[-1])
    _need(
        operation, left.shape[:-2] == right.shape[:-2] and total.shape == expected, f"the sum has the shape {expected}"
    )
    _need(operation, operation.result.type == total, "the result has the type of the sum")


_E2M1 = 4  # member of Triton's ScaleDotElemType: a byte holds two elements


def dot_scaled_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are two factors (perhaps packed), an accumulator, and scales for groups of elements."""
    segments = operation.operand_segments()
    sizes = [len(segment) for segment in segments]
    _need(operation, len(sizes) == 5 and sizes[:3] == [1, 1, 1] and max(sizes) == 1, "it has two factors and a sum")
    _need(operation, len(operation.results) == 1, "it has one result")
    (left,), (right,), (total,) = (tuple(value.type for value in segment) for segment in segments[:3])
    rank = len(left.shape)
    _need(
        operation, rank in (2, 3) and len(right.shape) == len(total.shape) == rank, "it multiplies matrices of one rank"
    )
    formats = [operation.attributes.get(name) for name in ("a_elem_type", "b_elem_type")]
    packed = [operation.attributes.get(name) for name in ("lhs_k_pack", "rhs_k_pack")]
    _need(operation, all(isinstance(item, int) for item in (*formats, *packed)), "it says how its factors are packed")
    (rows, depth), (inner, columns) = left.shape[-2:], right.shape[-2:]
    pair = [2 if number == _E2M1 else 1 for number in formats]
    rows, depth = (rows, depth * pair[0]) if packed[0] else (rows * pair[0], depth)
    inner, columns = (inner * pair[1], columns) if packed[1] else (inner, columns * pair[1])
    _need(operation, depth == inner, "the inner extents agree")
    batch = left.shape[:-2]
    expected = (*batch, rows, columns)
    _need(operation, right.shape[:-2] == batch and total.shape == expected, f"the sum has the shape {expected}")
    _need(operation, operation.result.type == total, "the result has the type of the sum")
    for segment, extent in zip(segments[3:], (rows, columns), strict=True):
        for scale in segment:
            shape = scale.type.shape
            fits = len(shape) == rank and shape[:-1] == (*batch, extent) and shape[-1] > 0 and depth % shape[-1] == 0
            _need(operation, fits, f"a scale covers whole groups of {extent} x {depth} elements")


def reduction_types(_module: Module, operation: Operation) -> None:
    """Checks a reduction or a scan along an axis: its region combines two elements of each operand."""
    count = len(operation.operands)
    axis = operation.attributes.get("axis")
    _need(operation, count > 0 and len(operation.results) == count, "it has one result per operand")
    shape = operation.operands[0].type.shape
    _need(operation, isinstance(axis, int) and 0 <= axis < len(shape), "it has an axis within the rank")
    _need(operation, all(value.type.shape == shape for value in operation.operands), "its operands have one shape")
    assert isinstance(axis, int)
    result_shape = shape if operation.name == "tt.scan" else (*shape[:axis], *shape[axis + 1 :])
    fits = all(
        result.type.shape == result_shape and _same_scalar(result.type, value.type)
        for result, value in zip(operation.results, operation.operands, strict=True)
    )
    _need(operation, fits, f"its results have the shape {result_shape} and the elements of its operands")
    _need(operation, len(operation.regions) == 1 and operation.regions[0].blocks, "it has one region")
    arguments = operation.regions[0].blocks[0].arguments
    scalars = [Type(value.type.element, pointer=value.type.pointer) for value in operation.operands] * 2
    _need(
        operation, [argument.type for argument in arguments] == scalars, "its region takes two elements of each operand"
    )
    ends = [block.operations[-1] for block in operation.regions[0].blocks if block.operations]
    returns = [end for end in ends if end.name == f"{operation.name}.return"]
    fits = all([value.type for value in end.operands] == scalars[:count] for end in returns)
    _need(operation, returns and fits, "its region gives one element of each operand")


def same_type(_module: Module, operation: Operation) -> None:
    """Checks that operands and the result have the same type."""
    _need(operation, operation.operands and len(operation.results) == 1, "it has operands and one result")
    kind = operation.result.type
    _need(operation, all(value.type == kind for value in operation.operands), "operands and result have one type")


def comparison_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are two values of one type and the result an i1 for each element."""
    _counts(operation, 2, 1)
    left, right = (value.type for value in operation.operands)
    _need(operation, left == right, "it compares values of one type")
    _need(operation, operation.result.type == Type("i1", left.shape, left.tensor), "the result has one i1 per element")


def same_shape(_module: Module, operation: Operation) -> None:
    """Checks that the result has the shape of the operand, but may have another element type."""
    _counts(operation, 1, 1)
    source, target = operation.operands[0].type, operation.result.type
    _need(operation, source.shape == target.shape and source.tensor == target.tensor, "it keeps the shape")


def select_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a condition, one for all or one for each element, and two values of one type."""
    _counts(operation, 3, 1)
    condition, left, right = (value.type for value in operation.operands)
    _need(operation, left == right == operation.result.type, "both values and the result have one type")
    is_scalar = condition == Type("i1")
    _need(
        operation,
        is_scalar or condition == Type("i1", left.shape, left.tensor),
        "the condition is i1, one or per element",
    )


def reshape_types(_module: Module, operation: Operation) -> None:
    """Checks that the result has as many elements as the operand, of the same type."""
    _counts(operation, 1, 1)
    source, target = operation.operands[0].type, operation.result.type
    _need(operation, source.elements == target.elements and _same_scalar(source, target), "the elements stay the same")


def trans_types(_module: Module, operation: Operation) -> None:
    """Checks that the result has the operand's axes in another order."""
    _counts(operation, 1, 1)
    source, target = operation.operands[0].type, operation.result.type
    order = operation.attributes.get("order")
    axes = [axis for axis in order if isinstance(axis, int)] if isinstance(order, tuple) else []
    _need(operation, sorted(axes) == list(range(len(source.shape))), "its order is a permutation of the axes")
    expected = tuple(source.shape[axis] for axis in axes)
    _need(operation, target.shape == expected and _same_scalar(source, target), f"the result has the shape {expected}")


def constant_types(_module: Module, operation: Operation) -> None:
    """Checks that the operation has a value and no operands."""
    _counts(operation, 0, 1)
    _need(operation, "value" in operation.attributes, "it has a value")


def make_range_types(_module: Module, operation: Operation) -> None:
    """Checks that the result holds the integers from a start to an end."""
    _counts(operation, 0, 1)
    start, end = operation.attributes.get("start"), operation.attributes.get("end")
    _need(operation, isinstance(start, int) and isinstance(end, int), "it has a start and an end")
    assert isinstance(start, int)
    assert isinstance(end, int)
    _need(operation, operation.result.type.shape == (end - start,), "the result has end - start elements")


def for_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are bounds, a step, and the values that the loop carries."""
    _need(operation, len(operation.operands) >= 3, "it takes bounds and a step")
    carried = [value.type for value in operation.operands[3:]]
    _need(
        operation, [value.type for value in operation.results] == carried, "results have the types of what it carries"
    )
    _need(operation, len(operation.regions) == 1 and len(operation.regions[0].blocks) == 1, "it has one block")
    block = operation.regions[0].blocks[0]
    _need(operation, [value.type for value in block.arguments[1:]] == carried, "the block takes what the loop carries")
    _yields(operation, block, carried)


def _yields(operation: Operation, block: Block, types: list[Type]) -> None:
    _need(operation, [value.type for value in block.operations[-1].operands] == types, "what is yielded fits")


def if_types(_module: Module, operation: Operation) -> None:
    """Checks that the operand is a condition and that there are one or two regions."""
    _need(operation, [value.type for value in operation.operands] == [Type("i1")], "its condition is i1")
    types = [value.type for value in operation.results]
    _need(operation, 1 <= len(operation.regions) <= 2, "it has a then and an else region")
    filled = [region for region in operation.regions if region.blocks]
    _need(operation, len(filled) == 2 or not types, "with results, both regions are there")
    for region in filled:
        _yields(operation, region.blocks[0], types)


def while_types(_module: Module, operation: Operation) -> None:
    """Checks the two regions of a loop: the first decides whether to continue, the second is repeated."""
    _need(
        operation,
        len(operation.regions) == 2 and all(region.blocks for region in operation.regions),
        "it has two regions",
    )
    before, after = (region.blocks[0] for region in operation.regions)
    carried, results = [value.type for value in operation.operands], [value.type for value in operation.results]
    _need(operation, [value.type for value in before.arguments] == carried, "the first region takes what is carried")
    _need(operation, [value.type for value in after.arguments] == results, "the second region takes the results")
    ends = before.operations[-1]
    fits = [value.type for value in ends.operands] == [Type("i1"), *results] and ends.name == "scf.condition"
    _need(operation, fits, "the condition passes the results on")
    _yields(operation, after, carried)


def branch_types(_module: Module, operation: Operation) -> None:
    """Checks that each successor receives the arguments of its block."""
    expected = 1 if operation.name == "cf.br" else 2
    _need(operation, len(operation.successors) == expected, f"it has {expected} successors")
    if operation.name == "cf.cond_br":
        groups = operation.operand_segments()
        _need(
            operation,
            len(groups) == 3 and sum(map(len, groups)) == len(operation.operands),
            "its operands come in 3 groups",
        )
        _need(operation, [value.type for value in groups[0]] == [Type("i1")], "its condition is i1")
    for index, block in enumerate(operation.successors):
        passed = [value.type for value in operation.successor_operands(index)]
        _need(operation, passed == [value.type for value in block.arguments], "each block gets its arguments")


def func_types(module: Module, operation: Operation) -> None:
    """Checks that the operation is a function of the module."""
    _counts(operation, 0, 0)
    returned = _returned(operation)
    _need(operation, all(types == returned[0] for types in returned), "all its returns give values of the same types")
    kernel = operation is module.entry
    _need(operation, not kernel or not any(returned), "a kernel gives no values")


def _returned(function: Operation) -> list[list[Type]]:
    """The types of the values of each of a function's returns."""
    ends = (block.operations[-1] for block in function.regions[0].blocks)
    return [[value.type for value in end.operands] for end in ends if end.name == "tt.return"]


def call_types(module: Module, operation: Operation) -> None:
    """Checks that operands and results are the arguments and returned values of the called function."""
    callee = module.functions.get(operation.callee)
    _need(operation, callee is not None, "the function it calls is in the module")
    assert callee is not None
    arguments = [value.type for value in callee.regions[0].blocks[0].arguments]
    _need(operation, [value.type for value in operation.operands] == arguments, "it passes what the function takes")
    returned = (_returned(callee) or [[]])[0]
    _need(operation, [value.type for value in operation.results] == returned, "it gets what the function gives")


def program_types(_module: Module, operation: Operation) -> None:
    """Checks that the result is a position in the grid, or the grid's extent."""
    _counts(operation, 0, 1)
    _need(operation, operation.result.type == Type("i32"), "a place in the grid is an i32")


def assert_types(_module: Module, operation: Operation) -> None:
    """Checks that the operand is a condition."""
    _counts(operation, 1, 0)
    _need(operation, operation.operands[0].type.element == "i1", "its condition is i1")


def no_values(_module: Module, operation: Operation) -> None:
    """Checks that the operation has neither operands nor results."""
    _counts(operation, 0, 0)


def poison_types(_module: Module, operation: Operation) -> None:
    """Checks that the result is a value of any type."""
    _counts(operation, 0, 1)


def assume_types(_module: Module, operation: Operation) -> None:
    """Checks that the operand is a condition; attributes may accompany it."""
    _need(operation, operation.operands and not operation.results, "it takes a condition")
    _need(operation, operation.operands[0].type == Type("i1"), "its condition is i1")


def foreign_types(_module: Module, operation: Operation) -> None:
    """Checks that operands and results of a function or an instruction have one shape; element types may differ."""
    shapes = {(value.type.shape, value.type.tensor) for value in (*operation.operands, *operation.results)}
    _need(operation, len(shapes) <= 1, "operands and results have one shape")


def print_types(_module: Module, operation: Operation) -> None:
    """Checks that the operation has no result; operands may have any type."""
    _need(operation, not operation.results, "it has no result")


def atomic_load_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a pointer and an optional mask."""
    _need(operation, 1 <= len(operation.operands) <= 2 and len(operation.results) == 1, "it takes pointer and mask")
    pointer = operation.operands[0].type
    _need(operation, pointer.pointer and _pointee(pointer) == operation.result.type, "what is loaded lies there")
    _mask(operation, tuple(operation.operands[1:]), pointer)


def atomic_poll_types(_module: Module, operation: Operation) -> None:
    """Checks that the operands are a pointer, the awaited value, and an optional time limit."""
    _need(operation, 2 <= len(operation.operands) <= 3, "it takes pointer, what is expected, and a time")
    _need(operation, len(operation.results) == 1, "it has a result")
    pointer, expected = (value.type for value in operation.operands[:2])
    _need(operation, pointer.pointer and _pointee(pointer) == expected, "what is expected may lie there")
    flags = Type("i1", expected.shape, expected.tensor)
    _need(operation, operation.result.type == flags, "the result has one i1 per pointer")
    times = [value.type for value in operation.operands[2:]]
    _need(operation, all(kind == Type("i64") for kind in times), "the time is an i64")
