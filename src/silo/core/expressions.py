"""The expression language: integer expressions over arguments, configs and devices, and their programs for C.

Grids, derived constexprs, constraints of spaces and dispatch rules are trees of expressions. Values are 64-bit signed
integers; a comparison is 0 or 1. Division floors as Python's does. A result outside 64 bits and a division by zero are
errors everywhere: :class:`~silo.errors.ExpressionError` here, an error code in C and C++, never a wrapped number.
``select``, ``and`` and ``or`` evaluate only the operand that decides, so ``select(n == 0, 0, m // n)`` is safe.
:mod:`silo.core.trace` makes an expression from a Python function.

A program is a list of postfix instructions that ``native/core/expression.c`` runs. An instruction is 16 bytes,
``{int32_t opcode; int32_t b; int64_t a;}``, in the machine's byte order. Jumps go forward only and count instructions
from the next one, so every program ends.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias, cast

from silo.core.values import JSON, MAX_NODES, Value, malformed
from silo.errors import ExpressionError
from silo.frozen import field, frozen

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

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

# Deeper trees are refused, so that a recursive walk never exhausts Python's stack.
MAX_DEPTH = 200


class OpKind(Enum):
    """The operations; each value is the operation's name in JSON."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    FLOORDIV = "floordiv"
    MOD = "mod"
    CDIV = "cdiv"  # the quotient rounded towards plus infinity
    MIN = "min"
    MAX = "max"
    NEG = "neg"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    AND = "and"  # 0 or 1; the right operand is evaluated only if the left one is not 0
    OR = "or"  # 0 or 1; the right operand is evaluated only if the left one is 0
    NOT = "not"
    SELECT = "select"  # select(condition, value if it is not 0, value if it is 0)
    NEXT_POW2 = "next_pow2"  # the least power of two that is at least the operand; 0 for 0 and below, as in Triton

    @property
    def arity(self) -> int:
        """The number of operands."""
        return _ARITY.get(self, 2)

    @property
    def is_predicate(self) -> bool:
        """Whether the result is always 0 or 1."""
        return self in _PREDICATES


_ARITY = {OpKind.NEG: 1, OpKind.NOT: 1, OpKind.NEXT_POW2: 1, OpKind.SELECT: 3}
_COMPARISONS = frozenset({OpKind.EQ, OpKind.NE, OpKind.LT, OpKind.LE, OpKind.GT, OpKind.GE})
_PREDICATES = _COMPARISONS | {OpKind.AND, OpKind.OR, OpKind.NOT}
_INFIX = {
    OpKind.ADD: "+",
    OpKind.SUB: "-",
    OpKind.MUL: "*",
    OpKind.FLOORDIV: "//",
    OpKind.MOD: "%",
    OpKind.EQ: "==",
    OpKind.NE: "!=",
    OpKind.LT: "<",
    OpKind.LE: "<=",
    OpKind.GT: ">",
    OpKind.GE: ">=",
    OpKind.AND: "and",
    OpKind.OR: "or",
}


@frozen
class Const:
    """An integer that fits 64 bits; raises ``ExpressionError`` otherwise."""

    value: int

    def __post_init__(self) -> None:
        if not INT64_MIN <= self.value <= INT64_MAX:
            raise ExpressionError(f"{self.value} does not fit a 64-bit integer, and expressions have no other")

    def __str__(self) -> str:
        return str(self.value)


@frozen
class Argument:
    """The value of an integer or bool argument."""

    name: str

    def __str__(self) -> str:
        return self.name


@frozen
class Extent:
    """``shape[axis]`` of an array argument; a negative axis counts from the end."""

    argument: str
    axis: int

    def __str__(self) -> str:
        return f"{self.argument}.shape[{self.axis}]"


@frozen
class Stride:
    """The stride, in elements, of one axis of an array argument; a negative axis counts from the end."""

    argument: str
    axis: int

    def __str__(self) -> str:
        return f"{self.argument}.stride({self.axis})"


@frozen
class ItemSize:
    """Bytes per element of an array argument."""

    argument: str

    def __str__(self) -> str:
        return f"{self.argument}.dtype.itemsize"


@frozen
class ConfigValue:
    """A value of the config: a constexpr or a compile option, integer or bool."""

    name: str

    def __str__(self) -> str:
        return self.name


@frozen
class DeviceFact:
    """A number that the device reports, for example ``sm_count``."""

    name: str

    def __str__(self) -> str:
        return f"device.{self.name}"


@frozen
class Op:
    """An operation on other expressions. Build it with :func:`make`, which folds constants, or directly.

    ``depth`` is the height of the tree; raises ``ExpressionError`` if it exceeds :data:`MAX_DEPTH`.
    """

    kind: OpKind
    operands: tuple[Node, ...]
    depth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.operands) != self.kind.arity:
            raise ExpressionError(f"{self.kind.value} takes {self.kind.arity} operands, not {len(self.operands)}")
        depth = 1 + max(operand.depth if isinstance(operand, Op) else 0 for operand in self.operands)
        if depth > MAX_DEPTH:
            raise ExpressionError(f"an expression is nested more than {MAX_DEPTH} deep; compute part of it beforehand")
        object.__setattr__(self, "depth", depth)

    def __str__(self) -> str:
        sign = _INFIX.get(self.kind)
        if sign:
            left, right = self.operands
            return f"({left} {sign} {right})"
        return f"{self.kind.value}({', '.join(str(operand) for operand in self.operands)})"


Leaf: TypeAlias = Argument | Extent | Stride | ItemSize | ConfigValue | DeviceFact
Node: TypeAlias = Const | Leaf | Op


@frozen
class Bindings:
    """The values of an expression's leaves at one call: each member maps names to values.

    ``strides`` are in elements, ``itemsizes`` in bytes.
    """

    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    strides: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    itemsizes: Mapping[str, int] = field(default_factory=dict[str, int])
    config: Mapping[str, Value] = field(default_factory=dict[str, Value])
    facts: Mapping[str, int] = field(default_factory=dict[str, int])


def make(kind: OpKind, *operands: Node) -> Node:
    """Returns an operation, folded if the values of its operands are known.

    Constants are folded; an operand without effect (``x + 0``, ``cdiv(x, 1)``) is removed; ``(x + c - 1) // c`` with a
    constant ``c`` becomes ``cdiv(x, c)``. An operation whose folding would raise is kept, and raises when evaluated.

    >>> str(make(OpKind.CDIV, Argument("n"), make(OpKind.MUL, Const(4), Const(32))))
    'cdiv(n, 128)'
    """
    op = Op(kind, operands)
    if all(isinstance(operand, Const) for operand in operands):
        try:
            return Const(evaluate(op, _NO_BINDINGS))
        except ExpressionError:
            return op
    return _simplified(op)


def _simplified(op: Op) -> Node:
    kind, operands = op.kind, op.operands
    first, last = operands[0], operands[-1]
    match kind, first, last:
        case (OpKind.SELECT, Const(value), _):
            return operands[1] if value else operands[2]
        case (OpKind.AND, Const(value), _):
            return _truth(last) if value else Const(0)
        case (OpKind.OR, Const(value), _):
            return Const(1) if value else _truth(last)
        case (OpKind.ADD, Const(0), _):
            return last
        case (OpKind.ADD | OpKind.SUB, _, Const(0)):
            return first
        case (OpKind.MUL, Const(1), _):
            return last
        case (OpKind.MUL | OpKind.FLOORDIV | OpKind.CDIV, _, Const(1)):
            return first
        case (OpKind.FLOORDIV, _, Const(divisor)) if divisor > 1:
            numerator = _rounded_up(first, divisor)
            return op if numerator is None else Op(OpKind.CDIV, (numerator, last))
        case _:
            return op


def _truth(node: Node) -> Node:
    if isinstance(node, Op) and node.kind.is_predicate:
        return node
    return make(OpKind.NE, node, Const(0))


def _rounded_up(node: Node, divisor: int) -> Node | None:
    """Returns ``x`` if ``node`` is a form of ``x + (divisor - 1)``, else None.

    For an ``x`` near the largest integer the sum overflows; ``cdiv(x, divisor)``, which replaces the division, does
    not.
    """
    match node:
        case Op(OpKind.ADD, (x, Const(value))) | Op(OpKind.ADD, (Const(value), x)) if value == divisor - 1:
            return x
        case Op(OpKind.SUB, (Op(OpKind.ADD, (x, Const(value))), Const(1))) if value == divisor:
            return x
        case Op(OpKind.SUB, (Op(OpKind.ADD, (Const(value), x)), Const(1))) if value == divisor:
            return x
        case _:
            return None


def evaluate(node: Node, bindings: Bindings) -> int:
    """Returns the value of an expression.

    Raises ``ExpressionError`` for a result outside 64 bits, a division by zero, or a leaf that is not bound to an
    integer.

    >>> evaluate(make(OpKind.CDIV, Argument("n"), Const(128)), Bindings(values={"n": 1000}))
    8
    """
    if isinstance(node, Const):
        return node.value
    if not isinstance(node, Op):
        return _leaf_value(node, bindings)
    kind = node.kind
    if kind is OpKind.SELECT:
        condition, yes, no = node.operands
        return evaluate(yes if evaluate(condition, bindings) else no, bindings)
    if kind is OpKind.AND or kind is OpKind.OR:
        truth = bool(evaluate(node.operands[0], bindings))
        decided = not truth if kind is OpKind.AND else truth
        return int(truth if decided else bool(evaluate(node.operands[1], bindings)))
    operands = [evaluate(operand, bindings) for operand in node.operands]
    result = _unary(kind, operands[0]) if len(operands) == 1 else _binary(kind, operands[0], operands[1])
    if not INT64_MIN <= result <= INT64_MAX:
        written = ", ".join(str(operand) for operand in operands)
        raise ExpressionError(f"{kind.value}({written}) does not fit a 64-bit integer, in {node}")
    return result


def _unary(kind: OpKind, x: int) -> int:
    if kind is OpKind.NEG:
        return -x
    if kind is OpKind.NOT:
        return int(x == 0)
    return 0 if x <= 0 else 1 << (x - 1).bit_length()


def _binary(kind: OpKind, x: int, y: int) -> int:
    match kind:
        case OpKind.ADD:
            return x + y
        case OpKind.SUB:
            return x - y
        case OpKind.MUL:
            return x * y
        case OpKind.FLOORDIV | OpKind.MOD | OpKind.CDIV:
            if y == 0:
                raise ExpressionError(f"{kind.value}({x}, 0): division by zero")
            if kind is OpKind.CDIV:
                return -(-x // y)
            return x // y if kind is OpKind.FLOORDIV else x % y
        case OpKind.MIN:
            return min(x, y)
        case OpKind.MAX:
            return max(x, y)
        case OpKind.EQ:
            return int(x == y)
        case OpKind.NE:
            return int(x != y)
        case OpKind.LT:
            return int(x < y)
        case OpKind.LE:
            return int(x <= y)
        case OpKind.GT:
            return int(x > y)
        case _:
            return int(x >= y)


def _leaf_value(leaf: Leaf, bindings: Bindings) -> int:
    match leaf:
        case Argument(name):
            return _integer(bindings.values.get(name), leaf, "argument")
        case Extent(name, axis):
            return _member(bindings.shapes.get(name), axis, leaf)
        case Stride(name, axis):
            return _member(bindings.strides.get(name), axis, leaf)
        case ItemSize(name):
            return _integer(bindings.itemsizes.get(name), leaf, "item size")
        case ConfigValue(name):
            return _integer(bindings.config.get(name), leaf, "config value")
        case DeviceFact(name):
            return _integer(bindings.facts.get(name), leaf, "device fact")


def _integer(value: Value, leaf: Leaf, label: str) -> int:
    if not isinstance(value, int):  # bools are ints here: 0 or 1
        have = "missing" if value is None else f"{value!r}"
        raise ExpressionError(f"the {label} {leaf} is {have}; an expression needs an integer there")
    if not INT64_MIN <= value <= INT64_MAX:
        raise ExpressionError(f"the {label} {leaf} = {value} does not fit a 64-bit integer")
    return int(value)


def _member(values: Sequence[int] | None, axis: int, leaf: Leaf) -> int:
    if values is None:
        raise ExpressionError(f"{leaf} is missing: {leaf} needs an array argument")
    if not -len(values) <= axis < len(values):
        raise ExpressionError(f"{leaf} is missing: the array has {len(values)} axes")
    return _integer(values[axis], leaf, "value")


def substitute(
    node: Node, *, config: Mapping[str, Value] | None = None, facts: Mapping[str, int] | None = None
) -> Node:
    """Returns the expression with config values and device facts substituted and constants folded.

    Config values and device facts that ``config`` and ``facts`` do not contain stay in the expression. Raises
    ``ExpressionError`` if a substituted value is not an integer.
    """
    bindings = Bindings(config=config or {}, facts=facts or {})
    if isinstance(node, Op):
        return make(node.kind, *(substitute(operand, config=config, facts=facts) for operand in node.operands))
    bound = (isinstance(node, ConfigValue) and node.name in bindings.config) or (
        isinstance(node, DeviceFact) and node.name in bindings.facts
    )
    return Const(evaluate(node, bindings)) if bound else node


def leaves(node: Node) -> tuple[Leaf, ...]:
    """The leaves other than constants, each once, in the order in which they first occur."""
    return tuple(dict.fromkeys(_walk(node)))


def _walk(node: Node) -> Iterator[Leaf]:
    if isinstance(node, Op):
        for operand in node.operands:
            yield from _walk(operand)
    elif not isinstance(node, Const):
        yield node


_NAMED = {"argument": Argument, "itemsize": ItemSize, "config": ConfigValue, "fact": DeviceFact}
_AXES = {"extent": Extent, "stride": Stride}


def to_json(node: Node) -> JSON:
    """Returns the canonical JSON form: an integer, ``{"argument": name}`` and the like, or ``[kind, operand, ...]``."""
    match node:
        case Const(value):
            return value
        case Argument(name):
            return {"argument": name}
        case ItemSize(name):
            return {"itemsize": name}
        case ConfigValue(name):
            return {"config": name}
        case DeviceFact(name):
            return {"fact": name}
        case Extent(name, axis):
            return {"extent": [name, axis]}
        case Stride(name, axis):
            return {"stride": [name, axis]}
        case Op(kind, operands):
            return [kind.value, *(to_json(operand) for operand in operands)]


def from_json(data: JSON) -> Node:
    """Returns the expression of :func:`to_json` output; raises ``ValueError`` for anything that it never writes."""
    try:
        return _from_json(data, itertools.count(1))
    except ExpressionError as error:  # an integer out of range, a wrong number of operands, or a tree that is too deep
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("an expression nested too deeply") from None


def _from_json(data: JSON, numbers: Iterator[int]) -> Node:
    if next(numbers) > MAX_NODES:
        raise ExpressionError(f"an expression of more than {MAX_NODES} parts")
    if isinstance(data, int) and not isinstance(data, bool):
        return Const(data)
    if isinstance(data, Mapping) and len(data) == 1:
        ((tag, body),) = data.items()
        if tag in _NAMED and isinstance(body, str):
            return _NAMED[tag](body)
        if tag in _AXES and isinstance(body, list) and len(body) == 2:
            name, axis = body
            if isinstance(name, str) and type(axis) is int and INT64_MIN <= axis <= INT64_MAX:
                return _AXES[tag](name, axis)
    if isinstance(data, list) and data and isinstance(data[0], str):
        kinds = {kind.value: kind for kind in OpKind}
        kind, *operands = data
        if kind in kinds:
            return Op(kinds[cast("str", kind)], tuple(_from_json(operand, numbers) for operand in operands))
    raise malformed("an expression", data)


_NO_BINDINGS = Bindings()


# The most values on the evaluator's stack at one time (SILO_EXPRESSION_STACK in C).
MAX_STACK = 32


class Opcode(IntEnum):
    """The instructions' opcodes; ``native/core/expression.h`` has the same numbers (``SILO_OP_...``)."""

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
    JUMP_IF_ZERO = 24  # pop; if the value was 0, skip b instructions
    CDIV_ARGUMENT = 25  # push the value of slot b divided by a, rounded up: one instruction for the most common grid


class EvalError(IntEnum):
    """The error codes of ``silo_expression_eval`` (``SILO_EXPRESSION_...``); 0 is success."""

    OK = 0
    OVERFLOW = 1  # a result outside 64 bits
    DIVISION = 2  # division by zero
    PROGRAM = 3  # invalid program: unknown opcode, or stack or jump out of bounds
    SLOT = 4  # a slot that does not exist or has no shape or strides
    AXIS = 5  # an axis that the array does not have


class Instruction(NamedTuple):
    """One instruction of a postfix program."""

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
    """Instructions, and the largest number of values that they have on the stack at one time."""

    instructions: tuple[Instruction, ...]
    max_stack: int

    def to_bytes(self) -> bytes:
        """Returns the program as an array of ``silo_instruction``."""
        return b"".join(
            struct.pack("=iiq", instruction.opcode, instruction.b, instruction.a) for instruction in self.instructions
        )


def encode(node: Node, slots: Mapping[str, int]) -> PostfixProgram:
    """Returns the program of an expression over arguments; ``slots`` maps their names to numbers.

    Config values and device facts must have been replaced (:func:`substitute`). ``ExpressionError`` names a leaf
    without a slot, or reports an expression that needs more than :data:`MAX_STACK` values at one time.

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
    """Appends the instructions of ``node``; returns the number of stack values that they need."""
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
    """Appends a branch that evaluates ``yes`` if the value on the stack is not 0, else ``no``.

    With ``truth`` the result of the branch is converted to 0 or 1. Returns the number of stack values that the branch
    needs.
    """
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
        label = "device fact" if isinstance(leaf, DeviceFact) else "config value"
        raise ExpressionError(f"the {label} {leaf} has no value: it must be put in before a program is made")
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
