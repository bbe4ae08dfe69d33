"""A canonical form of Python modules: syntax trees without documentation, positions and module paths.

The form is written here, node by node, because ``ast.dump`` differs between versions of Python. Equal code has the same
form on every version that Silo runs on.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import cast

from silo.core.python_syntax import parse_python

__all__ = ["ModuleCode", "Project", "canonical_c", "is_c_text", "module_code"]


# ---- Python modules in canonical form ----


# ``ctx`` follows from the position of a node in the tree. ``kind``, ``type_comment`` and ``type_ignores`` describe the
# text, not the code.
_LEFT_OUT = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_SEPARATORS = str.maketrans({"\\": "\\\\", "(": "\\(", ")": "\\)", ",": "\\,"})


@dataclass(frozen=True, slots=True)
class Project:
    """The modules whose dotted names do not count in the canonical form.

    ``roots`` are the names of top-level packages. ``modules`` holds the dotted names of the modules that a digest
    covers. ``exists`` returns whether a dotted name in a text, such as a plug-in's path, is a module of the project.
    """

    roots: frozenset[str]
    modules: Container[str]
    exists: Callable[[str], bool]

    def owns(self, name: str) -> bool:
        """Whether a dotted name belongs to the project's packages."""
        return name.partition(".")[0] in self.roots

    def is_named(self, text: str) -> bool:
        """Whether a text is the dotted name of a module of the project."""
        return "." in text and self.owns(text) and (text in self.modules or self.exists(text))


@dataclass(frozen=True, slots=True)
class ModuleCode:
    """The code of one module.

    ``digest`` covers the module's own code, but not the modules of the same project that it imports. ``links`` are the
    imported modules: pairs of a label, which ``digest`` covers, and the dotted name. ``empty``: the module has no
    statement.
    """

    digest: str
    links: tuple[tuple[str, str], ...]
    empty: bool


def module_code(text: str | bytes, name: str, project: Project, *, package: bool = False) -> ModuleCode:
    """Returns the code of the module called ``name``. ``package``: the text is of an ``__init__.py``.

    Comments, documentation and layout do not affect the digest. Neither do the path of the module and the paths of
    modules that it imports: in ``from silo.x.y import z`` only the name ``z`` counts, and the number of the module if
    the digest covers it. Covered modules, also those imported as a whole, are numbered in an order that does not depend
    on their names.

    Raises:
        SyntaxError: the text is not Python.

    >>> project = Project(frozenset({"silo"}), {"silo.a", "silo.b"}, lambda name: False)
    >>> one = module_code("from silo.a import f  # why", "silo.b", project)
    >>> one.links
    (('module 0', 'silo.a'),)
    >>> one.digest == module_code("from silo.b import f", "silo.d", project).digest
    True
    """
    tree = parse_python(text)
    form = _Form(tree, name if package else name.rpartition(".")[0], project)
    form.block(tree.body)
    body = "".join(form.parts)
    return ModuleCode(
        hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest(), form.links(), body == _NO_STATEMENT
    )


_NO_STATEMENT = "[]"


class _Form:
    """Writes the canonical form of one module, and records the modules that it imports."""

    def __init__(self, tree: ast.Module, package: str, project: Project) -> None:
        self.parts: list[str] = []
        self._package = package
        self._project = project
        self._keeps_docs = any(
            isinstance(node, ast.Name | ast.Attribute) and _identifier(node) == "__doc__" for node in ast.walk(tree)
        )
        self._modules: dict[str, str] = {}  # from dotted names of imported modules to their labels
        self._bound = self._bound_modules(tree)

    def links(self) -> tuple[tuple[str, str], ...]:
        """The pairs of a label and a module, in order of their numbers."""
        return tuple((label, name) for name, label in self._modules.items())

    def _bound_modules(self, tree: ast.Module) -> dict[str, str]:
        """Returns the names that mean one module of the project wherever this file uses them, each with that module."""
        bound: dict[str, set[str]] = {}
        others: set[str] = set()
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom():
                    base = self._base(node)
                    for alias in node.names:
                        module_name = f"{base}.{alias.name}"
                        local = alias.asname or alias.name
                        if base and module_name in self._project.modules:
                            bound.setdefault(local, set()).add(module_name)
                        else:
                            others.add(local)
                case ast.Import():
                    for alias in node.names:
                        if alias.asname and self._project.owns(alias.name):
                            bound.setdefault(alias.asname, set()).add(alias.name)
                        else:
                            others.add(alias.asname or alias.name.partition(".")[0])
                case ast.Name():
                    if not isinstance(node.ctx, ast.Load):
                        others.add(node.id)
                case ast.arg():
                    others.add(node.arg)
                case ast.Global() | ast.Nonlocal():
                    others.update(node.names)
                case (
                    ast.FunctionDef(name=str(name))
                    | ast.AsyncFunctionDef(name=str(name))
                    | ast.ClassDef(name=str(name))
                    | ast.ExceptHandler(name=str(name))
                    | ast.MatchAs(name=str(name))
                    | ast.MatchStar(name=str(name))
                    | ast.MatchMapping(rest=str(name))
                ):
                    others.add(name)
                case _:
                    pass
        return {name: next(iter(all_)) for name, all_ in bound.items() if len(all_) == 1 and name not in others}

    def _base(self, node: ast.ImportFrom) -> str:
        """Returns the module from which names are imported; "" if it is not of this project."""
        if node.level:
            up = self._package.split(".")
            parts = [*up[: len(up) - node.level + 1], *filter(None, [node.module])]
            return ".".join(parts)
        return node.module if node.module and self._project.owns(node.module) else ""

    def _label(self, module: str) -> str:
        """Returns the label of a module: its number, in the order in which imports and uses are written."""
        return self._modules.setdefault(module, f"module {len(self._modules)}")

    # ---- Writing the form

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Writes a list of statements. The project's imports come first, sorted, because their order has no effect."""
        imports: list[tuple[str, str]] = []
        statements = [statement for statement in body if not self._imported(statement, imports)]
        self.parts.append("[")
        for text, module in sorted(dict.fromkeys(imports), key=lambda one: one[0]):
            module_label = f" of {self._label(module)}" if module in self._project.modules else ""
            self.parts.append(f"import({text}{module_label}),")
        for statement in statements:
            if self._keeps_docs or not _is_text(statement):
                self._node(statement)
                self.parts.append(",")
        self.parts.append("]")

    def _imported(self, statement: ast.stmt, imports: list[tuple[str, str]]) -> bool:
        """Whether a statement imports only from the project; adds the names and their modules to ``imports``."""
        if isinstance(statement, ast.ImportFrom):
            base = self._base(statement)
            if not base:
                return False
            for alias in statement.names:
                local = alias.asname or alias.name
                module_name = f"{base}.{alias.name}"
                if module_name not in self._project.modules:
                    imports.append((f"{alias.name} as {local}", base))
                # If the local name means this module in the whole file, each use of the name is labelled, and the
                # import needs no label.
                elif self._bound.get(local) != module_name:
                    imports.append((f"module as {local}", module_name))
            return True
        if isinstance(statement, ast.Import):
            if not all(alias.asname and self._project.owns(alias.name) for alias in statement.names):
                return False
            imports += [
                (f"module as {alias.asname}", alias.name)
                for alias in statement.names
                if self._bound.get(alias.asname or "") != alias.name
            ]
            return True
        return False

    def _node(self, node: ast.AST) -> None:
        kind = type(node)
        if kind is ast.Name and cast("ast.Name", node).id in self._bound:
            self.parts.append(f"Own({self._label(self._bound[cast('ast.Name', node).id])})")
            return
        if kind is ast.Constant:
            self.parts.append(self._constant(cast("ast.Constant", node).value))
            return
        write = self.parts.append
        write(f"{kind.__name__}(")
        for field in node._fields:
            value = getattr(node, field, None)
            # Fields that a later version of Python added are absent, None or empty in code that earlier versions can
            # parse.
            if value is None or value == [] or field in _LEFT_OUT:
                continue
            write(f"{field}=")
            if isinstance(value, ast.AST):
                self._node(value)
            elif isinstance(value, list):
                values = cast("list[object]", value)
                self._list(_merged(values) if kind is ast.JoinedStr else values)
            else:
                write(_plain(value))
            write(",")
        write(")")

    def _list(self, values: list[object]) -> None:
        if values and isinstance(values[0], ast.stmt):
            self.block(cast("list[ast.stmt]", values))
            return
        write = self.parts.append
        write("[")
        for value in values:
            if isinstance(value, ast.AST):
                self._node(value)
            else:
                write(_plain(value))
            write(",")
        write("]")

    def _constant(self, value: object) -> str:
        """Returns the form of a constant. If a string names a module of the project, a label replaces that name."""
        if isinstance(value, str) and value.partition(".")[0] in self._project.roots:
            module, colon, attribute = value.partition(":")
            if self._project.is_named(module):
                return f"Own({self._label(module)}{colon}{attribute.translate(_SEPARATORS)})"
        return f"Constant({type(value).__name__} {_plain(value)})"


def _plain(value: object) -> str:
    """Returns the text of a value that is not a syntax node. Different values of one type have different texts."""
    return str(value).translate(_SEPARATORS) if isinstance(value, str) else repr(value).translate(_SEPARATORS)


def _identifier(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is only a string: documentation."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _merged(values: Sequence[object]) -> list[object]:
    """Returns the parts of an f-string, with adjacent texts joined and without empty texts."""
    merged: list[object] = []
    for value in values:
        last = merged[-1] if merged else None
        if not isinstance(value, ast.Constant):
            merged.append(value)
        elif isinstance(last, ast.Constant):
            merged[-1] = ast.Constant(value=str(last.value) + str(value.value))
        elif value.value:
            merged.append(value)
    return merged


# ---- C text without comments ----


_C_SUFFIXES = frozenset({".c", ".cc", ".cl", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".m", ".metal", ".mm"})
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(?:define|if|ifdef|ifndef|include|pragma)\b", re.MULTILINE)
_LINE_END = re.compile(r"\s*\n")

# A number may contain a quote (1'000), and a prefix may precede a literal (L'x', R"(...)"), so both are matched as
# whole tokens.
_TOKEN = re.compile(
    r"""
      (?P<comment> //(?:\\[ \t\r]*\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<joined> \\[ \t\r]*\n )
    | (?P<kept> (?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"
              | "(?:\\.|[^"\\\n])*"
              | '(?:\\.|[^'\\\n])+'
              | \#[ \t]*(?:include|import)[ \t]*<[^>\n]*>
              | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
              | [A-Za-z_$]\w* )
    """,
    re.VERBOSE | re.DOTALL,
)


def is_c_text(name: str, data: bytes) -> bool:
    """Whether a file is C or has C comments: by its suffix or, without a suffix, by a preprocessor directive in it.

    >>> is_c_text("half.h", b""), is_c_text("metal_math", b"#pragma once"), is_c_text("notes.txt", b"#include <x>")
    (True, True, False)
    """
    _, dot, suffix = name.rpartition(".")
    return f".{suffix}" in _C_SUFFIXES if dot else _DIRECTIVE.search(data) is not None


def canonical_c(text: str) -> str:
    r"""Returns ``text`` with each comment as one space, without blanks at the end of lines and without empty lines.

    Lines joined by a backslash become one line, also in comments. Literals, also raw ones, stay unchanged.

    >>> canonical_c('int x; // one\n\n/* two\n */ char *s = "// three";  ')
    'int x;\n  char *s = "// three";\n'
    """
    done: list[str] = []
    code: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        code.append(text[end : match.start()])
        end = match.end()
        if match["comment"] is not None:
            code.append(" ")
        elif match["joined"] is not None:
            code.append("")
        elif "\n" in match[0]:  # a literal of several lines, whose blank lines belong to it
            done += (_tidied(code), match[0])
            code = []
        else:
            code.append(match[0])
    code += (text[end:], "\n")
    return "".join((*done, _tidied(code))).lstrip("\n")


def _tidied(code: list[str]) -> str:
    return _LINE_END.sub("\n", "".join(code))
