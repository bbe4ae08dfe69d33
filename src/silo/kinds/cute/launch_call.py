"""The launch that a compiled host function makes, with constants or origins as values; and layouts of the DSL's types.

:mod:`.host_function` reads it from the compiled module; :mod:`.cute_launch` turns it into launch info.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from silo.core.launch_info import ABI_BYTES, AbiType
from silo.errors import CompileError, UnsupportedError

__all__ = [
    "ArgumentLeaf",
    "CLayout",
    "Computed",
    "HostValue",
    "LaunchCall",
    "LaunchValue",
    "Layout",
    "LayoutLeaf",
    "MemoryLeaf",
    "PassedParameter",
    "Tree",
    "flat",
    "layout_of",
    "parse_layout",
    "type_parameters",
]


@dataclass(frozen=True, slots=True)
class LaunchValue:
    """A value passed to the host function: the number of its ``argument``, counted from 0, and the ``member`` in it.

    ``member`` is the index of a scalar among the argument's scalars, in C's order: 0 for a pointer or a number, and for
    a tensor's pointer; the tensor's dynamic sizes and strides follow.
    """

    argument: int
    member: int = 0


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that the host function computes at run time from these of its arguments."""

    arguments: frozenset[int] = frozenset()


HostValue: TypeAlias = int | float | LaunchValue | Computed


@dataclass(frozen=True, slots=True)
class ArgumentLeaf:
    """One scalar within a kernel parameter: its offset in the parameter in bytes, its type, its value."""

    offset: int
    type: AbiType
    value: HostValue


@dataclass(frozen=True, slots=True)
class PassedParameter:
    """One parameter of the kernel as the host function passes it: its size and alignment in bytes, its scalars."""

    size: int
    align: int
    leaves: tuple[ArgumentLeaf, ...]

    @property
    def arguments(self) -> tuple[int, ...]:
        """The numbers of the host function's arguments from which the parameter is made, in order."""
        numbers: set[int] = set()
        for leaf in self.leaves:
            if isinstance(leaf.value, LaunchValue):
                numbers.add(leaf.value.argument)
            elif isinstance(leaf.value, Computed):
                numbers |= leaf.value.arguments
        return tuple(sorted(numbers))


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """One launch. ``kernel`` is the host function's own name of the loaded kernel; it ends with the entry's name.

    ``grid``, ``block`` and ``smem`` (bytes of dynamic shared memory) may be constants. ``stream`` is the stream's
    handle: 0 for the default stream. ``attributes`` are the launch attributes by the driver's number
    (``CUlaunchAttributeID``), each with the 32-bit words that were set.
    """

    kernel: str
    parameters: tuple[PassedParameter, ...]
    grid: tuple[HostValue, HostValue, HostValue]
    block: tuple[HostValue, HostValue, HostValue]
    smem: HostValue
    stream: HostValue = 0
    attributes: tuple[tuple[int, tuple[HostValue, ...]], ...] = ()


# ---- Layouts and types, in the notation of MLIR's types of the DSL ----


@dataclass(frozen=True, slots=True)
class LayoutLeaf:
    """One number of a layout: ``value`` is None if it is only known at the launch.

    ``basis`` are the modes along which a stride of coordinates steps: ``2@1`` is two steps along mode 1.
    """

    value: int | None
    basis: tuple[int, ...] = ()


Tree: TypeAlias = "LayoutLeaf | tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Layout:
    """A shape and strides: trees of equal structure."""

    shape: Tree
    stride: Tree


def flat(tree: Tree) -> tuple[LayoutLeaf, ...]:
    """Returns the leaves of a tree, in order."""
    return (tree,) if isinstance(tree, LayoutLeaf) else tuple(leaf for part in tree for leaf in flat(part))


def parse_layout(text: str) -> Layout:
    """Returns the layout that a text describes.

    >>> layout = parse_layout("(?{i64 div=8},(64,8)):(512,(1@0,1@2))")
    >>> [leaf.value for leaf in flat(layout.shape)], flat(layout.stride)[2]
    ([None, 64, 8], LayoutLeaf(value=1, basis=(2,)))

    Raises:
        CompileError: the text has an unknown form.
    """
    reader = _Reader(text)
    shape = reader.tree()
    reader.take(":")
    stride = reader.tree()
    reader.end()
    if len(flat(shape)) != len(flat(stride)):
        raise _unknown(text)
    return Layout(shape, stride)


def type_parameters(text: str, *names: str) -> list[str]:
    """Returns the parameters of a type with one of these names; quotes around a whole parameter are removed.

    >>> type_parameters('!cute.coord_tensor<"(0,0)", "(4,8):(1@1,1@0)">', "cute.coord_tensor")
    ['(0,0)', '(4,8):(1@1,1@0)']

    Raises:
        CompileError: the type has another name.
    """
    name, _, rest = text.partition("<")
    if name not in [f"!{name}" for name in names] or not rest.endswith(">"):
        raise _unknown(text)
    parameters: list[str] = []
    depth, begin, quoted = 0, 0, False
    body = rest[:-1]
    for at, character in enumerate(body):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "<([":
            depth += 1
        elif character in ">)]":
            depth -= 1
        elif character == "," and depth == 0:
            parameters.append(body[begin:at])
            begin = at + 1
    parameters.append(body[begin:])
    return [parameter.strip().removeprefix('"').removesuffix('"') for parameter in parameters]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def take(self, wanted: str) -> None:
        if not self._text.startswith(wanted, self._at):
            raise _unknown(self._text)
        self._at += len(wanted)

    def _skips(self, wanted: str) -> bool:
        matched = self._text.startswith(wanted, self._at)
        self._at += len(wanted) if matched else 0
        return matched

    def end(self) -> None:
        if self._at != len(self._text):
            raise _unknown(self._text)

    def tree(self) -> Tree:
        if not self._skips("("):
            return self._leaf()
        parts: list[Tree] = [self.tree()]
        while self._skips(","):
            parts.append(self.tree())
        self.take(")")
        return tuple(parts)

    def _leaf(self) -> LayoutLeaf:
        if self._skips("?"):
            value = None
            if self._skips("{"):
                self._at = self._text.find("}", self._at)
                self.take("}")
        else:
            value = self._number()
        basis: list[int] = []
        while self._skips("@"):
            basis.append(self._number())
        return LayoutLeaf(value, tuple(basis))

    def _number(self) -> int:
        end = self._at + self._text.startswith("-", self._at)
        while end < len(self._text) and self._text[end].isdigit():
            end += 1
        digits, self._at = self._text[self._at : end], end
        if not digits.lstrip("-"):
            raise _unknown(self._text)
        return int(digits)


def _unknown(words: str | Sequence[str]) -> CompileError:
    return CompileError(f"the DSL's artifact has words that this version of Silo does not know: {words}")


# ---- The memory layout of the types in a compiled host function, by the rules of C on 64-bit machines ----

_POINTER_BYTES = 8
_FLOATS = {"f16": AbiType.FP16, "bf16": AbiType.BF16, "f32": AbiType.FP32, "f64": AbiType.FP64}
_INTEGERS = {1: AbiType.I8, 8: AbiType.I8, 16: AbiType.I16, 32: AbiType.I32, 64: AbiType.I64}


@dataclass(frozen=True, slots=True)
class MemoryLeaf:
    """One scalar of a type: its offset in bytes, and its ABI type."""

    offset: int
    type: AbiType


@dataclass(frozen=True, slots=True)
class CLayout:
    """A type in memory.

    ``parts`` are the layouts of a struct's or an array's members with their offsets. They are () for a scalar, whose
    only leaf is the scalar itself, and for an empty struct, which has no leaves.
    """

    size: int
    align: int
    parts: tuple[tuple[int, CLayout], ...]
    scalar: AbiType | None = None

    @property
    def leaves(self) -> tuple[MemoryLeaf, ...]:
        """The type's scalars in order."""
        if self.scalar is not None:
            return (MemoryLeaf(0, self.scalar),)
        return tuple(MemoryLeaf(offset + leaf.offset, leaf.type) for offset, part in self.parts for leaf in part.leaves)

    def at(self, indices: tuple[int, ...]) -> tuple[int, CLayout]:
        """Returns the offset and the layout of the member at a path of indices."""
        offset, layout = 0, self
        for index in indices:
            step, layout = layout.parts[index]
            offset += step
        return offset, layout


def layout_of(llvm: Any, kind: Any) -> CLayout:  # noqa: ANN401  # the DSL's bindings are untyped
    """Returns the layout of ``kind``, a type of the LLVM dialect with the bindings ``llvm``. Raises CompileError."""
    kind = kind.maybe_downcast()
    if isinstance(kind, llvm.StructType):
        return _struct([layout_of(llvm, member) for member in kind.body], packed=bool(kind.packed))
    if isinstance(kind, llvm.ArrayType):
        member = layout_of(llvm, kind.element_type)
        parts = tuple((index * member.size, member) for index in range(kind.num_elements))
        return CLayout(member.size * len(parts), member.align, parts)
    if isinstance(kind, llvm.PointerType):
        return CLayout(_POINTER_BYTES, _POINTER_BYTES, (), AbiType.POINTER)
    text = str(kind)
    scalar = _FLOATS.get(text)
    if scalar is None and text.startswith("i") and text[1:].isdecimal():
        scalar = _INTEGERS.get(int(text[1:]))
    if scalar is None:
        raise UnsupportedError(
            f"the DSL's host function holds a value of the type {text}, which Silo does not know; let the DSL's host "
            'function launch it: silo.cute(..., host="dsl")'
        )
    return CLayout(ABI_BYTES[scalar], ABI_BYTES[scalar], (), scalar)


def _struct(members: list[CLayout], *, packed: bool) -> CLayout:
    at, align = 0, 1
    parts: list[tuple[int, CLayout]] = []
    for member in members:
        step = 1 if packed else member.align
        at = -(-at // step) * step
        parts.append((at, member))
        at += member.size
        align = max(align, step)
    return CLayout(-(-at // align) * align, align, tuple(parts))
