"""Numerics of a kernel, read from its SSA form: the order of each sum, and the expression of each stored value.

Where a kernel computes every element by itself, block sizes only say which program computes it. Where it sums, they say
in which order, and rounding makes other bits of another order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from silo.core.code_facts import Numerics
from silo.core.values import digest
from silo.kinds.triton.front.operations import arith
from silo.kinds.triton.front.operations.operation_record import Family, OperationRecord
from silo.kinds.triton.front.operations.operation_table import OPERATIONS, family_of
from silo.kinds.triton.front.ssa import Attribute, Dense, Module, Operation, Value

__all__ = ["numerics_of"]

_FLOAT = re.compile(r"b?f\d+\w*")
# Attributes that say how something is laid out or cached.
_NO_MATTER = frozenset(("cache", "evict", "isVolatile", "operandSegmentSizes", "resultSegmentSizes"))


@dataclass(frozen=True, slots=True)
class _Known:
    """A value as a digest; ``data``: it comes from what memory or floating-point arguments hold, not from positions."""

    text: str
    data: bool


_POSITION = _Known("position", data=False)


def numerics_of(module: Module) -> Numerics:
    """The numerics of a module's kernel; functions it calls count as part of it."""
    counts = Counter(record.order for _, record in _recorded(module) if record.order)
    carried = sum(_carries(one, record) for one, record in _recorded(module))
    if carried:
        counts["loop or call that carries values"] = carried
    ordered = tuple(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items())
    known = {
        value: _Known(f"argument {index}", data=value.type.pointer or _is_float(value))
        for index, value in enumerate(module.entry.regions[0].blocks[0].arguments)
    }
    return Numerics(ordered, frozenset(_stored(module.entry, known)))


def _is_float(value: Value) -> bool:
    return not value.type.pointer and _FLOAT.fullmatch(value.type.element) is not None


def _recorded(module: Module) -> Iterator[tuple[Operation, OperationRecord]]:
    for operation in module.walk():
        record = OPERATIONS.get(operation.name)
        if record is not None:
            yield operation, record


def _carries(operation: Operation, record: OperationRecord) -> bool:
    """Whether floating-point values go round a loop, from block to block, or into a function."""
    if record.family is Family.LOOP:
        return any(_is_float(result) for result in operation.results)
    return record.carries and any(_is_float(value) for value in (*operation.operands, *operation.results))


def _stored(operation: Operation, known: dict[Value, _Known]) -> Iterator[str]:
    """Goes through what is inside an operation; ``known`` gets every value on the way."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _stored(inner, known)
                if family_of(inner) is Family.STORE:
                    target, *rest = (known.get(value, _POSITION) for value in inner.operands)
                    yield digest("store", [inner.name, target.text, *(one.text for one in rest if one.data)])
                found = _result(inner, known)
                known.update((result, found) for result in inner.results)


def _result(operation: Operation, known: Mapping[Value, _Known]) -> _Known:
    """What all results of an operation are."""
    operands = [known.get(value, _POSITION) for value in operation.operands]
    if operation.name == arith.CONSTANT:
        return _Known(f"constant {_plain(operation.attributes.get('value', ''))}", data=_is_float(operation.result))
    record = OPERATIONS.get(operation.name)
    loads = record is not None and record.family is Family.LOAD
    if record is not None and record.moves and operands and not any(one.data for one in operands[1:]):
        return operands[0]
    inside = [
        known.get(value, _POSITION)
        for region in operation.regions
        for block in region.blocks
        for value in (block.operations[-1].operands if block.operations else ())
    ]
    if not loads and not any(one.data for one in (*operands, *inside)):
        return _POSITION
    attributes = {name: _plain(one) for name, one in operation.attributes.items() if name not in _NO_MATTER}
    types = [value.type.element for value in operation.results]
    parts = [one.text for one in (*operands, *inside)]
    if loads:
        parts = [operands[0].text, *(one.text for one in operands[1:] if one.data)]
    return _Known(digest("value", [operation.name, types, attributes, parts]), data=True)


def _plain(attribute: Attribute) -> str:
    """An attribute as text, without the shape of a constant."""
    if isinstance(attribute, Dense):
        return repr(attribute.splat if attribute.splat is not None else attribute.values)
    return repr(attribute)
