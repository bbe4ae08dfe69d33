"""Reads the uses of a kernel's parameters from its text: pointers, offsets, switches, literals they meet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Reading", "read"]

_MEMORY = {"load", "store", "make_block_ptr", "make_tensor_descriptor"}
_ATOMIC = "atomic_"
_Function = ast.FunctionDef


@dataclass
class Reading:
    """One kernel: its parameters in order and the uses that were found.

    ``compared`` holds the literals that a parameter is compared with; ``lines`` the parameters that each line of the
    kernel names, or that the variables on it were made from, by the line's text.
    """

    parameters: list[str]
    constexprs: set[str]
    defaults: dict[str, object]
    pointers: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)  # pointers whose values are part of addresses or bounds
    optional: set[str] = field(default_factory=set)  # compared with None
    descriptors: set[str] = field(default_factory=set)
    tuples: set[str] = field(default_factory=set)
    extents: set[str] = field(default_factory=set)  # in shapes and ranges of tiles: powers of two
    loops: set[str] = field(default_factory=set)  # bounds of range and static_range
    switches: set[str] = field(default_factory=set)  # tested, never counted with
    types: set[str] = field(default_factory=set)  # given to .to() or as a dtype
    dots: bool = False
    atomics: bool = False
    axes: int = 1
    compared: dict[str, list[object]] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)


def read(folder: Path, name: str) -> Reading:
    """Read the kernel ``name`` of ``kernel_0.py`` and the functions that it calls in its modules."""
    functions: dict[str, _Function] = {}
    for path in sorted(folder.glob("kernel_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, node)
    reader = _Reader(functions)
    return reader.read(functions[name])


def _arguments(node: _Function) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _leftmost(node: ast.expr) -> ast.expr:
    """The base of an address: the first operand of sums, behind casts and selections."""
    while True:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"to", "cast"}:
            node = node.args[0] if _root(node.func) == "tl" and node.args else node.func.value
        elif isinstance(node, ast.IfExp):
            node = node.body
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and node.args and getattr(node.func, "attr", "") in {"multiple_of", "advance"}:
            node = node.args[0]
        else:
            return node


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _rest(node: ast.expr, base: ast.expr) -> Iterator[str]:
    """The names of an address besides its base."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one is not base and isinstance(one.ctx, ast.Load):
            yield one.id


class _Reader:
    def __init__(self, functions: dict[str, _Function]) -> None:
        self._functions = functions
        self._known: dict[str, Reading] = {}

    def read(self, node: _Function) -> Reading:
        if node.name in self._known:
            return self._known[node.name]
        arguments = _arguments(node)
        constexprs = {
            one.arg for one in arguments if one.annotation is not None and "constexpr" in ast.unparse(one.annotation)
        }
        found = Reading([one.arg for one in arguments], constexprs, _defaults(node))
        self._known[node.name] = found
        self._uses(node, found)
        return found

    def _uses(self, node: _Function, found: Reading) -> None:
        bases: dict[str, list[ast.expr]] = {}  # the values assigned to each variable
        pointers: set[str] = set()
        offsets: set[str] = set()
        counted: set[str] = set()
        moved: list[tuple[str, ast.expr]] = []  # names that something is added to
        for one in ast.walk(node):
            if isinstance(one, ast.Assign):
                for target in one.targets:
                    self._assign(target, one.value, bases)
            elif isinstance(one, ast.AnnAssign) and one.value is not None:
                self._assign(one.target, one.value, bases)
            elif isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
                moved.append((one.target.id, one.value))
            elif isinstance(one, ast.Call):
                self._call(one, found, pointers, offsets)
            elif isinstance(one, ast.Compare):
                self._compare(one, found)
            elif isinstance(one, ast.If | ast.IfExp | ast.Assert):
                found.switches |= {name.id for name in ast.walk(one.test) if isinstance(name, ast.Name)}
            elif isinstance(one, ast.BinOp):
                counted |= {side.id for side in (one.left, one.right) if isinstance(side, ast.Name)}
            elif isinstance(one, ast.Subscript) and _is_number(one.slice):
                found.tuples |= {one.value.id} if isinstance(one.value, ast.Name) else set()
        self._close(bases, moved, pointers, offsets)
        found.switches -= counted | found.extents | found.loops
        found.pointers |= pointers & set(found.parameters) - found.constexprs
        loaded: dict[str, set[str]] = {}
        for name, values in bases.items():
            for value in values:
                for one in _loads(value):
                    loaded.setdefault(name, set()).update(self._origins(one.args[0], bases))
        for name in offsets:
            found.indices |= loaded.get(name, set()) & found.pointers
        for one in ast.walk(node):  # a load within an address
            if isinstance(one, ast.Call) and _is_memory(one) and one.args:
                base = _leftmost(one.args[0])
                for inner in _loads(one.args[0]):
                    if inner is not base:
                        found.indices |= self._origins(inner.args[0], bases) & found.pointers
        for one in ast.walk(node):
            if isinstance(one, ast.stmt) and not isinstance(one, _Function):
                names = {name.id for name in ast.walk(one) if isinstance(name, ast.Name)}
                made = set().union(*(self._made_from(name, bases, 0) for name in names)) if names else set()
                text = ast.unparse(one).partition("\n")[0].strip()
                found.lines[text] = sorted((made | names) & set(found.parameters))

    def _assign(self, target: ast.expr, value: ast.expr, bases: dict[str, list[ast.expr]]) -> None:
        if isinstance(target, ast.Name):
            bases.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple):
            each = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            for one, part in zip(target.elts, each, strict=False):
                self._assign(one, part, bases)

    def _call(self, call: ast.Call, found: Reading, pointers: set[str], offsets: set[str]) -> None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        owner = _root(call.func) if isinstance(call.func, ast.Attribute) else ""
        if _is_memory(call) and owner != "tl":
            if owner in found.parameters and name in {"load", "store", "gather", "scatter"}:
                found.descriptors.add(owner)
            return
        if _is_memory(call) and call.args:
            base = _leftmost(call.args[0])
            if isinstance(base, ast.Name):
                pointers.add(base.id)
            offsets |= set(_rest(call.args[0], base))
            found.atomics |= name.startswith(_ATOMIC)
        elif name in {"program_id", "num_programs"}:
            axis = next((one for one in (*call.args, *(k.value for k in call.keywords))), None)
            if isinstance(axis, ast.Constant) and isinstance(axis.value, int):
                found.axes = max(found.axes, axis.value + 1)
        elif name in {"range", "static_range"}:
            names = {one.id for argument in call.args for one in ast.walk(argument) if isinstance(one, ast.Name)}
            offsets |= names
            found.loops |= names
        elif name in {"arange", "zeros", "full", "reshape", "view", "broadcast_to"}:
            found.extents |= {one.id for one in ast.walk(call) if isinstance(one, ast.Name)} & found.constexprs
        elif name in {"dot", "dot_scaled"}:
            found.dots = True
        if name in {"to", "cast"}:
            found.types |= {one.id for one in call.args if isinstance(one, ast.Name)} & found.constexprs
        for keyword in call.keywords:
            if keyword.arg in {"dtype", "out_dtype"} and isinstance(keyword.value, ast.Name):
                found.types |= {keyword.value.id} & found.constexprs
        callee = self._functions.get(name) if not owner else None
        if callee is not None:
            self._called(call, self.read(callee), found, pointers, offsets)

    def _called(self, call: ast.Call, callee: Reading, found: Reading, pointers: set[str], offsets: set[str]) -> None:
        """Apply the uses of a called function's parameters to the arguments."""
        found.axes = max(found.axes, callee.axes)
        found.dots |= callee.dots
        found.atomics |= callee.atomics
        given = dict(zip(callee.parameters, call.args, strict=False))
        given |= {one.arg: one.value for one in call.keywords if one.arg is not None}
        for parameter, argument in given.items():
            base = _leftmost(argument)
            name = base.id if isinstance(base, ast.Name) else ""
            if parameter in callee.pointers:
                pointers.add(name)
                offsets |= set(_rest(argument, base))
            for mine, theirs in (
                (found.indices, callee.indices),
                (found.optional, callee.optional),
                (found.descriptors, callee.descriptors),
                (found.tuples, callee.tuples),
                (found.extents, callee.extents),
                (found.loops, callee.loops),
                (found.types, callee.types),
                (found.switches, callee.switches),
            ):
                if parameter in theirs and name in found.parameters:
                    mine.add(name)
            if parameter in callee.compared and name in found.parameters:
                found.compared.setdefault(name, []).extend(callee.compared[parameter])

    def _compare(self, node: ast.Compare, found: Reading) -> None:
        sides = [node.left, *node.comparators]
        for one in sides:
            if not isinstance(one, ast.Name) or one.id not in found.parameters:
                continue
            for other in sides:
                if isinstance(other, ast.Constant):
                    if other.value is None:
                        found.optional.add(one.id)
                    elif other.value not in found.compared.setdefault(one.id, []):
                        found.compared[one.id].append(other.value)

    def _close(
        self,
        bases: dict[str, list[ast.expr]],
        moved: list[tuple[str, ast.expr]],
        pointers: set[str],
        offsets: set[str],
    ) -> None:
        """Follow variables to the values assigned to them, until nothing is new."""
        before = -1
        while before != len(pointers) + len(offsets):
            before = len(pointers) + len(offsets)
            for name in [*pointers]:
                for value in bases.get(name, []):
                    base = _leftmost(value)
                    if isinstance(base, ast.Name) and base.id != name:
                        pointers.add(base.id)
                        offsets |= set(_rest(value, base))
                    elif isinstance(base, ast.Call) and base.args and _is_memory(base):
                        first = _leftmost(base.args[0])
                        pointers |= {first.id} if isinstance(first, ast.Name) else set()
            for name, value in moved:
                if name in pointers | offsets:
                    offsets |= set(_rest(value, value))
            for name in [*offsets]:
                for value in bases.get(name, []):
                    loads = {
                        inner
                        for one in ast.walk(value)
                        if isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "load"
                        for inner in ast.walk(one)
                    }
                    names = (one for one in ast.walk(value) if isinstance(one, ast.Name) and one not in loads)
                    offsets |= {one.id for one in names}
            offsets -= pointers

    def _origins(self, address: ast.expr, bases: dict[str, list[ast.expr]]) -> set[str]:
        """The names that an address may start from."""
        found: set[str] = set()
        todo = [_leftmost(address)]
        while todo:
            base = todo.pop()
            if isinstance(base, ast.Name) and base.id not in found:
                found.add(base.id)
                todo += [_leftmost(value) for value in bases.get(base.id, [])]
        return found

    def _made_from(self, name: str, bases: dict[str, list[ast.expr]], depth: int) -> set[str]:
        found = {name}
        if depth < 3:
            for value in bases.get(name, []):
                for one in ast.walk(value):
                    if isinstance(one, ast.Name) and one.id not in found:
                        found |= self._made_from(one.id, bases, depth + 1)
        return found


def _is_memory(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in _MEMORY or name.startswith(_ATOMIC)


def _loads(node: ast.AST) -> list[ast.Call]:
    """The loads within an expression."""
    calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
    return [one for one in calls if getattr(one.func, "attr", "") == "load" and one.args]


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _defaults(node: _Function) -> dict[str, object]:
    positional = [*node.args.posonlyargs, *node.args.args]
    found: dict[str, object] = {}
    pairs = [
        *zip(reversed(positional), reversed(node.args.defaults), strict=False),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if isinstance(default, ast.Constant):
            found[argument.arg] = default.value
    return found
