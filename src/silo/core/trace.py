"""Tracing: turns a Python function of one namespace into an expression.

The function runs once, with tracers for arguments, config values and device facts. ``silo.cdiv``, similar functions of
the libraries that kernels are written with, ``min``, ``max``, ``math.ceil`` and ``math.floor`` are replaced while it
runs: a copy of the function gets globals and a closure that hold Silo's versions. The originals never run and their
libraries are never imported, so every version of a library leads to the same expression.
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
    "ArrayTracer",
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


# ---- Tracers ----


class ArrayTracer(Traced):
    """A tracer for an argument: its value, and if it is an array its shape, strides and dtype."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__(Argument(name))
        self._name = name

    @property
    def shape(self) -> Axes:
        """The shape; each extent is a tracer."""
        return Axes(self._name, "shape", Extent)

    def size(self, axis: object = None) -> Traced:
        """Returns one extent, like torch's method of this name."""
        return Axes(self._name, "shape", Extent)[axis]

    def stride(self, axis: object = None) -> Traced:
        """Returns one stride in elements, like torch's method of this name."""
        return Axes(self._name, "stride", Stride)[axis]

    @property
    def dtype(self) -> DtypeStandIn:
        """The dtype, of which only the item size can be used."""
        return DtypeStandIn(self._name)

    @property
    def itemsize(self) -> Traced:
        """Bytes per element, like numpy's attribute of this name."""
        return Traced(ItemSize(self._name))

    def element_size(self) -> Traced:
        """Returns the bytes per element, like torch's method of this name."""
        return Traced(ItemSize(self._name))

    def numel(self) -> NoReturn:
        """Raises TraceError: the number of elements depends on the rank, which is unknown."""
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
    """The ``shape`` or ``stride`` of an array whose rank is unknown."""

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
    """The tracer for the dtype of an array argument."""

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
    """The argument of the traced function; arguments and config values are its attributes and its items."""

    def __init__(self, arguments: Iterable[str], config: Iterable[str]) -> None:
        self._members: dict[str, object] = {
            **{name: ArrayTracer(name) for name in arguments},
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
        members = ", ".join(self._members)
        raise TraceError(
            f"nothing is called {name!r} here; known: {members or 'no name'}, and device facts such as a.sm_count"
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
        """Returns the names, like a dict."""
        return self._members.keys()

    def get(self, name: str, default: object = None) -> object:
        """Returns a member or a default, like a dict."""
        return self._members.get(name, default)


# ---- Copies of functions whose globals are replaced by traceable versions ----


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
# Replacements of builtins by the id of the builtin, because a function may reach a builtin under another name.
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

# For each library that kernels are written with: the functions that have a traceable version in Silo, by name.
_taught: dict[str, Mapping[str, Callable[..., object]]] = {}
# The functions of these modules, Silo's own included, accept tracers unchanged.
_OPAQUE_MODULES = frozenset({"silo", "functools", "itertools", "operator", "math"})


def teach(library: str, functions: Mapping[str, Callable[..., object]]) -> None:
    """Registers the traceable versions of a library's functions; source plug-ins call it when imported."""
    _taught[library] = dict(functions)


class _ModuleProxy:
    """A module as the traced function sees it: some members are replaced, all others passed through."""

    def __init__(self, module: types.ModuleType, replace: Callable[[object], object]) -> None:
        self._module, self._replace = module, replace

    def __getattr__(self, name: str) -> object:
        return self._replace(getattr(self._module, name))


class Copier:
    """Copies functions; the names that a copy reads lead to Silo's versions. Each function is copied once."""

    def __init__(self) -> None:
        self._copies: dict[int, object] = {}

    def callable(self, function: Callable[..., object]) -> Callable[..., object]:
        """Returns a copy of the user's function; raises ``TraceError`` if it is not a Python function."""
        if isinstance(function, types.MethodType):
            return types.MethodType(self.callable(function.__func__), function.__self__)
        if isinstance(function, functools.partial):
            partial = cast("functools.partial[object]", function)
            return functools.partial(self.callable(partial.func), *partial.args, **partial.keywords)
        if isinstance(function, types.FunctionType):
            return cast("Callable[..., object]", self._copy(function))
        raise TraceError(f"{function!r} is not a Python function: write a lambda or a def of one namespace")

    def replace(self, value: object) -> object:
        """Returns the object that a traced function gets in place of ``value``."""
        if id(value) in _BY_IDENTITY:
            return _BY_IDENTITY[id(value)]
        library, name = _origin(value)
        if name and (meaning := _meanings(library).get(name)) is not None:
            return meaning
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
        # The closure is rebuilt with new cells: writing into the original's cells would change the user's program.
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        result = types.FunctionType(
            function.__code__, copied, function.__name__, function.__defaults__, cells if function.__closure__ else None
        )
        result.__kwdefaults__ = function.__kwdefaults__
        # The copy is stored before the globals that it reads are copied: functions may call each other, which would
        # lead to endless copying.
        self._copies[id(function)] = result
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                copied[name] = self.replace(function.__globals__[name])
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            try:
                cell.cell_contents = self.replace(original.cell_contents)
            except ValueError:  # the cell is still empty
                continue
        return result


def _origin(value: object) -> tuple[str, str]:
    """Returns the library of a function and its name there; also for a function that an object of the library wraps.

    Returns ("", "") for any other value.
    """
    library = _root(getattr(value, "__module__", None))
    if not _meanings(library):
        # An object that wraps a function: its class and the function must both be the library's.
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
    """Returns ``FUNCTIONS`` of the module ``tracing`` in Silo's source plug-in ``library``; {} without one.

    The module is found by name, because a function may be traced before the kind's plug-in is imported.
    """
    part = part_of(SOURCES, library, "tracing")
    return {} if part is None else part.FUNCTIONS


def _is_opaque(function: types.FunctionType) -> bool:
    module = cast("object", function.__module__)  # None if exec ran with globals that have no __name__
    return isinstance(module, str) and module.partition(".")[0] in _OPAQUE_MODULES


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _global_names(code: types.CodeType) -> frozenset[str]:
    return frozenset(name for nested in _codes(code) for name in nested.co_names)


def _refuse_identity_tests(code: types.CodeType) -> None:
    """Raises TraceError for ``x is None`` and the like, which would silently be False for any tracer."""
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
    """Returns the expressions of a grid's axes. The grid is a function of one namespace, or a tuple of 1 to 3 integers.

    ``arguments`` and ``config`` are the names the function may read; compile options such as ``num_warps`` are always
    known. ``TraceError`` names the operation that cannot be traced, and the remedy.

    >>> [str(axis) for axis in trace_grid(lambda a: (cdiv(a.n, a.BLOCK), 1), ["n"], ["BLOCK"])]
    ['cdiv(n, BLOCK)', '1']
    """
    result = _run(function, [Namespace(arguments, config)]) if callable(function) else function
    axes = tuple(cast("Iterable[object]", result)) if isinstance(result, tuple | list) else (result,)
    if not 1 <= len(axes) <= 3:
        raise TraceError(f"a grid has 1 to 3 axes, and {_source_location(function)} gives {len(axes)}")
    return tuple(as_node(axis) for axis in axes)


def trace_value(function: Callable[[Any], object], arguments: Sequence[str], config: Sequence[str] = ()) -> Node:
    """Returns the expression of one value, traced like a grid by :func:`trace_grid`."""
    return as_node(_run(function, [Namespace(arguments, config)]))


def trace_indices(function: Callable[..., object], names: Sequence[str]) -> Node:
    """Returns the expression of a function of integers, one for each name, passed by position.

    >>> str(trace_indices(lambda i, j: i * 8 + j % 3, ["i", "j"]))
    '((i * 8) + (j % 3))'
    """
    return as_node(_run(function, [Traced(Argument(name)) for name in names]))


def _run(function: Callable[..., object], arguments: Sequence[object]) -> object:
    try:
        return Copier().callable(function)(*arguments)
    except (TraceError, ExpressionError) as error:
        raise TraceError(f"{_source_location(function)} cannot become an expression: {error}") from None
    except Exception as error:  # an exception of the user's function is reported with its source line
        raise TraceError(
            f"{_source_location(function)} failed while it was traced: {type(error).__name__}: {error}"
        ) from error


def _source_location(function: object) -> str:
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType):
        return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
    return repr(function)
