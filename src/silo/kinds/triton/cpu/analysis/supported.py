"""Finds every operation that the CPU compiler does not support, before the kernel is scheduled."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from silo.errors import UnsupportedError
from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.value_properties import combining_operation
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.attribute_rules import OWN
from silo.kinds.triton.front.operations.cpu.c_types import C_TYPES
from silo.kinds.triton.front.operations.further_dialects import FENCE, VOLATILE_LOAD
from silo.kinds.triton.front.operations.operation_table import OPERATIONS, foreign_reason
from silo.kinds.triton.front.ssa import Module, Operation

__all__ = ["check_supported", "refuse_depth", "unsupported_operations"]


def unsupported_operations(module: Module) -> dict[tuple[str, str, str], int]:
    """Counts the operations that the CPU compiler does not support, by (operation, reason, location)."""
    counts: Counter[tuple[str, str, str]] = Counter()
    pending = list(module.functions.values())
    while pending:
        operation = pending.pop()
        reason = _refusal(operation)
        if reason:
            counts[operation.name, reason, operation.location] += 1
        # the region was checked together with the reduction
        elif operation.regions and not _is_plain_reduction(operation):
            pending.extend(op for region in operation.regions for block in region.blocks for op in block.operations)
    return dict(counts)


def check_supported(module: Module) -> None:
    """Raises ``UnsupportedError`` that lists every operation of ``module`` which the CPU compiler does not support."""
    unsupported = unsupported_operations(module)
    if not unsupported:
        return
    lines = [
        f"\n  - {name} x{count} at {location or 'unknown place'}: {reason}"
        for (name, reason, location), count in sorted(unsupported.items())
    ]
    total = sum(unsupported.values())
    raise UnsupportedError(
        f"kernel {module.kernel!r} uses {total} operation{'s' if total > 1 else ''} that the CPU target cannot express;"
        f" rewrite {'them' if total > 1 else 'it'} or leave the CPU out of the targets:" + "".join(lines)
    )


def _is_plain_reduction(operation: Operation) -> bool:
    return operation.name == tt.REDUCE and combining_operation(operation) is not None


def _refusal(operation: Operation) -> str:
    for value in [*operation.operands, *operation.results]:
        if value.type.element not in C_TYPES and not ops.has_c_type(value.type):
            return f"values of type {value.type.element}"
    record = OPERATIONS.get(operation.name)
    # A module that this compiler has already lowered in another mode contains the operations FENCE and VOLATILE_LOAD,
    # so these two are accepted.
    if record is None or (record.startswith(OWN) and record not in {FENCE, VOLATILE_LOAD}):
        return foreign_reason(operation.name)
    return ops.refusal(operation) if record.refuse is None else record.refuse(operation)


@contextmanager
def refuse_depth() -> Generator[None]:
    """A context manager that refuses a kernel whose loops, branches and regions nest too deep for Python's stack.

    Raises:
        UnsupportedError: Python's recursion limit was reached.
    """
    try:
        yield
    except RecursionError:
        raise UnsupportedError(
            "the loops and branches of the kernel are nested too deep for Python's stack "
            f"(sys.getrecursionlimit() is {sys.getrecursionlimit()}): raise the limit, or nest them less"
        ) from None
