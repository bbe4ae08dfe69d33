"""Tracers for a function's arguments: objects with a known value that record the function's computations on them.

A plan calls its function a second time with tracers. Launches receive the objects that the tracers stand for.
Arithmetic on an integer returns an integer with its expression, and a comparison is recorded with its result. Any other
use (``range``, an index, ``torch``) gets the plain value, and is recorded as a use after which the result may depend on
the value in an unknown way.
"""

# ruff: noqa: ANN401  # tracers take and return whatever Python objects do
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NoReturn, Self, cast

from silo.core.expressions import Argument, Bindings, Const, Extent, Node, Op, OpKind, Stride, evaluate, leaves, make
from silo.core.traced import FOLLOWED, Known, Operators, as_node
from silo.errors import ArgumentError, ExpressionError, TraceError
from silo.launch import native

__all__ = ["TracedArray", "TracedFloat", "TracedInt", "Trail", "is_of_torch", "stand_in_for"]


class Trail:
    """The record of a function's uses of its tracers.

    ``conditions`` has each comparison with its result: with another result, the function might have made other
    launches. ``used`` has the arguments whose value, or shape and strides, were used as plain values, each with a
    description of the first such use.
    """

    def __init__(self) -> None:
        self.conditions: list[tuple[Node, bool]] = []
        self.used: dict[str, str] = {}

    def note(self, node: Node, where: str) -> None:
        """Records that a value computed by ``node`` was used as a plain value."""
        for leaf in leaves(node):
            self.used.setdefault(leaf.argument if isinstance(leaf, Extent | Stride) else str(leaf), where)


_COMPARED: Final = {"<": OpKind.LT, "<=": OpKind.LE, ">": OpKind.GT, ">=": OpKind.GE, "==": OpKind.EQ, "!=": OpKind.NE}


def _plain(value: object) -> Any:
    return value.stands_for if isinstance(value, native.StandIn) else value


def _real(value: object, where: str) -> Any:
    """Returns the plain value of a tracer, also within lists and tuples, to pass to torch.

    Each use of a tracer is recorded.
    """
    if isinstance(value, TracedArray | TracedInt | TracedFloat):
        return value.as_is(where)
    if isinstance(value, list | tuple):
        items = [_real(item, where) for item in cast("Sequence[object]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value


def _to_torch(
    cls: type[Any],
    function: Callable[..., Any],
    kinds: object,
    args: Iterable[Any] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """The ``__torch_function__`` of tracers: calls torch with the plain values."""
    del cls, kinds
    where = getattr(function, "__name__", "torch")
    keyword_arguments = {name: _real(item, where) for name, item in (kwargs or {}).items()}
    return function(*(_real(argument, where) for argument in args), **keyword_arguments)


class TracedInt(native.StandIn, Known, Operators[Any]):
    """The tracer of an integer: its value, and the expression that computes it from the arguments."""

    __slots__ = ("_node", "_trail")

    __torch_function__: Any = classmethod(_to_torch)

    def __new__(cls, value: int, node: Node, trail: Trail) -> TracedInt:  # noqa: PYI034
        """Makes a tracer of a 64-bit integer."""
        traced = super().__new__(cls, value)
        traced._node = node
        traced._trail = trail
        return traced

    @property
    def node(self) -> Node:
        """The expression that computes the value."""
        return self._node

    def combine(self, kind: OpKind, operands: tuple[object, ...]) -> Any:
        """Returns the traced result of an operation; NotImplemented if 64 bits cannot hold it."""
        try:
            nodes = tuple(as_node(operand) for operand in operands)
            value = evaluate(Op(kind, tuple(Const(int(_plain(operand))) for operand in operands)), Bindings())
            node = make(kind, *nodes)
        # an operand or the result does not fit into 64 bits, or is not an integer
        except (ExpressionError, TraceError):
            return NotImplemented
        return TracedInt(value, node, self._trail) if not isinstance(node, Const) else value

    def _compare(self, sign: str, other: object) -> bool:
        plain = _plain(other)
        is_int = isinstance(plain, int)
        result = _OPERATORS[sign](self.stands_for, plain)
        if result is NotImplemented:
            return result
        if is_int:
            try:
                node = make(_COMPARED[sign], self._node, as_node(other))
            except ExpressionError:
                self._trail.note(self._node, f"a comparison with {plain}")
            else:
                if not isinstance(node, Const):
                    self._trail.conditions.append((node, bool(result)))
        else:
            self._trail.note(self._node, f"{sign} with {type(plain).__name__}")
        return bool(result)

    def __lt__(self, other: object) -> bool:
        return self._compare("<", other)

    def __le__(self, other: object) -> bool:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> bool:
        return self._compare(">", other)

    def __ge__(self, other: object) -> bool:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> bool:
        return self._compare("==", other)

    def __ne__(self, other: object) -> bool:
        return self._compare("!=", other)

    def __bool__(self) -> bool:
        return self._compare("!=", 0)

    def as_is(self, where: str) -> int:
        """Returns the plain integer and records the use."""
        self._trail.note(self._node, where)
        return self.stands_for

    def __index__(self) -> int:
        return self.as_is("an index, a size or range()")

    def __int__(self) -> int:
        return self.as_is("int()")

    def __float__(self) -> float:
        return float(self.as_is("float()"))

    def __hash__(self) -> int:
        return hash(self.as_is("a key"))

    def __str__(self) -> str:
        return str(self.as_is("text"))

    def __repr__(self) -> str:
        return repr(self.as_is("text"))

    def __format__(self, spec: str) -> str:
        return format(self.as_is("text"), spec)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(_plain(other), int):
            return _Ratio(self, other, self._trail)
        return self.operate("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        if isinstance(_plain(other), int):
            return _Ratio(other, self, self._trail)
        return self.operate("/", other, self)

    def __neg__(self) -> Any:
        match self._node:
            case Op(OpKind.FLOORDIV, (Op(OpKind.NEG, (x,)), y)):  # the ceiling division -(-x // y)
                return TracedInt(-self.stands_for, make(OpKind.CDIV, x, y), self._trail)
            case _:
                return self.combine(OpKind.NEG, (self,))

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __round__(self, digits: object = None) -> Any:
        return self if digits is None else round(self.as_is("round()"), cast("int", digits))

    def operate(self, sign: str, left: Any, right: Any) -> Any:
        """Returns the traced result of an operator, or the plain result if operations of this sort are not traced."""
        kind, amount = FOLLOWED.get(sign), _plain(right)
        if sign in _SHIFTS and type(right) is int and 0 <= amount < _MOST_SHIFT and isinstance(_plain(left), int):
            sign, right = _SHIFTS[sign], 1 << amount
            kind = FOLLOWED[sign]
        if kind is not None and isinstance(_plain(left), int) and isinstance(_plain(right), int):
            result = self.combine(kind, (left, right))
            if result is not NotImplemented:
                return result
        for operand in (left, right):
            if isinstance(operand, TracedInt | TracedFloat):
                operand.as_is(sign)
        return _OPERATORS[sign](_plain(left), _plain(right))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.as_is(f".{name}"), name)


_SHIFTS: Final = {"<<": "*", ">>": "//"}
_MOST_SHIFT: Final = 62
_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "**": lambda x, y: x**y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


class _Ratio:
    """The result of ``x / y`` for integers: ``math.ceil`` and ``math.floor`` of it are traced."""

    def __init__(self, above: object, below: object, trail: Trail) -> None:
        self._above, self._below, self._trail = above, below, trail

    def _whole_quotient(self, kind: OpKind) -> Any:
        traced = self._above if isinstance(self._above, TracedInt) else self._below
        return cast("TracedInt", traced).combine(kind, (self._above, self._below))

    def __ceil__(self) -> Any:
        return self._whole_quotient(OpKind.CDIV)

    def __floor__(self) -> Any:
        return self._whole_quotient(OpKind.FLOORDIV)

    def __float__(self) -> float:
        for part in (self._above, self._below):
            if isinstance(part, TracedInt):
                part.as_is("/")
        return _plain(self._above) / _plain(self._below)

    def __int__(self) -> int:
        return int(float(self))

    __trunc__ = __int__


def _of_float(name: str) -> Callable[..., Any]:
    def method(self: Any, *others: object) -> Any:
        return getattr(float(self), name)(*(_plain(other) for other in others))

    return method


_FLOAT_METHODS: Final = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
    *("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__neg__", "__pos__", "__abs__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__", "__hash__", "__round__", "__str__"),
    *("__repr__", "__format__"),
)


class _TracedArgument(native.StandIn):
    """The tracer of a whole argument: launches receive the argument; other uses are recorded under its name."""

    __slots__ = ("_name", "_trail")

    __torch_function__: Any = classmethod(_to_torch)

    def __new__(cls, value: object, name: str, trail: Trail) -> Self:
        """Makes a tracer of the argument ``name`` with the value ``value``."""
        traced = super().__new__(cls, value)
        traced._name = name
        traced._trail = trail
        return traced

    @property
    def argument(self) -> str:
        """The name of the argument."""
        return self._name

    def as_is(self, where: str) -> Any:
        """Returns the argument itself and records the use."""
        self._trail.used.setdefault(self._name, where)
        return self.stands_for


class TracedFloat(_TracedArgument):
    """The tracer of a float argument: launches receive the float; computations on it are not traced."""

    __slots__ = ()

    def __float__(self) -> float:
        return self.as_is("arithmetic")

    def __int__(self) -> int:
        return int(self.as_is("int()"))

    def __ceil__(self) -> int:
        return self.as_is("math.ceil").__ceil__()

    def __floor__(self) -> int:
        return self.as_is("math.floor").__floor__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.as_is(f".{name}"), name)


for _name in _FLOAT_METHODS:
    setattr(TracedFloat, _name, _of_float(_name))
    setattr(_Ratio, _name, _of_float(_name))


class _Address:
    """The traced result of ``data_ptr()``.

    Only its remainder (the alignment) can be computed; every other use raises ArgumentError.
    """

    def __init__(self, address: int, name: str, trail: Trail) -> None:
        self._address, self._name, self._trail = address, name, trail

    def __mod__(self, other: object) -> TracedInt:
        if not isinstance(other, int) or other <= 0:
            self._refuse()
        return TracedInt(self._address % other, make(OpKind.MOD, Argument(self._name), Const(other)), self._trail)

    def _refuse(self, *_: object) -> NoReturn:
        raise ArgumentError(
            f"a plan cannot follow {self._name}.data_ptr(), an address without its array: give launches the array"
        )

    __index__ = __int__ = __bool__ = __hash__ = __eq__ = __str__ = __repr__ = __add__ = __and__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __sub__ = __floordiv__ = __format__ = _refuse


class TracedArray(_TracedArgument):
    """The tracer of an array argument: launches receive the array; its extents and strides are traced integers."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[TracedInt, ...]:
        """The extents of the array, as traced integers."""
        sizes = enumerate(self.stands_for.shape)
        return tuple(TracedInt(int(size), Extent(self._name, axis), self._trail) for axis, size in sizes)

    def traced_axis(self, axis: int, number: int, *, stride: bool) -> TracedInt:
        """Returns a traced integer with the value ``number``, the extent or the stride (in elements) of an axis."""
        return TracedInt(number, (Stride if stride else Extent)(self._name, axis), self._trail)

    def size(self, dim: int | None = None) -> Any:
        """Returns the traced extents, or the extent of axis ``dim``.

        For an array whose ``size`` is a number and not a method, as numpy's is, returns the number of elements.
        """
        if not callable(self.stands_for.size):
            return self.numel()
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> Any:
        """Returns the number of elements as a traced integer."""
        total: Any = 1
        for extent in self.shape:
            total = extent * total
        return total

    def stride(self, dim: int | None = None) -> Any:
        """Returns the traced strides in elements, or the stride of axis ``dim``."""
        strides = self.stands_for.stride()
        traced_strides = tuple(
            TracedInt(int(stride), Stride(self._name, axis), self._trail) for axis, stride in enumerate(strides)
        )
        return traced_strides if dim is None else traced_strides[dim]

    def dim(self) -> int:
        """Returns the number of axes: a plain number, because a plan accepts only arrays with this number of axes."""
        return len(self.stands_for.shape)

    @property
    def ndim(self) -> int:
        """The number of axes. It is a plain number, because a plan accepts only arrays with this number of axes."""
        return len(self.stands_for.shape)

    @property
    def dtype(self) -> Any:
        """The plain dtype, because a plan accepts only arrays of this dtype."""
        return self.stands_for.dtype

    @property
    def device(self) -> Any:
        """The plain device, because a plan accepts only arrays on this device."""
        return self.stands_for.device

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "data_ptr" and hasattr(self.stands_for, "data_ptr"):
            return partial(_Address, self.stands_for.data_ptr(), self._name, self._trail)
        if name == "data_ptr":
            raise ArgumentError(
                f"a plan cannot follow {self._name}.data_ptr(), an address without its array: give launches the array"
            )
        if name in ("copy_from", "fill") and isinstance(self.stands_for, native.HostBuffer | native.GpuBuffer):
            from silo.launch import plan_copies  # noqa: PLC0415  # few functions have copies

            return partial(plan_copies.copy if name == "copy_from" else plan_copies.fill, self)
        # the member may read or write elements, which the plan would not notice
        if name not in _VIEWS and not is_of_torch(self.stands_for):
            raise _foreign(f".{name}", self._name)
        return getattr(self.as_is(f".{name}"), name)

    def __getitem__(self, index: object) -> Any:
        selected = self.as_is("a part of it")[index]
        if not is_of_torch(self.stands_for) and getattr(selected, "base", None) is None:
            raise _foreign("an index that reads elements", self._name)
        return selected

    def __setitem__(self, index: object, value: object) -> None:
        if not is_of_torch(self.stands_for):
            raise _foreign("an assignment", self._name)
        self.as_is("a part of it")[index] = value

    def __len__(self) -> int:
        return len(self.as_is("len()"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.as_is("a loop over it"))

    def __array_ufunc__(self, function: object, *_: object, **__: object) -> NoReturn:
        raise _foreign(f"numpy.{getattr(function, '__name__', function)}", self._name)

    def __array_function__(self, function: object, *_: object) -> NoReturn:
        raise _foreign(f"numpy.{getattr(function, '__name__', function)}", self._name)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise _foreign("numpy", self._name)


def _of_tensor(name: str) -> Callable[..., Any]:
    """Makes an operator that works for torch's tensors alone.

    A plan would not notice what the operator does to elements of other arrays.
    """

    def method(self: TracedArray, *others: object) -> Any:
        tensor: Any = self.stands_for
        if not is_of_torch(tensor) or not hasattr(tensor, name):
            return NotImplemented
        result = getattr(self.as_is(name.strip("_")), name)(*(_real(other, name.strip("_")) for other in others))
        return self if result is tensor else result

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "pow", "and", "or", "xor"):
    for _form in ("__{}__", "__r{}__", "__i{}__"):
        setattr(TracedArray, _form.format(_name), _of_tensor(_form.format(_name)))
for _name in ("__neg__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(TracedArray, _name, _of_tensor(_name))


def _foreign(label: str, name: str) -> ArgumentError:
    return ArgumentError(
        f"{label} works on {name} between launches, which a plan does not record: make it a kernel, or end the plan"
        " before it"
    )


_VIEWS: Final = frozenset(("T", "itemsize", "nbytes", "squeeze", "strides", "swapaxes", "transpose", "view"))
"""Attributes of arrays that read no element."""


def is_of_torch(array: object) -> bool:
    """Returns whether an array is a torch tensor.

    While a plan is recorded, Silo observes torch's operations on tensors (:mod:`silo.launch.plan_torch`). It does not
    observe operations on other arrays, such as numpy's.
    """
    return type(array).__module__.partition(".")[0] == "torch"


def _holds_others(value: object) -> bool:
    if not isinstance(value, tuple):
        return isinstance(value, list | dict | set)
    return any(not isinstance(item, bool | int | float | str | None) for item in cast("Sequence[object]", value))


def stand_in_for(name: str, value: object, trail: Trail) -> object:
    """Returns the tracer of an argument.

    A value of a type that is not traced (None, a bool, a string, other objects) is returned itself.
    """
    if type(value) is int:
        return TracedInt(value, Argument(name), trail)
    if type(value) is float:
        return TracedFloat(value, name, trail)
    if value is None or isinstance(value, bool | str):
        return value
    if _holds_others(value):
        raise ArgumentError(
            f"the argument {name} of a plan is a {type(value).__name__}, in which arrays and numbers are not followed:"
            " give each as an argument of its own"
        )
    try:
        native.read(value)
    except (TypeError, ValueError, RuntimeError):  # the value is not an array
        return value
    return TracedArray(value, name, trail)
