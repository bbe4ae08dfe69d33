"""Reads the launch that a compiled host function makes, by interpreting it with unknown arguments.

The DSL compiles a host function to MLIR's LLVM dialect: the function fills a launch config and an array of parameters,
and calls the driver. This module follows the function from its first block to that call. Values are constants if known,
and otherwise record the arguments from which they come. Operations are read through the DSL's own bindings, not as
text. An unknown operation yields an unknown value, so a result can be wrong only if an operation does not do what its
name means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from silo.core.launch_info import ABI_BYTES, AbiType
from silo.errors import CompileError, UnsupportedError
from silo.kinds.cute.launch_call import (
    ArgumentLeaf,
    CLayout,
    Computed,
    HostValue,
    LaunchCall,
    LaunchValue,
    PassedParameter,
    layout_of,
)

__all__ = [
    "COMPARISONS",
    "INTEGER_OPERATIONS",
    "Address",
    "HostMemory",
    "MemoryBlock",
    "Part",
    "Symbol",
    "read_launch",
    "unsigned",
    "wrapped",
]


# ---- The memory of a host function while it is read: the written values, byte by byte ----


@dataclass(frozen=True, slots=True)
class Address:
    """An offset in a block of memory that the function allocated."""

    block: int
    offset: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a global variable of the module or, if ``loaded``, its value."""

    name: str
    loaded: bool = False


Scalar = int | float | LaunchValue | Computed | Address | Symbol
Part = Scalar | tuple["Part", ...]
"""A value: a scalar, or the members of a struct or an array."""


@dataclass(slots=True)
class MemoryBlock:
    """The contents of one allocation: its layout, and the scalars written to it by offset, with their sizes."""

    layout: CLayout
    cells: dict[int, tuple[int, Scalar]] = field(default_factory=dict[int, tuple[int, Scalar]])
    spoiled: bool = False  # whether an unknown operation may have written to it

    def put(self, offset: int, size: int, value: Scalar) -> None:
        """Writes a scalar, replacing the scalars that it overlaps."""
        for start, (length, _) in list(self.cells.items()):
            if start < offset + size and offset < start + length:
                del self.cells[start]
        self.cells[offset] = (size, value)

    def get(self, offset: int, size: int) -> Scalar:
        """Returns a scalar that was written to exactly these bytes; an unknown value for any other range."""
        length, value = self.cells.get(offset, (0, Computed()))
        return value if length == size and not self.spoiled else Computed()


class HostMemory:
    """All memory blocks of one run of the host function."""

    def __init__(self) -> None:
        self.blocks: list[MemoryBlock] = []

    def allocate(self, layout: CLayout) -> Address:
        """Returns the address of a new block."""
        self.blocks.append(MemoryBlock(layout))
        return Address(len(self.blocks) - 1, 0)

    def write(self, address: Part, layout: CLayout, value: Part) -> None:
        """Writes ``value``, which has the layout ``layout``, to ``address``.

        Does nothing for an unknown address: it is outside of all blocks, because no address of a block escapes.
        """
        if not isinstance(address, Address):
            return
        if layout.scalar is not None:
            assert not isinstance(value, tuple)
            self.blocks[address.block].put(address.offset, ABI_BYTES[layout.scalar], value)
            return
        for index, (offset, part) in enumerate(layout.parts):
            member = value[index] if isinstance(value, tuple) else Computed()
            self.write(Address(address.block, address.offset + offset), part, member)

    def read(self, address: Part, layout: CLayout) -> Part:
        """Returns the value with the layout ``layout`` that is at ``address``."""
        if isinstance(address, Symbol):
            return Symbol(address.name, loaded=True)
        if layout.scalar is not None:
            if not isinstance(address, Address):
                return Computed()
            return self.blocks[address.block].get(address.offset, ABI_BYTES[layout.scalar])
        return tuple(
            self.read(Address(address.block, address.offset + offset), part)
            if isinstance(address, Address)
            else Computed()
            for offset, part in layout.parts
        )

    def spoil(self, address: Part) -> None:
        """Marks the block at this address as unknown, because an unknown operation may have written to it."""
        if isinstance(address, Address):
            self.blocks[address.block].spoiled = True


# ---- Integer arithmetic of the LLVM dialect, over constants ----


def wrapped(value: int, bits: int) -> int:
    """Returns ``value`` as a signed number of ``bits`` bits; a single bit is 0 or 1.

    >>> wrapped(255, 8), wrapped(1, 1), wrapped(256, 8)
    (-1, 1, 0)
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    """Returns the unsigned number with the same bits."""
    return value & ((1 << bits) - 1)


def _quotient(left: int, right: int) -> int:
    """Returns the quotient, rounded towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _signed(rule: Callable[[int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: wrapped(rule(left, right), bits)


def _unsigned(rule: Callable[[int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: wrapped(rule(unsigned(left, bits), unsigned(right, bits)), bits)


def _divided(rule: Callable[[int, int, int], int | None]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: rule(left, right, bits) if right else None


def _shifted(rule: Callable[[int, int, int], int | None]) -> Callable[[int, int, int], int | None]:
    return lambda left, right, bits: rule(left, right, bits) if 0 <= right < bits else None


INTEGER_OPERATIONS: Mapping[str, Callable[[int, int, int], int | None]] = {
    "llvm.add": _signed(lambda left, right: left + right),
    "llvm.sub": _signed(lambda left, right: left - right),
    "llvm.mul": _signed(lambda left, right: left * right),
    "llvm.and": _signed(lambda left, right: left & right),
    "llvm.or": _signed(lambda left, right: left | right),
    "llvm.xor": _signed(lambda left, right: left ^ right),
    "llvm.intr.smax": _signed(max),
    "llvm.intr.smin": _signed(min),
    "llvm.intr.umax": _unsigned(max),
    "llvm.intr.umin": _unsigned(min),
    "llvm.sdiv": _divided(_signed(_quotient)),
    "llvm.srem": _divided(_signed(lambda left, right: left - right * _quotient(left, right))),
    "llvm.udiv": _divided(_unsigned(lambda left, right: left // right)),
    "llvm.urem": _divided(_unsigned(lambda left, right: left % right)),
    "llvm.shl": _shifted(_signed(lambda left, right: left << right)),
    "llvm.ashr": _shifted(_signed(lambda left, right: left >> right)),
    "llvm.lshr": _shifted(_unsigned(lambda left, right: left >> right)),
}
"""Maps an operation's name to a function of two signed numbers and their width in bits, which may return None.

None means that the result is undefined.
"""

# The comparisons in order of the dialect's numbers: eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge.
COMPARISONS: tuple[Callable[[int, int, int], bool], ...] = (
    lambda left, right, _: left == right,
    lambda left, right, _: left != right,
    lambda left, right, _: left < right,
    lambda left, right, _: left <= right,
    lambda left, right, _: left > right,
    lambda left, right, _: left >= right,
    lambda left, right, bits: unsigned(left, bits) < unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) <= unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) > unsigned(right, bits),
    lambda left, right, bits: unsigned(left, bits) >= unsigned(right, bits),
)


# ---- Running a host function ----


_MOST_STEPS = 1_000_000
_DYNAMIC_INDEX = -(1 << 31)  # stands for the next operand in the index list of a getelementptr
_CONFIG = "silo reads a launch config of this form only"
_LAUNCHES = ("_cudaLaunchKernelEx", "_cudaLaunchKernel")
_INT32 = CLayout(4, 4, (), AbiType.I32)
_INT64 = CLayout(8, 8, (), AbiType.I64)
_POINTER = CLayout(8, 8, (), AbiType.POINTER)
_ATTRIBUTE_BYTES = 72  # size of CUlaunchAttribute: a number, four bytes of padding, and the value
_ATTRIBUTE_VALUE = 8
_VALUE_WORDS = 16
_PASSED_ON = ("llvm.addrspacecast", "llvm.bitcast", "llvm.inttoptr", "llvm.ptrtoint", "llvm.freeze")
_EXTENDED = ("llvm.zext", "llvm.sext", "llvm.trunc")

_HOST_DSL = 'let the DSL launch it: silo.cute(..., host="dsl")'


def read_launch(function: Any, functions: Mapping[str, Any], ir: Any, llvm: Any) -> LaunchCall:  # noqa: ANN401
    """Returns the only launch of ``function``, an ``llvm.func`` of the DSL's bindings.

    Args:
        function: the host function.
        functions: the module's other functions with a body, by name: calls of these are followed too.
        ir: the bindings' module of MLIR's core.
        llvm: the bindings' module of the LLVM dialect.

    Raises:
        UnsupportedError: the function launches no kernel, or several, or its arguments decide which.
        CompileError: the function has an unknown form.
    """
    run = _Run(functions, ir, llvm)
    body = function.regions[0].blocks[0]
    run.call(body, [run.argument(index, argument.type) for index, argument in enumerate(body.arguments)])
    match run.launches:
        case [launch]:
            return launch
        case []:
            raise UnsupportedError("the host function launches no kernel")
        case launches:
            raise UnsupportedError(f"the host function launches {len(launches)} kernels, and Silo one; {_HOST_DSL}")


class _Run:
    """One run of a host function: the values of its operations, its memory, and the launches found so far."""

    def __init__(self, functions: Mapping[str, Any], ir: Any, llvm: Any) -> None:  # noqa: ANN401
        self._functions = functions
        self._llvm = llvm
        # The DSL's own classes of values turn == into an operation. The hash of their base class is the value's
        # address, which identifies the value as long as the module lives.
        self._key: Callable[[Any], int] = ir.Value.__hash__
        self._memory = HostMemory()
        self._values: dict[int, Part] = {}
        self._layouts: dict[str, CLayout] = {}
        self._steps = 0
        self._depth = 0
        self.launches: list[LaunchCall] = []

    def layout(self, kind: Any) -> CLayout:  # noqa: ANN401
        text = str(kind)
        layout = self._layouts.get(text)
        if layout is None:
            layout = self._layouts[text] = layout_of(self._llvm, kind)
        return layout

    def argument(self, index: int, kind: Any) -> Part:  # noqa: ANN401
        """Returns an argument of the function: unknown values that record where they come from."""
        members = iter(range(1 << 20))

        def value(layout: CLayout) -> Part:
            if layout.scalar is not None:
                return LaunchValue(index, next(members))
            return tuple(value(part) for _, part in layout.parts)

        return value(self.layout(kind))

    def call(self, block: Any, arguments: list[Part]) -> Part:  # noqa: ANN401
        """Runs a function from its first block; returns its result."""
        self._depth += 1
        if self._depth > 16:
            raise UnsupportedError(f"the host function calls itself; {_HOST_DSL}")
        while True:
            for name, value in zip(block.arguments, arguments, strict=True):
                self._values[self._key(name)] = value
            operations = list(block.operations)
            for operation in operations[:-1]:
                self._run(operation.operation)
            last = operations[-1].operation
            if last.name == "llvm.return":
                self._depth -= 1
                return self._operands(last)[0] if len(last.operands) else ()
            block, arguments = self._jump(last)

    def _operands(self, operation: Any) -> list[Part]:  # noqa: ANN401
        return [self._values[self._key(operand)] for operand in operation.operands]

    def _jump(self, operation: Any) -> tuple[Any, list[Part]]:  # noqa: ANN401
        """Returns the block to which a block's last operation jumps, and the arguments that it passes."""
        values = self._operands(operation)
        if operation.name == "llvm.br":
            return operation.successors[0], values
        if operation.name == "llvm.cond_br":
            condition = values[0]
            if not isinstance(condition, int):
                raise UnsupportedError(
                    f"the host function decides by {_named(condition)} how it launches, which Silo cannot; {_HOST_DSL}"
                )
            sizes = list(operation.attributes["operandSegmentSizes"])
            if condition:
                return operation.successors[0], values[1 : 1 + sizes[1]]
            return operation.successors[1], values[1 + sizes[1] :]
        if operation.name == "llvm.unreachable":
            raise UnsupportedError("the host function stops with an error before it launches")
        raise UnsupportedError(f"the host function has a jump that Silo does not follow, {operation.name}; {_HOST_DSL}")

    def _run(self, operation: Any) -> None:  # noqa: ANN401
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise UnsupportedError(f"the host function takes more than {_MOST_STEPS} steps to its launch; {_HOST_DSL}")
        name: str = operation.name
        values = self._operands(operation)
        if name == "llvm.call":
            result = self._call(operation, values)
        elif name == "llvm.store":
            self._memory.write(values[1], self.layout(operation.operands[0].type), values[0])
            return
        elif (rule := _RULES.get(name)) is not None:
            result = rule(self, operation, values)
        elif (integer := INTEGER_OPERATIONS.get(name)) is not None:
            result = self._arithmetic(operation, values, integer)
        else:
            for value in values:
                self._memory.spoil(value)
            result = _worked_out(values)
        for output in operation.results:
            self._values[self._key(output)] = result

    def _arithmetic(self, operation: Any, values: list[Part], rule: Callable[[int, int, int], int | None]) -> Part:  # noqa: ANN401
        left, right = values
        if isinstance(left, int) and isinstance(right, int):
            result = rule(left, right, _bits(operation.results[0].type))
            if result is not None:
                return result
        return _worked_out(values)

    def constant(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        del values
        value = operation.attributes["value"]
        kind = operation.results[0].type
        if self.layout(kind).scalar is None:
            return Computed()  # a constant that is no number, such as a string
        constant = value.value
        return constant if isinstance(constant, float) else wrapped(int(constant), _bits(kind))

    def zero(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        del values

        def value(layout: CLayout) -> Part:
            return 0 if layout.scalar is not None else tuple(value(part) for _, part in layout.parts)

        return value(self.layout(operation.results[0].type))

    def nothing(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        del values

        def value(layout: CLayout) -> Part:
            return Computed() if layout.scalar is not None else tuple(value(part) for _, part in layout.parts)

        return value(self.layout(operation.results[0].type))

    def allocate(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        member = self.layout(operation.attributes["elem_type"].value)
        count = values[0]
        if not isinstance(count, int):
            raise UnsupportedError(f"the host function allocates as much memory as {_named(count)} says; {_HOST_DSL}")
        if count == 1:
            return self._memory.allocate(member)
        parts = tuple((index * member.size, member) for index in range(count))
        return self._memory.allocate(CLayout(count * member.size, member.align, parts))

    def address(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        """Returns the address of a member of an object, as a ``getelementptr`` operation computes it."""
        base, further = values[0], iter(values[1:])
        indices = [
            next(further) if index == _DYNAMIC_INDEX else index for index in operation.attributes["rawConstantIndices"]
        ]
        if isinstance(base, Symbol):
            return base
        constant_indices = [index for index in indices if isinstance(index, int)]
        if not isinstance(base, Address) or len(constant_indices) != len(indices):
            return _worked_out([base, *values])
        layout = self.layout(operation.attributes["elem_type"].value)
        offset, _ = layout.at(tuple(constant_indices[1:]))
        return Address(base.block, base.offset + constant_indices[0] * layout.size + offset)

    def reading(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        return self._memory.read(values[0], self.layout(operation.results[0].type))

    def member(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        part = values[0]
        for index in operation.attributes["position"]:
            if not isinstance(part, tuple):
                return _worked_out(values)
            part = part[index]
        return part

    def with_member(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        def put(whole: Part, position: list[int]) -> Part:
            if not position:
                return value
            assert isinstance(whole, tuple)
            index = position[0]
            return (*whole[:index], put(whole[index], position[1:]), *whole[index + 1 :])

        container, value = values  # the container is the first operand, the new value the second
        return put(container, list(operation.attributes["position"]))

    def compare(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        left, right = values
        if isinstance(left, int) and isinstance(right, int):
            rule = COMPARISONS[int(operation.attributes["predicate"].value)]
            return int(rule(left, right, _bits(operation.operands[0].type)))
        return _worked_out(values)

    def select(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        del operation
        condition, left, right = values
        if isinstance(condition, int):
            return left if condition else right
        return left if left == right else _worked_out(values)

    def same(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        del operation
        return values[0]

    def resize(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        value = values[0]
        if not isinstance(value, int):
            return _worked_out(values)
        source = _bits(operation.operands[0].type)
        value = unsigned(value, source) if operation.name == "llvm.zext" else wrapped(value, source)
        return wrapped(value, _bits(operation.results[0].type))

    def symbol(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        del values
        return Symbol(operation.attributes["global_name"].value)

    def _call(self, operation: Any, values: list[Part]) -> Part:  # noqa: ANN401
        callee = operation.attributes["callee"].value if "callee" in operation.attributes else ""
        if callee in _LAUNCHES:
            result = self._launch_ex(values) if callee == _LAUNCHES[0] else self._launch(values)
            self.launches.append(result)
            return 0
        if (function := self._functions.get(callee)) is not None:
            return self.call(function.regions[0].blocks[0], values)
        for value in values:
            self._memory.spoil(value)
        return _worked_out(values)

    # ---- The launch ----

    def _launch_ex(self, values: list[Part]) -> LaunchCall:
        """Reads ``cudaLaunchKernelEx(config, kernel, parameters)``.

        The config has 6 words of grid and block, then shared memory, stream and attributes.
        """
        config, kernel, parameters = values
        if not isinstance(config, Address):
            raise CompileError(f"the host function's launch config lies at a place that is not known; {_CONFIG}")
        word = [self._read(config, 4 * index, _INT32) for index in range(6)]
        count, where = self._read(config, 48, _INT32), self._memory.read(self._moved(config, 40), _POINTER)
        if not isinstance(count, int):
            raise CompileError(f"how many launch attributes the host function sets is not known; {_CONFIG}")
        return LaunchCall(
            kernel=_kernel(kernel),
            parameters=self._parameters(parameters),
            grid=(word[0], word[1], word[2]),
            block=(word[3], word[4], word[5]),
            smem=self._read(config, 24, _INT64),
            stream=self._read(config, 32, _POINTER),
            attributes=self._attributes(where, count),
        )

    def _launch(self, values: list[Part]) -> LaunchCall:
        """Reads ``cudaLaunchKernel(kernel, grid x 3, block x 3, parameters, smem, stream)``."""
        word = [_number(value) for value in values[1:7]]
        return LaunchCall(
            kernel=_kernel(values[0]),
            parameters=self._parameters(values[7]),
            grid=(word[0], word[1], word[2]),
            block=(word[3], word[4], word[5]),
            smem=_number(values[8]),
            stream=_number(values[9]),
        )

    def _attributes(self, where: Part, count: int) -> tuple[tuple[int, tuple[HostValue, ...]], ...]:
        attributes: list[tuple[int, tuple[HostValue, ...]]] = []
        for index in range(count):
            if not isinstance(where, Address):
                raise CompileError(f"the launch attributes lie at a place that is not known; {_CONFIG}")
            at = self._moved(where, index * _ATTRIBUTE_BYTES)
            number = self._read(at, 0, _INT32)
            if not isinstance(number, int):
                raise CompileError(f"which launch attribute the host function sets is not known; {_CONFIG}")
            words = [self._read(at, _ATTRIBUTE_VALUE + 4 * word, _INT32) for word in range(_VALUE_WORDS)]
            while words and words[-1] == Computed():  # drop words at the end that were never written
                words.pop()
            attributes.append((number, tuple(words)))
        return tuple(attributes)

    def _parameters(self, where: Part) -> tuple[PassedParameter, ...]:
        """Returns the kernel's parameters from an array of pointers to them."""
        if not isinstance(where, Address):
            raise CompileError(f"the kernel's parameters lie at a place that is not known; {_CONFIG}")
        count = self._memory.blocks[where.block].layout.size // _POINTER.size
        parameters: list[PassedParameter] = []
        for index in range(count):
            at = self._memory.read(self._moved(where, index * _POINTER.size), _POINTER)
            if not isinstance(at, Address) or at.offset:
                raise CompileError(f"where the kernel's parameter {index} lies is not known; {_CONFIG}")
            layout = self._memory.blocks[at.block].layout
            leaves = tuple(
                ArgumentLeaf(leaf.offset, leaf.type, self._read(at, leaf.offset, CLayout(0, 1, (), leaf.type)))
                for leaf in layout.leaves
            )
            parameters.append(PassedParameter(layout.size, layout.align, leaves))
        return tuple(parameters)

    def _moved(self, address: Address, offset: int) -> Address:
        return Address(address.block, address.offset + offset)

    def _read(self, address: Address, offset: int, layout: CLayout) -> HostValue:
        return _number(self._memory.read(self._moved(address, offset), layout))


_RULES: Mapping[str, Callable[[_Run, Any, list[Part]], Part]] = {
    "llvm.mlir.constant": _Run.constant,
    "llvm.mlir.zero": _Run.zero,
    "llvm.mlir.poison": _Run.nothing,
    "llvm.mlir.undef": _Run.nothing,
    "llvm.mlir.addressof": _Run.symbol,
    "llvm.alloca": _Run.allocate,
    "llvm.getelementptr": _Run.address,
    "llvm.load": _Run.reading,
    "llvm.extractvalue": _Run.member,
    "llvm.insertvalue": _Run.with_member,
    "llvm.icmp": _Run.compare,
    "llvm.select": _Run.select,
    **dict.fromkeys(_PASSED_ON, _Run.same),
    **dict.fromkeys(_EXTENDED, _Run.resize),
}


def _kernel(value: Part) -> str:
    if not isinstance(value, Symbol):
        raise CompileError(f"which kernel the host function launches is not known; {_CONFIG}")
    return value.name


def _number(value: Part) -> HostValue:
    return value if isinstance(value, int | float | LaunchValue | Computed) else Computed()


def _bits(kind: Any) -> int:  # noqa: ANN401
    width = getattr(kind, "width", None)
    return 64 if width is None else int(width)


def _origins(value: Part) -> frozenset[int]:
    match value:
        case LaunchValue(argument):
            return frozenset({argument})
        case Computed(arguments):
            return arguments
        case tuple():
            return frozenset[int]().union(*(_origins(part) for part in value))
        case _:
            return frozenset()


def _worked_out(values: list[Part]) -> Computed:
    return Computed(frozenset[int]().union(*(_origins(value) for value in values)))


def _named(value: Part) -> str:
    origins = sorted(_origins(value))
    if not origins:
        return "what it finds when it runs"
    return f"its argument{'s' if len(origins) > 1 else ''} {', '.join(str(index) for index in origins)}"
