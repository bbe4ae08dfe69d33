"""The parameters of a GPU binary that Triton makes: which remain, in what order, of what type."""

from __future__ import annotations

from silo.artifacts.inspect import BinaryKernel
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.errors import CompileError, UnsupportedError

__all__ = ["argument_slots", "complete_layout"]

_BY_TRITON_NAME = {
    "i1": AbiType.I1,
    "i8": AbiType.I8,
    "i16": AbiType.I16,
    "i32": AbiType.I32,
    "i64": AbiType.I64,
    "u8": AbiType.U8,
    "u16": AbiType.U16,
    "u32": AbiType.U32,
    "u64": AbiType.U64,
    "fp16": AbiType.FP16,
    "bf16": AbiType.BF16,
    "fp32": AbiType.FP32,
    "fp64": AbiType.FP64,
}
_SIZES = {
    AbiType.I1: 1,
    AbiType.I8: 1,
    AbiType.U8: 1,
    AbiType.I16: 2,
    AbiType.U16: 2,
    AbiType.FP16: 2,
    AbiType.BF16: 2,
    AbiType.I32: 4,
    AbiType.U32: 4,
    AbiType.FP32: 4,
}  # the others are addresses and 64-bit values

# What Triton's lowering adds behind the kernel's own parameters, always in this order.
_TRAILING = (LayoutSlot("", AbiType.SCRATCH), LayoutSlot("", AbiType.PROFILE))


def argument_slots(signature: Signature, specialization: Specialization) -> tuple[LayoutSlot, ...]:
    """The kernel parameters that stay parameters: constexprs, None and integers known to be 1 are folded away.

    Raises:
        UnsupportedError: a tensor descriptor, which GPU binaries take apart in ways not covered yet.
        CompileError: a parameter has no type.
    """
    slots: list[LayoutSlot] = []
    for parameter in signature.parameters:
        facts = specialization.facts_of(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR or facts & {Fact.EQUAL_1, Fact.NONE}:
            continue
        slots.append(LayoutSlot(parameter.name, _abi_type(parameter)))
    return tuple(slots)


def _abi_type(parameter: Parameter) -> AbiType:
    if parameter.kind is ParameterKind.POINTER:
        return AbiType.POINTER
    if parameter.kind is ParameterKind.DESCRIPTOR:
        raise UnsupportedError(
            f"the parameter {parameter.name} is a tensor descriptor, which cannot be launched on a GPU yet; "
            "make the descriptor in the kernel with tl.make_tensor_descriptor"
        )
    found = _BY_TRITON_NAME.get(parameter.dtype.triton) if parameter.dtype is not None else None
    if found is None:
        raise CompileError(f"the parameter {parameter.name} ({parameter.kind.value}, {parameter.dtype}) has no GPU ABI")
    return found


def complete_layout(arguments: tuple[LayoutSlot, ...], kernel: BinaryKernel) -> tuple[LayoutSlot, ...]:
    """The layout with the trailing scratch slots, checked against what the binary says of its parameters.

    The binary decides how many scratch slots there are, since that differs between versions of Triton.

    Raises:
        CompileError: the binary takes other parameters than the signature says. A launch would read wrong memory.
    """
    extra = len(kernel.parameters) - len(arguments)
    if not 0 <= extra <= len(_TRAILING):
        raise CompileError(
            f"{kernel.entry} takes {len(kernel.parameters)} parameters in the binary; its signature leaves "
            f"{len(arguments)} ({', '.join(slot.name for slot in arguments)})"
        )
    layout = arguments + _TRAILING[:extra]
    for slot, (offset, size) in zip(layout, kernel.parameters, strict=True):
        if size != _SIZES.get(slot.type, 8):
            raise CompileError(
                f"{kernel.entry}: the parameter {slot.name or slot.type.value} has {size} bytes at {offset} in the "
                f"binary, its type {slot.type.value} says {_SIZES.get(slot.type, 8)}"
            )
    return layout
