"""Tracing: a Python function of one namespace becomes an expression.

The function runs once, with tracers for arguments, config values and device facts. ``silo.cdiv``, similar functions of
the libraries that kernels are written with, ``min``, ``max``, ``math.ceil`` and ``math.floor`` are replaced while it
runs: a copy of the function gets globals and a closure in which those objects are ours. Their own bodies never run and
their libraries are never imported, so every version leads to the same expression.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from silo.core.device import DEVICE_FACTS
from silo.core.expressions import Argument, ConfigValue, DeviceFact, Extent, ItemSize, Node, OpKind, Stride
from silo.core.plugins import SOURCES, is_option, part_of
from silo.core.traced import Integer, Ratio, Traced, apply, as_node, cdiv, maximum, minimum, next_pow2, select
from silo.errors import ExpressionError, TraceError

__all__ = [
    "ArrayStandIn",
    "Axes",
    "Copier",
    "DtypeStandIn",
    "Integer",
    "Namespace",
    "Traced",
    "cdiv",
    "maximum",
    "minimum",
    "next_pow2",
    "select",
    "teach",
    "trace_grid",
    "trace_indices",
    "trace_value",
]


# ---- Stand-ins ----


class ArrayStandIn(Traced):
    """A tracer for an argument: its value, and if it is an array its shape, strides and dtype."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__(Argument(name))
        self._name = name

    @property
    def shape(self) -> Axes:
        """Extents."""
        return Axes(self._name, "shape", Extent)

    def size(self, axis: object = None) -> Traced:
        """One extent, as torch spells it."""
        return Axes(self._name, "shape", Extent)[axis]

    def stride(self, axis: object = None) -> Traced:
        """One stride, in elements."""
        return Axes(self._name, "stride", Stride)[axis]

    @property
    def dtype(self) -> DtypeStandIn:
        """The dtype, of which only the item size is known."""
        return DtypeStandIn(self._name)

    @property
    def itemsize(self) -> Traced:
        """Bytes per element, as numpy spells it."""
        return Traced(ItemSize(self._name))

    def element_size(self) -> Traced:
        """Bytes per element, as torch spells it."""
        return Traced(ItemSize(self._name))

    def numel(self) -> NoReturn:
        """Refused: it needs the rank."""
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
class Axes:
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
class DtypeStandIn:
    """The dtype of an array argument."""

    argument: str

    @property
    def itemsize(self) -> Traced:
        """Bytes per element."""
        return Traced(ItemSize(self.argument))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(f"{self.argument}.dtype.{name} is not part of expressions; .dtype.itemsize is")

    def __eq__(self, other: object) -> NoReturn:
        raise TraceError(f"dtypes cannot be compared in expressions: compare {self.argument}.dtype.itemsize")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class DeviceStandIn:
    def __getattr__(self, name: str) -> Traced:
        if name.startswith("__"):
            raise AttributeError(name)
        return Traced(DeviceFact(name))


class Namespace:
    """The argument of the traced function: members as attributes and as items."""

    def __init__(self, arguments: Iterable[str], config: Iterable[str]) -> None:
        self._members: dict[str, object] = {
            **{name: ArrayStandIn(name) for name in arguments},
            **{name: Traced(ConfigValue(name)) for name in config},
        }

    def __getitem__(self, name: object) -> object:
        if name in self._members:
            return self._members[cast("str", name)]
        if name == "device":
            return DeviceStandIn()
        if isinstance(name, str) and is_option(name):
            return Traced(ConfigValue(name))
        if name in DEVICE_FACTS:
            return Traced(DeviceFact(cast("str", name)))
        known = ", ".join(self._members)
        raise TraceError(
            f"nothing is called {name!r} here; known: {known or 'no name'}, and device facts such as a.sm_count"
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
        """The names, as a dict has them."""
        return self._members.keys()

    def get(self, name: str, default: object = None) -> object:
        """A member, or a default, as a dict has it."""
        return self._members.get(name, default)


# ---- Copies of functions whose globals are replaced by versions that can be trace ----


def _extremum(kind: OpKind, plain: Callable[..., object]) -> Callable[..., object]:
    def traced(*operands: object, **options: object) -> object:
        values = tuple(cast("Iterable[object]", operands[0])) if len(operands) == 1 else operands
        if not any(isinstance(value, Traced | Ratio) for value in values):
            return plain(*operands, **options)
        if options:
            raise TraceError(f"{plain.__name__} with {', '.join(options)}= cannot be traced")
        return functools.reduce(lambda x, y: apply(kind, x, y), (Traced(as_node(value)) for value in values))

    return traced


def _int(value: object = 0, *base: object) -> object:
    if isinstance(value, Ratio):
        raise TraceError("int() of a true division cannot be traced: write x // y, silo.cdiv(x, y) or math.ceil(x / y)")
    return value if isinstance(value, Traced) else int(cast("str", value), *cast("list[Any]", base))


def _bool(value: object = False) -> object:  # noqa: FBT002  # the signature of bool
    return value != 0 if isinstance(value, Traced) else bool(value)


def _refusing(plain: Callable[..., object], advice: str) -> Callable[..., object]:
    def refuse(*operands: object, **options: object) -> object:
        if any(isinstance(operand, Traced | Ratio | Axes | DtypeStandIn) for operand in operands):
            raise TraceError(f"{plain.__name__} cannot be traced: {advice}")
        return plain(*operands, **options)

    return refuse


def _rounding(kind: OpKind, plain: Callable[..., object]) -> Callable[..., object]:
    def traced(value: object) -> object:
        if isinstance(value, Ratio):
            return apply(kind, value.numerator, value.denominator)
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

# By the library that kernels are written with: its functions that mean one of ours, by name.
_taught: dict[str, Mapping[str, Callable[..., object]]] = {}
# Their functions accept tracers unchanged, Silo's own functions in particular.
_OPAQUE_MODULES = frozenset({"silo", "functools", "itertools", "operator", "math"})


def teach(library: str, functions: Mapping[str, Callable[..., object]]) -> None:
    """Have functions of a library traced as ours (of :mod:`silo.core.trace`): for source plug-ins, when imported."""
    _taught[library] = dict(functions)


class _ModuleProxy:
    """A module as the traced function sees it: some members replaced, everything else passed through."""

    def __init__(self, module: types.ModuleType, replace: Callable[[object], object]) -> None:
        self._module, self._replace = module, replace

    def __getattr__(self, name: str) -> object:
        return self._replace(getattr(self._module, name))


class Copier:
    """Copies functions so that the names they read lead to our versions. One copier, one copy of each function."""

    def __init__(self) -> None:
        self._copies: dict[int, object] = {}

    def callable(self, function: Callable[..., object]) -> Callable[..., object]:
        """A copy of the user's function; raises ``TraceError`` if it is not a Python function."""
        if isinstance(function, types.MethodType):
            return types.MethodType(self.callable(function.__func__), function.__self__)
        if isinstance(function, functools.partial):
            partial = cast("functools.partial[object]", function)
            return functools.partial(self.callable(partial.func), *partial.args, **partial.keywords)
        if isinstance(function, types.FunctionType):
            return cast("Callable[..., object]", self._copy(function))
        raise TraceError(f"{function!r} is not a Python function: write a lambda or a def of one namespace")

    def replace(self, value: object) -> object:
        """The replacement of one object in a traced function."""
        if id(value) in _BY_IDENTITY:
            return _BY_IDENTITY[id(value)]
        library, name = _origin(value)
        if name and (known := _meanings(library).get(name)) is not None:
            return known
        if isinstance(value, types.ModuleType):
            root = value.__name__.partition(".")[0]
            return _ModuleProxy(value, self.replace) if root in ("math", "builtins") or _meanings(root) else value
        if isinstance(value, types.FunctionType) and not _is_opaque(value):
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


def _origin(value: object) -> tuple[str, str]:
    """The library of a function and its name there, for a plain function and for one in an object of the library."""
    library = _root(getattr(value, "__module__", None))
    if not _meanings(library):
        # An object that holds a function: its class is the library's, and so is the function.
        library = _root(type(value).__module__)
        value = getattr(value, "fn", None) if _meanings(library) else None
        if value is None or _root(getattr(value, "__module__", None)) != library:
            return "", ""
    name = getattr(value, "__name__", None) or getattr(getattr(value, "fn", None), "__name__", None)
    return (library, name) if isinstance(name, str) else ("", "")


def _root(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


def _meanings(library: str) -> Mapping[str, Callable[..., object]]:
    return _taught[library] if library in _taught else _own_meanings(library)


@functools.cache
def _own_meanings(library: str) -> Mapping[str, Callable[..., object]]:
    """The value of Silo's own source plug-in of that name: ``FUNCTIONS`` in its module ``tracing``.

    It is found by name, because a function may be traced before any kernel of the kind is seen.
    """
    part = part_of(SOURCES, library, "tracing")
    return {} if part is None else part.FUNCTIONS


def _is_opaque(function: types.FunctionType) -> bool:
    module = cast("object", function.__module__)  # None if exec got globals without a name
    return isinstance(module, str) and module.partition(".")[0] in _OPAQUE_MODULES


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _global_names(code: types.CodeType) -> frozenset[str]:
    return frozenset(name for one in _codes(code) for name in one.co_names)


def _refuse_identity_tests(code: types.CodeType) -> None:
    """``x is None`` would silently be False for any tracer, so it is refused before the function runs."""
    for one in _codes(code):
        for instruction in dis.get_instructions(one):
            if instruction.opname == "IS_OP" or ("JUMP" in instruction.opname and instruction.opname.endswith("NONE")):
                raise TraceError(
                    f"`is` and `is not`, in {one.co_name}, have no value while tracing: compare integers with == and !="
                )


# ---- Tracing ----


def trace_grid(
    function: Callable[[Any], object] | Sequence[object], arguments: Sequence[str], config: Sequence[str]
) -> tuple[Node, ...]:
    """The expressions, one an axis, of a grid: a function of one namespace, or a tuple of 1 to 3 integers.

    ``arguments`` and ``config`` are the names the function may read; compile options such as ``num_warps`` are always
    known. ``TraceError`` names the operation that cannot be traced, and the cure.

    >>> [str(axis) for axis in trace_grid(lambda a: (cdiv(a.n, a.BLOCK), 1), ["n"], ["BLOCK"])]
    ['cdiv(n, BLOCK)', '1']
    """
    result = _run(function, [Namespace(arguments, config)]) if callable(function) else function
    axes = tuple(cast("Iterable[object]", result)) if isinstance(result, tuple | list) else (result,)
    if not 1 <= len(axes) <= 3:
        raise TraceError(f"a grid has 1 to 3 axes, and {_place(function)} gives {len(axes)}")
    return tuple(as_node(axis) for axis in axes)


def trace_value(function: Callable[[Any], object], arguments: Sequence[str], config: Sequence[str] = ()) -> Node:
    """The expression of one value, as :func:`trace_grid` does."""
    return as_node(_run(function, [Namespace(arguments, config)]))


def trace_indices(function: Callable[..., object], names: Sequence[str]) -> Node:
    """The expression of a function of integers, one for each name, passed by position.

    >>> str(trace_indices(lambda i, j: i * 8 + j % 3, ["i", "j"]))
    '((i * 8) + (j % 3))'
    """
    return as_node(_run(function, [Traced(Argument(name)) for name in names]))


def _run(function: Callable[..., object], given: Sequence[object]) -> object:
    try:
        return Copier().callable(function)(*given)
    except (TraceError, ExpressionError) as error:
        raise TraceError(f"{_place(function)} cannot become an expression: {error}") from None
    except Exception as error:  # whatever the user's function raised is reported with its place
        raise TraceError(f"{_place(function)} failed while it was traced: {type(error).__name__}: {error}") from error


def _place(function: object) -> str:
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType):
        return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    return repr(function)
