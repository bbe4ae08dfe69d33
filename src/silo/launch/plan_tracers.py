"""Stand-ins for a function's arguments: known values that show what the function computes of them.

A plan runs its function once more with them. Launches are given what they stand for; arithmetic on an integer gives an
integer with its expression; a comparison is noted with its result; and any other use (``range``, an index, ``torch``)
gives the plain value and notes that the result may depend on it in an unknown way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, cast

from silo.core.nodes import Argument, Bindings, Const, Extent, Node, Op, OpKind, Stride, evaluate, leaves, make
from silo.core.traced import Known, as_node
from silo.errors import ArgumentError, ExpressionError, TraceError
from silo.launch import native

__all__ = ["TracedArray", "TracedFloat", "TracedInt", "Trail", "stand_in_for", "torch_operations"]


class Trail:
    """What a function did with its stand-ins.

    ``conditions`` are comparisons with their results: other results would have led elsewhere. ``used`` has the
    arguments whose value, or shape and strides, went where nothing is followed, each with a word for where.
    """

    def __init__(self) -> None:
        self.conditions: list[tuple[Node, bool]] = []
        self.used: dict[str, str] = {}

    def note(self, node: Node, where: str) -> None:
        """A value computed by ``node`` was used as it is."""
        for leaf in leaves(node):
            self.used.setdefault(leaf.argument if isinstance(leaf, Extent | Stride) else str(leaf), where)


_COMPARED: Final = {"<": OpKind.LT, "<=": OpKind.LE, ">": OpKind.GT, ">=": OpKind.GE, "==": OpKind.EQ, "!=": OpKind.NE}


def _plain(value: object) -> Any:  # noqa: ANN401  # whatever it stands for
    return value._value if isinstance(value, native.StandIn) else value  # noqa: SLF001  # the native base's member


class TracedInt(native.StandIn, Known):
    """An integer and the expression that it was computed by."""

    __slots__ = ("_node", "_trail")
    _value: int

    def __new__(cls, value: int, node: Node, trail: Trail) -> TracedInt:  # noqa: PYI034
        """An integer of 64 bits."""
        made = super().__new__(cls, value)
        made._node = node
        made._trail = trail
        return made

    @property
    def node(self) -> Node:
        return self._node

    def combine(self, kind: OpKind, operands: tuple[object, ...]) -> Any:  # noqa: ANN401  # an int or a TracedInt
        try:
            nodes = tuple(as_node(operand) for operand in operands)
            value = evaluate(Op(kind, tuple(Const(int(_plain(operand))) for operand in operands)), Bindings())
            node = make(kind, *nodes)
        except (ExpressionError, TraceError):  # no integer of 64 bits
            return NotImplemented
        return TracedInt(value, node, self._trail) if not isinstance(node, Const) else value

    def _compare(self, sign: str, other: object) -> bool:
        plain = _plain(other)
        known = isinstance(plain, int)
        result = _COMPARE[sign](self._value, plain)
        if result is NotImplemented:
            return result
        if known:
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

    def _as_is(self, where: str) -> int:
        self._trail.note(self._node, where)
        return self._value

    def __index__(self) -> int:
        return self._as_is("an index, a size or range()")

    def __int__(self) -> int:
        return self._as_is("int()")

    def __float__(self) -> float:
        return float(self._as_is("float()"))

    def __hash__(self) -> int:
        return hash(self._as_is("a key"))

    def __str__(self) -> str:
        return str(self._as_is("text"))

    def __repr__(self) -> str:
        return repr(self._as_is("text"))

    def __format__(self, spec: str) -> str:
        return format(self._as_is("text"), spec)

    def __truediv__(self, other: object) -> Any:  # noqa: ANN401  # a quotient, or a float
        return _Ratio(self, other, self._trail) if isinstance(_plain(other), int) else self._unknown("/", other)

    def __rtruediv__(self, other: object) -> Any:  # noqa: ANN401  # as above
        if isinstance(_plain(other), int):
            return _Ratio(other, self, self._trail)
        return _OPERATORS["/"](other, self._as_is("/"))

    def _unknown(self, sign: str, other: object) -> Any:  # noqa: ANN401  # what Python gives
        for one in (self, other):
            if isinstance(one, TracedInt | TracedFloat):
                one._as_is(sign)  # noqa: SLF001  # one of this module
        return _OPERATORS[sign](self._value, _plain(other))

    def __pos__(self) -> TracedInt:
        return self

    def __neg__(self) -> Any:  # noqa: ANN401  # an int or a TracedInt
        match self._node:
            case Op(OpKind.FLOORDIV, (Op(OpKind.NEG, (x,)), y)):  # -(-x // y)
                return TracedInt(-self._value, make(OpKind.CDIV, x, y), self._trail)
            case _:
                return self.combine(OpKind.NEG, (self,))

    def __abs__(self) -> Any:  # noqa: ANN401  # as above
        return self if self >= 0 else -self

    def __round__(self, digits: object = None) -> Any:  # noqa: ANN401  # as above
        return self if digits is None else round(self._as_is("round()"), cast("int", digits))

    def __ceil__(self) -> TracedInt:
        return self

    __floor__ = __trunc__ = __ceil__

    def __divmod__(self, other: object) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Any, Any]:
        return other // self, other % self

    def __lshift__(self, other: object) -> Any:  # noqa: ANN401  # as above
        return self * (1 << other) if _is_shift(other) else self._unknown("<<", other)

    def __rshift__(self, other: object) -> Any:  # noqa: ANN401  # as above
        return self // (1 << other) if _is_shift(other) else self._unknown(">>", other)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # members of an int
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._as_is(f".{name}"), name)


def _is_shift(amount: object) -> bool:
    return isinstance(amount, int) and 0 <= amount < 62


def _operators() -> dict[str, Callable[[Any, Any], Any]]:
    import operator as of  # noqa: PLC0415  # only while a plan is made

    return {
        "+": of.add,
        "-": of.sub,
        "*": of.mul,
        "//": of.floordiv,
        "%": of.mod,
        "/": of.truediv,
        "<<": of.lshift,
        ">>": of.rshift,
        "&": of.and_,
        "|": of.or_,
        "^": of.xor,
        "**": of.pow,
    }


_OPERATORS: Final = _operators()
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}
_FOLLOWED: Final = {
    "+": OpKind.ADD,
    "-": OpKind.SUB,
    "*": OpKind.MUL,
    "//": OpKind.FLOORDIV,
    "%": OpKind.MOD,
    "<<": None,
    ">>": None,
    "&": None,
    "|": None,
    "^": None,
    "**": None,
}
_METHODS: Final = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "//": "floordiv",
    "%": "mod",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "|": "or",
    "^": "xor",
    "**": "pow",
}


def _binary(sign: str, kind: OpKind | None, *, turned: bool) -> Callable[[TracedInt, object], object]:
    def method(self: TracedInt, other: object) -> object:
        if kind is not None and isinstance(_plain(other), int):
            result = self.combine(kind, (other, self) if turned else (self, other))
            if result is not NotImplemented:
                return result
        if not turned:
            return self._unknown(sign, other)  # noqa: SLF001  # a method of the class
        return _OPERATORS[sign](other, self._as_is(sign))  # noqa: SLF001  # as above

    return method


for _sign, _name in _METHODS.items():
    if f"__{_name}__" not in vars(TracedInt):
        setattr(TracedInt, f"__{_name}__", _binary(_sign, _FOLLOWED[_sign], turned=False))
    setattr(TracedInt, f"__r{_name}__", _binary(_sign, _FOLLOWED[_sign], turned=True))


class _Ratio:
    """A true division of integers: ``math.ceil`` and ``math.floor`` of it are followed."""

    def __init__(self, above: object, below: object, trail: Trail) -> None:
        self._above, self._below, self._trail = above, below, trail

    def _whole(self, kind: OpKind) -> Any:  # noqa: ANN401  # an int or a TracedInt
        one = self._above if isinstance(self._above, TracedInt) else self._below
        return cast("TracedInt", one).combine(kind, (self._above, self._below))

    def __ceil__(self) -> Any:  # noqa: ANN401  # as above
        return self._whole(OpKind.CDIV)

    def __floor__(self) -> Any:  # noqa: ANN401  # as above
        return self._whole(OpKind.FLOORDIV)

    def __float__(self) -> float:
        for one in (self._above, self._below):
            if isinstance(one, TracedInt):
                one._as_is("/")  # noqa: SLF001  # one of this module
        return _plain(self._above) / _plain(self._below)

    def __int__(self) -> int:
        return int(float(self))

    __trunc__ = __int__


def _of_float(name: str) -> Callable[..., Any]:
    def method(self: Any, *others: object) -> Any:  # noqa: ANN401  # a quotient or a float
        return getattr(float(self), name)(*(_plain(other) for other in others))

    return method


_FLOAT_METHODS: Final = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
    *("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__neg__", "__pos__", "__abs__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__", "__hash__", "__round__", "__str__"),
    *("__repr__", "__format__"),
)


class TracedFloat(native.StandIn):
    """A float argument: launches are given it; what is computed of it is not followed."""

    __slots__ = ("_name", "_trail")
    _value: float

    def __new__(cls, value: float, name: str, trail: Trail) -> TracedFloat:  # noqa: PYI034
        """The argument of that name."""
        made = super().__new__(cls, value)
        made._name = name
        made._trail = trail
        return made

    @property
    def argument(self) -> str:
        """Its name."""
        return self._name

    def _as_is(self, where: str) -> float:
        self._trail.used.setdefault(self._name, where)
        return self._value

    def __float__(self) -> float:
        return self._as_is("arithmetic")

    def __int__(self) -> int:
        return int(self._as_is("int()"))

    def __ceil__(self) -> int:
        return self._as_is("math.ceil").__ceil__()

    def __floor__(self) -> int:
        return self._as_is("math.floor").__floor__()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # members of a float
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._as_is(f".{name}"), name)


for _name in _FLOAT_METHODS:
    setattr(TracedFloat, _name, _of_float(_name))
    setattr(_Ratio, _name, _of_float(_name))


class TracedArray(native.StandIn):
    """An array argument: launches are given it; its extents and strides are integers with expressions."""

    __slots__ = ("_name", "_trail")
    _value: Any

    def __new__(cls, value: object, name: str, trail: Trail) -> TracedArray:  # noqa: PYI034
        """The argument of that name."""
        made = super().__new__(cls, value)
        made._name = name
        made._trail = trail
        return made

    @property
    def argument(self) -> str:
        """Its name."""
        return self._name

    def _as_is(self, where: str) -> Any:  # noqa: ANN401  # the array
        self._trail.used.setdefault(self._name, where)
        return self._value

    @property
    def shape(self) -> tuple[TracedInt, ...]:
        """Its extents."""
        sizes = enumerate(self._value.shape)
        return tuple(TracedInt(int(size), Extent(self._name, axis), self._trail) for axis, size in sizes)

    def size(self, dim: int | None = None) -> Any:  # noqa: ANN401  # as torch's method
        """Its extents, or one of them; of numpy's arrays a number."""
        if not callable(self._value.size):
            return self.numel()
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> Any:  # noqa: ANN401  # an int or a TracedInt
        """The number of its elements."""
        total: Any = 1
        for extent in self.shape:
            total = extent * total
        return total

    def stride(self, dim: int | None = None) -> Any:  # noqa: ANN401  # as torch's method
        """Its strides in elements, or one of them."""
        strides = self._value.stride()
        made = tuple(TracedInt(int(one), Stride(self._name, axis), self._trail) for axis, one in enumerate(strides))
        return made if dim is None else made[dim]

    def dim(self) -> int:
        """The number of its axes, which a plan holds."""
        return len(self._value.shape)

    @property
    def ndim(self) -> int:
        """The number of its axes, which a plan holds."""
        return len(self._value.shape)

    @property
    def dtype(self) -> Any:  # noqa: ANN401  # the library's own
        """Its element type, which a plan holds."""
        return self._value.dtype

    @property
    def device(self) -> Any:  # noqa: ANN401  # the library's own
        """Where it lies, which a plan holds."""
        return self._value.device

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # members of the array
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "data_ptr":
            raise ArgumentError(
                f"a plan cannot follow {self._name}.data_ptr(), an address without its array: give launches the array"
            )
        return getattr(self._as_is(f".{name}"), name)

    def __getitem__(self, index: object) -> Any:  # noqa: ANN401  # a view
        return self._as_is("a part of it")[index]

    def __len__(self) -> int:
        return len(self._as_is("len()"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._as_is("a loop over it"))

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], kinds: object, args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401  # what the function gives
        del kinds

        def real(value: object) -> object:
            if isinstance(value, TracedArray):
                return value._as_is(getattr(function, "__name__", "torch"))  # noqa: SLF001  # one of this class
            if isinstance(value, list | tuple):
                return type(value)(real(one) for one in cast("list[object]", value))
            return value

        return function(*(real(one) for one in args), **{name: real(one) for name, one in (kwargs or {}).items()})

    def __array_ufunc__(self, function: object, *_: object, **__: object) -> NoReturn:
        raise _foreign(f"numpy.{getattr(function, '__name__', function)}", self._name)

    def __array_function__(self, function: object, *_: object) -> NoReturn:
        raise _foreign(f"numpy.{getattr(function, '__name__', function)}", self._name)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise _foreign("numpy", self._name)


def _foreign(what: str, name: str) -> ArgumentError:
    return ArgumentError(
        f"{what} works on {name} between launches, which a plan does not record: make it a kernel, or end the plan there"
    )


def stand_in_for(name: str, value: object, trail: Trail) -> object:
    """What a function gets in place of an argument; the value itself where nothing of it is followed."""
    if type(value) is int:
        return TracedInt(value, Argument(name), trail)
    if type(value) is float:
        return TracedFloat(value, name, trail)
    if value is None or isinstance(value, bool | str):
        return value
    try:
        native.read(value)
    except (TypeError, ValueError, RuntimeError):  # no array
        return value
    return TracedArray(value, name, trail)


_QUIET: Final = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias", "view")
)


@contextmanager
def torch_operations() -> Generator[list[str]]:
    """The names of torch's operations on memory that run in this block, in order; nothing where torch is not loaded.

    Views and new memory that nothing is written to are no such operations.
    """
    found: list[str] = []
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "utils"):
        yield found
        return
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:  # noqa: ANN401  # torch's protocol
            name = function._schema.name  # noqa: SLF001  # the one name that all versions have
            if not function.is_view and name not in _QUIET:
                found.append(name.replace("aten::", "torch."))
            return function(*args, **(kwargs or {}))

    with Watch():
        yield found
