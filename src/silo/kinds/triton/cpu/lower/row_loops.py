"""Loops over adjacent tiles, turned inside out: each row goes through all iterations before the next row starts.

A loop that sums adjacent tiles of some rows reads a short part of each row in every iteration. If no iteration uses
values of another row, the loop over rows can be the outer one, and memory is then read in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from silo.kinds.triton.cpu.analysis.affine import unit_axis
from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, load_parts, scalar_source
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.schedule.block_schedule import Carried
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.further_dialects import VOLATILE_LOAD
from silo.kinds.triton.front.operations.operation_table import DOTS, EFFECTS, VIEWS, WRITES
from silo.kinds.triton.front.ssa import Block, Operation, Value

__all__ = ["all_statements", "buffers_in", "goes_along_rows", "rows_outside", "texts_of"]

_Number = float | int | None
_FEWEST = 2  # the fewest rows to compute together
_MOST_SHARED = 16  # the most statements of an iteration that run again for each row
# operations for which the iterations must run in their original order
_IN_ORDER = EFFECTS | WRITES | DOTS | {VOLATILE_LOAD, tt.CALL}
_AHEAD = "silo_ahead("  # a prefetch of the next tile's rows, which is not needed if rows are read in order
_BUFFER = re.compile(r"\b(b[0-9]+)\b(\[[^\[\]]*\])?")
_PLACE = re.compile(r"\[(?:(\w+)|\((\w+)\) \* ([0-9]+) \+ \w+)\]")


def goes_along_rows(loop: Operation, carried: Sequence[Carried]) -> bool:
    """Whether each iteration of an ``scf.for`` reads tiles that follow the previous iteration's tiles along their rows.

    The new tiles must begin where the previous ones end.
    """
    if any(entry.kind == "scalar" for entry in carried):
        return False
    block = loop.regions[0].blocks[0]
    advances = {block.arguments[0]: constant_scalar(loop.operands[2])}
    starts: dict[Value, Value] = {}
    for entry in carried:
        if entry.kind == "offset" and entry.step is not None:
            advances[entry.argument] = constant_scalar(entry.step)
            starts[entry.argument] = entry.initial
    reads_tiles = False
    for operation in block.operations:
        if (operation.regions and operation.name != tt.REDUCE) or operation.name in _IN_ORDER:
            return False
        if operation.name != tt.LOAD or len(operation.result.type.shape) < 2:
            continue
        pointer, shape = load_parts(operation)[0], operation.result.type.shape
        if len(shape) > 2 or unit_axis(starts.get(pointer, pointer)) != 1:
            return False
        if _advance(pointer, block, advances) != shape[1]:
            return False
        reads_tiles = True
    return reads_tiles


def _advance(value: Value, block: Block, advances: Mapping[Value, _Number]) -> _Number:
    """The number of elements by which ``value`` moves in each iteration of the loop around ``block``.

    None if unknown.
    """
    numbers = dict(advances)
    pending = [value]
    while pending:
        current = pending[-1]
        operation = current.owner
        if current in numbers:
            pending.pop()
        elif operation is None or operation.block is not block or not operation.operands:
            # Other arguments of this block change in unknown ways; values from outside stay the same.
            numbers[current] = None if current.block is block else 0
        elif missing := [operand for operand in operation.operands if operand not in numbers]:
            pending.extend(missing)
        else:
            numbers[current] = _moved(operation, [numbers[operand] for operand in operation.operands])
    return numbers[value]


def _moved(operation: Operation, parts: list[_Number]) -> _Number:
    if operation.name in VIEWS or operation.name == arith.EXTSI:
        return parts[0]
    if all(part == 0 for part in parts):
        return 0
    if operation.name in {arith.ADDI, tt.ADDPTR, arith.SUBI}:
        left, right = parts
        if left is None or right is None:
            return None
        return left - right if operation.name == arith.SUBI else left + right
    if operation.name == arith.MULI:
        for part, factor in zip(parts, reversed(operation.operands), strict=True):
            source = scalar_source(factor)
            number = constant_scalar(source if source is not None else factor)
            if part is not None and number is not None:
                return part * number
    return None


def rows_outside(body: Sequence[Statement], buffers: Iterable[LoopBuffer], row: str) -> tuple[str, list[Statement]]:
    """The number of rows as a C text, and the statements of an iteration for the single row ``row``.

    The number is "" if an iteration does more than compute rows independently of each other.
    """
    rows = next((statement.end for statement in body if isinstance(statement, For)), "")
    if not rows.isdigit() or int(rows) < _FEWEST:
        return "", []
    elements = {buffer.name: buffer.elements for buffer in buffers}
    written = {name for statement in body for name in _written(statement)}
    result: list[Statement] = []
    shared = 0
    for statement in body:
        match statement:
            case Define(_, _, _, False):
                if any(name in written for text in texts_of([statement]) for name, _ in _BUFFER.findall(text)):
                    return "", []
                shared += 1
                result.append(statement)
            case For(variable, "0", end, inner, "1") if end == rows and not statement.reductions:
                statements = _without_prefetches(inner)
                if statements is None or not _by_row(statements, variable, int(rows), written, elements):
                    return "", []
                result += [Define(statement.ctype, variable, row), *statements]
            case _:
                return "", []
    return (rows, result) if shared <= _MOST_SHARED else ("", [])


def _written(statement: Statement) -> Iterator[str]:
    """The names of the buffers that a statement writes."""
    for nested in all_statements([statement]):
        if isinstance(nested, Assign) and (match := _BUFFER.match(nested.target)):
            yield match[1]


def all_statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """The statements of ``body`` and of the loops and branches inside it."""
    for statement in body:
        yield statement
        if isinstance(statement, For):
            yield from all_statements(statement.body)
        elif isinstance(statement, If):
            yield from all_statements([*statement.then, *statement.otherwise])


def texts_of(body: Sequence[Statement]) -> Iterator[str]:
    """The C expressions of ``body``, except calls."""
    for statement in all_statements(body):
        match statement:
            case Define(_, _, value):
                yield value or ""
            case Assign(target, value, condition):
                yield from (target, value, condition)
            case For(_, start, end):
                yield from (start, end)
            case If(condition):
                yield condition
            case _:
                pass


def _without_prefetches(body: Sequence[Statement]) -> list[Statement] | None:
    """The statements of a row without calls that prefetch; None if there is any other call, which may have effects."""
    statements = [
        candidate for candidate in body if not (isinstance(candidate, LoopCall) and candidate.text.startswith(_AHEAD))
    ]
    return (
        statements
        if all(isinstance(statement, Define | Assign | For | If) for statement in all_statements(statements))
        else None
    )


def _by_row(body: Sequence[Statement], row: str, rows: int, written: set[str], elements: dict[str, int]) -> bool:
    """Whether the statements of a row depend on no other row.

    They write only variables and elements of their own row, and read no element that another row writes.
    """
    own = {statement.name for statement in all_statements(body) if isinstance(statement, Define)}
    for statement in all_statements(body):
        if isinstance(statement, Assign) and statement.target not in own and not _BUFFER.match(statement.target):
            return False
    for text in texts_of(body):
        for name, subscript in _BUFFER.findall(text):
            if name not in written:
                continue
            match = _PLACE.fullmatch(subscript)
            if match is None or name not in elements:
                return False
            alone, first, count = match.groups()
            if (alone or first) != row or (int(count) if count else 1) * rows != elements[name]:
                return False
    return True


def buffers_in(body: Sequence[Statement], buffers: Iterable[LoopBuffer]) -> list[LoopBuffer]:
    """The members of ``buffers`` that ``body`` names."""
    names = {name for text in texts_of(body) for name, _ in _BUFFER.findall(text)}
    return [buffer for buffer in buffers if buffer.name in names]
