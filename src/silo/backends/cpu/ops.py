"""Every elementwise operation as a C expression over scalars.

The modules ``ops_arith``, ``ops_cast``, ``ops_math`` and ``ops_libdevice`` hold the expressions and say how each
undefined case is defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from silo.backends.cpu.ops_arith import ARITH
from silo.backends.cpu.ops_call import Call, RefusedError, Renderer
from silo.backends.cpu.ops_cast import CASTS
from silo.backends.cpu.ops_inline import inline_renderer
from silo.backends.cpu.ops_libdevice import extern_renderer
from silo.backends.cpu.ops_math import MATH
from silo.backends.cpu.ops_types import c_type, element_bytes, has_c_type, literal, zero
from silo.errors import UnsupportedError
from silo.sources.triton.ssa import Operation, Type

__all__ = [
    "SUPPORTED",
    "c_type",
    "element_bytes",
    "has_c_type",
    "is_cheap",
    "literal",
    "refusal",
    "runtime_pieces",
    "scalar_expression",
    "zero",
]

_RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        **ARITH,
        **CASTS,
        **MATH,
        "tt.elementwise_inline_asm": inline_renderer,
        "tt.extern_elementwise": extern_renderer,
    }
)

# Operations whose every operand and result has one element per index: the ones :func:`scalar_expression` knows.
SUPPORTED: frozenset[str] = frozenset(_RENDERERS)

_DEAR = frozenset(
    {
        "arith.divf",
        "arith.remf",
        "arith.addf",
        "arith.subf",
        "arith.mulf",
        "arith.divui",
        "arith.remui",
        "arith.floordivsi",
        "arith.ceildivsi",
        "tt.precise_divf",
        "tt.mulhiui",
        "tt.fp_to_fp",
        "tt.clampf",
        "arith.truncf",
        "arith.fptosi",
        "arith.fptoui",
        "math.ctlz",
        "math.cttz",
    }
)
_CHEAP: frozenset[str] = frozenset({*ARITH, *CASTS}) - _DEAR


def scalar_expression(op: Operation, operands: Sequence[str], operand_types: Sequence[Type], result_type: Type) -> str:
    """The C expression of one element of ``op``'s result.

    Each operand is used at most once, so an operand may be any expression without side effects. Values have the C types
    of ``ops_types.C_TYPES``. Tensor types are read as their elements. ``UnsupportedError`` says why there is none.
    """
    return _render(op, operands, operand_types, result_type)[0]


def runtime_pieces(op: Operation) -> set[str]:
    """The runtime pieces that the expression of ``op`` calls into."""
    placeholders = [f"x{index}" for index in range(len(op.operands))]
    return _render(op, placeholders, [value.type for value in op.operands], op.result.type)[1]


def refusal(op: Operation) -> str:
    """Why ``op`` has no expression, or "" where it has one."""
    if len(op.results) != 1:
        return f"it gives {len(op.results)} values; only operations that give one are known"
    try:
        runtime_pieces(op)
    except UnsupportedError as error:
        return str(error).removeprefix(f"{op.name}: ")
    return ""


def is_cheap(name: str) -> bool:
    """Whether computing the operation again costs no more than storing and loading its result.

    >>> is_cheap("arith.addi"), is_cheap("math.exp")
    (True, False)
    """
    return name in _CHEAP


def _render(op: Operation, operands: Sequence[str], types: Sequence[Type], result: Type) -> tuple[str, set[str]]:
    renderer = _RENDERERS.get(op.name)
    if renderer is None:
        raise UnsupportedError(f"{op.name}: not an elementwise operation that the CPU knows")
    call = Call(op, operands, types, result)
    try:
        text = renderer(call)
    except RefusedError as refused:
        raise UnsupportedError(f"{op.name}: {refused}") from None
    except IndexError:
        raise UnsupportedError(f"{op.name}: it needs more than {len(operands)} operands") from None
    return text, call.pieces
