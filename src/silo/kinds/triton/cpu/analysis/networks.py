"""Finds sorting networks and exchanges of neighbours, which Triton writes as many operations, and joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from silo.kinds.triton.cpu.analysis.ssa_rewriting import cast, drop, replace, set_operand
from silo.kinds.triton.cpu.analysis.value_properties import combining_operation, constant_scalar, fold, is_unit_reshape
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.further_dialects import MIRROR, NETWORK
from silo.kinds.triton.front.operations.operation_table import VIEWS, is_arithmetic
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type, Value

__all__ = ["NO_FLIP", "SwapStep", "find_mirrors", "fold_networks", "steps_of"]

# ---- Finds the steps of sorting networks, and replaces each run of steps by one operation ----

NO_FLIP = 30  # the ``flip`` of a step whose order no bit reverses: this bit is clear in every index
_MOST_ELEMENTS = 1 << NO_FLIP
# Each narrow type, and the wider type whose values are sorted instead; the conversion is exact.
_NARROW = {"f16": "f32", "bf16": "f32", "i1": "i32", "i8": "i32", "i16": "i32"}
# The comparisons that mean "greater" (operation and predicate), and whether they compare as unsigned.
_GREATER: Mapping[tuple[str, int | bool], bool] = {
    (arith.CMPF, 2): False,
    (arith.CMPI, 4): False,
    (arith.CMPI, 8): True,
}
_PURE = VIEWS | {tt.MAKE_RANGE, tt.BITCAST}
# Operations whose result equals their operand (0 or 1, computed from indices), perhaps along other axes.
_PARITY = frozenset({tt.BROADCAST, tt.SPLAT, tt.EXPAND_DIMS, tt.RESHAPE, arith.EXTUI, arith.TRUNCI})

_Parity: TypeAlias = "tuple[int, frozenset[int]] | None"


@dataclass(frozen=True, slots=True)
class SwapStep:
    """One step of a sorting network: compares elements i and i ^ (1 << bit), and exchanges them if out of order.

    The order is ascending; it is reversed if bit ``flip`` of i is set, and reversed (again) if ``down`` is true.
    """

    bit: int
    flip: int
    down: bool


@dataclass(frozen=True, slots=True)
class _Found:
    source: Value
    step: SwapStep
    unsigned: bool


def steps_of(operation: Operation) -> tuple[tuple[SwapStep, ...], str]:
    """The steps of a sorting network, and the element type of its C function (``u32`` if it compares as unsigned)."""
    steps, unsigned = operation.attributes["steps"], operation.attributes["unsigned"]
    assert isinstance(steps, tuple)
    swaps: list[SwapStep] = []
    for step in steps:
        assert isinstance(step, tuple)
        bit, flip, down = step
        assert isinstance(bit, int)
        assert isinstance(flip, int)
        swaps.append(SwapStep(bit, flip, bool(down)))
    element = operation.result.type.element
    return tuple(swaps), f"u{element[1:]}" if unsigned else element


def fold_networks(module: Module) -> None:
    """Replaces the sorting networks of ``module`` by one operation each, in place."""
    blocks = [block for operation in module.walk() for region in operation.regions for block in region.blocks]
    for block in blocks:
        changed = False
        for operation in list(block.operations):
            step = _swap_step(operation)
            if step is not None:
                _put_network(block, operation, step)
                changed = True
        if changed:
            _drop_unused(block)
            _flatten(block)
            _widen(block)
            _drop_unused(block)


# ---- recognising a step


def _swap_step(select: Operation) -> _Found | None:
    if select.name != arith.SELECT or not select.result.type.tensor:
        return None
    condition, partner, own = select.operands
    shape = own.type.shape
    if condition.type.shape != shape or _log2(own.type.elements) is None or own.type.elements > _MOST_ELEMENTS:
        return None
    axis = _partner_axis(partner, own)
    compare = condition.owner
    if axis is None or compare is None or compare.name != arith.CMPI or compare.attributes["predicate"] != 1:
        return None
    for greater, turned in (compare.operands, reversed(compare.operands)):
        unsigned = _is_greater(greater, own, partner)
        parity = _parity(turned)
        if unsigned is None or parity is None or axis not in parity[1]:
            continue
        others = parity[1] - {axis}
        flips = [_bit(shape, other) for other in others]
        bit = _bit(shape, axis)
        if bit is None or None in flips or len(flips) > 1 or any(flip is not None and flip <= bit for flip in flips):
            return None
        flip = flips[0] if flips else None
        return _Found(own, SwapStep(bit, NO_FLIP if flip is None else flip, bool(parity[0])), unsigned)
    return None


def _partner_axis(partner: Value, own_value: Value) -> int | None:
    """The axis of extent 2 along which ``partner`` holds the neighbour of each element of ``own_value``.

    None if ``partner`` holds anything else.
    """
    exclusive = _through_bitcast(partner).owner
    if exclusive is None or exclusive.name != arith.XORI:
        return None
    bits = _through_bitcast(own_value)
    for operand, spread in (exclusive.operands, reversed(exclusive.operands)):
        if _through_bitcast(operand) is not bits:
            continue
        broadcast = spread.owner
        expand = broadcast.operands[0].owner if broadcast is not None and broadcast.name == tt.BROADCAST else None
        reduce = expand.operands[0].owner if expand is not None and expand.name == tt.EXPAND_DIMS else None
        if expand is None or reduce is None or reduce.name != tt.REDUCE or len(reduce.operands) != 1:
            continue
        axis = reduce.attributes["axis"]
        combining = combining_operation(reduce)
        same = _through_bitcast(reduce.operands[0]) is bits and expand.attributes["axis"] == axis
        if combining is not None and combining.name == arith.XORI and same and isinstance(axis, int):
            return axis if own_value.type.shape[axis] == 2 else None
    return None


def _through_bitcast(value: Value) -> Value:
    """The operand of the bitcast that makes ``value``; ``value`` itself if no bitcast makes it."""
    operation = value.owner
    if operation is not None and operation.name in {tt.BITCAST, arith.BITCAST} and not value.type.pointer:
        return operation.operands[0]
    return value


def _is_greater(value: Value, own_value: Value, partner: Value) -> bool | None:
    """Whether ``value`` compares ``own_value > partner`` as unsigned numbers; None if it is no such comparison."""
    operation = value.owner
    if operation is not None and operation.name == arith.EXTUI:
        operation = operation.operands[0].owner
    if operation is None or operation.operands != [own_value, partner]:
        return None
    predicate = operation.attributes.get("predicate")
    return _GREATER.get((operation.name, predicate)) if isinstance(predicate, int) else None


def _parity(root: Value) -> _Parity:
    """Reads ``root`` as a constant (0 or 1) exclusive-ored with the indices along some axes of extent 2.

    Returns the constant and the axes; None for any other value.
    """
    return fold(root, _parity_parts, _parity_of)


def _parity_parts(value: Value) -> list[Value]:
    operation = value.owner
    if operation is None or operation.name == tt.MAKE_RANGE or constant_scalar(value) is not None:
        return []
    is_pair = operation.name == arith.XORI or (operation.name == arith.CMPI and operation.attributes["predicate"] == 1)
    return operation.operands[: 2 if is_pair else 1] if operation.name in _PARITY or is_pair else []


def _parity_of(value: Value, parities: list[_Parity]) -> _Parity:
    constant = constant_scalar(value)
    if constant is not None:
        return (int(constant), frozenset()) if constant in {0, 1} else None
    operation = value.owner
    if operation is None:
        return None
    if operation.name == tt.MAKE_RANGE:
        is_pair = (operation.attributes["start"], operation.attributes["end"]) == (0, 2)
        return (0, frozenset({0})) if is_pair else None
    pairs = [parity for parity in parities if parity is not None]
    if not pairs or len(pairs) != len(parities):
        return None
    constant, axes = pairs[0]
    match operation.name:
        case tt.EXPAND_DIMS:
            added = operation.attributes["axis"]
            assert isinstance(added, int)
            return constant, frozenset(axis + (axis >= added) for axis in axes)
        case tt.RESHAPE:
            if not is_unit_reshape(operation):
                return None
            places = [axis for axis, extent in enumerate(operation.operands[0].type.shape) if extent != 1]
            after = [axis for axis, extent in enumerate(operation.result.type.shape) if extent != 1]
            return constant, frozenset(after[places.index(axis)] for axis in axes)
        case _:
            other, others = pairs[1] if len(pairs) > 1 else (0, frozenset[int]())
            return constant ^ other, axes ^ others


def _bit(shape: tuple[int, ...], axis: int) -> int | None:
    """The number of the bit of the row-major index that equals the index along ``axis``; None if no bit does."""
    stride = 1
    for extent in shape[axis + 1 :]:
        stride *= extent
    return _log2(stride) if shape[axis] == 2 else None


def _log2(number: int) -> int | None:
    return number.bit_length() - 1 if number > 0 and number & (number - 1) == 0 else None


# ---- rewriting


def _put_network(block: Block, select: Operation, found_network: _Found) -> None:
    """Replaces ``select`` by a sorting network of one step."""
    steps = ((found_network.step.bit, found_network.step.flip, found_network.step.down),)
    source = found_network.source
    result = Value(select.result.name, select.result.type)
    network = Operation(NETWORK, [source], [result], {"steps": steps, "unsigned": found_network.unsigned}, block=block)
    network.location = select.location
    result.owner = network
    source.uses.append(network)
    block.operations.insert(block.operations.index(select), network)
    replace(select.result, result)
    drop(block, select)


def _is_pure(operation: Operation) -> bool:
    if operation.name == tt.REDUCE:
        return combining_operation(operation) is not None
    return operation.name in _PURE or is_arithmetic(operation.name)


def _drop_unused(block: Block) -> None:
    """Removes the operations whose results became unused, and joins sorting networks that follow each other."""
    for operation in list(reversed(block.operations)):
        if _is_pure(operation) and not any(result.uses for result in operation.results):
            drop(block, operation)
    for operation in list(block.operations):
        before = operation.operands[0].owner if operation.name == NETWORK else None
        if before is None or before.name != NETWORK or before.block is not block or len(before.result.uses) != 1:
            continue
        if before.attributes["unsigned"] != operation.attributes["unsigned"]:
            continue
        first, second = before.attributes["steps"], operation.attributes["steps"]
        assert isinstance(first, tuple)
        assert isinstance(second, tuple)
        operation.attributes["steps"] = (*first, *second)
        source = before.operands[0]
        replace(before.result, source)
        drop(block, before)


def _flatten(block: Block) -> None:
    """Moves views with a shape of 2 x 2 x ... from before sorting networks to after them.

    So the networks sort the original shape. Views of views are merged.
    """
    for network in [operation for operation in block.operations if operation.name == NETWORK]:
        source, result = network.operands[0], network.result
        view = source.owner
        if view is None or view.name != tt.RESHAPE:
            continue
        flat = view.operands[0]
        set_operand(network, 0, flat)
        network.results[0] = Value(f"{result.name}_flat", flat.type, network)
        replace(result, cast(block, tt.RESHAPE, network.result, result.type, network, after=True))
    for operation in [operation for operation in block.operations if operation.name == tt.RESHAPE]:
        inner = operation.operands[0].owner
        if inner is None or inner.name != tt.RESHAPE:
            continue
        source = inner.operands[0]
        if source.type.shape == operation.result.type.shape:
            replace(operation.result, source)
        else:
            set_operand(operation, 0, source)


def _widen(block: Block) -> None:
    """Converts the operands of sorting networks of narrow types to a wider type that represents every value exactly."""
    for network in [operation for operation in block.operations if operation.name == NETWORK]:
        source, result = network.operands[0], network.result
        wide = _NARROW.get(source.type.element)
        if wide is None:
            continue
        floats = wide == "f32"
        extend = arith.EXTF if floats else (arith.EXTUI if network.attributes["unsigned"] else arith.EXTSI)
        type_ = Type(wide, source.type.shape, tensor=True)
        before = cast(block, extend, source, type_, network, after=False)
        set_operand(network, 0, before)
        sorted_ = Value(f"{result.name}_wide", type_, network)
        network.results[0] = sorted_
        narrow = cast(block, arith.TRUNCF if floats else arith.TRUNCI, sorted_, result.type, network, after=True)
        replace(result, narrow)


# ---- Finds elements exchanged with their neighbours, which Triton writes with exclusive or ----


def find_mirrors(module: Module) -> None:
    """Replaces operations that exchange neighbouring elements by ``silo.mirror``, in place."""
    for operation in module.walk():
        if operation.name != arith.XORI:
            continue
        for value, folded in (operation.operands, reversed(operation.operands)):
            reduce = _folded(folded, value)
            if reduce is not None:
                _replace(operation, value, reduce)
                break


def _folded(value: Value, source: Value) -> Operation | None:
    """The reduction whose result, broadcast again along the reduced axis, is ``value``.

    None if ``value`` is anything else.
    """
    spread = value.owner
    if spread is None or spread.name != tt.BROADCAST:
        return None
    expand = spread.operands[0].owner
    if expand is None or expand.name != tt.EXPAND_DIMS:
        return None
    reduce = expand.operands[0].owner
    if reduce is None or reduce.name != tt.REDUCE or reduce.operands != [source]:
        return None
    combining, axis = combining_operation(reduce), reduce.attributes["axis"]
    assert isinstance(axis, int)
    exclusive = combining is not None and combining.name == arith.XORI
    return reduce if exclusive and expand.attributes["axis"] == axis and source.type.shape[axis] == 2 else None


def _replace(operation: Operation, value: Value, reduce: Operation) -> None:
    dropped = [operand for operand in operation.operands if operand is not value]
    operation.name = MIRROR
    operation.operands = [value]
    operation.attributes = {"axis": reduce.attributes["axis"]}
    for operand in dropped:
        operand.uses.remove(operation)
        _neighbour_exchange_drop_unused(operand)


def _neighbour_exchange_drop_unused(root: Value) -> None:
    """Removes the operations that compute ``root`` (views and the reduction), if nothing else uses them."""
    pending = [root]
    while pending:
        operation = pending.pop().owner
        if operation is None or any(result.uses for result in operation.results):
            continue
        if operation.name not in {tt.BROADCAST, tt.EXPAND_DIMS, tt.REDUCE}:
            continue
        block = operation.block
        assert isinstance(block, Block)
        block.operations.remove(operation)
        for operand in operation.operands:
            operand.uses.remove(operation)
        pending.extend(operation.operands)
