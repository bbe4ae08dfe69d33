"""Copies of functions whose globals are replaced by versions that can be traced."""

from __future__ import annotations

import builtins
import dis
import functools
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from silo.core.nodes import OpKind
from silo.core.plugins import SOURCES, part_of
from silo.core.traced import Ratio, Traced, apply, as_node
from silo.core.tracers import Axes, DtypeStandIn
from silo.errors import TraceError

__all__ = ["Copier", "teach"]


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
# Their functions take stand-ins as they are, ours above all.
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
        """The version of one object that a traced function gets to see."""
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
    """The library a function comes from and its name there, be it plain or in an object of the library's."""
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
    module = cast("object", function.__module__)  # None where exec was given globals without a name
    return isinstance(module, str) and module.partition(".")[0] in _OPAQUE_MODULES


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
                raise TraceError(
                    f"`is` and `is not`, in {one.co_name}, have no value while tracing: compare integers with == and !="
                )
