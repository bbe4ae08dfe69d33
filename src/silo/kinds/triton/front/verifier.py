"""Verifies parsed modules, so that later passes can rely on a well-formed module."""

from __future__ import annotations

from silo.errors import SourceError
from silo.kinds.triton.front.operations.attribute_rules import check_attributes
from silo.kinds.triton.front.operations.operation_table import OPERATIONS
from silo.kinds.triton.front.operations.type_rules import malformed
from silo.kinds.triton.front.ssa import Block, Module, Operation, Region, Value

__all__ = ["verify"]


def verify(module: Module) -> None:
    """Checks that definitions come before uses, and checks terminators, attributes, and the types of known operations.

    Raises:
        SourceError: the first problem, with its operation and location.
    """
    for function in module.functions.values():
        if not function.regions or not function.regions[0].blocks:
            raise malformed(function, "a function has a body")
        _verify_region(function.regions[0], set())
    for operation in module.walk():
        record = OPERATIONS.get(operation.name)
        check_attributes(operation, None if record is None else record.attributes)
        if record is not None and record.types is not None:
            record.types(module, operation)
    _verify_calls(module)


def _verify_calls(module: Module) -> None:
    """Refuses functions that call themselves, directly or through others: nothing would limit the recursion."""
    calls = {symbol: set(module.callees(symbol)) for symbol in module.functions}
    while calls:
        leaves = {symbol for symbol, called in calls.items() if not called & calls.keys()}
        if not leaves:
            raise SourceError(f"malformed TTIR: these functions call themselves: {', '.join(sorted(calls))}")
        calls = {symbol: called for symbol, called in calls.items() if symbol not in leaves}


def _verify_region(region: Region, visible: set[Value]) -> None:
    """Checks one region.

    ``visible`` holds the values that enclosing regions define before it; it is unchanged afterwards.
    """
    dominators = _dominators(region) if len(region.blocks) > 1 else {}
    owner = region.owner
    defined: dict[Block, set[Value]] = {}
    for block in region.blocks:
        defined[block] = {*block.arguments, *(value for op in block.operations for value in op.results)}
    for block in region.blocks:
        visible_values = set(visible)
        for above in dominators.get(block, ()):
            if above is not block:
                visible_values |= defined[above]
        visible_values.update(block.arguments)
        if not block.operations or not _is_terminator(block.operations[-1]):
            last = block.operations[-1] if block.operations else owner
            assert last is not None  # every region of a parsed module has an owner
            raise malformed(last, "a block ends in a terminator")
        for operation in block.operations:
            _verify_operation(operation, visible_values, block)
            visible_values.update(operation.results)


def _verify_operation(operation: Operation, defined: set[Value], block: Block) -> None:
    for value in operation.operands:
        if value not in defined:
            raise malformed(operation, f"%{value.name} is not defined on every way here")
    if _is_terminator(operation):
        if operation is not block.operations[-1]:
            raise malformed(operation, "a terminator stands last in its block")
        owner = block.region.owner if block.region else None
        record = OPERATIONS.get(owner.name) if owner else None
        if record is not None and record.region_ends and operation.name not in record.region_ends:
            raise malformed(operation, f"a region of {record} ends in {' or '.join(record.region_ends)}")
    for successor in operation.successors:
        if successor.region is not block.region:
            raise malformed(operation, "a branch stays in its region")
    for region in operation.regions:
        _verify_region(region, defined)


def _is_terminator(operation: Operation) -> bool:
    record = OPERATIONS.get(operation.name)
    return record is not None and record.terminator


def _dominators(region: Region) -> dict[Block, set[Block]]:
    """The blocks that dominate each block. Unreachable blocks are dominated by all blocks, as in MLIR."""
    blocks = region.blocks
    predecessors: dict[Block, list[Block]] = {block: [] for block in blocks}
    for block in blocks:
        for successor in block.operations[-1].successors if block.operations else ():
            if successor in predecessors:
                predecessors[successor].append(block)
    everything = set(blocks)
    result = dict.fromkeys(blocks, everything)
    result[blocks[0]] = {blocks[0]}
    changed = True
    while changed:
        changed = False
        for block in blocks[1:]:
            sources = [result[before] for before in predecessors[block]]
            now = set[Block].intersection(*sources) if sources else set(everything)
            now.add(block)
            if now != result[block]:
                result[block] = now
                changed = True
    return result
