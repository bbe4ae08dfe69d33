"""How the types of a compiled host function lie in memory, by the rules of C on 64-bit machines.

The types come from MLIR's LLVM dialect, through the DSL's own bindings, which are passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from silo.core.launch_info import ABI_BYTES, AbiType
from silo.errors import CompileError

__all__ = ["CLayout", "MemoryLeaf", "layout_of"]

_POINTER_BYTES = 8
_FLOATS = {"f16": AbiType.FP16, "bf16": AbiType.BF16, "f32": AbiType.FP32, "f64": AbiType.FP64}
_INTEGERS = {1: AbiType.I8, 8: AbiType.I8, 16: AbiType.I16, 32: AbiType.I32, 64: AbiType.I64}


@dataclass(frozen=True, slots=True)
class MemoryLeaf:
    """One scalar of a type: its offset in bytes, and what it is."""

    offset: int
    type: AbiType


@dataclass(frozen=True, slots=True)
class CLayout:
    """A type in memory.

    ``parts`` are the layouts of a struct's or an array's members with their offsets; () for a scalar, which has one
    leaf, and for an empty struct, which has none.
    """

    size: int
    align: int
    parts: tuple[tuple[int, CLayout], ...]
    scalar: AbiType | None = None

    @property
    def leaves(self) -> tuple[MemoryLeaf, ...]:
        """Its scalars in order."""
        if self.scalar is not None:
            return (MemoryLeaf(0, self.scalar),)
        return tuple(MemoryLeaf(offset + leaf.offset, leaf.type) for offset, part in self.parts for leaf in part.leaves)

    def at(self, indices: tuple[int, ...]) -> tuple[int, CLayout]:
        """The offset and the layout of a member of a member."""
        offset, found = 0, self
        for index in indices:
            step, found = found.parts[index]
            offset += step
        return offset, found


def layout_of(llvm: Any, kind: Any) -> CLayout:  # noqa: ANN401  # the DSL's bindings have no types
    """The layout of ``kind``, a type of the dialect whose bindings are the module ``llvm``. CompileError: of others."""
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
        raise CompileError(f"the DSL's host function holds a value of the type {text}, which Silo does not know")
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
