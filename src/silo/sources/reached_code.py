"""The content of a fingerprint: a kernel's source, the functions it calls and the globals it reads, without paths.

The objects are visited in the order in which the kernel's source names them, so the result does not depend on the
folder, the process or the order of imports. Each kind of source defines how its library wraps functions and constants.
The library itself is identified by name: its version is part of the compiler's identity.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, TypeAlias, cast

from silo.core.python_syntax import parse_python
from silo.core.values import JSON, Value, canonical_json, value_to_json
from silo.errors import SourceError
from silo.sources import written_values
from silo.sources.written_values import NOT_SPECIAL, NotSpecial

__all__ = [
    "Names",
    "Places",
    "ReachedCode",
    "ReachedObjects",
    "definition_of",
    "names_in",
    "places_hold",
    "plain_function",
    "reached_by",
    "text_key",
]


# ---- The content of a fingerprint ----


_MISSING = object()
_DEFINITION = re.compile(r"^(?:async )?(?:def|class)\s+\w+", re.MULTILINE)
_MAX_DEPTH = 32

Names: TypeAlias = tuple[tuple[str, ...], ...]
"""The free names in a text: each chain ``a.b.c`` that begins with a name that is not local, in order."""


class ReachedCode:
    """The functions and classes that were reached from a kernel so far, as ``parts``.

    A reference to a function or class is its index in ``parts``, so that functions that call each other are described
    once. Kinds of sources inherit from this class and override the methods that depend on their library.
    """

    libraries: ClassVar[tuple[str, ...]] = ("builtins", "math", "typing", "copy")
    """Packages whose code is identified by name."""

    def __init__(self, names_of_texts: Mapping[str, Names] | None = None) -> None:
        """``names_of_texts`` maps :func:`text_key` of texts to their free names; other texts are parsed."""
        self.parts: list[JSON] = []
        self.names: dict[str, Names] = {}  # free names of every text that was reached, by the text's key
        self._known_names: Mapping[str, Names] = {} if names_of_texts is None else names_of_texts
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # keeps objects alive, because an id is unique only while its object lives

    # -- Methods that a kind of source overrides
    # --------------------------------------------------------------------------

    def plain(self, function: Any) -> Any:  # noqa: ANN401
        """Returns the Python function inside the library's wrapper; any other object unchanged."""
        return function

    def is_constant(self, value: Any) -> bool:  # noqa: ANN401
        """Whether an object is the library's wrapper of a constant, with the constant in its attribute ``value``."""
        del value
        return False

    def own_text(self, target: Any) -> str | None:  # noqa: ANN401
        """Returns the source text that the library stores for an object, or None."""
        del target
        return None

    def flags(self, target: Any) -> Sequence[bool]:  # noqa: ANN401
        """Returns the values of the function's decorator options that affect its code; () by default.

        The function's text in a fingerprint begins after the decorators, so it does not contain these options.
        """
        del target
        return ()

    def value_of(self, value: Any) -> JSON:  # noqa: ANN401
        """Returns the canonical form of a plain value. Raises TypeError for other values."""
        raise NotImplementedError

    def describe_class(self, kind: type) -> JSON:
        """Returns the description of a class that the kernel's author wrote."""
        try:
            source = textwrap.dedent(inspect.getsource(kind))
        except (OSError, TypeError):
            return ["class", kind.__qualname__]
        methods = [value for value in vars(kind).values() if self.is_function(value)]
        return ["class", definition_of(source), [self.refer(method) for method in methods]]

    def describe_object(self, value: Any, name: str, depth: int) -> JSON:  # noqa: ANN401
        """Returns the description of an object that is neither a function, a class, a container nor a plain value."""
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
        """Whether the code of a module is identified by name."""
        return name is not None and name.partition(".")[0] in self.libraries

    def is_function(self, value: object) -> bool:
        """Whether an object is a Python function, or the library's wrapper of a function."""
        return isinstance(value, FunctionType) or isinstance(self.plain(value), FunctionType)

    def refer(self, target: Any) -> JSON:  # noqa: ANN401
        """Returns a reference to a function or class, which is described when it is first reached."""
        plain = self.plain(target) if not inspect.isclass(target) else target
        known_number = self._numbers.get(id(plain))
        if known_number is not None:
            return ["part", known_number]
        number = len(self.parts)
        self._numbers[id(plain)] = number
        self._alive.append(plain)
        self.parts.append(None)  # reserves the target's index before the objects that the target reaches get theirs
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
        """Returns the object that ``name`` refers to, as data.

        Raises SourceError for objects without a canonical form.
        """
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
        """Returns the values of the free names, in order of first use; attributes in ``a.b.c`` are followed."""
        key, scope = text_key(source), _scope_of(plain)
        names = self._known_names.get(key)
        self.names[key] = names = names_in(source) if names is None else names
        values: dict[str, Any] = {}
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
            values.setdefault(dotted, value)
        return list(values.items())

    def meet(self, function: Any, name: str) -> None:  # noqa: ANN401
        """Does nothing; subclasses override this method.

        It is called for each free name ``name`` in the text of ``function``, if the name has a value.
        """

    def follow(self, holder: Any, name: str, value: Any) -> None:  # noqa: ANN401
        """Does nothing; subclasses override this method.

        It is called for each attribute ``name`` that a function's text reads from an object ``holder``.
        """

    def _is_whole(self, value: object) -> bool:
        """Whether the description of an object already covers its attributes, so that they are not followed."""
        return (
            self.is_constant(value)
            or self.is_function(value)
            or isinstance(value, int | float | str | bool | tuple | list | dict)
        )


def text_key(source: str) -> str:
    """Returns the key of a text: its sha256 in hex."""
    return hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()


def names_in(source: str) -> Names:
    """Returns the free names in a function's text. The result depends only on the text."""
    try:
        tree = parse_python(source)
    except SyntaxError:  # a lambda inside an expression, which is described by its text alone
        return ()
    finder = _Finder()
    finder.visit(tree)
    return tuple(finder.found)


def definition_of(source: str) -> str:
    """Returns the text from ``def`` on (without decorators), with uniform line ends and without trailing blanks."""
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
        except ValueError:  # a closure variable that its function has not assigned yet
            continue
    return {**vars(builtins), **plain.__globals__, **closed}


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.local: set[str] = set()
        self.found: dict[tuple[str, ...], None] = {}

    def visit_Module(self, node: ast.Module) -> None:
        # A single walk finds the local names of all kinds: a first launch waits for it, so it has to be fast.
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


# ---- Places from which a source is read and which a program may change ----


_CONTAINERS = (list, dict, set)


class Places:
    """The places (globals, closure variables, attributes) that a source read so far, each once, with the value read.

    Objects of a library (if ``is_library`` is true for the name of their module) are identified by the library's
    version and left out.
    """

    def __init__(self, is_library: Callable[[str | None], bool]) -> None:
        self._is_library = is_library
        self._read_places: dict[tuple[int, str | None], tuple[object, str | None, object]] = {}
        self.attributes = False  # whether any attribute was read whose value is neither a module nor callable

    @property
    def listed(self) -> tuple[object, ...]:
        """The places: (holder, name, value), flattened; see :class:`silo.sources.kernel_source.ReadsPlaces`."""
        return tuple(part for group in self._read_places.values() for part in group)

    def add_name(self, function: Any, name: str) -> None:  # noqa: ANN401  # a Python function
        """Adds the free name of a function: a variable of its closure or a global. Builtins are left out."""
        free = cast("tuple[str, ...]", function.__code__.co_freevars)
        cell = function.__closure__[free.index(name)] if name in free else None
        if cell is not None and hasattr(cell, "cell_contents"):  # a closure variable may still be unassigned
            self._add(cell, "cell_contents", cell.cell_contents)
        elif name in function.__globals__:
            self._add(function.__globals__, name, function.__globals__[name])

    def add_attribute(self, holder: Any, name: str, value: object) -> None:  # noqa: ANN401
        """Adds an attribute of an object, unless each read returns a new object, as for methods."""
        if isinstance(holder, ModuleType) and self._is_library(holder.__name__):
            return
        if _is_box(value) or not (isinstance(value, ModuleType) or callable(value)):
            self.attributes = True
        if isinstance(holder, ModuleType) and vars(holder).get(name, _MISSING) is value:
            self._add(vars(holder), name, value)
        elif getattr(holder, name, _MISSING) is value:
            self._add(holder, name, value)

    def _add(self, holder: object, name: str, value: object) -> None:
        boxed = _is_box(value)
        if not boxed and self._is_of_library(value):
            return
        self._read_places[id(holder), name] = (holder, name, value)
        content = value
        if boxed:  # the program may assign the constexpr's ``value``
            box: Any = value
            members = cast("dict[str, object]", vars(box))
            content = box.value
            self._read_places[id(box), "value"] = (members if "value" in members else box, "value", content)
        if isinstance(content, _CONTAINERS):
            self._read_places[id(cast("object", content)), None] = (content, None, _copied(cast("object", content)))

    def _is_of_library(self, value: Any) -> bool:  # noqa: ANN401
        """Whether an object is a library's module, function or class."""
        if isinstance(value, ModuleType):
            return self._is_library(value.__name__)
        return self._is_library(getattr(value, "__module__", None)) and callable(value)


def _is_box(value: object) -> bool:
    """Whether an object is Triton's ``constexpr``, which wraps a constant."""
    return type(value).__name__ == "constexpr" and hasattr(value, "value")


def _copied(value: object) -> object:
    """Returns a copy of nested containers; the other values in them are shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list):
        return [_copied(item) for item in cast("list[object]", value)]
    return set(cast("set[object]", value)) if isinstance(value, set) else value


def places_hold(locations: tuple[object, ...]) -> bool:
    """Whether each place (a variable or attribute) still has its value, compared in the way of the native launcher."""
    for at in range(0, len(locations), 3):
        holder, name, value = cast("tuple[Any, str | None, object]", locations[at : at + 3])
        if name is None:
            if holder != value:
                return False
        elif isinstance(holder, dict):
            if cast("dict[str, object]", holder).get(name, _MISSING) is not value:
                return False
        elif getattr(holder, name, _MISSING) is not value:
            return False
    return True


# ---- The content of a fingerprint if kernels may also be Python objects ----


_STANDARD = ("abc", "collections", "dataclasses", "enum", "functools", "inspect", "itertools", "logging", "operator")


def reached_by(code: ReachedObjects, root: Any) -> JSON:  # noqa: ANN401
    """Returns, as data, everything that decides the behaviour of an author's function, object or class.

    Raises:
        SourceError: a source is not available, or a value that is read has no canonical form.
    """
    first = code.encode(root, getattr(root, "__name__", type(root).__name__))
    return [first, cast("JSON", code.parts)]


def plain_function(function: Any, libraries: Sequence[str]) -> Any:  # noqa: ANN401
    """Returns the author's function inside wrappers of a library or ``functools``; any other object unchanged."""
    while True:
        # A bound method is not unwrapped. Its ``__wrapped__`` is its function's; following that would lose the method's
        # object, which also decides the behaviour.
        if isinstance(function, MethodType):
            return function
        if isinstance(function, staticmethod | classmethod):
            function = cast("Any", function).__func__
        elif isinstance(function, FunctionType):
            inner = function.__dict__.get("__wrapped__")
            # A decorator of the author is part of the code: it is described itself, and refers to the wrapped function.
            if inner is None or str(function.__globals__.get("__name__")).partition(".")[0] not in libraries:
                return function
            function = inner
        elif not inspect.isclass(function) and isinstance(getattr(function, "__wrapped__", None), FunctionType):
            function = function.__wrapped__  # functools.cache and jax.jit set __wrapped__
        else:
            return function


class ReachedObjects(ReachedCode):
    """A :class:`ReachedCode` for kernels that may also be Python objects.

    It describes functions that a library wraps, and the author's classes, with all their parts, and instances of them.
    """

    libraries: ClassVar[tuple[str, ...]] = (*_STANDARD, *ReachedCode.libraries)
    constant_word: ClassVar[str] = "a constexpr"
    """The library's term for a value that is part of the code; used in messages."""

    def special(self, value: Any) -> Value | NotSpecial:  # noqa: ANN401
        """Returns the value of an object of the library, for example a dtype."""
        del value
        return NOT_SPECIAL

    def refuse(self, value: Any, name: str) -> None:  # noqa: ANN401
        """Raises SourceError for an object that kernels of the library must not read."""
        del value, name

    def plain(self, function: Any) -> Any:  # noqa: ANN401
        """Returns the author's function inside the library's wrappers."""
        return plain_function(function, self.libraries)

    def own_text(self, target: Any) -> str | None:  # noqa: ANN401
        """Returns the text of a lambda; None for other functions."""
        plain = self.plain(target)
        return _lambda_text(plain) if plain.__name__ == "<lambda>" else None

    def value_of(self, value: Any) -> JSON:  # noqa: ANN401
        """Returns the canonical form of a plain value.

        Raises TypeError for a function, which is described by a reference instead (:meth:`refer`).
        """
        if isinstance(value, FunctionType):
            raise TypeError
        return value_to_json(written_values.to_value(value, self.special))

    def describe_class(self, kind: type) -> JSON:
        """Returns a class as data: text, bases, functions, and attributes whose values may come from globals."""
        if self.is_library(kind.__module__) or _is_python_s(kind):
            return ["library", f"{kind.__module__}.{kind.__qualname__}"]
        source = _class_text(kind, self.libraries)
        bases = [self.encode(base, base.__qualname__) for base in kind.__bases__]
        members: list[JSON] = []
        for name, member in vars(kind).items():
            parts = (member.fget, member.fset) if isinstance(member, property) else (member,)
            functions = [part for part in parts if self.is_function(part) and _has_source(self.plain(part))]
            if functions:
                members.append([name, [self.refer(function) for function in functions]])
            elif not name.startswith("__") and (value := self._plain_value(member)) is not None:
                members.append([name, value])
        return ["class", source, bases, members]

    def _plain_value(self, member: object) -> JSON:
        """Returns a class attribute as data if it is a plain value, else None.

        The class's text alone is not enough, because the text may take the attribute's value from a global.
        """
        try:
            return ["value", self.value_of(member)]
        except TypeError:
            return None

    def describe_object(self, value: Any, name: str, depth: int) -> JSON:  # noqa: ANN401
        """Describes partial calls, methods, sets, and any other object by its class and attributes."""
        if isinstance(value, functools.partial):
            partial = cast("functools.partial[object]", value)
            parts = (partial.func, partial.args, partial.keywords)
            return ["partial", [self.encode(part, name, depth + 1) for part in parts]]
        if isinstance(value, MethodType):
            return ["method", self.refer(value.__func__), self.encode(value.__self__, name, depth + 1)]
        if isinstance(value, set | frozenset):
            members = [self.encode(item, name, depth + 1) for item in cast("set[object]", value)]
            return ["set", cast("JSON", sorted(members, key=canonical_json))]
        kind = cast("type[object]", type(value))
        # An array is refused, because the text by which other objects are described below would omit elements of the
        # array.
        if hasattr(kind, "__dlpack__") or hasattr(kind, "__array_interface__"):
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


def _is_python_s(kind: type) -> bool:
    """Whether a class belongs to Python itself and has no source text, for example ``types.SimpleNamespace``."""
    heap = 1 << 9  # Py_TPFLAGS_HEAPTYPE, set for every class that Python code defines
    return not kind.__flags__ & heap and kind.__module__.partition(".")[0] in sys.stdlib_module_names


def _class_text(kind: type, libraries: Sequence[str]) -> str:
    """Returns the text of a class, found through its methods, because ``inspect`` cannot find it in a notebook."""
    for member in vars(kind).values():
        plain = plain_function(member.fget if isinstance(member, property) else member, libraries)
        if not isinstance(plain, FunctionType) or not _has_source(plain):
            continue
        text = "".join(linecache.getlines(plain.__code__.co_filename))
        try:
            tree = parse_python(text)
        except SyntaxError:
            continue
        for node in (
            class_node
            for class_node in ast.walk(tree)
            if isinstance(class_node, ast.ClassDef) and class_node.name == kind.__name__
        ):
            inner = [
                min([method.lineno, *(mark.lineno for mark in method.decorator_list)]) for method in _methods(node)
            ]
            if (
                plain.__code__.co_firstlineno in inner
                and (source_text := ast.get_source_segment(text, node)) is not None
            ):
                return definition_of(textwrap.dedent(source_text))
    try:
        return definition_of(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError) as error:
        raise SourceError(
            f"the source of the class {kind.__qualname__} is not available, and a kernel is known by its source: "
            "define it in a file or a notebook cell"
        ) from error


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [member for member in node.body if isinstance(member, ast.FunctionDef)]


def _lambda_text(function: FunctionType) -> str:
    """Returns the text of a lambda without the surrounding statement, which does not affect it."""
    code = function.__code__
    try:
        lines, _ = inspect.findsource(function)
        tree = parse_python("".join(lines))
    except (OSError, SyntaxError) as error:
        raise SourceError("the source of a lambda is not available: define a function in a file") from error
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    texts = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)] == names
    }
    if len(texts) != 1:
        raise SourceError(
            f"line {code.co_firstlineno} of {code.co_filename} has {len(texts)} lambdas of {', '.join(names)}, and one "
            "is passed as a constant: define a function, so that it is known by its source"
        )
    return texts.pop()


def _has_source(function: Any) -> bool:  # noqa: ANN401
    """Whether a method has a source; generated ones, for example a dataclass's, follow from the class's own text."""
    return not (isinstance(function, FunctionType) and function.__code__.co_filename == "<string>")


def _state_of(value: object) -> dict[str, object] | None:
    """Returns the attributes of an object whose class is written in Python; None for other objects."""
    slots = [name for base in type(value).__mro__ for name in cast("Any", base).__dict__.get("__slots__", ())]
    if not hasattr(value, "__dict__") and not slots:
        return None
    slot_values = {name: getattr(value, name) for name in slots if not name.startswith("__") and hasattr(value, name)}
    return {**slot_values, **getattr(value, "__dict__", {})}
