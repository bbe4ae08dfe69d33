"""The fingerprint of a kernel: a hash of its source, the functions it calls and the globals it reads, without paths.

Everything is reached from the kernel in the order of its source, so the hash is the same in any folder, process and
order of imports. Triton's own library counts by name: its version is part of the compiler's identity.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, cast

from silo.core.values import JSON, FunctionValue, canonical_json, digest, value_to_json
from silo.errors import SourceError
from silo.sources.triton.constants import to_value
from silo.sources.triton.functions import remember

__all__ = ["fingerprint", "function_value"]

_MISSING = object()
_DEFINITION = re.compile(r"^(?:async )?(?:def|class)\s+\w+", re.MULTILINE)
_LIBRARIES = ("triton", "builtins", "math", "typing", "copy")  # known by name
_MAX_DEPTH = 32


def fingerprint(function: Any) -> str:  # noqa: ANN401
    """sha256 in hex of a ``JITFunction``, a ``constexpr_function`` or a plain Python function.

    Raises:
        SourceError: the source is not available, or the kernel reads a global that has no canonical form.
    """
    walk = _Walk()
    walk.refer(function)
    return digest("triton-source/1", cast("JSON", walk.parts))


def function_value(function: Any) -> FunctionValue:  # noqa: ANN401
    """The value that stands for a function passed as a constexpr; it is found again by ``functions.recall``."""
    return remember(
        FunctionValue(_plain(function).__qualname__.replace("<locals>.", ""), fingerprint(function)), function
    )


def _plain(function: Any) -> Any:  # noqa: ANN401
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    return function


def _is_library(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] in _LIBRARIES


class _Walk:
    """Functions and classes reached so far; a reference is its position in ``parts``, so cycles end."""

    def __init__(self) -> None:
        self.parts: list[JSON] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # ids stay unique only while the objects live

    def refer(self, target: Any) -> JSON:  # noqa: ANN401
        """A reference to a function or class, described on first sight."""
        plain = _plain(target) if not inspect.isclass(target) else target
        known = self._numbers.get(id(plain))
        if known is not None:
            return ["part", known]
        number = len(self.parts)
        self._numbers[id(plain)] = number
        self._alive.append(plain)
        self.parts.append(None)  # its place, before what it reaches
        self.parts[number] = (
            self._describe_class(plain) if inspect.isclass(plain) else self._describe_function(target, plain)
        )
        return ["part", number]

    def _describe_function(self, target: Any, plain: Any) -> JSON:  # noqa: ANN401
        source = _source_of(target, plain)
        flags = [bool(getattr(target, name, False)) for name in ("noinline", "debug")]
        keyword_only: dict[str, Any] = plain.__kwdefaults__ or {}
        defaults: list[Any] = [*(plain.__defaults__ or ()), *(keyword_only[name] for name in sorted(keyword_only))]
        scope = _scope_of(plain)
        return [
            "function",
            source,
            cast("JSON", flags),
            [self._encode(value, plain.__name__) for value in defaults],
            [[name, self._encode(value, name)] for name, value in _free_values(source, scope)],
        ]

    def _describe_class(self, kind: type) -> JSON:
        try:
            source = textwrap.dedent(inspect.getsource(kind))
        except (OSError, TypeError):
            return ["class", kind.__qualname__]
        methods = [value for value in vars(kind).values() if _is_function(value)]
        return ["class", _definition(source), [self.refer(method) for method in methods]]

    def _encode(self, value: Any, name: str, depth: int = 0) -> JSON:  # noqa: ANN401
        if depth > _MAX_DEPTH:
            raise SourceError(f"the global {name} is nested too deeply for a fingerprint")
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if _is_constexpr(value):
            return ["constexpr", self._encode(value.value, name, depth + 1)]
        if _is_function(value):  # asked of the function itself: under the interpreter every kernel is a library object
            plain = _plain(value)
            return (
                ["library", f"{plain.__module__}.{plain.__qualname__}"]
                if _is_library(plain.__module__)
                else self.refer(value)
            )
        if _is_library(getattr(value, "__module__", None)) and callable(value):
            return ["library", f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"]
        if isinstance(value, BuiltinFunctionType):
            return ["library", value.__qualname__]
        if inspect.isclass(value):
            return self.refer(value)
        if isinstance(value, Enum):
            return ["enum", type(value).__qualname__, value.name, self._encode(value.value, name, depth + 1)]
        if isinstance(value, Mapping):
            pairs = cast("Mapping[object, object]", value).items()
            items = [[self._encode(key, name, depth + 1), self._encode(item, name, depth + 1)] for key, item in pairs]
            return ["mapping", cast("JSON", sorted(items, key=canonical_json))]
        if isinstance(value, list | tuple):
            members = cast("Sequence[object]", value)
            return ["sequence", [self._encode(item, name, depth + 1) for item in members]]
        try:
            return ["value", _json_of(value)]
        except TypeError:
            return self._encode_object(value, name)

    def _encode_object(self, value: Any, name: str) -> JSON:  # noqa: ANN401
        text = str(value)
        if " at 0x" in text:
            raise SourceError(
                f"the kernel reads the global {name}, a {type(value).__name__} that has no canonical form, so it "
                "cannot be told from another one: pass it as an argument or make it a tl.constexpr"
            )
        return ["object", type(value).__module__, type(value).__qualname__, text]


def _json_of(value: object) -> JSON:
    return value_to_json(to_value(value, functions=None))


def _is_constexpr(value: object) -> bool:
    return type(value).__name__ == "constexpr" and hasattr(value, "value")


def _is_function(value: object) -> bool:
    return isinstance(value, FunctionType) or (hasattr(value, "fn") and isinstance(_plain(value), FunctionType))


def _source_of(target: Any, plain: Any) -> str:  # noqa: ANN401
    text = getattr(target, "src", None)  # a JITFunction's own, which its author may have replaced
    if not isinstance(text, str):
        try:
            text = textwrap.dedent(inspect.getsource(plain))
        except (OSError, TypeError) as error:
            raise SourceError(
                f"the source of {plain.__qualname__} is not available, and a kernel is known by its source: "
                "define it in a file or a notebook cell"
            ) from error
    return _definition(text)


def _definition(source: str) -> str:
    """From ``def`` on (no decorators), with line ends and trailing blanks made uniform."""
    match = _DEFINITION.search(source)
    body = source[match.start() :] if match is not None else source
    return "\n".join(line.rstrip() for line in body.splitlines()).rstrip()


def _scope_of(plain: Any) -> dict[str, Any]:  # noqa: ANN401
    cells = zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False)
    closed: dict[str, Any] = {}
    for name, cell in cells:
        try:
            closed[name] = cell.cell_contents
        except ValueError:  # a name its function has not bound yet
            continue
    return {**vars(builtins), **plain.__globals__, **closed}


def _free_values(source: str, scope: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What the names that are not local mean, in order of first use; ``a.b.c`` as far as modules and objects go."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of an expression: its text alone stands for it
        return []
    finder = _Finder(scope)
    finder.visit(tree)
    return list(finder.found.items())


class _Finder(ast.NodeVisitor):
    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.scope = scope
        self.local: set[str] = set()
        self.found: dict[str, Any] = {}

    def visit_Module(self, node: ast.Module) -> None:
        inner = [child for child in ast.walk(node) if isinstance(child, ast.arg)]
        self.local = {argument.arg for argument in inner}
        self.local |= {
            child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
        }
        self.local |= {
            child.name for child in ast.walk(node) if isinstance(child, ast.FunctionDef) and child not in node.body
        }
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._record(node.id, node.id, self._lookup(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names: list[str] = []
        current: ast.expr = node
        while isinstance(current, ast.Attribute):
            names.append(current.attr)
            current = current.value
        if not isinstance(current, ast.Name):
            self.generic_visit(node)
            return
        value, dotted = self._lookup(current.id), current.id
        for name in reversed(names):
            if value is _MISSING or _is_constexpr(value) or _is_function(value) or _is_tensor_like(value):
                break
            reached = getattr(value, name, _MISSING)
            if reached is _MISSING:
                break
            value, dotted = reached, f"{dotted}.{name}"
        self._record(current.id, dotted, value)

    def _lookup(self, name: str) -> Any:  # noqa: ANN401
        return _MISSING if name in self.local else self.scope.get(name, _MISSING)

    def _record(self, root: str, dotted: str, value: Any) -> None:  # noqa: ANN401
        if root not in self.local and value is not _MISSING:
            self.found.setdefault(dotted, value)


def _is_tensor_like(value: object) -> bool:
    return isinstance(value, int | float | str | bool | tuple | list | dict)
