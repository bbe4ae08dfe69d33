"""The scope of a lowering: the C name of each scalar, the buffer of each stored value."""

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
    """A C function that applies the region of an operation: the values it takes before the elements.

    One that ``calls`` functions of the user takes the program's surroundings as well and returns an error code.
    """

    name: str
    passed: tuple[Value, ...]
    calls: bool


@dataclass(frozen=True, slots=True)
class Tail:
    """From ``limit`` (a text over the extent) on, the elements along ``axis`` are the scalar ``element``."""

    axis: int
    limit: str
    element: str


_POINTER_BYTES = 8


class LoweringScope:
    """The state shared by everything that lowers one kernel."""

    def __init__(self, options: CpuOptions, module: Module) -> None:
        self.options = options
        self.module = module
        self.lifetimes = Lifetimes()
        self.pieces: set[str] = set()
        self.constants: list[str] = []
        self.locals: list[str] = []  # definitions that last from program to program
        self.finish: list[Statement] = []  # after the last program of a call
        self.wants_alone = False  # whether atomics are plain updates while no other kernel with atomics runs
        self.locking: set[Operation] = set()  # atomics under a lock, while all running kernels with atomics use locks
        self.in_kernel = False  # whether it is the kernel that is being lowered, and not a function that it calls
        self.out: list[Statement] = []
        self.frame = ""  # the C constant that is the size of the current function's scratch memory
        self.elementwise: dict[Operation, ElementFunction] = {}
        # A value that equals another (a carried value the loop never changes, a loop's result).
        self.same: dict[Value, Value] = {}
        # A carried value as its start and the name of the offset added so far, in elements.
        self.offsets: dict[Value, tuple[Value, str]] = {}
        # Stores that may go past the caches, and how often the loops round them run.
        self.streamable: frozenset[Operation] = frozenset()
        self.trips: dict[Operation, str] = {}
        self.tails: dict[Value, Tail] = {}  # of values in buffers
        self.parts: dict[Operation, tuple[str, str]] = {}  # for dots: the number of rows and columns that are used
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
        """Append to the statements being collected."""
        self.out.append(statement)

    @contextmanager
    def collecting(self) -> Generator[list[Statement]]:
        """Collect statements into a new list."""
        outer, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = outer

    def resolve(self, value: Value) -> Value:
        """``value``, or the value that it equals."""
        while value in self.same:
            value = self.same[value]
        return value

    def bind(self, value: Value, name: str) -> None:
        """Say that the C expression ``name`` is the scalar ``value``."""
        self._scalars[value] = name

    def scalar(self, value: Value) -> str:
        """The C expression of a scalar."""
        return self._scalars[self.resolve(value)]

    def new_buffer(self, type_: Type, element: str = "") -> LoopBuffer:
        """A fresh buffer for a tensor of ``type_``, as type ``element`` ("" for its own)."""
        item = Type(element or type_.element, (), tensor=False, pointer=type_.pointer)
        size = _POINTER_BYTES if item.pointer else ops.element_bytes(item.element)
        return LoopBuffer(self.name("b"), ops.c_type(item), type_.elements, size)

    def buffer(self, value: Value) -> LoopBuffer | None:
        """The buffer that holds ``value``, or None."""
        return self._buffers.get(self.resolve(value))

    def hold(self, value: Value, buffer: LoopBuffer) -> None:
        """Say that ``buffer`` holds ``value``."""
        self._buffers[self.resolve(value)] = buffer

    def buffer_for(self, value: Value) -> LoopBuffer:
        """The buffer of ``value``, made at its first use."""
        found = self.buffer(value)
        if found is None:
            found = self.new_buffer(value.type)
            self.hold(value, found)
        return found

    def stage(self, value: Value) -> LoopBuffer:
        """The second buffer of a carried tensor, copied over the first by ``unstage``."""
        found = self._stages.get(value)
        if found is None:
            found = self._stages[value] = self.new_buffer(value.type)
        return found

    def unstage(self, values: Iterable[Value]) -> None:
        """Copy the staged elements of ``values`` to their buffers."""
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
        """Apply the region of ``operation`` to ``elements`` and put the results at ``targets``."""
        function = self.elementwise[operation]
        arguments = [*(self.scalar(value) for value in function.passed), *elements, *targets]
        if function.calls:
            return self.checked_call(function.name, arguments)
        return [LoopCall(f"{function.name}({', '.join(arguments)})")]

    def vectorizes(self, operation: Operation) -> bool:
        """Whether the region of ``operation`` may be applied to several elements at once."""
        return not self.reference and not self.elementwise[operation].calls

    def checked_call(self, function: str, arguments: list[str]) -> list[Statement]:
        """Call a function that gets the program's surroundings; its error code becomes the caller's."""
        place = f"program_x, program_y, program_z, grid, (char *)scratch + {self.frame}, context"
        code = self.name("code")
        called = Define("int32_t", code, f"{function}({', '.join([*arguments, place])})")
        return [called, If(code, [Return(code)])]

    def constant_array(self, value: Value) -> str:
        """The name of a constant array that holds a constant whose elements differ."""
        found = self._constant_arrays.get(value)
        if found is None:
            assert value.owner is not None
            dense = value.owner.attributes["value"]
            assert isinstance(dense, Dense)
            found = self.name("k")
            items = ", ".join(ops.literal(item, value.type.element) for item in dense.values)
            self.constants.append(f"static {ops.c_type(value.type)} const {found}[] = {{{items}}};")
            self._constant_arrays[value] = found
        return found
