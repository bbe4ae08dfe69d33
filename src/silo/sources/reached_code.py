"""The content of a fingerprint: a kernel's source, the functions it calls and the globals it reads, without paths.

Everything is reached from the kernel in the order of its source, so the result is the same in any folder, process and
order of imports. A kind of source defines how its library wraps functions and constants. The library itself is
identified by name: its version is part of the compiler's identity.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, ClassVar, TypeAlias, cast

from silo.core.python_syntax import parse_python
from silo.core.values import JSON, canonical_json
from silo.errors import SourceError

__all__ = ["Names", "ReachedCode", "definition_of", "names_in", "text_key"]

_MISSING = object()
_DEFINITION = re.compile(r"^(?:async )?(?:def|class)\s+\w+", re.MULTILINE)
_MAX_DEPTH = 32

Names: TypeAlias = tuple[tuple[str, ...], ...]
"""The names in a text: each chain ``a.b.c`` that begins with a name that is not local, in order."""


class ReachedCode:
    """Functions and classes reached so far, as ``parts``; a reference is a position in it, so cycles end.

    Kinds of sources inherit from it and override the methods that differ for them.
    """

    libraries: ClassVar[tuple[str, ...]] = ("builtins", "math", "typing", "copy")
    """Packages whose code is identified by name."""

    def __init__(self, known: Mapping[str, Names] | None = None) -> None:
        """``known`` holds the names in texts, by :func:`text_key`; names in any other text are found by parsing it."""
        self.parts: list[JSON] = []
        self.names: dict[str, Names] = {}  # in every text that was reached, by its key
        self._known: Mapping[str, Names] = {} if known is None else known
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # ids stay unique only while the objects live

    # -- Methods that a kind of source overrides
    # --------------------------------------------------------------------------

    def plain(self, function: Any) -> Any:  # noqa: ANN401
        """The Python function inside of the library's wrapper; any other object unchanged."""
        return function

    def is_constant(self, value: Any) -> bool:  # noqa: ANN401
        """Whether it is the library's box of a constant, whose content is ``value``."""
        del value
        return False

    def own_text(self, target: Any) -> str | None:  # noqa: ANN401
        """The source text that the library stores for an object, or None."""
        del target
        return None

    def flags(self, target: Any) -> Sequence[bool]:  # noqa: ANN401
        """Options that a function was declared with, besides its source."""
        del target
        return ()

    def value_of(self, value: Any) -> JSON:  # noqa: ANN401
        """The canonical form of a plain value. Raises TypeError for values that have none."""
        raise NotImplementedError

    def describe_class(self, kind: type) -> JSON:
        """The description of an author's class."""
        try:
            source = textwrap.dedent(inspect.getsource(kind))
        except (OSError, TypeError):
            return ["class", kind.__qualname__]
        methods = [value for value in vars(kind).values() if self.is_function(value)]
        return ["class", definition_of(source), [self.refer(method) for method in methods]]

    def describe_object(self, value: Any, name: str, depth: int) -> JSON:  # noqa: ANN401
        """The description of any other object."""
        del depth
        text = str(value)
        if " at 0x" in text:
            raise SourceError(
                f"the kernel reads the global {name}, a {type(value).__name__} that has no canonical form, so it "
                "cannot be told from another one: pass it as an argument or make it a constexpr"
            )
        return ["object", type(value).__module__, type(value).__qualname__, text]

    # -- Common methods
    # ---------------------------------------------------------------------------------------------------

    def is_library(self, name: str | None) -> bool:
        """Whether a module's code is identified by name."""
        return name is not None and name.partition(".")[0] in self.libraries

    def is_function(self, value: object) -> bool:
        """Whether it is a Python function, or the library's wrapper of one."""
        return isinstance(value, FunctionType) or isinstance(self.plain(value), FunctionType)

    def refer(self, target: Any) -> JSON:  # noqa: ANN401
        """A reference to a function or class, described on first sight."""
        plain = self.plain(target) if not inspect.isclass(target) else target
        known = self._numbers.get(id(plain))
        if known is not None:
            return ["part", known]
        number = len(self.parts)
        self._numbers[id(plain)] = number
        self._alive.append(plain)
        self.parts.append(None)  # its place, before the objects that it reaches
        self.parts[number] = (
            self.describe_class(plain) if inspect.isclass(plain) else self._describe_function(target, plain)
        )
        return ["part", number]

    def _describe_function(self, target: Any, plain: Any) -> JSON:  # noqa: ANN401
        source = definition_of(self.own_text(target) or _source_of(plain))
        keyword_only: dict[str, Any] = plain.__kwdefaults__ or {}
        defaults: list[Any] = [*(plain.__defaults__ or ()), *(keyword_only[name] for name in sorted(keyword_only))]
        return [
            "function",
            source,
            list(self.flags(target)),
            [self.encode(value, plain.__name__) for value in defaults],
            [[name, self.encode(value, name)] for name, value in self._free_values(source, plain)],
        ]

    def encode(self, value: Any, name: str, depth: int = 0) -> JSON:  # noqa: ANN401
        """The object that ``name`` refers to, as data. Raises SourceError for objects without a canonical form."""
        if depth > _MAX_DEPTH:
            raise SourceError(f"the global {name} is nested too deeply for a fingerprint")
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if self.is_constant(value):
            return ["constexpr", self.encode(value.value, name, depth + 1)]
        # test the function, not its type: under TRITON_INTERPRET every kernel is an InterpretedFunction
        if self.is_function(value):
            plain = self.plain(value)
            return (
                ["library", f"{plain.__module__}.{plain.__qualname__}"]
                if self.is_library(plain.__module__)
                else self.refer(value)
            )
        if self.is_library(getattr(value, "__module__", None)) and callable(value):
            return ["library", f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"]
        if isinstance(value, BuiltinFunctionType):
            return ["library", value.__qualname__]
        if inspect.isclass(value):
            return self.refer(value)
        if isinstance(value, Enum):
            return ["enum", type(value).__qualname__, value.name, self.encode(value.value, name, depth + 1)]
        if isinstance(value, Mapping):
            pairs = cast("Mapping[object, object]", value).items()
            items = [[self.encode(key, name, depth + 1), self.encode(item, name, depth + 1)] for key, item in pairs]
            return ["mapping", cast("JSON", sorted(items, key=canonical_json))]
        if isinstance(value, list | tuple):
            members = cast("Sequence[object]", value)
            return ["sequence", [self.encode(item, name, depth + 1) for item in members]]
        try:
            return ["value", self.value_of(value)]
        except TypeError:
            return self.describe_object(value, name, depth)

    def _free_values(self, source: str, plain: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
        """The values of the names that are not local, in order of first use; ``a.b.c`` is followed through objects."""
        key, scope = text_key(source), _scope_of(plain)
        names = self._known.get(key)
        self.names[key] = names = names_in(source) if names is None else names
        found: dict[str, Any] = {}
        for chain in names:
            value, dotted = scope.get(chain[0], _MISSING), chain[0]
            if value is _MISSING:
                continue
            for name in chain[1:]:
                if self._is_whole(value):
                    break
                reached = getattr(value, name, _MISSING)
                if reached is _MISSING:
                    break
                self.follow(value, name, reached)
                value, dotted = reached, f"{dotted}.{name}"
            self.meet(plain, chain[0])
            found.setdefault(dotted, value)
        return list(found.items())

    def meet(self, function: Any, name: str) -> None:  # noqa: ANN401
        """Called for each name in a function's text that is not local and has a value."""

    def follow(self, holder: Any, name: str, value: Any) -> None:  # noqa: ANN401
        """Called for each attribute that a function's text reads from an object that it names."""

    def _is_whole(self, value: object) -> bool:
        """Whether its attributes are part of its own description."""
        return (
            self.is_constant(value)
            or self.is_function(value)
            or isinstance(value, int | float | str | bool | tuple | list | dict)
        )


def text_key(source: str) -> str:
    """The key of a text: its sha256 in hex."""
    return hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()


def names_in(source: str) -> Names:
    """The names in a function's text. Depends on nothing else."""
    try:
        tree = parse_python(source)
    except SyntaxError:  # a lambda in the middle of an expression: it is described by its text alone
        return ()
    finder = _Finder()
    finder.visit(tree)
    return tuple(finder.found)


def definition_of(source: str) -> str:
    """The text from ``def`` on (without decorators), with line ends and trailing blanks made uniform."""
    match = _DEFINITION.search(source)
    body = source[match.start() :] if match is not None else source
    return "\n".join(line.rstrip() for line in body.splitlines()).rstrip()


def _source_of(plain: Any) -> str:  # noqa: ANN401
    try:
        return textwrap.dedent(inspect.getsource(plain))
    except (OSError, TypeError) as error:
        raise SourceError(
            f"the source of {plain.__qualname__} is not available, and a kernel is known by its source: "
            "define it in a file or a notebook cell"
        ) from error


def _scope_of(plain: Any) -> dict[str, Any]:  # noqa: ANN401
    cells = zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False)
    closed: dict[str, Any] = {}
    for name, cell in cells:
        try:
            closed[name] = cell.cell_contents
        except ValueError:  # a name that its function has not bound yet
            continue
    return {**vars(builtins), **plain.__globals__, **closed}


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.local: set[str] = set()
        self.found: dict[tuple[str, ...], None] = {}

    def visit_Module(self, node: ast.Module) -> None:
        # One walk, because a first launch waits for it.
        local = self.local = set[str]()
        for child in ast.walk(node):
            if isinstance(child, ast.Name):
                if isinstance(child.ctx, ast.Store):
                    local.add(child.id)
            elif isinstance(child, ast.arg):
                local.add(child.arg)
            elif isinstance(child, ast.FunctionDef) and child not in node.body:
                local.add(child.name)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._record((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names: list[str] = []
        current: ast.expr = node
        while isinstance(current, ast.Attribute):
            names.append(current.attr)
            current = current.value
        if not isinstance(current, ast.Name):
            self.generic_visit(node)
            return
        self._record((current.id, *reversed(names)))

    def _record(self, chain: tuple[str, ...]) -> None:
        if chain[0] not in self.local:
            self.found.setdefault(chain)
