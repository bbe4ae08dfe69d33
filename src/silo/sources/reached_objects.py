"""The content of a fingerprint if kernels are Python objects too: classes, their objects, partial calls."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import textwrap
from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import Any, ClassVar, cast

from silo.core.python_syntax import parse_python
from silo.core.values import JSON, Value, canonical_json, value_to_json
from silo.errors import SourceError
from silo.sources import constant_values
from silo.sources.constant_values import NOT_SPECIAL, NotSpecial
from silo.sources.reached_code import ReachedCode, definition_of

__all__ = ["ReachedObjects", "plain_function", "reached_by"]

_STANDARD = ("abc", "collections", "dataclasses", "enum", "functools", "inspect", "itertools", "logging", "operator")


def reached_by(code: ReachedObjects, root: Any) -> JSON:  # noqa: ANN401
    """Everything that decides the behaviour of an author's function, object or class, as data.

    Raises:
        SourceError: a source is not available, or a value that is read has no canonical form.
    """
    first = code.encode(root, getattr(root, "__name__", type(root).__name__))
    return [first, cast("JSON", code.parts)]


def plain_function(function: Any, libraries: Sequence[str]) -> Any:  # noqa: ANN401
    """The author's function inside of wrappers of a library or ``functools``; any other object unchanged."""
    while True:
        if isinstance(function, MethodType):  # it shows its function's attributes, but is bound to an object too
            return function
        if isinstance(function, staticmethod | classmethod):
            function = cast("Any", function).__func__
        elif isinstance(function, FunctionType):
            inner = function.__dict__.get("__wrapped__")
            # An author's own decorator is part of the code: it is examined, and leads to the function itself.
            if inner is None or str(function.__globals__.get("__name__")).partition(".")[0] not in libraries:
                return function
            function = inner
        elif not inspect.isclass(function) and isinstance(getattr(function, "__wrapped__", None), FunctionType):
            function = function.__wrapped__  # functools.cache, jax.jit
        else:
            return function


class ReachedObjects(ReachedCode):
    """Functions that a library wraps, the author's classes with all their parts, and objects of these."""

    libraries: ClassVar[tuple[str, ...]] = (*_STANDARD, *ReachedCode.libraries)
    constant_word: ClassVar[str] = "a constexpr"
    """The library's word for a value that is part of the code."""

    def special(self, value: Any) -> Value | NotSpecial:  # noqa: ANN401
        """The value of an object of the library, for example a dtype."""
        del value
        return NOT_SPECIAL

    def refuse(self, value: Any, name: str) -> None:  # noqa: ANN401
        """Raises SourceError for an object that kernels of the library must not read."""
        del value, name

    def plain(self, function: Any) -> Any:  # noqa: ANN401
        """The author's function."""
        return plain_function(function, self.libraries)

    def own_text(self, target: Any) -> str | None:  # noqa: ANN401
        """The text of a lambda; None for other functions."""
        plain = self.plain(target)
        return _lambda_text(plain) if plain.__name__ == "<lambda>" else None

    def value_of(self, value: Any) -> JSON:  # noqa: ANN401
        """The canonical form of a plain value; functions raise TypeError, because they are reached by reference."""
        if isinstance(value, FunctionType):
            raise TypeError
        return value_to_json(constant_values.to_value(value, self.special))

    def describe_class(self, kind: type) -> JSON:
        """Its text, its bases, its functions, and the values that its text may take from globals."""
        if self.is_library(kind.__module__):
            return ["library", f"{kind.__module__}.{kind.__qualname__}"]
        source = _class_text(kind, self.libraries)
        bases = [self.encode(base, base.__qualname__) for base in kind.__bases__]
        members: list[JSON] = []
        for name, member in vars(kind).items():
            parts = (member.fget, member.fset) if isinstance(member, property) else (member,)
            functions = [one for one in parts if self.is_function(one) and _has_source(self.plain(one))]
            if functions:
                members.append([name, [self.refer(one) for one in functions]])
            elif not name.startswith("__") and (value := self._plain_value(member)) is not None:
                members.append([name, value])
        return ["class", source, bases, members]

    def _plain_value(self, member: object) -> JSON:
        """The value of a class's attribute, because the text may take it from a global; None for other attributes."""
        try:
            return ["value", self.value_of(member)]
        except TypeError:
            return None

    def describe_object(self, value: Any, name: str, depth: int) -> JSON:  # noqa: ANN401
        """Partial calls, methods, sets, and objects by their class and attributes."""
        if isinstance(value, functools.partial):
            whole = cast("functools.partial[object]", value)
            parts = (whole.func, whole.args, whole.keywords)
            return ["partial", [self.encode(part, name, depth + 1) for part in parts]]
        if isinstance(value, MethodType):
            return ["method", self.refer(value.__func__), self.encode(value.__self__, name, depth + 1)]
        if isinstance(value, set | frozenset):
            members = [self.encode(item, name, depth + 1) for item in cast("set[object]", value)]
            return ["set", cast("JSON", sorted(members, key=canonical_json))]
        kind = cast("type[object]", type(value))
        if hasattr(kind, "__dlpack__") or hasattr(kind, "__array_interface__"):  # their text leaves elements out
            raise SourceError(f"the kernel reads {name}, a {kind.__name__}: pass it as an argument")
        self.refuse(value, name)
        if not self.is_library(kind.__module__) and (state := _state_of(value)) is not None:
            attributes = [[key, self.encode(item, f"{name}.{key}", depth + 1)] for key, item in sorted(state.items())]
            return ["instance", self.refer(kind), cast("JSON", attributes)]
        text = str(value)
        if " at 0x" in text:
            raise SourceError(
                f"the kernel reads {name}, a {kind.__name__} that has no canonical form, so it cannot be told from "
                f"another one: pass it as an argument or make it {self.constant_word}"
            )
        return ["object", kind.__module__, kind.__qualname__, text]


def _class_text(kind: type, libraries: Sequence[str]) -> str:
    """The text of a class, found through its methods, because ``inspect`` cannot find it in a notebook."""
    for member in vars(kind).values():
        plain = plain_function(member.fget if isinstance(member, property) else member, libraries)
        if not isinstance(plain, FunctionType) or not _has_source(plain):
            continue
        text = "".join(linecache.getlines(plain.__code__.co_filename))
        try:
            tree = parse_python(text)
        except SyntaxError:
            continue
        for node in (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == kind.__name__):
            inner = [min([one.lineno, *(mark.lineno for mark in one.decorator_list)]) for one in _methods(node)]
            if plain.__code__.co_firstlineno in inner and (found := ast.get_source_segment(text, node)) is not None:
                return definition_of(textwrap.dedent(found))
    try:
        return definition_of(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError) as error:
        raise SourceError(
            f"the source of the class {kind.__qualname__} is not available, and a kernel is known by its source: "
            "define it in a file or a notebook cell"
        ) from error


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef)]


def _lambda_text(function: FunctionType) -> str:
    """The text of a lambda alone: the surrounding statement does not affect it."""
    code = function.__code__
    try:
        lines, _ = inspect.findsource(function)
        tree = parse_python("".join(lines))
    except (OSError, SyntaxError) as error:
        raise SourceError("the source of a lambda is not available: define a function in a file") from error
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    found = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)] == names
    }
    if len(found) != 1:
        raise SourceError(
            f"line {code.co_firstlineno} of {code.co_filename} has {len(found)} lambdas of {', '.join(names)}, and one "
            "is passed as a constant: define a function, so that it is known by its source"
        )
    return found.pop()


def _has_source(function: Any) -> bool:  # noqa: ANN401
    """False for generated methods, for example a dataclass's: the class's own text determines all of them."""
    return not (isinstance(function, FunctionType) and function.__code__.co_filename == "<string>")


def _state_of(value: object) -> dict[str, object] | None:
    """The attributes of an object whose class is written in Python; None for other objects."""
    slots = [name for base in type(value).__mro__ for name in cast("Any", base).__dict__.get("__slots__", ())]
    if not hasattr(value, "__dict__") and not slots:
        return None
    held = {name: getattr(value, name) for name in slots if not name.startswith("__") and hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}
