"""The fingerprint of a Triton kernel: a hash of its source, the functions it calls, globals and attributes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeAlias, cast

from silo.core.values import JSON, FunctionValue, digest, value_to_json
from silo.errors import SourceError
from silo.frozen import frozen
from silo.kinds.triton.front.adapter import is_constexpr
from silo.kinds.triton.front.triton_specialize import to_value
from silo.sources.reached_code import Names, Places, ReachedCode
from silo.sources.written_values import remember

__all__ = [
    "LIBRARIES",
    "Globals",
    "ReadSource",
    "fingerprint",
    "function_value",
    "functions_reached",
    "is_library",
    "plain_function",
    "read_attributes",
    "read_source",
    "texts_of",
]

# ---- The Python functions inside of Triton's objects, and libraries that are identified by name ----

LIBRARIES = ("triton", "builtins", "math", "typing", "copy")
"""Packages whose code is identified by name only: their versions are part of the compiler's identity."""


def is_library(name: str | None) -> bool:
    """Whether a module belongs to ``LIBRARIES``, so that its code is identified by name only."""
    return name is not None and name.partition(".")[0] in LIBRARIES


def plain_function(function: Any) -> Any:  # noqa: ANN401
    """The Python function inside of one of Triton's objects; any other object unchanged."""
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    return function


# ---- The fingerprint of a Triton kernel: a hash of its source, the functions it calls and the globals it reads ----

Globals: TypeAlias = dict[tuple[str, int], tuple[object, dict[str, Any]]]
"""Values with the dictionaries that hold them, by name and the dictionary's id: the form of Triton's own records."""


@frozen
class ReadSource:
    """The result of reading a kernel.

    ``names`` are the names in every text that was read, by the text's key. ``globals`` are the values of the globals
    that the kernel and the functions which it calls read, except modules and functions. ``places`` are all values that
    a program may change (:class:`silo.sources.kernel_source.ReadsPlaces`). ``functions`` are Triton's objects for the
    kernel and the functions that it calls, ``texts`` their source texts. ``attributes`` is true if any value is read as
    an attribute of a module or an object.
    """

    fingerprint: str
    names: Mapping[str, Names]
    globals: Globals
    places: tuple[object, ...] = ()
    functions: tuple[object, ...] = ()
    texts: tuple[str | None, ...] = ()
    attributes: bool = False


def fingerprint(function: Any) -> str:  # noqa: ANN401
    """sha256 in hex of a ``JITFunction``, a ``constexpr_function`` or a plain Python function.

    Raises:
        SourceError: the source is not available, or the kernel reads a global without a canonical form.
    """
    return read_source(function).fingerprint


def read_source(function: Any, names_of_texts: Mapping[str, Names] | None = None) -> ReadSource:  # noqa: ANN401
    """Reads a kernel's fingerprint and its parts. Texts whose names are in ``names_of_texts`` are not parsed again.

    Raises:
        SourceError: see :func:`fingerprint`.
    """
    reached = _Reached(names_of_texts)
    reached.refer(function)
    key = digest("triton-source/1", cast("JSON", reached.parts))
    functions = tuple(reached.functions)
    places = reached.places
    texts = texts_of(functions)
    return ReadSource(key, reached.names, reached.globals, places.listed, functions, texts, places.attributes)


def texts_of(functions: Sequence[Any]) -> tuple[str | None, ...]:
    """The text that Triton holds for each function, which a program may replace; None for objects without one."""
    return tuple(_text_of(function) for function in functions)


def _text_of(function: Any) -> str | None:  # noqa: ANN401
    text = getattr(function, "src", None)
    return text if isinstance(text, str) else None


def functions_reached(function: Any) -> list[Any]:  # noqa: ANN401
    """Triton's objects for the function and all functions that it calls; some may occur twice.

    Raises:
        SourceError: see :func:`fingerprint`.
    """
    reached = _Reached(None)
    reached.refer(function)
    return reached.functions


def function_value(function: Any) -> FunctionValue:  # noqa: ANN401
    """The value that represents a function passed as a constexpr; ``functions.recall`` converts it back."""
    return remember(
        FunctionValue(plain_function(function).__qualname__.replace("<locals>.", ""), fingerprint(function)), function
    )


class _Reached(ReachedCode):
    """Finds the code that a kernel reaches; unwraps functions of ``triton.jit`` and values of ``tl.constexpr``."""

    libraries = LIBRARIES

    def __init__(self, names_of_texts: Mapping[str, Names] | None) -> None:
        super().__init__(names_of_texts)
        self.globals: Globals = {}
        self.functions: list[Any] = []
        self.places = Places(self.is_library)

    def refer(self, target: Any) -> JSON:  # noqa: ANN401
        self.functions.append(target)
        return super().refer(target)

    def meet(self, function: Any, name: str) -> None:  # noqa: ANN401
        scope: dict[str, Any] = function.__globals__
        self.places.add_name(function, name)
        value = scope.get(name)
        if value is None or isinstance(value, ModuleType | BuiltinFunctionType) or self.is_function(value):
            return
        if getattr(value, "__triton_builtin__", False) or name in function.__code__.co_freevars:
            return
        self.globals[name, id(scope)] = (value, scope)

    def follow(self, holder: Any, name: str, value: Any) -> None:  # noqa: ANN401
        self.places.add_attribute(holder, name, value)

    def plain(self, function: Any) -> Any:  # noqa: ANN401
        return plain_function(function)

    def is_constant(self, value: Any) -> bool:  # noqa: ANN401
        return type(value).__name__ == "constexpr" and hasattr(value, "value")

    def own_text(self, target: Any) -> str | None:  # noqa: ANN401
        return _text_of(target)  # the JITFunction's own text, which a program may have replaced

    def flags(self, target: Any) -> Sequence[bool]:  # noqa: ANN401
        return [bool(getattr(target, name, False)) for name in ("noinline", "debug")]

    def value_of(self, value: Any) -> JSON:  # noqa: ANN401
        return value_to_json(to_value(value, functions=None))


# ---- Kernels that read constants as attributes of modules and objects, which are not part of Triton's own key ----

_PLAIN = (bool, int, float, str, tuple, type(None))


def read_attributes(function: Any) -> str:  # noqa: ANN401  # Triton's JITFunction
    """The kernel's fingerprint if it reads a value as an attribute (``helper.CONST``); "" otherwise.

    Returns "" also if Silo cannot read the kernel's source. For "", the caller leaves Triton's cache key as it is.
    """
    if not _may_read(function, set()):
        return ""

    try:
        read = read_source(function)
    except SourceError:
        return ""
    return read.fingerprint if read.attributes else ""


def _may_read(function: Any, seen: set[int]) -> bool:  # noqa: ANN401
    """Whether a name in the function's code refers to a module or an object outside of libraries. Parses no text."""
    plain = plain_function(function)
    if not isinstance(plain, FunctionType) or id(plain) in seen:
        return False
    seen.add(id(plain))
    cells = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False))
    for name in (*plain.__code__.co_names, *cells):
        value: Any = plain.__globals__.get(name)
        if name in cells:
            try:
                value = cells[name].cell_contents
            except ValueError:  # the variable of the closure is not bound yet
                continue
        if isinstance(value, _PLAIN) or is_constexpr(value):
            continue
        if isinstance(value, ModuleType):
            if not is_library(value.__name__):
                return True
        elif isinstance(plain_function(value), FunctionType):
            if not is_library(plain_function(value).__module__) and _may_read(value, seen):
                return True
        elif not is_library(getattr(value, "__module__", None)):
            return True
    return False
