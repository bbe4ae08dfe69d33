"""Traced integers, whose arithmetic builds expressions, and functions that accept both traced and plain integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NoReturn, Protocol, Self, TypeAlias, TypeVar, cast, overload

from silo.core.argument_facts import describe
from silo.core.expressions import (
    Argument,
    Bindings,
    ConfigValue,
    Const,
    DeviceFact,
    Extent,
    ItemSize,
    Node,
    Op,
    OpKind,
    Stride,
    evaluate,
    make,
)
from silo.errors import ExpressionError, TraceError

__all__ = [
    "FOLLOWED",
    "Integer",
    "Known",
    "Operators",
    "Ratio",
    "Traced",
    "apply",
    "as_node",
    "cdiv",
    "maximum",
    "minimum",
    "next_pow2",
    "select",
]

Result = TypeVar("Result")

_BRANCH = (
    "the value of {what} is not known while tracing, so no `if`, `and`, `or`, `not`, `while` or chained comparison"
    " can depend on it: write silo.select(condition, x, y), min(x, y), max(x, y), or (p) & (q), (p) | (q), ~(p) for"
    " conditions"
)


class Operators(Generic[Result]):
    """The operators of a traced integer, which all call one method, :meth:`operate`."""

    __slots__ = ()

    def operate(self, sign: str, left: object, right: object) -> Result:
        """Returns the result of an operation in which this object is ``left`` or ``right``.

        Args:
            sign: ``+ - * // % ** << >> & |`` or ``^``.
            left: the left operand.
            right: the right operand.
        """
        raise NotImplementedError

    def __add__(self, other: object) -> Result:
        return self.operate("+", self, other)

    def __radd__(self, other: object) -> Result:
        return self.operate("+", other, self)

    def __sub__(self, other: object) -> Result:
        return self.operate("-", self, other)

    def __rsub__(self, other: object) -> Result:
        return self.operate("-", other, self)

    def __mul__(self, other: object) -> Result:
        return self.operate("*", self, other)

    def __rmul__(self, other: object) -> Result:
        return self.operate("*", other, self)

    def __floordiv__(self, other: object) -> Result:
        return self.operate("//", self, other)

    def __rfloordiv__(self, other: object) -> Result:
        return self.operate("//", other, self)

    def __mod__(self, other: object) -> Result:
        return self.operate("%", self, other)

    def __rmod__(self, other: object) -> Result:
        return self.operate("%", other, self)

    def __pow__(self, other: object) -> Result:
        return self.operate("**", self, other)

    def __rpow__(self, other: object) -> Result:
        return self.operate("**", other, self)

    def __lshift__(self, other: object) -> Result:
        return self.operate("<<", self, other)

    def __rlshift__(self, other: object) -> Result:
        return self.operate("<<", other, self)

    def __rshift__(self, other: object) -> Result:
        return self.operate(">>", self, other)

    def __rrshift__(self, other: object) -> Result:
        return self.operate(">>", other, self)

    def __and__(self, other: object) -> Result:
        return self.operate("&", self, other)

    def __rand__(self, other: object) -> Result:
        return self.operate("&", other, self)

    def __or__(self, other: object) -> Result:
        return self.operate("|", self, other)

    def __ror__(self, other: object) -> Result:
        return self.operate("|", other, self)

    def __xor__(self, other: object) -> Result:
        return self.operate("^", self, other)

    def __rxor__(self, other: object) -> Result:
        return self.operate("^", other, self)

    def __divmod__(self, other: object) -> tuple[Result, Result]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Result, Result]:
        return other // self, other % self

    def __pos__(self) -> Self:
        return self

    def __ceil__(self) -> Self:
        return self

    __floor__ = __trunc__ = __ceil__


FOLLOWED: Final = {
    "+": OpKind.ADD,
    "-": OpKind.SUB,
    "*": OpKind.MUL,
    "//": OpKind.FLOORDIV,
    "%": OpKind.MOD,
}


class Traced(Operators["Traced"]):
    """A traced integer: arithmetic on it builds an expression, its :attr:`node`."""

    __slots__ = ("node",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # equality is an expression here

    def __init__(self, node: Node) -> None:
        self.node = node

    def operate(self, sign: str, left: object, right: object) -> Traced:
        """Returns the expression of an operation; raises ``TraceError`` if the expression language lacks it."""
        match sign:
            case "<<" | ">>" if left is self:
                factor = 1 << _shift(right)
                return self * factor if sign == "<<" else self // factor
            case "<<" | ">>":
                raise TraceError(f"a shift by {self.node}, which is not constant, cannot be traced: write a product")
            case "**" if left is self:
                raise TraceError(f"{self.node} ** {right} cannot be traced: write a product")
            case "**":
                raise TraceError(f"{left} ** {self.node} cannot be traced: pass the power itself as a config value")
            case "&" | "|":
                return _logical(OpKind.AND if sign == "&" else OpKind.OR, sign, left, right)
            case "^":
                other = right if left is self else left
                raise TraceError(f"{self.node} ^ {other}: expressions have no exclusive or; compare with == or !=")
            case _:
                return apply(FOLLOWED[sign], left, right)

    def __truediv__(self, other: object) -> Ratio:
        return Ratio(self, Traced(as_node(other)))

    def __rtruediv__(self, other: object) -> Ratio:
        return Ratio(Traced(as_node(other)), self)

    def __neg__(self) -> Traced:
        # -(-x // y) is a common way to write cdiv.
        match self.node:
            case Op(OpKind.FLOORDIV, (Op(OpKind.NEG, (x,)), y)):
                return Traced(make(OpKind.CDIV, x, y))
            case _:
                return apply(OpKind.NEG, self)

    def __abs__(self) -> Traced:
        return maximum(self, -self)

    def __invert__(self) -> Traced:
        if not _is_condition(self.node):
            raise TraceError(f"~ of {self.node}, which is not a condition: expressions have no bit operations")
        return apply(OpKind.NOT, self)

    def __eq__(self, other: object) -> Traced:  # pyright: ignore[reportIncompatibleMethodOverride]
        return apply(OpKind.EQ, self, other)

    def __ne__(self, other: object) -> Traced:  # pyright: ignore[reportIncompatibleMethodOverride]
        return apply(OpKind.NE, self, other)

    def __lt__(self, other: object) -> Traced:
        return apply(OpKind.LT, self, other)

    def __le__(self, other: object) -> Traced:
        return apply(OpKind.LE, self, other)

    def __gt__(self, other: object) -> Traced:
        return apply(OpKind.GT, self, other)

    def __ge__(self, other: object) -> Traced:
        return apply(OpKind.GE, self, other)

    def __bool__(self) -> NoReturn:
        raise TraceError(_BRANCH.format(what=self.node))

    def __index__(self) -> NoReturn:
        raise TraceError(f"{self.node} is not known while tracing: it cannot be an index, a range or a size")

    def __int__(self) -> NoReturn:
        raise TraceError(f"{self.node} is not known while tracing: int() of it has no value")

    def __float__(self) -> NoReturn:
        raise TraceError(f"{self.node} used as a float: expressions are integers; write //, silo.cdiv or a product")

    def __iter__(self) -> NoReturn:
        raise TraceError(f"{self.node} is an integer and cannot be iterated over")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(f"{self.node} has no .{name} in an expression")

    def __format__(self, spec: str) -> NoReturn:
        raise TraceError(f"{self.node} is not known while tracing and cannot become text")

    def __repr__(self) -> str:
        return f"<traced {self.node}>"


Integer: TypeAlias = "int | Traced"


class Ratio:
    """The result of a true division; only ``math.ceil`` and ``math.floor`` accept it and make an integer."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Traced, denominator: Traced) -> None:
        self.numerator, self.denominator = numerator, denominator

    def __ceil__(self) -> Traced:
        return apply(OpKind.CDIV, self.numerator, self.denominator)

    def __floor__(self) -> Traced:
        return self.numerator // self.denominator

    def refuse(self, *_: object) -> NoReturn:
        """Raises TraceError for every other use of the quotient."""
        quotient = f"{self.numerator.node} / {self.denominator.node}"
        raise TraceError(
            f"{quotient} is a float, and expressions are integers: write silo.cdiv(x, y), x // y or math.ceil(x / y)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __bool__ = __int__ = __float__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __trunc__ = __round__ = __index__ = __abs__ = __pow__ = refuse


class _Constexpr(Protocol):
    value: object


def as_node(value: object) -> Node:
    """Returns the expression of an operand; raises ``TraceError``, with the reason, for an operand without one."""
    if isinstance(value, Traced | Known):
        return value.node
    if isinstance(value, bool | int):
        return Const(int(value))
    if isinstance(value, Ratio):
        value.refuse()
    if isinstance(value, Const | Argument | Extent | Stride | ItemSize | ConfigValue | DeviceFact | Op):
        return value
    if isinstance(value, float):
        raise TraceError(f"the float {value!r} in an expression: expressions are integers; scale by // or silo.cdiv")
    # an integer wrapped by a kernel language, for example Triton's constexpr
    if type(value).__name__ == "constexpr" and hasattr(value, "value"):
        return as_node(cast("_Constexpr", value).value)
    index = getattr(value, "__index__", None)  # numpy's integers have __index__
    if callable(index):
        return Const(cast("Callable[[], int]", index)())
    raise TraceError(f"{describe(value)} ({type(value).__name__}) in an expression: expressions are made of integers")


class Known:
    """A value that is known and keeps the expression that computes it, its :attr:`node`."""

    __slots__ = ()

    @property
    def node(self) -> Node:
        """The expression that computes the value."""
        raise NotImplementedError

    def combine(self, kind: OpKind, operands: tuple[object, ...]) -> Integer:
        """Returns the result of an operation that has this value among its operands."""
        raise NotImplementedError


def apply(kind: OpKind, *operands: object) -> Traced:
    """Returns the traced result of one operation; raises ``TraceError`` for an operand without an expression."""
    try:
        return Traced(make(kind, *(as_node(operand) for operand in operands)))
    except ExpressionError as error:
        raise TraceError(str(error)) from None


def _shift(amount: object) -> int:
    if isinstance(amount, int) and 0 <= amount < 63:
        return amount
    raise TraceError(f"a shift by {amount!r} cannot be traced: shift by a constant from 0 to 62, or write a product")


def _is_condition(node: Node) -> bool:
    return (isinstance(node, Op) and node.kind.is_predicate) or (isinstance(node, Const) and node.value in (0, 1))


def _logical(kind: OpKind, sign: str, left: object, right: object) -> Traced:
    for operand in (left, right):
        if not _is_condition(as_node(operand)):
            raise TraceError(
                f"{sign} joins conditions only, and {as_node(operand)} is none: expressions have no bit operations;"
                f" write % and // by powers of two, and put comparisons in parentheses"
            )
    return apply(kind, left, right)


_MOST_INT32 = 2**31 - 1


def _call(kind: OpKind, *operands: object) -> Integer:
    """Returns a plain number for plain numbers. A traced operand makes the result traced, a node makes it a node."""
    if any(isinstance(operand, Traced | Ratio) for operand in operands):
        return apply(kind, *operands)
    for operand in operands:
        if isinstance(operand, Known):
            return operand.combine(kind, operands)
    nodes = [as_node(operand) for operand in operands]
    if all(isinstance(node, Const) for node in nodes):
        return evaluate(Op(kind, tuple(nodes)), Bindings())
    # If an operand is a node, the result is a node. The annotation covers only the types that users pass.
    return cast("Traced", make(kind, *nodes))


@overload
def cdiv(x: int, y: int) -> int: ...
@overload
def cdiv(x: Traced, y: Integer) -> Traced: ...
@overload
def cdiv(x: int, y: Traced) -> Traced: ...
def cdiv(x: Integer, y: Integer) -> Integer:
    """Returns ``x / y`` rounded up, for plain integers, traced integers and nodes.

    >>> cdiv(1000, 128)
    8
    """
    # A fast path for small plain integers, with which callers compute grids: the general path takes as long as a
    # small launch.
    if type(x) is int and type(y) is int and 0 <= x <= _MOST_INT32 and 0 < y <= _MOST_INT32:
        return -(-x // y)
    return _call(OpKind.CDIV, x, y)


@overload
def next_pow2(x: int) -> int: ...
@overload
def next_pow2(x: Traced) -> Traced: ...
def next_pow2(x: Integer) -> Integer:
    """Returns the least power of two that is at least ``x``; 0 for 0 and below.

    >>> next_pow2(1000)
    1024
    """
    return _call(OpKind.NEXT_POW2, x)


@overload
def select(condition: int, x: int, y: int) -> int: ...
@overload
def select(condition: Traced, x: Integer, y: Integer) -> Traced: ...
@overload
def select(condition: int, x: Traced, y: Integer) -> Traced: ...
@overload
def select(condition: int, x: int, y: Traced) -> Traced: ...
def select(condition: Integer, x: Integer, y: Integer) -> Integer:
    """Returns ``x`` if the condition holds, else ``y``. Traced functions use it instead of ``x if c else y``."""
    return _call(OpKind.SELECT, condition, x, y)


@overload
def minimum(x: int, y: int) -> int: ...
@overload
def minimum(x: Traced, y: Integer) -> Traced: ...
@overload
def minimum(x: int, y: Traced) -> Traced: ...
def minimum(x: Integer, y: Integer) -> Integer:
    """Returns the smaller of two numbers; ``min`` means the same inside a traced function."""
    return _call(OpKind.MIN, x, y)


@overload
def maximum(x: int, y: int) -> int: ...
@overload
def maximum(x: Traced, y: Integer) -> Traced: ...
@overload
def maximum(x: int, y: Traced) -> Traced: ...
def maximum(x: Integer, y: Integer) -> Integer:
    """Returns the larger of two numbers; ``max`` means the same inside a traced function."""
    return _call(OpKind.MAX, x, y)
