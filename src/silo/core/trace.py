"""From a Python function of one namespace to an expression.

The function runs once, with stand-ins for arguments, config values and device facts. ``triton.cdiv``,
``triton.next_power_of_2``, ``tl.cdiv``, ``silo.cdiv`` and their like, ``min``, ``max``, ``math.ceil`` and
``math.floor`` are replaced while it runs: a copy of the function gets globals and a closure in which those objects are
ours. Their own bodies never run and Triton is never imported, so every version of it leads to the same expression.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, cast, overload

from silo.core.config import OPTION_NAMES
from silo.core.nodes import (
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

__all__ = ["Integer", "Traced", "cdiv", "maximum", "minimum", "next_pow2", "select", "trace_grid", "trace_value"]

_BRANCH = (
    "the value of {what} is not known while tracing, so no `if`, `and`, `or`, `not`, `while` or chained comparison"
    " can depend on it: write silo.select(condition, x, y), min(x, y), max(x, y), or (p) & (q), (p) | (q), ~(p) for"
    " conditions"
)


class Traced:
    """A stand-in for an integer: arithmetic on it builds an expression, its :attr:`node`."""

    __slots__ = ("node",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # equality is an expression here

    def __init__(self, node: Node) -> None:
        self.node = node

    def __add__(self, other: object) -> Traced:
        return _apply(OpKind.ADD, self, other)

    def __radd__(self, other: object) -> Traced:
        return _apply(OpKind.ADD, other, self)

    def __sub__(self, other: object) -> Traced:
        return _apply(OpKind.SUB, self, other)

    def __rsub__(self, other: object) -> Traced:
        return _apply(OpKind.SUB, other, self)

    def __mul__(self, other: object) -> Traced:
        return _apply(OpKind.MUL, self, other)

    def __rmul__(self, other: object) -> Traced:
        return _apply(OpKind.MUL, other, self)

    def __floordiv__(self, other: object) -> Traced:
        return _apply(OpKind.FLOORDIV, self, other)

    def __rfloordiv__(self, other: object) -> Traced:
        return _apply(OpKind.FLOORDIV, other, self)

    def __mod__(self, other: object) -> Traced:
        return _apply(OpKind.MOD, self, other)

    def __rmod__(self, other: object) -> Traced:
        return _apply(OpKind.MOD, other, self)

    def __divmod__(self, other: object) -> tuple[Traced, Traced]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Traced, Traced]:
        return other // self, other % self

    def __truediv__(self, other: object) -> _Ratio:
        return _Ratio(self, Traced(_node(other)))

    def __rtruediv__(self, other: object) -> _Ratio:
        return _Ratio(Traced(_node(other)), self)

    def __neg__(self) -> Traced:
        # -(-x // y) is how cdiv is written without a function.
        match self.node:
            case Op(OpKind.FLOORDIV, (Op(OpKind.NEG, (x,)), y)):
                return Traced(make(OpKind.CDIV, x, y))
            case _:
                return _apply(OpKind.NEG, self)

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        return maximum(self, -self)

    def __lshift__(self, other: object) -> Traced:
        return self * (1 << _shift(other))

    def __rshift__(self, other: object) -> Traced:
        return self // (1 << _shift(other))

    def __rlshift__(self, other: object) -> NoReturn:
        raise TraceError(f"a shift by {self.node}, which is not constant, cannot be traced: write a product")

    __rrshift__ = __rlshift__

    def __pow__(self, other: object) -> NoReturn:
        raise TraceError(f"{self.node} ** {other} cannot be traced: write a product")

    def __rpow__(self, other: object) -> NoReturn:
        raise TraceError(f"{other} ** {self.node} cannot be traced: pass the power itself as a config value")

    def __and__(self, other: object) -> Traced:
        return _logical(OpKind.AND, "&", self, other)

    def __rand__(self, other: object) -> Traced:
        return _logical(OpKind.AND, "&", other, self)

    def __or__(self, other: object) -> Traced:
        return _logical(OpKind.OR, "|", self, other)

    def __ror__(self, other: object) -> Traced:
        return _logical(OpKind.OR, "|", other, self)

    def __xor__(self, other: object) -> NoReturn:
        raise TraceError(f"{self.node} ^ {other}: expressions have no exclusive or; compare with == or !=")

    __rxor__ = __xor__

    def __invert__(self) -> Traced:
        if not _is_condition(self.node):
            raise TraceError(f"~ of {self.node}, which is no condition: expressions have no bit operations")
        return _apply(OpKind.NOT, self)

    def __eq__(self, other: object) -> Traced:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _apply(OpKind.EQ, self, other)

    def __ne__(self, other: object) -> Traced:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _apply(OpKind.NE, self, other)

    def __lt__(self, other: object) -> Traced:
        return _apply(OpKind.LT, self, other)

    def __le__(self, other: object) -> Traced:
        return _apply(OpKind.LE, self, other)

    def __gt__(self, other: object) -> Traced:
        return _apply(OpKind.GT, self, other)

    def __ge__(self, other: object) -> Traced:
        return _apply(OpKind.GE, self, other)

    def __bool__(self) -> NoReturn:
        raise TraceError(_BRANCH.format(what=self.node))

    def __index__(self) -> NoReturn:
        raise TraceError(f"{self.node} is not known while tracing: it cannot be an index, a range or a size")

    def __int__(self) -> NoReturn:
        raise TraceError(f"{self.node} is not known while tracing: int() of it has no value")

    def __float__(self) -> NoReturn:
        raise TraceError(f"{self.node} used as a float: expressions are integers; write //, silo.cdiv or a product")

    def __ceil__(self) -> Traced:
        return self

    __floor__ = __trunc__ = __ceil__

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


class _Ratio:
    """A true division: only ``math.ceil`` and ``math.floor`` make an integer of it."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Traced, denominator: Traced) -> None:
        self.numerator, self.denominator = numerator, denominator

    def __ceil__(self) -> Traced:
        return _apply(OpKind.CDIV, self.numerator, self.denominator)

    def __floor__(self) -> Traced:
        return self.numerator // self.denominator

    def refuse(self, *_: object) -> NoReturn:
        quotient = f"{self.numerator.node} / {self.denominator.node}"
        raise TraceError(
            f"{quotient} is a float, and expressions are integers: write silo.cdiv(x, y), x // y or math.ceil(x / y)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __bool__ = __int__ = __float__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __trunc__ = __round__ = __index__ = __abs__ = __pow__ = refuse


class _Array(Traced):
    """A stand-in for an argument: its value, and if it is an array its shape, strides and dtype."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__(Argument(name))
        self._name = name

    @property
    def shape(self) -> _Axes:
        return _Axes(self._name, "shape", Extent)

    def size(self, axis: object = None) -> Traced:
        return _Axes(self._name, "shape", Extent)[axis]

    def stride(self, axis: object = None) -> Traced:
        return _Axes(self._name, "stride", Stride)[axis]

    @property
    def dtype(self) -> _Dtype:
        return _Dtype(self._name)

    @property
    def itemsize(self) -> Traced:
        return Traced(ItemSize(self._name))

    def element_size(self) -> Traced:
        return Traced(ItemSize(self._name))

    def numel(self) -> NoReturn:
        raise TraceError(
            f"{self._name}.numel() needs the number of axes, which is not known while tracing:"
            f" write the product, {self._name}.shape[0] * {self._name}.shape[1] for two axes"
        )

    nelement = numel

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(
            f"{self._name}.{name} is not part of expressions: they know values of integer arguments, .shape[i],"
            f" .stride(i) and .dtype.itemsize"
        )


@dataclass(frozen=True, slots=True)
class _Axes:
    """``shape`` or ``stride`` of an array whose rank is not known."""

    argument: str
    what: str
    leaf: Callable[[str, int], Node]

    def __getitem__(self, axis: object) -> Traced:
        if not isinstance(axis, int) or isinstance(axis, bool):
            self._refuse()
        return Traced(self.leaf(self.argument, axis))

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __len__(self) -> NoReturn:  # noqa: PLE0303  # it always raises
        self._refuse()

    def _refuse(self) -> NoReturn:
        form = f"{self.argument}.shape[0]" if self.what == "shape" else f"{self.argument}.stride(0)"
        raise TraceError(
            f"the number of axes of {self.argument} is not known while tracing:"
            f" name each axis by a constant, as in {form}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Dtype:
    argument: str

    @property
    def itemsize(self) -> Traced:
        return Traced(ItemSize(self.argument))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(f"{self.argument}.dtype.{name} is not part of expressions; .dtype.itemsize is")

    def __eq__(self, other: object) -> NoReturn:
        raise TraceError(f"dtypes cannot be compared in expressions: compare {self.argument}.dtype.itemsize")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class _Device:
    def __getattr__(self, name: str) -> Traced:
        if name.startswith("__"):
            raise AttributeError(name)
        return Traced(DeviceFact(name))


class _Namespace:
    """What the traced function gets: members as attributes and as items."""

    def __init__(self, arguments: Iterable[str], config: Iterable[str]) -> None:
        self._members: dict[str, object] = {
            **{name: _Array(name) for name in arguments},
            **{name: Traced(ConfigValue(name)) for name in config},
        }

    def __getitem__(self, name: object) -> object:
        if name in self._members:
            return self._members[cast("str", name)]
        if name == "device":
            return _Device()
        if name in OPTION_NAMES:
            return Traced(ConfigValue(cast("str", name)))
        known = ", ".join(self._members)
        raise TraceError(
            f"nothing is called {name!r} here; known: {known or 'no name'}, and device facts as a.device.sm_count"
        )

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def keys(self) -> Iterable[str]:
        return self._members.keys()

    def get(self, name: str, default: object = None) -> object:
        return self._members.get(name, default)


def _node(value: object) -> Node:
    """The expression of an operand, or a ``TraceError`` that says why it has none."""
    if isinstance(value, Traced):
        return value.node
    if isinstance(value, bool | int):
        return Const(int(value))
    if isinstance(value, _Ratio):
        value.refuse()
    if isinstance(value, Const | Argument | Extent | Stride | ItemSize | ConfigValue | DeviceFact | Op):
        return value
    if isinstance(value, float):
        raise TraceError(f"the float {value!r} in an expression: expressions are integers; scale by // or silo.cdiv")
    index = getattr(value, "__index__", None)  # numpy's integers
    if callable(index):
        return Const(cast("Callable[[], int]", index)())
    raise TraceError(f"{value!r} ({type(value).__name__}) in an expression: expressions are made of integers")


def _apply(kind: OpKind, *operands: object) -> Traced:
    try:
        return Traced(make(kind, *(_node(operand) for operand in operands)))
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
        if not _is_condition(_node(operand)):
            raise TraceError(
                f"{sign} joins conditions only, and {_node(operand)} is none: expressions have no bit operations;"
                f" write % and // by powers of two, and put comparisons in parentheses"
            )
    return _apply(kind, left, right)


def _call(kind: OpKind, *operands: object) -> Integer:
    """Plain numbers in, a plain number out; anything traced (or a node) makes a traced value (or a node)."""
    if any(isinstance(operand, Traced | _Ratio) for operand in operands):
        return _apply(kind, *operands)
    nodes = [_node(operand) for operand in operands]
    if all(isinstance(node, Const) for node in nodes):
        return evaluate(Op(kind, tuple(nodes)), Bindings())
    return cast("Traced", make(kind, *nodes))  # a node for nodes: the signatures speak of what users pass


@overload
def cdiv(x: int, y: int) -> int: ...
@overload
def cdiv(x: Traced, y: Integer) -> Traced: ...
@overload
def cdiv(x: int, y: Traced) -> Traced: ...
def cdiv(x: Integer, y: Integer) -> Integer:
    """``x / y`` rounded up; for integers, inside traced functions, and for nodes.

    >>> cdiv(1000, 128)
    8
    """
    return _call(OpKind.CDIV, x, y)


@overload
def next_pow2(x: int) -> int: ...
@overload
def next_pow2(x: Traced) -> Traced: ...
def next_pow2(x: Integer) -> Integer:
    """The least power of two that is not smaller than ``x``; 0 for 0 and below.

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
    """``x`` where the condition holds, ``y`` otherwise: what a traced function writes instead of ``x if c else y``."""
    return _call(OpKind.SELECT, condition, x, y)


@overload
def minimum(x: int, y: int) -> int: ...
@overload
def minimum(x: Traced, y: Integer) -> Traced: ...
@overload
def minimum(x: int, y: Traced) -> Traced: ...
def minimum(x: Integer, y: Integer) -> Integer:
    """The smaller of two; ``min`` means the same inside a traced function."""
    return _call(OpKind.MIN, x, y)


@overload
def maximum(x: int, y: int) -> int: ...
@overload
def maximum(x: Traced, y: Integer) -> Traced: ...
@overload
def maximum(x: int, y: Traced) -> Traced: ...
def maximum(x: Integer, y: Integer) -> Integer:
    """The larger of two; ``max`` means the same inside a traced function."""
    return _call(OpKind.MAX, x, y)


def trace_grid(
    function: Callable[[Any], object] | Sequence[object], arguments: Sequence[str], config: Sequence[str]
) -> tuple[Node, ...]:
    """The expressions, one an axis, of a grid: a function of one namespace, or a tuple of 1 to 3 integers.

    ``arguments`` and ``config`` are the names the function may read; compile options such as ``num_warps`` are always
    known. ``TraceError`` says what cannot be traced and what to write.

    >>> [str(axis) for axis in trace_grid(lambda a: (cdiv(a.n, a.BLOCK), 1), ["n"], ["BLOCK"])]
    ['cdiv(n, BLOCK)', '1']
    """
    result = _run(function, arguments, config) if callable(function) else function
    axes = tuple(cast("Iterable[object]", result)) if isinstance(result, tuple | list) else (result,)
    if not 1 <= len(axes) <= 3:
        raise TraceError(f"a grid has 1 to 3 axes, and {_place(function)} gives {len(axes)}")
    return tuple(_node(axis) for axis in axes)


def trace_value(function: Callable[[Any], object], arguments: Sequence[str], config: Sequence[str] = ()) -> Node:
    """The expression of one value, as :func:`trace_grid` does."""
    return _node(_run(function, arguments, config))


def _run(function: Callable[[Any], object], arguments: Sequence[str], config: Sequence[str]) -> object:
    namespace = _Namespace(arguments, config)
    try:
        return _Copier().callable(function)(namespace)
    except (TraceError, ExpressionError) as error:
        raise TraceError(f"{_place(function)} cannot become an expression: {error}") from None
    except Exception as error:  # whatever the user's function raised is reported with its place
        raise TraceError(f"{_place(function)} failed while it was traced: {type(error).__name__}: {error}") from error


def _place(function: object) -> str:
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType):
        return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    return repr(function)


def _extremum(kind: OpKind, plain: Callable[..., object]) -> Callable[..., object]:
    def traced(*operands: object, **options: object) -> object:
        values = tuple(cast("Iterable[object]", operands[0])) if len(operands) == 1 else operands
        if not any(isinstance(value, Traced | _Ratio) for value in values):
            return plain(*operands, **options)
        if options:
            raise TraceError(f"{plain.__name__} with {', '.join(options)}= cannot be traced")
        return functools.reduce(lambda x, y: _apply(kind, x, y), (Traced(_node(value)) for value in values))

    return traced


def _int(value: object = 0, *base: object) -> object:
    if isinstance(value, _Ratio):
        raise TraceError("int() of a true division cannot be traced: write x // y, silo.cdiv(x, y) or math.ceil(x / y)")
    return value if isinstance(value, Traced) else int(cast("str", value), *cast("list[Any]", base))


def _bool(value: object = False) -> object:  # noqa: FBT002  # the signature of bool
    return value != 0 if isinstance(value, Traced) else bool(value)


def _refusing(plain: Callable[..., object], advice: str) -> Callable[..., object]:
    def refuse(*operands: object, **options: object) -> object:
        if any(isinstance(operand, Traced | _Ratio | _Axes | _Dtype) for operand in operands):
            raise TraceError(f"{plain.__name__} cannot be traced: {advice}")
        return plain(*operands, **options)

    return refuse


def _rounding(kind: OpKind, plain: Callable[..., object]) -> Callable[..., object]:
    def traced(value: object) -> object:
        if isinstance(value, _Ratio):
            return _apply(kind, value.numerator, value.denominator)
        return value if isinstance(value, Traced) else plain(value)

    return traced


_TYPE_ADVICE = "types are not known while tracing; an expression reads integers"
_BUILTINS: dict[str, object] = {
    **vars(builtins),
    "min": _extremum(OpKind.MIN, min),
    "max": _extremum(OpKind.MAX, max),
    "int": _int,
    "bool": _bool,
    "len": _refusing(len, "the number of axes is not known; name each axis by a constant"),
    "isinstance": _refusing(isinstance, _TYPE_ADVICE),
    "type": _refusing(type, _TYPE_ADVICE),
    "hasattr": _refusing(hasattr, _TYPE_ADVICE),
    "callable": _refusing(callable, _TYPE_ADVICE),
    "id": _refusing(id, _TYPE_ADVICE),
    "round": _refusing(round, "write x // y or silo.cdiv(x, y)"),
    "str": _refusing(str, "expressions have no text"),
    "repr": _refusing(repr, "expressions have no text"),
}
# By identity: the builtins themselves may also be reached under another name.
_BY_IDENTITY = {
    id(min): _BUILTINS["min"],
    id(max): _BUILTINS["max"],
    id(int): _int,
    id(bool): _bool,
    id(len): _BUILTINS["len"],
    id(isinstance): _BUILTINS["isinstance"],
    id(math.ceil): _rounding(OpKind.CDIV, math.ceil),
    id(math.floor): _rounding(OpKind.FLOORDIV, math.floor),
    id(math.trunc): _refusing(math.trunc, "write x // y"),
    id(math.log2): _refusing(math.log2, "expressions are integers"),
    id(math.sqrt): _refusing(math.sqrt, "expressions are integers"),
}
_TRITON_FUNCTIONS = {"cdiv": cdiv, "next_power_of_2": next_pow2, "minimum": minimum, "maximum": maximum}
_OPAQUE_MODULES = ("builtins", "functools", "operator", "itertools", "math", "silo.core", "silo.api")


class _ModuleProxy:
    """A module as the traced function sees it: some members replaced, everything else passed through."""

    def __init__(self, module: types.ModuleType, replace: Callable[[object], object]) -> None:
        self._module, self._replace = module, replace

    def __getattr__(self, name: str) -> object:
        return self._replace(getattr(self._module, name))


class _Copier:
    """Copies functions so that the names they read lead to our versions. One copier, one copy of each function."""

    def __init__(self) -> None:
        self._copies: dict[int, object] = {}

    def callable(self, function: Callable[..., object]) -> Callable[..., object]:
        if isinstance(function, types.MethodType):
            return types.MethodType(self.callable(function.__func__), function.__self__)
        if isinstance(function, functools.partial):
            partial = cast("functools.partial[object]", function)
            return functools.partial(self.callable(partial.func), *partial.args, **partial.keywords)
        if isinstance(function, types.FunctionType):
            return cast("Callable[..., object]", self.replace(function))
        raise TraceError(f"{function!r} is not a Python function: write a lambda or a def of one namespace")

    def replace(self, value: object) -> object:
        """The version of one object that a traced function gets to see."""
        if id(value) in _BY_IDENTITY:
            return _BY_IDENTITY[id(value)]
        triton = _triton_name(value)
        if triton in _TRITON_FUNCTIONS:
            return _TRITON_FUNCTIONS[triton]
        if isinstance(value, types.ModuleType):
            root = value.__name__.partition(".")[0]
            return _ModuleProxy(value, self.replace) if root in ("triton", "math", "builtins") else value
        if isinstance(value, types.FunctionType) and not value.__module__.startswith(_OPAQUE_MODULES):
            return self._copy(value)
        return value

    def _copy(self, function: types.FunctionType) -> object:
        if id(function) in self._copies:
            return self._copies[id(function)]
        _refuse_identity_tests(function.__code__)
        copied: dict[str, object] = {"__builtins__": _BUILTINS, "__name__": function.__module__}
        # The closure is rebuilt cell by cell: writing into the original's cells would change the user's program.
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        result = types.FunctionType(
            function.__code__, copied, function.__name__, function.__defaults__, cells if function.__closure__ else None
        )
        result.__kwdefaults__ = function.__kwdefaults__
        self._copies[id(function)] = result  # before its names are followed: functions may call each other
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                copied[name] = self.replace(function.__globals__[name])
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            try:
                cell.cell_contents = self.replace(original.cell_contents)
            except ValueError:  # a cell nothing was put into yet
                continue
        return result


def _triton_name(value: object) -> str | None:
    """The name of a function of Triton's, whether plain or wrapped in an object of its own."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or module.partition(".")[0] != "triton":
        function = getattr(value, "fn", None) if type(value).__module__.startswith("triton") else None
        module = getattr(function, "__module__", None)
        if not isinstance(module, str) or module.partition(".")[0] != "triton":
            return None
        value = function
    name = getattr(value, "__name__", None) or getattr(getattr(value, "fn", None), "__name__", None)
    return name if isinstance(name, str) else None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _global_names(code: types.CodeType) -> frozenset[str]:
    return frozenset(name for one in _codes(code) for name in one.co_names)


def _refuse_identity_tests(code: types.CodeType) -> None:
    """``x is None`` would silently be False of any stand-in, so it is refused before the function runs."""
    for one in _codes(code):
        for instruction in dis.get_instructions(one):
            if instruction.opname == "IS_OP" or ("JUMP" in instruction.opname and instruction.opname.endswith("NONE")):
                raise TraceError("`is` and `is not` have no value while tracing: compare integers with == and !=")
