"""The state of a lowering: the C name of each scalar, the buffer of each stored value."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.loop_ir import Copy, Define, If, LoopBuffer, LoopCall, Return, Statement
from silo.kinds.triton.cpu.schedule.scratch_layout import Lifetimes
from silo.kinds.triton.front.ssa import Dense, Module, Operation, Type, Value

__all__ = ["ElementFunction", "LoweringScope", "Tail"]


@dataclass(frozen=True, slots=True)
class ElementFunction:
    """A C function that applies the region of an operation.

    ``passed`` are the values that it takes before the elements.

    ``calls``: the function calls functions of the user. It then also receives the program's position, scratch memory
    and context, and returns an error code.
    """

    name: str
    passed: tuple[Value, ...]
    calls: bool


@dataclass(frozen=True, slots=True)
class Tail:
    """A fact about a stored value: its elements along ``axis`` from ``limit`` on all equal the scalar ``element``.

    ``limit`` is a C text that computes the limit from the extent.
    """

    axis: int
    limit: str
    element: str


_POINTER_BYTES = 8


class LoweringScope:
    """The state of lowering one kernel, shared by all of the kernel's functions."""

    def __init__(self, options: CpuOptions, module: Module) -> None:
        self.options = options
        self.module = module
        self.lifetimes = Lifetimes()
        self.pieces: set[str] = set()
        self.constants: list[str] = []
        self.locals: list[str] = []  # C definitions that keep their values from one program to the next
        self.finish: list[Statement] = []  # statements that run after the last program of a call
        self.wants_alone = False  # whether atomics become plain updates while no other kernel with atomics runs
        # atomics that become plain updates under a lock while all running kernels with atomics use locks
        self.locking: set[Operation] = set()
        self.in_kernel = False  # whether the kernel itself is being lowered, rather than a function that it calls
        self.out: list[Statement] = []
        self.frame = ""  # the C constant for the size of the current function's scratch memory
        self.elementwise: dict[Operation, ElementFunction] = {}
        # Maps a value to another value that equals it: a carried value that its loop never changes to its start, and a
        # loop's result to the carried value.
        self.same: dict[Value, Value] = {}
        # For each carried value that an iteration only moves by an offset: the value's start, and the C name of the sum
        # of the offsets so far, in elements.
        self.offsets: dict[Value, tuple[Value, str]] = {}
        # The stores that may bypass the caches; `trips` holds the iteration counts of the loops around them.
        self.streamable: frozenset[Operation] = frozenset()
        self.trips: dict[Operation, str] = {}
        self.tails: dict[Value, Tail] = {}  # facts about values that are in buffers
        self.parts: dict[Operation, tuple[str, str]] = {}  # the numbers of used rows and columns of a dot
        self._scalars: dict[Value, str] = {}
        self._buffers: dict[Value, LoopBuffer] = {}
        self._constant_arrays: dict[Value, str] = {}
        self._stages: dict[Value, LoopBuffer] = {}
        self._serial = 0

    @property
    def reference(self) -> bool:
        """Whether nothing may be fused or vectorised."""
        return self.options.mode == "reference"

    def name(self, stem: str) -> str:
        """A fresh C name."""
        self._serial += 1
        return f"{stem}{self._serial}"

    def emit(self, statement: Statement) -> None:
        """Appends a statement to the list that is being collected."""
        self.out.append(statement)

    @contextmanager
    def collecting(self) -> Generator[list[Statement]]:
        """A context manager that collects statements into a new list."""
        outer, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = outer

    def resolve(self, value: Value) -> Value:
        """The value that ``value`` is known to equal, or ``value`` itself."""
        while value in self.same:
            value = self.same[value]
        return value

    def bind(self, value: Value, name: str) -> None:
        """Records that the C expression ``name`` is the scalar ``value``."""
        self._scalars[value] = name

    def scalar(self, value: Value) -> str:
        """The C expression of a scalar."""
        return self._scalars[self.resolve(value)]

    def new_buffer(self, type_: Type, element: str = "") -> LoopBuffer:
        """A new buffer for a tensor of ``type_``, with elements of type ``element`` ("" for the tensor's own)."""
        item = Type(element or type_.element, (), tensor=False, pointer=type_.pointer)
        size = _POINTER_BYTES if item.pointer else ops.element_bytes(item.element)
        return LoopBuffer(self.name("b"), ops.c_type(item), type_.elements, size)

    def buffer(self, value: Value) -> LoopBuffer | None:
        """The buffer that holds ``value``, or None."""
        return self._buffers.get(self.resolve(value))

    def hold(self, value: Value, buffer: LoopBuffer) -> None:
        """Records that ``buffer`` holds ``value``."""
        self._buffers[self.resolve(value)] = buffer

    def buffer_for(self, value: Value) -> LoopBuffer:
        """The buffer of ``value``; the first call creates it."""
        buffer = self.buffer(value)
        if buffer is None:
            buffer = self.new_buffer(value.type)
            self.hold(value, buffer)
        return buffer

    def stage(self, value: Value) -> LoopBuffer:
        """A second buffer for a carried tensor; ``unstage`` copies it over the first."""
        buffer = self._stages.get(value)
        if buffer is None:
            buffer = self._stages[value] = self.new_buffer(value.type)
        return buffer

    def unstage(self, values: Iterable[Value]) -> None:
        """Copies the second buffers of ``values`` (see :meth:`stage`) to the buffers of the values."""
        for value in values:
            source = self._stages.pop(value, None)
            if source is not None:
                target = self.buffer_for(value)
                self.lifetimes.touch(source)
                self.lifetimes.touch(target)
                self.emit(Copy(target, source))

    def expression(self, operation: Operation, operands: list[str]) -> str:
        """The C expression of one element of an elementwise operation."""
        self.pieces |= ops.runtime_pieces(operation)
        types = [value.type for value in operation.operands]
        return ops.scalar_expression(operation, operands, types, operation.result.type)

    def apply(self, operation: Operation, elements: list[str], targets: list[str]) -> list[Statement]:
        """Statements that apply the region of ``operation`` to ``elements`` and write the results to ``targets``."""
        function = self.elementwise[operation]
        arguments = [*(self.scalar(value) for value in function.passed), *elements, *targets]
        if function.calls:
            return self.checked_call(function.name, arguments)
        return [LoopCall(f"{function.name}({', '.join(arguments)})")]

    def vectorizes(self, operation: Operation) -> bool:
        """Whether the region of ``operation`` may be applied to several elements at once."""
        return not self.reference and not self.elementwise[operation].calls

    def checked_call(self, function: str, arguments: list[str]) -> list[Statement]:
        """Statements that call a C function with the program's position, scratch memory and context.

        If the function fails, the calling function returns its error code.
        """
        context_arguments = f"program_x, program_y, program_z, grid, (char *)scratch + {self.frame}, context"
        code = self.name("code")
        called = Define("int32_t", code, f"{function}({', '.join([*arguments, context_arguments])})")
        return [called, If(code, [Return(code)])]

    def constant_array(self, value: Value) -> str:
        """The name of a C array that holds a constant whose elements differ."""
        array_name = self._constant_arrays.get(value)
        if array_name is None:
            assert value.owner is not None
            dense = value.owner.attributes["value"]
            assert isinstance(dense, Dense)
            array_name = self.name("k")
            items = ", ".join(ops.literal(item, value.type.element) for item in dense.values)
            self.constants.append(f"static {ops.c_type(value.type)} const {array_name}[] = {{{items}}};")
            self._constant_arrays[value] = array_name
        return array_name
