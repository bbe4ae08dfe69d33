"""Runs programs that read adjacent columns of the same rows together, row by row.

A program that sums the rows of a narrow tile reads few bytes of each row, and the next row may be pages away. The
following programs read the adjacent bytes of the same row. If the loop over rows is outside of a loop over the
programs, memory is read in long runs. Every program has scratch memory of its own, and does the same operations in the
same order as alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from silo.kinds.triton.cpu.loop_ir import (
    Assign,
    Break,
    Define,
    For,
    Forever,
    If,
    LoopBuffer,
    LoopCall,
    LoopProgram,
    Statement,
)
from silo.kinds.triton.cpu.lower.reduction import UNKNOWN
from silo.kinds.triton.cpu.lower.row_loops import all_statements, texts_of
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.further_dialects import CLOCK, VOLATILE_LOAD
from silo.kinds.triton.front.operations.operation_table import CHECKS, DOTS, EFFECTS
from silo.kinds.triton.front.ssa import Module

__all__ = ["join_adjacent_programs"]

_SPAN_BYTES = 16384  # the most bytes of a row that all programs of a group read together
# the most bytes of a row that one program of a group reads: with more bytes, a group gains little, and is slower than
# single programs if the programs are few
_MOST_BYTES = 256
_MOST_SCRATCH = 64 << 10  # the most bytes of scratch memory of a group, which has to stay in a thread's caches
_FEWEST = 4  # the fewest programs of a group; fewer programs run one after the other, and prefetch later rows
_ALIGNED = 64

_PROGRAM = "program"
_OWN = "program_x"
_FIRST, _LAST, _UNCUT, _COUNT = "first_program", "last_program", "uncut_program", "program_count"
_PLACES = {
    "first_x": f"(int32_t)({_FIRST} % grid[0])",
    "program_y": f"(int32_t)({_FIRST} / grid[0] % grid[1])",
    "program_z": f"(int32_t)({_FIRST} / grid[0] / grid[1])",
}
_IN_ORDER = (EFFECTS - {tt.STORE}) | DOTS | CHECKS | {VOLATILE_LOAD, CLOCK, tt.CALL}
_WORD = re.compile(r"[A-Za-z_]\w*")
_BUFFER = re.compile(r"\bb[0-9]+\b")
_MEMORY = re.compile(r"\*[A-Za-z_(]|\[")  # a dereference or an index; a multiplication has a space after its asterisk
_AHEAD = re.compile(r"silo_ahead\(&\w+, (\w+), .* ([0-9]+), [01]\)")
_START = re.compile(r"\(int32_t\)\(\(uint32_t\)(\w+) \* \(uint32_t\)\(*\(int32_t\)([0-9]+)\)*")


def join_adjacent_programs(program: LoopProgram, module: Module) -> None:
    """Sets ``program.together`` if neighbouring programs sum adjacent columns of the same rows."""
    if program.parts > 1 or program.turns >= 0 or program.finish or not program.scratch_bytes:
        return
    if any(buffer.kept for buffer in program.buffers):
        return
    if any(operation.name in _IN_ORDER for operation in module.walk()):
        return
    kernel = _Kernel.of(program.body)
    if kernel is None:
        return
    width = kernel.row_bytes()
    frame = -(-program.scratch_bytes // _ALIGNED) * _ALIGNED
    if not 0 < width <= _MOST_BYTES:
        return
    most_programs = min(_SPAN_BYTES // width, _MOST_SCRATCH // frame)
    if most_programs < _FEWEST:
        return
    # A group ends at the end of a row of the grid, because the next grid row starts again at the first columns.
    counts = [f"end - {_FIRST}", "grid[0] - (uint32_t)first_x", str(most_programs)]
    programs: list[Statement] = [If(f"{_FIRST} >= end", [Break()])]
    for name, text in _PLACES.items():
        programs += [Define("int32_t", name, text), LoopCall(f"(void){name}")]
    programs.append(Define("uint64_t", _COUNT, counts[0], mutable=True))
    programs += [Assign(_COUNT, count, f"{count} < {_COUNT}") for count in counts[1:]]
    programs += [
        Define("uint64_t", _LAST, f"{_FIRST} + ({_COUNT} < {_FEWEST} ? 1 : {_COUNT})"),
        *kernel.together(program.buffers, frame),
        Assign(_FIRST, _LAST),
    ]
    program.together = [Define("uint64_t", _FIRST, "begin", mutable=True), Forever(programs)]
    program.total_bytes += most_programs * frame - program.scratch_bytes


@dataclass(slots=True)
class _Rows:
    """The loop over the rows of a tile.

    If ``whole`` is not "", it is a C condition that is tested at run time: if it is false, the statements ``otherwise``
    run instead of ``loop``.
    """

    whole: str
    loop: For
    otherwise: list[Statement]


@dataclass(slots=True)
class _Kernel:
    """The parts of a kernel that sums rows in one loop.

    ``varying`` are the names whose values differ between programs. ``once`` (before the loop) and ``each_once`` (in
    each iteration) define the values that are equal in all programs; ``own`` and ``each`` define those that differ.
    ``advance`` are the assignments at the end of an iteration to variables of ``once``.
    """

    varying: set[str]
    once: list[Statement] = field(default_factory=list[Statement])
    own: list[Define] = field(default_factory=list[Define])
    before: list[Statement] = field(default_factory=list[Statement])
    loop: For = field(default_factory=lambda: For("", "", "", []))
    each_once: list[Statement] = field(default_factory=list[Statement])
    each: list[Define] = field(default_factory=list[Define])
    parts: list[_Rows | Statement] = field(default_factory=list["_Rows | Statement"])
    advance: list[Statement] = field(default_factory=list[Statement])
    after: list[Statement] = field(default_factory=list[Statement])

    @classmethod
    def of(cls, body: Sequence[Statement]) -> _Kernel | None:
        """Splits a kernel's ``body`` into the parts of a ``_Kernel``; None if the body has another form."""
        loops = [index for index, statement in enumerate(body) if isinstance(statement, For) and _aheads([statement])]
        if len(loops) != 1 or not _plain(body):
            return None
        kernel = cls({_PROGRAM, _OWN})
        loop = body[loops[0]]
        assert isinstance(loop, For)
        kernel.loop, kernel.after = loop, list(body[loops[0] + 1 :])
        if loop.simd or loop.reductions or _aheads(kernel.after):
            return None
        for statement in body[: loops[0]]:
            if isinstance(statement, Define):
                if not kernel._define(statement, kernel.once, kernel.own):
                    return None
            elif _local([statement]):
                kernel.before.append(statement)
            else:
                return None
        if kernel._varies(loop.start, loop.end, loop.step) or not kernel._iteration(loop.body):
            return None
        return kernel

    def _iteration(self, body: Sequence[Statement]) -> bool:
        variables = {statement.name for statement in self.once if isinstance(statement, Define) and statement.mutable}
        for statement in body:
            if isinstance(statement, Assign) and statement.target in variables:
                if statement.condition or self._varies(statement.value):
                    return False
                self.advance.append(statement)
                continue
            if self.advance:
                return False
            if isinstance(statement, Define):
                if statement.mutable or not self._define(statement, self.each_once, self.each):
                    return False
            elif _aheads([statement]) and not self._own_rows(statement):
                rows = _rows_of(statement)
                if rows is None or self._varies(rows.loop.start, rows.loop.end, rows.loop.step):
                    return False
                if not _local(rows.loop.body) or not _local(rows.otherwise):
                    return False
                self.parts.append(rows)
            elif _local([statement]):
                self.parts.append(statement)
            else:
                return False
        return any(isinstance(part, _Rows) for part in self.parts)

    def _own_rows(self, statement: Statement) -> bool:
        """Whether ``statement`` is a loop over rows that begins at another row in each program.

        Such a loop is not joined.
        """
        return isinstance(statement, For) and not statement.simd and self._varies(statement.start)

    def _define(self, define: Define, once: list[Statement], own_definitions: list[Define]) -> bool:
        """Adds a definition to ``once``, or to ``own_definitions`` if its value depends on the program.

        Returns False if the definition reads memory, so that two evaluations may differ, or if it depends on the
        program and is assigned again later.
        """
        text = define.value or ""
        if _MEMORY.search(text) or _BUFFER.search(text):
            return False
        if not self._varies(text):
            once.append(define)
            return True
        self.varying.add(define.name)
        own_definitions.append(define)
        return not define.mutable

    def _varies(self, *texts: str) -> bool:
        return any(name in self.varying for text in texts for name in _WORD.findall(text))

    def row_bytes(self) -> int:
        """The bytes of a row that a program reads, if the next program reads the bytes after them; otherwise 0."""
        sizes: set[int] = set()
        starts = {definition.name: definition.value or "" for definition in self.own}
        for rows in self.parts:
            if not isinstance(rows, _Rows):
                continue
            values = {definition.name: definition for definition in rows.loop.body if isinstance(definition, Define)}
            for pointer, bytes_ in _aheads([rows.loop]):
                value = values.get(pointer)
                if value is None:
                    return 0
                if not self._varies(value.value or ""):
                    continue  # all programs read the same bytes of the row
                names = [name for name in _WORD.findall(value.value or "") if name in self.varying]
                start = _START.fullmatch(starts.get(names[0], "")) if len(names) == 1 else None
                if start is None or not re.search(rf"\+ \(+int64_t\){names[0]}\b(?! \*)", value.value or ""):
                    return 0
                axis = starts.get(start[1], start[1])
                size = _item_bytes(value.ctype)
                if axis != _OWN or int(start[2]) * size != bytes_:
                    return 0
                sizes.add(bytes_)
        return max(sizes) if sizes else 0

    def together(self, buffers: Sequence[LoopBuffer], frame: int) -> list[Statement]:
        """The statements that do the work of the programs from ``_FIRST`` up to ``_LAST``."""

        def each(body: list[Statement], values: Sequence[Define] = (), first: str = _FIRST, last: str = _LAST) -> For:
            needed = _needed([*self.own, *values], body)
            names = _names([*needed, *body])
            head: list[Statement] = [Assign("*running", _PROGRAM)]
            for buffer in buffers:
                if buffer.name in names:
                    offset = f"({_PROGRAM} - {_FIRST}) * {frame} + {buffer.offset}"
                    kind = f"{buffer.ctype} *"
                    head.append(Define(kind, buffer.name, f"({kind})(void *)((char *)scratch + {offset})"))
            if _OWN in names:
                head.append(Define("int32_t", _OWN, f"first_x + (int32_t)({_PROGRAM} - {_FIRST})"))
            return For(_PROGRAM, first, last, [*head, *needed, *body], ctype="uint64_t")

        def by_rows(rows: _Rows) -> list[Statement]:
            last = _UNCUT if rows.whole else _LAST
            once, body = self._row(rows.loop.body)
            row_loop = rows.loop
            inner: list[Statement] = [*once, each(body, self.each, last=last)]
            loop = For(row_loop.variable, row_loop.start, row_loop.end, inner, step=row_loop.step, ctype=row_loop.ctype)
            few = each([row_loop], self.each, last=last)
            either = If(f"{_LAST} - {_FIRST} == 1", [few], [loop])
            if not rows.whole:
                return [either]
            count = Assign(_UNCUT, f"{_PROGRAM} + 1", f"{_UNCUT} == {_PROGRAM} && ({rows.whole})")
            uncut: list[Statement] = [each([count], self.each)]
            fallback = each(rows.otherwise, self.each, first=_UNCUT)
            return [Assign(_UNCUT, _FIRST), *uncut, If(f"{_UNCUT} > {_FIRST}", [either]), fallback]

        iteration: list[Statement] = [*self.each_once]
        if any(isinstance(part, _Rows) and part.whole for part in self.parts):
            iteration.append(Define("uint64_t", _UNCUT, None, mutable=True))
        for part in self.parts:
            iteration += by_rows(part) if isinstance(part, _Rows) else [each([part], self.each)]
        iteration += self.advance
        loop = For(self.loop.variable, self.loop.start, self.loop.end, iteration, step=self.loop.step)
        loop.ctype = self.loop.ctype
        start: list[Statement] = [each(self.before)] if self.before else []
        return [*self.once, *start, loop, each(self.after)]

    def _row(self, body: Sequence[Statement]) -> tuple[list[Statement], list[Statement]]:
        """Splits the statements of some rows: definitions whose values all programs share, and all others."""
        varying = self.varying | {other.name for other in self.each}
        varying |= {statement.target for statement in all_statements(body) if isinstance(statement, Assign)}
        once: list[Statement] = []
        own: list[Statement] = []
        for other in body:
            if isinstance(other, Define):
                names = set(_WORD.findall(other.value or ""))
                if other.mutable or other.name in varying or names & varying or _BUFFER.search(other.value or ""):
                    varying.add(other.name)
                    own.append(other)
                else:
                    once.append(other)
            # skips prefetches: a group reads long runs of memory, which need none
            elif not (isinstance(other, LoopCall) and _is_ahead(other)):
                own.append(other)
        return once, own


def _names(body: Sequence[Statement]) -> set[str]:
    calls = [statement.text for statement in all_statements(body) if isinstance(statement, LoopCall)]
    return {name for text in [*texts_of(body), *calls] for name in _WORD.findall(text)}


def _needed(values: Sequence[Define], body: Sequence[Statement]) -> list[Define]:
    """The definitions in ``values`` that ``body`` uses, in order."""
    names = _names(body)
    needed: list[Define] = []
    for value in reversed(values):
        if value.name in names:
            needed.append(value)
            names.update(_WORD.findall(value.value or ""))
    return needed[::-1]


def _aheads(body: Sequence[Statement]) -> list[tuple[str, int]]:
    """The row pointer and the bytes of a row for each call that prefetches later rows."""
    calls = (_AHEAD.fullmatch(statement.text) for statement in all_statements(body) if isinstance(statement, LoopCall))
    return [(call[1], int(call[2])) for call in calls if call is not None]


def _rows_of(statement: Statement) -> _Rows | None:
    match statement:
        case For(simd=False, reductions=()):
            return _Rows("", statement, [])
        case If(whole, [For(simd=False, reductions=()) as loop], otherwise) if _WORD.fullmatch(whole):
            return _Rows(whole, loop, otherwise or [statement])
        case _:
            return None


def _is_ahead(statement: LoopCall) -> bool:
    """Whether the call prefetches later rows."""
    return _AHEAD.fullmatch(statement.text) is not None


def _plain(body: Sequence[Statement]) -> bool:
    return all(
        isinstance(statement, Define | Assign | For | If)
        or (isinstance(statement, LoopCall) and (_is_ahead(statement) or statement.text.startswith(UNKNOWN)))
        for statement in all_statements(body)
    )


def _local(body: Sequence[Statement]) -> bool:
    """Whether ``body`` writes only buffers and its own variables."""
    own = {statement.name for statement in all_statements(body) if isinstance(statement, Define)}
    return all(
        statement.target in own or re.match(r"b[0-9]+\[", statement.target) is not None
        for statement in all_statements(body)
        if isinstance(statement, Assign)
    )


def _item_bytes(pointer: str) -> int:
    return {"float": 4, "int32_t": 4, "double": 8, "int64_t": 8, "uint16_t": 2}.get(pointer.split(maxsplit=1)[0], 0)
