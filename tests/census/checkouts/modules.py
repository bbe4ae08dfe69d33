"""Finds the ``@triton.jit`` functions of a checkout by their syntax, and writes modules that hold one kernel each.

Nothing of the checkout is imported: a module holds the kernel, the functions and constants that it names in its own
file or in other files of the checkout, and imports of Triton, torch and the standard library.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

__all__ = ["CannotBuildError", "Checkout", "Found"]

_ALLOWED = {"triton", "torch", "numpy", *sys.stdlib_module_names}
_TRITON = {"triton": "import triton", "tl": "import triton.language as tl"}
_JIT = re.compile(r"\bjit\b")
_HEADER = "# Written for one kernel, from its checkout.\n"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class CannotBuildError(Exception):
    """The kernel cannot stand alone; the message is the reason."""


@dataclass(frozen=True)
class Found:
    """One kernel: its file within the checkout, its name and its line."""

    file: str
    name: str
    line: int

    @property
    def label(self) -> str:
        """The file and the name."""
        return f"{self.file}::{self.name}"


@dataclass
class _File:
    """One parsed file: its statements by the names that they define."""

    path: str
    tree: ast.Module
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    jitted: dict[str, Function] = field(default_factory=dict)
    others: dict[str, list[ast.stmt]] = field(default_factory=dict)  # assignments in other branches
    inner: dict[str, str] = field(default_factory=dict)  # a jit function inside of another function, by its name

    def read(self) -> None:
        self._read(self.tree.body)
        for outer in ast.walk(self.tree):
            if isinstance(outer, Function):
                for node in ast.walk(outer):
                    if node is not outer and isinstance(node, Function) and is_jit(node):
                        self.inner[node.name] = outer.name
                        self.defined.setdefault(node.name, node)
                        self.jitted.setdefault(node.name, node)

    def _read(self, body: list[ast.stmt], *, nested: bool = False) -> None:
        for node in body:
            if isinstance(node, Function | ast.ClassDef):
                # Of two versions of a function, both under conditions, the first is taken.
                self.defined.setdefault(node.name, node)
                if isinstance(node, Function) and is_jit(node):
                    self.jitted.setdefault(node.name, node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    self.defined.setdefault(alias.asname or alias.name.partition(".")[0], node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)):
                    if nested and name in self.defined:
                        self.others.setdefault(name, []).append(node)
                    else:
                        self.defined[name] = node
            elif isinstance(node, ast.If | ast.With):
                self._read(node.body, nested=True)
                self._read(getattr(node, "orelse", []), nested=True)
            elif isinstance(node, ast.Try):
                for part in (node.body, *(one.body for one in node.handlers), node.orelse):
                    self._read(part, nested=True)


def is_jit(node: Function) -> bool:
    """Whether one of the decorators is ``triton.jit``."""
    return any(ast.unparse(one).partition("(")[0] in {"triton.jit", "jit"} for one in node.decorator_list)


class _Files(Mapping[str, _File]):
    """The files of a checkout by their path within it; each is parsed when it is first needed.

    A file that is no Python is an empty one, and a line of ``unread``.
    """

    def __init__(self, root: Path, unread: list[str]) -> None:
        self._root, self._unread = root, unread
        self._places = dict.fromkeys(path.relative_to(root).as_posix() for path in sorted(root.rglob("*.py")))
        self._parsed: dict[str, _File] = {}

    def __getitem__(self, place: str) -> _File:
        if place not in self._places:
            raise KeyError(place)
        if place not in self._parsed:
            self._parsed[place] = self._parse(place)
        return self._parsed[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, place: object) -> bool:
        return place in self._places

    def with_word(self, place: str, word: re.Pattern[str]) -> _File | None:
        """The file if its text has a match of ``word``."""
        return self[place] if word.search(self._text(place)) else None

    def _text(self, place: str) -> str:
        return (self._root / place).read_text(encoding="utf-8", errors="replace")

    def _parse(self, place: str) -> _File:
        try:
            file = _File(place, ast.parse(self._text(place)))
        except (SyntaxError, ValueError) as error:
            self._unread.append(f"{place}: {error}")
            return _File(place, ast.Module([], []))
        file.read()
        return file


class Checkout:
    """The Python files under a folder that hold ``triton.jit``, or that those import names from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = root.name
        self.unread: list[str] = []

    @cached_property
    def _files(self) -> _Files:
        return _Files(self.root, self.unread)

    @cached_property
    def _jitted(self) -> dict[str, _File]:
        """The files that may hold jit functions, by their path within the checkout."""
        return {place: file for place in self._files if (file := self._files.with_word(place, _JIT)) is not None}

    def kernels(self) -> list[Found]:
        """The jit functions that no other jit function calls and that return nothing."""
        return list(self._kernels)

    @cached_property
    def _kernels(self) -> list[Found]:
        called, launched = self._uses()
        found: list[Found] = []
        for place, file in self._jitted.items():
            for name, node in file.jitted.items():
                gives = any(isinstance(one, ast.Return) and one.value is not None for one in ast.walk(node))
                if not gives and (name not in called or name in launched):
                    found.append(Found(place, name, node.lineno))
        return found

    def helpers(self) -> int:
        """How many jit functions are no kernels."""
        return sum(len(file.jitted) for file in self._jitted.values()) - len(self.kernels())

    def _uses(self) -> tuple[set[str], set[str]]:
        called: set[str] = set()
        launched: set[str] = set()
        jitted = {name for file in self._jitted.values() for name in file.jitted}
        for file in self._jitted.values():
            for node in file.jitted.values():
                called |= jitted & {one.func.id for one in _calls(node) if isinstance(one.func, ast.Name)}
        if not called:
            return called, launched
        subscript = re.compile(rf"\b({'|'.join(sorted(called))})\s*\[")
        for place in self._files:
            file = self._files.with_word(place, subscript)
            for node in ast.walk(file.tree) if file is not None else ():
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                    target = node.func.value
                    launched |= {target.id} if isinstance(target, ast.Name) else set()
        return called, launched

    def write(self, kernel: Found, folder: Path, *, replaced: dict[str, str] | None = None) -> list[str]:
        """Write the modules of ``kernel`` to ``folder``, its own as ``kernel_0.py``.

        Returns a line for each name that is taken for False.

        ``replaced`` maps names of attributes of ``tl`` to others: a kernel in wider types.

        Raises:
            CannotBuildError: a name that the kernel calls is not in the checkout, or it is a closure.
        """
        return _Writer(self._files, replaced or {}).write(kernel, folder)


def _calls(node: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]


def free_names(node: ast.AST) -> set[str]:
    """The names that a statement reads and does not define itself."""
    read = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    if not isinstance(node, Function):
        return read
    arguments = node.args
    own = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    own |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    # An annotation or a default is evaluated outside.
    outside = {one.id for part in (arguments.defaults, arguments.kw_defaults) for d in part if d for one in _names(d)}
    return (read - own) | outside


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


class _Attributes(ast.NodeTransformer):
    """Replaces ``tl.NAME`` by ``tl.OTHER``."""

    def __init__(self, replaced: dict[str, str]) -> None:
        self._replaced = replaced

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:  # the name that ast calls
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "tl" and node.attr in self._replaced:
            return ast.Attribute(node.value, self._replaced[node.attr], node.ctx)
        return node


class _Writer:
    """Collects the statements that one kernel needs, file by file."""

    def __init__(self, files: Mapping[str, _File], replaced: dict[str, str]) -> None:
        self._files, self._replaced = files, replaced
        self._modules: dict[str, int] = {}  # a file's number, in the order of need
        self._texts: dict[str, dict[str, tuple[int, str]]] = {}  # by file and name: a line (0: an import), a statement
        self._open: list[str] = []

    def write(self, kernel: Found, folder: Path) -> list[str]:
        self._need(kernel.file, kernel.name, called=True)
        for place, texts in self._texts.items():
            lines = dict.fromkeys(text for _, text in sorted(texts.values()))
            whole = "\n\n".join(dict.fromkeys([*_TRITON.values(), *lines]))
            (folder / f"kernel_{self._modules[place]}.py").write_text(f"{_HEADER}{whole}\n")
        return self._open

    def _need(self, place: str, name: str, *, called: bool) -> bool:
        """Whether the file defines the name: then its statement is taken with everything that it reads."""
        file = self._files[place]
        self._modules.setdefault(place, len(self._modules))
        texts = self._texts.setdefault(place, {})
        if name in texts:
            return True
        if name in _TRITON:
            texts[name] = (0, _TRITON[name])
            return True
        node = file.defined.get(name)
        if node is None:
            return False
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(file, name, node, called=called)
            return True
        texts[name] = (node.lineno, "")
        if isinstance(node, Function):
            texts[name] = (node.lineno, self._function(file, node))
        elif isinstance(node, ast.ClassDef):
            self._everything(file, node)
            texts[name] = (node.lineno, ast.unparse(node))
        else:
            # Each branch of a condition that assigns the name is tried; at last it is a switch of the platform: off.
            text = f"{name} = triton.language.constexpr(False)"
            for one in reversed([node, *file.others.get(name, [])]):
                if missing := self._everything(file, one):
                    self._open.append(f"{name}: {', '.join(sorted(missing))} is not in the checkout")
                else:
                    inner = text.replace("\n", "\n    ")
                    text = f"try:\n    {self._unparse(one)}\nexcept Exception:\n    {inner}"
            texts[name] = (node.lineno, text)
        return True

    def _unparse(self, node: ast.stmt) -> str:
        return ast.unparse(_Attributes(self._replaced).visit(copy.deepcopy(node)) if self._replaced else node)

    def _function(self, file: _File, node: Function) -> str:
        kept = [one for one in node.decorator_list if _is_tritons(one)]
        bare = copy.deepcopy(node)
        bare.decorator_list, bare.returns = kept, None
        called = {one.func.id for one in _calls(node) if isinstance(one.func, ast.Name)}
        for name in sorted(_free_in_function(bare)):
            if self._need(file.path, name, called=name in called) or hasattr(builtins, name):
                continue
            if node.name in file.inner:
                raise CannotBuildError(f"a closure of {file.inner[node.name]}: {name} is its own")
            raise CannotBuildError(f"{name} is defined nowhere in {file.path}")
        # Annotations other than constexpr name types that are not here.
        for argument in (*bare.args.posonlyargs, *bare.args.args, *bare.args.kwonlyargs):
            text = "" if argument.annotation is None else ast.unparse(argument.annotation)
            argument.annotation = _CONSTEXPR if "constexpr" in text else None
        return self._unparse(ast.fix_missing_locations(bare))

    def _everything(self, file: _File, node: ast.stmt) -> set[str]:
        """Take the definitions that a statement reads; returns the names without one."""
        missing: set[str] = set()
        for name in sorted(free_names(node)):
            try:
                known = self._need(file.path, name, called=True)
            except CannotBuildError:
                known = False
            if not known and not hasattr(builtins, name):
                missing.add(name)
        return missing

    def _import(self, file: _File, name: str, node: ast.Import | ast.ImportFrom, *, called: bool) -> None:
        texts = self._texts[file.path]
        if isinstance(node, ast.Import):
            (alias,) = [one for one in node.names if (one.asname or one.name.partition(".")[0]) == name][:1]
            if alias.name.partition(".")[0] not in _ALLOWED:
                raise CannotBuildError(f"{alias.name} is imported")
            texts[name] = (0, ast.unparse(ast.Import([alias])))
            return
        (alias,) = [one for one in node.names if (one.asname or one.name) == name][:1]
        if not node.level and (node.module or "").partition(".")[0] in _ALLOWED:
            texts[name] = (0, ast.unparse(ast.ImportFrom(node.module, [alias], 0)))
            return
        if alias.name in _TRITON:
            texts[name] = (0, f"{_TRITON[alias.name].partition(' as ')[0]} as {name}")
            return
        if alias.name in {"libdevice", "tldevice"}:
            texts[name] = (0, f"from triton.language.extra import libdevice as {name}")
            return
        place = self._place(file.path, node, alias.name)
        if place is not None:
            if place == file.path or alias.name not in self._files[place].defined:
                raise CannotBuildError(f"{alias.name} is not defined in {place}")
            self._need(place, alias.name, called=called)
            module = f"kernel_{self._modules[place]}"
            texts[name] = (0, f"from {module} import {alias.name} as {name}")
            return
        if called:
            raise CannotBuildError(f"{'.' * node.level}{node.module or ''}.{alias.name} is not in the checkout")
        self._open.append(f"{name} is taken for False: {node.module} is not in the checkout")
        texts[name] = (0, f"{name} = triton.language.constexpr(False)")

    def _place(self, importer: str, node: ast.ImportFrom, name: str) -> str | None:
        """The file of the checkout that an import reads the name from."""
        parts = (node.module or "").split(".") if node.module else []
        if node.level:
            base = Path(importer).parent.parts
            base = base[: len(base) - node.level + 1]
            stems = ["/".join((*base, *parts))]
        else:
            stem = "/".join(parts)
            stems = [
                stem,
                *sorted(one[: -len("/__init__.py")] for one in self._files if one.endswith(f"{stem}/__init__.py")),
            ]
            stems += sorted(one[: -len(".py")] for one in self._files if one.endswith(f"/{stem}.py"))
        for stem in stems:
            for place in (f"{stem}.py", f"{stem}/__init__.py"):
                if place in self._files and name in self._files[place].defined:
                    return place
        return None


_CONSTEXPR = ast.Attribute(ast.Name("tl", ast.Load()), "constexpr", ast.Load())


def _is_tritons(decorator: ast.expr) -> bool:
    """Of autotuners and heuristics nothing is kept: their values are guessed."""
    text = ast.unparse(decorator)
    left = ("triton.autotune", "triton.heuristics", "triton.testing")
    return text.startswith(("triton.", "tl.")) and not text.startswith(left)


def _free_in_function(node: Function) -> set[str]:
    names = free_names(node)
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if argument.annotation is not None:
            names -= {one.id for one in _names(argument.annotation)} - {
                one.id for one in _names(ast.Module(node.body, []))
            }
    return names
