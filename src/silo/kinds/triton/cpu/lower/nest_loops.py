"""The loops of one nest, and the statements of each of their levels.

A value that is defined goes to the outermost level at which all that it depends on is known, so the level of every
name is kept. Names of which no level is known are older than the nest: level 0.
"""

from __future__ import annotations

import re

from silo.kinds.triton.cpu.loop_ir import Define, For, Statement
from silo.kinds.triton.cpu.lower.flat import FlatLoops
from silo.kinds.triton.cpu.lower.index import Index, linear_index
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.quotient_runs import Runs

__all__ = ["NestLoops"]

_WORD = re.compile(r"[A-Za-z_]\w*")


class NestLoops:
    """The loops over ``shape``: names of their indices, and the statements of each level.

    ``inner`` is the axis of the innermost loop where it is not the last one, ``cut`` where axes are made two flat
    loops, and ``in_runs`` says that the innermost loop goes over one run after the other.
    """

    def __init__(
        self, scope: LoweringScope, shape: tuple[int, ...], *, cut: int | None, inner: int | None, in_runs: bool
    ) -> None:
        self.scope = scope
        self.shape = shape
        axes = [axis for axis, extent in enumerate(shape) if extent != 1] or [len(shape) - 1]
        if inner in axes:
            axes.append(axes.pop(axes.index(inner)))
        self.axes = axes  # in the order of the loops
        self.index: Index = tuple(scope.name("i") if axis in axes else "0" for axis in range(len(shape)))
        self.flat = None if cut is None else FlatLoops(scope, shape, self.index, cut)
        if self.flat is None:
            self.ctype = "int64_t"
            self.loops_over = [(self.index[axis], shape[axis]) for axis in axes]
        else:
            self.ctype = "int32_t"
            self.loops_over = self.flat.loops
        self.inner = self.loops_over[-1][0]
        self.runs = Runs(scope.name, scope.name("first")) if in_runs else None
        self.depth = len(self.loops_over) + in_runs  # the level of the innermost body; runs have the one before it
        self.levels: list[list[Statement]] = [[] for _ in range(self.depth + 1)]
        self.level_of: dict[str, int] = {name: level + 1 for level, (name, _) in enumerate(self.loops_over)}
        self.level_of[self.inner] = self.depth
        if self.flat is not None:
            self.level_of |= self.flat.levels
            if self.depth == 2:
                self.levels[1] = self.flat.coordinates(1)
        if self.runs is not None:
            self.level_of[self.runs.first] = self.depth - 1
        self._mirrors: dict[str, str] = {}  # from the name of an index to that of its mirror image
        self._mirror_of: dict[str, str] = {}

    def clear_body(self) -> None:
        """Drop the statements of the innermost body, and what has its name among them alone."""
        self.levels[self.depth] = [] if self.flat is None else self.flat.coordinates(self.depth)
        self._mirrors = {name: other for name, other in self._mirrors.items() if self.level(other) < self.depth}

    def put(self, ctype: str, text: str, level: int) -> str:
        """Define a fresh constant at ``level``."""
        name = self.scope.name("t")
        self.levels[level].append(Define(ctype, name, text))
        self.level_of[name] = level
        return name

    def level(self, *names: str) -> int:
        """The outermost level at which all of ``names`` are known."""
        return max((self.level_of.get(name, 0) for name in names), default=0)

    def text_level(self, *texts: str) -> int:
        """The outermost level at which every name in ``texts`` is known."""
        return max(self.level(*_WORD.findall(text)) for text in texts)

    def outer_loops(self, body: list[Statement]) -> list[Statement]:
        """``body`` within every loop but the innermost, each level with its statements before it."""
        return self._within(body, len(self.loops_over) - 1, None)

    def loops(self, body: list[Statement], *, simd: bool = False, backward: int | None = None) -> list[Statement]:
        """``body`` within every loop, the axis ``backward`` from its end to its start."""
        loop = self._loop(self.depth, body, backward, simd=simd)
        return self._within([loop], self.depth - 1, backward)

    def _within(self, body: list[Statement], depth: int, backward: int | None) -> list[Statement]:
        for level in range(depth, -1, -1):
            body = [*self.levels[level], *body]
            if level > 0:
                body = [self._loop(level, body, backward)]
        return body

    def _loop(self, level: int, body: list[Statement], backward: int | None, *, simd: bool = False) -> For:
        index, extent = self.loops_over[level - 1]
        if backward is None or index != self.index[backward]:
            return For(index, "0", str(extent), body, ctype=self.ctype, simd=simd)
        counter = self.scope.name("n")
        return For(counter, "0", str(extent), [Define("int64_t", index, f"{extent - 1} - {counter}"), *body], simd=simd)

    def mirrored(self, name: str) -> str:
        """The name of the mirror image of an index along an axis of extent 2, defined where it is not yet."""
        mirror = self._mirrors.get(name)
        if mirror is None:
            mirror = self.put(self.ctype, f"{name} ^ 1", self.level(name))
            self._mirrors[name] = mirror
            self._mirror_of[mirror] = name
        return mirror

    def linear(self, index: Index, shape: tuple[int, ...]) -> str:
        """The row-major place of ``index`` in a buffer of ``shape``, by the loops' own counters where that is it."""
        if self.flat is None or shape != self.shape:
            return linear_index(index, shape)
        exchanged: list[int] = []
        for axis, name in enumerate(index):
            origin, times = name, 0
            while origin in self._mirror_of:
                origin, times = self._mirror_of[origin], times + 1
            if origin != self.index[axis]:
                return linear_index(index, shape)
            if times % 2:
                exchanged.append(axis)
        return self.flat.linear(exchanged)
