"""Programs: expressions as the postfix instructions that ``native/core/expression.c`` runs.

An instruction is 16 bytes, ``{int32_t opcode; int32_t b; int64_t a;}``, in the machine's byte order. Jumps go forward
only and count instructions from the next one, so every program ends.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from silo.core.nodes import Argument, Const, DeviceFact, Extent, ItemSize, Leaf, Node, Op, OpKind, Stride
from silo.errors import ExpressionError
from silo.frozen import frozen

__all__ = ["MAX_STACK", "EvalError", "Instruction", "Opcode", "PostfixProgram", "encode"]

# Values on the evaluator's stack at one time (SILO_EXPRESSION_STACK in C).
MAX_STACK = 32


class Opcode(IntEnum):
    """The operations; ``native/core/expression.h`` has the same numbers (``SILO_OP_...``)."""

    CONST = 0  # push a
    ARGUMENT = 1  # push the value of slot b
    EXTENT = 2  # push shape[a] of slot b
    STRIDE = 3  # push strides[a] of slot b
    ITEMSIZE = 4  # push the bytes per element of slot b
    ADD = 5
    SUB = 6
    MUL = 7
    FLOORDIV = 8
    MOD = 9
    CDIV = 10
    MIN = 11
    MAX = 12
    NEG = 13
    EQ = 14
    NE = 15
    LT = 16
    LE = 17
    GT = 18
    GE = 19
    NOT = 20
    BOOL = 21  # 0 stays 0, anything else becomes 1
    NEXT_POW2 = 22
    JUMP = 23  # skip b instructions
    JUMP_IF_ZERO = 24  # pop; if it was 0 skip b instructions
    CDIV_ARGUMENT = 25  # push the value of slot b divided by a, rounded up: the usual grid in one step


class EvalError(IntEnum):
    """What ``silo_expression_eval`` returns (``SILO_EXPRESSION_...``); 0 is success."""

    OK = 0
    OVERFLOW = 1  # a result outside 64 bits
    DIVISION = 2  # division by zero
    PROGRAM = 3  # not a program: unknown opcode, stack or jump out of bounds
    SLOT = 4  # a slot that does not exist, or lacks a shape or strides
    AXIS = 5  # an axis that the array does not have


class Instruction(NamedTuple):
    """One instruction."""

    opcode: Opcode
    a: int = 0
    b: int = 0


_BINARY = {
    OpKind.ADD: Opcode.ADD,
    OpKind.SUB: Opcode.SUB,
    OpKind.MUL: Opcode.MUL,
    OpKind.FLOORDIV: Opcode.FLOORDIV,
    OpKind.MOD: Opcode.MOD,
    OpKind.CDIV: Opcode.CDIV,
    OpKind.MIN: Opcode.MIN,
    OpKind.MAX: Opcode.MAX,
    OpKind.EQ: Opcode.EQ,
    OpKind.NE: Opcode.NE,
    OpKind.LT: Opcode.LT,
    OpKind.LE: Opcode.LE,
    OpKind.GT: Opcode.GT,
    OpKind.GE: Opcode.GE,
}
_UNARY = {OpKind.NEG: Opcode.NEG, OpKind.NOT: Opcode.NOT, OpKind.NEXT_POW2: Opcode.NEXT_POW2}


@frozen
class PostfixProgram:
    """Instructions, and the most values they have on the stack at one time."""

    instructions: tuple[Instruction, ...]
    max_stack: int

    def to_bytes(self) -> bytes:
        """An array of ``silo_instruction``."""
        return b"".join(struct.pack("=iiq", one.opcode, one.b, one.a) for one in self.instructions)


def encode(node: Node, slots: Mapping[str, int]) -> PostfixProgram:
    """The program of an expression over arguments; ``slots`` numbers them.

    Config values and device facts must have been put in (:func:`~silo.core.nodes.substitute`). ``ExpressionError``
    names a leaf without a slot, and an expression that needs more than :data:`MAX_STACK` values at one time.

    >>> encode(Op(OpKind.CDIV, (Argument("n"), Const(128))), {"n": 3}).instructions
    (Instruction(opcode=<Opcode.CDIV_ARGUMENT: 25>, a=128, b=3),)
    """
    instructions: list[Instruction] = []
    max_stack = _encode(node, slots, instructions)
    if max_stack > MAX_STACK:
        raise ExpressionError(
            f"an expression needs {max_stack} values at one time and the limit is {MAX_STACK}: compute part of it"
            f" beforehand, or put the deeper operand first: {node}"
        )
    return PostfixProgram(tuple(instructions), max_stack)


def _encode(node: Node, slots: Mapping[str, int], out: list[Instruction]) -> int:
    """Append the instructions; returns the number of stack values that they need."""
    if isinstance(node, Const):
        out.append(Instruction(Opcode.CONST, node.value))
        return 1
    if not isinstance(node, Op):
        out.append(_leaf(node, slots))
        return 1
    match node.kind, node.operands:
        case OpKind.CDIV, (Argument() as argument, Const(divisor)) if divisor != 0:
            out.append(Instruction(Opcode.CDIV_ARGUMENT, divisor, _leaf(argument, slots).b))
            return 1
        case OpKind.SELECT, (condition, yes, no):
            return max(_encode(condition, slots, out), _branches(slots, out, yes, no))
        case OpKind.AND, (left, right):
            return max(_encode(left, slots, out), _branches(slots, out, right, Const(0), truth=True))
        case OpKind.OR, (left, right):
            out_size = _encode(left, slots, out)
            return max(out_size, _branches(slots, out, Const(1), right, truth=True))
        case kind, (operand,):
            size = _encode(operand, slots, out)
            out.append(Instruction(_UNARY[kind]))
            return size
        case kind, operands:
            sizes = [_encode(operand, slots, out) for operand in operands]
            out.append(Instruction(_BINARY[kind]))
            return max(size + index for index, size in enumerate(sizes))


def _branches(slots: Mapping[str, int], out: list[Instruction], yes: Node, no: Node, *, truth: bool = False) -> int:
    """``yes`` if the value on top of the stack is not 0, else ``no``; as 0 or 1 if only the truth is needed."""
    to_no = len(out)
    out.append(Instruction(Opcode.JUMP_IF_ZERO))
    size = _branch(yes, slots, out, truth=truth)
    to_end = len(out)
    out.append(Instruction(Opcode.JUMP))
    out[to_no] = Instruction(Opcode.JUMP_IF_ZERO, 0, len(out) - to_no - 1)
    size = max(size, _branch(no, slots, out, truth=truth))
    out[to_end] = Instruction(Opcode.JUMP, 0, len(out) - to_end - 1)
    return size


def _branch(node: Node, slots: Mapping[str, int], out: list[Instruction], *, truth: bool) -> int:
    size = _encode(node, slots, out)
    is_truth = node.value in (0, 1) if isinstance(node, Const) else isinstance(node, Op) and node.kind.is_predicate
    if truth and not is_truth:
        out.append(Instruction(Opcode.BOOL))
    return size


def _leaf(leaf: Leaf, slots: Mapping[str, int]) -> Instruction:
    name = leaf.argument if isinstance(leaf, Extent | Stride | ItemSize) else leaf.name
    if not isinstance(leaf, Argument | Extent | Stride | ItemSize):
        what = "device fact" if isinstance(leaf, DeviceFact) else "config value"
        raise ExpressionError(f"the {what} {leaf} has no value: it must be put in before a program is made")
    if name not in slots:
        raise ExpressionError(f"{leaf} has no slot: {name!r} is not an argument; known: {', '.join(slots) or 'none'}")
    match leaf:
        case Argument():
            return Instruction(Opcode.ARGUMENT, 0, slots[name])
        case Extent(_, axis):
            return Instruction(Opcode.EXTENT, axis, slots[name])
        case Stride(_, axis):
            return Instruction(Opcode.STRIDE, axis, slots[name])
        case ItemSize():
            return Instruction(Opcode.ITEMSIZE, 0, slots[name])
