"""The loop form of a kernel, between the scheduler and the C text.

Statements are structured; expressions are C text over named scalars and buffers. A buffer is a typed range of the
calling thread's scratch memory; its offset is assigned once all statements are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "Assign",
    "Break",
    "Copy",
    "Define",
    "For",
    "Forever",
    "Goto",
    "If",
    "Label",
    "LoopBuffer",
    "LoopCall",
    "LoopFunction",
    "LoopParameter",
    "LoopProgram",
    "Return",
    "Statement",
    "dump",
]


@dataclass(slots=True, eq=False)
class LoopBuffer:
    """A range of scratch memory holding ``elements`` values of the C type ``ctype``, row-major.

    An ``external`` buffer is memory that the caller of a function passes as a parameter. A ``kept`` buffer keeps its
    contents from one program to the next.
    """

    name: str
    ctype: str
    elements: int
    item_bytes: int
    offset: int = -1  # bytes from the start of the function's scratch memory, set by `schedule.scratch_layout`
    external: bool = False
    kept: bool = False

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.item_bytes


@dataclass(frozen=True, slots=True)
class Define:
    """``ctype name = value;``; const unless ``mutable``; no initialiser if ``value`` is None."""

    ctype: str
    name: str
    value: str | None
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """``target = value;``, run only if ``condition`` is absent or true."""

    target: str
    value: str
    condition: str = ""


@dataclass(frozen=True, slots=True)
class LoopCall:
    """A call statement; the text lacks a semicolon."""

    text: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies all of ``source`` to ``target``, which has the same size and does not overlap it."""

    target: LoopBuffer
    source: LoopBuffer


@dataclass(slots=True)
class For:
    """``for (ctype variable = start; variable < end; variable += step)``.

    ``simd`` promises that iterations are independent except for ``reductions``, pairs of an OpenMP operator and an
    accumulator. ``kept`` are pairs of an accumulator and the C text of an address: the partial results of a vector's
    lanes are stored at that address, instead of being combined to the accumulator. If ``unrolled`` is not 0, it is the
    number of iterations, and the loop is written out. ``most`` is an upper bound of the iterations, 0 if none is known.
    """

    variable: str
    start: str
    end: str
    body: list[Statement]
    step: str = "1"
    ctype: str = "int64_t"
    simd: bool = False
    reductions: tuple[tuple[str, str], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    unrolled: int = 0
    most: int = 0


@dataclass(slots=True)
class If:
    """A two-way branch."""

    condition: str
    then: list[Statement]
    otherwise: list[Statement] = field(default_factory=list["Statement"])


@dataclass(slots=True)
class Forever:
    """A loop that only ``Break`` leaves."""

    body: list[Statement]


@dataclass(frozen=True, slots=True)
class Break:
    """Leaves the innermost loop."""


@dataclass(frozen=True, slots=True)
class Label:
    """A place to jump to."""

    name: str


@dataclass(frozen=True, slots=True)
class Goto:
    """A jump to a label of the same function."""

    name: str


@dataclass(frozen=True, slots=True)
class Return:
    """Returns from a function that is not a kernel, with ``value`` if it has one."""

    value: str = ""


Statement = Define | Assign | LoopCall | Copy | For | If | Forever | Break | Label | Goto | Return


@dataclass(frozen=True, slots=True)
class LoopParameter:
    """One kernel parameter: its C type and name. Parameters are in the order of the ABI's ``params``."""

    ctype: str
    name: str


@dataclass(slots=True)
class LoopFunction:
    """A C function beside the kernel.

    A function with ``surroundings`` receives the program's position in the grid and scratch memory, and returns an
    error code. An ``inline`` function applies the region of an operation to some elements, without buffers.
    """

    name: str
    parameters: list[LoopParameter]
    buffers: list[LoopBuffer]
    body: list[Statement]
    inline: bool
    surroundings: bool
    scratch_bytes: int = 0


@dataclass(slots=True)
class LoopProgram:
    """One kernel: ``body`` is the work of one program (one point of the grid). ``functions`` are ordered callees first.

    ``turns`` is -1, or the bits that the kernel passes to ``turns->enter`` when it begins, to request memory updates
    without atomics. The variable ``alone`` holds the result of ``enter``, and the kernel calls ``turns->leave`` when it
    ends (``runtime/turns.h``).
    """

    entry: str
    parameters: list[LoopParameter]
    buffers: list[LoopBuffer]
    constants: list[str]  # definitions of constant arrays and of a dot's block kernels, one each
    body: list[Statement]
    functions: list[LoopFunction] = field(default_factory=list[LoopFunction])
    # the statements that run after the last program of a call
    finish: list[Statement] = field(default_factory=list["Statement"])
    scratch_bytes: int = 0  # bytes of scratch memory of the kernel's own buffers
    total_bytes: int = 0  # bytes of scratch memory, including that of the functions that the kernel calls
    locals: list[str] = field(default_factory=list[str])  # C definitions before the loop over programs
    parts: int = 1  # the most parts of one program that may run separately
    # pairs of pointer parameters: if both pointers of a pair are equal at a call, no program is divided into parts
    distinct: tuple[tuple[int, int], ...] = ()
    turns: int = -1
    together: list[Statement] | None = None  # replaces ``body``: runs all programs of a call, several at a time


def dump(program: LoopProgram) -> str:
    """The program as indented text, for reading and debugging.

    Example:
        >>> print(dump(LoopProgram("k", [], [], [], [Assign("x", "1")])))
        kernel k() scratch 0
          x = 1
    """
    parameters = ", ".join(f"{parameter.ctype} {parameter.name}" for parameter in program.parameters)
    lines = [f"kernel {program.entry}({parameters}) scratch {program.scratch_bytes}"]
    lines.extend(f"  buffer {b.name}: {b.ctype}[{b.elements}] at {b.offset}" for b in program.buffers)
    _dump_block(program.body, 1, lines)
    for function in program.functions:
        parameters = ", ".join(f"{parameter.ctype} {parameter.name}" for parameter in function.parameters)
        lines.append(f"function {function.name}({parameters}) scratch {function.scratch_bytes}")
        _dump_block(function.body, 1, lines)
    return "\n".join(lines)


def _dump_block(body: list[Statement], depth: int, lines: list[str]) -> None:
    pad = "  " * depth
    for statement in body:
        match statement:
            case Define(ctype, name, value):
                lines.append(f"{pad}{ctype} {name}" + ("" if value is None else f" = {value}"))
            case Assign(target, value, condition):
                lines.append(f"{pad}{target} = {value}" + (f" if {condition}" if condition else ""))
            case LoopCall(text):
                lines.append(f"{pad}{text}")
            case Copy(target, source):
                lines.append(f"{pad}copy {source.name} -> {target.name}")
            case For():
                notes = " simd" if statement.simd else ""
                notes += "".join(f" {operator}:{name}" for operator, name in statement.reductions)
                lines.append(f"{pad}for {statement.variable} in {statement.start}..{statement.end}{notes}")
                _dump_block(statement.body, depth + 1, lines)
            case If(condition, then, otherwise):
                lines.append(f"{pad}if {condition}")
                _dump_block(then, depth + 1, lines)
                if otherwise:
                    lines.append(f"{pad}else")
                    _dump_block(otherwise, depth + 1, lines)
            case Forever(body):
                lines.append(f"{pad}forever")
                _dump_block(body, depth + 1, lines)
            case Break():
                lines.append(f"{pad}break")
            case Label(name):
                lines.append(f"{pad}{name}:")
            case Goto(name):
                lines.append(f"{pad}goto {name}")
            case Return():
                lines.append(f"{pad}return")
