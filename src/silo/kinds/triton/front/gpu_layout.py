"""The parameters and the launch info of Triton's GPU binaries.

Triton folds some of a kernel's parameters into the code. This module finds those that the binary still has, their order
and their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from silo.artifacts.binary_inspection import BinaryKernel
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import Value
from silo.errors import CompileError, UnsupportedError
from silo.kinds.triton.front.adapter.gluon import block_extents

__all__ = ["argument_slots", "complete_layout", "launch_info", "slots_of_descriptor", "taken_apart", "tensor_maps"]

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

# The parameters that Triton's lowering appends to the kernel's own, always in this order.
_TRAILING = (LayoutSlot("", AbiType.SCRATCH), LayoutSlot("", AbiType.PROFILE))


# Flags among the parameters of a descriptor that was split up: Triton 3.6 has only ``nan``, later versions have both.
_FLAGS = ("nan", "tf32")

# The number in CUtensorMapDataType of element types whose number in PTX differs: f32 with denormals flushed (PTX: 8),
# f64 (9) and bf16 (10). All other types have the same number in both.
_HOST_ELEMENT_TYPES = {8: 10, 9: 8, 10: 9}


def argument_slots(
    signature: Signature, specialization: Specialization, config: Config | None = None
) -> tuple[LayoutSlot, ...]:
    """The kernel's parameters after folding: constexprs, None and integers known to be 1 are no parameters of the code.

    A tensor descriptor counts as a tensor map, its shape and its strides here; :func:`complete_layout` splits it up
    differently if the target lacks tensor maps.

    Raises:
        CompileError: a parameter lacks a type, or a descriptor a block shape.
    """
    values = {**({} if config is None else config.as_dict()), **specialization.constant_values}
    slots: list[LayoutSlot] = []
    for parameter in signature.parameters:
        facts = specialization.facts_of(parameter.name)
        if parameter.kind is ParameterKind.CONSTEXPR or facts & {Fact.EQUAL_1, Fact.NONE}:
            continue
        if parameter.kind is ParameterKind.DESCRIPTOR:
            slots += slots_of_descriptor(parameter.name, _rank(parameter, values))
        else:
            slots.append(LayoutSlot(parameter.name, _abi_type(parameter)))
    return tuple(slots)


def _rank(parameter: Parameter, constants: Mapping[str, Value]) -> int:
    block = block_extents(constants.get(parameter.name))
    if not block:
        raise CompileError(f"the descriptor {parameter.name} has no block shape")
    return len(block)


def slots_of_descriptor(name: str, rank: int) -> list[LayoutSlot]:
    """The slots of one tensor descriptor: its map, its shape, its strides in elements."""
    return [
        LayoutSlot(name, AbiType.TENSORMAP),
        *(LayoutSlot(name, AbiType.I32, f"shape.{axis}") for axis in range(rank)),
        *(LayoutSlot(name, AbiType.I64, f"stride.{axis}") for axis in range(rank)),
    ]


def _abi_type(parameter: Parameter) -> AbiType:
    if parameter.kind is ParameterKind.POINTER:
        return AbiType.POINTER
    abi_type = _BY_TRITON_NAME.get(parameter.dtype.short) if parameter.dtype is not None else None
    if abi_type is None:
        raise CompileError(f"the parameter {parameter.name} ({parameter.kind.value}, {parameter.dtype}) has no GPU ABI")
    return abi_type


def tensor_maps(arguments: Sequence[LayoutSlot], metadata: Mapping[str, Any]) -> tuple[TensorMap, ...]:
    """The encoding of each descriptor's tensor map, from Triton's metadata; empty if the code lacks tensor maps.

    Raises:
        UnsupportedError: descriptors of a form that none of Silo's drivers supports (im2col, AMD's tensor data mover).
        CompileError: the metadata does not match the arguments.
    """
    entries: Sequence[Mapping[str, Any]] = metadata.get("tensordesc_meta") or ()
    names = [slot.name for slot in arguments if slot.type is AbiType.TENSORMAP]
    if not entries:
        return ()
    if len(entries) != len(names):
        raise CompileError(f"Triton describes {len(entries)} tensor descriptors; the kernel takes {len(names)}")
    return tuple(_tensor_map(name, entry) for name, entry in zip(names, entries, strict=True))


def _tensor_map(name: str, entry: Mapping[str, Any]) -> TensorMap:
    if "swizzle" not in entry:
        raise UnsupportedError(
            f"the descriptor {name} becomes one of AMD's tensor data mover, which Silo does not make; "
            "pass a pointer and make the descriptor in the kernel with tl.make_tensor_descriptor"
        )
    if entry.get("is_im2col"):
        raise UnsupportedError(f"the descriptor {name} is an im2col one; Silo makes tiled tensor maps only")
    kind = int(entry["elem_type"])
    return TensorMap(
        name,
        swizzle=int(entry["swizzle"]),
        element_bytes=int(entry["elem_size"]),
        element_type=_HOST_ELEMENT_TYPES.get(kind, kind),
        box=tuple(int(extent) for extent in entry["block_size"]),
        fp4_padded=bool(entry["fp4_padded"]),
    )


def complete_layout(
    arguments: Sequence[LayoutSlot], kernel: BinaryKernel, maps: Sequence[TensorMap] = ()
) -> tuple[LayoutSlot, ...]:
    """The layout with the trailing scratch slots, checked against the parameters recorded in the binary.

    The number of scratch slots, and the flags of a descriptor without a tensor map, are taken from the binary, because
    they differ between versions of Triton.

    Raises:
        CompileError: the binary's parameters differ from the signature's, so a launch would read wrong memory.
    """
    slots: list[LayoutSlot] = list(arguments)
    problems: list[str] = []
    for form in [slots] if maps else taken_apart(slots):
        extra = len(kernel.parameters) - len(form)
        layout = (*form, *_TRAILING[: max(extra, 0)])
        problem = _mismatch(layout, kernel)
        if problem is None:
            return layout
        problems.append(problem)
    raise CompileError(problems[0])


def taken_apart(arguments: Sequence[LayoutSlot]) -> Iterator[list[LayoutSlot]]:
    """The possible layouts of code without tensor maps, in which each descriptor is replaced by several parameters.

    A descriptor's parameters are its base, shape, strides, and one or two flags. Arguments without descriptors have a
    single layout.
    """
    if all(slot.type is not AbiType.TENSORMAP for slot in arguments):
        yield list(arguments)
        return
    for count in (2, 1):
        form: list[LayoutSlot] = []
        for slot in arguments:
            if slot.type is not AbiType.TENSORMAP:
                form.append(slot)
                continue
            parts = [other.part for other in arguments if other.name == slot.name and other.part]
            form.append(LayoutSlot(slot.name, AbiType.POINTER))
            form += [LayoutSlot(slot.name, AbiType.I64, part) for part in parts]
            form += [LayoutSlot(slot.name, AbiType.I1, flag) for flag in _FLAGS[:count]]
        yield form


def launch_info(
    target: Target,
    metadata: Mapping[str, Any],
    layout: tuple[LayoutSlot, ...],
    kernel: BinaryKernel,
    maps: tuple[TensorMap, ...] = (),
) -> LaunchInfo:
    """Launch info from Triton's metadata and the binary.

    Triton gives scratch sizes for one block; a program is all blocks of a cluster, so its sizes are multiplied by
    ``num_ctas``. The grid of a launch counts clusters: its first axis times the cluster's first dimension is the number
    of blocks.
    """
    ctas = int(metadata.get("num_ctas", 1))
    # with warp specialization, Triton has replaced this member by the total of all partitions' warps
    warps = int(metadata["num_warps"])
    return LaunchInfo(
        entry=kernel.entry,
        layout=layout,
        num_warps=warps,
        threads=warps * int(metadata["warp_size"]),
        cluster=(ctas, 1, 1),
        shared_bytes=int(metadata["shared"]),
        scratch_bytes=int(metadata.get("global_scratch_size", 0)) * ctas,
        scratch_align=int(metadata.get("global_scratch_align", 1)),
        profile_bytes=int(metadata.get("profile_scratch_size", 0)) * ctas,
        profile_align=int(metadata.get("profile_scratch_align", 1)),
        cooperative=bool(metadata.get("launch_cooperative_grid", False)),
        pdl=target.kind == "cuda" and bool(metadata.get("launch_pdl", False)),
        registers=kernel.registers,
        spills=kernel.spills,
        tensor_maps=maps,
    )


def _mismatch(layout: Sequence[LayoutSlot], kernel: BinaryKernel) -> str | None:
    if len(layout) != len(kernel.parameters):
        own = [slot for slot in layout if slot not in _TRAILING]
        return (
            f"{kernel.entry} takes {len(kernel.parameters)} parameters in the binary; its signature leaves "
            f"{len(own)} ({', '.join(slot.name for slot in own)})"
        )
    for slot, (offset, size) in zip(layout, kernel.parameters, strict=True):
        if size != slot.bytes:
            return (
                f"{kernel.entry}: the parameter {slot.name or slot.type.value} has {size} bytes at {offset} in the "
                f"binary, its type {slot.type.value} says {slot.bytes}"
            )
    return None
