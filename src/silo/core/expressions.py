"""The one small language: integer expressions over arguments, config values and device facts.

Its trees are in :mod:`silo.core.nodes`, its form for C in :mod:`silo.core.postfix_programs`, and the way from a
Python function
to it in :mod:`silo.core.trace`. This module names them all.
"""

from silo.core.nodes import (
    INT64_MAX,
    INT64_MIN,
    MAX_DEPTH,
    Argument,
    Bindings,
    ConfigValue,
    Const,
    DeviceFact,
    Extent,
    ItemSize,
    Leaf,
    Node,
    Op,
    OpKind,
    Stride,
    evaluate,
    from_json,
    leaves,
    make,
    substitute,
    to_json,
)
from silo.core.postfix_programs import MAX_STACK, EvalError, Instruction, Opcode, PostfixProgram, encode

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "MAX_DEPTH",
    "MAX_STACK",
    "Argument",
    "Bindings",
    "ConfigValue",
    "Const",
    "DeviceFact",
    "EvalError",
    "Extent",
    "Instruction",
    "ItemSize",
    "Leaf",
    "Node",
    "Op",
    "OpKind",
    "Opcode",
    "PostfixProgram",
    "Stride",
    "encode",
    "evaluate",
    "from_json",
    "leaves",
    "make",
    "substitute",
    "to_json",
]
